"""The second look at running programs, some seconds after the first. Only `--deep` takes it.

Meanwhile the programs are looked at often, for what no counter tells: a thread that waits in fsync(2) sleeps like one that waits for
a batch, and a child that was started and ended is gone.

Reads   /proc/[pid]/task/[pid]/syscall  /proc/[pid]/task/[tid]/children  /proc/[pid]/comm  what a first look reads
Kernel  https://docs.kernel.org/filesystems/proc.html  https://man7.org/linux/man-pages/man5/proc_pid_syscall.5.html
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import msgspec

from sysperf.collect.process import collect, window
from sysperf.collect.process.records import Process
from sysperf.host import Host
from sysperf.host.descendants import children
from sysperf.model.record import Fields

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
FIELDS = (*window.FIELDS, "sync_share", "compiling_share", "started_children")


def of_programs(host: Host, programs: list[Process]) -> list[Process]:
    """Return these programs, with shares of the seconds until they are looked at again; as they are without `--deep`."""
    if not host.deep or not programs:
        return programs
    answer = host.call(CALL, lambda: _wait_and_look(programs), dict[str, dict[str, float | None]]) or {}
    return [msgspec.structs.replace(program, **_known(answer.get(str(program.pid)))) for program in programs]


def _known(fields: dict[str, float | None] | None) -> Fields:
    """Only what a second look says, whatever a capture holds."""
    return {name: value for name, value in (fields or {}).items() if name in FIELDS and value is not None}


def _wait_and_look(programs: Sequence[Process]) -> dict[str, dict[str, float | None]]:
    samples = sample([program.pid for program in programs[:MAX_PROGRAMS]])
    later = {program.pid: program for program in collect(Host("/")).processes}
    pairs = [(program, later[program.pid]) for program in programs if program.pid in later]
    return {
        str(before.pid): {
            **window.fields_of(window.between(before, after)),
            **(samples[before.pid].facts() if before.pid in samples else {}),
        }
        for before, after in pairs
    }


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

    def facts(self) -> dict[str, float | None]:
        """Shares of the looks; nothing where they are too few."""
        if self._samples < MIN_SAMPLES:
            return {}
        return {
            "sync_share": round(self._syncs / self._told, 3) if self._calls and self._told >= MIN_SAMPLES else None,
            "compiling_share": round(self._compiles / self._samples, 3),
            "started_children": len(self._started),
        }

    def _children(self) -> set[int]:
        return set(children(self._pid, MAX_THREADS)[:MAX_CHILDREN])


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(4096)
    except OSError:
        return b""
