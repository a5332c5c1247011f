"""Which file systems are mounted where, as our own process sees it. Shared by the areas that need it, read once a machine.

Reads   /proc/self/mountinfo  /proc/mounts
Kernel  https://docs.kernel.org/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts
"""

from weakref import WeakKeyDictionary

from sysperf.host import Host
from sysperf.model.record import Record
from sysperf.model.snapshot import Source
from sysperf.startup import lazy

MOUNTINFO = "/proc/self/mountinfo"
MOUNTS = "/proc/mounts"
MOST = 20_000
"""Mounts that are looked at. The kernel's own limit for a namespace is 100,000 (fs.mount-max)."""

_OCTAL = lazy(r"\\([0-7]{3})")


class Mount(Record):
    """One mounted file system. `root` is the folder of it that is visible at `point`."""

    point: str
    fstype: str
    options: frozenset[str]
    root: str = "/"
    source: str = ""
    device: str = ""


_READ: "WeakKeyDictionary[Host, tuple[tuple[Mount, ...] | None, tuple[Source, ...]]]" = WeakKeyDictionary()


def mounts(host: Host) -> tuple[Mount, ...] | None:
    """All mounts in the order in which they were made; None when nothing says."""
    if host in _READ:
        found, sources = _READ[host]
        host.sources.extend(sources)  # each area that asks has this evidence
        return found
    before = len(host.sources)
    found = _mounts(host)
    _READ[host] = found, tuple(host.sources[before:])
    return found


def mount_of(host: Host, path: str) -> Mount | None:
    """The mount that holds `path`, which must not lead through symbolic links."""
    best: Mount | None = None
    for mount in mounts(host) or ():
        if holds(mount.point, path) and (best is None or len(mount.point) >= len(best.point)):
            best = mount  # of two at the same point, the later one hides the earlier
    return best


def holds(folder: str, path: str) -> bool:
    """Whether `path` is `folder` or below it."""
    return folder in ("/", path) or path.startswith(f"{folder}/")


def _mounts(host: Host) -> tuple[Mount, ...] | None:
    text, parse = host.text(MOUNTINFO), _mountinfo
    if text is None:
        text, parse = host.text(MOUNTS), _fstab
    if text is None:
        return None
    parsed = (parse(line) for line in text.splitlines()[:MOST])
    return tuple(mount for mount in parsed if mount is not None)


def _mountinfo(line: str) -> Mount | None:
    """``36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda rw``."""
    before, _, after = line.partition(" - ")
    try:
        _, _, device, root, point, options, *_ = before.split(" ")
        fstype, source, *more = after.split(" ")
    except ValueError:
        return None
    return Mount(_plain(point), fstype, frozenset(",".join((options, *more)).split(",")), _plain(root), _plain(source), device)


def _fstab(line: str) -> Mount | None:
    """``/dev/sda /point ext4 rw,noatime 0 0``."""
    try:
        source, point, fstype, options, *_ = line.split(" ")
    except ValueError:
        return None
    return Mount(_plain(point), fstype, frozenset(options.split(",")), source=_plain(source))


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8) & 0xFF), text) if "\\" in text else text
