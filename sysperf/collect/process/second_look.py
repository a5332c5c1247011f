"""The second look at running programs, some seconds after the first. Only `--deep` takes it.

Meanwhile the programs are looked at often, for what no counter tells: a thread that waits in fsync(2) sleeps like one that waits for
a batch, and a child that was started and ended is gone.

Reads   /proc/[pid]/task/[pid]/syscall  /proc/[pid]/task/[tid]/children  /proc/[pid]/comm  what a first look reads
Kernel  https://docs.kernel.org/filesystems/proc.html  https://man7.org/linux/man-pages/man5/proc_pid_syscall.5.html
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from sysperf.collect.process.records import Process
from sysperf.collect.process.window import Window, measure, over
from sysperf.host import Host
from sysperf.host.descendants import children
from sysperf.model.record import Json, convert, plain

CALL = "second-look"
WINDOW_S = 4.0
SAMPLE_S = 0.04
MAX_PROGRAMS, MAX_THREADS, MAX_CHILDREN = 64, 64, 64
MIN_SAMPLES = 20
SYNC_CALLS = {
    "x86_64": frozenset((b"26", b"74", b"75", b"162", b"277", b"306")),
    "aarch64": frozenset((b"81", b"82", b"83", b"84", b"227", b"267")),
}
"""msync, fsync, fdatasync, sync, sync_file_range and syncfs: arch/x86/entry/syscalls/syscall_64.tbl, asm-generic/unistd.h."""
COMPILERS = frozenset((b"g++", b"gcc", b"c++", b"cc1plus", b"clang", b"clang++", b"nvcc", b"cicc", b"ptxas", b"hipcc"))


def of_programs(host: Host, programs: list[Process], look_again: Callable[[], Iterable[Process]]) -> list[Process]:
    """Return these programs, with shares of the seconds until they are looked at again; as they are without `--deep`."""
    if not host.deep or not programs:
        return programs
    answer = host.call(CALL, lambda: _wait_and_look(programs, look_again), dict[str, Window])
    windows: dict[str, Window] = convert(answer or {}, dict[str, Window])
    return [over(program, windows[str(program.pid)]) if str(program.pid) in windows else program for program in programs]


def _wait_and_look(programs: Sequence[Process], look_again: Callable[[], Iterable[Process]]) -> Json:
    samples = sample([program.pid for program in programs[:MAX_PROGRAMS]])
    later = {program.pid: program for program in look_again()}
    pairs = [(program, later[program.pid]) for program in programs if program.pid in later]
    windows = {str(before.pid): measure(before, after) or Window() for before, after in pairs}
    return plain({pid: samples[int(pid)].seen(window) if int(pid) in samples else window for pid, window in windows.items()})


def sample(pids: Sequence[int]) -> dict[int, Samples]:
    """What each of these processes was seen doing in some seconds."""
    by_pid = {pid: Samples(pid) for pid in pids}
    end = time.monotonic() + WINDOW_S
    while time.monotonic() < end:
        for samples in by_pid.values():
            samples.look()
        time.sleep(SAMPLE_S)
    return by_pid


class Samples:
    """Short looks at one process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._samples = self._told = self._syncs = self._compiles = 0
        self._calls = SYNC_CALLS.get(os.uname().machine)
        self._first = self._children()
        self._started: set[int] = set()

    def look(self) -> None:
        """One look."""
        if not _read(f"/proc/{self._pid}/comm"):
            return  # it ended
        call = _read(f"/proc/{self._pid}/task/{self._pid}/syscall").partition(b" ")[0]  # "" for who may not look
        children = self._children()
        self._samples += 1
        self._told += bool(call)
        self._syncs += call in (self._calls or ())
        self._compiles += any(_read(f"/proc/{child}/comm").strip() in COMPILERS for child in children)
        self._started |= children - self._first

    def seen(self, window: Window) -> Window:
        """The window with the shares of the looks; as it is where they are too few."""
        if self._samples < MIN_SAMPLES:
            return window
        return msgspec.structs.replace(
            window,
            sync_share=round(self._syncs / self._told, 3) if self._calls and self._told >= MIN_SAMPLES else None,
            compiling_share=round(self._compiles / self._samples, 3),
            started_children=len(self._started),
        )

    def _children(self) -> set[int]:
        return set(children(self._pid, MAX_THREADS)[:MAX_CHILDREN])


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(4096)
    except OSError:
        return b""
