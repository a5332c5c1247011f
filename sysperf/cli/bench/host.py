"""Measure what this machine can give at most: memory, matrix products, GPUs, storage, decoding, starting programs, all-reduce.

Each figure is measured by five short runs in random order, and stands beside what the hardware should give where that is known. Files of
at most 192 MiB are written in a folder of their own and removed; nothing else of the machine is changed. What needs torch runs in the
interpreter that your shell would take.

examples:
  sysperf bench host --only memory,matmul
  sysperf bench host --folder /data --only storage      the storage below this folder
  sysperf bench host --json --output node1.json
  sysperf bench host --compare node1.json               how much slower or faster is this machine?
"""

from __future__ import annotations

import argparse
import os
import sys

import msgspec

from sysperf import paths
from sysperf.cli import _measuring, _options
from sysperf.cli.verify.study import say
from sysperf.engine.bench import compare, host
from sysperf.engine.bench.figures import GROUPS
from sysperf.host import files
from sysperf.model.ceiling import Ceilings, Compared
from sysperf.model.errors import Exit, UsageError
from sysperf.model.record import to_json
from sysperf.report.experiments import ceilings as report

MAX_RECORD_BYTES = 1 << 20
MAX_RUNS = 1_000
MAX_RANKS = 64
KEPT = "bench/host.json"
"""The latest figures, in the state folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", action="append", default=[], metavar="GROUP", help=f"only these groups (commas or repeated): {', '.join(GROUPS)}"
    )
    parser.add_argument("--runs", type=int, default=host.RUNS, metavar="N", help=f"short runs of each figure (default: {host.RUNS})")
    parser.add_argument("--folder", default=".", metavar="FOLDER", help="storage is measured below this folder (default: the current one)")
    parser.add_argument("--python", default="", metavar="PATH", help="the interpreter with torch, or the folder of its environment")
    parser.add_argument("--ranks", type=int, metavar="N", help="of the all-reduce (default: one a GPU or, without GPUs, a memory node)")
    parser.add_argument("--compare", metavar="RECORD", help="show the difference from this record, which --json wrote")
    _options.add_format(parser, "text", "json", "markdown", "html")
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    if not 1 <= args.runs <= MAX_RUNS:
        raise UsageError(f"--runs {args.runs}: not between 1 and {MAX_RUNS}", "5 are a good number")
    if args.ranks is not None and not 1 <= args.ranks <= MAX_RANKS:
        raise UsageError(f"--ranks {args.ranks}", f"between 1 and {MAX_RANKS}")
    before = _measuring.saved(args.compare, Ceilings, "ceilings", "sysperf bench host", MAX_RECORD_BYTES) if args.compare else None
    request = host.Request(
        groups=tuple(_options.listed(args.only)) or GROUPS, runs=args.runs, folder=args.folder, python=args.python, ranks=args.ranks
    )
    return measure(request, args, before)


def measure(request: host.Request, args: argparse.Namespace, before: Ceilings | None = None) -> int:
    """Measure what was asked for, print it, keep what is whole."""
    with _measuring.alone():
        result = host.measure(request, _say)
    if _options.rewrites_lines(sys.stderr):
        say("", is_over=True)
    if len(request.groups) == len(GROUPS) and not result.interrupted:
        _keep(result)
    _options.write(_rendered(result, compare.compared(before, result) if before else (), args), args)
    if not any(ceiling.values for ceiling in result.ceilings):
        return Exit.USAGE
    return Exit.PARTIAL if result.interrupted or any(ceiling.problem for ceiling in result.ceilings) else Exit.CLEAN


def _say(what: str, done: float) -> None:
    if _options.rewrites_lines(sys.stderr):
        say(f"{done:.0%} {what}", is_over=False)


def _keep(result: Ceilings) -> None:
    """Keep the figures, where the findings of later audits can cite them; a full disk does not take the result away."""
    path = f"{paths.state_folder()}/{KEPT}"
    try:
        files.make_folder(os.path.dirname(path))
        files.write_whole(path, lambda file: file.write(to_json(result)), mode=0o600)
    except OSError as error:
        sys.stderr.write(f"sysperf: {path}: the figures are not kept: {error.strerror or error}\n")


def _rendered(result: Ceilings, compared: tuple[Compared, ...], args: argparse.Namespace) -> str:
    if args.format == "json":
        return to_json({**msgspec.structs.asdict(result), "compared": compared} if compared else result, indent=2).decode()
    if args.format == "markdown":
        return report.markdown(result, compared)
    if args.format == "html":
        return report.page(result, compared)
    return report.text(result, compared, color=_options.wants_color(args), width=_options.width())
