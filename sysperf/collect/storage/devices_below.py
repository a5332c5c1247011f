"""The disks below a mount: through partitions, LVM, encryption and software RAID.

Reads   /sys/dev/block/*  /sys/block/*/slaves
Kernel  https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-block
"""

from sysperf.collect.storage.filesystems import is_network
from sysperf.collect.storage.places import Places
from sysperf.collect.storage.records import BLOCK
from sysperf.host import Host
from sysperf.procfs import mountinfo
from sysperf.startup import lazy

MAX_DISKS = 128
DEVICE = lazy(r"[0-9]{1,7}:[0-9]{1,7}")
DISK_NAME = lazy(r"[A-Za-z0-9][A-Za-z0-9._!-]{0,63}")
PHYSICAL_NAME = lazy(r"sd[a-z]{1,4}|[vhx]v?d[a-z]{1,3}|nvme[0-9]+n[0-9]+|mmcblk[0-9]+|pmem[0-9]+")
_PARTITION = lazy(r"(?<=[0-9])p[0-9]+$|(?<=[a-z])[0-9]+$")


def disks_of_places(host: Host, places: Places) -> tuple[dict[str, tuple[str, ...]], bool]:
    """({disk name: the places on it}, whether the disk of every place was found)."""
    places_by_disk: dict[str, tuple[str, ...]] = {}
    known: dict[str, tuple[str, ...]] = {}
    complete = bool(places)
    for place, mount in places.items():
        if mount is None:
            complete = False
        elif not is_network(mount.fstype) and mount.fstype != "tmpfs":
            if mount.point not in known:
                known[mount.point] = disks_under(host, mount)
            places_by_disk.update({disk: (*places_by_disk.get(disk, ()), place) for disk in known[mount.point]})
            complete = complete and bool(known[mount.point])
    return places_by_disk, complete


def disks_under(host: Host, mount: mountinfo.Mount) -> tuple[str, ...]:
    """The disks below a mount, through partitions, LVM, encryption and software RAID; empty when not found."""
    if not mount.source.startswith("/dev/") or not DEVICE.fullmatch(mount.device):
        return ()
    name = _block_name(host, mount)
    disks: dict[str, None] = {}
    todo, seen = [name] if name else [], 0
    while todo and seen < MAX_DISKS:
        name, seen = todo.pop(), seen + 1
        slaves = host.names(f"{BLOCK}/{name}/slaves") if name.startswith(("dm-", "md", "bcache")) else None
        if slaves:
            todo.extend(_whole(slave) for slave in slaves if DISK_NAME.fullmatch(slave))
        else:
            disks[name] = None
    return tuple(disks)


def _block_name(host: Host, mount: mountinfo.Mount) -> str:
    """The whole disk's name. btrfs numbers its own devices (0:…): there the source says."""
    if mount.device.startswith("0:"):
        mapped = host.link(mount.source) if mount.source.startswith(("/dev/mapper/", "/dev/disk/")) else None
        return _whole((mapped or mount.source).rpartition("/")[2])
    name = (host.link(f"/sys/dev/block/{mount.device}") or mount.source).rpartition("/")[2]
    return _whole(name) if DISK_NAME.fullmatch(name) else ""


def _whole(name: str) -> str:
    """The disk of a partition: ``nvme0n1`` of ``nvme0n1p2``, ``sda`` of ``sda1``."""
    if name.startswith(("dm-", "md")) or PHYSICAL_NAME.fullmatch(name):
        return name
    whole = _PARTITION.sub("", name)
    return whole if PHYSICAL_NAME.fullmatch(whole) else name
