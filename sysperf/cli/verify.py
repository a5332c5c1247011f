"""Run a program in two ways, in turn, until it is clear which is faster.

Without options the two are the program plain, and under `sysperf wrap`.

The unit is one launch of the program. Both variants run in pairs, in random order; the first pair only warms caches. Pairs are
looked at after 6, 9, 13, 19, 28 and 40, so that a program is called different from itself in at most 5 % of the studies. A pair
during which others took CPUs is dropped whole. Short noisy runs need many pairs: have a run take seconds. Ctrl-C ends the study
with what is there; --resume goes on with it.

exit codes:
  0 faster or the same; 1 slower (with --fail-if-slower: certainly not within that bound); 3 unclear; 2 wrong usage, or a run failed

examples:
  sysperf verify -- python train.py                                   plain against `sysperf wrap`
  sysperf verify --steps optimizer --max-steps 200 -- python train.py  the same by steps per second, without the start
  sysperf verify --a "python old.py" --b "python new.py"              two commands
  sysperf verify --env ~/venv-2.12 --env ~/venv-2.13 -- python train.py  two interpreters: slower after the upgrade?
  sysperf verify --metric 'steps/s: ([0-9.]+)' --higher-is-better -- python train.py
  sysperf verify --fix numa.balancing-on -- python train.py                is what an audit advises worth it here?
  sysperf verify --fix numa.balancing-on                                   the same by a built-in program
  sysperf verify --all -- python train.py                                  every safe fix that an audit finds
  sysperf verify --ranks 1,4 -- python train.py                            how well does it scale?
  sysperf verify --set vm.swappiness=10 -- python train.py
  sysperf verify --fail-if-slower 2 --a "python main.py" --b "python branch.py"  in CI
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence

import msgspec

from sysperf import paths
from sysperf.cli import _measuring, _options
from sysperf.engine import change, trying, verify, workload
from sysperf.engine.verify import Plan, State
from sysperf.host import files
from sysperf.host.commands import sysperf_command
from sysperf.model.change import Setting
from sysperf.model.comparison import Comparison, Metric, Variant
from sysperf.model.errors import Exit, UsageError
from sysperf.model.record import to_json
from sysperf.report import changes, comparison
from sysperf.verify.study import Study

MAX_STATE_BYTES = 16 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what is compared")
    what.add_argument("--a", metavar="COMMAND", help="the first command, in quotes, instead of -- COMMAND")
    what.add_argument("--b", metavar="COMMAND", help="the second command, in quotes")
    what.add_argument(
        "--env", action="append", default=[], metavar="PYTHON", help="twice: run COMMAND with this interpreter or environment"
    )
    what.add_argument("--wrap-options", default="", metavar="OPTIONS", help="options of `sysperf wrap` for the wrapped runs, in quotes")
    what.add_argument("--fix", metavar="ID", help="try this rule's fix: its part of `wrap`, or its setting of this machine")
    what.add_argument("--all", action="store_true", help="try every safe fix that an audit finds here, each alone and all together")
    what.add_argument("--ranks", metavar="N,M", help="how efficiently M ranks work, compared with N: steps of each rank per second")
    what.add_argument(
        "--workload", default="", metavar="NAME", help=f"a built-in program instead of a command: {', '.join(workload.NAMES)}"
    )
    what.add_argument("--python", default="", metavar="PYTHON", help="the interpreter with torch that runs a built-in program")
    what.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", help="try this setting of the machine, as `apply` has it")
    what.add_argument("--yes", action="store_true", help="with --fix or --set: change the machine during B's runs without a question")
    measure = _measuring.add_metric(parser)
    measure.add_argument(
        "--margin", type=float, default=1.0, metavar="PERCENT", help="smaller differences are called the same (default: 1)"
    )
    when = parser.add_argument_group("when it stops")
    when.add_argument("--max-pairs", type=int, default=40, metavar="N", help="at most so many pairs that count (default: 40)")
    when.add_argument("--keep-disturbed", action="store_true", help="count pairs during which others took CPUs, too")
    when.add_argument("--minutes", type=float, metavar="N", help="stop after this time, with what is there")
    when.add_argument("--limit", type=float, default=3_600.0, metavar="S", help="end a run after so many seconds (default: 3600)")
    when.add_argument("--resume", action="store_true", help="go on with the study of the same commands that was interrupted")
    when.add_argument("--seed", type=int, default=None, metavar="N", help="of the random order within pairs (default: from the clock)")
    when.add_argument("--fail-if-slower", type=float, metavar="PERCENT", help="exit with 1 only when B is slower by more than this")
    _options.add_format(parser, "text", "json", "markdown", "html")
    _options.add_output(parser)
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND [ARGUMENT …]", help="the program and its arguments")


def run(args: argparse.Namespace) -> int:
    if args.all:
        return _run_all(args)
    plan = planned(args)
    state = _saved(plan) if args.resume else None
    if plan.settings and not args.yes:
        _confirm(plan.settings)
    with _measuring.alone():
        found = verify.verify(plan, _Progress(plan), state)
    _measuring.keep(found, plan.rule)
    _options.write(_rendered(found, args), args)
    return exit_code(found, args.fail_if_slower)


def _confirm(settings: tuple[Setting, ...]) -> None:
    """Show what would be changed during B's runs, and ask. Raises UsageError where nobody agrees."""
    planned = change.Changer().plan(settings)
    sys.stderr.write(changes.plan(planned, color=False, width=_options.width()))
    if not sys.stdin.isatty():
        raise UsageError("nothing was changed: it was not confirmed", "look at the plan, then add --yes")
    sys.stderr.write(f"Change {changes.count(planned.changes)} during each run of B, and undo it after it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was changed")


def planned(args: argparse.Namespace) -> Plan:
    """Return the study that the options describe. Raises UsageError."""
    measured = _default_metric(args)
    return _plan(args, measured, _tried(args))


def _plan(args: argparse.Namespace, measured: Metric, tried: tuple[Variant, Variant, tuple[Setting, ...]]) -> Plan:
    a, b, settings = tried
    if args.max_pairs < 2:
        raise UsageError(f"--max-pairs {args.max_pairs}: an interval needs two pairs", "40 are the default")
    if not 0 < args.margin < 100:
        raise UsageError(f"--margin {args.margin:g}: not between 0 and 100 %")
    budget_s = None if args.minutes is None else args.minutes * 60
    seed = time.time_ns() % 1_000_000 if args.seed is None else args.seed
    return Plan(
        a=a,
        b=b,
        metric=measured,
        margin=args.margin / 100,
        max_pairs=args.max_pairs,
        budget_s=budget_s,
        limit_s=args.limit,
        seed=seed,
        settings=settings,
        keep_disturbed=args.keep_disturbed,
        rule=args.fix or "",
        ranks=_ranks(args),
    )


def _tried(args: argparse.Namespace) -> tuple[Variant, Variant, tuple[Setting, ...]]:
    """Return both variants, and the settings of the machine that only the second one has. Raises UsageError."""
    if not args.fix and not args.set:
        return *_variants(args), ()
    if args.a or args.b or args.env or args.ranks or (args.fix and args.set):
        raise UsageError("--fix, --set, --env, --ranks, and --a with --b each say what is compared", "give one of them")
    if args.fix:
        tried = trying.one(args.fix)
        a, b = trying.variants((tried,), _argv(args), args.wrap_options, args.fix)
        return a, b, tried.settings
    settings = tuple(change.setting(text) for text in args.set)
    plain, _ = _variants(args)
    name = ", ".join(f"{setting.knob}{'@' if setting.item else ''}{setting.item}={setting.value}" for setting in settings)
    return plain, msgspec.structs.replace(plain, name=name), settings


def _argv(args: argparse.Namespace) -> tuple[str, ...]:
    """The user's command, or a built-in program: the one that is named, or the one of the rule's experiment. Raises UsageError."""
    argv = _measuring.command(args)
    if argv and args.workload:
        raise UsageError("--workload runs a built-in program instead of a command", "give one of them")
    if argv:
        return argv
    rule = trying.find(args.fix) if args.fix else None
    of_rule = workload.of_experiment(rule.measure.experiment if rule and rule.measure else "")
    name = args.workload or of_rule or ("convolution_training" if args.all else "")
    if not name:
        raise UsageError("no command to run", "sysperf verify -- python train.py, or --workload with a built-in program")
    return workload.command(name, args.python)


def _default_metric(args: argparse.Namespace) -> Metric:
    """What the options say; of a built-in program what it prints, and of ranks their steps. Raises UsageError."""
    asked = args.metric or args.steps
    if args.ranks and not args.steps:
        if args.metric:
            raise UsageError("--ranks compares the steps of each rank per second", "leave --metric out")
        args.steps = "optimizer"
    ours = (args.workload or args.fix or args.all) and not _measuring.command(args) and not asked and not args.ranks
    return workload.METRIC if ours else _measuring.metric(args)


def _ranks(args: argparse.Namespace) -> tuple[int, int] | None:
    if args.ranks is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,4}),([1-9][0-9]{0,4})", args.ranks)
    if not found:
        raise UsageError(f"--ranks {args.ranks}: two numbers of ranks", "--ranks 1,4")
    return int(found[1]), int(found[2])


def with_ranks(argv: tuple[str, ...], ranks: int) -> tuple[str, ...]:
    """Return the command with so many ranks of torchrun: its own number is replaced, a script is started by it. Raises UsageError."""
    name = os.path.basename(argv[0])
    own = 1 if name == "torchrun" else 3 if argv[1:3] == ("-m", "torch.distributed.run") else 0
    if own:
        return (*argv[:own], "--nproc-per-node", str(ranks), *_without_ranks(argv[own:]))
    if not re.fullmatch(r"python[0-9.]*", name) or argv[1:2] == ("-c",):
        raise UsageError(f"--ranks starts a Python script by torchrun, and {name} is none", "compare two commands with --a and --b")
    return (argv[0], "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *argv[1:])


def _without_ranks(words: tuple[str, ...]) -> tuple[str, ...]:
    """torchrun's words without its number of ranks."""
    for at, word in enumerate(words):
        if not word.startswith("-"):
            break
        option, equals, _ = word.replace("_", "-").partition("=")
        if option == "--nproc-per-node":
            return (*words[:at], *words[at + (1 if equals else 2) :])
    return words


def _variants(args: argparse.Namespace) -> tuple[Variant, Variant]:
    argv = _measuring.command(args)
    if args.a or args.b:
        if argv or args.env or args.ranks or args.workload or not (args.a and args.b):
            raise UsageError(
                "--a and --b go together, and without another command", 'sysperf verify --a "python old.py" --b "python new.py"'
            )
        return Variant("A", tuple(shlex.split(args.a))), Variant("B", tuple(shlex.split(args.b)))
    argv = _argv(args)
    if ranks := _ranks(args):
        few, many = (Variant(f"{number} rank{'s' if number > 1 else ''}", with_ranks(argv, number)) for number in ranks)
        return few, many
    if args.env:
        if len(args.env) != 2:
            raise UsageError("--env is given twice: the old interpreter, and the new one", "--env ~/venv-old --env ~/venv-new")
        first, second = (Variant(environment, _with_python(environment, argv)) for environment in args.env)
        return first, second
    wrap = (*sysperf_command(), "wrap", "--quiet", *shlex.split(args.wrap_options), "--", *argv)
    return Variant("plain", argv), Variant("wrapped", wrap)


def _with_python(environment: str, argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command under another interpreter: its own `python` is replaced, a script is given to it."""
    path = os.path.abspath(os.path.expanduser(environment))
    python = f"{path}/bin/python" if os.path.isdir(path) else path
    if not os.access(python, os.X_OK):
        raise UsageError(f"--env {environment}: {python} is no program", "name an interpreter, or the folder of its environment")
    return (python, *(argv[1:] if re.fullmatch(r"python[0-9.]*", os.path.basename(argv[0])) else argv))


# ---------------------------------------------------------------------- every fix that an audit found


def _run_all(args: argparse.Namespace) -> int:
    """Try each safe fix alone and all together, and print what was promised and what it gave."""
    if args.a or args.b or args.env or args.fix or args.set or args.ranks:
        raise UsageError("--all tries what an audit finds", "give a command and no other comparison")
    measured, argv = _default_metric(args), _argv(args)
    tries = trying.all_safe(argv)
    plans = [_plan_of(args, (tried,), argv, measured) for tried in tries]
    if not plans:
        _options.write("There is nothing to try: an audit finds no safe fix here, and `sysperf wrap` would change nothing.", args)
        return Exit.CLEAN
    plans += [_plan_of(args, tries, argv, measured)] if len(tries) > 1 else []
    if plans[-1].plan.settings and not args.yes:
        _confirm(plans[-1].plan.settings)
    with _measuring.alone():
        found = verify.verify_each(plans, lambda state: _say(progress_line(state), state))
    for fix in found:
        if fix.comparison and len(fix.rules) == 1:
            _measuring.keep(fix.comparison, fix.rules[0])
    shown = {
        "json": lambda: to_json({"schema": 1, "tried": found}, indent=2).decode(),
        "markdown": lambda: comparison.tried_markdown(found),
        "text": lambda: comparison.tried(found, color=_options.wants_color(args), width=_options.width()),
    }
    if args.format not in shown:
        raise UsageError("--all has no page", "--format text, json or markdown")
    _options.write(shown[args.format](), args)
    return Exit.FINDINGS if any(fix.certain and fix.comparison and fix.comparison.verdict == "slower" for fix in found) else Exit.CLEAN


def _plan_of(args: argparse.Namespace, tries: Sequence[trying.Try], argv: tuple[str, ...], measured: Metric) -> verify.TriedPlan:
    """The study of plain against these fixes together."""
    settings = tuple(setting for tried in tries for setting in tried.settings)
    variants = trying.variants(tries, argv, args.wrap_options, "" if len(tries) == 1 else "all together")
    plan = msgspec.structs.replace(_plan(args, measured, (*variants, settings)), rule=tries[0].rule if len(tries) == 1 else "")
    return verify.TriedPlan(tuple(tried.rule for tried in tries), tries[0].promised if len(tries) == 1 else "", plan)


def exit_code(found: Comparison, fail_if_slower: float | None) -> int:
    """Return the exit code that tells the verdict."""
    if fail_if_slower is not None and found.low is not None and found.high is not None:
        bound = 1 - fail_if_slower / 100
        return Exit.FINDINGS if found.high < bound else Exit.CLEAN if found.low >= bound else Exit.PARTIAL
    if found.verdict == "slower":
        return Exit.FINDINGS
    return Exit.PARTIAL if found.verdict == "unclear" else Exit.CLEAN


def _rendered(found: Comparison, args: argparse.Namespace) -> str:
    if args.format == "json":
        return to_json({"schema": 1, "comparison": found}, indent=2).decode()
    if args.format == "markdown":
        return comparison.markdown(found)
    if args.format == "html":
        return comparison.page(found)
    return comparison.text(found, color=_options.wants_color(args), width=_options.width())


# ---------------------------------------------------------------------- what is kept


def state_path(plan: Plan) -> str:
    """Return where a study of these commands in this folder is kept."""
    key = to_json([os.getcwd(), plan.a, plan.b, plan.metric])
    return f"{paths.state_folder()}/verify/{hashlib.sha256(key).hexdigest()[:16]}.json"


def _saved(plan: Plan) -> State:
    path = state_path(plan)
    try:
        with open(path, "rb") as file:
            state = msgspec.json.decode(file.read(MAX_STATE_BYTES), type=State)
    except FileNotFoundError:
        raise UsageError("there is no interrupted study of these commands", "run it without --resume") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{path}: {error}", "run it without --resume") from None
    return msgspec.structs.replace(state, plan=msgspec.structs.replace(plan, seed=state.plan.seed))


class _Progress:
    """Keeps the study after each run, and says on stderr how it stands: one line that is rewritten on a terminal."""

    def __init__(self, plan: Plan) -> None:
        self._path = state_path(plan)
        self._is_kept = True

    def __call__(self, state: State) -> None:
        self._save(state)
        _say(progress_line(state), state)

    def _save(self, state: State) -> None:
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            files.write_whole(self._path, lambda file: file.write(to_json(state)), mode=0o600)
        except OSError as error:
            if self._is_kept:
                sys.stderr.write(f"sysperf: {self._path}: {error.strerror or error}: the study goes on, but --resume will not find it\n")
            self._is_kept = False


def _say(line: str, state: State) -> None:
    """Write where a study stands on stderr: one line that is rewritten on a terminal."""
    terminal = sys.stderr.isatty()
    sys.stderr.write(f"\r\x1b[Ksysperf: {line}" if terminal else f"sysperf: {line}\n")
    if terminal and state.study().progress().verdict is not None:
        sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()


def progress_line(state: State) -> str:
    """Return where the study stands, with the estimate so far."""
    study, last = state.study(), state.runs[-1]
    phase = _phase(study) if last.pair else "warming caches"
    interval = study.progress().interval
    estimate = ""
    if interval is not None:
        low, middle, high = (100 * (ratio - 1) for ratio in interval.ratios())
        estimate = f"; so far {middle:+.1f} % [{low:+.1f}, {high:+.1f}]"
    needed = study.pairs_needed()
    hint = f"; {needed} pairs would be needed" if needed and needed > state.plan.max_pairs else ""
    dropped = f"; {study.dropped} dropped" if study.dropped else ""
    return f"{phase}; last run {last.wall_s:.2f} s{estimate}{dropped}{hint}"


def _phase(study: Study) -> str:
    if study.fresh or study.decided():
        return f"clear; measuring the gain on fresh pairs, {len(study.fresh)} of {study.fresh_pairs()}"
    return f"{len(study.pairs)} pairs, next look at {study.next_look()}"
