"""Take a trace of a running PyTorch program. The program writes it itself: a few steps, or a second.

The program must have been started by `sysperf wrap --traceable`, or with KINETO_USE_DAEMON=1 in its environment; it is not
changed for this. It asks for work every 5 s and warms its profiler up, so a trace takes some 10 s. Tracing slows it down
meanwhile: a small model to half its speed, with shapes and stacks to a quarter. One that ends meanwhile waits at
its end for its trace. Without `wrap --traceable` PyTorch may crash there, after the program's work.

examples:
  sysperf trace 4242                           5 optimizer steps
  sysperf trace 4242 --seconds 1               what runs for a second, such as a program that serves
  sysperf trace 4242 --output slow-step.json
  sysperf trace 4242 --analyze                 and what its time was lost to
"""

from __future__ import annotations

import argparse
import os
import sys

from sysperf import plugin
from sysperf.cli import _options, _signals, plugins
from sysperf.host import Host
from sysperf.model.errors import Exit, UsageError
from sysperf.model.profile import TraceRequest
from sysperf.report.formats import as_json
from sysperf.report.profiling import profile

ITERATIONS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=int, metavar="PID", help="`sysperf ps` lists the PyTorch programs")
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--iterations", type=int, metavar="N", help=f"steps of its optimizer (default: {ITERATIONS})")
    how_long.add_argument("--seconds", type=float, metavar="SECONDS", help="by time instead")
    parser.add_argument(
        "--output", metavar="FILE", help="write the trace to this file, which must not exist yet (default: sysperf-trace-PID-TIME.json)"
    )
    parser.add_argument("--shapes", action="store_true", help="also the shapes of the operators' inputs")
    parser.add_argument("--stacks", action="store_true", help="also Python call stacks")
    plugins.add_choice(parser, plugin.TRACES)
    parser.add_argument("--limit", type=float, default=300.0, metavar="SECONDS", help="give up after so many seconds (default: 300)")
    parser.add_argument("--analyze", action="store_true", help="then say what its time was lost to, as `sysperf analyze` does")
    parser.add_argument("--json", action="store_true", help="print the facts about the file as JSON")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="auto: on a terminal, unless NO_COLOR is set")


def run(args: argparse.Namespace) -> int:
    request = requested(args)
    tracer, host = plugin.tracer(args.traces_plugin), Host()
    become(*tracer.owner(host, request.pid))
    _signals.exit_through_cleanup()
    progress = _Progress()
    try:
        written = tracer.trace(host, request, progress)
    finally:
        progress.close()
    if args.json:
        text = as_json.dump(written)
    else:
        color, width = _options.wants_color(args), _options.width()
        text = profile.trace(written, iterations=request.iterations, analyzed=args.analyze, color=color, width=width)
    if args.analyze:
        text = _analysis(written.path, args) if args.json else text + "\n" + _analysis(written.path, args)
    sys.stdout.write(text)
    return Exit.CLEAN


def _analysis(path: str, args: argparse.Namespace) -> str:
    """What `sysperf analyze` says of the trace."""
    from sysperf.cli.analyze import render  # noqa: PLC0415 - for this option only
    from sysperf.engine import analyze, judging  # noqa: PLC0415 - as above
    from sysperf.engine.configuration import read_config  # noqa: PLC0415 - as above

    options = argparse.Namespace(traces=[path], format="json" if args.json else "text", verbose=False, color=args.color, output=None)
    return render(options, analyze.analyze([path], judging.trace_rules(read_config())))


def requested(args: argparse.Namespace) -> TraceRequest:
    """Return the trace that the options name. Raises UsageError."""
    if args.seconds is not None and not 0.001 <= args.seconds <= 3_600:  # also what is no number
        raise UsageError(f"--seconds {args.seconds:g}: not a time that a trace can take", "1 s can be 20 MB")
    iterations = 0 if args.seconds is not None else ITERATIONS if args.iterations is None else args.iterations
    if args.seconds is None and iterations < 1:
        raise UsageError(f"--iterations {iterations}: less than 1", "5 iterations are a good number")
    return TraceRequest(args.pid, iterations, round((args.seconds or 0) * 1000), args.shapes, args.stacks, args.output or "", args.limit)


def become(uid: int, gid: int) -> None:
    """Become the user of a process, as root: in a folder of that user, root must not follow links."""
    if os.geteuid() != 0 or uid == 0:
        return
    import pwd  # noqa: PLC0415 - for root only

    try:
        os.initgroups(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:  # a user without an account
        os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


class _Progress:
    """One line on a terminal that is rewritten; elsewhere a line for each new state."""

    def __init__(self) -> None:
        self._terminal = _options.rewrites_lines(sys.stderr)
        self._last = ""

    def __call__(self, text: str) -> None:
        state = text.partition(" (")[0]
        if self._terminal:
            sys.stderr.write(f"\r\x1b[Ksysperf: {text}")
        elif state != self._last:
            sys.stderr.write(f"sysperf: {state}\n")
        self._last = state
        sys.stderr.flush()

    def close(self) -> None:
        if self._terminal and self._last:
            sys.stderr.write("\r\x1b[K")
