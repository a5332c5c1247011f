"""cpu: which processors there are, which may be used, how they share cores and caches, and what they can compute.

Reads   /sys/devices/system/cpu/{online,present,isolated}  /sys/devices/system/cpu/smt/control
        /sys/devices/system/cpu/cpu*/cache/index*/{type,level,size}  /sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_max_freq
        /sys/devices/system/cpu/vulnerabilities/*
        /sys/devices/cpu_{core,atom,lowpower}/cpus  /proc/cpuinfo  /proc/self/{status,cgroup,cpuset}  /proc/stat  /proc/pressure/cpu
Kernel  https://docs.kernel.org/admin-guide/cputopology.html
        https://docs.kernel.org/filesystems/proc.html
        https://docs.kernel.org/accounting/psi.html
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from sysperf.collect.cpu.second_opinion import COMMAND, SecondOpinion, second_opinion
from sysperf.collect.readers import cpu_topology
from sysperf.collect.readers.allowed_cpus import ALLOWED, allowed
from sysperf.collect.readers.cpu_topology import EACH, ONLINE, SYSTEM, cpu_folders, online_cpus
from sysperf.collect.readers.cpuinfo import cpuinfo
from sysperf.collect.readers.pressure import waited
from sysperf.collect.readers.unreadable import is_unreadable
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import Missing
from sysperf.model.record import Record, fact, joined
from sysperf.model.text import neutral, parse_size
from sysperf.procfs import cpu_ticks
from sysperf.procfs.cpu_topology import Groups
from sysperf.procfs.cpuinfo import CPUINFO, Cpuinfo, Isa

PRESENT = f"{SYSTEM}/present"
ISOLATED = f"{SYSTEM}/isolated"
SMT_CONTROL = f"{SYSTEM}/smt/control"
VULNERABILITIES = f"{SYSTEM}/vulnerabilities"
STAT = "/proc/stat"
PRESSURE = "/proc/pressure/cpu"
SIBLINGS = tuple(f"{EACH}/topology/{name}" for name in cpu_topology.CORE)
PACKAGES = (f"{EACH}/topology/physical_package_id", *(f"{EACH}/topology/{name}" for name in cpu_topology.PACKAGE))
CACHES = f"{EACH}/cache"
__all__ = ["Cpu", "collect", "online_cpus"]

KINDS = ("/sys/devices/cpu_*/cpus", CPUINFO, f"{EACH}/cpu_capacity", f"{EACH}/cpufreq/base_frequency")


class Cpu(Record):
    """The processors of the machine; counts are of what is online."""

    online: Annotated[CpuSet, fact("CPUs that run", ONLINE, f"{EACH}/online", CPUINFO)] = msgspec.field(default_factory=CpuSet)
    offline: Annotated[CpuSet | None, fact("CPUs that are there and switched off", PRESENT, SYSTEM)] = None
    allowed: Annotated[CpuSet | None, fact("online CPUs that sysperf, and so what it starts, may use", *ALLOWED)] = None
    packages: Annotated[int | None, fact("processor packages (sockets)", *PACKAGES)] = None
    cores: Annotated[int | None, fact("physical cores", *SIBLINGS)] = None
    threads_per_core: Annotated[int | None, fact("online hardware threads of the core that has most", *SIBLINGS)] = None
    cores_allowed: Annotated[int | None, fact("physical cores of which at least one thread may be used", *SIBLINGS, *ALLOWED)] = None
    smt: Annotated[bool | None, fact("some core runs more than one hardware thread", *SIBLINGS)] = None
    smt_control: Annotated[str | None, fact("the kernel's SMT switch: on, off, forceoff, notsupported, notimplemented", SMT_CONTROL)] = None
    core_cpus: Annotated[tuple[CpuSet, ...] | None, fact("online hardware threads of each physical core", *SIBLINGS)] = None
    package_cpus: Annotated[tuple[CpuSet, ...] | None, fact("online CPUs of each package", *PACKAGES)] = None
    l3_domains: Annotated[tuple[CpuSet, ...] | None, fact("online CPUs under each L3 cache", CACHES, f"{CACHES}/*")] = None
    l3_bytes: Annotated[int | None, fact("third-level cache above that core; 0 when it has none", f"{CACHES}/index*/size")] = None
    kinds: Annotated[tuple[CpuSet, ...] | None, fact("CPUs of each kind of core, least capable first; one when all are alike", *KINDS)] = (
        None
    )
    hybrid: Annotated[bool | None, fact("cores are of more than one kind", *KINDS)] = None
    performance_cpus: Annotated[CpuSet | None, fact("CPUs of the capable kinds; all when cores are alike", *KINDS)] = None
    efficiency_cpus: Annotated[CpuSet | None, fact("CPUs of the kinds that save energy; empty when cores are alike", *KINDS)] = None
    performance_cores: Annotated[int | None, fact("physical cores of the capable kinds", *KINDS, *SIBLINGS)] = None
    least_capacity: Annotated[
        float | None, fact("what a core of the least capable kind computes, as a share of the most capable one's", f"{EACH}/cpu_capacity")
    ] = None
    isolated: Annotated[CpuSet | None, fact("CPUs that the scheduler leaves alone (isolcpus)", ISOLATED)] = None
    vendor: Annotated[str | None, fact("maker, as the CPU says it: GenuineIntel, AuthenticAMD, ARM", CPUINFO)] = None
    model_name: Annotated[str | None, fact("model, for people", CPUINFO)] = None
    family: Annotated[int | None, fact("x86 family number", CPUINFO)] = None
    model: Annotated[int | None, fact("x86 model number", CPUINFO)] = None
    microcode: Annotated[str | None, fact("microcode revision", CPUINFO)] = None
    isa: Annotated[Isa | None, fact("vector and matrix instructions", CPUINFO)] = None
    current_mhz: Annotated[float | None, fact("speed of the first CPU at the moment of reading", CPUINFO)] = None
    max_mhz: Annotated[float | None, fact("highest speed of the most capable cores", f"{EACH}/cpufreq/cpuinfo_max_freq")] = None
    mitigated: Annotated[
        tuple[str, ...] | None, fact("CPU vulnerabilities that the kernel works around", f"{VULNERABILITIES}/*", VULNERABILITIES)
    ] = None
    steal_share: Annotated[float | None, fact("share of CPU time since boot that the hypervisor gave to others", STAT)] = None
    pressure_some: Annotated[float | None, fact("share of the last 60 s in which some task waited for a CPU", PRESSURE)] = None
    second_opinion: Annotated[SecondOpinion | None, fact("what py-cpuinfo says; asked under --deep", COMMAND)] = None


def collect(host: Host) -> Cpu:
    """Read the processors. Raises Missing where nothing says which CPUs are online."""
    online = online_cpus(host)
    if not online:
        raise Missing(f"no {ONLINE}, no CPU folders, no {CPUINFO}")
    info = cpuinfo(host)
    cores = cpu_topology.cores(host, online)
    kinds = cpu_topology.kinds(host, online, cores, None if not info.text and is_unreadable(host, CPUINFO) else info.designs())
    best = kinds[-1].first() if kinds else None
    found = Cpu(
        online=online,
        offline=_offline(host, online),
        least_capacity=_least_capacity(host, kinds) if kinds else None,
        l3_domains=cpu_topology.l3_domains(host, online, cores),
        l3_bytes=None if best is None else _l3_bytes(host, best),
        isolated=host.cpus(ISOLATED),
        smt_control=_text(host.word(SMT_CONTROL)),
        max_mhz=None if best is None else _max_mhz(host, best),
        mitigated=_mitigated(host),
        steal_share=_steal_share(host),
        pressure_some=waited(host, PRESSURE)[0],
        second_opinion=second_opinion(host),
    )
    return joined(found, _use(host, online, cores), _kinds(kinds, cores) if kinds else Cpu(), _identity(info))


def _offline(host: Host, online: CpuSet) -> CpuSet | None:
    there = host.cpus(PRESENT) or cpu_folders(host)
    return there - online if there else None


def _use(host: Host, online: CpuSet, cores: Groups | None) -> Cpu:
    """How many packages and cores there are, and what of them may be used."""
    packages = cpu_topology.packages(host, online)
    mine, _ = allowed(host)
    mine = mine & online if mine else None
    threads = max(map(len, cores)) if cores else None
    return Cpu(
        allowed=mine or None,
        packages=len(packages) if packages else None,
        cores=len(cores) if cores else None,
        core_cpus=cores,
        package_cpus=packages,
        threads_per_core=threads,
        cores_allowed=sum(1 for core in cores if core & mine) if cores and mine else None,
        smt=None if threads is None else threads > 1,
    )


def _kinds(kinds: Groups, cores: Groups | None) -> Cpu:
    """The most capable kind computes; a lone prime core, as phones have, is joined by the kind below it."""
    _least, *others, fast = (CpuSet(), *kinds)
    if len(fast) == 1 and others[1:]:
        fast |= others[-1]
    every = CpuSet.union(kinds)
    return Cpu(
        kinds=kinds,
        hybrid=len(kinds) > 1,
        performance_cpus=fast,
        efficiency_cpus=every - fast,
        performance_cores=sum(1 for core in cores if core & fast) if cores else None,
    )


def _least_capacity(host: Host, kinds: Groups) -> float | None:
    """The kernel's own measure, which only some machines have; 1 where all cores are alike."""
    if len(kinds) < 2:
        return 1.0
    capacities = [host.number(f"{SYSTEM}/cpu{cpus.first()}/cpu_capacity") for cpus in kinds]
    known = [capacity for capacity in capacities if capacity]
    return round(min(known) / max(known), 3) if len(known) == len(kinds) else None


def _l3_bytes(host: Host, cpu: int) -> int | None:
    """The size of the last cache above one CPU; 0 where caches are described and this one is not."""
    folder = f"{SYSTEM}/cpu{cpu}/cache"
    sizes: dict[int, int | None] = {}
    for name in host.names(folder) or ():
        if not name.startswith("index"):
            continue
        kind, level, size = host.word(f"{folder}/{name}/type"), host.number(f"{folder}/{name}/level"), _size(host, f"{folder}/{name}/size")
        if level is None or (kind is None and is_unreadable(host, f"{folder}/{name}/type")):
            return None  # it may be any of them
        if kind != "Instruction":
            sizes[level] = size
    return sizes.get(3, 0) if sizes else None


def _size(host: Host, path: str) -> int | None:
    word = host.word(path)
    try:
        return None if word is None else parse_size(word)
    except ValueError as error:
        host.refuse(path, str(error))
        return None


def _identity(info: Cpuinfo) -> Cpu:
    return Cpu(
        vendor=_text(info.vendor()),
        model_name=_text(info.model_name()),
        family=info.number("cpu family"),
        model=info.number("model"),
        microcode=_text(info.get("microcode")),
        isa=info.isa(),
        current_mhz=info.mhz(),
    )


def _text(word: str | None) -> str | None:
    return neutral(word, 120) if word else None


def _max_mhz(host: Host, cpu: int) -> float | None:
    khz = host.number(f"{SYSTEM}/cpu{cpu}/cpufreq/cpuinfo_max_freq")
    return khz / 1000 if khz else None


def _mitigated(host: Host) -> tuple[str, ...] | None:
    words = {name: host.word(f"{VULNERABILITIES}/{name}") for name in host.names(VULNERABILITIES) or ()}
    if not words or None in words.values():
        return None
    return tuple(neutral(name, 60) for name, word in words.items() if (word or "").startswith("Mitigation"))


def _steal_share(host: Host) -> float | None:
    ticks = cpu_ticks.of_all(host.text(STAT))
    return round(ticks.steal / sum(ticks), 6) if ticks and any(ticks) else None
