"""What is known of disks, mounts and the room on them. The records of the area `storage`.

Reads   /proc/self/mountinfo  /sys/block/*
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.pcie.records import PCI
from sysperf.collect.readers.mounts import MOUNTINFO, MOUNTS
from sysperf.model.record import Record, fact

PRESSURE = "/proc/pressure/io"
BLOCK = "/sys/block"
EACH = f"{BLOCK}/*"
READ_AHEAD = "/sys/class/bdi/*/read_ahead_kb"


class Disk(Record):
    """A disk that is hardware, or that a hypervisor shows as hardware."""

    name: Annotated[str, fact("kernel name", BLOCK)]
    transport: Annotated[str | None, fact("nvme, ata, scsi, usb, mmc, virtio or virtual; scsi may be a RAID volume", BLOCK, EACH)]
    model: Annotated[str | None, fact("model name; empty when it has none", f"{EACH}/device/model")] = None
    size_bytes: Annotated[int | None, fact("capacity", f"{EACH}/size")] = None
    removable: Annotated[bool | None, fact("removable medium", f"{EACH}/removable")] = None
    rotational: Annotated[
        bool | None, fact("spinning disk; disks of virtual machines and RAID volumes often say so wrongly", f"{EACH}/queue/rotational")
    ] = None
    read_ahead_kb: Annotated[int | None, fact("data read ahead of a sequential reader, KiB", f"{EACH}/queue/read_ahead_kb")] = None
    scheduler: Annotated[str | None, fact("I/O scheduler in use", f"{EACH}/queue/scheduler")] = None
    pci_address: Annotated[str | None, fact("its controller on PCI; empty when on none", BLOCK, f"{EACH}/device/address")] = None
    numa_node: Annotated[int | None, fact("memory node beside its controller", f"{PCI}/*/numa_node")] = None
    holds: Annotated[
        tuple[str, ...] | None, fact("which of root, tmp, home and cwd lie on it", "/sys/dev/block/*", MOUNTINFO, "mount-of:*")
    ] = None


class Mount(Record):
    """A mounted file system."""

    path: Annotated[str, fact("where it is mounted", MOUNTINFO, MOUNTS)]
    fstype: Annotated[str, fact("kind of file system", MOUNTINFO, MOUNTS)]
    network: Annotated[bool, fact("data comes over a network, or from outside the virtual machine", MOUNTINFO, MOUNTS)] = False
    below: Annotated[str, fact("how the path of a file in it begins: the mount's path and a slash", MOUNTINFO, MOUNTS)] = ""
    options: Annotated[tuple[str, ...], fact("options that matter for speed", MOUNTINFO, MOUNTS)] = ()
    rsize_bytes: Annotated[int | None, fact("largest read of one request (network file systems)", MOUNTINFO, MOUNTS)] = None
    nconnect: Annotated[int | None, fact("connections to the server (NFS); 1 unless given", MOUNTINFO, MOUNTS)] = None
    read_ahead_kb: Annotated[int | None, fact("data read ahead of a sequential reader, KiB (NFS)", READ_AHEAD)] = None
    rotational: Annotated[
        bool | None, fact("a spinning disk lies below it; unknown of network and overlay file systems", f"{EACH}/queue/rotational")
    ] = None
    source: Annotated[str, fact("block device; empty for all else, whose source may name a host", MOUNTINFO, MOUNTS)] = ""
    failed_read_only: Annotated[
        bool | None, fact("mounted to be written to, and made read-only by the kernel since: after an I/O error", MOUNTINFO)
    ] = None
    answers: Annotated[
        bool | None, fact("its server answers within two seconds; asked of network file systems under --deep", "answers:*")
    ] = None


class Space(Record):
    """Room on one local file system that holds root, tmp, home or cwd."""

    path: Annotated[str, fact("where it is mounted", MOUNTINFO)]
    holds: Annotated[tuple[str, ...], fact("which of root, tmp, home and cwd lie on it", MOUNTINFO)]
    fstype: Annotated[str, fact("kind of file system", MOUNTINFO)]
    total_bytes: Annotated[int | None, fact("size", "space:*")] = None
    free_bytes: Annotated[int | None, fact("free for an ordinary user", "space:*")] = None
    inodes: Annotated[int | None, fact("files it can hold; 0 where there is no such limit", "space:*")] = None
    inodes_free: Annotated[int | None, fact("files that can be added", "space:*")] = None
    read_only: Annotated[bool | None, fact("mounted read-only", "space:*")] = None


class Raid(Record):
    """A software RAID array."""

    name: Annotated[str, fact("kernel name", BLOCK)]
    level: Annotated[str | None, fact("raid0, raid1, raid5, …", f"{EACH}/md/level")] = None
    disks: Annotated[int | None, fact("disks that it is made of", f"{EACH}/md/raid_disks")] = None
    degraded: Annotated[int | None, fact("disks that it lacks; unknown of levels that can lack none", f"{EACH}/md/degraded")] = None
    state: Annotated[str | None, fact("clean, active, read-auto, inactive, failed, …", f"{EACH}/md/array_state")] = None
    action: Annotated[str | None, fact("what it does beside its work: idle, resync, recover, check", f"{EACH}/md/sync_action")] = None
