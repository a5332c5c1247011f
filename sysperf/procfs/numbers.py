"""Whole numbers as the kernel writes them: digits only, and no more of them than 64 bits hold."""

from sysperf.startup import lazy

_WHOLE = lazy(r"[0-9]{1,19}")


def whole(text: str | None) -> int | None:
    """The number, or None when the text is anything else. int() would also take ``+1``, ``1_0`` and other scripts' digits."""
    return int(text) if text and _WHOLE.fullmatch(text) else None
