"""cpu: which processors there are, which may be used, how they share cores and caches, and what they can compute.

Reads   /sys/devices/system/cpu/{online,present,isolated,nohz_full}  /sys/devices/system/cpu/smt/{active,control}
        /sys/devices/system/cpu/cpu*/{topology,cache,cpufreq,acpi_cppc}  /sys/devices/system/cpu/vulnerabilities/*
        /sys/devices/cpu_{core,atom,lowpower}/cpus  /proc/cpuinfo  /proc/self/{status,cgroup,cpuset}  /proc/stat  /proc/pressure/cpu
Kernel  https://docs.kernel.org/admin-guide/cputopology.html
        https://docs.kernel.org/filesystems/proc.html
        https://docs.kernel.org/accounting/psi.html
"""

from typing import Annotated

from sysperf.collect import topology
from sysperf.collect.cpuinfo import CPUINFO, Cpuinfo, cpuinfo
from sysperf.collect.cpuset import CGROUP, CPUSET, MOUNTS, allowed_by_cpuset
from sysperf.collect.topology import EACH, ONLINE, SYSTEM, Groups, cpu_folders
from sysperf.collect.topology import online_cpus as online_cpus
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import Missing
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral, parse_size

PRESENT = f"{SYSTEM}/present"
ISOLATED = f"{SYSTEM}/isolated"
SMT_CONTROL = f"{SYSTEM}/smt/control"
VULNERABILITIES = f"{SYSTEM}/vulnerabilities"
STATUS = "/proc/self/status"
STAT = "/proc/stat"
PRESSURE = "/proc/pressure/cpu"
SIBLINGS = tuple(f"{EACH}/topology/{name}" for name in topology.CORE)
PACKAGES = (f"{EACH}/topology/physical_package_id", *(f"{EACH}/topology/{name}" for name in topology.PACKAGE))
CACHES = f"{EACH}/cache"
KINDS = ("/sys/devices/cpu_*/cpus", CPUINFO, f"{EACH}/cpu_capacity", f"{EACH}/cpufreq/base_frequency")
ALLOWED = (STATUS, CPUSET, CGROUP, MOUNTS)

ARM_VENDORS = {
    "0x41": "ARM", "0x43": "Cavium", "0x46": "Fujitsu", "0x48": "HiSilicon", "0x4e": "NVIDIA", "0x50": "APM", "0x51": "Qualcomm",
    "0x61": "Apple", "0x6d": "Microsoft", "0x70": "Phytium", "0xc0": "Ampere",
}  # fmt: skip
ARM_CORES = {
    "0x41 0xd0c": "Neoverse-N1", "0x41 0xd40": "Neoverse-V1", "0x41 0xd49": "Neoverse-N2", "0x41 0xd4f": "Neoverse-V2",
    "0x41 0xd83": "Neoverse-V3AE", "0x41 0xd84": "Neoverse-V3", "0x41 0xd8e": "Neoverse-N3", "0x41 0xd85": "Cortex-X925",
    "0x41 0xd87": "Cortex-A725", "0xc0 0xac3": "Ampere-1", "0xc0 0xac4": "Ampere-1a", "0x46 0x001": "A64FX",
}  # fmt: skip


class Isa(Record):
    """Instructions that decide which kernels PyTorch's libraries choose; false on another architecture."""

    avx2: Annotated[bool, fact("x86: 256-bit integer vectors", CPUINFO)]
    fma: Annotated[bool, fact("x86: fused multiply-add", CPUINFO)]
    avx512: Annotated[bool, fact("x86: AVX-512 F, BW, CD, DQ and VL, the set that oneDNN and MKL ask for", CPUINFO)]
    avx512_vnni: Annotated[bool, fact("x86: AVX-512 with 8-bit dot products", CPUINFO)]
    avx512_bf16: Annotated[bool, fact("x86: AVX-512 with bfloat16 dot products", CPUINFO)]
    avx512_fp16: Annotated[bool, fact("x86: AVX-512 with half precision", CPUINFO)]
    avx_vnni: Annotated[bool, fact("x86: 256-bit vectors with 8-bit dot products", CPUINFO)]
    amx: Annotated[bool, fact("x86: tile matrix multiplication (AMX)", CPUINFO)]
    amx_bf16: Annotated[bool, fact("x86: AMX on bfloat16", CPUINFO)]
    amx_int8: Annotated[bool, fact("x86: AMX on 8-bit integers", CPUINFO)]
    amx_fp16: Annotated[bool, fact("x86: AMX on half precision", CPUINFO)]
    neon: Annotated[bool, fact("ARM: 128-bit vectors (Advanced SIMD)", CPUINFO)]
    sve: Annotated[bool, fact("ARM: scalable vectors", CPUINFO)]
    sve2: Annotated[bool, fact("ARM: scalable vectors, version 2", CPUINFO)]
    i8mm: Annotated[bool, fact("ARM: 8-bit matrix multiplication", CPUINFO)]
    sme: Annotated[bool, fact("ARM: scalable matrix extension", CPUINFO)]
    rvv: Annotated[bool, fact("RISC-V: vectors", CPUINFO)]
    vsx: Annotated[bool, fact("POWER: vector-scalar unit (POWER7 and newer)", CPUINFO)]
    vxe: Annotated[bool, fact("s390: vector enhancements", CPUINFO)]
    lasx: Annotated[bool, fact("LoongArch: 256-bit vectors", CPUINFO)]
    bf16: Annotated[bool, fact("bfloat16 arithmetic in hardware, by any of AVX-512, AMX or ARM's BF16", CPUINFO)]


class Cpu(Record):
    """The processors of the machine; counts are of what is online."""

    online: Annotated[CpuSet, fact("CPUs that run", ONLINE, f"{EACH}/online", CPUINFO)]
    offline: Annotated[CpuSet | None, fact("CPUs that are there and switched off", PRESENT, SYSTEM)] = None
    allowed: Annotated[CpuSet | None, fact("online CPUs that sysperf, and so what it starts, may use", *ALLOWED)] = None
    packages: Annotated[int | None, fact("processor packages (sockets)", *PACKAGES)] = None
    cores: Annotated[int | None, fact("physical cores", *SIBLINGS)] = None
    threads_per_core: Annotated[int | None, fact("online hardware threads of the core that has most", *SIBLINGS)] = None
    cores_allowed: Annotated[int | None, fact("physical cores of which at least one thread may be used", *SIBLINGS, *ALLOWED)] = None
    smt: Annotated[bool | None, fact("some core runs more than one hardware thread", *SIBLINGS)] = None
    smt_control: Annotated[str | None, fact("the kernel's switch of SMT: on, off, forceoff, notsupported, notimplemented", SMT_CONTROL)] = None
    l3_domains: Annotated[tuple[CpuSet, ...] | None, fact("online CPUs under each L3 cache", CACHES, f"{CACHES}/*")] = None
    l1d_bytes: Annotated[int | None, fact("first-level data cache of one of the most capable cores", f"{CACHES}/index*/size")] = None
    l2_bytes: Annotated[int | None, fact("second-level cache above that core", f"{CACHES}/index*/size")] = None
    l3_bytes: Annotated[int | None, fact("third-level cache above that core; 0 when it has none", f"{CACHES}/index*/size")] = None
    kinds: Annotated[tuple[CpuSet, ...], fact("CPUs of each kind of core, least capable first; one when all are alike", *KINDS)] = ()
    hybrid: Annotated[bool, fact("cores are of more than one kind", *KINDS)] = False
    performance_cpus: Annotated[CpuSet, fact("CPUs of the capable kinds; all when cores are alike", *KINDS)] = CpuSet()
    efficiency_cpus: Annotated[CpuSet, fact("CPUs of the kinds that save energy; empty when cores are alike", *KINDS)] = CpuSet()
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
    pressure_some_avg10_share: Annotated[float | None, fact("share of the last 10 s in which a task waited for a CPU", PRESSURE)] = None
    pressure_some_avg60_share: Annotated[float | None, fact("share of the last 60 s in which a task waited for a CPU", PRESSURE)] = None


def collect(host: Host) -> Cpu:
    """Read the processors. Raises Missing where nothing says which CPUs are online."""
    online = online_cpus(host)
    if not online:
        raise Missing(f"no {ONLINE}, no CPU folders, no {CPUINFO}")
    info = cpuinfo(host)
    cores = topology.cores(host, online)
    packages = topology.packages(host, online)
    kinds = topology.kinds(host, online, cores, info.designs() if info else {})
    allowed = allowed_cpus(host, online)
    best = kinds[-1].first() or 0
    sizes = _cache_sizes(host, best)
    avg10, avg60 = _pressure(host)
    return Cpu(
        online=online,
        offline=_offline(host, online),
        allowed=allowed,
        packages=len(packages) if packages else None,
        cores=len(cores) if cores else None,
        threads_per_core=max(map(len, cores)) if cores else None,
        cores_allowed=sum(1 for core in cores if core & allowed) if cores and allowed else None,
        smt=any(len(core) > 1 for core in cores) if cores else None,
        smt_control=_text(host.word(SMT_CONTROL)),
        l3_domains=topology.l3_domains(host, online, cores),
        l1d_bytes=sizes.get(1),
        l2_bytes=sizes.get(2),
        l3_bytes=sizes.get(3, 0 if sizes else None),
        kinds=kinds,
        hybrid=len(kinds) > 1,
        performance_cpus=_performance(host, kinds),
        efficiency_cpus=online - _performance(host, kinds),
        isolated=host.cpus(ISOLATED),
        vendor=_vendor(info),
        model_name=_model_name(info),
        family=_number(info, "cpu family"),
        model=_number(info, "model"),
        microcode=_text(info.get("microcode")) if info else None,
        isa=_isa(info),
        current_mhz=_mhz(info),
        max_mhz=_max_mhz(host, best),
        mitigated=_mitigated(host),
        steal_share=_steal_share(host),
        pressure_some_avg10_share=avg10,
        pressure_some_avg60_share=avg60,
    )
