"""Write what most nodes of each class are like, as a policy that `--golden` takes.

Only facts that matter for speed, and in which two thirds of the nodes and at least three agree. Run it when the nodes are good, read the
file, and take out what may differ.

examples:
  sysperf fleet golden records/ --output policy.toml
"""

from __future__ import annotations

import argparse

from sysperf.cli import _options
from sysperf.cli.fleet import _nodes
from sysperf.model.errors import Exit, UsageError
from sysperf.report.fleet import merged as report
from sysperf.report.formats import as_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _nodes.add_arguments(parser)
    _options.add_format(parser, "toml", "json")
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    fleet, policy, _ = _nodes.gathered(args)
    if not policy.classes:
        raise UsageError(f"{report.headline(fleet)}: no class has three nodes that agree", "compare with a good node: --golden node:NAME")
    _options.write(as_json.dump(policy) if args.format == "json" else report.policy_toml(policy), args)
    return Exit.CLEAN
