"""/proc/net/dev: what each network interface received and sent since it came up.

Kernel  https://docs.kernel.org/filesystems/proc.html#networking-info-in-proc-net
"""

from __future__ import annotations

from typing import NamedTuple

from sysperf.procfs.numbers import whole


class Interface(NamedTuple):
    """Counters of one interface."""

    received_bytes: int
    sent_bytes: int


def parse(data: bytes) -> dict[str, Interface]:
    """Return all interfaces by name, the loopback, bridges and bonds too. A line that is no interface's is left out."""
    interfaces: dict[str, Interface] = {}
    for line in data.splitlines()[2:]:
        name, _, numbers = line.partition(b":")
        words = numbers.split()
        if len(words) >= 9 and (received := whole(words[0])) is not None and (sent := whole(words[8])) is not None:
            interfaces[name.strip().decode("utf-8", "replace")] = Interface(received, sent)
    return interfaces
