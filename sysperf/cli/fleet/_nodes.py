"""What the commands about fleets share: which nodes are asked, how, and against what they are compared."""

from __future__ import annotations

import argparse
import os
import sys

from sysperf import plugin
from sysperf.cli import _options
from sysperf.engine import judging
from sysperf.engine.bench.figures import GROUPS
from sysperf.engine.configuration import Config, read_config
from sysperf.engine.fleet import gather
from sysperf.fleet.names import expand
from sysperf.model.errors import UsageError
from sysperf.model.fleet import Fleet, Policy
from sysperf.model.node import Asked
from sysperf.startup import lazy

MAX_AT_ONCE = 512
_PROGRAM = lazy(r"/?[A-Za-z0-9_.+][A-Za-z0-9_.+/-]{0,1000}")
MAX_LIMIT_S = 3_600.0


def add_arguments(parser: argparse.ArgumentParser, *, limit_s: float = 20.0) -> None:
    parser.add_argument(
        "where", nargs="?", default="", metavar="RECORDS", help="a folder of records NODE.json, or - for one a line from stdin"
    )
    group = parser.add_argument_group("nodes")
    group.add_argument("--engine", default="", metavar="PLUGIN", help="how nodes are asked (default: by what is given)")
    group.add_argument("--hosts", default="", metavar="NAMES", help="these nodes: n[1-32],login")
    group.add_argument("--at-once", type=int, default=64, metavar="N", help="ask as many at a time (default: 64)")
    group.add_argument(
        "--node-limit", type=float, default=limit_s, metavar="SECONDS", help=f"how long one node may take (default: {limit_s:g})"
    )
    group.add_argument(
        "--sysperf", default="sysperf", metavar="PATH", help="where the program lies on the nodes (default: on their PATH; Slurm: as here)"
    )
    parser.add_argument("--config", metavar="FILE", help="use only this configuration file")


def add_golden(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--golden", default="majority", metavar="WHAT", help="compare with the majority of a class (default), node:NAME, or a policy's file"
    )


def asked(args: argparse.Namespace) -> tuple[str, Asked]:
    """(the engine, whom it asks) by the options. Raises UsageError."""
    if not 1 <= args.at_once <= MAX_AT_ONCE:
        raise UsageError(f"--at-once {args.at_once}", f"between 1 and {MAX_AT_ONCE}")
    if not 0 < args.node_limit <= MAX_LIMIT_S:
        raise UsageError(f"--node-limit {args.node_limit}", f"up to {MAX_LIMIT_S:.0f} seconds")
    if not _PROGRAM.fullmatch(args.sysperf):
        raise UsageError(f"--sysperf {args.sysperf[:80]}: no path of a program", "such as /opt/sysperf/bin/sysperf")
    hosts = expand(args.hosts)
    return _engine(args), Asked(
        where=args.where, hosts=hosts, at_once=args.at_once, node_limit_s=args.node_limit, command=(args.sysperf,), groups=_groups(args)
    )


def _groups(args: argparse.Namespace) -> tuple[str, ...]:
    """The groups of figures. Raises UsageError."""
    groups = tuple(_options.listed([getattr(args, "only", "")]))
    if unknown := sorted(set(groups) - set(GROUPS)):
        raise UsageError(f"--only {', '.join(unknown)[:80]}: no such group", f"groups are {', '.join(GROUPS)}")
    return groups


def _engine(args: argparse.Namespace) -> str:
    """How nodes are asked, by what is given. Raises UsageError."""
    if args.engine:
        return str(args.engine)
    if args.where:
        return plugin.ENGINES.default
    if os.environ.get("TORCHELASTIC_RUN_ID") and not args.hosts:
        return "torchrun"
    if os.environ.get("SLURM_JOB_NODELIST"):
        return "slurm"
    if args.hosts:
        return "ssh"
    raise UsageError("no nodes are named", "name a folder of records, --hosts for ssh, or --engine slurm")


def gathered(args: argparse.Namespace, reference: str = "majority") -> tuple[Fleet, Policy, Config]:
    """(what the nodes say together, what most are like, the configuration)."""
    config = read_config(args.config)
    engine, whom = asked(args)
    fleet, policy = gather.fleet(engine, whom, judging.machine_rules(config), reference=reference, say=say)
    said()
    return fleet, policy, config


def say(answered: int, of: int, what: str = "") -> None:
    """Show how many answered, on a terminal, and to what."""
    if _options.rewrites_lines(sys.stderr):
        sys.stderr.write(f"\r{answered} of {of} nodes{what}\x1b[K")


def said() -> None:
    """Take that line back."""
    if _options.rewrites_lines(sys.stderr):
        sys.stderr.write("\r\x1b[K")
