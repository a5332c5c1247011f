"""The best place for a program: which CPUs, which memory, how many threads. A pure function of what is known of the machine.

1. Allowed: the process's mask, which lies inside its cpuset, and never more.
2. Budget: no more threads than the CPU quota has CPUs, rounded up (at 1.5 CPUs two threads are 1.36 to 1.39 times as fast as one).
3. Kinds of cores: threads compute on performance cores, and on others where the kernel says that all together gain; workers use all.
4. SMT: one compute thread a physical core; the siblings stay in the mask for workers and the system.
5. Nodes: beside the GPU; else one that holds the whole CPU quota; else all CPUs. A small thread count prefers a node's memory only:
   it says nothing about loader workers.
6. Ranks: even, contiguous shares of the cores beside their GPUs, or of all cores by package, node and cache.
"""

import math
from collections.abc import Iterable

import msgspec

from sysperf.launch.cores import CoreMap
from sysperf.launch.gpu_nodes import GpuNodes
from sysperf.launch.gpus import VisibleGpus
from sysperf.launch.machine import Machine, MemoryNode
from sysperf.launch.ranks import Ranks
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record

TARGETS = frozenset(("gpu-node", "node", "rank-share"))
"""What a process can be bound to by rule."""

MIN_STRICT_BYTES = 256 << 20
"""Strict memory on a node with less to spare than this is refused: importing torch alone takes as much."""


class RequestedPlacement(Record):
    """The settings that the user asks for."""

    cpus: CpuSet | None = None
    node: int | None = None
    threads: int | None = None
    memory_bytes: int | None = None
    """How much memory the program needs."""
    strict: bool = False
    targets: frozenset[str] = TARGETS
    """What the rules in force may bind to."""
    uses_gpu: bool = True
    """Not when its torch is built without GPUs."""


class Refused(ValueError):
    """A request that cannot be met; the text says why, `hint` what would work."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Placement(Record):
    """The place of a program."""

    allowed: CpuSet | None = None
    cpus: CpuSet | None = None
    """The CPUs that it gets; its own mask when it is not bound."""
    target: str = ""
    """What it is bound to: gpu-node, node, rank-share, cpus (asked for), or nothing."""
    nodes: CpuSet = CpuSet()
    """The nodes of those CPUs."""
    memory_nodes: CpuSet = CpuSet()
    """Where its memory should come from; empty: from wherever it runs."""
    strict: bool = False
    cores: int | None = None
    """Physical cores that compute, of the CPUs it gets."""
    threads: int | None = None
    budget: int | None = None
    notes: tuple[str, ...] = ()
    """What was left alone, and why."""


def place(machine: Machine, ranks: Ranks, gpus: VisibleGpus, requested: RequestedPlacement) -> Placement:
    """Decide. Raises Refused when a request cannot be met."""
    return _Placer(machine, ranks, gpus, requested).place()


class _Placer:
    def __init__(self, machine: Machine, ranks: Ranks, gpus: VisibleGpus, requested: RequestedPlacement) -> None:
        self.machine, self.ranks, self.requested = machine, ranks, requested
        self.notes: list[str] = []
        self.mask = self._mask()
        self.allowed = self._balanced()
        self.map = CoreMap(machine, self.allowed)
        self.gpu_nodes = GpuNodes(self.map, ranks, gpus, self.notes)

    def _mask(self) -> CpuSet:
        if self.machine.allowed is None:
            self.notes.append("nothing says which CPUs may be used: all that are online")
            return self.machine.online
        return self.machine.allowed & self.machine.online or self.machine.allowed

    def _balanced(self) -> CpuSet:
        """Return the CPUs between which the kernel balances: without isolated ones, unless we are on those alone, or the user chooses."""
        isolated = self.mask & (self.machine.isolated or CpuSet())
        if not isolated or isolated == self.mask or self.requested.cpus is not None or self.requested.node is not None:
            return self.mask
        self.notes.append(f"CPUs {isolated} are isolated or tickless (isolcpus, nohz_full): kept for what names them, and not counted")
        return self.mask - isolated

    def place(self) -> Placement:
        if not self.allowed:
            return Placement(notes=("no CPU is known here: nothing is bound",))
        if self.requested.cpus is not None or self.requested.node is not None:
            return self._asked()
        if (self.ranks.size or 2) > 1 and self.ranks.source:
            return self._rank()
        return self._single()

    # ------------------------------------------------------------------ what the user asked for

    def _asked(self) -> Placement:
        cpus = self.allowed
        if self.requested.cpus is not None:
            outside = self.requested.cpus - self.allowed
            if outside:
                raise Refused(f"--cpus {self.requested.cpus}: {outside} may not be used here", f"allowed are {self.allowed}")
            cpus = self.requested.cpus
        if self.requested.node is not None:
            cpus = cpus & self._node(self.requested.node).cpus
            if not cpus:
                problem = f"--node {self.requested.node}: none of its CPUs may be used here"
                raise Refused(problem, f"allowed are {self.allowed}; {self._offer()}")
        if not cpus:
            raise Refused("--cpus: the list is empty", f"allowed are {self.allowed}")
        if self.ranks.divides_gpus:  # our own instances: all were asked for, each gets its part
            cpus = self._part(cpus, self.ranks.rank, self.ranks.size or 1)
        memory = self.map.nodes_of(cpus)
        return self._placement(cpus, "cpus", memory if len(memory) == 1 else ())

    def _node(self, number: int) -> MemoryNode:
        for node in self.machine.nodes:
            if node.id == number:
                return node
        raise Refused(f"--node {number}: there is no such memory node", self._offer())

    def _offer(self) -> str:
        nodes = CpuSet(node.id for node in self.map.nodes)
        return f"nodes with CPUs are {nodes}" if nodes else "this machine shows no memory nodes"

    # ------------------------------------------------------------------ a process of its own

    def _single(self) -> Placement:
        gpu_nodes = self._nodes_of_gpus()
        if len(gpu_nodes) == 1:
            (node,) = gpu_nodes
            return self._on(node, "gpu-node")
        if len(gpu_nodes) > 1:
            self.notes.append(
                f"its GPUs are beside nodes {CpuSet(node.id for node in gpu_nodes)}: "
                "choose one with CUDA_VISIBLE_DEVICES or --node, or start a rank for each"
            )
            return self._everywhere()
        if sum(map(self._has_memory, self.map.nodes)) > 1 and "node" in self.requested.targets:
            return self._on_several_nodes()
        return self._everywhere()

    def _nodes_of_gpus(self) -> list[MemoryNode]:
        wanted = self.requested.uses_gpu and "gpu-node" in self.requested.targets
        return self.gpu_nodes.nodes() if wanted else []

    def _everywhere(self, sharing: int = 1) -> Placement:
        return self._placement(self.allowed, "", (), sharing=sharing)

    def _on(self, node: MemoryNode, target: str) -> Placement:
        return self._placement(node.cpus & self.allowed, target, (node,))

    def _on_several_nodes(self) -> Placement:
        """The node with most memory to spare, if the CPU quota fits on it; its memory alone, if only the compute threads do."""
        budget = self._budget(self.allowed)
        threads = self.requested.threads or budget
        large = [node for node in self.map.nodes if len(self.map.computing(node.cpus & self.allowed)) >= threads]
        fitting = [node for node in large if self._has_room(node)]
        if not fitting:
            many = f"{threads} threads need more than one of {len(self.map.nodes)} nodes, so they and their memory stay spread"
            why = "no node has that much memory to spare, so threads and memory stay spread" if large else many
            self.notes.append(f"{why}: --nproc {len(self.map.nodes)} or a rank for each node would keep memory near")
            return self._everywhere()
        node = max(fitting, key=lambda node: (node.available_bytes or 0, -node.id))
        if budget <= len(self.map.computing(node.cpus & self.allowed)):  # the quota is for its workers, too
            return self._on(node, "node")
        self.notes.append(
            f"a thread count of {threads} says nothing about loader workers: CPUs stay as they are; --node {node.id} binds all"
        )
        return self._placement(self.allowed, "", (node,))

    def _has_memory(self, node: MemoryNode) -> bool:
        """Whether the node has memory that our cpuset lets us use."""
        return node.has_memory and (self.machine.allowed_nodes is None or node.id in self.machine.allowed_nodes)

    def _has_room(self, node: MemoryNode) -> bool:
        needed, there = self.requested.memory_bytes, node.available_bytes
        return self._has_memory(node) and (needed is None or there is None or there >= needed)

    # ------------------------------------------------------------------ ranks

    def _rank(self) -> Placement:
        if self.ranks.own_cpus:
            return self._kept()
        if self.ranks.size is None:
            self.notes.append(f"{self.ranks.source} does not say how many ranks are on this machine: CPUs and threads are not divided")
            nodes = self._nodes_of_gpus()
            placement = self._on(nodes[0], "gpu-node") if len(nodes) == 1 else self._everywhere()
            return msgspec.structs.replace(placement, threads=self.requested.threads)
        if "rank-share" not in self.requested.targets:
            return self._everywhere(sharing=self.ranks.size)
        share = self.gpu_nodes.share() if self.requested.uses_gpu and "gpu-node" in self.requested.targets else None
        return self._share((share.node,), share.number, share.parts) if share else self._spread()

    def _kept(self) -> Placement:
        """The launcher's choice stays; ranks that it gave the same CPUs divide them, or at least their threads."""
        source, sharing = self.ranks.source, self.ranks.sharing
        if sharing > 1 and self.ranks.place_among_sharing is not None and "rank-share" in self.requested.targets:
            self.notes.append(f"{source} gave CPUs {self.mask} to {sharing} ranks: they divide them")
            return self._share((), self.ranks.place_among_sharing, sharing)
        self.notes.append(
            f"{source} gave this rank CPUs {self.mask}: kept"
            if sharing == 1
            else f"{source} gave CPUs {self.mask} to {sharing} ranks: kept, and threads divided"
        )
        nodes = self.map.nodes_of(self.allowed)
        near = nodes if len(nodes) == 1 and len(self.machine.nodes) > 1 else ()
        return self._placement(self.allowed, "", near, sharing=sharing)

    def _spread(self) -> Placement:
        """Ranks without GPUs: whole nodes, or even parts of one, where that comes out even; else even parts of all cores.

        A rank with fewer cores than the others is the one that all wait for, and costs more than one that straddles two nodes.
        """
        rank, size, nodes = self.ranks.rank, self.ranks.size or 1, self.map.nodes
        count = len(nodes)
        if (count % size and size % count if count else True) or not self.map.alike():
            return self._share((), rank, size)
        if size <= count:
            return self._share(tuple(nodes[rank * count // size : (rank + 1) * count // size]), 0, 1)
        mine = rank * count // size
        sharing = [other for other in range(size) if other * count // size == mine]
        return self._share((nodes[mine],), sharing.index(rank), len(sharing))

    def _share(self, nodes: tuple[MemoryNode, ...], number: int, parts: int) -> Placement:
        """The part's cores, of these nodes or of all that is allowed."""
        cpus = CpuSet.union(node.cpus for node in nodes) & self.allowed if nodes else self.allowed
        cpus = self._part(cpus, number, parts)
        near = self.map.nodes_of(cpus)
        return self._placement(cpus, "rank-share", near if len(near) < max(2, len(self.map.nodes)) else ())

    def _part(self, cpus: CpuSet, number: int, parts: int) -> CpuSet:
        cores = len(self.map.cores(cpus))
        if cores < parts:
            self.notes.append(f"{parts} ranks share {cores} core{'s' * (cores != 1)}")
        return self.map.share(cpus, number, parts)

    # ------------------------------------------------------------------ what comes of it

    def _placement(self, cpus: CpuSet, target: str, memory: Iterable[MemoryNode], *, sharing: int = 1) -> Placement:
        """The decision; `sharing` ranks compute on these same CPUs."""
        nodes = self.map.nodes_of(cpus)
        # One node with memory: everything is near.
        several = len(self.machine.nodes) > 1
        memory_nodes = CpuSet(node.id for node in memory if several and self._has_memory(node))
        if self.requested.strict:
            memory_nodes = self._fitting(CpuSet(node.id for node in nodes))
        budget = self._share_of_budget(cpus, self.ranks.size or 1)
        cores = max(1, len(self.map.computing(cpus)) // sharing)
        return Placement(
            allowed=self.mask,
            cpus=cpus if target else self.mask,
            target=target,
            nodes=CpuSet(node.id for node in nodes),
            memory_nodes=memory_nodes,
            strict=self.requested.strict and bool(memory_nodes),
            cores=cores,
            threads=self.requested.threads or max(1, min(cores, budget)),
            budget=budget,
            notes=tuple(self.notes),
        )

    def _fitting(self, numbers: CpuSet) -> CpuSet:
        """Strict memory that would not fit ends in a kill while other nodes have memory to spare: refused."""
        nodes = [node for node in self.machine.nodes if node.id in numbers and self._has_memory(node)]
        known = [node.available_bytes for node in nodes if node.available_bytes is not None]
        if not nodes:
            raise Refused("--strict-memory: no memory node here can be bound to", "leave it out")
        needed = self.requested.memory_bytes
        least = MIN_STRICT_BYTES if needed is None else needed
        if len(known) == len(nodes) and sum(known) < least:
            what = "what a program with torch takes" if needed is None else f"{needed / 2**30:.1f} GiB"
            smaller = ", or say with --memory that it needs less" if needed is None else ""
            raise Refused(
                f"--strict-memory: {what} does not fit on node {numbers}, which has {sum(known) / 2**30:.1f} GiB to spare",
                f"leave out --strict-memory: memory then comes from this node first and from others when it is full{smaller}",
            )
        return numbers

    def _share_of_budget(self, cpus: CpuSet, parts: int) -> int:
        """Return this rank's part of the quota; the first ranks get what does not divide evenly."""
        if not self.machine.quota:
            return len(cpus)
        whole = math.ceil(self.machine.quota)
        return max(1, min(len(cpus), whole // parts + (self.ranks.rank % parts < whole % parts)))

    def _budget(self, cpus: CpuSet) -> int:
        return max(1, min(len(self.map.computing(cpus)), self._share_of_budget(cpus, 1)))
