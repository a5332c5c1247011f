"""Search for the fastest way to start a program on this machine.

Searched are threads, allocator, binding, waiting, and what else this machine offers, by a balanced design of runs,
proposals of a model of main effects in turn with Optuna's TPE (where optuna is installed), and a race of the best against the program
as it is. The winner is compared with plain in fresh pairs, as by `sysperf verify`; only what is faster there is written, as a profile
for `sysperf wrap --profile`. That nothing helps is a normal answer.

A run is one launch of the program: have it take seconds. Ctrl-C keeps what is there; --resume goes on, also after kill -9.

exit codes:
  0  a faster start was found and confirmed, or nothing helps here
  2  the command line is wrong, or the program failed
  3  undecided or interrupted

examples:
  sysperf tune --steps optimizer -- python train.py             by steps per second; a run is as long as --minutes has room for
  sysperf tune --minutes 60 --profile train.toml -- python train.py
  sysperf tune --steps forward --instances 2,4 -- python serve.py   several at once, CPUs divided among them
  sysperf tune --only threads --minutes 5 -- python train.py        how many threads? each number in turn
  sysperf tune --only loader-workers --steps optimizer -- python train.py   how many loader workers?
  sysperf tune --fix threads.one-busy -- python train.py            what this rule advises to choose; the gain of its finding from then on
  sysperf tune --without allocator -- python train.py
  sysperf wrap --profile train.toml -- python train.py          start it in the way that was found
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time

import msgspec

from sysperf import paths
from sysperf.cli import _measuring, _options
from sysperf.cli.verify import study
from sysperf.engine import tune, verify
from sysperf.engine.tune import Progress, space
from sysperf.engine.tune import plan as tune_plan
from sysperf.engine.tune.plan import Plan
from sysperf.engine.tune.result import PROFILE_MARK
from sysperf.engine.verify import resuming, trying
from sysperf.host import files
from sysperf.host.plain_files import open_plain
from sysperf.model.errors import Exit, UsageError
from sysperf.model.experiment import TUNED
from sysperf.model.record import to_json
from sysperf.model.text import neutral
from sysperf.model.tuning import Tuning
from sysperf.report.experiments import tuning
from sysperf.report.formats import as_json
from sysperf.verify.search.store import opened

MAX_INSTANCES = 64
DEFAULT_MINUTES = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what is searched")
    what.add_argument("--only", action="append", default=[], metavar="FACTOR", help=f"search this alone: {', '.join(space.WORDS)}")
    what.add_argument("--without", action="append", default=[], metavar="FACTOR", help="leave a factor as it is")
    what.add_argument("--fix", default="", metavar="ID", help="search what this rule advises to choose: threads or loader workers")
    what.add_argument("--instances", default="", metavar="LIST", help="the program may run several times at once: try 2,4 instances")
    what.add_argument("--loader", action="store_true", help="also try other numbers of workers and batches ahead in its DataLoaders")
    measure = _measuring.add_metric(parser)
    measure.add_argument(
        "--margin", type=_measuring.percent, default=1.0, metavar="PERCENT", help="smaller differences are called the same (default: 1)"
    )
    when = parser.add_argument_group("when it stops")
    when.add_argument(
        "--minutes", type=float, default=DEFAULT_MINUTES, metavar="MINUTES", help="the budget, confirmation included (default: 30)"
    )
    when.add_argument(
        "--max-runs", type=int, default=tune_plan.MAX_RUNS, metavar="N", help="at most so many runs of the search (default: 120)"
    )
    when.add_argument("--keep-disturbed", action="store_true", help="count runs during which others took CPUs, too")
    _measuring.add_limit(when)
    when.add_argument("--resume", action="store_true", help="go on with the search of the same command that was interrupted")
    when.add_argument("--seed", type=int, default=None, metavar="N", help="of all random choices (default: from the clock)")
    parser.add_argument("--profile", default="", metavar="FILE", help="where the profile goes (default: PROGRAM.profile.toml here)")
    _options.add_format(parser, "text", "json", "html")
    _options.add_output(parser)
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND [ARGUMENT …]", help="the program and its arguments")
    parser.usage = "sysperf tune [options] -- COMMAND [ARGUMENT …]"


def run(args: argparse.Namespace) -> int:
    _options.check_output(args)
    plan = planned(args)
    profile = args.profile or default_profile(plan.argv)
    _check_profile(profile)
    base = f"{paths.state_folder()}/tune/{_key(plan, _only(args))}"
    with _measuring.alone(), opened(f"{base}.sqlite", resume=args.resume) as store:
        saved = store.kept("plan", Plan)
        if args.resume and saved is None:
            raise UsageError("there is no interrupted search of this command", "run it without --resume")
        machine = resuming.machine()
        if saved:
            resuming.check(store.kept("machine", dict[str, str]) or {}, machine)
        plan = msgspec.structs.replace(saved, budget_s=plan.budget_s, limit_s=plan.limit_s) if saved else plan
        store.keep("plan", plan)
        store.keep("machine", machine)
        study.say(f"{study.run_length(tune_plan.first_metric(plan))}; {plan.budget_s / 60:.3g} min at most", is_over=False)
        result = tune.tune(plan, store, f"{base}.profile.toml", _Watch(time.monotonic() + plan.budget_s))
    if result.comparison:
        _measuring.keep(result.comparison, args.fix, "tune", what=f"{tuning.named_winner(result)}: {os.path.basename(plan.argv[0])}")
    if result.profile:  # before the output, which may go to a full disk or a pipe that was closed
        _write_profile(profile, result.profile)
    _options.write(_rendered(result, args), args)
    return Exit.PARTIAL if result.state == "unconfirmed" else Exit.CLEAN


def planned(args: argparse.Namespace) -> Plan:
    """Return the search that the options describe. Raises UsageError."""
    argv = _measuring.command(args)
    if not argv:
        raise UsageError("no command to run", "sysperf tune -- python train.py")
    if not 0 < args.margin < 100:
        raise UsageError(f"--margin {args.margin:g}: not between 0 and 100 %")
    if not 0 < args.minutes < 1e6:
        raise UsageError(f"--minutes {args.minutes:g}: no finite number above 0", "such as --minutes 30")
    instances = _instances(args.instances)
    if instances and args.metric:
        raise UsageError("--instances goes with wall time or --steps", "what a pattern finds cannot be added up")
    asked = space.Asked(_only(args), space.factors_named(_options.listed(args.without), "--without"), instances, args.loader)
    plan = tune_plan.plan_of(argv, _measuring.metric(args), asked)
    if args.max_runs < (least := tune_plan.least_runs(plan.factors)):
        raise UsageError(f"--max-runs {args.max_runs}: a search needs {least} runs or more", "leave it out: --minutes bounds the search")
    seed = time.time_ns() % 1_000_000 if args.seed is None else args.seed
    return msgspec.structs.replace(
        plan,
        budget_s=args.minutes * 60,
        limit_s=args.limit,
        margin=args.margin / 100,
        max_runs=args.max_runs,
        keep_disturbed=args.keep_disturbed,
        seed=seed,
    )


def _only(args: argparse.Namespace) -> tuple[str, ...]:
    """The factors that are searched alone: those that are named, or the one that a rule advises to choose. Raises UsageError."""
    if not args.fix:
        return space.factors_named(_options.listed(args.only), "--only")
    if args.only:
        raise UsageError("--fix and --only both say what is searched", "give one of them")
    rule = trying.find(args.fix)
    factor = TUNED.get(rule.measure.experiment, "") if rule.measure else ""
    if not factor:
        raise UsageError(f"what {args.fix} advises is no choice among several", f"sysperf verify --fix {args.fix} -- python train.py")
    return (factor,)


def _instances(text: str) -> tuple[int, ...]:
    numbers = [part.strip() for part in text.split(",") if part.strip()]
    if not all(number.isdigit() and 2 <= int(number) <= MAX_INSTANCES for number in numbers):
        raise UsageError(f"--instances {text}: numbers from 2 to {MAX_INSTANCES}", "--instances 2,4")
    return tuple(map(int, numbers))


def default_profile(argv: tuple[str, ...]) -> str:
    """Return the profile's name where none was given: after the script, or the program."""
    script = next((word for word in argv[1:] if word.endswith(".py")), argv[0])
    return f"{os.path.basename(script).removesuffix('.py') or 'program'}.profile.toml"


def _check_profile(path: str) -> None:
    """Raise UsageError where the profile could not be written in the end, or would replace what somebody else wrote."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"{path} is no file", "name another file with --profile")
    try:
        with open(open_plain(path), "rb") as file:
            if PROFILE_MARK.encode() not in file.readline(500):
                raise UsageError(f"{path} is there, and `sysperf tune` did not write it", "name another file with --profile")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "name another file with --profile") from None
    if not os.access(os.path.dirname(path) or ".", os.W_OK):
        raise UsageError(f"{path}: its folder cannot be written", "name another file with --profile")


def _write_profile(path: str, text: str) -> None:
    try:
        files.replace(path, text.encode())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "the profile is in the output of --format json, too") from None
    sys.stderr.write(f"sysperf: the profile is {neutral(path, 500)}: start with `sysperf wrap --profile {neutral(path, 500)} -- …`\n")


def _key(plan: Plan, only: tuple[str, ...]) -> str:
    return hashlib.sha256(to_json([os.getcwd(), plan.argv, plan.metric, only])).hexdigest()[:16]


def _rendered(result: Tuning, args: argparse.Namespace) -> str:
    if args.format == "json":
        return as_json.dump({"schema": 1, "tuning": result})
    if args.format == "html":
        return tuning.page(result)
    return tuning.text(result, color=_options.wants_color(args), width=_options.width())


class _Watch:
    """Says on stderr how the search stands: one line that is rewritten on a terminal."""

    def __init__(self, end: float) -> None:
        self._end = end

    def __call__(self, state: Progress | verify.State) -> None:
        if isinstance(state, verify.State):
            study.say(f"confirming: {study.progress_line(state)}", is_over=study.is_over(state))
        elif state.running_s is None or _options.rewrites_lines(sys.stderr):
            study.say(self._line(state), is_over=False)

    def _line(self, state: Progress) -> str:
        left_min = max(0.0, self._end - time.monotonic()) / 60
        parts = [f"{state.phase}, run {state.done + (state.running_s is not None)} of at most {state.total}"]
        if state.running_s is not None:
            parts.append(f"running for {state.running_s:.0f} s")
        if state.last is not None:
            what = state.last.failed or state.last.disturbed
            parts.append(f"last run {f'left out: {neutral(what, 60)}' if what else f'{state.last.wall_s:.2f} s'}")
        if state.ratio:
            parts.append(f"best so far {state.best} {(state.ratio - 1) * 100:+.1f} %")
        return "; ".join((*parts, f"{left_min:.0f} min left"))
