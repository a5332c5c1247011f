"""storage: disks, what is mounted where, room on local file systems, and waiting for disks.

Reads   /proc/self/mountinfo (older captures: /proc/mounts)  /proc/pressure/io  /sys/dev/block/*  /sys/class/bdi/*/read_ahead_kb
        /sys/block/*  /sys/block/*/{size,removable,slaves}  /sys/block/*/queue/{rotational,read_ahead_kb,scheduler}
        /sys/block/*/device/{model,address}  /sys/block/*/md/{level,raid_disks,degraded,array_state,sync_action}
        statvfs() of local file systems
Kernel  https://docs.kernel.org/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts
        https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-block
        https://docs.kernel.org/accounting/psi.html

A network file system whose server is gone makes every call on it wait for ever: none is made there.
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.readers import mounts
from sysperf.collect.readers.home import owner_of_home
from sysperf.collect.readers.mounts import MOUNTINFO, MOUNTS
from sysperf.collect.readers.pressure import waited
from sysperf.collect.storage.devices_below import disks_of_places
from sysperf.collect.storage.disks import read_disks, read_raids
from sysperf.collect.storage.mount_list import list_mounts
from sysperf.collect.storage.places import find_places, read_spaces
from sysperf.collect.storage.records import BLOCK, PRESSURE, Disk, Mount, Raid, Space
from sysperf.host import Host
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral


class Storage(Record):
    """Disks, mounts, room and pressure."""

    disks: Annotated[tuple[Disk, ...] | None, fact("physical disks", BLOCK)] = None
    raids: Annotated[tuple[Raid, ...] | None, fact("software RAID arrays", BLOCK)] = None
    mounts: Annotated[tuple[Mount, ...] | None, fact("mounts that may hold programs or data", MOUNTINFO, MOUNTS)] = None
    spaces: Annotated[
        tuple[Space, ...] | None, fact("room on the local file systems of root, tmp, home and cwd", MOUNTINFO, "mount-of:*")
    ] = None
    home_fstype: Annotated[str | None, fact("file system of the home folder", "mount-of:home")] = None
    home_user: Annotated[int | None, fact("user number of the one whose home folder this is", "home-user")] = None
    pressure_some: Annotated[float | None, fact("share of the last 60 s in which some task waited for I/O", PRESSURE)] = None
    pressure_full: Annotated[float | None, fact("share of the last 60 s in which all tasks waited for I/O", PRESSURE)] = None


def collect(host: Host) -> Storage:
    """Read disks and mounts; ask only local file systems how full they are."""
    table = mounts.mounts(host)
    places = find_places(host) if table else {}
    places_by_disk, complete = disks_of_places(host, places)
    some, full = waited(host, PRESSURE)
    disks = read_disks(host, places_by_disk, () if complete else None)
    spinning = {disk.name: disk.rotational for disk in disks or ()}
    home = places.get("home")
    return Storage(
        disks=disks,
        raids=read_raids(host),
        mounts=list_mounts(host, table, spinning) if table else None,
        spaces=read_spaces(host, places) if table else None,
        home_fstype=neutral(home.fstype, 60) if home else None,
        home_user=owner_of_home(host),
        pressure_some=some,
        pressure_full=full,
    )
