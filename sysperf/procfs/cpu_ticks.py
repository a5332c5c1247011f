"""/proc/stat: how the time of all CPUs, and of each, was spent since the machine started; and the tasks that run or wait for a CPU.

Kernel  https://docs.kernel.org/filesystems/proc.html#miscellaneous-kernel-statistics-in-proc-stat
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sysperf.procfs.numbers import after, whole

_FIELDS = 8


class CpuTicks(NamedTuple):
    """Clock ticks, of which `stat.TICKS_PER_S` make a second."""

    user: int
    nice: int
    system: int
    idle: int
    iowait: int
    irq: int
    softirq: int
    steal: int

    @property
    def unused(self) -> int:
        """Ticks without work, also those in which a task of this CPU waited for a disk."""
        return self.idle + self.iowait

    @property
    def worked(self) -> int:
        """Ticks in programs, the kernel and interrupts."""
        return self.user + self.nice + self.system + self.irq + self.softirq


def of_all(text: str | bytes | None) -> CpuTicks | None:
    """The sum over all CPUs, which is the first line; None where the text has none."""
    words = _bytes(text).partition(b"\n")[0].split(None, _FIELDS + 1)
    return _ticks(words) if words[:1] == [b"cpu"] else None


def of_each(text: str | bytes | None) -> dict[int, CpuTicks]:
    """Each CPU's, by its number."""
    ticks: dict[int, CpuTicks] = {}
    for line in _bytes(text).splitlines():
        if not line.startswith(b"cpu"):
            if ticks:
                break  # the lines of CPUs stand together, and that of all interrupts is long
            continue
        words = line.split(None, _FIELDS + 1)
        cpu = whole(words[0][3:])
        if cpu is not None and (spent := _ticks(words)) is not None:
            ticks[cpu] = spent
    return ticks


def running(text: str | bytes | None) -> int | None:
    """Tasks that run or wait for a CPU."""
    return after(_bytes(text), b"procs_running ")


def _ticks(words: Sequence[bytes]) -> CpuTicks | None:
    numbers = [whole(word) for word in words[1 : _FIELDS + 1]]
    known = [number for number in numbers if number is not None]
    return CpuTicks(*known) if len(known) == _FIELDS else None


def _bytes(text: str | bytes | None) -> bytes:
    return text.encode("utf-8", "replace") if isinstance(text, str) else text or b""
