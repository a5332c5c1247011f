"""Print what this machine says of itself to a fleet, as a line of JSON.

A site gathers these lines as it likes, by a job, a cron table or a shell over all nodes, and `sysperf fleet` compares them.
Reads only; nothing is changed.

examples:
  sysperf node record
  sysperf node bench --only memory
  sysperf node bench --format prometheus --output /var/lib/node_exporter/textfile/sysperf-node.prom
  sysperf node record --output /shared/records/$(hostname).json
"""

from __future__ import annotations

import argparse
import signal

from sysperf.cli import _options
from sysperf.engine import judging
from sysperf.engine.configuration import read_config
from sysperf.engine.fleet import record
from sysperf.fleet.names import is_name
from sysperf.model.errors import Exit, UsageError
from sysperf.model.record import to_json
from sysperf.report import node as report

MAX_RUNS = 1_000
MIN_LIMIT_S, MAX_LIMIT_S = 0.1, 3_600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    texts = {
        "record": "an audit, and the facts that matter for speed",
        "bench": "the same with measured figures, as `bench host` takes them",
    }
    for name, text in texts.items():
        action = actions.add_parser(name, help=text, description=__doc__, formatter_class=_options.formatter)
        action.add_argument(
            "--node", default="", metavar="NAME", help="its name in the fleet (default: SLURMD_NODENAME, else its host name)"
        )
        action.add_argument("--limit", type=_seconds, metavar="SECONDS", help="end after so long, whoever waits for it")
        if name == "bench":
            action.add_argument("--runs", type=int, default=5, metavar="N", help="short runs of each figure (default: 5)")
            action.add_argument(
                "--only", default="memory,matmul,gpu", metavar="GROUPS", help="groups of figures (default: memory,matmul,gpu)"
            )
        _options.add_machine(action)
        _options.add_rule_files(action)
        action.add_argument("--config", metavar="FILE", help="use only this configuration file")
        _options.add_format(action, "json", "prometheus")
        _options.add_output(action)
        action.set_defaults(format="json")


def run(args: argparse.Namespace) -> int:
    if args.node and not is_name(args.node):
        raise UsageError(f"--node {args.node[:80]}: no name of a node", "names have letters, digits, dots and hyphens")
    if args.limit:
        signal.setitimer(signal.ITIMER_REAL, args.limit)  # its signal ends us: nothing stays on a node that nobody asks any more
    config = read_config(args.config)
    terms = judging.load_terms(config, judging.machine_rules(config, args.rules))
    said = record.record(_options.host(args), terms, args.node)
    if args.action == "bench":
        if not 1 <= args.runs <= MAX_RUNS:
            raise UsageError(f"--runs {args.runs}: not between 1 and {MAX_RUNS}", "5 are a good number")
        said = record.with_ceilings(said, tuple(_options.listed([args.only])), args.runs)
    _options.write(report.prometheus(said) if args.format == "prometheus" else to_json(said).decode(), args)
    return Exit.CLEAN


def _seconds(text: str) -> float:
    """Return a time. Raises ArgumentTypeError, which argparse tells."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not MIN_LIMIT_S <= seconds <= MAX_LIMIT_S:
        raise argparse.ArgumentTypeError(f"between {MIN_LIMIT_S:g} and {MAX_LIMIT_S:g}")
    return seconds
