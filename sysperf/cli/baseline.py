"""Accept today's findings, so that only new ones fail an audit. The list can only shrink.

The first run writes every finding of today. A later run drops what is fixed and never adds: a new finding is fixed, or
waived with a reason (docs/configuration.md). Remove the file to start over.

exit codes:
  0  the list is written
  1  there are findings that it does not accept
  2  the command line, a rule file, a capture or the baseline is wrong

examples:
  sysperf baseline
  sysperf baseline --file ci/sysperf-baseline.json
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from sysperf.cli import _options
from sysperf.cli.audit import rules
from sysperf.engine import judging, reading
from sysperf.engine.audit import audit
from sysperf.engine.configuration import BASELINE, read_baseline, read_config
from sysperf.evaluate.waivers import shrink
from sysperf.host import files
from sysperf.model.errors import ConfigError, Exit
from sysperf.model.finding import Finding
from sysperf.model.text import neutral
from sysperf.report.formats import as_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file", default=BASELINE, help=f"default: {BASELINE}")
    _options.add_machine(parser)
    _options.add_rules(parser)
    _options.add_format(parser)
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    _options.check_output(args)
    config = read_config()
    ruleset = rules(args, config)
    result = audit(_options.host(args), judging.Terms(ruleset, config.waive))
    return write(args.file, result.outcomes, "--file", args)


def write(path: str, outcomes: Sequence[Finding], option: str, args: argparse.Namespace) -> int:
    """Write the first baseline with all findings; of a later one drop what is gone, and add nothing. Raises ConfigError.

    The report of it goes where `args` say; `option` is the one that names `path`.
    """
    earlier = read_baseline(path) if os.path.exists(path) else None
    baseline, fresh = shrink(earlier, outcomes, reading.now())
    try:
        files.replace(path, as_json.dump(baseline).encode())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", f"choose a file that can be written with {option}") from None
    dropped = len(earlier.accepted) - len(baseline.accepted) if earlier else 0
    if args.format == "json":
        told = {"file": path, "accepted": len(baseline.accepted), "dropped": dropped, "not_added": fresh}
        _options.write(as_json.dump(told), args)
    else:
        lines = [f"{neutral(path)}: {len(baseline.accepted)} accepted, {dropped} dropped"]
        _options.write("\n".join([*lines, *(f"  not added: {outcome.rule} {neutral(outcome.about)}" for outcome in fresh)]), args)
    if fresh:
        sys.stderr.write("  hint: fix these or waive them with a reason; a baseline only shrinks\n")
    return Exit.FINDINGS if fresh else Exit.CLEAN
