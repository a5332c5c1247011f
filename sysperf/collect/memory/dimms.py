"""Memory slots out of `dmidecode -t 17`. No area of its own; `memory` asks under --deep.

Format  https://www.dmtf.org/standards/smbios (Memory Device, type 17)
"""

from __future__ import annotations

from typing import Annotated

from sysperf.model.record import Record, fact
from sysperf.model.text import neutral, parse_size
from sysperf.startup import lazy

DMIDECODE = "run:dmidecode-memory"
MAX_SLOTS = 1_024

_CHANNEL = lazy(r"(?i)channel[ _-]?([A-P0-9]{1,2})(?![A-Z0-9])|^(?:[PC]\w{0,3}[ _-])?DIMM[ _-]?([A-P])(?:[ _-]?[0-9]{1,2})?$")
_CPU = lazy(r"(?i)(?:^|[ _-])(?:P|CPU|PROC|SOCKET|NODE)[ _-]?([0-9]{1,2})")
_RATE = lazy(r"([0-9]{1,6})\s*M(?:T/s|Hz)")


class Dimm(Record):
    """One memory slot."""

    slot: Annotated[str, fact("label of the slot", DMIDECODE)]
    size_bytes: Annotated[int | None, fact("size of the module; 0 is an empty slot", DMIDECODE)] = None
    speed_mts: Annotated[int | None, fact("transfers per second that the module is made for, in millions", DMIDECODE)] = None
    configured_mts: Annotated[int | None, fact("transfers per second that it runs at, in millions", DMIDECODE)] = None
    channel: Annotated[str | None, fact("processor and channel, where the label names them", DMIDECODE)] = None


def parse_dimms(text: str) -> tuple[Dimm, ...]:
    """The slots in the output of ``dmidecode -t 17``."""
    blocks = text.split("Memory Device\n")[1 : MAX_SLOTS + 1]
    return tuple(_dimm(dict(_line(line) for line in block.splitlines()[:60])) for block in blocks)


def _line(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def _dimm(fields: dict[str, str]) -> Dimm:
    slot, bank = fields.get("Locator", ""), fields.get("Bank Locator", "")
    return Dimm(
        slot=neutral(f"{bank} {slot}".strip(), 80),
        size_bytes=_size(fields.get("Size", "")),
        speed_mts=_rate(fields.get("Speed", "")),
        configured_mts=_rate(fields.get("Configured Memory Speed", fields.get("Configured Clock Speed", ""))),
        channel=_channel(slot, bank),
    )


def _size(text: str) -> int | None:
    if text.startswith("No Module"):
        return 0
    try:
        return parse_size(text)
    except ValueError:
        return None


def _rate(text: str) -> int | None:
    match = _RATE.match(text)
    return int(match[1]) if match else None


def _channel(slot: str, bank: str) -> str | None:
    """``P0 CHANNEL A`` and ``CPU1_DIMM_C2`` name a processor and a channel; ``DIMM 0`` names neither."""
    for label in (bank, slot):
        match = _CHANNEL.search(label[:80])
        if match:
            cpu = _CPU.search(bank[:80]) or _CPU.search(slot[:80])
            return f"{cpu[1] if cpu else '0'}/{(match[1] or match[2]).upper()}"
    return None
