"""Where a program runs best: which CPUs, which memory, how many threads. A pure function of what is known of the machine.

1. Allowed: the process's mask, which lies inside its cpuset, and never more.
2. Budget: no more threads than the CPU quota has CPUs, rounded up (at 1.5 CPUs two threads beat one by 1.36 to 1.40).
3. Kinds of cores: threads compute on performance cores; loader workers may use all.
4. SMT: one compute thread a physical core; the siblings stay in the mask for workers and the system.
5. Nodes: beside the GPU; else a node that is large enough; else everything, and the memory is left alone.
6. Ranks: even, contiguous shares of the cores beside their GPUs, or of all nodes.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

from sysperf.launch.gpus import MIXED, PlacedGpu, VisibleGpus, part
from sysperf.launch.ranks import Ranks
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record

TARGETS = frozenset(("gpu-node", "node", "rank-share"))
"""What a process can be bound to by rule."""

Groups = Sequence[CpuSet]

LEAST_STRICT_BYTES = 256 << 20
"""Strict memory on a node with less to spare than this is refused: importing torch alone takes as much."""


class MemoryNode(Record):
    """A memory node as placement sees it."""

    id: int
    cpus: CpuSet = CpuSet()
    available_bytes: int | None = None
    gpu_memory: bool = False
    has_memory: bool = True


class Machine(Record):
    """What placement needs to know of a machine. None is unknown."""

    allowed: CpuSet | None = None
    online: CpuSet = CpuSet()
    cores: tuple[CpuSet, ...] | None = None
    """The online threads of each physical core."""
    performance: CpuSet | None = None
    """The CPUs of the capable kinds of cores; None when all are alike."""
    l3_domains: tuple[CpuSet, ...] | None = None
    nodes: tuple[MemoryNode, ...] = ()
    allowed_nodes: CpuSet | None = None
    quota: float | None = None
    """CPUs' worth of time; 0 is no quota."""
    isolated: CpuSet | None = None
    """CPUs onto which the scheduler moves nothing by itself (isolcpus)."""


class RequestedPlacement(Record):
    """What the user asks for."""

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
    """A wish that cannot be met; the text says why, `hint` what would work."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Placement(Record):
    """Where the program goes."""

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
    """Decide. Raises Refused when a wish cannot be met."""
    return _Placer(machine, ranks, gpus, requested).place()


class _Placer:
    def __init__(self, machine: Machine, ranks: Ranks, gpus: VisibleGpus, requested: RequestedPlacement) -> None:
        self.machine, self.ranks, self.gpus, self.requested = machine, ranks, gpus, requested
        self.notes: list[str] = []
        self.mask = self._mask()
        self.allowed = self._balanced()
        self.local = [node for node in machine.nodes if node.cpus & self.allowed and not node.gpu_memory]
        """Nodes with CPUs that we may use: not memory alone (CXL, HBM), not a GPU's."""

    def _mask(self) -> CpuSet:
        if self.machine.allowed is None:
            self.notes.append("nothing says which CPUs may be used: all that are online")
            return self.machine.online
        return self.machine.allowed & self.machine.online or self.machine.allowed

    def _balanced(self) -> CpuSet:
        """Without isolated CPUs, where threads stay on the CPU they start on; with them when we are on those alone, or the user chooses."""
        isolated = self.mask & (self.machine.isolated or CpuSet())
        if not isolated or isolated == self.mask or self.requested.cpus is not None or self.requested.node is not None:
            return self.mask
        self.notes.append(f"CPUs {isolated} are isolated: the scheduler moves nothing onto them, and they are not counted")
        return self.mask - isolated

    def _has_memory(self, node: MemoryNode) -> bool:
        """Whether the node has memory that our cpuset lets us use."""
        return node.has_memory and (self.machine.allowed_nodes is None or node.id in self.machine.allowed_nodes)

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
            if not self.requested.cpus.issubset(self.allowed):
                raise Refused(
                    f"--cpus {self.requested.cpus}: {self.requested.cpus - self.allowed} may not be used here",
                    f"allowed are {self.allowed}",
                )
            cpus = self.requested.cpus
        if self.requested.node is not None:
            cpus = cpus & self._node(self.requested.node).cpus
            if not cpus:
                raise Refused(
                    f"--node {self.requested.node}: none of its CPUs may be used here", f"allowed are {self.allowed}; {self._offer()}"
                )
        if not cpus:
            raise Refused("--cpus: the list is empty", f"allowed are {self.allowed}")
        if self.ranks.divides_gpus:  # our own instances: all were asked for, each gets its part
            cpus = self._part(cpus, self.ranks.rank, self.ranks.size or 1)
        memory = self._nodes_of(cpus)
        return self._placement(cpus, "cpus", memory if len(memory) == 1 else ())

    def _node(self, number: int) -> MemoryNode:
        for node in self.machine.nodes:
            if node.id == number:
                return node
        raise Refused(f"--node {number}: there is no such memory node", self._offer())

    def _offer(self) -> str:
        return f"nodes with CPUs are {CpuSet(node.id for node in self.local)}" if self.local else "this machine shows no memory nodes"

    # ------------------------------------------------------------------ a process of its own

    def _single(self) -> Placement:
        gpu_nodes = self._gpu_nodes()
        if len(gpu_nodes) == 1:
            (node,) = gpu_nodes
            return self._on(node, "gpu-node")
        if len(gpu_nodes) > 1:
            self.notes.append(
                f"its GPUs are beside nodes {CpuSet(node.id for node in gpu_nodes)}: "
                "choose one with CUDA_VISIBLE_DEVICES or --node, or start a rank for each"
            )
            return self._everywhere()
        if sum(map(self._has_memory, self.local)) > 1 and "node" in self.requested.targets:
            return self._roomiest()
        return self._everywhere()

    def _everywhere(self, sharing: int = 1) -> Placement:
        return self._placement(self.allowed, "", (), sharing=sharing)

    def _on(self, node: MemoryNode, target: str) -> Placement:
        return self._placement(node.cpus & self.allowed, target, (node,))

    def _roomiest(self) -> Placement:
        """The node with most memory to spare, if the threads fit on it; else all of them, each page where it is first used."""
        wanted = self.requested.threads or self._budget(self.allowed)
        large = [node for node in self.local if len(self._compute(node.cpus & self.allowed)) >= wanted]
        fitting = [node for node in large if self._has_room(node)]
        if fitting:
            return self._on(max(fitting, key=lambda node: (node.available_bytes or 0, -node.id)), "node")
        many = f"{wanted} threads need more than one of {len(self.local)} nodes, so they and their memory stay spread"
        why = "no node has that much memory to spare, so threads and memory stay spread" if large else many
        self.notes.append(f"{why}: --nproc {len(self.local)} or a rank for each node would keep memory near")
        return self._everywhere()

    def _has_room(self, node: MemoryNode) -> bool:
        needed, there = self.requested.memory_bytes, node.available_bytes
        return self._has_memory(node) and (needed is None or there is None or there >= needed)

    # ------------------------------------------------------------------ GPUs

    def _mine(self) -> list[PlacedGpu] | None:
        """The GPUs of this process; None when that is unknown."""
        if not self.requested.uses_gpu:
            return []
        if self.gpus.visible is None:
            self.notes.append(f"{self.gpus.problem}: not bound to its GPU's node")
            return None
        if self.ranks.source and self.gpus.visible and not self.gpus.ordered:
            self.notes.append(f"{MIXED}: not bound to its GPU's node")
            return None
        return self._of_rank(self.ranks.rank) if self.ranks.source else list(self.gpus.visible)

    def _of_rank(self, rank: int) -> list[PlacedGpu]:
        """The GPUs of a rank: its part when we divide them, else the one with its number, as programs choose."""
        visible = list(self.gpus.visible or ())
        if self.ranks.divides_gpus:
            return [visible[index] for index in part(len(visible), rank, self.ranks.size or 1)]
        return [visible[rank % len(visible)]] if visible else []

    def _node_of(self, gpu: PlacedGpu) -> MemoryNode | None:
        """The node beside a GPU whose CPUs we may use; by its CPUs where the firmware gives no number."""
        for node in self.local:
            if node.id == gpu.node or (gpu.node is None and gpu.local_cpus and gpu.local_cpus & self.machine.online == node.cpus):
                return node
        return None

    def _gpu_nodes(self) -> list[MemoryNode]:
        mine = self._mine()
        if not mine or len(self.local) < 2 or "gpu-node" not in self.requested.targets:
            return []
        found = {node.id: node for gpu in mine if (node := self._node_of(gpu))}
        if not all(self._node_of(gpu) for gpu in mine):
            self.notes.append(
                "the firmware does not say which node its GPU is beside, or none of that node's CPUs may be used: not bound to it"
            )
            return []
        return list(found.values())

    # ------------------------------------------------------------------ ranks

    def _rank(self) -> Placement:
        if self.ranks.own_cpus:
            self.notes.append(f"{self.ranks.source} gave this rank CPUs {self.mask}: kept")
            return self._kept()
        if self.ranks.size is None:
            self.notes.append(f"{self.ranks.source} does not say how many ranks are on this machine: CPUs and threads are not divided")
            nodes = self._gpu_nodes()
            placement = self._on(nodes[0], "gpu-node") if len(nodes) == 1 else self._everywhere()
            return msgspec.structs.replace(placement, threads=self.requested.threads)
        if "rank-share" not in self.requested.targets:
            return self._everywhere(sharing=self.ranks.size)
        beside = self._beside_gpus()
        if beside is not None:
            node, mine, sharing = beside
            return self._share((node,), mine, sharing)
        return self._spread()

    def _kept(self) -> Placement:
        nodes = self._nodes_of(self.allowed)
        near = nodes if len(nodes) == 1 and len(self.local) >= 1 and len(self.machine.nodes) > 1 else ()
        return self._placement(self.allowed, "", near)

    def _beside_gpus(self) -> tuple[MemoryNode, int, int] | None:
        """(node of this rank's GPU, which of its parts, how many): ranks whose GPUs share a node divide it."""
        size, visible = self.ranks.size or 1, self.gpus.visible
        if not self._gpu_nodes() or not visible:
            return None
        if len(visible) > 1 or size == 1 or self.ranks.same_gpus:
            places = [self._of_rank(rank) for rank in range(size)]
            rank = self.ranks.rank
        else:  # each rank sees its own GPU only: take it that every GPU of the machine has one rank
            places = [[gpu] for gpu in self.gpus.machine]
            rank = next((index for index, (gpu,) in enumerate(places) if gpu.bus_id == visible[0].bus_id), 0)
            if size > len(places):
                self.notes.append(f"{size} ranks on {len(places)} GPUs, each seeing one: which of them share is not known")
                return None
        if not all(self._node_of(gpu) for gpus in places for gpu in gpus):
            # Those ranks divide all CPUs: a rank that took its own node's would be on theirs.
            self.notes.append("another rank's GPU is beside no known node, or none of whose CPUs may be used: ranks divide all CPUs evenly")
            return None
        nodes = [node for gpus in places if (node := self._node_of(gpus[0]))]
        sharing = [index for index, node in enumerate(nodes) if node.id == nodes[rank].id]
        return nodes[rank], sharing.index(rank), len(sharing)

    def _spread(self) -> Placement:
        """Ranks without GPUs: whole nodes, or even parts of one, where that comes out even; else even parts of all cores.

        A rank with fewer cores than the others is the one that all wait for, and costs more than one that straddles two nodes.
        """
        rank, size, count = self.ranks.rank, self.ranks.size or 1, len(self.local)
        if (count % size and size % count) or not self._nodes_are_alike():
            return self._share((), rank, size)
        if size <= count:
            return self._share(tuple(self.local[rank * count // size : (rank + 1) * count // size]), 0, 1)
        mine = rank * count // size
        sharing = [other for other in range(size) if other * count // size == mine]
        return self._share((self.local[mine],), sharing.index(rank), len(sharing))

    def _nodes_are_alike(self) -> bool:
        """Whether there are several, each with as many of our cores, and together with all of them."""
        sizes = {len(self._compute(node.cpus & self.allowed)) for node in self.local}
        return len(self.local) > 1 and len(sizes) == 1 and not self.allowed - CpuSet.union(node.cpus for node in self.local)

    def _share(self, nodes: tuple[MemoryNode, ...], number: int, parts: int) -> Placement:
        """The part's cores, of these nodes or of all that is allowed."""
        cpus = CpuSet.union(node.cpus for node in nodes) & self.allowed if nodes else self.allowed
        cpus = self._part(cpus, number, parts)
        near = self._nodes_of(cpus)
        return self._placement(cpus, "rank-share", near if len(near) == 1 else ())

    def _part(self, cpus: CpuSet, number: int, parts: int) -> CpuSet:
        """An even, contiguous share of each kind of core, ordered by the L3 cache they are under.

        Where there are fewer performance cores than parts, the kinds count alike: a slow core of one's own beats half a fast one.
        """
        fast = self._fast(cpus)
        if len(self._cores(fast)) < parts:
            fast = cpus
        mine: list[CpuSet] = []
        for kind in (fast, cpus - fast):
            cores = self._by_cache(self._cores(kind))
            mine += _slice(cores, number, parts, at_least_one=kind is fast)
        if len(self._cores(fast)) < parts:
            self.notes.append(f"{parts} ranks share {len(self._cores(fast))} cores")
        return CpuSet.union(mine)

    def _by_cache(self, cores: list[CpuSet]) -> list[CpuSet]:
        """By memory node, then by L3 cache, then by number."""
        domains = self.machine.l3_domains or ()

        def order(core: CpuSet) -> tuple[int, int, int]:
            first = core.first() or 0
            node = next((index for index, node in enumerate(self.local) if first in node.cpus), len(self.local))
            return node, next((domain.first() or 0 for domain in domains if first in domain), first), first

        return sorted(cores, key=order)

    # ------------------------------------------------------------------ what comes of it

    def _placement(self, cpus: CpuSet, target: str, memory: Iterable[MemoryNode], *, sharing: int = 1) -> Placement:
        """The decision; `sharing` ranks compute on these same CPUs."""
        nodes = self._nodes_of(cpus)
        # One node with memory: everything is near.
        several = len(self.machine.nodes) > 1
        memory_nodes = CpuSet(node.id for node in memory if several and self._has_memory(node))
        if self.requested.strict:
            memory_nodes = self._fitting(CpuSet(node.id for node in nodes))
        budget = self._share_of_budget(cpus, self.ranks.size or 1)
        cores = max(1, len(self._compute(cpus)) // sharing)
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
        least = LEAST_STRICT_BYTES if needed is None else needed
        if len(known) == len(nodes) and sum(known) < least:
            what = "what a program with torch takes" if needed is None else f"{needed / 2**30:.1f} GiB"
            smaller = ", or say with --memory that it needs less" if needed is None else ""
            raise Refused(
                f"--strict-memory: {what} does not fit on node {numbers}, which has {sum(known) / 2**30:.1f} GiB to spare",
                f"leave out --strict-memory: memory then comes from this node first and from others when it is full{smaller}",
            )
        return numbers

    def _share_of_budget(self, cpus: CpuSet, parts: int) -> int:
        """This rank's part of the quota; the first ranks get what does not divide evenly."""
        if not self.machine.quota:
            return len(cpus)
        whole = math.ceil(self.machine.quota)
        return max(1, min(len(cpus), whole // parts + (self.ranks.rank % parts < whole % parts)))

    def _budget(self, cpus: CpuSet) -> int:
        return max(1, min(len(self._compute(cpus)), self._share_of_budget(cpus, 1)))

    def _nodes_of(self, cpus: CpuSet) -> list[MemoryNode]:
        return [node for node in self.local if node.cpus & cpus]

    def _fast(self, cpus: CpuSet) -> CpuSet:
        """The performance CPUs among these; all when there are none."""
        return (cpus & self.machine.performance if self.machine.performance else cpus) or cpus

    def _cores(self, cpus: CpuSet) -> list[CpuSet]:
        """The allowed threads of each physical core; every CPU is one where the kernel does not say."""
        if self.machine.cores is None:
            return [CpuSet((cpu,)) for cpu in cpus]
        found = [core & cpus for core in self.machine.cores if core & cpus]
        rest = cpus - CpuSet.union(found)
        return [*found, *(CpuSet((cpu,)) for cpu in rest)]

    def _compute(self, cpus: CpuSet) -> list[CpuSet]:
        """The physical cores on which compute threads run."""
        return self._cores(self._fast(cpus))


def _slice(cores: list[CpuSet], number: int, parts: int, *, at_least_one: bool) -> list[CpuSet]:
    start, stop = number * len(cores) // parts, (number + 1) * len(cores) // parts
    if start == stop and at_least_one and cores:
        return [cores[start % len(cores)]]
    return cores[start:stop]
