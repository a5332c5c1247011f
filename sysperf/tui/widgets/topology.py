"""The machine as a map: sockets, NUMA nodes, L3 domains, cores with their threads, and what is at each node."""

from __future__ import annotations

from collections.abc import Sequence

from sysperf.collect.cpu import Cpu
from sysperf.collect.network import Interface, RdmaPort
from sysperf.collect.numa import Node
from sysperf.collect.pcie.records import Device as PciDevice
from sysperf.collect.process.records import Process
from sysperf.collect.storage.records import Disk
from sysperf.model.cpuset import CpuSet
from sysperf.model.text import neutral, size
from sysperf.report.terminal import cells
from sysperf.tui.now import Now
from sysperf.tui.widgets.bar import bar, percent, shade
from sysperf.tui.widgets.line import BLANK, Line, Lines, Span, beside, fitted, line, padded, paragraph, span, width_of

LEVELS = "▁▂▃▄▅▆▇█"
STILL, BARRED, OFF, MARKED = "■", "□", "×", "▣"
PAIRED, BAR = 160, 10
"""From so many columns on, sockets stand beside each other; and the columns of a node's memory."""
LABEL = 9
Domain = tuple[CpuSet, ...]
"""The cores under one L3 cache."""


def draw(now: Now, width: int, marked: Process | None = None) -> Lines:
    """The whole map. `marked` is a program: its CPUs stand out, and each node shows its memory there."""
    if now.snapshot is None:
        return [line(span("Looking at this machine …", "dim"))]
    cpu = now.facts.cpu
    if cpu is None or not cpu.online:
        return paragraph("The CPUs of this machine are unknown.", width, "unknown")
    mine = marked.affinity.now if marked is not None else None
    nodes, blocks = _nodes(now), []
    drawn: set[int] = set()
    packages = _packages(cpu)
    pairs = width >= PAIRED and len(packages) % 2 == 0
    room = width // 2 - 2 if pairs else width
    map_of = _Map(now, cpu, mine, room)
    for index, package in enumerate(packages):
        block = [fitted(_socket(cpu, index, package), room)]
        inside = [node for node in nodes if node.cpus and node.cpus & package]
        for node in inside:
            again = fitted(line(span(f"  node {node.id:<3}", "strong"), span(" goes on", "dim")), room)
            block += [again] if node.id in drawn else _node(now, node, marked, room)
            block += map_of.rows((node.cpus or CpuSet()) & package)
            drawn.add(node.id)
        blocks.append(block if inside else [*block, *map_of.rows(package)])
    joined = [beside(left, right, room, 4) for left, right in zip(blocks[::2], blocks[1::2], strict=True)] if pairs else blocks
    out = [row for block in joined for row in block]
    out += [part for node in nodes if node.id not in drawn for part in _node(now, node, marked, width)]
    return [*out, *_rest(now, cpu, width), *_links(now, width), BLANK, *_legend(now, cpu, mine is not None, width)]


def _nodes(now: Now) -> tuple[Node, ...]:
    return now.facts.numa.nodes if now.facts.numa else ()


def _packages(cpu: Cpu) -> list[CpuSet]:
    known = [package & cpu.online for package in cpu.package_cpus or ()]
    left = cpu.online - CpuSet.union(known)
    return [*known, *([left] if left else [])]


def _socket(cpu: Cpu, index: int, package: CpuSet) -> Line:
    model = neutral(cpu.model_name or "", 60) if index == 0 else ""
    about = f"{len(package)} CPUs" + (f", {model}" if model else "")
    return line(span(f"socket {index}" if cpu.package_cpus else "CPUs", "title"), Span("  "), span(about, "dim"))


def _node(now: Now, node: Node, marked: Process | None, width: int) -> Lines:
    """``node 0  125 GiB, 98 GiB free  GPU 0 1  mlx5_0  nvme0n1``; devices that do not fit go on in the next line."""
    total, free = node.mem_total_bytes, node.mem_free_bytes
    parts = [span(f"  node {node.id:<3}", "strong"), Span(" ")]
    if not node.cpus:
        parts.append(span("memory of a GPU  " if node.gpu_memory else "memory only, no CPUs  ", "info"))
    if node.cpus:
        parts.append(span(f"{node.cpus}  ", "dim"))
    if total and free is not None:
        parts += [*bar((total - free) / total, BAR), span(f" {size(total - free)} of {size(total)}  ")]
    else:
        parts.append(span(f"{size(total)}  " if total is not None else "memory ?  "))
    pages = (marked.memory.nodes or ()) if marked is not None else ()
    here = next((page.bytes for page in pages if page.node == node.id), None)
    if here is not None:
        total_bytes = sum(page.bytes for page in pages)
        parts.append(span(f"program {size(here)} ({percent(here / total_bytes if total_bytes else 0)})  ", "mark"))
    out: Lines = []
    for device in (span(f"{name}  ", "command") for name in devices_at(now, node.id)):
        if width_of(parts) + len(device.text.rstrip()) > width - 1 and len(parts) > 1:
            out.append(fitted(line(*parts), width))
            parts = [Span(" " * (LABEL + 2))]
        parts.append(device)
    return [*out, fitted(line(*parts), width)]


def devices_at(now: Now, node: int | None) -> list[str]:
    """The GPUs, network cards, RDMA adapters and NVMe drives at a node; None asks for those whose place nobody knows."""
    alone = len(_nodes(now)) < 2

    def here(numa_node: int | None) -> bool:
        place = 0 if alone and numa_node in (None, -1) else numa_node
        return place == node if node is not None else place is None or place < 0

    gpus = [str(device.index) for device in now.devices() if here(device.numa_node)]
    names = [f"GPU {' '.join(gpus)}"] if gpus else []
    names += [neutral(card.name, 20) for card in _cards(now) if here(card.numa_node)]
    accelerators = sum(device.kind == "accelerator" and here(device.numa_node) for device in _on_bus(now))
    return [*names, *([f"{accelerators} accelerators" if accelerators > 1 else "1 accelerator"] if accelerators else [])]


def _cards(now: Now) -> list[Interface | RdmaPort | Disk]:
    """Network cards, RDMA adapters and drives on PCI."""
    network, storage = now.facts.network, now.facts.storage
    interfaces = [interface for interface in (network.interfaces or ()) if interface.pci_address] if network else []
    disks = [disk for disk in (storage.disks or ()) if disk.pci_address] if storage else []
    return [*interfaces, *((network.rdma or ()) if network else ()), *disks]


def _on_bus(now: Now) -> tuple[PciDevice, ...]:
    return now.facts.pcie.devices if now.facts.pcie else ()


class _Map:
    """Draws cores: one character a hardware thread, siblings side by side, L3 domains apart."""

    def __init__(self, now: Now, cpu: Cpu, mine: CpuSet | None, width: int) -> None:
        self._now, self._mine, self._width = now, mine, width
        self._cores, self._caches, self._allowed = cpu.core_cpus or (), cpu.l3_domains or (), cpu.allowed

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
        return [self._cores_in(cache) for cache in [*caches, *([left] if left else [])]]

    def _cores_in(self, cpus: CpuSet) -> Domain:
        cores = [core & cpus for core in self._cores if core & cpus]
        left = cpus - CpuSet.union(cores)
        return tuple(sorted([*cores, *(CpuSet((cpu,)) for cpu in left)], key=lambda core: core.first() or 0))

    def _core(self, core: CpuSet) -> list[Span]:
        return [self._cpu(cpu) for cpu in core]

    def _cpu(self, cpu: int) -> Span:
        load = self._now.per_cpu.get(cpu)
        mark = STILL if load is None else LEVELS[min(7, int(load * 7.999))]
        if self._mine is not None:
            return Span(MARKED, "mark") if cpu in self._mine else Span(mark, "dim")
        if self._allowed is not None and cpu not in self._allowed:
            return Span(BARRED if load is None else mark, "dim")
        return Span(mark, "cool" if load is None else shade(load))


def _rest(now: Now, cpu: Cpu, width: int) -> Lines:
    """What has no place on the map: CPUs that are switched off, devices whose node nobody knows."""
    out: Lines = []
    if cpu.offline:
        out += paragraph(f"{OFF} offline: {cpu.offline} ({len(cpu.offline)} CPUs)", width, "warning", "  ")
    unplaced = devices_at(now, None) if len(_nodes(now)) > 1 else []
    if unplaced:
        out += paragraph(f"at a node that the firmware does not tell: {', '.join(unplaced)}", width, "unknown", "  ")
    if not _nodes(now):
        out += paragraph("NUMA nodes: unknown", width, "dim", "  ")
    return out


def _links(now: Now, width: int) -> Lines:
    """How GPUs are reached: narrow PCIe links one by one, and NVLink where there is some."""
    out: Lines = []
    for device in now.devices():
        lanes, most = device.pcie.width_lanes, device.pcie.max_width_lanes
        if lanes is not None and most is not None and lanes < most:
            node = f"node {device.numa_node}" if device.numa_node is not None and device.numa_node >= 0 else "its port"
            out.append(
                fitted(
                    line(span(f"  GPU {device.index} ══ ", "strong"), span(f" x{lanes} of x{most} ", "alarm"), span(f" ══ {node}")), width
                )
            )
    linked = [device for device in now.devices() if device.nvlink.links]
    fewer = [device for device in linked if device.nvlink.active != device.nvlink.links]
    if linked and not fewer:
        out += paragraph(f"NVLink: all {linked[0].nvlink.links} links of each GPU are up", width, "", "  ")
    elif fewer:
        each = ", ".join(f"{device.nvlink.active if device.nvlink.active is not None else '?'} of GPU {device.index}" for device in fewer)
        out += paragraph(f"NVLink: of {fewer[0].nvlink.links} links only {each} are up; all of the others", width, "warning", "  ")
    return out


def _legend(now: Now, cpu: Cpu, marking: bool, width: int) -> Lines:
    parts = [
        f"{LEVELS[0]} idle … {LEVELS[-1]} busy" if now.per_cpu else f"{STILL} a CPU",
        "threads of a core stand together",
        "│ ends an L3 cache",
    ]
    if not marking and cpu.allowed is not None and cpu.online - cpu.allowed:
        parts.append(f"{BARRED if not now.per_cpu else 'grey'}: not allowed here")
    if marking:
        parts.append(f"{MARKED}: CPUs of the marked program")
    return paragraph("; ".join(parts), width, "dim")


def next_marked(programs: Sequence[Process], pid: int | None, step: int) -> int | None:
    """The program to mark after this one; None, no program, is one of the choices."""
    choices: list[int | None] = [None, *(program.pid for program in programs)]
    place = choices.index(pid) if pid in choices else 0
    return choices[(place + step) % len(choices)]
