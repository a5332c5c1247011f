"""Which processes compute on which GPUs, as the driver lists them.

Reads   NVML's list of compute processes  /sys/class/kfd/kfd/proc/*  /proc/[pid]/{fd,fdinfo}  /proc/self/ns/pid
NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from sysperf.collect.driver import NO_DRIVER, nvml_problem
from sysperf.collect.process.environment import MAX_VARIABLES
from sysperf.collect.process.parts import GPU_PROCESSES
from sysperf.collect.readers import kfd
from sysperf.host import Host
from sysperf.host.namespaces import counts_processes_as_the_kernel
from sysperf.procfs import fdinfo, pci
from sysperf.procfs.fdinfo import NODES

MAX_GPUS = 64
MAX_FDS = 4_096


def gpus_by_process(host: Host, on_gpus: set[int], on_xpus: set[int]) -> dict[int, list[str]] | None:
    """PCI addresses of the GPUs on which each process computes; None when the driver does not know our process numbers.

    Inside a container only newer drivers say its own numbers; then all that they list are programs that we see on a GPU. Programs on
    Intel's GPUs are known by their open files, whose numbers are always ours.
    """
    own = {pid: _held_open(host, pid) for pid in sorted(on_xpus)}
    if on_gpus == on_xpus:
        return own
    bus_ids = _listed_by_drivers(host)
    if bus_ids is None:
        return None
    if counts_processes_as_the_kernel(host) or on_gpus.issuperset(bus_ids):
        return {**bus_ids, **{pid: [*bus_ids.get(pid, ()), *held] for pid, held in own.items()}}
    host.refuse(GPU_PROCESSES, "the driver counts processes as the host does, not as this container does")
    return None


def _held_open(host: Host, pid: int) -> list[str]:
    """The GPUs in whose own memory a process holds something, by its open files of a graphics driver."""
    mark = len(host.sources)
    held: dict[str, None] = {}
    for name in (host.names(f"/proc/{pid}/fd", MAX_FDS) or ())[:MAX_FDS]:
        if (host.link(f"/proc/{pid}/fd/{name}") or "").startswith(NODES):
            client = fdinfo.parse(host.data(f"/proc/{pid}/fdinfo/{name}"))
            if client is not None and client.held_bytes():
                held[client.bus_id] = None
    del host.sources[mark:]  # a file may be closed at any time, and hundreds of links are no evidence that anybody reads
    return list(held)


def _listed_by_drivers(host: Host) -> dict[int, list[str]] | None:
    """Ask NVIDIA's driver and AMD's. Where one of them is not there, the other knows all."""
    nodes = kfd.nodes(host)
    places = {node.gpu_id: node.bus_id for node in nodes if node.gpu_id is not None}
    held = kfd.held(host, set(places)) if nodes else {}
    listed = {} if nodes and nvml_problem(host) == NO_DRIVER else _listed_by_driver(host)
    if held is None or listed is None:
        return None
    for pid, amounts in held.items():
        listed[pid] = [*listed.get(pid, ()), *dict.fromkeys(places[gpu_id] for gpu_id in amounts)]
    return listed


def _listed_by_driver(host: Host) -> dict[int, list[str]] | None:
    count = None if nvml_problem(host) else host.nvml("DeviceGetCount")
    if not isinstance(count, int):
        return None
    bus_ids: dict[int, list[str]] = {}
    for index in range(min(count, MAX_GPUS)):
        info, running = host.nvml("DeviceGetPciInfo", index), host.nvml("DeviceGetComputeRunningProcesses_v3", index)
        bus_id = pci.bus_id(str(info.get("busId", ""))) if isinstance(info, dict) else None
        if bus_id is None or not isinstance(running, list):
            return None
        for process in running[:MAX_VARIABLES]:
            if isinstance(process, dict) and isinstance(process.get("pid"), int) and process["pid"]:
                bus_ids.setdefault(process["pid"], []).append(bus_id)
    return bus_ids
