"""The machine as a map: sockets, NUMA nodes, L3 domains, cores with their threads, and what is at each node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sysperf.model.cpuset import CpuSet
from sysperf.model.text import neutral, size
from sysperf.report.machine import look
from sysperf.report.terminal import cells
from sysperf.tui.now import Now, cpus
from sysperf.tui.widgets.bar import percent, shade
from sysperf.tui.widgets.line import BLANK, Line, Lines, Span, fitted, line, padded, paragraph, span, width_of

LEVELS = "▁▂▃▄▅▆▇█"
STILL, BARRED, OFF = "■", "□", "×"
LABEL = 9
Domain = tuple[CpuSet, ...]
"""The cores under one L3 cache."""


def draw(now: Now, width: int, marked: Any = None) -> Lines:
    """The whole map. `marked` is a program: its CPUs stand out, and its memory is told at each node."""
    if now.snapshot is None:
        return [line(span("Looking at this machine …", "dim"))]
    online = cpus(now.fact("cpu", "online"))
    if not online:
        return paragraph("The CPUs of this machine are unknown.", width, "unknown")
    mine = cpus(look(marked, "allowed")) if marked is not None else None
    map_of = _Map(now, mine, width)
    out: Lines = []
    nodes = list(now.fact("numa", "nodes") or ())
    shown: set[int] = set()
    for index, package in enumerate(_packages(now, online)):
        inside = [node for node in nodes if (cpus(look(node, "cpus")) or CpuSet()) & package]
        out.append(fitted(_socket(now, index, package), width))
        for node in inside:
            if look(node, "id") in shown:
                continue
            shown.add(look(node, "id"))
            out += [*_node(now, node, marked, width), *map_of.rows((cpus(look(node, "cpus")) or CpuSet()) & online)]
        if not inside:
            out += map_of.rows(package)
    out += [part for node in nodes if look(node, "id") not in shown for part in _node(now, node, marked, width)]
    return [*out, *_rest(now, width), BLANK, *_legend(now, mine is not None, width)]


def _packages(now: Now, online: CpuSet) -> list[CpuSet]:
    found = [one & online for raw in now.fact("cpu", "package_cpus") or () if (one := cpus(raw)) is not None]
    left = online - CpuSet.union(found)
    return [*found, *([left] if left else [])]


def _socket(now: Now, index: int, package: CpuSet) -> Line:
    known = bool(now.fact("cpu", "package_cpus"))
    model = neutral(str(now.fact("cpu", "model_name") or ""), 60) if index == 0 else ""
    told = f"{len(package)} CPUs" + (f", {model}" if model else "")
    return line(span(f"socket {index}" if known else "CPUs", "title"), Span("  "), span(told, "dim"))


def _node(now: Now, node: Any, marked: Any, width: int) -> Lines:
    """``node 0  125 GiB, 98 GiB free  GPU 0 1  mlx5_0  nvme0n1``; devices that do not fit go on in the next line."""
    number, total, free = look(node, "id"), look(node, "mem_total_bytes"), look(node, "mem_free_bytes")
    parts = [span(f"  node {number:<3}", "strong"), Span(" ")]
    if not cpus(look(node, "cpus")):
        parts.append(span("memory of a GPU  " if look(node, "gpu_memory") else "memory only, no CPUs  ", "info"))
    parts.append(span(f"{size(total)}" if total is not None else "memory ?"))
    parts.append(span(f", {size(free)} free  " if free is not None else "  ", "dim"))
    held = next((look(one, "bytes") for one in look(marked, "numa_pages") or () if look(one, "node") == number), None)
    if held is not None:
        everything = sum(look(one, "bytes") for one in look(marked, "numa_pages"))
        parts.append(span(f"program {size(held)} ({percent(held / everything if everything else 0)})  ", "mark"))
    out: Lines = []
    for one in (span(f"{name}  ", "command") for name in devices_at(now, number)):
        if width_of(parts) + len(one.text.rstrip()) > width - 1 and len(parts) > 1:
            out.append(fitted(line(*parts), width))
            parts = [Span(" " * (LABEL + 2))]
        parts.append(one)
    return [*out, fitted(line(*parts), width)]


def devices_at(now: Now, node: int | None) -> list[str]:
    """The GPUs, network cards, RDMA adapters and NVMe drives at a node; None asks for those whose place nobody knows."""
    alone = len(now.fact("numa", "nodes") or ()) < 2

    def here(one: Any) -> bool:
        place = look(one, "numa_node")
        place = 0 if alone and place in (None, -1) else place
        return place == node if node is not None else place is None or place < 0

    found = [str(look(device, "index")) for device in now.devices() if here(device)]
    names = [f"GPU {' '.join(found)}"] if found else []
    cards = [one for one in now.fact("network", "interfaces") or () if look(one, "pci_address")]
    disks = [one for one in now.fact("storage", "disks") or () if look(one, "pci_address")]
    names += [
        neutral(str(look(one, "name")), 20) for part in (cards, now.fact("network", "rdma") or (), disks) for one in part if here(one)
    ]
    other = [one for one in now.fact("pcie", "devices") or () if look(one, "kind") == "accelerator" and here(one)]
    return [*names, *([f"{len(other)} accelerators" if len(other) > 1 else "1 accelerator"] if other else [])]


class _Map:
    """Draws cores: one character a hardware thread, siblings side by side, L3 domains apart."""

    def __init__(self, now: Now, mine: CpuSet | None, width: int) -> None:
        self._now, self._mine, self._width = now, mine, width
        self._cores = [one for raw in now.fact("cpu", "core_cpus") or () if (one := cpus(raw)) is not None]
        self._caches = [one for raw in now.fact("cpu", "l3_domains") or () if (one := cpus(raw)) is not None]
        self._allowed = cpus(now.fact("cpu", "allowed"))

    def rows(self, inside: CpuSet) -> Lines:
        """The cores of a node or package, as many in a row as fit."""
        out: Lines = []
        row: list[Span] = []
        used, first = 0, True
        for domain in self._domains(inside):
            for core in domain:
                text = self._core(core)
                wide = sum(cells(part.text) for part in text) + 1
                if row and used + wide > self._width - LABEL - 3:
                    out.append(line(*row))
                    row, used = [], 0
                if not row:
                    row = [Span(padded(f"{core.first()}", LABEL, right=True), "dim"), Span(" ")]
                row += [*text, Span(" ")]
                used += wide
                first = False
            row.append(Span("│ ", "dim"))
            used += 2
        if row and not first:
            out.append(line(*row[:-1]))
        return out

    def _domains(self, inside: CpuSet) -> list[Domain]:
        caches = [cache & inside for cache in self._caches if cache & inside]
        left = inside - CpuSet.union(caches)
        return [self._cores_in(one) for one in [*caches, *([left] if left else [])]]

    def _cores_in(self, some: CpuSet) -> Domain:
        found = [core & some for core in self._cores if core & some]
        left = some - CpuSet.union(found)
        return tuple(sorted([*found, *(CpuSet((cpu,)) for cpu in left)], key=lambda one: one.first() or 0))

    def _core(self, core: CpuSet) -> list[Span]:
        return [self._cpu(cpu) for cpu in core]

    def _cpu(self, cpu: int) -> Span:
        load = self._now.per_cpu.get(cpu)
        mark = STILL if load is None else LEVELS[min(7, int(load * 7.999))]
        if self._mine is not None:
            return Span(mark, "mark" if cpu in self._mine else "dim")
        if self._allowed is not None and cpu not in self._allowed:
            return Span(BARRED if load is None else mark, "dim")
        return Span(mark, "cool" if load is None else shade(load))


def _rest(now: Now, width: int) -> Lines:
    """What has no place on the map: CPUs that are switched off, devices whose node nobody knows."""
    out: Lines = []
    offline = cpus(now.fact("cpu", "offline"))
    if offline:
        out += paragraph(f"{OFF} offline: {offline} ({len(offline)} CPUs)", width, "warning", "  ")
    lost = devices_at(now, None) if len(now.fact("numa", "nodes") or ()) > 1 else []
    if lost:
        out += paragraph(f"at a node that the firmware does not tell: {_several(lost)}", width, "unknown", "  ")
    if not now.fact("numa", "nodes"):
        out += paragraph("NUMA nodes: unknown", width, "dim", "  ")
    return out


def _several(names: Iterable[str]) -> str:
    return ", ".join(names)


def _legend(now: Now, marking: bool, width: int) -> Lines:
    parts = [
        f"{LEVELS[0]} idle … {LEVELS[-1]} busy" if now.per_cpu else f"{STILL} a CPU",
        "threads of a core stand together",
        "│ ends an L3 cache",
    ]
    allowed, online = cpus(now.fact("cpu", "allowed")), cpus(now.fact("cpu", "online"))
    if not marking and allowed is not None and online is not None and online - allowed:
        parts.append(f"{BARRED if not now.per_cpu else 'grey'}: not allowed here")
    if marking:
        parts.append("bright: CPUs of the marked program")
    return paragraph("; ".join(parts), width, "dim")


def next_marked(programs: Sequence[Any], pid: int | None, step: int) -> int | None:
    """The program to mark after this one; None, no program, is one of the choices."""
    choices: list[int | None] = [None, *(look(program, "pid") for program in programs)]
    place = choices.index(pid) if pid in choices else 0
    return choices[(place + step) % len(choices)]
