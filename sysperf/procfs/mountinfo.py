"""/proc/PID/mountinfo and the older /proc/mounts: which file systems are mounted where.

Kernel  https://docs.kernel.org/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts
"""

from __future__ import annotations

from collections.abc import Callable

from sysperf.model.record import Record
from sysperf.startup import lazy

MAX_MOUNTS = 20_000
"""Mounts that are looked at. The kernel's own limit for a namespace is 100,000 (fs.mount-max)."""

_OCTAL = lazy(r"\\([0-7]{3})")


class Mount(Record):
    """One mounted file system. `root` is the folder of it that is visible at `point`."""

    point: str
    fstype: str
    options: frozenset[str]
    """Those of the mount and those of the file system."""
    root: str = "/"
    source: str = ""
    device: str = ""
    own_options: tuple[str, ...] = ()
    """Those of the mount alone, in their order."""


def parse(text: str) -> tuple[Mount, ...]:
    """All mounts of /proc/PID/mountinfo in the order in which they were made. Lines of another form are left out."""
    return _each(text, _mountinfo)


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """The same for /proc/mounts, which tells neither roots nor devices."""
    return _each(text, _mounts)


def holds(folder: str, path: str) -> bool:
    """Whether `path` is `folder` or below it."""
    return folder in ("/", path) or path.startswith(f"{folder}/")


def mount_of(mounts: tuple[Mount, ...], path: str) -> Mount | None:
    """The mount that holds `path`, which must not lead through symbolic links."""
    best: Mount | None = None
    for mount in mounts:
        if holds(mount.point, path) and (best is None or len(mount.point) >= len(best.point)):
            best = mount  # of two at the same point, the later one hides the earlier
    return best


def _each(text: str, parse_line: Callable[[str], Mount | None]) -> tuple[Mount, ...]:
    parsed = (parse_line(line) for line in text.splitlines()[:MAX_MOUNTS])
    return tuple(mount for mount in parsed if mount is not None)


def _mountinfo(line: str) -> Mount | None:
    """``36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda rw``."""
    try:
        _, _, device, root, point, options, rest = line.split(" ", 6)
        fstype, source, *more = f" {rest}".partition(" - ")[2].split(" ")  # the optional fields before it have no fixed number
    except ValueError:
        return None
    every = frozenset(",".join((options, *more)).split(","))
    return Mount(_plain(point), fstype, every, _plain(root), _plain(source), device, tuple(options.split(",")))


def _mounts(line: str) -> Mount | None:
    """``/dev/sda /point ext4 rw,noatime 0 0``."""
    try:
        source, point, fstype, options, *_ = line.split(" ")
    except ValueError:
        return None
    return Mount(_plain(point), fstype, frozenset(options.split(",")), source=_plain(source), own_options=tuple(options.split(",")))


def _plain(text: str) -> str:
    """Blanks, tabs, newlines and backslashes are written as ``\\040``."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8) & 0xFF), text) if "\\" in text else text
