"""What is known before a launch is decided: the command, its environment, the machine. Each is read once, and only what is needed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from sysperf.collect import collect_area
from sysperf.collect.machine_facts import AreaFacts
from sysperf.collect.readers.cpu_topology import SYSTEM, cache_domains, cores
from sysperf.host import Host
from sysperf.launch import environment, gpus, interpreter, load, ranks
from sysperf.launch.command import Command, parse
from sysperf.launch.gpus import PlacedGpu, VisibleGpus
from sysperf.launch.interpreter import ProgramFile
from sysperf.launch.machine import CoreKind, Machine, MemoryNode
from sysperf.launch.ranks import Ranks
from sysperf.launch.request import LaunchRequest
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record
from sysperf.model.snapshot import Area, Snapshot

if TYPE_CHECKING:
    from sysperf.collect.numa import Node
    from sysperf.collect.pcie.records import Device
    from sysperf.collect.process.records import Process

TICKLESS = f"{SYSTEM}/nohz_full"


class Areas(AreaFacts):
    """The areas of a machine, each read when it is first asked for."""

    def __init__(self, host: Host, known: Mapping[str, Area] | None = None) -> None:
        super().__init__(self.facts)
        self.host = host
        self.known = dict(known or {})

    def facts(self, name: str) -> object:
        """The facts of an area; None when it could not be read."""
        if name not in self.known:
            self.known[name] = collect_area(self.host, name)
        return self.known[name].facts

    def names(self) -> dict[str, object]:
        """The facts of all areas that were read."""
        return {name: area.facts for name, area in self.known.items()}


class Known(Record):
    """Everything that a launch is decided by."""

    host: Host
    request: LaunchRequest
    instance: int | None
    """With --nproc: which instance this is."""
    command: Command
    env: Mapping[str, str]
    """What reaches the program."""
    deciding: Mapping[str, str]
    """The variables of it by which we decide."""
    program: ProgramFile
    areas: Areas
    machine: Machine
    ranks: Ranks
    gpus: VisibleGpus
    wrapped: bool
    """An outer wrap has placed this very program."""
    runnable: int | None
    """Other tasks that wanted to run when we began to look; None when unknown."""
    pid: int | None = None
    """The process, for a program that runs already."""

    @property
    def identity(self) -> str:
        """Which rank this is, in one word; empty for a process of its own."""
        return ranks.identity(self.ranks.source, self.ranks.rank)


def gather(host: Host, request: LaunchRequest, env: Mapping[str, str], cwd: str, instance: int | None) -> Known:
    """What is known of a program that will be started."""
    runnable = load.runnable(host)
    command = parse(request.argv)
    reaching = environment.of_program(env, command)
    deciding = environment.deciding(reaching)
    program = interpreter.find(host, command, reaching, cwd)
    areas = Areas(host)
    cpu = areas.cpu
    mask = CpuSet(os.sched_getaffinity(0)) if host.live else cpu.allowed if cpu else None
    allowed = _left_by_tools(mask, command, areas)
    place = _ranks(host, command, deciding, allowed, request, instance)
    machine = _machine(areas, allowed, request, place)
    known = Known(host, request, instance, command, reaching, deciding, program, areas, machine, place, VisibleGpus(), False, runnable)
    return _with_gpus(_with_outer_wrap(known))


def gather_running(host: Host, process: Process, argv: tuple[str, ...], snapshot: Snapshot) -> Known:
    """What is known of a program that runs: as if it were started now, on a machine without it."""
    request, env = LaunchRequest(argv=argv), process.env or {}
    command = parse(argv)
    reaching = environment.of_program(env, command)
    deciding = environment.deciding(reaching)
    program = interpreter.find(host, command, reaching, host.link(f"/proc/{process.pid}/cwd") or "/")
    areas = Areas(host, {name: area for name, area in snapshot.areas.items() if area.facts is not None})
    if process.cgroup is not None:  # its limits, not those of whoever asks
        areas.known["cgroup"] = Area(process.cgroup)
    # What it was allowed before anything bound its threads.
    mask = process.affinity.at_start or process.affinity.now or (areas.cpu.online if areas.cpu else None)
    place = ranks.of_running(deciding)
    machine = _machine(areas, mask, request, place)
    known = Known(host, request, None, command, reaching, deciding, program, areas, machine, place, VisibleGpus(), False, 0, process.pid)
    return _with_gpus(_with_outer_wrap(known))


def machine(host: Host, snapshot: Snapshot, allowed: CpuSet) -> Machine:
    """The machine as placement sees it, for who divides these CPUs among several programs."""
    areas = Areas(host, {name: area for name, area in snapshot.areas.items() if area.facts is not None})
    return _machine(areas, allowed, LaunchRequest(argv=()), Ranks(size=None))


def _with_outer_wrap(known: Known) -> Known:
    wrapped, names = environment.decided_before(known.deciding, known.identity)
    injected = tuple(dict.fromkeys((*known.ranks.injected, *names)))
    return msgspec.structs.replace(known, wrapped=wrapped, ranks=msgspec.structs.replace(known.ranks, injected=injected))


def _with_gpus(known: Known) -> Known:
    """Return where all is near everything, which GPU it is does not matter; else the PCI bus says where each is."""
    host, areas = known.host, known.areas
    near = sum(1 for node in known.machine.nodes if node.cpus and not node.gpu_memory) < 2
    if near and not (known.instance is not None or host.exists(gpus.GPUS)):
        return msgspec.structs.replace(known, gpus=_other_gpus(known))
    devices = areas.pcie.devices if areas.pcie else ()
    nvidia = gpus.read(host, placed(devices), known.deciding)
    return msgspec.structs.replace(known, gpus=nvidia if nvidia.machine else _other_gpus(known))


def placed(devices: Iterable[Device]) -> list[PlacedGpu]:
    """The GPUs that CUDA can use: NVIDIA's, not given to a virtual machine and not driven by nouveau."""
    ours = (device for device in devices if device.kind == "gpu" and device.vendor_id == gpus.NVIDIA)
    return [_placed(device) for device in ours if device.driver in (None, "nvidia")]


def _placed(device: Device) -> PlacedGpu:
    known = device.locality_known is not False
    return PlacedGpu(device.address, device.numa_node if known else None, device.local_cpus if known else None, device.device_id or "")


def _other_gpus(known: Known) -> VisibleGpus:
    """Return those of other makers: we know that they are there, not which is which."""
    host, torch = known.host, known.program.torch
    chosen = next((name for name in gpus.OTHER_VISIBLE if known.env.get(name)), "")
    if chosen:
        return VisibleGpus(None, problem=f"{chosen} is not read: GPUs that are not NVIDIA's are not distinguished")
    if torch and torch.gpu and (host.exists("/dev/kfd") or host.exists("/dev/dri/renderD128")):
        return VisibleGpus(None, problem="GPUs that are not NVIDIA's are not distinguished")
    return VisibleGpus()


def _machine(areas: Areas, allowed: CpuSet | None, request: LaunchRequest, place: Ranks) -> Machine:
    cpu, numa, cgroup = areas.cpu, areas.numa, areas.cgroup
    quota = cgroup.cpu_quota if cgroup else None
    if cpu is None:
        return Machine(allowed=allowed, online=allowed or CpuSet(), quota=quota)
    groups = cores(areas.host, cpu.online)
    return Machine(
        allowed=allowed,
        online=cpu.online,
        cores=groups,
        performance=cpu.performance_cpus if cpu.hybrid else None,
        l3_domains=cpu.l3_domains,
        isolated=(cpu.isolated or CpuSet()) | (areas.host.cpus(TICKLESS) or CpuSet()),
        nodes=_nodes(numa.nodes, request) if numa else (),
        allowed_nodes=numa.allowed_nodes if numa else None,
        quota=quota,
        packages=cpu.package_cpus,
        l2_domains=cache_domains(areas.host, cpu.online, groups, 2) if place.size != 1 else None,  # only ranks end where a cache ends
        kinds=tuple(CoreKind(cpus, _capacity(areas.host, cpus)) for cpus in cpu.kinds or ()) if cpu.hybrid else (),
    )


def _capacity(host: Host, cpus: CpuSet) -> int | None:
    """What the most capable CPU of a kind computes, as the kernel says it; 1024 is the most capable of all."""
    capacities = [host.number(f"{SYSTEM}/cpu{cpu}/cpu_capacity") for cpu in cpus]
    return max((capacity for capacity in capacities if capacity), default=None) if all(capacities) else None


def _nodes(records: Sequence[Node], request: LaunchRequest) -> tuple[MemoryNode, ...]:
    """None where two claim the same CPU, as emulated ones (`numa=fake=8`) do: nothing is near or far then. Who names a node gets it."""
    nodes = tuple(_node(node, [other.id for other in records]) for node in records)
    named = request.node is not None or request.profile.node is not None
    apart = sum(len(node.cpus) for node in nodes) == len(CpuSet.union(node.cpus for node in nodes))
    return nodes if apart or named else ()


def _node(node: Node, numbers: Sequence[int]) -> MemoryNode:
    return MemoryNode(
        id=node.id,
        cpus=node.cpus or CpuSet(),
        available_bytes=node.mem_available_bytes,
        gpu_memory=node.gpu_memory is True,
        has_memory=node.mem_total_bytes != 0,
        distances=dict(zip(numbers, node.distances or (), strict=False)),
    )


def _left_by_tools(mask: CpuSet | None, command: Command, areas: Areas) -> CpuSet | None:
    """A mask, cut to what a taskset or numactl in the command leaves."""
    chosen = command.cpus
    if command.cpu_nodes is not None and (numa := areas.numa):
        chosen = CpuSet.union(node.cpus or CpuSet() for node in numa.nodes if node.id in command.cpu_nodes)
    if chosen is None or mask is None:
        return mask
    return mask & chosen or mask


def _ranks(
    host: Host, command: Command, deciding: Mapping[str, str], allowed: CpuSet | None, request: LaunchRequest, instance: int | None
) -> Ranks:
    if instance is not None and command.kind != "launcher":
        return Ranks(ranks.OURS, instance, request.instances, divides_gpus=True, same_gpus=True)
    if command.kind == "launcher":
        return Ranks(command.launcher, 0, command.launcher_ranks) if command.launcher_ranks else Ranks()
    return ranks.read(host, deciding, allowed)
