"""What costs speed, a row a rule: programs and GPUs with the same finding share one, and what costs most comes first."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from sysperf.model.finding import Finding, Remedy, by_weight
from sysperf.model.text import neutral
from sysperf.report import words
from sysperf.report.formats.as_text import MARKS
from sysperf.report.terminal import cells
from sysperf.tui.now import Now
from sysperf.tui.widgets.line import Line, Lines, Span, fitted, line, padded, span

WIDE = 100
FOLDED, UNFOLDED = "▸", "▾"
_BASES = {"measured": "measured", "replay": "predicted", "samples": "predicted"}
_ORDER = ("measured", "predicted", "elsewhere", "")
_FIGURE = re.compile(r"[-+−]?\d[\d.]*(?:\s?(?:to|…|-)\s?[-+−]?\d[\d.]*)?\s?%")
_NOUNS = {"process": "program", "gpu": "GPU"}


class Cause(NamedTuple):
    """The findings of one rule and severity."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        return self.findings[0]

    @property
    def key(self) -> str:
        """The key of its first finding."""
        return self.first.key

    @property
    def name(self) -> str:
        """What it is called while its findings come and go."""
        return f"{self.first.rule_key} {self.first.severity}"

    @property
    def many(self) -> bool:
        return len(self.findings) > 1

    def title(self) -> str:
        """``GPU 5: the link has fewer lanes``, ``4 programs: few DataLoader workers``."""
        about = subject(self.first)
        if self.many:
            noun = _NOUNS.get(self.first.subject.kind, "place")
            about = f"{len(self.findings)} {noun}s"
        return f"{about}: {neutral(self.first.title)}" if about else neutral(self.first.title)


def subject(finding: Finding) -> str:
    """``GPU 5``, ``train.py (4242)``: as short as it can be told from others."""
    about = finding.subject
    if about.kind == "gpu":
        return f"GPU {about.index}"
    if about.kind == "process":
        script = next((word.rpartition("/")[2] for word in about.program.split(" ")[1:] if not word.startswith("-")), "")
        return neutral(f"{script or about.name or 'process'} ({about.pid})", 60)
    return neutral(about.text.rpartition("/")[2] or about.text, 40)


def causes(findings: Sequence[Finding]) -> list[Cause]:
    """A cause each rule and severity: errors first, then what costs most, as measured here, as predicted, as others say."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.rule_key, finding.severity), []).append(finding)
    return sorted((Cause(tuple(group)) for group in groups.values()), key=_place)


def _place(cause: Cause) -> tuple[bool, int, float, tuple[int, int, int, str, str]]:
    figure, basis = loss(cause.first)
    numbers = [float(part) for part in re.findall(r"\d+(?:\.\d+)?", figure)]
    return (cause.first.severity != "error", _ORDER.index(basis if figure else ""), -max(numbers, default=0.0), by_weight(cause.first))


def loss(finding: Finding) -> tuple[str, str]:
    """What it costs, and how that is known: measured here, predicted from here, or elsewhere; empty where nobody says."""
    gain = finding.gain
    if gain.interval:
        return gain.interval, _BASES.get(gain.basis, "")
    if gain.basis == "measured":
        figure = _FIGURE.search(gain.text)
        return (figure[0] if figure else neutral(gain.text, 30)), "measured"
    if finding.cost_pct is not None:
        return f"{finding.cost_pct:.0f} %", "predicted"
    figure = _FIGURE.search(finding.impact.claim) if finding.impact else None
    return (figure[0].lstrip("-+−"), "elsewhere") if figure else ("", "")


def act(fix: Remedy | None, *, here: bool) -> str:
    """Say who can do it, and what it takes: ``a here``, ``restart``, ``by hand``."""
    if fix is None:
        return ""
    if fix.setting is not None and here:
        return "a here" + (", root" if fix.needs == "root" else "")
    if fix.start is not None:
        return "restart"
    return "lint --fix" if fix.source is not None else words.SAFETY[fix.safety]


def cure(fix: Remedy | None) -> str:
    """The fix in a few words."""
    if fix is None:
        return ""
    if fix.setting is not None:
        return neutral(f"{fix.setting.knob} = {fix.setting.value}", 80)
    return neutral(fix.title or next(iter(words.command(fix.command)), ""), 200)


def mark(now: Now, finding: Finding) -> Span:
    """The severity; ✓ where it was fixed from here."""
    if finding.key in now.fixed:
        return Span("✓ ", "good")
    return span("? ", "unknown") if finding.state == "unknown" else span(f"{MARKS[finding.severity]} ", finding.severity)


def rows(now: Now, shown: Sequence[Cause], width: int, unfolded: Collection[str] = ()) -> Lines:
    """A row each: mark, title, loss, who acts, the cure; narrow terminals keep the first three. Columns are as wide as they must be."""
    if not shown:
        return []
    fixes = [next(iter(cause.first.fixes), None) for cause in shown]
    costs = [loss(cause.first) for cause in shown]
    acts = [act(fix, here=now.here) if width >= WIDE else "" for fix in fixes]
    titles = [
        cause.title() + seen_ago(now, cause.first) + (f" {UNFOLDED if cause.name in unfolded else FOLDED}" if cause.many else "")
        for cause in shown
    ]
    loss_wide = max((len(figure) + len(basis) + 3 for figure, basis in costs if figure), default=0)
    acts_wide = max(map(len, acts)) + 2 if any(acts) else 0
    least = 26 if width >= WIDE else 0
    title_wide = min(max(map(cells, titles)) + 2, width - 2 - loss_wide - acts_wide - least)
    cure_wide = width - 2 - title_wide - loss_wide - acts_wide
    out: Lines = []
    for cause, fix, (figure, basis), doer, title in zip(shown, fixes, costs, acts, titles, strict=True):
        finding = cause.first
        alone = not (figure or doer or cure(fix))  # a title with nothing beside it takes its room
        room = width - 2 if alone else title_wide
        parts = [mark(now, finding), Span(padded(title, room - 1) + " ", "dim" if finding.key in now.faded else "")]
        parts += (
            [Span(padded(figure, loss_wide - len(basis) - 3, right=True), "strong"), Span(f" {basis}  ", "dim")]
            if figure
            else [Span(" " * loss_wide)]
        )
        parts += [Span(padded(doer, acts_wide), "key" if doer.startswith("a ") else "")]
        parts += [Span(padded(cure(fix), cure_wide))] if width >= WIDE else []
        out.append(fitted(Line(tuple(parts), finding.key), width))
    return out


def seen_ago(now: Now, finding: Finding) -> str:
    """``, seen 20 s ago`` of a finding that was not there when the machine was read last."""
    since = now.faded.get(finding.key)
    return f", seen {since:.0f} s ago" if since is not None else ""


def said(cause: Cause, width: int) -> Lines:
    """What was seen, for a line below, where that is more than the title."""
    text = words.message(cause.first)
    return [fitted(line(Span("    "), span(text, "dim")), width)] if text != cause.first.title else []


def none(now: Now, width: int) -> Lines:
    """The line where nothing was found."""
    text = "Looking at this machine …" if now.report is None else "Nothing found that slows PyTorch down."
    return [fitted(line(span(text, "dim")), width)]
