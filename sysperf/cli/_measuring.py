"""What `verify` and `tune` share: the metric's options, the lock, and what is kept of a result."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from typing import Literal, TypeVar

from sysperf import paths
from sysperf.cli import _options, _signals
from sysperf.engine import gains, reading
from sysperf.host import Host
from sysperf.host.plain_files import read_named
from sysperf.model.comparison import Comparison, Metric, Variant
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.record import from_json
from sysperf.model.trial import Experiment, Trial
from sysperf.verify import lock, trials

_T = TypeVar("_T")

MAX_RUN_S = 86_400.0


def add_metric(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options that say what is measured."""
    group = parser.add_argument_group("what is measured")
    group.add_argument(
        "--metric",
        type=_pattern,
        metavar="REGEX",
        help="the last match in the output is a run's value (default: its wall time)",
    )
    group.add_argument("--higher-is-better", action="store_true", help="a larger value is faster, such as steps per second")
    group.add_argument(
        "--steps",
        choices=("optimizer", "forward"),
        default="",
        help="steps per second, counted in the unmodified program: of its optimizer, or calls of its model",
    )
    group.add_argument("--max-steps", type=int, default=0, metavar="N", help="with --steps: end each run after so many")
    group.add_argument(
        "--run-seconds",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="with --steps: end the first run after so many seconds of steps, and all others after as many steps",
    )
    return group


def add_limit(group: argparse._ArgumentGroup) -> None:
    """Add the option that ends a run which hangs."""
    group.add_argument(
        "--limit",
        type=float,
        default=3_600.0,
        metavar="SECONDS",
        help="end a run after so many seconds (default: 3600), and after ten times the longest one before it, or a minute",
    )


def metric(args: argparse.Namespace, usual: Literal["", "optimizer"] = "") -> Metric:
    """Return the metric that the options name; `usual` are the steps that are counted without `--steps`. Raises UsageError."""
    steps: Literal["", "optimizer", "forward"] = args.steps or usual
    if steps and args.metric:
        raise UsageError("--steps and --metric are two metrics", "choose one")
    if args.higher_is_better and not args.metric:
        raise UsageError("--higher-is-better goes with --metric", "a longer wall time is not better")
    if args.max_steps < 0 or (args.max_steps and not steps):
        raise UsageError("--max-steps goes with --steps, and is 1 or more", "--steps optimizer --max-steps 200")
    if not 0 <= args.run_seconds < MAX_RUN_S or (args.run_seconds and (args.max_steps or not steps)):
        raise UsageError("--run-seconds goes with --steps, without --max-steps", "--steps optimizer --run-seconds 10")
    if steps:
        return Metric("steps per second", "steps/s", True, "", steps, args.max_steps, args.run_seconds)
    return Metric("the metric", "", args.higher_is_better, args.metric) if args.metric else Metric("wall time", "s")


def _pattern(text: str) -> str:
    """Return a regular expression that can match a number. Raises ArgumentTypeError, which argparse tells."""
    if not text:
        raise argparse.ArgumentTypeError("no pattern; wall time is measured without it")
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{error}: a regular expression of Python, whose last group is the number") from None
    return text


def percent(text: str) -> float:
    """Return the number of ``2`` or ``2%``. Raises ValueError, which argparse tells."""
    return float(text.strip().removesuffix("%"))


def quoted_command(text: str) -> str:
    """Return a command that a shell could split. Raises ArgumentTypeError, which argparse tells."""
    if not shlex.split(_options.quoted(text)):
        raise argparse.ArgumentTypeError("no command")
    return text


def command(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the command behind `--`; empty where there is none."""
    return tuple(args.argv[1:] if args.argv[:1] == ["--"] else args.argv)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Measure while no other study of this user does; wait for one that does. Signals that end it do what Ctrl-C does.

    Raises SysperfError.
    """
    _signals.act_as_interrupt()

    def waiting(pid: str) -> None:
        sys.stderr.write(f"sysperf: waiting for the study of process {pid}: two at once would measure each other\n")
        sys.stderr.flush()

    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock.held(paths.state_folder(), waiting))
        except OSError as error:
            problem = f"{error.filename or paths.state_folder()}: {error.strerror or error}"
            raise SysperfError(problem, "the state folder must be writable; XDG_STATE_HOME names another") from None
        yield


def saved(path: str, kind: type[_T], what: str, command: str, max_bytes: int) -> _T:
    """Return a record that a command of ours saved. Raises UsageError."""
    hint = f"save one with `{command} --json --output FILE`"
    try:
        record: _T = from_json(read_named(path, max_bytes), kind)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", hint) from None
    except ValueError as error:
        raise UsageError(f"{path}: no record of {what}: {error}", hint) from None
    return record


def compared(a: Variant, b: Variant) -> str:
    """What two variants compare: of two commands the words in which they differ, else their names and the program."""
    alike = next((at for at, (one, other) in enumerate(zip(a.argv, b.argv, strict=False)) if one != other), min(len(a.argv), len(b.argv)))
    after, before = (" ".join(map(os.path.basename, variant.argv[alike:])) for variant in (b, a))
    if (a.name, b.name) == ("A", "B") and alike and (after or before):
        return f"{after or 'nothing'} instead of {before or 'nothing'}"
    program = next((word for word in a.argv[1:] if not word.startswith("-")), a.argv[0]) if "python" in a.argv[0] else a.argv[0]
    return f"{b.name} instead of {a.name}: {os.path.basename(program)}"


def keep(comparison: Comparison, rule: str = "", experiment: Experiment = "verify", what: str = "", rung: int = 0) -> None:
    """Add the result to this machine's trials, where the dashboard shows it; a full disk does not take the result away."""
    if comparison.ratio is None or comparison.low is None or comparison.high is None or comparison.median_a is None:
        return
    trial = Trial(
        experiment=experiment,
        what=(what or compared(comparison.a, comparison.b))[:200],
        metric=comparison.metric.name,
        unit=comparison.metric.unit,
        baseline=comparison.median_a,
        ratio=comparison.ratio,
        low=comparison.low,
        high=comparison.high,
        confidence=comparison.confidence,
        pairs=comparison.fresh_pairs or comparison.pairs,
        verdict=comparison.verdict,
        at=time.time(),
        rule=rule,
        rung=rung,
        fingerprint=gains.fingerprint(reading.snapshot(Host(), gains.DECIDING)),
    )
    try:
        trials.append(f"{paths.state_folder()}/{trials.FILE}", trial)
    except OSError as error:
        sys.stderr.write(f"sysperf: the result is not kept: {error}\n")
