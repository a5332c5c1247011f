"""The second look at running programs, some seconds after the first. Only `--deep` takes it.

Meanwhile the main threads are looked at often: a thread that waits in fsync(2) sleeps, and no counter tells it from one that waits
for a batch.

Reads   /proc/[pid]/task/[pid]/syscall  what a first look reads
Kernel  https://docs.kernel.org/filesystems/proc.html  https://man7.org/linux/man-pages/man5/proc_pid_syscall.5.html
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from sysperf.collect.process import collect, window
from sysperf.collect.process.records import Process
from sysperf.host import Host

CALL = "second-look"
WINDOW_S = 4.0
SAMPLE_S = 0.04
MAX_SAMPLED = 64
MIN_SAMPLES = 20
SYNC_CALLS = {
    "x86_64": frozenset((b"26", b"74", b"75", b"162", b"277", b"306")),
    "aarch64": frozenset((b"81", b"82", b"83", b"84", b"227", b"267")),
}
"""msync, fsync, fdatasync, sync, sync_file_range and syncfs: arch/x86/entry/syscalls/syscall_64.tbl, asm-generic/unistd.h."""


def of_programs(host: Host, programs: list[Process]) -> list[Process]:
    """These programs, with shares of the seconds until they are looked at again; as they are without `--deep`."""
    if not host.deep or not programs:
        return programs
    answer = host.call(CALL, lambda: _wait_and_look(programs), dict[str, dict[str, float | None]]) or {}
    return [msgspec.structs.replace(program, **_known(answer.get(str(program.pid)))) for program in programs]


def _known(fields: dict[str, float | None] | None) -> dict[str, Any]:
    """Only what a second look says, whatever a capture holds."""
    names = (*window.FIELDS, "sync_share")
    return {name: value for name, value in (fields or {}).items() if name in names and (value is not None or name != "window_s")}


def _wait_and_look(programs: Sequence[Process]) -> dict[str, dict[str, float | None]]:
    shares = _sync_shares([program.pid for program in programs[:MAX_SAMPLED]])
    later = {program.pid: program for program in collect(Host("/")).processes}
    pairs = [(program, later[program.pid]) for program in programs if program.pid in later]
    return {
        str(before.pid): {**window.fields_of(window.between(before, after)), "sync_share": shares.get(before.pid)}
        for before, after in pairs
    }


def _sync_shares(pids: Sequence[int]) -> dict[int, float]:
    """How often each main thread was within a call that waits for a disk, of all looks in these seconds."""
    calls = SYNC_CALLS.get(os.uname().machine)
    looks, waits = dict.fromkeys(pids, 0), dict.fromkeys(pids, 0)
    end = time.monotonic() + WINDOW_S
    while time.monotonic() < end:
        for pid in pids if calls else ():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/syscall", "rb", buffering=0) as file:
                waits[pid] += file.read(200).partition(b" ")[0] in (calls or ())
                looks[pid] += 1
        time.sleep(SAMPLE_S)
    return {pid: round(waits[pid] / count, 3) for pid, count in looks.items() if count >= MIN_SAMPLES}
