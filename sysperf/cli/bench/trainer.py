"""Climb the ladder of the reference trainer: what each piece of advice gains on this machine, and whether it does so by its mechanism.

Each rung is one piece of advice, such as loader workers or bfloat16. Rungs are added one after the other, and left out of the whole
ladder one at a time; each is measured in rounds in which every configuration runs once, neighbours one after the other. Before and
after a rung a short trace shows whether its mechanism is there (loader time down, fewer operators), and what the replay of the trace
without it had predicted. Losses of both must agree, or there is no gain. Nothing is downloaded.

examples:
  sysperf bench trainer                                       text, 12 minutes
  sysperf bench trainer --workload vision --minutes 30
  sysperf bench trainer --rungs loader-workers,bf16,compile
  sysperf bench trainer --format html --output ladder.html    with the ladder as a picture
  sysperf bench trainer --json --output here.json             a record, for --compare
  sysperf bench trainer --resume                              go on after Ctrl-C
"""

from __future__ import annotations

import argparse
import math
import os
import sys

import msgspec

from sysperf import paths
from sysperf.cli import _measuring, _options
from sysperf.cli.verify.study import StudyFile, say
from sysperf.engine.bench import climb, results, timelines
from sysperf.engine.bench.files import refuse_shared
from sysperf.engine.bench.state import Progress, Request, State
from sysperf.engine.bench.trainer import WORKLOADS
from sysperf.engine.verify import resuming
from sysperf.model.errors import Exit, UsageError
from sysperf.model.ladder import Ladder
from sysperf.model.record import to_json
from sysperf.report.experiments import ladder as report

MAX_RECORD_BYTES = 64 << 20
MAX_RANKS = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what is run")
    what.add_argument("--workload", choices=WORKLOADS, default="text", help="a GPT-2 on text (default), or a ResNet on images")
    what.add_argument("--rungs", action="append", default=[], metavar="ID", help="only these rungs and what they need (commas or repeated)")
    what.add_argument("--minutes", type=float, default=12.0, metavar="MINUTES", help="about so long (default: 12); more narrows intervals")
    what.add_argument("--ranks", type=int, default=1, metavar="N", help="of torchrun (default: 1)")
    what.add_argument("--steps", type=int, default=0, metavar="N", help="of each run (default: as many as take two seconds at the bottom)")
    what.add_argument("--seed", type=int, default=1, metavar="N", help="of the trainer and of the order (default: 1)")
    what.add_argument("--python", default="", metavar="PATH", help="the interpreter with torch, or the folder of its environment")
    what.add_argument("--with", dest="trainer", default="", metavar="NAME", help="the plugin of kind trainers (default: reference)")
    what.add_argument("--traces-with", choices=("torch", "nsys", "none"), default="torch", help="who takes the traces (default: torch)")
    what.add_argument("--traces", default="", metavar="FOLDER", help="keep the traces there (default: in the state folder)")
    what.add_argument("--resume", action="store_true", help="go on with the ladder of these options, also to make it longer")
    parser.add_argument("--compare", metavar="RECORD", help="show the gains beside those of this record, which --json wrote")
    _options.add_format(parser, "text", "json", "markdown", "html")
    _options.add_output(parser)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="-- ARGUMENT …", help="further arguments of the trainer")


def run(args: argparse.Namespace) -> int:
    request = requested(args)
    before = _measuring.saved(args.compare, Ladder, "a ladder", "sysperf bench trainer", MAX_RECORD_BYTES) if args.compare else None
    file = StudyFile(_path(request))
    with _measuring.alone():
        state = _left(file, request) if args.resume else climb.begun(request)
        observe = _Observe(file)
        state = climb.climb(state, observe)
        file.write(state)
    observe.end()
    result = results.concluded(state)
    _keep(result)
    if args.format == "html":
        result = timelines.drawn(result, args.output)
    _options.write(_rendered(result, before, args), args)
    return exit_code(result)


def requested(args: argparse.Namespace) -> Request:
    """Return what the options ask for. Raises UsageError."""
    if not 0 < args.minutes < math.inf:
        raise UsageError(f"--minutes {args.minutes:g}: no finite number above 0", "such as --minutes 12")
    if not 1 <= args.ranks <= MAX_RANKS:
        raise UsageError(f"--ranks {args.ranks}: not between 1 and {MAX_RANKS}", "one rank a GPU is usual")
    if args.steps and args.steps < climb.MIN_STEPS:
        raise UsageError(f"--steps {args.steps}: a run needs {climb.MIN_STEPS} steps or more", "leave it out")
    rungs = tuple(_options.listed(args.rungs))
    if args.traces:
        refuse_shared(args.traces, "--traces")
    folder = os.path.abspath(args.traces) if args.traces else f"{paths.state_folder()}/bench/{args.workload}-traces"
    arguments = tuple(args.arguments[1:] if args.arguments[:1] == ["--"] else args.arguments)
    return Request(
        workload=args.workload, rungs=rungs, minutes=args.minutes, python=args.python, trainer=args.trainer, arguments=arguments,
        ranks=args.ranks, steps=args.steps, seed=args.seed, traces_with=args.traces_with, folder=folder,
    )  # fmt: skip


def exit_code(result: Ladder) -> Exit:
    """Return PARTIAL where nothing is known of the whole, or it was interrupted."""
    return Exit.PARTIAL if result.interrupted or result.total is None or result.total.ratio is None else Exit.CLEAN


def _path(request: Request) -> str:
    """Return where a ladder with these options is kept, whatever time it is given."""
    import hashlib  # noqa: PLC0415 - as heavy as all else here

    key = to_json(msgspec.structs.replace(request, minutes=0.0, folder=""))
    return f"{paths.state_folder()}/bench/{request.workload}-{hashlib.sha256(key).hexdigest()[:12]}.json"


def _left(file: StudyFile, request: Request) -> State:
    """The ladder as it was left, with the time of this request. Raises UsageError."""
    state = file.read(State)
    if state is None:
        raise UsageError("there is no interrupted ladder with these options", "run it without --resume")
    resuming.check(state.machine, climb.machine())
    minutes = state.spent_s / 60 + request.minutes if state.spent_s >= request.minutes * 60 else request.minutes
    return msgspec.structs.replace(state, request=msgspec.structs.replace(request, minutes=minutes))


class _Observe:
    """Keeps the ladder after each run, and says on stderr where it stands."""

    def __init__(self, file: StudyFile) -> None:
        self._file = file
        self._last: State | None = None

    def __call__(self, progress: Progress) -> None:
        if progress.state is not self._last:
            self._file.write(progress.state)
            self._last = progress.state
        say(f"{progress.what}; {math.ceil(progress.left_s / 60)} min left", is_over=False)

    def end(self) -> None:
        if _options.rewrites_lines(sys.stderr):
            say("", is_over=True)


def _keep(result: Ladder) -> None:
    """Add each rung to this machine's trials: where the dashboard shows it, and where findings of its rules find their gain.

    Doubtful advice is no rule's advice: it is shown, and is no finding's gain.
    """
    for rung in result.rungs:
        comparison = rung.trial("added", "at the bottom")
        if comparison is None or rung.outcome in ("losses differ", "skipped"):
            continue
        for rule in rung.rules if rung.role == "ladder" and rung.rules else ("",):
            _measuring.keep(comparison, rule, "ladder", f"{result.workload}: {rung.id}", rung.place)


def _rendered(result: Ladder, before: Ladder | None, args: argparse.Namespace) -> str:
    if args.format == "json":
        return to_json(result, indent=2).decode()
    if args.format == "markdown":
        return report.markdown(result, before)
    if args.format == "html":
        return report.page(result, before)
    return report.text(result, before, color=_options.wants_color(args), width=_options.width())
