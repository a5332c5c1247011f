"""Results of measurements as bars: the ratio of speeds, its interval, and where no change would be."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby

from sysperf.model.trial import Trial
from sysperf.tui.widgets.line import BLANK, Line, Lines, Span, fitted, line, padded, paragraph, span
from sysperf.verify.trials import Trials

NOTHING = (
    "Nothing was measured on this machine yet. `sysperf verify -- python train.py` runs a program plain and wrapped, in turn, until it is "
    "clear which is faster, and its result stands here. "
    "Until then, gains stand as unmeasured beside their findings, and no figure of others is shown as one of this machine."
)
STALE = "kernel, CPUs or driver changed since: measure it again"
ELSEWHERE = "Measurements of that machine are kept there, and cannot be shown here."
NAMES = {"ladder": "The trainer's ladder", "verify": "Verified", "tune": "Tuned"}
STYLES = {"faster": "good", "slower": "error", "same": "dim", "unclear": "unknown"}
MIN_REACH, MAX_REACH = 0.02, 1.0
"""The bars reach at least so far to both sides of 1: what is smaller looks small. At most so far, too: what is longer ends in ▸."""
MAX_NAME_WIDTH, NARROW, WIDE = 34, 15, 61
FIGURES = 26
PAIRS_FROM = 100


def ordered(results: Sequence[Trial]) -> list[Trial]:
    """The rungs of the latest climb of each workload from the ground up, then the rest, the newest first."""
    latest = {(trial.metric, trial.rung): trial for trial in results if trial.experiment == "ladder"}  # later ones win
    rest = [trial for kind in ("verify", "tune") for trial in sorted(results, key=lambda trial: -trial.at) if trial.experiment == kind]
    return [*(latest[rung] for rung in sorted(latest)), *rest]


def draw(trials: Trials | None, width: int, *, here: bool = True) -> Lines:
    """A bar each, all on one scale: equal bars are equal gains. A line counts what could not be read."""
    if trials is None:
        return [line(span("reading …", "dim"))] if here else paragraph(ELSEWHERE, width, "unknown")
    results = ordered(trials.results)
    out: Lines = [] if results else paragraph(NOTHING, width)
    name = min(MAX_NAME_WIDTH, max(12, width // 4))
    room = min(WIDE, max(NARROW, width - name - FIGURES - (22 if width >= PAIRS_FROM else 13))) // 2 * 2 + 1
    reach = min(MAX_REACH, max([MIN_REACH, *(max(abs(trial.low - 1), abs(trial.high - 1)) for trial in results)]))
    for kind, some in groupby(results, key=lambda trial: trial.experiment):
        group = [*some]
        out += [*([BLANK] if out else []), _head(kind, reach, name, room, width)]
        out += [_row(trial, reach, name, room, width, stale=trials.is_stale(trial)) for trial in group]
    return [*out, *_skipped(trials, width)]


def _head(kind: str, reach: float, name: int, room: int, width: int) -> Line:
    scale = padded(f"{-reach:+.1%}", room // 2) + "1" + padded(f"{reach:+.1%}", room // 2, right=True)
    return fitted(line(Span(padded(NAMES[kind], name), "title"), Span(" "), span(scale, "dim")), width)


def _row(trial: Trial, reach: float, name: int, room: int, width: int, *, stale: bool) -> Line:
    figures = f"{(trial.ratio - 1) * 100:+.1f} % ({(trial.low - 1) * 100:+.1f} … {(trial.high - 1) * 100:+.1f})"
    parts = (
        Span(padded(trial.what, name), "strong"), Span(" "), *_bar(trial, reach, room), Span(" "), Span(padded(figures, FIGURES)),
        span(padded("stale" if stale else trial.verdict, 8), "unknown" if stale else STYLES[trial.verdict]),
        span(f"{trial.pairs} pairs" if width >= PAIRS_FROM else "", "dim"),
    )  # fmt: skip
    return fitted(Line(parts, (trial.experiment, trial.rung, trial.at, trial.what)), width)


def _bar(trial: Trial, reach: float, room: int) -> list[Span]:
    """``──────│━━●━━─``: the interval, the ratio, and no change."""

    def column(ratio: float) -> int:
        return min(room - 1, max(0, round((ratio - 1 + reach) / (2 * reach) * (room - 1))))

    low, point, high, none = column(trial.low), column(trial.ratio), column(trial.high), room // 2
    style = STYLES[trial.verdict]
    marks = {**dict.fromkeys(range(low, high + 1), ("━", style)), none: ("│", "plain"), point: ("●", style)}
    if trial.high - 1 > reach:
        marks[room - 1] = ("▸", style)
    cells = [marks.get(number, ("─", "dim")) for number in range(room)]
    out: list[Span] = []
    for char, ink in cells:
        if out and out[-1].style == ink:
            out[-1] = Span(out[-1].text + char, ink)
        else:
            out.append(Span(char, ink))
    return out


def _skipped(trials: Trials, width: int) -> Lines:
    out: Lines = []
    if trials.skipped:
        many = "1 line is no result" if trials.skipped == 1 else f"{trials.skipped} lines are no results"
        out += paragraph(f"{many} that this version can read.", width, "unknown")
    return [*out, *(paragraph(f"! {trials.problem}", width, "warning") if trials.problem else [])]


def detail(trial: Trial | None, width: int, *, stale: bool = False) -> Lines:
    """Everything that is known of one; a stale one is from before a change of the machine."""
    if trial is None:
        return []
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(trial.at))
    rows = (
        ("tried", trial.what),
        ("found", trial.gain().text),
        ("without it", f"{trial.baseline:.6g} {trial.unit}"),
        ("measured", f"{when}, by {f'rung {trial.rung} of the ladder' if trial.rung else trial.experiment}"),
        ("rule", trial.rule),
        ("machine", trial.fingerprint),
        ("stale", STALE if stale else ""),
    )
    out: Lines = []
    for label, text in rows:
        for number, part in enumerate(paragraph(text, width - 12) if text else []):
            out.append(Line((Span(padded("" if number else label, 12), "dim"), *part.spans)))
    return out


def of_rule(trials: Trials | None, rule: str) -> Trial | None:
    """The latest result of trying what a rule advises, on the machine as it is now."""
    if trials is None:
        return None
    return next((trial for trial in reversed(trials.by_weight()) if trial.rule == rule and not trials.is_stale(trial)), None)
