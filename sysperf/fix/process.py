"""Settings of a running process, thread by thread: CPUs, priority, I/O class, and where its pages are.

Kernel  https://man7.org/linux/man-pages/man2/sched_setaffinity.2.html  https://man7.org/linux/man-pages/man2/setpriority.2.html
        https://man7.org/linux/man-pages/man2/ioprio_set.2.html  https://man7.org/linux/man-pages/man2/migrate_pages.2.html

A value is that of the main thread, then the threads that differ: ``0-7 1235=0 1236=1``.
"""

from __future__ import annotations

import errno
import os
from collections import Counter

from sysperf.fix.target import Target
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.knob import Knob
from sysperf.procfs.numa_maps import NumaMaps
from sysperf.procfs.stat import parse as parse_stat
from sysperf.procfs.status import CAP_SYS_NICE, Status
from sysperf.startup import lazy

MAX_THREADS = 20_000
_PASSES = 8
_OTHER = lazy(r"([1-9][0-9]{0,9})=(\S+)")
_MIN_SHARE = 0.05
_MIN_SHARE_WITH_FILES = 0.2


def start_time(host: Host, pid: int) -> int:
    """Return when a process started, in clock ticks since boot: tells it from a later one of the same number. Raises OSError."""
    text = host.text(f"/proc/{pid}/stat")
    if text is None:
        raise ProcessLookupError(errno.ESRCH, "the process has ended")
    stat = parse_stat(text)
    if stat is None:
        raise OSError(errno.EIO, "the state of the process can not be read")
    return stat.start_ticks


class Threads(Target):
    """One setting of all threads of a process."""

    def __init__(self, host: Host, knob: Knob, pid: int) -> None:
        self.host, self.knob, self.pid = host, knob, pid
        self.path = f"{knob.path} of process {pid}"
        self.start_time = start_time(host, pid)

    def read(self) -> str:
        """The value of the main thread and of those that differ."""
        values = {tid: value for tid in self._tids() if (value := self._get(tid)) is not None}
        if self.pid not in values:
            raise ProcessLookupError(errno.ESRCH, "the process has ended")
        main = values.pop(self.pid)
        return " ".join((main, *(f"{tid}={value}" for tid, value in values.items() if value != main)))

    def write(self, value: str) -> None:
        """Set it for every thread, those that start meanwhile too; threads that a value names get their own."""
        main, others = _parts(value)
        done: set[int] = set()
        for _ in range(_PASSES):
            fresh = [tid for tid in self._tids() if tid not in done]
            if not fresh:
                return
            for tid in fresh:
                self._try(tid, others.get(tid, main))
            done.update(fresh)

    def same(self, value: str, other: str) -> bool:
        """Whether two values are one for the threads that live."""
        tids = set(self._tids())
        return self._living(value, tids) == self._living(other, tids)

    def between(self, now: str, before: str, after: str) -> bool:
        """Whether every thread that lives has one of two values: a process that set or restored them was killed half-way."""
        tids = self._tids()
        earlier, later, current = _parts(before), _parts(after), _parts(now)
        return all(_of(current, tid, self.pid) in (_of(earlier, tid, self.pid), _of(later, tid, self.pid)) for tid in tids)

    def problem(self) -> str:
        """Why it can not be set here, or not be taken back."""
        if os.geteuid() and os.stat(f"/proc/{self.pid}").st_uid != os.geteuid():
            return "the process belongs to another user: only root may"
        return self._no_way_back()

    def _no_way_back(self) -> str:
        return ""

    def _living(self, value: str, tids: set[int]) -> tuple[str, dict[int, str]]:
        main, others = _parts(value)
        return main, {tid: setting for tid, setting in others.items() if tid in tids and setting != main}

    def _tids(self) -> list[int]:
        if start_time(self.host, self.pid) != self.start_time:
            raise ProcessLookupError(errno.ESRCH, "the process has ended")
        return [int(name) for name in self.host.names(f"/proc/{self.pid}/task", MAX_THREADS) or ()]

    def _try(self, tid: int, value: str) -> None:
        try:
            self._set(tid, value)
        except ProcessLookupError:
            if tid == self.pid:
                raise

    def _get(self, tid: int) -> str | None:
        try:
            return self._value(tid)
        except ProcessLookupError:
            return None

    def _value(self, tid: int) -> str:
        raise NotImplementedError

    def _set(self, tid: int, value: str) -> None:
        raise NotImplementedError


class Cpus(Threads):
    """CPUs that the threads may use."""

    def refuses(self, value: str) -> str:
        """The kernel leaves out CPUs that are offline or not there, and says so only where none is left."""
        online = self.host.cpus("/sys/devices/system/cpu/online")
        missing = CpuSet.parse(value) - online if online else None
        return f"CPU {missing} is not online here: {online} are" if missing else ""

    def _value(self, tid: int) -> str:
        return str(CpuSet(os.sched_getaffinity(tid)))

    def _set(self, tid: int, value: str) -> None:
        os.sched_setaffinity(tid, list(CpuSet.parse(value)))


class Nice(Threads):
    """Nice value; Linux has one for each thread."""

    def _value(self, tid: int) -> str:
        return str(os.getpriority(os.PRIO_PROCESS, tid))

    def _set(self, tid: int, value: str) -> None:
        os.setpriority(os.PRIO_PROCESS, tid, int(value))

    def _no_way_back(self) -> str:
        """Everybody may give up priority; to get it back takes a right (`can_nice` in the kernel)."""
        if _may_raise_priority(self.host):
            return ""
        import resource  # noqa: PLC0415 - only those who are not root ask

        least = 20 - resource.prlimit(self.pid, resource.RLIMIT_NICE)[0]
        main, others = _parts(self.read())
        lowest = min(map(int, (main, *others.values())))
        who = "root" if os.geteuid() else "root outside of this container"
        return "" if lowest >= least else f"only {who} could set it back to {lowest}"


def _may_raise_priority(host: Host) -> bool:
    """Whether we have CAP_SYS_NICE of the machine, which a container's root may lack, and that of a user namespace always does."""
    of_the_machine = (host.word("/proc/self/uid_map") or "").split() == ["0", "0", "4294967295"]
    return of_the_machine and Status(host.text("/proc/self/status") or "").has_capability(CAP_SYS_NICE) is True


class IoClass(Threads):
    """I/O scheduling class, as ionice shows it: ``best-effort:2`` where the level is not the default."""

    def _value(self, tid: int) -> str:
        from ctypes import c_int  # noqa: PLC0415 - 4 ms

        from sysperf.host.syscalls import syscall  # noqa: PLC0415 - ctypes costs 4 ms

        answer = syscall("ioprio_get", c_int(_ONE_THREAD), c_int(tid))
        name, level = _CLASSES[(answer >> _CLASS_SHIFT) & 3], answer & 7
        return name if level == _DEFAULT_LEVEL.get(name, level) else f"{name}:{level}"

    def _set(self, tid: int, value: str) -> None:
        from ctypes import c_int  # noqa: PLC0415 - 4 ms

        from sysperf.host.syscalls import syscall  # noqa: PLC0415 - ctypes costs 4 ms

        name, _, level = value.partition(":")
        number = int(level or _DEFAULT_LEVEL.get(name, 0))
        syscall("ioprio_set", c_int(_ONE_THREAD), c_int(tid), c_int((_CLASSES.index(name) << _CLASS_SHIFT) | number))


_ONE_THREAD = 1
_CLASS_SHIFT = 13
_CLASSES = ("none", "realtime", "best-effort", "idle")
_DEFAULT_LEVEL = {"realtime": 4, "best-effort": 4}
"""The others have no level, though old kernels report one of "none", and ionice sets one of "idle"."""


class Pages(Target):
    """The NUMA nodes on which the memory of a process is. Moving it is no setting: afterwards pages come and go as before."""

    exact = False

    def __init__(self, host: Host, knob: Knob, pid: int) -> None:
        self.host, self.knob, self.pid = host, knob, pid
        self.path = f"memory of process {pid}"
        self.start_time = start_time(host, pid)

    def read(self) -> str:
        """The nodes that hold at least 5 % of its own memory, or 20 % with the files that it maps.

        Libraries are where another program happened to load them first: where it has its memory they do not tell.
        """
        text = self.host.text(f"/proc/{self.pid}/numa_maps", limit=64 << 20)
        if text is None:
            raise OSError(self.host.sources[-1].error or "numa_maps can not be read")
        maps = NumaMaps(text)
        own, every = _with_share(maps.own_by_node, _MIN_SHARE), _with_share(maps.by_node, _MIN_SHARE_WITH_FILES)
        return str(CpuSet({*own, *every}))

    def write(self, value: str) -> None:
        """Move every page that can be moved."""
        import ctypes  # noqa: PLC0415 - 4 ms

        from sysperf.host.syscalls import syscall  # noqa: PLC0415 - as above

        if start_time(self.host, self.pid) != self.start_time:
            raise ProcessLookupError(errno.ESRCH, "the process has ended")
        here, there = CpuSet.parse(self.read()), CpuSet.parse(value)
        words = max(here | there, default=0) // _BITS + 1
        masks = [(ctypes.c_ulong * words)(*_words(nodes, words)) for nodes in (here - there, there)]
        if here - there:
            syscall("migrate_pages", ctypes.c_int(self.pid), ctypes.c_ulong(words * _BITS + 1), *masks)

    def fulfils(self, now: str, value: str) -> bool:
        """Whether all nodes that hold its memory are among these: nothing would be moved."""
        return CpuSet.parse(now).issubset(CpuSet.parse(value))

    def took(self, read: str, value: str) -> bool:
        """Whether memory is there now; pages that cannot be moved (locked, shared) stay where they are."""
        return bool(CpuSet.parse(read) & CpuSet.parse(value))

    def refuses(self, value: str) -> str:
        """The kernel leaves out nodes that the process may not use, and says nothing."""
        allowed = Status(self.host.text(f"/proc/{self.pid}/status") or "").nodes
        outside = CpuSet.parse(value) - allowed if allowed else None
        return f"the process may not use node {outside}: it may use {allowed}" if outside else ""

    def problem(self) -> str:
        """Why it can not be done here."""
        owner = os.stat(f"/proc/{self.pid}").st_uid
        return "" if os.geteuid() in (0, owner) else "the process belongs to another user: only root may"


_BITS = 64


def _with_share(pages: Counter[int], share: float) -> set[int]:
    least = max(1, pages.total() * share)
    return {node for node, count in pages.items() if count >= least}


def _words(nodes: CpuSet, words: int) -> list[int]:
    bits = sum(1 << node for node in nodes)
    return [(bits >> (_BITS * index)) & ((1 << _BITS) - 1) for index in range(words)]


def _of(value: tuple[str, dict[int, str]], tid: int, main: int) -> str:
    return value[0] if tid == main else value[1].get(tid, value[0])


def _parts(value: str) -> tuple[str, dict[int, str]]:
    main, *rest = value.split(" ")
    return main, {int(match[1]): match[2] for word in rest if (match := _OTHER.fullmatch(word))}
