"""List the running PyTorch processes and what is wrong with each.

A process is known by the libraries it maps, found without attaching to it. DataLoader workers are folded under the
process that started them. Processes of other users need root.

examples:
  sysperf ps
  sudo sysperf ps --verbose
  sysperf ps --format json
"""

from __future__ import annotations

import argparse

from sysperf.cli import _options
from sysperf.cli.audit import rules
from sysperf.engine import judging
from sysperf.engine.audit import audit, with_rewraps
from sysperf.engine.configuration import read_config
from sysperf.model.errors import Exit
from sysperf.report import as_json, processes

AREAS = ("kernel", "cpu", "numa", "memory", "cgroup", "container", "pcie", "driver", "gpu", "storage", "network", "allocator", "process")
"""What rules about processes look at."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_format(parser)
    _options.add_machine(parser)
    _options.add_rules(parser)
    _options.add_output(parser, verbose="how each was started, and the fixes")


def run(args: argparse.Namespace) -> int:
    config = read_config()
    ruleset = rules(args, config)
    ruleset.keep_scopes(("process",))
    host = _options.host(args)
    result = with_rewraps(host, audit(host, judging.Terms(ruleset, config.waive), AREAS))
    if args.format == "json":
        area = result.snapshot.areas["process"]
        text = as_json.dump({"schema": 1, "process": area, "outcomes": result.outcomes, "rewraps": result.rewraps})
    else:
        text = processes.render(result, color=_options.wants_color(args), width=_options.width(_options.WHOLE_LINES), verbose=args.verbose)
    _options.write(text, args)
    return Exit.CLEAN
