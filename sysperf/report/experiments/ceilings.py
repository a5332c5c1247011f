"""The ceilings of a machine, alone or beside those of another: as text, as Markdown, as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from sysperf.model.ceiling import Ceiling, Ceilings, Compared
from sysperf.model.text import neutral
from sysperf.report import frame
from sysperf.report.experiments.comparison import cell, markdown_tables, percent
from sysperf.report.terminal import Ink, Page, table

TITLES = {
    "memory": "Memory bandwidth",
    "matmul": "Matrix products on the CPUs",
    "gpu": "GPUs",
    "storage": "Storage, as a loader reads it",
    "decode": "Decoding",
    "start": "Starting programs",
    "all-reduce": "All-reduce",
}
HEAD = ("what", "median", "runs", "should give at most")
COMPARED = ("what", "before", "now", "difference")


def text(result: Ceilings, compared: Sequence[Compared] = (), *, color: bool = False, width: int = 100) -> str:
    """Return the figures for a terminal."""
    page = Page(Ink(color), width)
    page.line(page.ink("strong", headline(result)))
    for title, head, rows in _tables(result, compared):
        page.line()
        page.line(page.ink("strong", title))
        for line in table(head, rows, page.ink, page.width):
            page.line(line)
    for remark in remarks(result):
        page.line()
        page.paragraph(remark, "dim")
    return str(page)


def markdown(result: Ceilings, compared: Sequence[Compared] = ()) -> str:
    """Return the same for a pull request."""
    lines = [f"**{cell(headline(result))}**", "", *markdown_tables(_tables(result, compared))]
    return "\n".join([*lines, *(f"{cell(remark)}\n" for remark in remarks(result))])


def page(result: Ceilings, compared: Sequence[Compared] = ()) -> str:
    """Return the same as one self-contained page."""
    lines = (
        f"<header><h1>{frame.text(headline(result))}</h1></header><main>",
        *frame.sections(_tables(result, compared)),
        *("</main><footer>", *frame.paragraphs(*remarks(result)), "</footer>"),
    )
    return frame.framed(f"sysperf: {headline(result)}", lines)


def headline(result: Ceilings) -> str:
    """Return what this is in one line."""
    measured = sum(bool(ceiling.values) for ceiling in result.ceilings)
    ended = ", interrupted" if result.interrupted else ""
    machine = result.machine.get("cpu.model_name", "")
    return neutral(f"{measured} ceilings of this machine{f' ({machine})' if machine else ''}, {result.took_s:.0f} s{ended}", 300)


def remarks(result: Ceilings) -> list[str]:
    """Return what stands below: what was not measured, what decides the figures."""
    out = [neutral(note, 500) for note in result.notes]
    problems: dict[str, list[str]] = {}
    for ceiling in result.ceilings:
        if ceiling.problem:
            problems.setdefault(ceiling.problem, []).append(ceiling.what)
    out += [neutral(f"not measured: {', '.join(names)}: {problem}", 600) for problem, names in problems.items()]
    unknown: dict[str, list[str]] = {}
    for ceiling in result.ceilings:
        if ceiling.basis and ceiling.expected is None and ceiling.values:
            unknown.setdefault(ceiling.basis, []).append(ceiling.what)
    out += [neutral(f"no figure of the hardware for {', '.join(names)}: {why}", 600) for why, names in unknown.items()]
    by = "; ".join(f"{name} {version}" for name, version in result.about.items())
    how = f"{result.runs} short runs of each in random order, their median and from the lowest to the highest"
    return [*out, f"{how}; by {neutral(by, 300)}" if by else how]


def _tables(result: Ceilings, compared: Sequence[Compared]) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    if compared:
        yield "Beside the other record", COMPARED, [_difference(one) for one in compared]
        return
    for group, some in groupby(result.ceilings, key=lambda ceiling: ceiling.group):
        yield TITLES[group], HEAD, [_figure(ceiling) for ceiling in some]


def _figure(ceiling: Ceiling) -> tuple[str, ...]:
    what = neutral(ceiling.what, 80)
    if ceiling.middle is None:
        return what, "unknown", "", ""
    remark = f"; {neutral(ceiling.remark, 80)}" if ceiling.remark else ""
    low, high = (number(value) for value in (min(ceiling.values), max(ceiling.values)))
    ends = low if low == high else f"{low} to {high}"
    hardware = f"{number(ceiling.expected)}: {ceiling.share:.0%} of it; {ceiling.basis}" if ceiling.expected and ceiling.share else ""
    return what, f"{number(ceiling.middle)} {ceiling.unit}", ends, neutral(f"{hardware}{remark}".removeprefix("; "), 300)


def number(value: float | None) -> str:
    """Return a figure with three digits."""
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _difference(one: Compared) -> tuple[str, ...]:
    before, now = (f"{number(value)} {one.unit}" for value in (one.before, one.now))
    if one.ratio is None or one.low is None or one.high is None:
        return one.what, before, now, "too few runs"
    certain = one.low > 1 or one.high < 1
    word = "" if certain else "none that is certain "
    return one.what, before, now, f"{percent(one.ratio)} % ({word}{percent(one.low)} to {percent(one.high)})"
