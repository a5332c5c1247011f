"""What drivers of network adapters write to the kernel's log about adapters that are ill. `nic` asks.

Reads   the kernel log under --deep
Linux   drivers/net/ethernet/mellanox/mlx5/core/{events.c,health.c,cmd.c} of 6.12
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.readers import log_entries
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.startup import lazy

MAX_TEXT = 160
KINDS = {
    "power": r"Detected insufficient power on the PCIe slot",
    "heat": r"Port module event\[error\]: module [0-9]{1,3}, Cable error, High Temperature|High temperature on sensors with bit set",
    "cable": r"Port module event\[error\]: module [0-9]{1,3}, Cable error, (?:Power budget exceeded|Long Range|Bus stuck|No EEPROM"
    r"|Enforce part number|Unknown identifier|Bad or shorted|PMD type|Unknown status)",
    "firmware": r"device's health compromised - reached miss count|Fatal error [0-9]{1,3} detected"
    r"|health recovery (?:flow )?(?:failed|aborted)|firmware fatal error|timeout\. Will cause a leak of a command resource",
}
_LINE = lazy(
    r"^(\S{1,40}) .{0,120}?\bmlx5_core ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]).{0,80}?("
    + "|".join(f"(?P<{kind}>{words})" for kind, words in KINDS.items())
    + r")(.{0,80})"
)


class Complaint(Record):
    """What a driver says of an adapter."""

    name: Annotated[str, fact("PCI address of the adapter", "run:dmesg")]
    kind: Annotated[str, fact(f"what it is: {', '.join(KINDS)}", "run:dmesg")]
    text: Annotated[str, fact("what the first line says", "run:dmesg")]
    count: Annotated[int, fact("how many such lines there are", "run:dmesg")] = 1
    last: Annotated[str, fact("when it was written last", "run:dmesg")] = ""


def complaints(log: str) -> tuple[Complaint, ...]:
    """Return one of each adapter and kind."""
    found: dict[tuple[str, str], Complaint] = {}
    for line in log.splitlines():
        match = _LINE.match(line) if "mlx5_core" in line else None
        if match and (kind := next((name for name in KINDS if match[name]), "")):
            text = neutral(match[3] + match[match.re.groups], MAX_TEXT).rstrip(".")
            log_entries.add(found, (match[2], kind), Complaint(match[2], kind, text, last=neutral(match[1], 40)))
    return tuple(found.values())
