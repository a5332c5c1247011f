"""Results of `verify` as self-contained pages: the interval and each pair of a comparison, tables of several."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sysperf.model.comparison import Comparison, TriedFix
from sysperf.model.text import neutral
from sysperf.report.experiments.comparison import arms, basis, gave, interval, number, percent, reasons, remarks, verdict
from sysperf.report.experiments.intervals import Row, picture
from sysperf.report.frame import behind, command, framed, paragraphs, table, text


def page(comparison: Comparison) -> str:
    """Return a comparison as a page."""
    return framed(verdict(comparison), [f"<h1>{text(verdict(comparison))}</h1>", _body(comparison)])


def tried_page(fixes: Sequence[TriedFix]) -> str:
    """Return what each fix was promised to gain and what it gave here."""
    rows = [(", ".join(fix.rules), gave(fix), fix.promised) for fix in fixes]
    unclear = paragraphs(*(f"unclear of {', '.join(names)}: {reason}" for reason, names in reasons(fixes).items()))
    title = "What each fix was promised to gain, and what it gave here"
    return framed(title, [f"<h1>{title}</h1>", table(("fix", "gave here", "promised"), rows), *unclear])


def _body(comparison: Comparison) -> str:
    """Return what stands below the verdict: what it rests on, the picture with its runs, the commands. HTML."""
    unit = comparison.metric.unit
    variants = "".join(
        f"<h2>{text(variant.name)} <span>median {text(number(middle))} {text(unit)}</span></h2>{command(shlex.join(variant.argv))}"
        for _, variant, middle in arms(comparison)
    )
    return "".join((*paragraphs(basis(comparison), comparison.reason, *remarks(comparison)), _picture(comparison), variants))


def _picture(comparison: Comparison) -> str:
    """The interval beside the line of no change, each pair as a dot, and the runs as a table behind them."""
    pairs = _pairs(comparison)
    if not pairs:
        return ""
    a, b = comparison.a.name, comparison.b.name
    dots = [(ratio, f"pair {pair}: {percent(ratio)} %{f', {why}' if why else ''}", not why) for pair, _, _, ratio, why in pairs]
    says = f"{percent(comparison.ratio)} % ({interval(comparison)})" if comparison.ratio is not None else "not known yet"
    left_out = sum(not dot[2] for dot in dots)
    rows = [
        Row(f"{b} against {a}", comparison.low, comparison.ratio, comparison.high, says),
        Row("each pair", says=f"{left_out} disturbed, not counted" if left_out else "", dots=dots),
    ]
    unit = comparison.metric.unit
    figures = [(str(pair), f"{of_a:.6g}", f"{of_b:.6g}", f"{percent(ratio)} %", why) for pair, of_a, of_b, ratio, why in pairs]
    head = ("pair", f"{neutral(a, 40)}, {unit}", f"{neutral(b, 40)}, {unit}", "speed", "disturbed by")
    return behind(
        f"The runs as a table ({len(pairs)} pairs)", picture(f"{verdict(comparison)}: {basis(comparison)}", rows), table(head, figures)
    )


def _pairs(comparison: Comparison) -> list[tuple[int, float, float, float, str]]:
    """(number, A, B, speed of B over A's, what disturbed it) of each whole pair but the first, which warms up."""
    runs = {(run.pair, run.arm): run for run in comparison.runs if run.pair and run.value > 0}
    out = []
    for pair in sorted({pair for pair, _ in runs}):
        first, second = runs.get((pair, "a")), runs.get((pair, "b"))
        if first is not None and second is not None:
            ratio = second.value / first.value if comparison.metric.higher_is_better else first.value / second.value
            out.append((pair, first.value, second.value, ratio, first.disturbed or second.disturbed))
    return out
