"""`sysperf verify --all`: every safe fix that an audit finds, alone and together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import msgspec

from sysperf.cli import _measuring, _options
from sysperf.cli.verify import plan as verify_plan
from sysperf.cli.verify import study
from sysperf.engine import verify
from sysperf.engine.verify import trying
from sysperf.model.comparison import Metric, TriedFix, Variant
from sysperf.model.errors import Exit, UsageError
from sysperf.model.record import to_json
from sysperf.report.experiments import comparison as report
from sysperf.report.experiments import comparison_page
from sysperf.report.formats import as_json


def run(args: argparse.Namespace) -> int:
    """Try each safe fix alone and all together, and print what was promised and what it gave."""
    if args.a or args.b or args.env or args.fix or args.set or args.ranks or args.fail_if_slower is not None:
        raise UsageError("--all tries what an audit finds", "give a command, and no other comparison or bound")
    measured, argv = verify_plan.default_metric(args), verify_plan.argv_of(args)
    tries = trying.all_safe(argv)
    plans = [_plan_of(args, (tried,), argv, measured) for tried in tries]
    if not plans:
        _options.write("There is nothing to try: an audit finds no safe fix here, and `sysperf wrap` would change nothing.", args)
        return Exit.CLEAN
    plans += [_plan_of(args, tries, argv, measured)] if len(tries) > 1 else []
    if args.minutes is not None:
        share_s = 60 * args.minutes / len(plans)
        plans = [tried._replace(plan=msgspec.structs.replace(tried.plan, budget_s=share_s)) for tried in plans]
    if plans[-1].plan.settings and not args.yes:
        study.confirm(plans[-1].plan.settings)
    earlier: dict[bytes, int] = {}

    def begun(plan: verify.Plan) -> verify.State:
        state = study.begun(plan, resume=args.resume)
        earlier[_key(plan.a, plan.b)] = len(state.runs)
        return state

    with _measuring.alone():
        fixes = verify.verify_each(plans, _Each(), begun, study.tick)
    for tried, fix in zip(plans, fixes, strict=False):
        comparison = fix.comparison
        is_new = comparison is not None and len(comparison.runs) > earlier[_key(tried.plan.a, tried.plan.b)]  # else it was kept before
        if comparison and is_new and len(fix.rules) == 1:
            _measuring.keep(comparison, fix.rules[0])
    forms = {
        "json": lambda: as_json.dump({"schema": 1, "tried": fixes}),
        "markdown": lambda: report.tried_markdown(fixes),
        "html": lambda: comparison_page.tried_page(fixes),
        "text": lambda: report.tried(fixes, color=_options.wants_color(args), width=_options.width()),
    }
    _options.write(forms[args.format](), args)
    return exit_code(fixes)


def exit_code(fixes: Sequence[TriedFix]) -> Exit:
    """Return FINDINGS where a fix certainly makes it slower, PARTIAL where nothing was decided of any."""
    verdicts = [(fix.comparison.verdict, fix.certain) for fix in fixes if fix.comparison]
    if ("slower", True) in verdicts:
        return Exit.FINDINGS
    return Exit.CLEAN if any(verdict == "same" or certain for verdict, certain in verdicts) else Exit.PARTIAL


def _plan_of(args: argparse.Namespace, tries: Sequence[trying.Try], argv: tuple[str, ...], measured: Metric) -> verify.TriedPlan:
    """The study of plain against these fixes together."""
    settings = tuple(setting for tried in tries for setting in tried.settings)
    variants = trying.variants(tries, argv, args.wrap_options, "" if len(tries) == 1 else "all together")
    plan = msgspec.structs.replace(
        verify_plan.plan_of(args, measured, (*variants, settings)), rule=tries[0].rule if len(tries) == 1 else ""
    )
    return verify.TriedPlan(tuple(tried.rule for tried in tries), tries[0].promised if len(tries) == 1 else "", plan)


def _key(a: Variant, b: Variant) -> bytes:
    return to_json([a, b])


class _Each:
    """Keeps and shows each study by its plan."""

    def __init__(self) -> None:
        self._studies: dict[str, study.Progress] = {}

    def __call__(self, state: verify.State) -> None:
        path = study.state_path(state.plan)
        if path not in self._studies:
            self._studies[path] = study.Progress(state.plan)
        self._studies[path](state)
