"""Which processes run PyTorch, and whose helpers the others are.

Reads   /proc/[pid]/{statm,stat,cmdline,maps}  /proc/[pid]/task/[tid]/comm
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

import os
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from sysperf.host import Host
from sysperf.model.errors import Missing
from sysperf.procfs import cmdline
from sysperf.procfs.maps import Mapped, torch_mapped
from sysperf.procfs.numbers import whole
from sysperf.procfs.stat import Stat

MIN_BYTES = 300 << 20
"""A process with less address space cannot have libtorch mapped: the CPU build alone needs 700 MiB (2.13)."""
MAX_MAPS_BYTES = 16 << 20
MAX_FAMILIES = 512
MAX_S = 20.0
"""Looking at hundreds of programs takes a second or two; what a user makes large on purpose takes a second each."""
MAX_GENERATIONS = 8
WORKER = "pt_data_worker"
COMPILER = "torch/_inductor/compile_worker"
GONE = ("No such file or directory", "No such process")
_THREADS_OF_A_HELPER = 2
_RANKS = ("pt_nccl", "pt_gloo", "pt_autograd", "cuda-")

T = TypeVar("T")


class Family:
    """A process that runs PyTorch, with the helpers that it started."""

    __slots__ = ("argv", "compilers", "forks", "mapped", "stat", "workers")

    def __init__(self, stat: Stat, argv: tuple[str, ...] | None, mapped: Mapped) -> None:
        self.stat = stat
        self.argv = argv
        self.mapped = mapped
        self.workers: list[Stat] = []
        self.forks: list[Stat] = []
        self.compilers: list[Stat] = []


class ProcessSearch:
    """The families of the processes that run PyTorch, and what could not be read."""

    __slots__ = ("families", "scanned", "unreadable")

    def __init__(self) -> None:
        self.families: dict[int, Family] = {}
        self.scanned = 0
        self.unreadable: list[int] = []


def find(host: Host) -> ProcessSearch:
    """All processes that run PyTorch. Raises Missing when no process is listed.

    One small read tells the size of each process; only the large ones are looked at closer, oldest first, so that
    a parent is known before its children.
    """
    search = ProcessSearch()
    stats: dict[int, Stat] = {}
    pids = [name for name in host.names("/proc") or () if whole(name) is not None]
    if not pids:
        raise Missing("/proc lists no process: not captured, or /proc is not mounted")
    for pid in _large(host, pids, search):
        mark = len(host.sources)
        stat = read_stat(host, pid)
        if stat is not None:
            stats[int(pid)] = stat
        elif any(source.error for source in host.sources[mark:]):
            search.unreadable.append(int(pid))
    helpers: list[Stat] = []
    for stat in in_time(host, sorted(stats.values(), key=lambda stat: (stat.start_ticks, stat.pid))):
        if stat.comm == WORKER:
            helpers.append(stat)
        else:
            _consider(host, stat, search)
    for stat in helpers:
        _adopt(host, stat, search, stats)
    return search


def in_time(host: Host, oldest_first: Iterable[T]) -> Iterator[T]:
    """Yield these one by one, as far as the time goes."""
    end = time.monotonic() + MAX_S
    for item in oldest_first:
        if time.monotonic() > end:
            host.refuse("/proc", f"looking at the processes took {MAX_S:.0f} s: the youngest are not shown")
            return
        yield item


def forget_if_gone(host: Host, pid: int | str, mark: int) -> bool:
    """Whether the process ended meanwhile; then what failed since `mark` says nothing about this machine."""
    if not any(source.error in GONE for source in host.sources[mark:]) or host.exists(f"/proc/{pid}") is not False:
        return False
    del host.sources[mark:]
    return True


def read_stat(host: Host, pid: int | str, path: str = "") -> Stat | None:
    """The state of a process, or of the thread at `path`; None when it ended or cannot be read."""
    path = path or f"/proc/{pid}/stat"
    mark = len(host.sources)
    text = host.text(path, 4096)
    if text is None:
        forget_if_gone(host, pid, mark)
        return None
    try:
        stat = Stat(text)
    except ValueError as error:
        host.refuse(path, str(error)[:200])
        return None
    if str(stat.pid) == path.split("/")[-2]:
        return stat
    host.refuse(path, f"it is about process {stat.pid}")
    return None


def read_argv(host: Host, pid: int) -> tuple[str, ...] | None:
    """The command line without secrets; empty for a process that cleared it."""
    text = host.text(f"/proc/{pid}/cmdline", cmdline.MAX_BYTES)
    return None if text is None else cmdline.arguments(text)


def _large(host: Host, pids: Iterable[str], search: ProcessSearch) -> Iterator[str]:
    """The processes that are large enough, or whose size is kept from us."""
    page_bytes = int(host.call("page_size", lambda: os.sysconf("SC_PAGESIZE")) or 4096)
    smallest = MIN_BYTES // page_bytes
    for pid in pids:
        raw = host.data(f"/proc/{pid}/statm", 4096)
        if raw is None:
            _unread(host, pid, search)
            continue
        search.scanned += 1
        pages = whole(raw.partition(b" ")[0].decode("ascii", "replace"))
        if pages is not None and pages >= smallest:
            yield pid


def _unread(host: Host, pid: str, search: ProcessSearch) -> None:
    if host.sources[-1].error in GONE:
        host.sources.pop()
    else:
        search.unreadable.append(int(pid))


def _consider(host: Host, stat: Stat, search: ProcessSearch) -> None:
    """A process with its own program, or a forked copy of one that we know."""
    mark = len(host.sources)
    argv = read_argv(host, stat.pid)
    if argv is not None and any(COMPILER in argument for argument in argv[:8]):
        owner = _owner(host, stat, search, {})
        if owner is not None:
            owner.compilers.append(stat)
        return
    parent = search.families.get(stat.ppid)
    if parent is not None and argv and argv == parent.argv and not _is_started_anew(stat, parent.stat) and not _is_rank(host, stat):
        parent.forks.append(stat)
        return
    raw = host.data(f"/proc/{stat.pid}/maps", MAX_MAPS_BYTES)
    if raw is None:
        if not forget_if_gone(host, stat.pid, mark):
            search.unreadable.append(stat.pid)
    elif (mapped := torch_mapped(raw)) is None:
        return
    elif len(search.families) < MAX_FAMILIES:
        search.families[stat.pid] = Family(stat, argv, mapped)
    else:
        host.refuse("/proc", f"more than {MAX_FAMILIES} PyTorch processes: the youngest are not shown")


def _is_started_anew(stat: Stat, parent: Stat) -> bool:
    """Whether a child with the same command line was executed, not forked: then its stack begins elsewhere."""
    return bool(stat.stack and parent.stack) and stat.stack != parent.stack


def _is_rank(host: Host, stat: Stat) -> bool:
    """Whether a forked copy computes by itself: its threads say so, and a helper of a pool has few."""
    if stat.threads <= _THREADS_OF_A_HELPER:
        return False
    folder = f"/proc/{stat.pid}/task"
    names = (host.word(f"{folder}/{tid}/comm") or "" for tid in (host.names(folder) or ())[:256])
    return any(name.startswith(_RANKS) for name in names)


def _adopt(host: Host, stat: Stat, search: ProcessSearch, stats: dict[int, Stat]) -> None:
    owner = _owner(host, stat, search, stats)
    if owner is not None:
        owner.workers.append(stat)


def _owner(host: Host, stat: Stat, search: ProcessSearch, stats: dict[int, Stat]) -> Family | None:
    """The nearest ancestor that runs PyTorch; a forkserver or a shell may stand between."""
    here: Stat | None = stat
    for _ in range(MAX_GENERATIONS):
        if here is None or here.ppid <= 1:
            return search.families.get(here.ppid) if here else None
        if here.ppid in search.families:
            return search.families[here.ppid]
        here = stats.get(here.ppid) or read_stat(host, here.ppid)
    return None
