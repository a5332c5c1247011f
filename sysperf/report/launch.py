"""A launch in words: each part with its rule, its facts and where they were read; what stays, and why (`wrap --explain`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sysperf.launch.facts import Launch
from sysperf.launch.plan import ASKED, LaunchPlan, ProposedChange
from sysperf.launch.shown import command_line
from sysperf.model.finding import Evidence, Finding
from sysperf.model.text import neutral
from sysperf.report.terminal import Ink, Page
from sysperf.report.words import count

MAX_FACTS = 6
MAX_COMMAND = 1 << 17
"""Shown whole; what the terminal would act on is escaped. `--print` has the very bytes."""


def render(plan: LaunchPlan, launch: Launch, outcomes: Sequence[Finding], *, color: bool, width: int) -> str:
    """The whole launch as text."""
    page = Page(Ink(color), width)
    by_rule = {outcome.rule: outcome for outcome in outcomes}
    page.paragraph(_program(launch), "strong")
    page.paragraph(_machine(launch), "dim")
    for rule, changes in _grouped(plan.changes):
        page.line()
        page.paragraph(", ".join(map(_change, changes)), "strong")
        _because(page, rule, by_rule.get(rule))
    _kept(page, plan)
    _section(page, "warnings", [f"{message} ({rule})" for rule, message in plan.warnings])
    _section(page, "untouched", _left(plan, outcomes))
    _section(page, "unknown", [f"{outcome.rule}: {gap.fact}: {gap.reason}" for outcome in outcomes for gap in outcome.unknown])
    page.line()
    page.verbatim("command", neutral(command_line(plan), MAX_COMMAND), "command")
    return str(page)


def _program(launch: Launch) -> str:
    torch = f" with torch {launch.torch_version}" if launch.torch_version else " without torch" if launch.torch is False else ""
    runtime = f" and {launch.openmp_runtime}" if launch.openmp_runtime else ""
    what = launch.interpreter or launch.program
    rank = f", rank {launch.rank} of {launch.ranks or '?'} ({launch.rank_source})" if launch.rank_source else ""
    return neutral(f"{launch.kind}: {what}{torch}{runtime}{rank}")


def _machine(launch: Launch) -> str:
    parts = [
        f"CPUs {launch.allowed} allowed" if launch.allowed else "allowed CPUs unknown",
        f"{count(launch.cores, 'core')} to compute on" if launch.cores else "",
        "CPU quota unknown" if launch.quota is None else f"a quota of {launch.quota:g} CPUs" if launch.quota else "no CPU quota",
        f"{count(launch.other_runnable, 'other runnable task')}" if launch.other_runnable is not None else "",
        f"GPUs {', '.join(launch.gpus)}" if launch.gpus else "",
    ]
    return ", ".join(part for part in parts if part)


def _grouped(changes: Sequence[ProposedChange]) -> Iterator[tuple[str, list[ProposedChange]]]:
    rules = dict.fromkeys(change.rule for change in changes)
    for rule in rules:
        yield rule, [change for change in changes if change.rule == rule]


def _change(change: ProposedChange) -> str:
    if change.kind == "memory":
        return f"{change.name} memory of node {change.value}"
    return (
        f"unset {change.name}"
        if change.kind == "unset"
        else neutral(f"{change.name}{' ' if change.kind == 'cpus' else '='}{change.value}", 200)
    )


def _because(page: Page, rule: str, outcome: Finding | None) -> None:
    if outcome is None:
        page.labelled("why", "you asked for it" if rule == ASKED else f"the {rule} says so")
        return
    page.labelled("rule", outcome.rule)
    page.labelled("why", outcome.message)
    for number, fact in enumerate(outcome.evidence[:MAX_FACTS]):
        page.labelled("" if number else "facts", _fact(fact))


def _fact(fact: Evidence) -> str:
    return neutral(f"{fact.fact} = {_value(fact.value)}{f'  ({fact.source})' if fact.source else ''}", 300)


def _value(value: object) -> str:
    if value is None:
        return "unknown"
    return {True: "yes", False: "no", "": "(empty)"}.get(value, str(value)) if isinstance(value, bool | str) else str(value)


def _kept(page: Page, plan: LaunchPlan) -> None:
    lines = []
    for kept in plan.kept:
        what = f"{kept.name}={kept.value}" if kept.name.isupper() and kept.value else kept.value or kept.name
        lines.append(f"{what}: {kept.because} ({kept.rule} would have changed it)")
    _section(page, "kept", lines)


def _left(plan: LaunchPlan, outcomes: Sequence[Finding]) -> list[str]:
    guarded = [f"{outcome.rule}: {outcome.because}" for outcome in outcomes if outcome.state == "suppressed"]
    return [*plan.notes, *guarded] or (["nothing here would help"] if not plan.changes else [])


def _section(page: Page, title: str, lines: Sequence[str]) -> None:
    for number, text in enumerate(lines):
        if not number:
            page.line()
        page.labelled("" if number else title, neutral(text, 600))
