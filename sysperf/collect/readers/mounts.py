"""Which file systems are mounted where, as our own process sees it, read once a machine.

Reads   /proc/self/mountinfo  /proc/mounts
"""

from sysperf.host import Host
from sysperf.procfs import mountinfo
from sysperf.procfs.mountinfo import Mount

MOUNTINFO = "/proc/self/mountinfo"
MOUNTS = "/proc/mounts"


def mounts(host: Host) -> tuple[Mount, ...] | None:
    """All mounts in the order in which they were made; None when nothing says."""
    return host.once(MOUNTINFO, lambda: _mounts(host))


def mount_of(host: Host, path: str) -> Mount | None:
    """The mount that holds `path`, which must not lead through symbolic links."""
    return mountinfo.mount_of(mounts(host) or (), path)


def _mounts(host: Host) -> tuple[Mount, ...] | None:
    text = host.text(MOUNTINFO)
    if text is not None:
        return mountinfo.parse(text)
    older = host.text(MOUNTS)
    return None if older is None else mountinfo.parse_mounts(older)
