"""The result of `verify`: as text with a small plot of the runs, and as Markdown for a pull request."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from sysperf.model.comparison import Arm, Comparison, TriedFix, Variant
from sysperf.model.text import neutral
from sysperf.report.terminal import Ink, Page, clip, pad, table

BARS = " ▁▂▃▄▅▆▇█"
MAX_PLOT_COLUMNS = 48
MIN_FAULTS, FAULTS_RATIO = 10_000, 1.5
"""Page faults of a run that are worth a line, and how many times as many one variant has."""
MAX_SHOWN_RATIO = 100.0
MAX_SHOWN_WIDTH = 10.0
"""Of an interval whose ends are more than this apart, the further end is no information."""
UNKNOWN = "not known yet"
STYLE = {"faster": "good", "slower": "error", "same": "plain", "unclear": "unknown"}


def verdict(comparison: Comparison) -> str:
    """Return the verdict in one sentence."""
    a, b = neutral(comparison.a.name, 60), neutral(comparison.b.name, 60)
    if comparison.ranks and comparison.ratio is not None and comparison.verdict != "unclear":
        (few, many), ratio = comparison.ranks, comparison.ratio
        return f"{many} ranks work at {ratio * 100:.1f} % of the efficiency of {few}: {ratio * many / few:.2f} times the steps"
    if comparison.verdict in ("faster", "slower"):
        sure = comparison.is_certain() and not _is_wide(comparison.low or 1, comparison.high or 1)
        by = f"{abs(comparison.ratio - 1) * 100:.1f} % " if comparison.ratio is not None and sure else ""
        return f"{b} is {by}{comparison.verdict} than {a}{'' if by else '; by how much is not known yet'}"
    if comparison.verdict == "same":
        return f"{b} and {a} are equally fast, within {comparison.margin * 100:g} %"
    return f"unclear whether {b} {'are' if comparison.ranks and comparison.ranks[1] > 1 else 'is'} faster than {a}"


def basis(comparison: Comparison) -> str:
    """Return interval, level and pairs: what the verdict rests on."""
    known = interval(comparison)
    parts = [known if known == UNKNOWN else f"{known} at {comparison.confidence * 100:.4g} %"] if comparison.ratio is not None else []
    parts.append(f"{comparison.metric.name}, {comparison.pairs} pair{'' if comparison.pairs == 1 else 's'}")
    if comparison.fresh_pairs:
        parts.append(f"the interval from {comparison.fresh_pairs} further pairs")
    if comparison.dropped_pairs:
        parts.append(f"{comparison.dropped_pairs} disturbed pair{'' if comparison.dropped_pairs == 1 else 's'} left out")
    return "; ".join(parts)


def remarks(comparison: Comparison) -> list[str]:
    """Return what else the reader should know: what would tell more, page faults where they differ, what the noise guard could not see."""
    a, b = comparison.page_faults_a, comparison.page_faults_b
    lines = []
    if comparison.is_certain() and _is_wide(comparison.low or 1, comparison.high or 1):
        lines.append("longer runs, more --minutes or a calmer machine would tell by how much")
    if a is not None and b is not None and max(a, b) >= MIN_FAULTS and max(a, b) > FAULTS_RATIO * min(a, b):
        lines.append(
            f"minor page faults of a run: {a:,.0f} with {neutral(comparison.a.name, 60)}, {b:,.0f} with {neutral(comparison.b.name, 60)}"
        )
    lines += [neutral(note, 500) for note in comparison.notes]
    if comparison.unwatched:
        lines.append(f"not watched: {neutral('; '.join(comparison.unwatched), 1_000)}")
    return lines


def interval(comparison: Comparison) -> str:
    """Return ``+3.1 to +5.3 %``; ``not known yet`` of one that holds nearly any ratio."""
    return between(comparison.low or 1, comparison.high or 1)


def between(low: float, high: float) -> str:
    """Return the bounds of a ratio in percent; of a wide one that beside no change, or that nothing is known yet."""
    if not _is_wide(low, high):
        return f"{percent(low)} to {percent(high)} %"
    return f"at least {percent(low)} %" if low > 1 else f"at most {percent(high)} %" if high < 1 else UNKNOWN


def _is_wide(low: float, high: float) -> bool:
    return high > MAX_SHOWN_WIDTH * low


def percent(ratio: float) -> str:
    """Return ``+3.1``; of a bound that says nothing, what it is beyond."""
    if ratio > MAX_SHOWN_RATIO:
        return f"above +{(MAX_SHOWN_RATIO - 1) * 100:.0f}"
    return f"below {(1 / MAX_SHOWN_RATIO - 1) * 100:.0f}" if ratio < 1 / MAX_SHOWN_RATIO else f"{(ratio - 1) * 100:+.1f}"


def text(comparison: Comparison, *, color: bool = False, width: int = 100) -> str:
    """Return the result for a terminal."""
    page = Page(Ink(color), width)
    page.line(page.ink(STYLE[comparison.verdict], verdict(comparison)))
    page.paragraph(basis(comparison), "dim")
    if comparison.reason:
        page.paragraph(comparison.reason, "unknown" if comparison.verdict == "unclear" else "plain")
    for line in remarks(comparison):
        page.paragraph(line, "dim")
    values = counting(comparison)
    both = [*values["a"], *values["b"]]
    if both:
        page.line()
    columns = max(10, min(MAX_PLOT_COLUMNS, width - 44))
    for arm, variant, middle in arms(comparison) if both else ():
        middle_text = f"{middle:.4g} {comparison.metric.unit}" if middle is not None else "no run"
        page.line(f"{pad(clip(neutral(variant.name), 16), 16)}  {histogram(values[arm], both, columns)}  median {middle_text}")
    if len(both) > 1:
        low, high = f"{min(both):.4g}", f"{max(both):.4g} {comparison.metric.unit}"
        page.line(f"{' ' * 18}{page.ink('dim', low + ' ' * max(1, columns - len(low) - len(high)) + high)}")
    page.line()
    for variant in (comparison.a, comparison.b):
        page.line(f"{pad(clip(neutral(variant.name), 16), 16)}  {page.ink('command', neutral(shlex.join(variant.argv), 2_000))}")
    return str(page)


def tried(fixes: Sequence[TriedFix], *, color: bool = False, width: int = 100) -> str:
    """Return what each fix was promised to gain and what it gave here."""
    page = Page(Ink(color), width)
    rows = [(names_of(fix), gave(fix), neutral(fix.promised, 300)) for fix in fixes]
    for line in table(("fix", "gave here", "promised"), rows, page.ink, width):
        page.line(line)
    page.line()
    for reason, names in reasons(fixes).items():
        page.paragraph(f"unclear of {', '.join(names)}: {reason}", "unknown")
    page.paragraph("A gain is called certain only where it is with all fixes taken together (Holm, 5 %).", "dim")
    return str(page)


def tried_markdown(fixes: Sequence[TriedFix]) -> str:
    """Return the same for a pull request."""
    rows = "".join(f"| {cell(', '.join(fix.rules))} | {cell(gave(fix))} | {cell(fix.promised)} |\n" for fix in fixes)
    unclear = "".join(f"\nunclear of {cell(', '.join(names))}: {cell(reason)}\n" for reason, names in reasons(fixes).items())
    return f"| fix | gave here | promised |\n|---|---|---|\n{rows}{unclear}"


def names_of(fix: TriedFix) -> str:
    """Return the fix's rule, or how many were tried together."""
    return fix.rules[0] if len(fix.rules) == 1 else f"all {len(fix.rules)} together"


def reasons(fixes: Sequence[TriedFix]) -> dict[str, list[str]]:
    """Return why fixes are unclear, each reason with those that have it."""
    names: dict[str, list[str]] = {}
    for fix in fixes:
        if fix.comparison and fix.comparison.verdict == "unclear" and fix.comparison.reason:
            names.setdefault(neutral(fix.comparison.reason, 200), []).append(names_of(fix))
    return names


def gave(fix: TriedFix) -> str:
    """Return what a fix gave: its gain with the interval, or why there is none."""
    if fix.comparison is None:
        return f"not tried: {neutral(fix.problem, 200)}"
    if fix.comparison.verdict == "same":
        return f"nothing ({interval(fix.comparison)})"
    if fix.comparison.ratio is None or fix.comparison.verdict == "unclear":
        known = f" ({interval(fix.comparison)})" if fix.comparison.ratio is not None else ""
        pairs = f"{fix.comparison.pairs} pair{'' if fix.comparison.pairs == 1 else 's'}"
        return f"unclear{known}, {pairs}"
    doubt = "" if fix.certain else "; not certain among all"
    return f"{(fix.comparison.ratio - 1) * 100:+.1f} % ({interval(fix.comparison)}{doubt})"


def counting(comparison: Comparison) -> dict[Arm, list[float]]:
    """Return the values of the runs that count, by arm."""
    disturbed = {run.pair for run in comparison.runs if run.disturbed}
    whole = {run.pair for run in comparison.runs if run.arm == "a"} & {run.pair for run in comparison.runs if run.arm == "b"}

    def of(arm: str) -> list[float]:
        return [run.value for run in comparison.runs if run.arm == arm and run.pair in whole and run.pair and run.pair not in disturbed]

    return {"a": of("a"), "b": of("b")}


def histogram(values: Sequence[float], among: Sequence[float], columns: int) -> str:
    """Return how often values fall into each column of the range of `among`, as bars of eight heights."""
    if not among:
        return " " * columns
    low, reach = min(among), (max(among) - min(among)) or 1.0
    counts = [0] * columns
    for value in values:
        counts[min(columns - 1, int((value - low) / reach * columns))] += 1
    top = max(counts) or 1
    return "".join(BARS[-(-count * 8 // top)] for count in counts)


def markdown(comparison: Comparison) -> str:
    """Return the result for a pull request."""
    values = counting(comparison)
    rows = "".join(
        f"| {cell(variant.name)} | {number(middle)} {comparison.metric.unit} | {len(values[arm])} | `{cell(shlex.join(variant.argv))}` |\n"
        for arm, variant, middle in arms(comparison)
    )
    reason = "".join(f"\n{cell(line)}\n" for line in (comparison.reason, *remarks(comparison)) if line)
    head = f"**{cell(verdict(comparison))}** ({cell(basis(comparison))})\n{reason}"
    return f"{head}\n| variant | median | runs | command |\n|---|---|---|---|\n{rows}"


def arms(comparison: Comparison) -> list[tuple[Arm, Variant, float | None]]:
    return [("a", comparison.a, comparison.median_a), ("b", comparison.b, comparison.median_b)]


def number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def markdown_tables(tables: Iterable[tuple[str, Sequence[str], Sequence[Sequence[str]]]]) -> Iterator[str]:
    """Tables with a title, a head and rows each, as lines of Markdown."""
    for title, head, rows in tables:
        lines = (f"| {' | '.join(map(cell, cells))} |" for cells in rows)
        yield from (f"### {title}", "", f"| {' | '.join(map(cell, head))} |", f"|{'---|' * len(head)}", *lines, "")


def cell(value: str) -> str:
    return neutral(value, 2_000).replace("|", "\\|").replace("`", "'")
