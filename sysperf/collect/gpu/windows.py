"""GPUs for whose memory the bus has no room.

Reads   the kernel log
Linux   drivers/pci/setup-res.c
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sysperf.collect.gpu.log_faults import MAX_TEXT, Fault
from sysperf.model.text import neutral
from sysperf.startup import lazy

_LINE = lazy(
    r"^(\S{1,40}) .{0,80}?\bpci ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): "
    r"(BAR ([0-5])(?: \[mem[^\]]{0,60}\])?: (assigned|failed to assign|no space|can't assign)(?!.{0,4}\[io).{0,80})"
)


def unplaced(log: str, places: Collection[str]) -> Iterator[Fault]:
    """Each GPU of which the kernel could not place a part of its memory; what it placed at another try counts as placed.

    Ports of I/O (``io``), the ROM (6) and what is for virtual functions (``VF BAR``, from 7 on) are not needed to compute.
    """
    if "to assign" not in log:
        return
    last = {(match[2], match[4]): match for line in log.splitlines() if " BAR " in line and (match := _LINE.match(line))}
    for (place, _), match in last.items():
        if place in places and match[5] != "assigned":
            yield Fault(place, neutral(match[3], MAX_TEXT), "region", place, 1, neutral(match[1], 40))
