"""Say what slows a running job down. The evidence is weighed: two independent signals confirm a cause, one makes it likely.

It observes the job from outside first (a window of the kernel's accounting), then samples stacks, then has the program write a trace
of a second. What is not needed any more to tell the cause is left out. All processes of the job count: ranks, workers, servers.
The job is not changed.

cost to the job (docs/diagnose.md has the measurements):
  outside   nothing is attached or stopped; the reading takes CPU time of its own
  samples   the CPU time of py-spy and perf, for 6 s; needs root for programs of others
  trace     a second of the job at about half its speed; only programs that were started by `sysperf wrap --traceable`, or by this command.
            One that ends meanwhile waits for its trace; only with KINETO_USE_DAEMON=1 set by hand PyTorch may crash there

exit codes:
  0  healthy, idle or suspended
  1  something slows it down
  2  the command line is wrong, or the program cannot be observed
  3  it cannot be told

examples:
  sysperf diagnose 4242                   a program, or what started the ranks
  sysperf diagnose -- python train.py     start it, wait until it is warm, observe it, and end it
  sysperf diagnose 4242 --passive         only from outside
  sysperf diagnose 4242 --no-trace --format json
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from sysperf import plugin
from sysperf.cli import _options, _signals, plugins
from sysperf.host import redact
from sysperf.host.commands import sysperf_command
from sysperf.host.descendants import descendants, kill_descendants
from sysperf.host.forked import adopt_orphans
from sysperf.model.errors import Exit, SysperfError, UsageError
from sysperf.model.text import neutral

if TYPE_CHECKING:
    from sysperf.diagnosis.verdict import Verdict

WARM_S = 8.0
"""A program has PyTorch loaded for so long before it is looked at: first steps are not like the later ones."""
MAX_START_S = 300.0
LONG_WARM_UP_S = 30.0
"""After an answer that was none, at least."""
GRACE_S = 5.0
"""From SIGTERM to SIGKILL."""
MAX_SECONDS = 600.0
FORMATS = ("text", "json", "markdown", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", nargs="*", metavar="PID | -- COMMAND [ARGUMENT …]", help="a running program (`sysperf ps`), or one to start"
    )
    parser.add_argument("--passive", action="store_true", help="only from outside: no samples, no trace")
    parser.add_argument("--no-trace", action="store_true", help="no trace")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="SECONDS", help="how long to observe from outside (default: 5)")
    parser.add_argument(
        "--warm-up", type=float, default=WARM_S, metavar="SECONDS", help=f"after -- COMMAND: wait so long (default: {WARM_S:g})"
    )
    parser.add_argument("--keep-running", action="store_true", help="after -- COMMAND: wait for its end instead of ending it")
    plugins.add_choice(parser, plugin.STACKS, "--stacks-with")
    plugins.add_choice(parser, plugin.TRACES, "--trace-with")
    _options.add_rule_files(parser)
    _options.add_format(parser, *FORMATS)
    _options.add_schema(parser)
    _options.add_output(parser, verbose="also what was dropped, and every signal", several=True)
    parser.usage = "sysperf diagnose [options] PID\n       sysperf diagnose [options] -- COMMAND [ARGUMENT …]"


def run(args: argparse.Namespace) -> int:
    if args.schema:
        from sysperf.diagnosis import verdict  # noqa: PLC0415 - not for --help

        return _options.write_schema(verdict.schema(), args)
    _options.check_output(args)
    if not args.target:
        raise UsageError("no program was named", "sysperf diagnose PID, or sysperf diagnose -- COMMAND")
    if not 1.0 <= args.seconds <= MAX_SECONDS:
        raise UsageError(f"--seconds {args.seconds:g}: not between 1 and {MAX_SECONDS:g}")
    if not 0.0 <= args.warm_up <= MAX_SECONDS:
        raise UsageError(f"--warm-up {args.warm_up:g}: not between 0 and {MAX_SECONDS:g}")
    # Samplers and a program that was started are in sessions of their own, which no terminal ends.
    _signals.exit_through_cleanup()
    if len(args.target) == 1 and args.target[0].isascii() and args.target[0].isdigit():
        return _report(args, _diagnosed(args, int(args.target[0][:20])))
    return _started(args)


def _started(args: argparse.Namespace) -> int:
    """Start the program under `wrap --traceable` without other changes, look at it when it is warm, then end it or let it end."""
    from sysperf.launch import trace_folder  # noqa: PLC0415 - for this form only

    command = (*sysperf_command(), "wrap", "--quiet", "--traceable", "--only", "launch.traceable-asked", "--", *args.target)
    adopt_orphans()  # ranks may be in sessions of their own
    with trace_folder.lent(os.environ) as folder:
        environment, program = {**os.environ, trace_folder.VARIABLE: folder}, None
        try:
            program = subprocess.Popen(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, start_new_session=True, env=environment)
            _wait_until_warm(program, args.warm_up)
            code = _report(args, _started_again(_diagnosed(args, program.pid), args))
            if args.keep_running:
                program.wait()
            return code
        finally:
            _end(program)


def _started_again(verdict: Verdict, args: argparse.Namespace) -> Verdict:
    """Have what is to be run next start the program: this one ends with the answer, and its number with it."""
    if args.keep_running:
        return verdict
    from msgspec import structs  # noqa: PLC0415 - for this form only

    command = shlex.join(redact.own_command(tuple(args.target)))
    warm_s = min(MAX_SECONDS, max(LONG_WARM_UP_S, 3 * args.warm_up))
    then = re.sub(r"\bsysperf diagnose \d+", lambda _: f"sysperf diagnose --warm-up {warm_s:g} -- {command}", verdict.next)
    return structs.replace(
        verdict, next=re.sub(r"\bsysperf stacks \d+", lambda _: f"{command} & sleep {warm_s:g}; sysperf stacks $!", then)
    )


def _wait_until_warm(program: subprocess.Popen[bytes], warm_s: float) -> None:
    """Wait until a program below it has had PyTorch loaded for so long. Raises SysperfError when it ends first."""
    from sysperf.collect.process.process_tree import find  # noqa: PLC0415 - for this form only
    from sysperf.host import Host  # noqa: PLC0415 - as above

    start, since = time.monotonic(), 0.0
    while not since or time.monotonic() - since < warm_s:
        if program.poll() is not None:
            hint = "what stands above says why" if program.returncode else "let it run for longer: 20 s are enough"
            raise SysperfError(f"it ended with exit code {program.returncode} before it could be observed", hint)
        if time.monotonic() - start > MAX_START_S:
            raise SysperfError(f"it has not loaded PyTorch in {MAX_START_S:.0f} s", "name the process that does: sysperf diagnose PID")
        if not since and {program.pid, *descendants(program.pid)}.intersection(find(Host()).families):
            since = time.monotonic()
        time.sleep(0.5)


def _end(program: subprocess.Popen[bytes] | None) -> None:
    """End the program and kill what is left of it, also where Ctrl-C came before it was known. One that failed may have left others."""
    if program is not None and program.poll() == 0:
        return
    try:
        if program is not None and program.poll() is None:
            os.killpg(program.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(GRACE_S)
    finally:
        kill_descendants()


def _diagnosed(args: argparse.Namespace, pid: int) -> Verdict:
    from sysperf.engine import configuration, diagnose, judging  # noqa: PLC0415 - not for --help
    from sysperf.live.gpus import Gpus  # noqa: PLC0415 - as above

    config = configuration.read_config()
    terms = judging.load_terms(config, judging.configured_rules(config, args.rules))
    options = diagnose.Options(
        seconds=args.seconds, passive=args.passive, trace=not args.no_trace, stacks_with=args.stacks_plugin, traces_with=args.traces_plugin
    )
    gpus = Gpus()
    progress = _Progress()
    try:
        return diagnose.diagnose(pid, terms, options, tell=progress, gpus=gpus.sample)
    finally:
        progress.close()
        gpus.close()


def _report(args: argparse.Namespace, verdict: Verdict) -> int:
    from sysperf.report import diagnosis  # noqa: PLC0415 - not for --help

    _options.write_reports(
        args,
        lambda one: diagnosis.render(verdict, one.format, color=_options.wants_color(one), width=_options.width(), verbose=args.verbose),
    )
    return {"slowed": Exit.FINDINGS, "cannot-tell": Exit.PARTIAL}.get(verdict.verdict, Exit.CLEAN)


class _Progress:
    """A line on a terminal that is rewritten; nothing elsewhere."""

    def __init__(self) -> None:
        self._terminal = _options.rewrites_lines(sys.stderr)

    def __call__(self, what: str, verdict: Verdict | None) -> None:
        if self._terminal:
            doing = f"looking at {what} …" if verdict is None else neutral(verdict.sentence, 100)
            sys.stderr.write(f"\r\x1b[Ksysperf: {doing}")
            sys.stderr.flush()

    def close(self) -> None:
        if self._terminal:
            sys.stderr.write("\r\x1b[K")
