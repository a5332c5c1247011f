"""Neighbours on the job's CPUs, by kind: other PyTorch programs, other programs, the job's own helpers, and runs of sysperf itself.

Reads   what sysperf/diagnosis/counters.py reads  /proc/[pid]/cmdline
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from sysperf.diagnosis import rates
from sysperf.diagnosis.counters import Spent, content
from sysperf.diagnosis.rates import Outside
from sysperf.diagnosis.window import Window
from sysperf.model.cpuset import CpuSet

MAX_NAMED, MIN_NAMED = 3, 0.1
"""Neighbours that are named, and the CPUs that each of them uses at least."""
MAX_DEPTH = 32
"""Processes above one that are asked who they are."""

Used = tuple[str, int, float]
"""(name, number, CPUs)."""
Ask = Callable[[int], bool]


class Neighbours(NamedTuple):
    """The CPUs that each kind used of those that the job may use; programs that use most come first."""

    kernel_cpus: float
    helper_cpus: float
    """Of processes in a process group that the job leads, such as the log's end of its pipe."""
    torch: tuple[Used, ...]
    """Each PyTorch program with all that is below it."""
    trials: tuple[Used, ...]
    """Runs of sysperf, with the programs that they started."""
    programs: tuple[Used, ...]

    @property
    def torch_cpus(self) -> float:
        """CPUs of all other PyTorch programs."""
        return sum(used for _, _, used in self.torch)

    @property
    def trial_cpus(self) -> float:
        """CPUs of all runs of sysperf."""
        return sum(used for _, _, used in self.trials)


def by_kind(window: Window, outside: Outside, torch: Sequence[int], cpus: CpuSet | None, *, is_sysperf: Ask | None = None) -> Neighbours:
    """Divide what processes outside of the job used; `torch` are the numbers of the PyTorch programs among them."""
    spent, asked = window.machine_last.spent, is_sysperf or _is_sysperf
    groups = {process.group for pid, process in spent.items() if pid in window.processes and process.group in window.processes}
    trials: defaultdict[int, float] = defaultdict(float)
    others: defaultdict[int, float] = defaultdict(float)
    programs: list[Used] = []
    helpers = 0.0
    for name, pid, used in outside.programs:
        part = used * rates.share_on(pid, cpus) if used > 0 else 0.0
        if not part:
            continue
        above = _above(pid, spent)
        run = next((parent for parent in above if asked(parent)), None)
        top = next((parent for parent in reversed(above) if parent in torch), None)
        if run is not None:
            trials[run] += part
        elif top is not None:
            others[top] += part
        elif spent[pid].group in groups and spent[pid].group:
            helpers += part
        else:
            programs.append((name, pid, part))
    programs.sort(key=lambda program: -program[2])
    return Neighbours(outside.kernel_cpus, helpers, _most_first(others, spent), _most_first(trials, spent), tuple(programs))


def named(programs: Iterable[Used]) -> str | None:
    """Return who uses most CPU time; None where nobody is seen who uses a tenth of a CPU."""
    near = (program for program in programs if program[2] >= MIN_NAMED)
    return ", ".join(f"{name} (pid {pid}) {used:.1f}" for name, pid, used in itertools.islice(near, MAX_NAMED)) or None


def _above(pid: int, spent: Mapping[int, Spent]) -> list[int]:
    """A process and those above it, itself first."""
    above: list[int] = []
    while pid in spent and pid not in above and len(above) < MAX_DEPTH and pid > 1:
        above.append(pid)
        pid = spent[pid].parent
    return above


def _most_first(used: Mapping[int, float], spent: Mapping[int, Spent]) -> tuple[Used, ...]:
    programs = [(spent[pid].name if pid in spent else "", pid, cpus) for pid, cpus in used.items()]
    return tuple(sorted(programs, key=lambda program: -program[2]))


def _is_sysperf(pid: int) -> bool:
    """Whether a process is a command of sysperf: the program of that name, or the module under an interpreter."""
    arguments = [os.fsdecode(argument) for argument in content(f"/proc/{pid}/cmdline").split(b"\0")[:6]]
    names = [os.path.basename(argument) for argument in arguments[:2]]
    return "sysperf" in names or any(pair == ("-m", "sysperf") for pair in itertools.pairwise(arguments))
