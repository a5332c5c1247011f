"""What sysperf changed: a line each transaction, and one in full."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from sysperf.model import moment
from sysperf.model.change import Transaction
from sysperf.model.text import neutral
from sysperf.report import changes
from sysperf.tui.acting import PastChange
from sysperf.tui.widgets import ansi
from sysperf.tui.widgets.line import Line, Lines, Span, fitted, line, padded, paragraph, span

NONE = (
    "sysperf has changed nothing here. `a` on a finding, or `sysperf apply`, changes a setting: then it stands here with its values "
    "before and after, and `u` takes it back."
)


def draw(changes: Sequence[PastChange], width: int, did: Mapping[int, str] | None = None) -> Lines:
    """The newest first, with its values before and after; `did` says what moved since, of those that were made from here."""
    return (
        [_row(change, width, (did or {}).get(change.transaction.number, "")) for change in changes] if changes else paragraph(NONE, width)
    )


def _row(change: PastChange, width: int, did: str) -> Line:
    transaction = change.transaction
    state, style = changes.state(transaction, change.left_s)
    overwritten = "  somebody else has set it since" if any(standing.verdict == "changed" for standing in change.standings) else ""
    left = f"  {changes.duration(change.left_s)} left" if change.left_s and transaction.live else ""
    number = changes.count([step.change for step in transaction.steps])
    parts = (
        Span(padded(f"#{transaction.number}", 6), "strong"), Span(padded(state, 14), style),
        span(f"{_clock(transaction.taken_at)}  ", "dim"),
        span(_values(transaction)), span(f"  {did}" if did else "", "good"),
        span(left, "info"), span(overwritten, "warning"), span(f"  {neutral(transaction.why, 80)}  {number}", "dim"),
    )  # fmt: skip
    return fitted(line(*parts, key=(change.folder, transaction.number)), width)


def _values(transaction: Transaction) -> str:
    """``vm.swappiness 60 → 10``, of the first setting and how many more there are."""
    if not transaction.steps:
        return "nothing"
    first = transaction.steps[0].change
    more = f" and {len(transaction.steps) - 1} more" if len(transaction.steps) > 1 else ""
    return neutral(f"{first.label()} {first.shown_before or first.before} → {first.after}", 100) + more


def _clock(taken_at: str) -> str:
    """A time of the journal, which is UTC, as the clock on the wall says it."""
    at = moment.seconds(taken_at)
    return neutral(taken_at, 20) if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def detail(change: PastChange | None, width: int) -> Lines:
    """Each value before and after, for which finding, and whether it still holds."""
    if change is None:
        return []
    left = {change.transaction.number: change.left_s} if change.left_s is not None else {}
    text = changes.transactions([(change.transaction, change.standings)], left, color=True, width=width)
    return ansi.folded_lines(text, width)


def taken_back(transaction: Transaction, width: int) -> Lines:
    """What undoing it sets back: all of its steps, whichever of them was asked for."""
    out = [
        line(Span(f"Transaction {transaction.number} is taken back as a whole: "), span("values that somebody else has set since stay."))
    ]
    for step in transaction.steps:
        change = step.change
        out.append(line(Span("  "), span(f"{change.label()}: {change.after} → {change.shown_before or change.before}")))
    return [fitted(line, width) for line in out]


def elsewhere(transactions: Sequence[Transaction], width: int) -> Lines:
    """The changes of another machine, as its agent tells them."""
    out: Lines = []
    for transaction in transactions:
        state, style = changes.state(transaction, None)
        parts = (
            Span(padded(f"#{transaction.number}", 6), "strong"), Span(padded(state, 14), style),
            span(f"{transaction.taken_at}  ", "dim"), span(transaction.why),
        )  # fmt: skip
        out.append(line(*parts))
        for step in transaction.steps:
            out.append(line(Span(" " * 6), span(f"{step.change.target}: {step.change.before} → {step.change.after}", "dim")))
    return [fitted(row, width) for row in out] or paragraph(NONE, width)
