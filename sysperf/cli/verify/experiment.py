"""`sysperf verify --experiment`: sweeps, ceilings and copies, also for rules whose advice only a person can follow."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import msgspec

from sysperf.cli import _measuring, _options
from sysperf.cli.bench import host as ceilings
from sysperf.cli.verify import output
from sysperf.cli.verify import plan as verify_plan
from sysperf.cli.verify import study as verify_study
from sysperf.engine import verify
from sysperf.engine.bench.host import Request as HostRequest
from sysperf.engine.verify import obstacles, resuming, sweep, trying, workload
from sysperf.model.comparison import Variant
from sysperf.model.errors import Exit, UsageError
from sysperf.model.experiment import BANDWIDTHS, COPIES, STANDALONE
from sysperf.model.rule import Advice
from sysperf.model.sweep import NotHere, Sweep
from sysperf.report import as_json
from sysperf.report import sweep as report


def wanted(args: argparse.Namespace) -> str:
    """Return the experiment to run instead of a comparison: the one that is named, or that of a rule with nothing but advice."""
    if args.experiment or not args.fix:
        return str(args.experiment)
    rule = trying.find(args.fix)
    experiment = rule.measure.experiment if rule.measure else ""
    return experiment if experiment in STANDALONE and all(isinstance(fix, Advice) for fix in rule.fix) else ""


def run(args: argparse.Namespace, experiment: str) -> int:
    """Run an experiment, print what it found, keep what it measured."""
    if args.a or args.b or args.env or args.set or args.ranks or (args.fix and args.experiment):
        raise UsageError(f"{experiment} says itself what is compared", "give a command and no other comparison")
    if experiment in (*BANDWIDTHS, COPIES) and (_measuring.command(args) or args.workload):
        raise UsageError(
            f"{experiment} runs a program of sysperf's own", "leave the command out; two programs are compared with --a and --b"
        )
    if experiment == COPIES:
        return _copies(args)
    if args.fail_if_slower is not None:
        raise UsageError(f"{experiment} is no comparison of two programs", "leave --fail-if-slower out")
    if experiment in BANDWIDTHS:
        return _bandwidths(args, experiment)
    with _measuring.alone():
        outcome = _swept(args, experiment)
    if outcome.comparison:
        _measuring.keep(outcome.comparison, args.fix or "")
    _options.write(_rendered(outcome, args), args)
    is_partial = outcome.cannot or (outcome.comparison and outcome.comparison.verdict == "unclear")
    return Exit.PARTIAL if is_partial else Exit.CLEAN


def _bandwidths(args: argparse.Namespace, experiment: str) -> int:
    """A group of the machine's ceilings."""
    if args.minutes is not None or args.resume:
        raise UsageError(f"{experiment} takes a fixed number of seconds", "leave --minutes and --resume out")
    if cannot := obstacles.obstacle(experiment):
        _options.write(_rendered(NotHere(experiment, cannot), args), args)
        return Exit.PARTIAL
    return ceilings.measure(HostRequest(groups=(BANDWIDTHS[experiment],), python=args.python), args)


def _swept(args: argparse.Namespace, experiment: str) -> Sweep:
    plain = Variant("plain", verify_plan.argv_of(args))
    study = verify_plan.plan_of(args, verify_plan.default_metric(args), (plain, plain, ()))
    plan = sweep.SweepPlan(experiment=experiment, study=study)
    file = verify_study.StudyFile(verify_study.experiment_path(experiment, plain.argv, study.metric))
    machine = resuming.machine()
    state = _left(args, file, machine) or sweep.SweepState(seed=study.seed, machine=machine)

    def keep(state: sweep.SweepState) -> None:
        file.write(state)
        if state.study:
            verify_study.say(verify_study.progress_line(state.study), is_over=verify_study.is_over(state.study))

    return sweep.sweep(plan, _say, keep, state)


def _left(args: argparse.Namespace, file: verify_study.StudyFile, machine: dict[str, str]) -> sweep.SweepState | None:
    """The experiment as it was left, where it is to go on; None: it begins. Raises UsageError."""
    if not args.resume:
        return None
    state = file.read(sweep.SweepState)
    if state is None:
        raise UsageError("there is no interrupted experiment with this command", "run it without --resume")
    resuming.check(state.machine, machine)
    return state


def _copies(args: argparse.Namespace) -> int:
    """Copies from ordinary memory against pinned ones that overlap with the computation."""
    if cannot := obstacles.cannot_copy(args.python):
        _options.write(_rendered(NotHere(COPIES, cannot), args), args)
        return Exit.PARTIAL
    a, b = (Variant(name.partition("_")[0], workload.command(name, args.python)) for name in ("pageable_copies", "pinned_copies"))
    plan = msgspec.structs.replace(verify_plan.plan_of(args, workload.METRIC, (a, b, ())), rule=args.fix or "")
    state = verify_study.begun(plan, resume=args.resume)
    with _measuring.alone():
        comparison = verify.verify(plan, verify_study.Progress(plan), state, tick=verify_study.tick)
    if len(comparison.runs) > len(state.runs):
        _measuring.keep(comparison, plan.rule)
    else:
        verify_study.say_nothing_new()
    _options.write(output.rendered(comparison, args), args)
    return output.exit_code(comparison, args.fail_if_slower)


def _rendered(outcome: Sweep | NotHere, args: argparse.Namespace) -> str:
    forms: dict[str, Callable[[], str]] = {
        "json": lambda: as_json.dump({"schema": 1, "experiment": outcome}),
        "markdown": lambda: report.markdown(outcome),
        "html": lambda: report.page(outcome),
        "text": lambda: report.text(outcome, color=_options.wants_color(args), width=_options.width()),
    }
    return forms[args.format]()


def _say(line: str) -> None:
    sys.stderr.write(f"sysperf: {line}\n")
    sys.stderr.flush()
