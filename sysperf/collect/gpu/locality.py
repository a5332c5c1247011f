"""The place of a GPU: the NUMA node and the CPUs beside it.

Reads   NVML (libnvidia-ml.so.1)  /sys/bus/pci/devices/*/{numa_node,local_cpulist}
NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
Kernel  https://docs.kernel.org/PCI/sysfs-pci.html
"""

from sysperf.collect.gpu.answers import Answers
from sysperf.collect.gpu.places import PCI
from sysperf.model.cpuset import MAX_CPU, CpuSet
from sysperf.model.record import Json


def numa_node(gpu: Answers, firmware_node: int | None) -> int | None:
    """The node that sysfs tells, else NVML's answer when that is a single one."""
    if firmware_node is not None:
        return firmware_node if 0 <= firmware_node <= MAX_CPU else None
    nodes = _mask(gpu.ask("DeviceGetMemoryAffinity", 16, 0))
    return nodes.first() if nodes is not None and len(nodes) == 1 else None


def local_cpus(gpu: Answers, bus_id: str | None) -> CpuSet | None:
    """The CPUs beside a GPU, from sysfs or else from NVML."""
    cpus = gpu.host.cpus(f"{PCI}/{bus_id}/local_cpulist") if bus_id else None
    return _mask(gpu.ask("DeviceGetCpuAffinity", 64)) if cpus is None else cpus


def _mask(words: Json) -> CpuSet | None:
    """NVML's sets are lists of 64-bit words, lowest first."""
    if not isinstance(words, list | tuple):
        return None
    bits = 0
    for position, word in enumerate(words[: MAX_CPU // 64]):
        bits |= (word & (1 << 64) - 1 if isinstance(word, int) else 0) << 64 * position
    return CpuSet(bits=bits)
