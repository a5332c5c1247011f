"""What drivers and the kernel write about GPUs that are ill where no Xid says it.

Reads    the kernel log
Linux    drivers/gpu/drm/{drm_drv.c,amd,xe,i915}  drivers/base/dd.c  drivers/pci/pci.c  drivers/iommu/amd/iommu.c
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cache
from typing import Annotated

from msgspec.structs import replace

from sysperf.collect.gpu.nvidia_sentences import NVIDIA
from sysperf.collect.gpu.other_sentences import GAUDI, NEURON, OTHERS, TEGRA
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.procfs import pci
from sysperf.startup import lazy

MAX_TEXT = 200
MARK = "*ERROR*"
"""What drivers of graphics write into a line that has the kernel's level of errors."""
UNKNOWN = "unknown"
"""What a driver calls an error, and no kind has: said where the log has nothing else of that GPU."""
GOES_ON = (
    *("hung", "program", "iommu", "mismatch", "full", "bus", "crash", "peer"),
    *("throttled", "over-current", "queues", "slow-interrupt", "page-list", "late", "pinning", "screen"),
    *("mapping", "library", "parameter", "unscheduled", UNKNOWN),
)
"""Kinds after which the GPU is still there for programs."""
FOLLOWS = {"boot": 1, "wedged": 1, "start": 2, "probe": 3, "late": 4}
"""Kinds that follow from others, and how far they are from the cause."""
BEFORE_START = ("reset", "boot", "firmware-file", "rom", "confidential", "vgpu", "interrupt", "lost", "firmware", "room")
"""Kinds whose lines name no GPU, or its number only, before the line that its start failed."""
WRONG_MODULE = ("open-module", "closed-module")
"""Kinds whose line may name no GPU, and that explain each start that failed."""
OF_NO_GPU = (UNKNOWN, "parameter", "library")
"""Kinds of lines that tell nothing of a GPU."""
OF_KERNEL = ("bus", "iommu", "lost")
"""Kinds whose lines need not name the driver."""
FALLEN, FIRMWARE, RECOVERY = 79, (119, 120), 154
"""Xids that say what the kinds `lost` and `firmware` say, and that the GPU needs a reset."""
ALL = {
    "probe": r"(?:probe of \S{7,16}|probe with driver \S{2,20}) failed with error",
    "lost": r"(?:Unable to|can't) change power state from \S{2,10} to D0\b|[Rr]efused to change power state"
    r"|not ready [0-9]{3,6}ms after .{2,20}; giving up",
    "wedged": r"device wedged, needs recovery",
    "hung": r"device wedged, but recovered through reset",
    "parameter": r"^\w{1,16}: unknown parameter '[\w.-]{1,40}' ignored",
    "iommu": r"AMD-Vi: Event logged \[[A-Z]",
}
OTHER_DRIVERS = ("amdgpu", "xe ", "i915", "Fence ")
MARKS = (
    "NVRM",
    "nvidia",
    "nvgpu",
    "soctherm: OC",
    "amdgpu",
    "xe ",
    "xe:",
    "[xe]",
    "[drm:",
    "i915",
    "AMD-Vi: Event",
    "DMAR: [DMA",
    "pcieport",
    "vfio-pci ",
    "Cannot map memory",
    "nvlogAllocBuffer",
    "Fence fallback",
    "gim error",
    "gim warning",
    "kfd2kgd",
    "habanalabs ",
    "accel accel",
    "NEURON_HW_ERR",
)
"""One of these is in each line that is read here."""

_AT = r"^(\S{1,40}) .{0,120}?"
_OF_NVIDIA = lazy(
    _AT + r"\b((?:(?:NVRM|nvidia(?:[-_](?:modeset|uvm|drm|peermem|fs|nvlink|nvswitch[0-9]{0,3}))?)[: \]]|Cannot map memory"
    r"|nvlogAllocBuffer).{1,300})"
)
"""``NVRM: …``, ``nvidia 0000:01:00.0: …``, ``[drm:nv_drm_atomic_commit [nvidia_drm]] *ERROR* …``; two sentences come without a name."""
_OF_OTHERS = lazy(
    _AT
    + r"(?:\[(?P<module>amdgpu|xe|i915)\]\]? |\[drm:(?P<built_in>amdgpu|cik|gfx|gmc|imu|mes|mmhub|psp|sdma|smu|vega|xgmi)_[\w.]{2,60}\] "
    r"(?=\*ERROR\*)|\b(?=(?:amdgpu|xe|i915|kfd2kgd)[: ]|gim (?:error|warning)\b|Fence (?:expiration time out i915|fallback timer)))"
    r"(?P<said>.{1,300})"
)
"""``amdgpu 0000:03:00.0: …``, and what names no GPU: ``[drm:amdgpu_job_timedout [amdgpu]] *ERROR* …``, without the module where it is
a part of the kernel."""
_OF_GAUDI = lazy(_AT + r"\b((?:habanalabs|accel) (?:hl|accel|[0-9a-f]{4}:)[0-9a-f:.]{1,12}: .{1,300})")
_OF_TEGRA = lazy(_AT + r"\b((?:nvgpu|soctherm): .{1,300})")
"""``nvgpu: 17000000.gpu nvgpu_set_err_notifier_locked:142 [ERR] error notifier set to 31 for ch 507``"""
_OF_NEURON = lazy(_AT + r"(NEURON_HW_ERR=\w{1,60})")
"""What follows it names the instance, its host and the chip."""
_REFUSED = lazy(
    _AT + r"((?:AMD-Vi: Event logged \[[A-Z_]{4,40}\]? device=|DMAR: \[DMA (?:Read|Write)[^\]]{0,20}\] Request device \[)"
    r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b.{0,160})"
)
"""What the IOMMU says of any device."""
_ON_BUS = lazy(
    _AT + r"\b(?:pcieport|pci|nvidia|amdgpu|xe|i915) ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): "
    r"(.{0,40}?(?:severity=Uncorrect|aer_uncor_severity: 0x|[Dd]evice recovery failed|can't recover \(no |containment event"
    r"|retraining (?:non-functional downstream link|failed)|Slot\(.{1,12}\): (?:Link Down|Card not present)).{0,120})"
)
"""What the kernel says of any link of PCI Express that lost data, went down, or trained at its slowest speed only; `aer_uncor_severity`
is how it prints what the firmware told it."""
_HELD = lazy(_AT + rf"\b(?:vfio-pci|pci) ([0-9a-f]{{4}}:[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-7]): (.{{0,40}}?(?:{ALL['lost']}).{{0,120}})")
"""What the kernel says of a GPU that no driver of its own holds, and that it does not reach."""
_NAME = lazy(r"^(?:NVRM:?|nvidia-(?:modeset|uvm):|nvidia_drm\]{1,2} (?:\*ERROR\* )?) ?")
_OTHERS = lazy(r"(?:amdgpu|kfd|gim|xe|i915|habanalabs|accel|Fence)(?![a-z])")
"""How what is not NVIDIA's begins."""
_STARS = lazy(r"\s?\*{3,80}")
_OF_HOST = lazy(r"\[([0-9a-f]{1,4}):([0-9a-f]{1,2}):([0-9a-f]{1,2}):([0-7])\]\[")
"""How gim, AMD's driver of hosts of virtual GPUs, writes an address: ``[0:3d:0:0][PF]``."""
_BUS_ID = lazy(r"\b(?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?)\b")


KINDS = tuple(dict.fromkeys((*NVIDIA, *OTHERS, *TEGRA, *NEURON, *ALL, "bus", "crash", "library", UNKNOWN)))


class Fault(Record):
    """What the log says of a GPU that could not be started, was lost, or hung, and that is no Xid."""

    name: Annotated[str, fact("the GPU where the line names it; else the library or the parameter", "run:dmesg")]
    text: Annotated[str, fact("what the first line of this kind says", "run:dmesg")]
    kind: Annotated[str, fact(f"what it is: {', '.join(KINDS)}", "run:dmesg")] = ""
    bus_id: Annotated[str | None, fact("PCI address of the GPU", "run:dmesg")] = None
    count: Annotated[int, fact("how many lines of this kind are in the log", "run:dmesg")] = 1
    last: Annotated[str, fact("when it was written last", "run:dmesg")] = ""
    draws: Annotated[
        bool,
        fact("whether nothing but a PyTorch for it would compute on this GPU: graphics of AMD's processors, without ROCm", "run:dmesg"),
    ] = False


def read_fault(line: str, places: Collection[str] = ()) -> Fault | None:
    """What a line says of a GPU; None where it says nothing of the kind.

    What the IOMMU and the bus say counts of GPUs, and of ports above them, at these places.
    """
    for of_kernel, kind in ((_ON_BUS, "bus"), (_HELD, "lost")):
        if match := of_kernel.match(line):
            return Fault(match[2], neutral(match[3], MAX_TEXT), kind, match[2], 1, neutral(match[1], 40)) if match[2] in places else None
    if match := _REFUSED.match(line):
        bus_id = match[3] if match[3].count(":") > 1 else f"0000:{match[3]}"
        return Fault(bus_id, neutral(match[2], MAX_TEXT), "iommu", bus_id, 1, neutral(match[1], 40)) if bus_id in places else None
    for head, kinds in ((_OF_NVIDIA, NVIDIA), (_OF_OTHERS, OTHERS), (_OF_GAUDI, GAUDI), (_OF_TEGRA, TEGRA), (_OF_NEURON, NEURON)):
        if (match := head.match(line)) and (said := _pattern(*kinds.items()).search(match[match.lastindex or 0])):
            text = neutral(_STARS.sub("", _NAME.sub("", _named(match, said.string))).strip(" :").rstrip("."), MAX_TEXT)
            bus_id = place_in(said.string)
            kind = str(said.lastgroup).replace("_", "-")
            return Fault(bus_id or (text if kind == "parameter" else "a GPU"), text, kind, bus_id, 1, neutral(match[1], 40))
    return None


def _named(match: re.Match[str], said: str) -> str:
    """Put the driver's name before what it says, where a function of it did not leave it there."""
    groups = match.groupdict()
    driver = groups.get("module") or ("amdgpu" if groups.get("built_in") else "")
    return f"{driver}: {said.removeprefix(MARK).strip()}" if driver else said


def place_in(text: str) -> str | None:
    """Return the PCI address in a line."""
    if of_host := _OF_HOST.search(text):
        domain, bus, device, function = of_host.groups()
        return f"{domain:0>4}:{bus:0>2}:{device:0>2}.{function}"
    address = _BUS_ID.search(text)
    return pci.bus_id(address[1]) if address else None


@cache
def _pattern(*kinds: tuple[str, str]) -> re.Pattern[str]:
    """All sentences, each in a group that is named by its kind."""
    own = dict(kinds)
    every = {kind: "|".join(filter(None, (own.get(kind), ALL.get(kind)))) for kind in (*own, *ALL)}
    return re.compile("|".join(f"(?P<{kind.replace('-', '_')}>{words})" for kind, words in every.items()))


def causes(faults: Iterable[Fault], xids: Iterable[tuple[str, int]]) -> tuple[Fault, ...]:
    """Leave out what another line says better.

    That is what an Xid says, too, what names no GPU beside one that does, what follows from another line, and what is not known
    beside what is.
    """
    xids, faults = set(xids), _placed(tuple(faults))
    fallen = {bus_id for bus_id, code in xids if code == FALLEN}
    gone = {*fallen, *(fault.bus_id for fault in faults if fault.kind == "lost")}
    silent = {*gone, *(bus_id for bus_id, code in xids if code in FIRMWARE)}
    late = {*silent, *(bus_id for bus_id, code in xids if code == RECOVERY)}
    said: dict[str, Collection[str | None]] = {"firmware": silent, "lost": fallen, "interrupt": gone, "late": late}
    places = {bus_id for bus_id, _ in xids}
    faults = tuple(fault for fault in faults if fault.kind != UNKNOWN or not _told(fault, faults, places))
    kept = [fault for fault in faults if not (where := said.get(fault.kind)) or not (fault.bus_id is None or fault.bus_id in where)]
    return tuple(fault for fault in kept if not any(_explains(cause, fault) for cause in kept))


def _told(unknown: Fault, faults: tuple[Fault, ...], xids: Collection[str]) -> bool:
    """Whether something else is said of this GPU, or of any where a line names none, that is no matter of another maker's driver."""
    others = bool(_OTHERS.match(unknown.text))
    said = [
        fault for fault in faults if fault.kind not in OF_NO_GPU and (fault.kind in OF_KERNEL or bool(_OTHERS.match(fault.text)) == others)
    ]
    if unknown.bus_id:
        return unknown.bus_id in xids or any(fault.bus_id in {unknown.bus_id, None} for fault in said)
    return bool(said) or bool(xids and not others)


def _placed(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Say which GPU it is where a line about a start names none, and only one GPU failed to start."""
    failed = {fault.bus_id for fault in faults if fault.kind == "start" and fault.bus_id}
    if len(failed) != 1:
        return faults
    (place,) = failed
    told = {fault.kind for fault in faults if fault.bus_id == place}
    return tuple(
        replace(fault, name=place, bus_id=place) if fault.kind in BEFORE_START and not fault.bus_id else fault
        for fault in faults
        if fault.bus_id or fault.kind not in told
    )


def _explains(cause: Fault, fault: Fault) -> bool:
    """Whether a line says more than another of its kind, or is nearer to the cause of a GPU that did not start."""
    if cause.kind == fault.kind:
        return fault.bus_id is None and cause.bus_id is not None
    of_all = cause.bus_id is None and (fault.kind == "probe" or cause.kind in WRONG_MODULE)
    one = cause.bus_id == fault.bus_id or fault.bus_id is None or of_all
    return one and cause.kind not in GOES_ON and FOLLOWS.get(cause.kind, 0) < FOLLOWS.get(fault.kind, 0)
