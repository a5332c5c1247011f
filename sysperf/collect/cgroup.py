"""cgroup: the CPU time, memory and processes that our group may use, and whether it ran into its limits.

A limit holds for a group and all below it, so each fact is taken from the level that binds. Groups above a container's
own are not visible from inside it.

Reads   /proc/<pid>/cgroup  /proc/self/mountinfo
        v2: <group>/{cpu.max,cpu.stat,memory.max,memory.high,memory.current,memory.stat,memory.events,pids.max,*.pressure}
        v1: <group>/{cpu.cfs_quota_us,cpu.cfs_period_us,cpu.stat,memory.limit_in_bytes,memory.usage_in_bytes,…,pids.max}
Kernel  https://docs.kernel.org/admin-guide/cgroup-v2.html
        https://docs.kernel.org/scheduler/sched-bwc.html
        https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

from sysperf.collect.readers.allowed_cpus import allowed_by_cpuset
from sysperf.collect.readers.mounts import mounts
from sysperf.collect.readers.pressure import waited
from sysperf.collect.readers.unreadable import is_unreadable
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record, fact, joined
from sysperf.model.text import HIDDEN, neutral
from sysperf.procfs.cgroup import cpus_of_quota, group_paths, limit, stopped_us
from sysperf.procfs.mountinfo import Mount
from sysperf.procfs.numbers import whole

GROUP = "/proc/*/cgroup"
V2 = 2
MAX_LEVELS = 64
MAX_GROUPS = 4_096

_FS = "/sys/fs/cgroup/*"


class Cgroup(Record):
    """What a process's group may use, and how often it wanted more. Counters run since the group was made."""

    path: Annotated[str | None, fact("the group, below the mount point of the hierarchy that limits CPU time", GROUP)] = None
    version: Annotated[int | None, fact("the cgroup version that limits CPU time: 1 or 2", "/proc/self/mountinfo", "/proc/mounts")] = None
    cpu_quota: Annotated[
        float | None,
        fact("CPUs' worth of time that the group may use; 0 is no quota", f"{_FS}cpu.max", f"{_FS}cpu.cfs_quota_us", "*/cpu.max", GROUP),
    ] = None
    nr_periods: Annotated[
        int | None, fact("periods in which the group with a quota wanted to run", f"{_FS}cpu.stat", "*/cpu.stat", GROUP)
    ] = None
    nr_throttled: Annotated[
        int | None, fact("periods in which it used up its quota and was stopped", f"{_FS}cpu.stat", "*/cpu.stat", GROUP)
    ] = None
    throttled_us: Annotated[
        int | None, fact("time for which its threads were stopped, summed over CPUs", f"{_FS}cpu.stat", "*/cpu.stat", GROUP)
    ] = None
    cpuset: Annotated[
        CpuSet | None,
        fact("CPUs that the cpuset of our own group allows", f"{_FS}cpuset.cpus.effective", f"{_FS}cpuset.effective_cpus", GROUP),
    ] = None
    memory_limit_bytes: Annotated[
        int | None,
        fact(
            "memory above which the group is reclaimed and then killed; 0 is no limit",
            f"{_FS}memory.max",
            f"{_FS}memory.limit_in_bytes",
            GROUP,
        ),
    ] = None
    memory_high_bytes: Annotated[
        int | None, fact("memory above which the group is slowed down; 0 is no limit", f"{_FS}memory.high", GROUP)
    ] = None
    memory_used_bytes: Annotated[
        int | None,
        fact(
            "memory of the limited group without file cache that is easily dropped",
            f"{_FS}memory.current",
            f"{_FS}memory.usage_in_bytes",
            GROUP,
        ),
    ] = None
    memory_oom_kills: Annotated[
        int | None, fact("processes killed for the group's limit", f"{_FS}memory.events", f"{_FS}memory.oom_control", GROUP)
    ] = None
    memory_high_events: Annotated[int | None, fact("how often it was slowed down for memory.high", f"{_FS}memory.events", GROUP)] = None
    memory_max_events: Annotated[
        int | None, fact("how often it reached its limit", f"{_FS}memory.events", f"{_FS}memory.failcnt", GROUP)
    ] = None
    pids_limit: Annotated[int | None, fact("threads and processes that the group may have; 0 is no limit", f"{_FS}pids.max", GROUP)] = None
    pids_current: Annotated[int | None, fact("threads and processes of the group with that limit", f"{_FS}pids.current", GROUP)] = None
    cpu_pressure: Annotated[
        float | None, fact("share of the last 60 s in which tasks of the group waited for a CPU", f"{_FS}cpu.pressure", GROUP)
    ] = None
    memory_pressure: Annotated[
        float | None, fact("share of the last 60 s in which all tasks of the group waited for memory", f"{_FS}memory.pressure", GROUP)
    ] = None


OWN_UNITS = ("sysperf-agent.service", "sysperf-audit.service")


def collect(host: Host) -> Cgroup:
    """Read the group of our own process."""
    group = read_group(host, "self") or Cgroup(path=None, version=None)
    return msgspec.structs.replace(group, cpuset=allowed_by_cpuset(host)[0])


def read_group(host: Host, pid: int | str) -> Cgroup | None:
    """The group of a process; None when it cannot be read."""
    return Groups(host).of(pid)


class Groups:
    """The groups of any process, each read once."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._seen: dict[str, Cgroup] = {}
        self._trees: tuple[dict[str, Mount], Mount | None] | None = None

    def of(self, pid: int | str) -> Cgroup | None:
        """The group of a process by its number or ``self``."""
        path = f"/proc/{pid}/cgroup"
        text = self._host.text(path)
        if text is None:
            return _no_groups() if self._host.exists("/proc/self/cgroup") is False and self._host.exists("/proc/self") else None
        if text not in self._seen:
            if len(self._seen) >= MAX_GROUPS:
                self._seen.clear()
            self._seen[text] = self._read(path, text)
        return self._seen[text]

    def _read(self, source: str, text: str) -> Cgroup:
        paths = {controller: _around(path) for controller, path in group_paths(text).items()}
        cpu = self._levels(source, paths, "cpu")
        return joined(
            Cgroup(path=neutral(paths.get("cpu", paths.get("", ""))), version=cpu.version if cpu else None),
            _cpu(self._host, cpu),
            _memory(self._host, self._levels(source, paths, "memory")),
            _pids(self._host, self._levels(source, paths, "pids")),
        )

    def _levels(self, source: str, paths: dict[str, str], controller: str) -> _Levels | None:
        """The folders of a group and of all above it that we can see; None when nobody can say."""
        if self._trees is None:
            self._trees = _hierarchies(mounts(self._host) or ())
        first, second = self._trees
        if controller in paths:
            return self._below(source, first.get(controller), paths[controller], 1, controller)
        if "" in paths:
            return self._below(source, second, paths[""], V2, controller)
        return _Levels(1, ())  # a kernel or container without this controller limits nothing

    def _below(self, source: str, mount: Mount | None, path: str, version: int, controller: str) -> _Levels | None:
        if mount is None:
            self._host.refuse(source, f"no cgroup file system with {controller} is mounted here")
            return None
        below = _below(mount.root, path)
        if below is None:
            self._host.refuse(source, f"the group {neutral(path, 80)} is not visible from here")
            return None
        base = mount.point.rstrip("/")
        # A capture need not show what the kernel never makes: the hierarchy's own root limits nothing.
        bare = version == V2 and below and mount.root == "/" and not self._host.live
        top = 1 if bare and not self._host.exists(f"{base}/{controller}.max") else 0
        folders = ["/".join((base, *below[:depth])) for depth in range(len(below), top - 1, -1)]
        return _Levels(version, tuple(folders[:MAX_LEVELS]))


class _Levels(Record):
    """A group's folder and those above it, nearest first."""

    version: int
    folders: tuple[str, ...]


def throttled_share(before: Cgroup | None, after: Cgroup | None) -> float | None:
    """Return the share of the quota's periods between two readings of a group in which it was stopped."""
    if before is None or after is None or before.path != after.path:
        return None
    if before.nr_periods is None or after.nr_periods is None or before.nr_throttled is None or after.nr_throttled is None:
        return None
    periods = after.nr_periods - before.nr_periods
    if periods > 0:
        return (after.nr_throttled - before.nr_throttled) / periods
    return 0.0 if after.cpu_quota == 0 else None  # of no period, only a group without a quota is known not to be stopped


def slowed_for_memory(before: Cgroup | None, after: Cgroup | None) -> int | None:
    """Return how often a group was slowed down for memory.high between two readings."""
    if before is None or after is None or before.path != after.path:
        return None
    first, last = before.memory_high_events, after.memory_high_events
    return None if first is None or last is None else max(0, last - first)


def _no_groups() -> Cgroup:
    """What a kernel without control groups allows: everything."""
    return Cgroup("", None, 0.0, 0, 0, 0, None, 0, 0, None, 0, 0, 0, 0, None)


def _hierarchies(table: tuple[Mount, ...]) -> tuple[dict[str, Mount], Mount | None]:
    """(the v1 hierarchy of each controller, the v2 hierarchy). The first mount of each is the usual one."""
    first: dict[str, Mount] = {}
    second: Mount | None = None
    for mount in table:
        if mount.fstype == "cgroup":
            for controller in {"cpu", "memory", "pids"} & mount.options:
                first.setdefault(controller, mount)
        elif mount.fstype == "cgroup2" and second is None:
            second = mount
    return first, second


def _around(path: str) -> str:
    """The group around the agent's own: what its unit allows it is no limit of this machine."""
    above, _, name = path.rpartition("/")
    return (above or "/") if name in OWN_UNITS else path


def _below(root: str, path: str) -> list[str] | None:
    """The parts of a group's path below the root of a mount; None when it is not below it.

    Both are relative to our cgroup namespace, so either may begin with ``..``.
    """
    base = [part for part in root.split("/") if part]
    parts = [part for part in path.split("/") if part]
    above, rest = parts[: len(base)], parts[len(base) :]
    # Host hides what looks like a key in mountinfo, and a container's id does.
    shape = ".+".join(re.escape(piece) for piece in "/".join(base).split(HIDDEN))
    return rest if re.fullmatch(shape, "/".join(above)) and ".." not in rest else None


# ---------------------------------------------------------------------- controllers


def _cpu(host: Host, levels: _Levels | None) -> Cgroup:
    if levels is None:
        return Cgroup()
    quota = _quota_v2 if levels.version == V2 else _quota_v1
    quotas = [(quota(host, folder), folder) for folder in levels.folders]
    limited = [folder for cpus, folder in quotas if cpus]
    stat = max((_throttling(host, folder) for folder in limited), key=lambda group: group.throttled_us or 0, default=_NEVER)
    pressure = waited(host, f"{levels.folders[0]}/cpu.pressure")[0] if levels.version == V2 else None
    return joined(Cgroup(cpu_quota=_smallest([cpus for cpus, _ in quotas]), cpu_pressure=pressure), stat)


_NEVER = Cgroup(nr_periods=0, nr_throttled=0, throttled_us=0)


def _quota_v2(host: Host, folder: str) -> float | None:
    """``150000 100000`` is 1.5 CPUs, ``max 100000`` and an absent file are 0.0: no quota."""
    words = _setting(host, f"{folder}/cpu.max").split()
    return _quota(host, f"{folder}/cpu.max", words[0], words[1] if len(words) > 1 else "100000") if words else None


def _quota_v1(host: Host, folder: str) -> float | None:
    quota = _setting(host, f"{folder}/cpu.cfs_quota_us")
    if not quota:
        return None
    period = "" if quota in ("max", "-1") else host.word(f"{folder}/cpu.cfs_period_us") or ""
    return _quota(host, f"{folder}/cpu.cfs_quota_us", quota, period)


def _quota(host: Host, path: str, quota_us: str, period_us: str) -> float | None:
    cpus = cpus_of_quota(quota_us, period_us)
    if cpus is None:
        host.refuse(path, f"no quota: {quota_us[:20]!r} of {period_us[:20]!r}")
    return cpus


def _throttling(host: Host, folder: str) -> Cgroup:
    stat = host.pairs(f"{folder}/cpu.stat", " ") or {}
    return Cgroup(nr_periods=whole(stat.get("nr_periods")), nr_throttled=whole(stat.get("nr_throttled")), throttled_us=stopped_us(stat))


def _memory(host: Host, levels: _Levels | None) -> Cgroup:
    if levels is None:
        return Cgroup()
    name = "memory.max" if levels.version == V2 else "memory.limit_in_bytes"
    bound, folder = _binding(host, levels, name)
    if not levels.folders:
        return Cgroup(memory_limit_bytes=0, memory_high_bytes=0, memory_oom_kills=0, memory_high_events=0, memory_max_events=0)
    if levels.version == 1:
        return joined(Cgroup(memory_limit_bytes=bound, memory_high_bytes=0), _memory_v1(host, folder))
    high, _ = _binding(host, levels, "memory.high")
    pressure = waited(host, f"{levels.folders[0]}/memory.pressure")[1]
    return joined(Cgroup(memory_limit_bytes=bound, memory_high_bytes=high, memory_pressure=pressure), _memory_v2(host, folder))


def _memory_v2(host: Host, folder: str) -> Cgroup:
    events = host.pairs(f"{folder}/memory.events", " ") or {}
    return Cgroup(
        memory_used_bytes=_used(host, f"{folder}/memory.current", f"{folder}/memory.stat", "inactive_file"),
        memory_oom_kills=whole(events.get("oom_kill")),
        memory_high_events=whole(events.get("high")),
        memory_max_events=whole(events.get("max")),
    )


def _memory_v1(host: Host, folder: str) -> Cgroup:
    return Cgroup(
        memory_used_bytes=_used(host, f"{folder}/memory.usage_in_bytes", f"{folder}/memory.stat", "total_inactive_file"),
        memory_oom_kills=whole((host.pairs(f"{folder}/memory.oom_control", " ") or {}).get("oom_kill")),
        memory_high_events=0,  # v1 has no memory.high
        memory_max_events=host.number(f"{folder}/memory.failcnt"),
    )


def _used(host: Host, usage: str, stat: str, cache: str) -> int | None:
    """Count as kubelet and docker do: usage without inactive file cache, which goes first."""
    used, parts = host.number(usage), host.pairs(stat, " ")
    if used is None or (parts is None and is_unreadable(host, stat)):
        return None
    return max(0, used - (whole((parts or {}).get(cache)) or 0))


def _pids(host: Host, levels: _Levels | None) -> Cgroup:
    if levels is None:
        return Cgroup()
    bound, folder = _binding(host, levels, "pids.max")
    return Cgroup(pids_limit=bound, pids_current=host.number(f"{folder}/pids.current") if bound else None)


# ---------------------------------------------------------------------- values


def _binding(host: Host, levels: _Levels, name: str) -> tuple[int | None, str]:
    """The smallest limit of this name up the hierarchy (0: none, None: unknown) and the folder that sets it, else our own."""
    limits = [(_limit(host, f"{folder}/{name}"), folder) for folder in levels.folders]
    smallest = _smallest([bound for bound, _ in limits])
    folder = next((folder for bound, folder in limits if bound and bound == smallest), levels.folders[0] if levels.folders else "")
    return None if smallest is None else int(smallest), folder


def _limit(host: Host, path: str) -> int | None:
    text = _setting(host, path)
    bound = limit(text)
    if bound is None and text:
        host.refuse(path, f"no limit: {text[:20]!r}")
    return bound


def _setting(host: Host, path: str) -> str:
    """The text of a control file; ``max`` when this level has no such file, "" when nobody knows."""
    text = host.word(path)
    if text is None:
        return "max" if host.exists(path) is False else ""
    return text


def _smallest(limits: Iterable[float | None]) -> float | None:
    """The smallest limit; 0 when there is none; None when one of them is unknown."""
    least = 0.0
    for bound in limits:
        if bound is None:
            return None
        if bound and (not least or bound < least):
            least = bound
    return least
