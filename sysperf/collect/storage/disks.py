"""Disks that are hardware, and software RAID arrays.

Reads   /sys/block/*  /sys/block/*/{size,removable,slaves}  /sys/block/*/queue/{rotational,read_ahead_kb,scheduler}
        /sys/block/*/device/{model,address}  /sys/block/*/md/{level,raid_disks,degraded,array_state,sync_action}
Kernel  https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-block
"""

import re

from sysperf.collect.pcie import locality
from sysperf.collect.storage.devices_below import DISK_NAME, MAX_DISKS, PHYSICAL_NAME
from sysperf.collect.storage.records import BLOCK, Disk, Raid
from sysperf.host import Host
from sysperf.model.text import neutral
from sysperf.procfs.numbers import whole
from sysperf.procfs.pci import address_in
from sysperf.startup import lazy

_RAID_NAME = lazy(r"md[0-9]{1,6}|md_[A-Za-z0-9._-]{1,60}")
_SCHEDULER = lazy(r"\[([\w-]{1,24})\]|^([\w-]{1,24})$")
_TRANSPORTS = (
    ("virtio", "virtio"),
    ("nvme", "nvme"),
    ("usb", "usb"),
    ("/ata", "ata"),
    ("mmc_host", "mmc"),
    ("vmbus", "virtual"),
    ("vbd-", "virtual"),
)


def read_disks(host: Host, disk_places: dict[str, tuple[str, ...]], otherwise: tuple[str, ...] | None) -> tuple[Disk, ...] | None:
    """The physical disks; `disk_places` says what lies on each, and `otherwise` what is said of those not in it."""
    names = host.names(BLOCK)
    if names is None:
        return None
    disks: list[Disk] = []
    for name in names:
        target = host.link(f"{BLOCK}/{name}") if DISK_NAME.fullmatch(name) else None
        if _is_physical(name, target) and len(disks) < MAX_DISKS:
            disks.append(_disk(host, name, target or "", disk_places.get(name, otherwise)))
    return tuple(disks)


def read_raids(host: Host) -> tuple[Raid, ...] | None:
    """The software RAID arrays; None when block devices are not listed."""
    names = host.names(BLOCK)
    if names is None:
        return None
    arrays = [name for name in names if _RAID_NAME.fullmatch(name)][:MAX_DISKS]
    return tuple(_raid(host, name) for name in arrays)


def _raid(host: Host, name: str) -> Raid:
    folder = f"{BLOCK}/{name}/md"
    level, state, action = (
        neutral(word, 24) if (word := host.word(f"{folder}/{file}")) else None for file in ("level", "array_state", "sync_action")
    )
    disks = whole((host.word(f"{folder}/raid_disks") or "").partition(" ")[0])  # "4 (3)" while it is reshaped
    return Raid(name, level, disks, host.number(f"{folder}/degraded"), state, action)


def _is_physical(name: str, target: str | None) -> bool:
    if target is None:
        return PHYSICAL_NAME.fullmatch(name) is not None
    return "/virtual/" not in target or "/nvme-subsystem/" in target


def _disk(host: Host, name: str, target: str, holds: tuple[str, ...] | None) -> Disk:
    folder = f"{BLOCK}/{name}"
    address = address_in(target) or (_nvme_address(host, name, target) if name.startswith("nvme") else "")
    sectors, removable, rotational = (
        host.number(f"{folder}/size"),
        host.number(f"{folder}/removable"),
        host.number(f"{folder}/queue/rotational"),
    )
    return Disk(
        name=name,
        transport=_transport(name, target),
        model=_model(host, folder),
        size_bytes=None if sectors is None or sectors < 0 else sectors * 512,
        removable=None if removable is None else removable == 1,
        rotational=None if rotational is None else rotational == 1,
        read_ahead_kb=host.number(f"{folder}/queue/read_ahead_kb"),
        scheduler=_scheduler(host, folder),
        pci_address=address if target else None,
        numa_node=locality(host, address)[0] if address else None,
        holds=holds,
    )


def _transport(name: str, target: str) -> str | None:
    for part, transport in _TRANSPORTS:
        if part in target:
            return transport
    named = "nvme" if name.startswith("nvme") else "scsi" if name.startswith("sd") else None
    return named or ("virtual" if target else None)


def _nvme_address(host: Host, name: str, target: str) -> str:
    """The controller of a drive with multipath, which the kernel places under virtual devices; "" when it has several."""
    subsystem = re.search(r"/(nvme-subsys[0-9]{1,6})/", target)
    if not subsystem:
        return ""
    names = host.names(f"/sys/class/nvme-subsystem/{subsystem[1]}") or ()
    controllers = [other for other in names if re.fullmatch(r"nvme[0-9]{1,6}", other)]
    if len(controllers) != 1:
        host.refuse(f"{BLOCK}/{name}/device/address", f"{len(controllers)} controllers lead to this drive")
        return ""
    return address_in(host.word(f"/sys/class/nvme/{controllers[0]}/address") or "")


def _model(host: Host, folder: str) -> str | None:
    model = host.word(f"{folder}/device/model")
    if model is None:
        return "" if host.exists(f"{folder}/device/model") is False else None
    return neutral(model, 80)


def _scheduler(host: Host, folder: str) -> str | None:
    """The word in brackets of ``none [mq-deadline] kyber``; a lone ``none`` stands without."""
    word = host.word(f"{folder}/queue/scheduler")
    if word is None:
        return None
    match = _SCHEDULER.search(word)
    if match:
        return match[1] or match[2]
    host.refuse(f"{folder}/queue/scheduler", "no scheduler in brackets")
    return None
