"""Neighbours on the job's CPUs, by kind: other PyTorch programs, other programs, the job's own helpers, and runs of sysperf itself.

Reads   what sysperf/diagnosis/counters.py reads  /proc/[pid]/{cmdline,fd}
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
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

MAX_AT_PIPES = 64
"""Processes of a job that are asked for their pipes."""
INPUT, OUTPUTS = 0, (1, 2)

Used = tuple[str, int, float]
"""(name, number, CPUs)."""
Ask = Callable[[int], bool]


class Neighbours(NamedTuple):
    """The CPUs that each kind used of those that the job may use; programs that use most come first."""

    kernel_cpus: float
    helpers: tuple[Used, ...]
    """Processes at the other end of the job's pipe, such as its log's, or in a process group that the job leads."""
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
    def helper_cpus(self) -> float:
        """CPUs of the job's own helpers."""
        return sum(used for _, _, used in self.helpers)

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
    helpers: list[Used] = []
    inlets, outlets = _ends_of_pipes(window)
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
        elif (spent[pid].group in groups and spent[pid].group) or _is_at_pipe(pid, inlets, outlets):
            helpers.append((name, pid, part))
        else:
            programs.append((name, pid, part))
    programs.sort(key=lambda program: -program[2])
    return Neighbours(outside.kernel_cpus, tuple(helpers), _most_first(others, spent), _most_first(trials, spent), tuple(programs))


def _ends_of_pipes(window: Window) -> tuple[set[str], set[str]]:
    """The pipes that the job's programs read as their input, and those into which they write their output."""
    several = list(itertools.islice(window.processes, MAX_AT_PIPES))
    return {pipe for pid in several for pipe in _pipes(pid, INPUT)}, {pipe for pid in several for pipe in _pipes(pid, *OUTPUTS)}


def _is_at_pipe(pid: int, inlets: AbstractSet[str], outlets: AbstractSet[str]) -> bool:
    """Whether a process writes what the job reads, or reads what it writes, as the shell's `|` connects them."""
    return bool(inlets and inlets & _pipes(pid, *OUTPUTS)) or bool(outlets and outlets & _pipes(pid, INPUT))


def _pipes(pid: int, *descriptors: int) -> set[str]:
    """The pipes behind some descriptors of a process; none where it may not be asked."""
    names = set[str]()
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            names.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    return {name for name in names if name.startswith("pipe:")}


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
