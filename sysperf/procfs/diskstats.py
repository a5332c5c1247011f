"""/proc/diskstats: what each disk and partition read and wrote since the machine started, and for how long it had work.

Kernel  https://docs.kernel.org/admin-guide/iostats.html
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sysperf.procfs.numbers import whole

SECTOR_BYTES = 512
"""Whatever the disk's own sectors are."""


class Disk(NamedTuple):
    """Counters of one disk."""

    sectors_read: int
    sectors_written: int
    busy_ms: int


def parse(data: bytes, names: Collection[str]) -> dict[str, Disk]:
    """The disks of these names. A line that is no disk's is left out."""
    disks: dict[str, Disk] = {}
    for line in data.splitlines():
        words = line.split()
        if len(words) < 13 or (name := words[2].decode("utf-8", "replace")) not in names:
            continue
        read, written, busy_ms = whole(words[5]), whole(words[9]), whole(words[12])
        if read is not None and written is not None and busy_ms is not None:
            disks[name] = Disk(read, written, busy_ms)
    return disks
