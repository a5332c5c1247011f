"""numa: memory nodes, the CPUs beside them, and automatic balancing.

Reads   /sys/devices/system/node/node*/{cpulist,cpumap,meminfo,distance}  /proc/sys/kernel/numa_balancing
        /proc/driver/nvidia/gpus/*/numa_status  /proc/self/{status,cgroup,cpuset}
Kernel  https://docs.kernel.org/admin-guide/mm/numaperf.html
        https://docs.kernel.org/admin-guide/sysctl/kernel.html#numa-balancing
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.readers.allowed_cpus import ALLOWED, allowed
from sysperf.collect.readers.cpu_topology import ONLINE, SYSTEM, online_cpus
from sysperf.collect.readers.unreadable import is_unreadable
from sysperf.host import Host
from sysperf.model.cpuset import MAX_CPU, CpuSet
from sysperf.model.errors import Missing
from sysperf.model.record import Record, fact
from sysperf.procfs import meminfo
from sysperf.procfs.numbers import whole
from sysperf.startup import lazy

FOLDER = "/sys/devices/system/node"
NODES = f"{FOLDER}/node[0-9]*"
BALANCING = "/proc/sys/kernel/numa_balancing"
GPUS = "/proc/driver/nvidia/gpus"
GPU_NODES = f"{GPUS}/*/numa_status"
MAX_ROW_BYTES = 65_536  # a distance matrix has a number of up to four characters for each of at most 1,024 nodes

_NODE = lazy(r"node([0-9]{1,5})")
_DISTANCE = lazy(r"[0-9]{1,5}")
_FREED_FIRST = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")


class Node(Record):
    """One memory node."""

    id: Annotated[int, fact("number of the node; numbers may have gaps", NODES)]
    cpus: Annotated[
        CpuSet | None,
        fact("online CPUs of the node; empty on a memory-only node (CXL, HBM, a GPU's own memory)", f"{NODES}/cpulist", f"{NODES}/cpumap"),
    ] = None
    mem_total_bytes: Annotated[int | None, fact("memory of the node", f"{NODES}/meminfo")] = None
    mem_free_bytes: Annotated[int | None, fact("memory of the node that nothing uses", f"{NODES}/meminfo")] = None
    mem_available_bytes: Annotated[
        int | None, fact("free memory, file cache and reclaimable slabs: what a program can still get there", f"{NODES}/meminfo")
    ] = None
    distances: Annotated[
        tuple[int, ...] | None, fact("relative distance to each node, in the order of the nodes; 10 is local", f"{NODES}/distance")
    ] = None
    gpu_memory: Annotated[bool | None, fact("the memory of a GPU, not of the machine", GPU_NODES)] = False


class Numa(Record):
    """Memory nodes, in the order of their numbers."""

    nodes: Annotated[tuple[Node, ...], fact("memory nodes", FOLDER)]
    nodes_with_cpus: Annotated[int | None, fact("nodes that have both online CPUs and memory of the machine", f"{NODES}/cpulist", ONLINE)]
    balancing: Annotated[int | None, fact("automatic NUMA balancing: 0 off, 1 on, 2 memory tiering, 3 both", BALANCING)] = None
    allowed_nodes: Annotated[CpuSet | None, fact("nodes whose memory sysperf, and so what it starts, may use", *ALLOWED)] = None


def collect(host: Host) -> Numa:
    """Read the nodes. Raises Missing on a kernel that shows none."""
    numbers = node_numbers(host)
    if not numbers:
        raise Missing(f"no {NODES}: a kernel without NUMA support, or not captured")
    online = online_cpus(host)
    gpu_nodes = _gpu_nodes(host)
    nodes = tuple(_node(host, number, online, None if gpu_nodes is None else number in gpu_nodes) for number in numbers)
    local = [_is_local(host, node) for node in nodes]
    mems = allowed(host)[1]
    return Numa(nodes, None if None in local else local.count(True), host.number(BALANCING), mems & numbers if mems else None)


def node_numbers(host: Host) -> CpuSet:
    """The numbers of the memory nodes; empty on a kernel that shows none."""
    matches = (_NODE.fullmatch(name) for name in host.names(FOLDER) or ())
    return CpuSet(int(match[1]) for match in matches if match and int(match[1]) <= MAX_CPU)


def _is_local(host: Host, node: Node) -> bool | None:
    """Whether a node has both CPUs and memory of the machine. Captures that hold no sizes are taken to have memory."""
    if node.cpus is None:
        return None
    if not node.cpus or node.gpu_memory:
        return False
    unread = node.mem_total_bytes is None and is_unreadable(host, f"{FOLDER}/node{node.id}/meminfo")
    return None if unread or node.gpu_memory is None else node.mem_total_bytes != 0


def _node(host: Host, number: int, online: CpuSet | None, gpu_memory: bool | None) -> Node:
    path = f"{FOLDER}/node{number}"
    memory = meminfo.sizes(host.text(f"{path}/meminfo") or "")
    return Node(
        id=number,
        cpus=_cpus(host, path, online),
        mem_total_bytes=memory.get("MemTotal"),
        mem_free_bytes=memory.get("MemFree"),
        mem_available_bytes=sum(memory.get(name, 0) for name in _FREED_FIRST) if "MemFree" in memory else None,
        distances=_distances(host, f"{path}/distance"),
        gpu_memory=gpu_memory,
    )


def _cpus(host: Host, path: str, online: CpuSet | None) -> CpuSet | None:
    """The node's CPUs, cut to those online: captures and hot-unplugged machines list more."""
    cpus = host.cpus(f"{path}/cpulist")
    if cpus is None:
        cpus = host.mask(f"{path}/cpumap")
    if cpus is not None and online is not None:
        return cpus & online
    return None if is_unreadable(host, SYSTEM) else cpus


def _distances(host: Host, path: str) -> tuple[int, ...] | None:
    words = (host.word(path, MAX_ROW_BYTES) or "").split()
    return tuple(int(word) for word in words) if words and all(_DISTANCE.fullmatch(word) for word in words) else None


def _gpu_nodes(host: Host) -> frozenset[int] | None:
    """The nodes that are memory of NVIDIA GPUs (POWER9, Grace Hopper); None when there are GPUs that do not say."""
    if not host.exists(GPUS):
        return frozenset()
    names = host.names(GPUS)
    paths = [path for name in names or () if host.exists(path := f"{GPUS}/{name}/numa_status")]
    gpu_fields = [host.pairs(path) for path in paths]
    if names is None or None in gpu_fields:
        return None
    numbers = (whole((fields or {}).get("Node")) for fields in gpu_fields)
    return frozenset(number for number in numbers if number is not None)
