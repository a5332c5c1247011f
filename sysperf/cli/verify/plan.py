"""What the options of `sysperf verify` compare, as a plan."""

from __future__ import annotations

import argparse
import math
import re
import shlex
import time

import msgspec

from sysperf.cli import _measuring
from sysperf.engine import change
from sysperf.engine.verify import Plan, obstacles, trying, variants, workload
from sysperf.host.commands import sysperf_command
from sysperf.model.change import Setting
from sysperf.model.comparison import Metric, Variant
from sysperf.model.errors import UsageError
from sysperf.model.experiment import OWN_PROGRAM
from sysperf.verify import stats

MAX_PAIRS = 100_000
USUAL = "convolution_training"
"""The built-in program where nothing names a better one."""


def planned(args: argparse.Namespace) -> Plan:
    """Return the study that the options describe. Raises UsageError."""
    measured = default_metric(args)
    return plan_of(args, measured, _tried(args))


def plan_of(args: argparse.Namespace, measured: Metric, tried: tuple[Variant, Variant, tuple[Setting, ...]]) -> Plan:
    """Return the study of these variants and settings, as long as the options allow. Raises UsageError."""
    a, b, settings = tried
    _check_numbers(args)
    budget_s = None if args.minutes is None else args.minutes * 60
    seed = time.time_ns() % 1_000_000 if args.seed is None else args.seed
    return Plan(
        a=a,
        b=b,
        metric=measured,
        margin=args.margin / 100,
        max_pairs=args.max_pairs or (MAX_PAIRS if args.one_look and args.minutes else stats.LOOKS[-1]),
        budget_s=budget_s,
        one_look=args.one_look,
        limit_s=args.limit,
        seed=seed,
        settings=settings,
        keep_disturbed=args.keep_disturbed,
        rule=args.fix or "",
        ranks=_ranks(args),
        prepare=args.prepare,
        show_output=args.show_output,
    )


def _check_numbers(args: argparse.Namespace) -> None:
    """Raise UsageError for what is no share, no time, or not a number at all."""
    if args.max_pairs is not None and args.max_pairs < 2:
        raise UsageError(f"--max-pairs {args.max_pairs}: an interval needs two pairs", "40 are the default")
    if args.max_pairs is not None and args.max_pairs > MAX_PAIRS:
        raise UsageError(f"--max-pairs {args.max_pairs}: {MAX_PAIRS} at most", "40 are the default")
    if not 0 < args.margin < 100:
        raise UsageError(f"--margin {args.margin:g}: not between 0 and 100 %")
    if args.fail_if_slower is not None and not 0 <= args.fail_if_slower < 100:
        raise UsageError(f"--fail-if-slower {args.fail_if_slower:g}: not between 0 and 100 %")
    if args.minutes is not None and not 0 < args.minutes < math.inf:
        raise UsageError(f"--minutes {args.minutes:g}: no finite number above 0", "such as --minutes 30")
    if not 0 < args.limit < math.inf:
        raise UsageError(f"--limit {args.limit:g}: no finite number above 0", "such as --limit 600, in seconds")


def _tried(args: argparse.Namespace) -> tuple[Variant, Variant, tuple[Setting, ...]]:
    """Return both variants, and the settings of the machine that only the second one has. Raises UsageError."""
    if not args.fix and not args.set:
        return *_variants(args), ()
    if args.a or args.b or args.env or args.ranks or (args.fix and args.set):
        raise UsageError("--fix, --set, --env, --ranks, and --a with --b each say what is compared", "give one of them")
    if args.fix and trying.compares_copies(args.fix):
        return *_copies(args), ()
    if args.fix:
        tried = trying.one(args.fix)
        a, b = trying.variants((tried,), argv_of(args), args.wrap_options, args.fix)
        return a, b, tried.settings
    settings = tuple(change.setting(text) for text in args.set)
    plain, _ = _variants(args)
    name = ", ".join(f"{setting.knob}{'@' if setting.item else ''}{setting.item}={setting.value}" for setting in settings)
    return plain, msgspec.structs.replace(plain, name=name), settings


def _copies(args: argparse.Namespace) -> tuple[Variant, Variant]:
    """Return copies from ordinary memory, and pinned ones that overlap with the computation. Raises UsageError."""
    if _measuring.command(args) or args.workload:
        raise UsageError(
            f"{args.fix}: programs of sysperf's own tell it", "leave the command out; two programs are compared with --a and --b"
        )
    if cannot := obstacles.cannot_copy(args.python):
        raise UsageError(f"{args.fix}: this cannot be measured here: {cannot}")
    a, b = (Variant(name.partition("_")[0], workload.command(name, args.python)) for name in ("pageable_copies", "pinned_copies"))
    return a, b


def argv_of(args: argparse.Namespace) -> tuple[str, ...]:
    """The user's command, or a built-in program: the one that is named, or the one of the rule's experiment. Raises UsageError."""
    argv = _measuring.command(args)
    if argv and args.workload:
        raise UsageError("--workload runs a built-in program instead of a command", "give one of them")
    if argv:
        return argv
    rule = trying.find(args.fix) if args.fix else None
    experiment = rule.measure.experiment if rule and rule.measure else ""
    name = args.workload or workload.of_experiment(experiment) or ("" if experiment == OWN_PROGRAM or not (args.all or rule) else USUAL)
    if experiment == OWN_PROGRAM and not name:
        raise UsageError(f"what {args.fix} gives, only a program of yours can tell", f"sysperf verify --fix {args.fix} -- python train.py")
    if not name:
        raise UsageError("no command to run", "sysperf verify -- python train.py, or --workload with a built-in program")
    return workload.command(name, args.python)


def default_metric(args: argparse.Namespace) -> Metric:
    """What the options say; of a built-in program what it prints, and of ranks their steps. Raises UsageError."""
    asked = args.metric or args.steps
    if args.ranks and not args.steps:
        if args.metric:
            raise UsageError("--ranks compares the steps of each rank per second", "leave --metric out")
        return _measuring.metric(args, "optimizer")
    ours = (args.workload or args.fix or args.all) and not _measuring.command(args) and not asked
    return workload.METRIC if ours else _measuring.metric(args)


def _ranks(args: argparse.Namespace) -> tuple[int, int] | None:
    if args.ranks is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,4}),([1-9][0-9]{0,4})", args.ranks)
    if not match:
        raise UsageError(f"--ranks {args.ranks}: two numbers of ranks", "--ranks 1,4")
    return int(match[1]), int(match[2])


def _variants(args: argparse.Namespace) -> tuple[Variant, Variant]:
    argv = _measuring.command(args)
    if args.a or args.b:
        if argv or args.env or args.ranks or args.workload or not (args.a and args.b):
            raise UsageError(
                "--a and --b go together, and without another command", 'sysperf verify --a "python old.py" --b "python new.py"'
            )
        return Variant("A", tuple(shlex.split(args.a))), Variant("B", tuple(shlex.split(args.b)))
    argv = argv_of(args)
    if ranks := _ranks(args):
        few, many = (Variant(f"{number} rank{'s' if number > 1 else ''}", variants.with_ranks(argv, number)) for number in ranks)
        return few, many
    if args.env:
        if len(args.env) != 2:
            raise UsageError("--env is given twice: the old interpreter, and the new one", "--env ~/venv-old --env ~/venv-new")
        first, second = (Variant(environment, variants.with_python(environment, argv)) for environment in args.env)
        return first, second
    wrap = (*sysperf_command(), "wrap", "--quiet", *shlex.split(args.wrap_options), "--", *argv)
    return Variant("plain", argv), Variant("wrapped", wrap)
