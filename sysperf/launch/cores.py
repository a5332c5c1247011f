"""The cores that a launch may use: which of them compute, in which order ranks share them, and each rank's share.

Order: by package, then by the distance of memory nodes, then by L3 cache, L2 cache and number. Node numbers say nothing of
distance: firmware numbers nodes round robin over sockets too. Shares are even and contiguous in that order, and end where a
cache ends when that leaves them as even.
"""

from collections.abc import Sequence

from sysperf.launch.machine import Machine, MemoryNode
from sysperf.model.cpuset import CpuSet

MIN_GAIN = 1.2
"""Slower cores compute too when all together gain this factor: OpenMP gives each thread the same work and waits for the slowest."""
ASSUMED_CAPACITY = 0.6
"""Of an efficiency core beside a performance core, to balance ranks where the kernel gives no capacity."""
MIN_SPLIT_GAIN = 1.25
"""Some ranks get slow cores alone when the rank that all wait for gains this factor."""
_NODE, _L3, _L2 = 3, 2, 1


class CoreMap:
    """The allowed cores of a machine, in the order of sharing."""

    def __init__(self, machine: Machine, allowed: CpuSet) -> None:
        self.machine, self.allowed = machine, allowed
        self.nodes = _chained([node for node in machine.nodes if node.cpus & allowed and not node.gpu_memory], machine.packages or ())
        """Nodes with CPUs that we may use: not memory alone (CXL, HBM), not a GPU's. Near ones are neighbours in this list."""

    def nodes_of(self, cpus: CpuSet) -> list[MemoryNode]:
        """The nodes of these CPUs."""
        return [node for node in self.nodes if node.cpus & cpus]

    def cores(self, cpus: CpuSet) -> list[CpuSet]:
        """The threads of each physical core among these; every CPU is one where the kernel does not say."""
        if self.machine.cores is None:
            return [CpuSet((cpu,)) for cpu in cpus]
        cores = [core & cpus for core in self.machine.cores if core & cpus]
        rest = cpus - CpuSet.union(cores)
        return [*cores, *(CpuSet((cpu,)) for cpu in rest)]

    def computing(self, cpus: CpuSet) -> list[CpuSet]:
        """The physical cores on which compute threads run: one thread each."""
        kinds = [(kind.capacity, self.cores(kind.cpus & cpus)) for kind in self.machine.kinds if kind.cpus & cpus]
        if not kinds or any(capacity is None for capacity, _ in kinds):
            return self.cores(self._fast(cpus))
        chosen: list[CpuSet] = []
        joined: list[CpuSet] = []
        power = 0.0
        for capacity, cores in sorted(kinds, key=lambda kind: -(kind[0] or 0)):
            joined = [*joined, *cores]
            if len(joined) * (capacity or 0) >= power * MIN_GAIN:
                chosen, power = joined, len(joined) * (capacity or 0)
        return chosen

    def share(self, cpus: CpuSet, number: int, parts: int) -> CpuSet:
        """The CPUs of part `number` of `parts`: even, and no core twice while there are enough."""
        fast = self._fast(cpus)
        cores = self._ordered(self.cores(cpus))
        if fast == cpus or len(cores) < parts:
            return CpuSet.union(self._slice(cores, number, parts))
        return CpuSet.union(self._share_of_kinds(self._ordered(self.cores(fast)), self._ordered(self.cores(cpus - fast)), number, parts))

    def alike(self) -> bool:
        """Whether there are several nodes, each with as many of our cores, and together with all of them."""
        sizes = {len(self.computing(node.cpus & self.allowed)) for node in self.nodes}
        return len(self.nodes) > 1 and len(sizes) == 1 and not self.allowed - CpuSet.union(node.cpus for node in self.nodes)

    def _fast(self, cpus: CpuSet) -> CpuSet:
        """The performance CPUs among these; all when there are none."""
        return (cpus & self.machine.performance if self.machine.performance else cpus) or cpus

    def _share_of_kinds(self, fast: list[CpuSet], slow: list[CpuSet], number: int, parts: int) -> list[CpuSet]:
        """Ranks compute on one kind of core each: the first on fast ones, the others on as many slow ones as match them."""
        capacity = self._slow_capacity()
        on_fast = _ranks_on_fast(len(fast), len(slow), parts, capacity)
        on_slow = parts - on_fast
        matching = min(-int(-(len(fast) // on_fast) // capacity), len(slow) // on_slow) if on_slow else 0
        reserved, spare = slow[: matching * on_slow], slow[matching * on_slow :]
        if number >= on_fast:
            return self._slice(reserved, number - on_fast, on_slow)
        return [*self._slice(fast, number, on_fast), *_plain_slice(spare, number, on_fast)]

    def _slow_capacity(self) -> float:
        """What a core of the slower kinds computes, as a part of a fast one."""
        fast = [kind.capacity for kind in self.machine.kinds if kind.cpus & (self.machine.performance or CpuSet())]
        slow = [kind.capacity for kind in self.machine.kinds if not kind.cpus & (self.machine.performance or CpuSet())]
        known = [capacity for capacity in (*fast, *slow) if capacity]
        if not fast or not slow or len(known) < len(fast) + len(slow):
            return ASSUMED_CAPACITY
        return min(1.0, min(known) / max(known))

    # ------------------------------------------------------------------ order

    def _ordered(self, cores: list[CpuSet]) -> list[CpuSet]:
        return sorted(cores, key=self._position)

    def _position(self, core: CpuSet) -> tuple[int, ...]:
        """Package, node, L3, L2 and number of a core's first CPU; packages in the order of their nodes."""
        first = core.first() or 0
        node = next((index for index, node in enumerate(self.nodes) if first in node.cpus), len(self.nodes))
        package = next((package for package in self.machine.packages or () if first in package), CpuSet())
        near = next((index for index, node in enumerate(self.nodes) if node.cpus & package), 0)
        caches = (_domain(domains, first) for domains in (self.machine.l3_domains, self.machine.l2_domains))
        return near, package.first() or 0, node, *(first if cache is None else cache for cache in caches), first

    def _slice(self, cores: list[CpuSet], number: int, parts: int) -> list[CpuSet]:
        """The part's cores. Parts differ by one core at most; they end where a node or a cache ends when they can."""
        if len(cores) < parts:
            return [cores[number * len(cores) // parts]]
        start = 0
        for index, stop in enumerate(self._ends(cores, parts)):
            if index == number:
                return cores[start:stop]
            start = stop
        return []

    def _ends(self, cores: list[CpuSet], parts: int) -> list[int]:
        size, larger = divmod(len(cores), parts)
        ends, at = [], 0
        for index in range(parts):
            sizes = [size] if not larger else [size + 1] if larger == parts - index else [size, size + 1]
            even = (index + 1) * len(cores) // parts
            stop = max((at + count for count in sizes), key=lambda end: (self._edge(cores, end), -abs(end - even)))
            larger -= stop - at > size
            at = stop
            ends.append(at)
        return ends

    def _edge(self, cores: list[CpuSet], at: int) -> int:
        """What ends before core `at`: a node, an L3 cache, an L2 cache, or nothing."""
        if at >= len(cores):
            return _NODE
        before, after = cores[at - 1].first() or 0, cores[at].first() or 0
        if any((before in cpus) != (after in cpus) for cpus in (*(node.cpus for node in self.nodes), *(self.machine.packages or ()))):
            return _NODE
        if _domain(self.machine.l3_domains, before) != _domain(self.machine.l3_domains, after):
            return _L3
        return _L2 if _domain(self.machine.l2_domains, before) != _domain(self.machine.l2_domains, after) else 0


def _domain(domains: Sequence[CpuSet] | None, cpu: int) -> int | None:
    return next((domain.first() for domain in domains or () if cpu in domain), None)


def _plain_slice(cores: list[CpuSet], number: int, parts: int) -> list[CpuSet]:
    return cores[number * len(cores) // parts : (number + 1) * len(cores) // parts]


def _ranks_on_fast(fast: int, slow: int, parts: int, capacity: float) -> int:
    """How many of the ranks compute on fast cores, so that the rank that all wait for has most."""

    def weakest(on_fast: int) -> float:
        on_slow = parts - on_fast
        return min(fast // on_fast, capacity * (slow // on_slow)) if on_slow else fast // on_fast

    if not fast % parts:
        return parts
    choices = range(max(1, parts - slow), min(parts, fast) + 1)
    best = max(choices, key=lambda on_fast: (weakest(on_fast), on_fast))
    return parts if parts in choices and weakest(best) < weakest(parts) * MIN_SPLIT_GAIN else best


def _chained(nodes: list[MemoryNode], packages: Sequence[CpuSet]) -> list[MemoryNode]:
    """The nodes so that neighbours are near: the rest of a package first, then what is nearest to the last one."""

    if not packages and not any(node.distances for node in nodes):
        return nodes
    package_of = {node.id: next((index for index, cpus in enumerate(packages) if cpus & node.cpus), -1) for node in nodes}
    chain, rest = nodes[:1], nodes[1:]
    while rest:
        last = chain[-1]
        nearest = min(rest, key=lambda node: (package_of[node.id] != package_of[last.id], last.distances.get(node.id, 255), node.id))
        rest.remove(nearest)
        chain.append(nearest)
    return chain
