"""What the kernel's log says of CPUs that were stuck, and of errors of the hardware that nobody corrected.

Reads   the kernel log under --deep
Linux   kernel/{watchdog.c,rcu/tree_stall.h}, arch/x86/kernel/cpu/{amd.c,mce/core.c}, drivers/{edac/mce_amd.c,firmware/efi/cper.c}
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.readers import log_entries
from sysperf.host import Host
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.startup import lazy

MAX_TEXT = 160
UNCORRECTED = 1 << 61
"""The bit of a bank's status that says so; the processor's own words for the rest are corrected errors."""
WORDS = ("soft lockup", "hard LOCKUP", "detected stall", "[Hardware Error]", "uncorrected error")
_AT = r"^(\S{1,40}) .{0,120}?"
_STUCK = lazy(
    _AT + r"\b(soft lockup - CPU#[0-9]{1,5} stuck for [0-9]{1,6}s|hard LOCKUP on cpu [0-9]{1,5}|\w{3,12} (?:self-)?detected stalls? on)"
)
_BANK = lazy(_AT + r"(\[Hardware Error\]: CPU [0-9]{1,5}: Machine Check(?: Exception)?: [0-9a-f]{1,16} Bank [0-9]{1,3}): ([0-9a-f]{16})\b")
_NAMED = lazy(
    _AT + r"(\[Hardware Error\]: (?:Uncorrected, software \w{4,20} error|System Fatal error|event severity: (?:fatal|recoverable))"
    r"|an uncorrected error caused a data fabric sync flood event)"
)


class Alarm(Record):
    """One kind of trouble in the kernel's log."""

    kind: Annotated[str, fact("stuck: CPUs that did nothing else for long; hardware: errors that nobody corrected", "run:dmesg")]
    text: Annotated[str, fact("what the first line says", "run:dmesg")]
    count: Annotated[int, fact("how many such lines there are", "run:dmesg")] = 1
    last: Annotated[str, fact("when it was written last", "run:dmesg")] = ""


def alarms(host: Host) -> tuple[Alarm, ...] | None:
    """Return one of each kind: the first line, and how many there are."""
    log = host.run("dmesg") if host.deep else None
    if log is None:
        return None
    found: dict[str, Alarm] = {}
    for line in log.splitlines():
        if any(words in line for words in WORDS) and (alarm := _alarm(line)):
            log_entries.add(found, alarm.kind, alarm)
    return tuple(found.values())


def _alarm(line: str) -> Alarm | None:
    """What a line says; None of an error that was corrected."""
    kind, match = "stuck", _STUCK.match(line)
    if match is None:
        kind, match = "hardware", _NAMED.match(line) or _BANK.match(line)
    if match is None or (match.lastindex == 3 and not int(match[3], 16) & UNCORRECTED):
        return None
    return Alarm(kind, neutral(match[2], MAX_TEXT), last=neutral(match[1], 40))
