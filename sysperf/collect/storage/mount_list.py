"""The mounts that may hold people's programs or data, each with the options that matter for speed.

Reads   /proc/self/mountinfo (older captures: /proc/mounts)  /sys/class/bdi/*/read_ahead_kb  /sys/block/*/queue/rotational
Kernel  https://docs.kernel.org/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts
"""

import os
import re
import signal
import time

from sysperf.collect.storage.devices_below import DEVICE, disks_under
from sysperf.collect.storage.filesystems import KERNELS_OWN, is_network
from sysperf.collect.storage.records import Mount
from sysperf.host import Host
from sysperf.model.text import neutral
from sysperf.procfs import mountinfo
from sysperf.startup import lazy

MAX_LISTED = 256
ANSWER_S = 2.0
_OTHERS_OWN = lazy(r"/(?:snap|run|sys|proc|dev|boot|var/snap|var/lib/(?:snapd|docker|containerd|containers|kubelet|lxc|lxd))/.+")
_OPTIONS = lazy(
    r"r[ow]|(?:a|dir)?sync|noac|noatime|relatime|strictatime|hard|soft|fsc|dax|discard|nobarrier|lookupcache=\w{1,9}"
    r"|(?:rsize|wsize|nconnect|max_connect|actimeo|acregmax|vers|minorversion|proto|cache|max_read|data|compress|bsize|msize)=[\w.:+-]{1,24}"
)


def list_mounts(host: Host, table: tuple[mountinfo.Mount, ...], spinning: dict[str, bool | None]) -> tuple[Mount, ...]:
    """The mounts of people's files: not the kernel's own, nor those of containers, snaps and sessions. The last on a path hides others."""
    wanted = {mount.point: mount for mount in table if mount.fstype not in KERNELS_OWN and not _OTHERS_OWN.fullmatch(mount.point)}
    listed = sorted(wanted.values(), key=lambda mount: not is_network(mount.fstype))[:MAX_LISTED]
    return tuple(_mount(host, mount, spinning) for mount in listed)


def _mount(host: Host, mount: mountinfo.Mount, spinning: dict[str, bool | None]) -> Mount:
    path, nfs = neutral(mount.point, 4096), mount.fstype in ("nfs", "nfs4")
    kept = tuple(sorted(option for option in mount.options if _OPTIONS.fullmatch(option)))
    return Mount(
        path=path,
        fstype=neutral(mount.fstype, 60),
        network=is_network(mount.fstype),
        below=path if path.endswith("/") else f"{path}/",
        options=kept,
        rsize_bytes=_option(kept, "rsize"),
        nconnect=(_option(kept, "nconnect") or 1) if nfs else None,
        read_ahead_kb=host.number(f"/sys/class/bdi/{mount.device}/read_ahead_kb") if nfs and DEVICE.fullmatch(mount.device) else None,
        rotational=_rotational(host, mount, spinning),
        source=neutral(mount.source, 200) if mount.source.startswith("/dev/") and not is_network(mount.fstype) else "",
        failed_read_only="rw" in mount.own_options and "ro" in mount.options if mount.device else None,
        answers=_answers(host, mount.point) if host.deep and is_network(mount.fstype) else None,
    )


def _answers(host: Host, path: str) -> bool | None:
    """Whether a file system says how full it is in time. Asked by a process of its own, which a dead server may hold for ever."""
    answer: bool | None = host.call(f"answers:{path}", lambda: _asked_in_time(path), bool)
    return answer


def _asked_in_time(path: str) -> bool:
    quiet = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in (0, 1, 2)]
    asker = os.posix_spawnp("stat", ("stat", "--file-system", path), {"PATH": "/usr/bin:/bin"}, file_actions=quiet, setpgroup=0)
    end = time.monotonic() + ANSWER_S
    while time.monotonic() < end:
        pid, status = os.waitpid(asker, os.WNOHANG)
        if pid:
            if status:
                raise OSError("the file system refuses to say how full it is")
            return True
        time.sleep(0.02)
    os.kill(asker, signal.SIGKILL)  # it ends when the kernel lets it; nobody waits for that
    return False


def _rotational(host: Host, mount: mountinfo.Mount, spinning: dict[str, bool | None]) -> bool | None:
    if mount.fstype == "tmpfs":
        return False
    rotational = [spinning.get(disk) for disk in disks_under(host, mount)]
    return True if True in rotational else None if None in rotational or not rotational else False


def _option(options: tuple[str, ...], name: str) -> int | None:
    for option in options:
        key, _, value = option.partition("=")
        if key == name and re.fullmatch(r"[0-9]{1,12}", value):
            return int(value)
    return None
