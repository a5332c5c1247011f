"""The articles' statements with their verdicts: one of them for a terminal, all of them as the table of docs/seeds.md."""

from __future__ import annotations

from collections.abc import Sequence

from sysperf.model.statement import Measured, Statement
from sysperf.model.text import neutral
from sysperf.model.trial import Trial
from sysperf.report.terminal import Ink, Page

UNMEASURED = "no rung of the reference trainer follows it, or none was measured so far: `sysperf bench trainer` measures those it has"


def text(statement: Statement, measured: Sequence[Measured], here: Sequence[tuple[str, Trial]], *, color: bool, width: int) -> str:
    """Return what a statement says, what is true of it, and what measuring it gave."""
    page = Page(Ink(color), width)
    page.paragraph(f"{statement.name}: {statement.says}", "strong")
    page.paragraph(statement.verdict)
    page.line()
    page.labelled("rules", statement.rules)
    for one in measured:
        page.labelled("measured", f"{one.sentence()}, on {one.machine}, torch {one.torch}, record {one.record}")
    for what, trial in here:
        page.labelled("here", neutral(f"{what}: {trial.gain().text}", 300))
    if not measured and not here:
        page.labelled("measured", UNMEASURED)
    return str(page)


def table(statements: Sequence[Statement], measured: Sequence[Measured]) -> str:
    """Return all statements as rows of Markdown."""
    rows = [f"| {one.name} | {one.says} | {one.today} | {one.rules} | {_cell(one, measured)} |" for one in statements]
    return "\n".join(["| statement | says | today | rules | measured |", "|---|---|---|---|---|", *rows, ""])


def _cell(statement: Statement, measured: Sequence[Measured]) -> str:
    """What each record says, with a link to it; the machines stand below the table."""
    return "<br>".join(f"[{one.sentence()}](../benchmarks/results/{one.record})" for one in of(statement, measured))


def of(statement: Statement, measured: Sequence[Measured]) -> list[Measured]:
    """Return what was measured of a statement."""
    return [one for one in measured if set(one.seeds) & set(statement.ids)]


def machines(measured: Sequence[Measured]) -> str:
    """Return where the records were made, a line each."""
    lines = dict.fromkeys(f"- `{one.record}`: {one.machine}, torch {one.torch}" for one in measured)
    return "\n".join([*lines, ""])
