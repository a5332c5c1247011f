"""`sysperf verify --experiment`: ceilings and copies, also for rules whose advice only a person can follow."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import msgspec

from sysperf.cli import _measuring, _options
from sysperf.cli.bench import host as ceilings
from sysperf.cli.verify import output
from sysperf.cli.verify import plan as verify_plan
from sysperf.cli.verify import study as verify_study
from sysperf.engine.bench.host import Request as HostRequest
from sysperf.engine.verify import obstacles, trying, workload
from sysperf.model.comparison import NotHere, Variant
from sysperf.model.errors import Exit, UsageError
from sysperf.model.experiment import BANDWIDTHS, COPIES, STANDALONE
from sysperf.model.rule import Advice
from sysperf.report import as_json, not_here


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
        raise UsageError(f"{experiment} says itself what is compared", "give no other comparison")
    if _measuring.command(args) or args.workload:
        raise UsageError(
            f"{experiment} runs a program of sysperf's own", "leave the command out; two programs are compared with --a and --b"
        )
    return _copies(args) if experiment == COPIES else _bandwidths(args, experiment)


def _bandwidths(args: argparse.Namespace, experiment: str) -> int:
    """A group of the machine's ceilings."""
    if args.fail_if_slower is not None:
        raise UsageError(f"{experiment} is no comparison of two programs", "leave --fail-if-slower out")
    if args.minutes is not None or args.resume:
        raise UsageError(f"{experiment} takes a fixed number of seconds", "leave --minutes and --resume out")
    if cannot := obstacles.obstacle(experiment):
        return _not_here(NotHere(experiment, cannot), args)
    return ceilings.measure(HostRequest(groups=(BANDWIDTHS[experiment],), python=args.python), args)


def _copies(args: argparse.Namespace) -> int:
    """Copies from ordinary memory against pinned ones that overlap with the computation."""
    if cannot := obstacles.cannot_copy(args.python):
        return _not_here(NotHere(COPIES, cannot), args)
    a, b = (Variant(name.partition("_")[0], workload.command(name, args.python)) for name in ("pageable_copies", "pinned_copies"))
    plan = msgspec.structs.replace(verify_plan.plan_of(args, workload.METRIC, (a, b, ())), rule=args.fix or "")
    state = verify_study.begun(plan, resume=args.resume)
    return output.compare(plan, state, args)


def _not_here(result: NotHere, args: argparse.Namespace) -> int:
    forms: dict[str, Callable[[], str]] = {
        "json": lambda: as_json.dump({"schema": 1, "experiment": result}),
        "markdown": lambda: not_here.markdown(result),
        "html": lambda: not_here.page(result),
        "text": lambda: not_here.text(result, color=_options.wants_color(args), width=_options.width()),
    }
    _options.write(forms[args.format](), args)
    return Exit.PARTIAL
