"""numa: memory nodes, the CPUs beside them, and automatic balancing.

Reads   /sys/devices/system/node/node*/{cpulist,cpumap,meminfo,distance}  /proc/sys/kernel/numa_balancing
        /proc/driver/nvidia/gpus/*/numa_status
Kernel  https://docs.kernel.org/admin-guide/mm/numaperf.html
        https://docs.kernel.org/admin-guide/sysctl/kernel.html#numa-balancing
"""

from typing import Annotated

from sysperf.collect.cpu import online_cpus
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import Missing
from sysperf.model.record import Record, fact
from sysperf.model.text import parse_size

NODES = "/sys/devices/system/node/node[0-9]*"
BALANCING = "/proc/sys/kernel/numa_balancing"
GPU_NODES = "/proc/driver/nvidia/gpus/*/numa_status"


class Node(Record):
    """One memory node."""

    id: int
    cpus: Annotated[
        CpuSet | None,
        fact("online CPUs of the node; empty on a memory-only node (CXL, HBM, a GPU's own memory)", f"{NODES}/cpulist", f"{NODES}/cpumap"),
    ]
    mem_total_bytes: Annotated[int | None, fact("memory of the node", f"{NODES}/meminfo")] = None
    mem_free_bytes: Annotated[int | None, fact("free memory of the node", f"{NODES}/meminfo")] = None
    distances: Annotated[tuple[int, ...], fact("relative distance to each node, in the order of the nodes; 10 is local", f"{NODES}/distance")] = ()
    gpu_memory: Annotated[bool, fact("the memory of a GPU, not of the machine", GPU_NODES)] = False


class Numa(Record):
    """Memory nodes, in the order of their numbers, which may have gaps."""

    nodes: Annotated[tuple[Node, ...], fact("memory nodes", NODES)]
    nodes_with_cpus: Annotated[int, fact("nodes that have both CPUs and memory of the machine", f"{NODES}/cpulist")]
    balancing: Annotated[int | None, fact("automatic NUMA balancing: 0 off, 1 on, 2 memory tiering", BALANCING)] = None


def collect(host: Host) -> Numa:
    """Read the nodes. Raises Missing on a kernel that shows none."""
    online = online_cpus(host)
    gpu_nodes = set(_gpu_nodes(host))
    nodes = tuple(_node(host, path, online, gpu_nodes) for path in host.glob(NODES))
    if not nodes:
        raise Missing(f"no {NODES}: a kernel without NUMA support, or not captured")
    local = sum(1 for node in nodes if node.cpus and not node.gpu_memory and node.mem_total_bytes != 0)
    return Numa(nodes, local, host.number(BALANCING))


def _node(host: Host, path: str, online: CpuSet | None, gpu_nodes: set[int]) -> Node:
    number = int(path.rpartition("node")[2])
    cpus = host.cpus(f"{path}/cpulist")
    if cpus is None:
        cpus = host.mask(f"{path}/cpumap")
    if cpus is not None and online is not None:
        cpus &= online
    memory = _memory(host, f"{path}/meminfo")
    distances = (host.word(f"{path}/distance") or "").split()
    return Node(
        id=number,
        cpus=cpus,
        mem_total_bytes=memory.get("MemTotal"),
        mem_free_bytes=memory.get("MemFree"),
        distances=tuple(int(word) for word in distances if word.isdigit() and len(word) < 6),
        gpu_memory=number in gpu_nodes,
    )


def _memory(host: Host, path: str) -> dict[str, int]:
    """Sizes of one node in bytes; a line reads ``Node 0 MemTotal:  32768 kB``."""
    sizes = {}
    for name, value in (host.pairs(path) or {}).items():
        try:
            sizes[name.rpartition(" ")[2]] = parse_size(value)
        except ValueError:
            host.refuse(path, f"{name}: not a size")
    return sizes


def _gpu_nodes(host: Host) -> list[int]:
    nodes = []
    if not host.exists("/proc/driver/nvidia/gpus"):
        return nodes
    for path in host.glob(GPU_NODES):
        node = (host.pairs(path) or {}).get("Node", "")
        if node.isdigit():
            nodes.append(int(node))
    return nodes
