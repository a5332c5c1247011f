"""/proc/PID/stat and /proc/PID/task/TID/stat: what the scheduler and the memory manager say of a process or a thread.

Kernel  https://docs.kernel.org/filesystems/proc.html (table 1-4)
"""

from __future__ import annotations

from sysperf.procfs.numbers import whole
from sysperf.startup import lazy

TICKS_PER_S = 100
"""USER_HZ, in which times are counted: 100 on every architecture that PyTorch runs on."""

# Places of the fields behind the name, whose first is the state (field 3 of proc_pid_stat(5)).
_MINOR_FAULTS, _MAJOR_FAULTS = 7, 9
_USER_TICKS, _SYSTEM_TICKS = 11, 12
_ENDED_USER_TICKS, _ENDED_SYSTEM_TICKS = 13, 14
_NICE, _THREADS, _START_TICKS, _RSS_PAGES = 16, 17, 19, 21
_STACK, _LAST_CPU, _POLICY = 25, 36, 38
_MIN_FIELDS = _RSS_PAGES + 1
_FIELDS = lazy(r" [A-Za-z](?: -?[0-9]{1,20})+\s*")


class Stat:
    """The fields that we use. Raises ValueError on a text that is none."""

    __slots__ = (
        "comm",
        "cpu_ticks",
        "ended_children_ticks",
        "group",
        "last_cpu",
        "major_faults",
        "minor_faults",
        "nice",
        "pid",
        "policy",
        "ppid",
        "rss_pages",
        "stack",
        "start_ticks",
        "state",
        "threads",
    )

    def __init__(self, text: str | bytes) -> None:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        head, _, tail = text.rpartition(")")  # a name may hold anything, brackets and blanks too
        pid, opened, self.comm = head.partition(" (")
        number = whole(pid)
        fields = tail.split()
        if number is None or not opened or len(fields) < _MIN_FIELDS or not _FIELDS.fullmatch(tail):
            raise ValueError("not the fields of a process")
        self.pid, self.state = number, fields[0]
        self.ppid, self.group = int(fields[1]), int(fields[2])
        self.minor_faults, self.major_faults = int(fields[_MINOR_FAULTS]), int(fields[_MAJOR_FAULTS])
        self.cpu_ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
        self.ended_children_ticks = int(fields[_ENDED_USER_TICKS]) + int(fields[_ENDED_SYSTEM_TICKS])
        """CPU time of its children that ended and were waited for."""
        self.nice, self.threads = int(fields[_NICE]), int(fields[_THREADS])
        self.start_ticks, self.rss_pages = int(fields[_START_TICKS]), int(fields[_RSS_PAGES])
        self.stack = int(fields[_STACK]) if len(fields) > _STACK else 0
        """Where its stack begins; 0 for who may not look closer."""
        self.last_cpu = int(fields[_LAST_CPU]) if len(fields) > _LAST_CPU else -1
        self.policy = int(fields[_POLICY]) if len(fields) > _POLICY else -1

    @property
    def cpu_s(self) -> float:
        """CPU seconds used."""
        return self.cpu_ticks / TICKS_PER_S

    @property
    def has_ended(self) -> bool:
        """Whether only its entry is left, until its parent asks for it."""
        return self.state in ("Z", "X")


def parse(text: str | bytes | None) -> Stat | None:
    """The same, None for a text that is none: for those who need no reason."""
    try:
        return Stat(text) if text else None
    except ValueError:
        return None
