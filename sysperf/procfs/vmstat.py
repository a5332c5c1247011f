"""/proc/vmstat: what the memory manager counted since the machine started.

Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

from collections.abc import Iterable

from sysperf.procfs.numbers import after


def counts(text: str | bytes | None, names: Iterable[str]) -> dict[str, int | None]:
    """The counters of these names; None for one that this kernel does not have. Some 150 others are not looked at."""
    raw = text.encode("utf-8", "replace") if isinstance(text, str) else text or b""
    return {name: _count(raw, f"\n{name} ".encode()) for name in names}


def _count(raw: bytes, label: bytes) -> int | None:
    return after(raw, label[1:] if raw.startswith(label[1:]) else label)
