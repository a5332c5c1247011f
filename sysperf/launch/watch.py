"""What became of a launch: masks, pages and threads of the program that was started, read again some seconds later (`--verify`).

Reads   /proc/PID/task/*/{status,children}  /proc/PID/numa_maps

The program is not our child: it has taken our place. A process of ours that nobody waits for looks at it and says one line.
"""

import contextlib
import os
import re
import time
from typing import NamedTuple

from sysperf.host.descendants import descendants
from sysperf.host.forked import leave_behind
from sysperf.launch.plan import LaunchPlan
from sysperf.model.cpuset import CpuSet
from sysperf.startup import lazy

LOOK_EVERY_S = 0.5
LOOKS = 10
"""Five seconds: torch is imported, and its threads have been started."""
MAX_PROCESSES = 256
MAX_THREADS = 4096
MAX_BYTES = 32 << 20
_PAGES = lazy(r" N(\d{1,4})=(\d{1,15})")
_ALLOWED = lazy(r"^Cpus_allowed_list:\t(.{1,2000})$", re.MULTILINE)


class Seen(NamedTuple):
    """A program and what it started."""

    processes: int
    masks: tuple[CpuSet, ...]
    """Of each thread."""
    pages: dict[int, int]
    """Pages on each memory node; empty when unknown."""


def watch(plan: LaunchPlan) -> None:
    """Leave a process behind that looks at the program we become, and says on stderr what it sees."""
    program = os.getpid()

    def say() -> None:
        text = _watched(program, plan)
        with contextlib.suppress(OSError):
            os.write(2, f"sysperf wrap: {text}\n".encode())

    leave_behind(say)


def _watched(program: int, plan: LaunchPlan) -> str:
    last = None
    for _ in range(LOOKS):
        time.sleep(LOOK_EVERY_S)
        seen = look(program)
        if seen is None:
            break
        if last is None or seen.processes >= last.processes:  # its end is not what was asked about
            last = seen
    return "verify: it ended before anything could be read" if last is None else f"verify: {described(last, plan)}"


def look(program: int) -> Seen | None:
    """A program and its descendants now; None when it has ended."""
    processes, masks, pages = [program, *descendants(program)][:MAX_PROCESSES], list[CpuSet](), dict[int, int]()
    for pid in processes:
        for thread in _threads(pid):
            if len(masks) < MAX_THREADS and (allowed := _ALLOWED.search(_text(f"/proc/{pid}/task/{thread}/status"))):
                masks.append(CpuSet.parse(allowed[1]))
        for node, count in _PAGES.findall(_text(f"/proc/{pid}/numa_maps")):
            pages[int(node)] = pages.get(int(node), 0) + int(count)
    return Seen(len(processes), tuple(masks), pages) if masks else None


def described(seen: Seen, plan: LaunchPlan) -> str:
    """What was seen, held against what was planned."""
    widest = CpuSet.union(seen.masks)
    planned = "as planned" if plan.cpus == widest else f"planned were {plan.cpus}" if plan.cpus else "not bound by wrap"
    threads = f"{_counted(len(seen.masks), 'thread', 'threads')} in {_counted(seen.processes, 'process', 'processes')}"
    parts = [f"{threads} may run on CPUs {widest} ({planned})"]
    narrower = [mask for mask in seen.masks if mask != widest]
    if narrower:
        parts.append(f"{_counted(len(narrower), 'thread', 'threads')} on fewer: CPUs {CpuSet.union(narrower)}")
    if seen.pages and plan.memory_nodes:
        near = sum(count for node, count in seen.pages.items() if node in plan.memory_nodes)
        parts.append(f"{100 * near // sum(seen.pages.values())} % of the pages are on node {plan.memory_nodes}")
    return "; ".join(parts)


def _counted(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_BYTES)
    except OSError:
        return ""
