"""What verdicts on programs of a device and of the CPU have in common."""

from __future__ import annotations

Verdict = tuple[str, str]
"""A word, and what it rests on."""


def cannot(why: str) -> Verdict:
    """Say that the file does not tell, and why."""
    return "cannot-tell", why


def counted(number: float, what: str) -> str:
    """Name so many things, as ``1 kernel`` or ``30 kernels``."""
    return f"{number:.0f} {what}{'' if number == 1 else 's'}"


def of_stage(share: float, own: float | None) -> Verdict:
    """The verdict of a rank that mostly exchanges something with one other, or waits for it: only other stages tell which of both."""
    if own is None:
        return cannot(f"what two ranks send each other runs without computation {share:.0f} % of the time, or waits for another stage")
    if 2 * own >= share:
        return "comm-bound", f"what stages of a pipeline send each other runs without computation {own:.0f} % of the time"
    return "pipeline-bound", f"a stage of a pipeline waits {share - own:.0f} % of the time for others"
