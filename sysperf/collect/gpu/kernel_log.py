"""What drivers write to the kernel log about GPUs and NVSwitches that are ill.

Reads   the kernel log
Xid     https://docs.nvidia.com/deploy/xid-errors/
SXid    https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Annotated

from msgspec import structs

from sysperf.collect.gpu import log_faults
from sysperf.collect.gpu.crashes import crashes, stories
from sysperf.collect.gpu.log_faults import Fault
from sysperf.collect.readers import log_entries
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.procfs import pci
from sysperf.startup import lazy

MAX_TEXT = 200
MAX_LINE = 1_000
NVLINK5 = range(144, 151)
_REMAPPING_FAILED = 64
_UNITS = {"NETIR_LINK_DOWN": "NETIR_LINK_EVT", "NVLPW_CTRL": "NVLPW", "NETIR_INT": "NETIR"}
"""Names that drivers of different branches have for one unit."""
_REST = "NVRM: installed in this system "
_POWERPLAY = "[powerplay]"
"""How a message of amdgpu begins whose words stand in the next line."""
_DRIVERS = ("SXid", *log_faults.MARKS)

_AT = r"^(\S{1,40}) .{0,80}?"
_XID = lazy(_AT + r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{7,16})(?: GPU-C?I:[0-9]{1,4}){0,2}\): ([0-9]{1,4})\b(.{0,400})")
"""Of a partitioned GPU the driver names the instance, too: ``Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 94, …``."""
_SXID = lazy(_AT + r"nvidia-nvswitch[0-9]{1,3}: SXid \(PCI:([0-9A-Fa-f:.]{7,16})\): ([0-9]{1,6})\b(.{0,400})")
_SEVERITY = lazy(r"(?<![A-Za-z])(non-?fatal|fatal)(?![A-Za-z])", re.IGNORECASE)
_CAUSE = lazy(r"caused by previous Xid ([0-9]{1,4})", re.IGNORECASE)
_NVLINK5 = lazy(
    r"\b([A-Z][A-Z0-9_]{2,31})\s{1,4}(?:link )?(?:non-?)?fatal\b.{0,60}?[(\[]0x([0-9a-f]{1,8})\b(?:\s{1,4}0x([0-9a-f]{1,8})\b)?",
    re.IGNORECASE,
)
_RECOVERY = lazy(r"recovery action changed.{0,30}? to (?:0x[0-9a-f]{1,8} )?\(?([A-Z][A-Za-z0-9 ]{1,40})")
_PROCESS = lazy(r"^[,: ]*(?:pid=[^,]{0,40},\s*)?(?:name=[^,]{0,80},\s*)?(?:(?:Ch|channel) [0-9a-fA-F]{1,8},\s*)?")


class Xid(Record):
    """One kind of error that the driver wrote to the kernel log about a GPU or an NVSwitch."""

    name: Annotated[str, fact("number and device, such as Xid 79 on 0000:65:00.0", "run:dmesg")]
    code: Annotated[int, fact("NVIDIA's number of the error", "run:dmesg")]
    bus_id: Annotated[str, fact("PCI address of the device", "run:dmesg")]
    count: Annotated[int, fact("how often it is in the log", "run:dmesg")] = 1
    last: Annotated[str, fact("when it was written last", "run:dmesg")] = ""
    text: Annotated[str | None, fact("what the line says, of the gravest one", "run:dmesg")] = None
    fatal: Annotated[bool | None, fact("whether the line calls it fatal; unknown where it does not say", "run:dmesg")] = None
    cause: Annotated[int | None, fact("number of the earlier error that caused it, where the line says so", "run:dmesg")] = None
    detail: Annotated[
        str | None,
        fact(
            "of errors of NVLink 5 (144 to 150) the unit and its status, or the sub-code of a link that went down; of 154 what it asks for",
            "run:dmesg",
        ),
    ] = None


class Log(Record):
    """What the kernel log has of GPUs."""

    xids: tuple[Xid, ...] | None = None
    sxids: tuple[Xid, ...] | None = None
    faults: tuple[Fault, ...] | None = None


def read_log(log: str, places: Collection[str] = (), counts: Callable[[Fault], bool] = bool, errors: str | None = None) -> Log:
    """Return errors of the GPUs at these places, of NVSwitches, and other lines about GPUs that count, each once a device and kind.

    `errors` is the part of the log that has the level of errors, where the kernel's tool told it.
    """
    from sysperf.collect.gpu.unknown_lines import unknown  # noqa: PLC0415 - the log is read under --deep only
    from sysperf.collect.gpu.windows import unplaced  # noqa: PLC0415 - the log is read under --deep only

    xids: dict[tuple[str, int], Xid] = {}
    sxids: dict[tuple[str, int], Xid] = {}
    faults: dict[tuple[str | None, str], Fault] = {}
    for line in _joined(log):
        if match := _XID.match(line):
            _add(xids, "Xid", match)
        elif match := _SXID.match(line):
            _add(sxids, "SXid", match)
        elif (fault := log_faults.read_fault(line, places)) and counts(fault):
            log_entries.add(faults, (fault.name, fault.kind), fault)
    for fault in filter(counts, (*crashes(log), *stories(log), *unplaced(log, places), *unknown(log, errors, places))):
        log_entries.add(faults, (fault.name, fault.kind), fault)
    return Log(tuple(xids.values()), tuple(sxids.values()), log_faults.causes(faults.values(), xids))


def _joined(log: str) -> list[str]:
    """The lines of drivers of GPUs. Of a message of several lines the kernel indents the rest, and the driver begins each with its name.

    Some logs give each of its lines a time of its own.
    """
    lines: list[str] = []
    for line in log.splitlines():
        if lines and (line.startswith(" ") or (_REST in line and lines[-1].endswith(")") and "(PCI ID: " in lines[-1])):
            if "NVRM: " in line and len(lines[-1]) < MAX_LINE:
                lines[-1] = f"{lines[-1].rstrip()} {line.partition('NVRM: ')[2].strip()}"
            elif lines[-1].rstrip().endswith(_POWERPLAY):
                lines[-1] = f"{lines[-1].rstrip()} {line.strip()[:MAX_LINE]}"
        elif lines and lines[-1].rstrip().endswith(_POWERPLAY) and not any(name in line for name in _DRIVERS):
            lines[-1] = f"{lines[-1].rstrip()} {line.partition(' ')[2].strip()[:MAX_LINE]}"
        else:
            lines.append(line if any(name in line for name in _DRIVERS) else "")
    return [line for line in lines if line]


def _add(found: dict[tuple[str, int], Xid], kind: str, match: re.Match[str]) -> None:
    """One entry a device and number: the newest time, and severity, cause and text of the gravest line."""
    bus_id, code, rest = pci.bus_id(match[2]) or match[2], int(match[3]), match[4]
    before = found.get((bus_id, code))
    if before is None and len(found) >= log_entries.MAX_ENTRIES:
        return
    severity, cause = _SEVERITY.search(rest), _CAUSE.search(rest)
    fatal = None if severity is None else severity[1].lower() == "fatal"
    text = neutral(rest[_end_of_process(rest) :].strip(" ,").rstrip("."), MAX_TEXT)
    xid = Xid(
        f"{kind} {code} on {bus_id}", code, bus_id, before.count + 1 if before else 1, neutral(match[1], 40), text, fatal,
        int(cause[1]) if cause else None, _detail(code, rest) if kind == "Xid" else None,
    )  # fmt: skip
    if before and _gravity(before) > _gravity(xid):
        xid = structs.replace(before, count=xid.count, last=xid.last)
    found[bus_id, code] = xid


def _detail(code: int, rest: str) -> str | None:
    """Name what NVIDIA's tables are sorted by: ``RLW_REMAP 0x40``, ``NETIR_LINK_EVT 37`` for a link that went down, ``PF FLR`` of 154.

    Memory that cannot be remapped (64) as another remapping waits for a reset is ``pending``, and no failure.
    """
    if code == _REMAPPING_FAILED:
        return "pending" if " pending " in rest else None
    if code == log_faults.RECOVERY:
        asked = _RECOVERY.search(rest)
        return asked[1].strip() if asked else None
    match = _NVLINK5.search(rest) if code in NVLINK5 else None
    if match is None:
        return None
    unit = match[1].upper()
    unit = _UNITS.get(unit, unit.removesuffix("_PIPE0").removesuffix("_PIPE1"))
    if unit == "NETIR_LINK_EVT":
        return f"{unit} {int(match[2], 16) >> 20 & 0x3F}"
    return f"{unit} {int(match[3], 16):#x}" if match[3] else None


def _end_of_process(rest: str) -> int:
    match = _PROCESS.match(rest)
    return match.end() if match else 0


def _gravity(xid: Xid) -> int:
    """Return how much a line weighs: a fatal one most, then one that is rated at all; least of all a consequence, or what waits."""
    return 0 if xid.cause is not None or xid.detail == "pending" else {True: 3, False: 2, None: 1}[xid.fatal]
