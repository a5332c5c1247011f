"""The mounts that hold root, tmp, home and the working directory, and the room on them.

Reads   /proc/self/mountinfo (older captures: /proc/mounts)  statvfs() of local file systems
Kernel  https://docs.kernel.org/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts
"""

import os

from sysperf.collect.readers import mounts
from sysperf.collect.readers.home import home_of
from sysperf.collect.storage.filesystems import LOCAL
from sysperf.collect.storage.records import Space
from sysperf.host import Host
from sysperf.model.text import neutral
from sysperf.procfs import mountinfo

Places = dict[str, mountinfo.Mount | None]


def find_places(host: Host) -> Places:
    """The mounts that hold root, tmp, home and the working directory."""
    home = home_of(host)
    return {
        "root": mounts.mount_of(host, "/"),
        "tmp": _holder(host, "tmp", os.environ.get("TMPDIR", "/tmp")),  # noqa: S108 - looked at, not written to
        "home": _holder(host, "home", home) if home else None,
        "cwd": _holder(host, "cwd", ""),
    }


def _holder(host: Host, name: str, path: str) -> mountinfo.Mount | None:
    """The mount that holds a place; its mount point is all that is recorded."""
    point = host.call(f"mount-of:{name}", lambda: _point_of(host, path or os.getcwd()), str)
    return mounts.mount_of(host, point) if isinstance(point, str) else None


def _point_of(host: Host, path: str) -> str:
    """The mount point that holds a path. Links are followed one by one, and never on a network."""
    if not path.startswith("/"):
        raise OSError("there is no such folder")
    todo, done, links = path.split("/")[::-1], "", 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        here = f"{done}/{part}"
        target = _link(host, here)
        if target is None:
            done = here
            continue
        links += 1
        if links > 40:
            raise OSError("too many links")
        done = "" if target.startswith("/") else done
        todo.extend(target.split("/")[::-1])
    holder = mounts.mount_of(host, done or "/")
    if holder is None:
        raise OSError("no mount holds it")
    return holder.point


def _link(host: Host, path: str) -> str | None:
    holder = mounts.mount_of(host, path)
    if holder is None or holder.fstype not in LOCAL:
        return None
    try:
        return os.readlink(path)
    except OSError:
        return None


def read_spaces(host: Host, places: Places) -> tuple[Space, ...]:
    """The room on each local file system that holds a place."""
    places_by_mount: dict[str, list[str]] = {}
    local = {mount.point: mount for mount in places.values() if mount is not None and mount.fstype in LOCAL}
    for name, mount in places.items():
        if mount is not None and mount.point in local:
            places_by_mount.setdefault(mount.point, []).append(name)
    return tuple(_space(host, local[point], tuple(names)) for point, names in places_by_mount.items())


def _space(host: Host, mount: mountinfo.Mount, names: tuple[str, ...]) -> Space:
    sizes = host.space(mount.point) or {}
    read_only = sizes.get("read_only")
    return Space(
        path=neutral(mount.point, 4096),
        holds=names,
        fstype=mount.fstype,
        total_bytes=sizes.get("total_bytes"),
        free_bytes=sizes.get("free_bytes"),
        inodes=sizes.get("files"),
        inodes_free=sizes.get("files_free"),
        read_only=None if read_only is None else bool(read_only),
    )
