"""/proc/meminfo, and the same of one node, whose lines begin with ``Node 0``.

Kernel  https://docs.kernel.org/filesystems/proc.html#meminfo
"""

from __future__ import annotations

from sysperf.model.text import parse_size


def sizes(text: str) -> dict[str, int]:
    """Bytes by name (``MemAvailable``); numbers of huge pages as they are. Lines that hold no size are left out."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        try:
            if colon:
                values.setdefault(name.rpartition(" ")[2], parse_size(value))
        except ValueError:
            continue
    return values
