"""Marks for a person: who has one, since when, and whether it still holds."""

from __future__ import annotations

from collections.abc import Sequence

from sysperf.model.mark import Marked
from sysperf.model.text import neutral
from sysperf.report.formats import as_json
from sysperf.report.terminal import Ink, Page
from sysperf.report.words import count

SCHEMA = 1
_VERDICTS = {
    "holds": ("plain", ""),
    "changed": ("warning", "somebody has changed it since, so it is theirs"),
    "lifted": ("dim", "it is not there any more: somebody, or an `unmark` that was interrupted, has taken it back"),
    "interrupted": ("warning", "it was interrupted: `sysperf undo --expired` takes it back"),
    "gone": ("dim", "the scheduler has this node no more"),
    "unknown": ("unknown", "what is there now is not known"),
}


def render(marked: Sequence[Marked], *, json: bool, color: bool, width: int) -> str:
    """All marks, by node."""
    if json:
        return as_json.dump({"schema": SCHEMA, "marks": marked})
    page = Page(Ink(color), width)
    page.line(page.ink("strong", count(len(marked), "mark") if marked else "No node has a mark of sysperf."))
    for each in marked:
        page.line()
        word = "drained" if each.how == "drain" else "comment"
        page.line(f"{page.ink('strong', neutral(each.node, 80))}  {word}, {neutral(each.state, 80)}, {_where(each)}")
        page.paragraph(neutral(each.text, 200), "plain", indent="  ")
        style, text = _VERDICTS[each.verdict]
        now = f": {neutral(each.now, 200)}" if each.now and each.verdict in ("changed", "unknown") else ""
        if text:
            page.paragraph(f"{text}{now}", style, indent="  ")
    return str(page)


def _where(each: Marked) -> str:
    return f"transaction {each.transaction} of {each.taken_at}" if each.transaction is not None else "set by sysperf elsewhere"
