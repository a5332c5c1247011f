"""Words of a cause that all forms of a diagnosis share: its state, its gain, its signals, its fix, its consequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sysperf.model.finding import Finding, Remedy, Signal
from sysperf.model.text import neutral
from sysperf.report.words import SOURCES

if TYPE_CHECKING:
    from sysperf.diagnosis.verdict import Verdict

STATES = {"confirmed": "error", "likely": "warning"}
MAX_TEXT = 2_000


def explained(verdict: Verdict, cause: Finding) -> list[Finding]:
    """Return what was found too, and is a consequence of a cause."""
    return [other for other in verdict.dropped if other.state == "explained" and other.because.endswith(f" of {cause.rule}")]


def gain(cause: Finding) -> str:
    """``  saves about 20 % of the step (12 to 30)``; empty where nothing is predicted."""
    low, middle, high = cause.gain.low, cause.gain.middle, cause.gain.high
    return "" if middle is None or middle < 1 else f"  saves about {middle:.0f} % of the step ({low:.0f} to {high:.0f})"


def signal_text(signal: Signal) -> str:
    """Return a signal with its source, and whether it speaks against the cause."""
    return f"{SOURCES.get(signal.source, signal.source)}{'' if signal.supports else ' (against)'}: {neutral(signal.text, MAX_TEXT)}"


def title(fix: Remedy) -> str:
    """Return what a fix says, with its note."""
    return f"{fix.title}; {fix.note}" if fix.note else fix.title
