"""What placement needs to know of a machine. None is unknown."""

from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record


class MemoryNode(Record):
    """A memory node as placement sees it."""

    id: int
    cpus: CpuSet = CpuSet()
    available_bytes: int | None = None
    gpu_memory: bool = False
    has_memory: bool = True
    distances: dict[int, int] = {}
    """Relative distance to each node by its number; 10 is local. Empty when unknown."""


class CoreKind(Record):
    """The CPUs of one kind of core, and what one of them computes, in the kernel's unit (1024 is the most capable)."""

    cpus: CpuSet
    capacity: int | None = None


class Machine(Record):
    """The CPUs, caches and memory nodes of a machine, and what of them we may use."""

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
    """CPUs that are kept for what names them: isolcpus, nohz_full."""
    packages: tuple[CpuSet, ...] | None = None
    l2_domains: tuple[CpuSet, ...] | None = None
    kinds: tuple[CoreKind, ...] = ()
    """The kinds of cores, least capable first; empty when all are alike."""
