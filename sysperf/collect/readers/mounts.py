"""Which file systems are mounted where, as our own process sees it, read once a machine.

Reads   /proc/self/mountinfo  /proc/mounts
"""

from weakref import WeakKeyDictionary

from sysperf.host import Host
from sysperf.model.snapshot import Source
from sysperf.procfs import mountinfo
from sysperf.procfs.mountinfo import Mount

MOUNTINFO = "/proc/self/mountinfo"
MOUNTS = "/proc/mounts"

_READ: "WeakKeyDictionary[Host, tuple[tuple[Mount, ...] | None, tuple[Source, ...]]]" = WeakKeyDictionary()


def mounts(host: Host) -> tuple[Mount, ...] | None:
    """All mounts in the order in which they were made; None when nothing says."""
    if host in _READ:
        listed, sources = _READ[host]
        host.sources.extend(sources)  # each area that asks has this evidence
        return listed
    before = len(host.sources)
    listed = _mounts(host)
    _READ[host] = listed, tuple(host.sources[before:])
    return listed


def mount_of(host: Host, path: str) -> Mount | None:
    """The mount that holds `path`, which must not lead through symbolic links."""
    return mountinfo.mount_of(mounts(host) or (), path)


def _mounts(host: Host) -> tuple[Mount, ...] | None:
    text = host.text(MOUNTINFO)
    if text is not None:
        return mountinfo.parse(text)
    older = host.text(MOUNTS)
    return None if older is None else mountinfo.parse_mounts(older)
