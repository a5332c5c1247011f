"""Numbers as the kernel writes them: ASCII digits only, and no more of them than 64 bits hold."""

from __future__ import annotations

from sysperf.startup import lazy

MAX_DIGITS = 19
_DECIMAL = lazy(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")


def whole(text: str | bytes | None) -> int | None:
    """The number, or None when the text is anything else. int() would also take ``+1``, ``1_0`` and other scripts' digits."""
    return int(text) if text and len(text) <= MAX_DIGITS and text.isascii() and text.isdigit() else None


def after(data: bytes, label: bytes) -> int | None:
    """The number behind a label such as ``Dirty:``, without looking at the rest of a long text."""
    at = data.find(label)
    if at < 0:
        return None
    start = at + len(label)
    words = data[start : start + 32].split(None, 1)
    return whole(words[0]) if words else None


def decimal(text: str | None) -> float | None:
    """A number with a fraction such as ``12345.67``; None when the text is anything else."""
    return float(text) if text and _DECIMAL.fullmatch(text) else None
