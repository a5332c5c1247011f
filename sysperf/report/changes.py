"""Changes for a person: what would change, what was changed, whether it still holds, what became of taking it back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sysperf.model.change import LIVE, Change, Plan, Skipped, Step, Transaction, Undone
from sysperf.model.knob import KNOBS
from sysperf.model.text import neutral
from sysperf.report.terminal import Ink, Page, wrap

if TYPE_CHECKING:
    from sysperf.fix.standing import Standing

SCHEMA = 2
"""Of the JSON about changes. 2: state `foreign` (was `kept`), `start_time` (was `born`), `superseded` (was `took_over`)."""
_MAX_TEXT = 300
_STATES = {
    "open": ("interrupted", "warning"),
    "applied": ("in force", "good"),
    "rolled-back": ("rolled back", "dim"),
    "undone": ("undone", "dim"),
    "partly-undone": ("partly undone", "warning"),
    "damaged": ("damaged", "warning"),
}
OVERDUE = "Nobody has taken it back yet: `sysperf undo --expired` does, and so does the next `sysperf apply`."
"""Where neither a process nor systemd was left to do it."""


def plan(planned: Plan, *, color: bool, width: int, done: bool = False) -> str:
    """What would change, as a diff, and what would not and why."""
    page = Page(Ink(color), width)
    if planned.changes:
        page.line(page.ink("strong", f"{'Changing' if done else 'Would change'} {count(planned.changes)}:"))
        page.line()
        for group in _grouped(planned.changes):
            _diff(page, group)
    _skipped(page, planned.skipped)
    return str(page)


def count(changes: Sequence[Change]) -> str:
    """How many settings, for people."""
    number = len({(change.knob, change.item) for change in changes})
    return f"{number} setting{'' if number == 1 else 's'}"


def _grouped(changes: Iterable[Change]) -> list[list[Change]]:
    """Return those of one knob with one value before are one line: a machine has as many frequency policies as CPUs."""
    groups: dict[tuple[str, str, str, str], list[Change]] = {}
    for change in changes:
        groups.setdefault((change.knob, change.item, change.before, change.after), []).append(change)
    return [*groups.values()]


def _diff(page: Page, group: Sequence[Change]) -> None:
    change = group[0]
    where = change.target if len(group) == 1 else f"{KNOBS[change.knob].path.replace('{item}', change.item)} ({len(group)} files)"
    page.line(f"  {page.ink('strong', neutral(where, _MAX_TEXT))}  {page.ink('dim', _what(change))}")
    for line in (change.shown_before or change.before).splitlines():
        page.line("  " + page.ink("error", f"- {neutral(line, _MAX_TEXT)}"))
    for line in change.after.splitlines():
        page.line("  " + page.ink("good", f"+ {neutral(line, _MAX_TEXT)}"))
    if change.knob in KNOBS and KNOBS[change.knob].note:
        page.paragraph(KNOBS[change.knob].note, "dim", indent="    ")
    page.line()


def _what(change: Change) -> str:
    return neutral(f"{change.label()}{f', for {change.rule}' if change.rule else ''}", _MAX_TEXT)


def _skipped(page: Page, skipped: Sequence[Skipped]) -> None:
    if not skipped:
        return
    page.line(page.ink("strong", "Left alone:"))
    page.line()
    for skip in skipped:
        name = f"{skip.setting.knob}{f' of {skip.setting.item}' if skip.setting.item else ''}"
        page.paragraph(f"{neutral(name, _MAX_TEXT)}: {neutral(skip.reason, _MAX_TEXT)}", "dim" if skip.already else "plain", indent="  ")
    page.line()


def outcome(transaction: Transaction, *, color: bool, width: int) -> str:
    """What became of a plan that was applied."""
    page = Page(Ink(color), width)
    if transaction.state != "applied":
        _rolled_back(page, transaction)
        return str(page)
    done = [step for step in transaction.steps if not step.change.knob.startswith("persist.")]
    page.paragraph(f"Transaction {transaction.number}: {count([step.change for step in done])} changed and read back.", "good")
    for path in transaction.persisted:
        page.paragraph(f"set again at every start by {neutral(path, _MAX_TEXT)}")
    page.paragraph(f"Next: `sysperf changes` shows whether it is still in force; `sysperf undo {transaction.number}` takes it back.")
    return str(page)


def _rolled_back(page: Page, transaction: Transaction) -> None:
    stuck = [step for step in transaction.steps if step.state in LIVE]
    for step in transaction.steps:
        if step.state == "refused":
            page.paragraph(f"{_target(step.change)}: refused: {neutral(step.reason, _MAX_TEXT)}", "error")
    page.paragraph(f"Transaction {transaction.number} was rolled back{', but:' if stuck else '; every value is as it was.'}")
    for step in stuck:
        page.paragraph(f"{_target(step.change)} could not be put back: {neutral(step.reason, _MAX_TEXT)}", "error", indent="  ")


def _target(change: Change) -> str:
    return neutral(change.target, _MAX_TEXT)


def transactions(listed: Sequence[tuple[Transaction, Sequence[Standing]]], left_s: dict[int, float], *, color: bool, width: int) -> str:
    """All transactions, the latest first; `left_s` has the seconds that are left of each lease."""
    page = Page(Ink(color), width)
    for transaction, standings in reversed(listed):
        left = left_s.get(transaction.number)
        text, style = state(transaction, left)
        ends = f", {duration(left)} left" if left and transaction.live else ""
        page.line(f"{page.ink('strong', str(transaction.number))}  {page.ink(style, text)}{ends}")
        if is_overdue(transaction, left):
            page.paragraph(OVERDUE, "warning", indent="   ")
        page.paragraph(_about(transaction), "dim", indent="   ")
        if transaction.problem:
            page.paragraph(neutral(transaction.problem, _MAX_TEXT), "warning", indent="   ")
        for step, standing in zip(transaction.steps, standings, strict=True):
            _step(page, step, standing)
        page.line()
    return str(page)


def state(transaction: Transaction, left_s: float | None) -> tuple[str, str]:
    """How a transaction stands, and the style of that; `left_s` are the seconds that are left of its lease."""
    return ("lease ended", "warning") if is_overdue(transaction, left_s) else _STATES[transaction.state]


def is_overdue(transaction: Transaction, left_s: float | None) -> bool:
    """Whether it has a lease that ended, and nobody took it back."""
    return left_s == 0 and transaction.live


def _about(transaction: Transaction) -> str:
    return " ".join(
        part
        for part in (
            neutral(transaction.taken_at, 60),
            transaction.by and f"by {neutral(transaction.by, 60)}",
            transaction.why and f"({neutral(transaction.why, 100)})",
        )
        if part
    )


def _step(page: Page, step: Step, standing: Standing) -> None:
    change = step.change
    if change.knob.startswith("persist."):
        text = f"{_target(change)} {'written' if step.state == 'applied' else 'removed' if step.state == 'undone' else step.state}"
    else:
        text = f"{_target(change)}: {neutral(change.shown_before or change.before, 80)} → {neutral(change.after, 80)}"
    verdict = {
        "holds": ("good", "holds"),
        "replaced": ("dim", f"{neutral(standing.now, 80)} has set it since"),
        "changed": ("warning", f"it is {neutral(standing.now, 80)} now: something else has set it"),
        "gone": ("dim", f"gone: {neutral(standing.now, 80)}"),
        "unknown": ("unknown", f"unknown: {neutral(standing.now, 80)}"),
        "over": ("dim", f"{step.state}{f': {neutral(step.reason, _MAX_TEXT)}' if step.reason else ''}"),
    }[standing.verdict]
    for number, line in enumerate(wrap(f"{text}{f', for {neutral(change.rule, 80)}' if change.rule else ''}", page.width - 5)):
        page.line(("   " if number == 0 else "     ") + line)
    page.paragraph(verdict[1], verdict[0], indent="     ")


def undone(steps: Sequence[Undone], *, color: bool, width: int) -> str:
    """What became of each step that was to be taken back."""
    page = Page(Ink(color), width)
    for undo in steps:
        change = undo.step.change
        before = f"back to {neutral(change.shown_before or change.before, 80)}" if change.before else "removed"
        style, text = {
            "undone": ("good", before),
            "gone": ("dim", "gone"),
            "foreign": ("warning", "left as it is"),
        }.get(undo.step.state, ("error", "not taken back"))
        page.paragraph(f"{_target(change)}: {text}{f': {neutral(undo.message, _MAX_TEXT)}' if undo.message else ''}", style)
    return str(page)


def duration(seconds: float) -> str:
    """A time span for people, in its two largest units."""
    whole = max(0, int(seconds))
    for size, name, smaller, small in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {name}{f' {rest} {small}' if rest else ''}"
    return f"{whole} s"
