"""Which rank and which node hold a running job up, or that none does; of a job that hangs, which rank did not join.

ID is the scheduler's, or the --rdzv-id of torchrun. Each node traces its ranks of this job for some seconds at the same time. The rank that
waits least at collectives holds the others up. That its node is slow needs a second signal: its CPU quota, priority or wait for a CPU, its
kernels' speed, or what rules find on its node alone. Ranks must ask for traces: start them with `sysperf wrap --traceable`, or with
KINETO_USE_DAEMON=1 in the environment. Tracing slows a job down for these seconds.

examples:
  sysperf fleet job 4242 --hosts 'n[1-4]'
  sysperf fleet job 4242 --engine slurm --windows 10        ten windows over ten minutes: chronic or once
  sysperf fleet job 4242 records/                           what `sysperf node ranks --job 4242` printed on each node
  sysperf fleet job 4242 --dumps /tmp/dumps                 Flight Recorder dumps of a job that hangs
"""

from __future__ import annotations

import argparse

import msgspec

from sysperf.cli import _options
from sysperf.cli.fleet import _nodes
from sysperf.engine.fleet import job
from sysperf.fleet.names import is_job
from sysperf.model.errors import Exit, UsageError
from sysperf.model.fleet import FleetJob
from sysperf.report.fleet import job as report

NODE_LIMIT_S = 120.0
MAX_WINDOWS = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="ID", help="the scheduler's job, or torchrun's --rdzv-id")
    _nodes.add_arguments(parser, limit_s=NODE_LIMIT_S)
    parser.add_argument("--seconds", type=float, default=3.0, metavar="SECONDS", help="how long a window is (default: 3)")
    parser.add_argument("--windows", type=int, default=1, metavar="N", help="windows; ten tell chronic from once (default: 1)")
    parser.add_argument("--every", type=float, default=60.0, metavar="SECONDS", help="from one window to the next (default: 60)")
    parser.add_argument("--dumps", metavar="FOLDER", help="read Flight Recorder dumps, one a rank, instead of asking nodes")
    parser.add_argument("--strict", action="store_true", help="exit 3 when a node did not answer")
    _options.add_format(parser, *report.FORMATS)
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    if not is_job(args.job):
        raise UsageError(f"{args.job[:80]}: no name of a job", "names have letters, digits and . _ : [ ] -")
    result = job.hung(args.dumps, args.job) if args.dumps else _asked(args)
    _options.write(report.render(result, args.format, color=_options.wants_color(args), width=_options.width()), args)
    if result.verdict in ("node", "rank", "hang"):
        return Exit.FINDINGS
    unknown = result.verdict == "cannot tell" or result.interrupted or (args.strict and result.answered < result.asked)
    return Exit.PARTIAL if unknown else Exit.CLEAN


def _asked(args: argparse.Namespace) -> FleetJob:
    """What the nodes say. Raises UsageError."""
    if not 1 <= args.windows <= MAX_WINDOWS or not 0 <= args.every <= _nodes.MAX_LIMIT_S:
        raise UsageError(f"--windows {args.windows} --every {args.every:g}", f"up to {MAX_WINDOWS} windows, up to an hour apart")
    if not 0.1 <= args.seconds <= 60:
        raise UsageError(f"--seconds {args.seconds:g}: not between 0.1 and 60", "some steps long: 3 is a good number")
    engine, asked = _nodes.asked(args)
    asked = msgspec.structs.replace(asked, job=args.job, window_s=args.seconds)
    found = job.job(engine, asked, 1 if args.where else args.windows, args.every, _nodes.say)
    _nodes.said()
    return found
