"""Accept today's findings, so that only new ones fail an audit. The list can only shrink.

The first run writes every finding of today. A later run drops what is fixed and never adds: a new finding is fixed, or
waived with a reason (docs/configuration.md). Remove the file to start over.

examples:
  sysperf baseline
  sysperf baseline --file ci/sysperf-baseline.json
"""

from __future__ import annotations

import argparse
import os
import sys

from sysperf.cli import _options
from sysperf.cli.audit import rules
from sysperf.engine import judging, reading
from sysperf.engine.audit import audit
from sysperf.engine.configuration import BASELINE, read_baseline, read_config
from sysperf.evaluate.waivers import shrink
from sysperf.host import files
from sysperf.model.errors import ConfigError, Exit
from sysperf.model.record import to_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file", default=BASELINE, help=f"default: {BASELINE}")
    _options.add_machine(parser)
    _options.add_rules(parser)


def run(args: argparse.Namespace) -> int:
    config = read_config()
    earlier = read_baseline(args.file) if os.path.exists(args.file) else None
    ruleset = rules(args, config)
    result = audit(_options.host(args), judging.Terms(ruleset, config.waive))
    baseline, fresh = shrink(earlier, result.outcomes, reading.now(), ruleset)
    _options.note_earlier_ids(ruleset)
    try:
        files.replace(args.file, to_json(baseline, indent=2) + b"\n")
    except OSError as error:
        raise ConfigError(f"{args.file}: {error.strerror or error}", "choose a file that can be written with --file") from None
    dropped = len(earlier.accepted) - len(baseline.accepted) if earlier else 0
    sys.stderr.write(f"sysperf: {args.file}: {len(baseline.accepted)} accepted, {dropped} dropped\n")
    for outcome in fresh:
        sys.stderr.write(f"  not added: {outcome.rule} {outcome.subject}\n")
    if fresh:
        sys.stderr.write("  hint: fix these or waive them with a reason; a baseline only shrinks\n")
    return Exit.FINDINGS if fresh else Exit.CLEAN
