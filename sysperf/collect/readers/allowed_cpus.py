"""The cpuset of this process: the CPUs and memory nodes that an administrator, a container or a batch system left it.

Reads   /proc/self/{status,cgroup,cpuset,mountinfo}  /proc/mounts
        MOUNT/GROUP/{cpuset.cpus.effective,cpuset.effective_cpus,cpuset.cpus,cpus}  /sys/devices/system/node/online
        MOUNT/GROUP/{cpuset.mems.effective,cpuset.effective_mems,cpuset.mems,mems}
Kernel  https://docs.kernel.org/admin-guide/cgroup-v2.html#cpuset
        https://docs.kernel.org/admin-guide/cgroup-v1/cpusets.html

The hierarchy is found by where it is mounted and need not be at /sys/fs/cgroup. The nearest group, upwards from the
process's own, that has the file decides.
"""

from sysperf.collect.readers.cpu_topology import online_cpus
from sysperf.collect.readers.mounts import MOUNTINFO, MOUNTS, mounts
from sysperf.collect.readers.unreadable import is_unreadable
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.procfs.cgroup import V2, group_paths
from sysperf.procfs.mountinfo import Mount, holds

STATUS = "/proc/self/status"
CGROUP = "/proc/self/cgroup"
CPUSET = "/proc/self/cpuset"
NODES_ONLINE = "/sys/devices/system/node/online"
ALLOWED = (STATUS, CPUSET, CGROUP, MOUNTINFO, MOUNTS)
"""What decides which CPUs and nodes a process may use, as `fact` wants it."""

MAX_DEPTH = 64

FILES = {
    # how the hierarchy is mounted: its files of CPUs and of memory nodes, the effective set first
    "cpuset": (("effective_cpus", "cpus"), ("effective_mems", "mems")),
    "v1": (("cpuset.effective_cpus", "cpuset.cpus"), ("cpuset.effective_mems", "cpuset.mems")),
    "v2": (("cpuset.cpus.effective",), ("cpuset.mems.effective",)),
}


def allowed(host: Host) -> tuple[CpuSet | None, CpuSet | None]:
    """(CPUs, memory nodes) that this process may use; None where nothing says. They may name what is offline."""
    status = host.pairs(STATUS) or {}
    cpus, mems = (_listed(host, status.get(f"{name}_allowed_list")) for name in ("Cpus", "Mems"))
    if cpus and mems:
        return cpus, mems  # the process's own mask lies inside its cpuset
    by_cpuset = allowed_by_cpuset(host)
    return cpus or by_cpuset[0], mems or by_cpuset[1]


def allowed_by_cpuset(host: Host) -> tuple[CpuSet | None, CpuSet | None]:
    """(CPUs, memory nodes) that the cpuset of this process leaves it; None where nothing says.

    The sets may name CPUs that are offline. The root group without files of its own forbids nothing.
    """
    name = host.word(CPUSET)
    for kind, mount in hierarchies(host):
        group = _group(host, kind) or name
        sets = _nearest(host, mount, group, kind) if group and ".." not in group.split("/") else (None, None)
        if sets != (None, None):
            return sets
    if name == "/":
        return online_cpus(host), host.cpus(NODES_ONLINE)
    return None, None


def hierarchies(host: Host) -> list[tuple[str, Mount]]:
    """(kind, mount) of each mounted hierarchy that can hold cpusets, the older kinds first.

    A kernel that has mounted the controller in an old hierarchy has none of it in the new one.
    """
    kinds = [(_kind(mount), mount) for mount in mounts(host) or ()]
    return sorted((hierarchy for hierarchy in kinds if hierarchy[0]), key=lambda hierarchy: hierarchy[0] == "v2")


def _listed(host: Host, text: str | None) -> CpuSet | None:
    try:
        return CpuSet.parse(text) if text else None
    except ValueError as error:
        host.refuse(STATUS, str(error)[:200])
        return None


def _kind(mount: Mount) -> str:
    if mount.fstype == "cpuset" or (mount.fstype == "cgroup" and mount.options >= {"cpuset", "noprefix"}):
        return "cpuset"
    if mount.fstype == "cgroup" and "cpuset" in mount.options:
        return "v1"
    return "v2" if mount.fstype == "cgroup2" else ""


def _group(host: Host, kind: str) -> str | None:
    """The process's group in a hierarchy of this kind."""
    return group_paths(host.text(CGROUP) or "").get(V2 if kind == "v2" else "cpuset")


def _nearest(host: Host, mount: Mount, group: str, kind: str) -> tuple[CpuSet | None, CpuSet | None]:
    """The sets of the nearest group, upwards, that has them."""
    cpus_files, mems_files = FILES[kind]
    if holds(mount.root, group):  # a container sees the hierarchy from its own group on
        group = group[len(mount.root) :]
    parts = [part for part in group.split("/") if part][:MAX_DEPTH]
    folders = ["/".join((mount.point.rstrip("/"), *parts[:depth])) for depth in range(len(parts), -1, -1)]
    return _first(host, folders, cpus_files), _first(host, folders, mems_files)


def _first(host: Host, folders: list[str], names: tuple[str, ...]) -> CpuSet | None:
    """The first of these sets that is not empty; None, too, where one before it is there and cannot be read."""
    for path in (f"{folder}/{name}" for folder in folders for name in names):
        cpus = host.cpus(path)
        if cpus or (cpus is None and is_unreadable(host, path)):
            return cpus
    return None
