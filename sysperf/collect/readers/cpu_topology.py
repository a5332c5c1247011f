"""How the online CPUs are grouped: threads into cores, cores into packages and under shared caches, and kinds of cores.

Reads   /sys/devices/system/cpu/{online,cpu*/online}
        /sys/devices/system/cpu/cpu*/topology/{core_cpus,thread_siblings,package_cpus,core_siblings}{_list,}
        /sys/devices/system/cpu/cpu*/topology/physical_package_id
        /sys/devices/system/cpu/cpu*/cache/index*/{level,type,shared_cpu_list,shared_cpu_map}
        /sys/devices/cpu_{core,atom,lowpower}/cpus  /sys/devices/system/cpu/cpu*/cpu_capacity
        /sys/devices/system/cpu/cpu*/cpufreq/{base_frequency,cpuinfo_max_freq}  /sys/devices/system/cpu/cpu*/acpi_cppc/nominal_perf
Kernel  https://docs.kernel.org/admin-guide/cputopology.html
        https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-devices-system-cpu

A core is the set of online CPUs that are each other's siblings: core ids repeat over packages, dies and clusters, siblings do not.
One CPU of each group is read, so that the cost grows with cores and caches, not with threads.
"""

from collections.abc import Mapping

from sysperf.collect.readers.cpuinfo import cpuinfo
from sysperf.collect.readers.unreadable import is_unreadable
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.procfs.cpu_topology import Groups, by_capacity, cpu_numbers, partition

SYSTEM = "/sys/devices/system/cpu"
ONLINE = f"{SYSTEM}/online"
EACH = f"{SYSTEM}/cpu[0-9]*"
CORE = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
PACKAGE = ("package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")
SHARED = ("shared_cpu_list", "shared_cpu_map")
HYBRID_PMUS = ("cpu_lowpower", "cpu_atom", "cpu_core")
"""Intel's kinds of cores, least capable first, as the kernel names their counters."""

L3 = 3


def online_cpus(host: Host) -> CpuSet | None:
    """The CPUs that are online; None when nothing says.

    Where the kernel has no list, each CPU's own file decides, and a CPU without that file is online.
    """
    listed = host.cpus(ONLINE)
    if listed:
        return listed
    there = cpu_folders(host)
    if not there:
        return cpuinfo(host).processors()
    switches = {cpu: host.number(f"{SYSTEM}/cpu{cpu}/online") for cpu in there}
    if any(switch is None and is_unreadable(host, f"{SYSTEM}/cpu{cpu}/online") for cpu, switch in switches.items()):
        return None
    return CpuSet(cpu for cpu, switch in switches.items() if switch != 0)


def cpu_folders(host: Host) -> CpuSet:
    """The CPUs that have a folder, online or not."""
    return cpu_numbers(host.names(SYSTEM) or ())


def cores(host: Host, online: CpuSet) -> Groups | None:
    """The online threads of each physical core; None when the kernel does not say."""
    return _groups(host, online, CORE)


def packages(host: Host, online: CpuSet) -> Groups | None:
    """The online CPUs of each package; None where the kernel does not know packages (their id is -1)."""
    groups = _groups(host, online, PACKAGE) or ()
    numbers = {group: host.number(f"{_folder(group)}/physical_package_id") for group in groups}
    if any(number is None and is_unreadable(host, f"{_folder(group)}/physical_package_id") for group, number in numbers.items()):
        return None
    return tuple(group for group, number in numbers.items() if (number or 0) >= 0) or None


def l3_domains(host: Host, online: CpuSet, core_groups: Groups | None) -> Groups | None:
    """The online CPUs under each L3 cache; empty where caches are described and none is an L3."""
    return cache_domains(host, online, core_groups, L3)


def cache_domains(host: Host, online: CpuSet, core_groups: Groups | None, level: int) -> Groups | None:
    """The online CPUs under each cache of a level; empty where caches are described and none is of that level."""
    mates = {group.first(): group for group in core_groups or ()}
    seen, domains, described = CpuSet(), [], False
    for cpu in online:
        if cpu in seen:
            continue
        shared = _cache(host, cpu, level)
        if shared is None and is_unreadable(host, f"{SYSTEM}/cpu{cpu}/cache"):
            return None
        if shared:
            domains.append(shared & online | CpuSet((cpu,)))
        described = described or shared is not None
        seen |= domains[-1] if shared else mates.get(cpu, CpuSet((cpu,)))
    return tuple(domains) if described else None


def kinds(host: Host, online: CpuSet, core_groups: Groups | None, parts: Mapping[int, str] | None) -> Groups | None:
    """The kinds of cores, least capable first; one group when all are alike, None when a file that would tell cannot be read.

    `parts` names the core's design for each CPU where /proc/cpuinfo does (ARM, RISC-V); None where that cannot be read.
    """
    try:
        groups = _by_counters(host, online)
        if groups or parts is None:
            return groups
        return _by_part(host, online, parts) or _by_numbers(host, online, core_groups)
    except _Unreadable:
        return None


class _Unreadable(Exception):
    """A file that decides is there and cannot be read."""


def _by_numbers(host: Host, online: CpuSet, core_groups: Groups | None) -> Groups:
    firsts = core_groups or tuple(CpuSet((cpu,)) for cpu in online)
    names = ["cpu_capacity"]  # alike cores may differ in base frequency (Intel SST-BF)
    if len({len(group) for group in firsts}) > 1:
        names += ["cpufreq/base_frequency", "acpi_cppc/nominal_perf"]
    return next((groups for name in names if (groups := _by_number(host, firsts, name))), (online,))


def _deciding(host: Host, path: str) -> int | None:
    """The number in a file; None where it is not there. Raises _Unreadable."""
    number = host.number(path)
    if number is None and is_unreadable(host, path):
        raise _Unreadable
    return number


def _folder(group: CpuSet) -> str:
    return f"{SYSTEM}/cpu{group.first()}/topology"


def _groups(host: Host, online: CpuSet, names: tuple[str, ...]) -> Groups | None:
    """The sets of CPUs that the first readable of these files names, each cut to what is online."""
    read = Reader(host, names)
    return partition(online, lambda cpu: read(f"{SYSTEM}/cpu{cpu}/topology"))


class Reader:
    """Reads one fact that kernels have kept in files of several names, the name that worked last first."""

    def __init__(self, host: Host, names: tuple[str, ...]) -> None:
        self._host = host
        self._names = names

    def __call__(self, folder: str) -> CpuSet | None:
        """The CPU set in this folder, or None."""
        for name in self._names:
            read = self._host.cpus if name.endswith("list") else self._host.mask
            cpus = read(f"{folder}/{name}")
            if cpus is not None:
                if name != self._names[0]:
                    self._names = (name, *(other for other in self._names if other != name))
                return cpus
        return None


def _cache(host: Host, cpu: int, level: int) -> CpuSet | None:
    """The CPUs that share this CPU's cache of a level; empty when it has none, None when no cache is described."""
    folder = f"{SYSTEM}/cpu{cpu}/cache"
    indices = [name for name in host.names(folder) or () if name.startswith("index")]
    for name in reversed(indices):
        described = host.number(f"{folder}/{name}/level")
        if described is None:
            return None
        if described == level and (level == L3 or host.word(f"{folder}/{name}/type") != "Instruction"):
            return Reader(host, SHARED)(f"{folder}/{name}")
    return CpuSet() if indices else None


def _by_counters(host: Host, online: CpuSet) -> Groups | None:
    """Hybrid x86: the kernel has a counter unit for each kind of core."""
    sets = [host.cpus(f"/sys/devices/{name}/cpus") for name in HYBRID_PMUS]
    if any(group is None and is_unreadable(host, f"/sys/devices/{name}/cpus") for name, group in zip(HYBRID_PMUS, sets, strict=True)):
        raise _Unreadable
    if sets[-1] is None:
        return None
    groups, seen = list[CpuSet](), CpuSet()
    for group in sets:
        if group is not None and (mine := group & online - seen):  # a CPU that two name is of the weaker kind
            groups.append(mine)
            seen |= mine
    return tuple(groups) if seen == online else None


def _by_part(host: Host, online: CpuSet, parts: Mapping[int, str]) -> Groups | None:
    """The design of the core, where it is given for every CPU."""
    designs: dict[str, list[int]] = {}
    for cpu in online:
        if cpu not in parts:
            return None
        designs.setdefault(parts[cpu], []).append(cpu)
    if len(designs) == 1:
        return (online,)
    ranked = sorted(designs.items(), key=lambda design: (_capability(host, design[1]), design[0]))
    return tuple(CpuSet(cpus) for _, cpus in ranked)


def _capability(host: Host, cpus: list[int]) -> int:
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        if _deciding(host, f"{SYSTEM}/cpu{cpus[0]}/{name}") is not None:
            return max(_deciding(host, f"{SYSTEM}/cpu{cpu}/{name}") or 0 for cpu in cpus)
    return 0


def _by_number(host: Host, firsts: Groups, name: str) -> Groups | None:
    """Cores whose numbers lie clearly apart; None when one has none, or they do not."""
    numbers: list[tuple[int, CpuSet]] = []
    for group in firsts:
        number = _deciding(host, f"{SYSTEM}/cpu{group.first()}/{name}")
        if number is None or number <= 0:
            return None
        numbers.append((number, group))
    groups = by_capacity(numbers)
    return groups if len(groups) > 1 else None
