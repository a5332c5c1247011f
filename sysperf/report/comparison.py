"""The result of `verify`: as text with a small plot of the runs, and as Markdown for a pull request."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sysperf.model.comparison import Arm, Comparison, TriedFix, Variant
from sysperf.model.text import neutral
from sysperf.report.terminal import Ink, Page, clip, pad, table

BARS = " ▁▂▃▄▅▆▇█"
MAX_PLOT_COLUMNS = 48
MIN_FAULTS, FAULTS_RATIO = 10_000, 1.5
"""Page faults of a run that are worth a line, and how many times as many one variant has."""
STYLE = {"faster": "good", "slower": "error", "same": "plain", "unclear": "unknown"}


def verdict(found: Comparison) -> str:
    """Return the verdict in one sentence."""
    a, b = neutral(found.a.name, 60), neutral(found.b.name, 60)
    if found.ranks and found.ratio is not None and found.verdict != "unclear":
        few, many = found.ranks
        return f"{many} ranks work at {found.ratio * 100:.1f} % of the efficiency of {few}: {found.ratio * many / few:.2f} times the steps"
    if found.verdict in ("faster", "slower"):
        by = f"{abs(found.ratio - 1) * 100:.1f} % " if found.ratio is not None and found.is_certain() else ""
        return f"{b} is {by}{found.verdict} than {a}{'' if by else ', by little: the further pairs do not show how much'}"
    if found.verdict == "same":
        return f"{b} and {a} are equally fast, within {found.margin * 100:g} %"
    return f"unclear whether {b} is faster than {a}"


def basis(found: Comparison) -> str:
    """Return interval, level and pairs: what the verdict rests on."""
    parts = [f"{interval(found)} at {found.confidence * 100:.4g} %"] if found.ratio is not None else []
    parts.append(f"{found.metric.name}, {found.pairs} pair{'' if found.pairs == 1 else 's'}")
    if found.fresh_pairs:
        parts.append(f"the interval from {found.fresh_pairs} further pairs")
    if found.dropped_pairs:
        parts.append(f"{found.dropped_pairs} disturbed pair{'' if found.dropped_pairs == 1 else 's'} left out")
    return "; ".join(parts)


def remarks(found: Comparison) -> list[str]:
    """Return what else the reader should know: page faults where they differ, and what the noise guard could not see."""
    a, b = found.page_faults_a, found.page_faults_b
    lines = []
    if a is not None and b is not None and max(a, b) >= MIN_FAULTS and max(a, b) > FAULTS_RATIO * min(a, b):
        lines.append(f"minor page faults of a run: {a:,.0f} with {neutral(found.a.name, 60)}, {b:,.0f} with {neutral(found.b.name, 60)}")
    lines += [neutral(note, 500) for note in found.notes]
    if found.unwatched:
        lines.append(f"not watched: {neutral('; '.join(found.unwatched), 1_000)}")
    return lines


def interval(found: Comparison) -> str:
    """Return ``+3.1 to +5.3 %``."""
    return f"{((found.low or 1) - 1) * 100:+.1f} to {((found.high or 1) - 1) * 100:+.1f} %"


def text(found: Comparison, *, color: bool = False, width: int = 100) -> str:
    """Return the result for a terminal."""
    page = Page(Ink(color), width)
    page.line(page.ink(STYLE[found.verdict], verdict(found)))
    page.paragraph(basis(found), "dim")
    if found.reason:
        page.paragraph(found.reason, "unknown" if found.verdict == "unclear" else "plain")
    for line in remarks(found):
        page.paragraph(line, "dim")
    page.line()
    values = counting(found)
    both = [*values["a"], *values["b"]]
    columns = max(10, min(MAX_PLOT_COLUMNS, width - 44))
    for arm, variant, middle in arms(found):
        shown = f"{middle:.4g} {found.metric.unit}" if middle is not None else "no run"
        page.line(f"{pad(clip(neutral(variant.name), 16), 16)}  {histogram(values[arm], both, columns)}  median {shown}")
    if len(both) > 1:
        low, high = f"{min(both):.4g}", f"{max(both):.4g} {found.metric.unit}"
        page.line(f"{' ' * 18}{page.ink('dim', low + ' ' * max(1, columns - len(low) - len(high)) + high)}")
    page.line()
    for variant in (found.a, found.b):
        page.line(f"{pad(clip(neutral(variant.name), 16), 16)}  {page.ink('command', neutral(shlex.join(variant.argv), 2_000))}")
    return str(page)


def tried(found: Sequence[TriedFix], *, color: bool = False, width: int = 100) -> str:
    """Return what each fix was promised to gain and what it gave here."""
    page = Page(Ink(color), width)
    rows = [
        (", ".join(fix.rules) if len(fix.rules) == 1 else f"all {len(fix.rules)} together", gave(fix), neutral(fix.promised, 300))
        for fix in found
    ]
    for line in table(("fix", "gave here", "promised"), rows, page.ink, width):
        page.line(line)
    page.line()
    page.paragraph("A gain is called certain only where it is with all fixes taken together (Holm, 5 %).", "dim")
    return str(page)


def tried_markdown(found: Sequence[TriedFix]) -> str:
    """Return the same for a pull request."""
    rows = "".join(f"| {cell(', '.join(fix.rules))} | {cell(gave(fix))} | {cell(fix.promised)} |\n" for fix in found)
    return f"| fix | gave here | promised |\n|---|---|---|\n{rows}"


def gave(fix: TriedFix) -> str:
    """Return what a fix gave: its gain with the interval, or why there is none."""
    if fix.comparison is None:
        return f"not tried: {neutral(fix.problem, 200)}"
    if fix.comparison.verdict == "same":
        return f"nothing ({interval(fix.comparison)})"
    if fix.comparison.ratio is None or fix.comparison.verdict == "unclear":
        return "unclear" + (f" ({interval(fix.comparison)})" if fix.comparison.ratio is not None else "")
    doubt = "" if fix.certain else "; not certain among all"
    return f"{(fix.comparison.ratio - 1) * 100:+.1f} % ({interval(fix.comparison)}{doubt})"


def counting(found: Comparison) -> dict[Arm, list[float]]:
    """Return the values of the runs that count, by arm."""
    disturbed = {run.pair for run in found.runs if run.disturbed}
    whole = {run.pair for run in found.runs if run.arm == "a"} & {run.pair for run in found.runs if run.arm == "b"}

    def of(arm: str) -> list[float]:
        return [run.value for run in found.runs if run.arm == arm and run.pair in whole and run.pair and run.pair not in disturbed]

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


def markdown(found: Comparison) -> str:
    """Return the result for a pull request."""
    values = counting(found)
    rows = "".join(
        f"| {cell(variant.name)} | {number(middle)} {found.metric.unit} | {len(values[arm])} | `{cell(shlex.join(variant.argv))}` |\n"
        for arm, variant, middle in arms(found)
    )
    reason = "".join(f"\n{cell(line)}\n" for line in (found.reason, *remarks(found)) if line)
    return f"**{cell(verdict(found))}** ({cell(basis(found))})\n{reason}\n| variant | median | runs | command |\n|---|---|---|---|\n{rows}"


def arms(found: Comparison) -> list[tuple[Arm, Variant, float | None]]:
    return [("a", found.a, found.median_a), ("b", found.b, found.median_b)]


def number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def cell(value: str) -> str:
    return neutral(value, 2_000).replace("|", "\\|").replace("`", "'")
