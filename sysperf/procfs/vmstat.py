"""/proc/vmstat: what the memory manager counted since the machine started.

Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from sysperf.procfs.numbers import after


def counts(text: str | bytes | None, names: Iterable[str]) -> dict[str, int | None]:
    """The counters of these names; None for one that this kernel does not have. Some 150 others are not looked at."""
    raw = text.encode("utf-8", "replace") if isinstance(text, str) else text or b""
    return {name: after(raw, label[1:] if raw.startswith(label[1:]) else label) for name in names if (label := _label(name))}


@lru_cache(64)
def _label(name: str) -> bytes:
    return f"\n{name} ".encode()
