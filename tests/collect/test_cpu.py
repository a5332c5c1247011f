"""Processors: which are online, which may be used, how they share cores, packages, caches and kinds."""

from __future__ import annotations

import errno
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.collect.cpu import Cpu, collect, online_cpus
from sysperf.collect.readers import cpu_topology
from sysperf.collect.readers.allowed_cpus import allowed_by_cpuset
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import Missing
from sysperf.model.record import from_json, to_json
from sysperf.procfs.cpuinfo import Cpuinfo
from tests.collect.machines import every_machine, expected
from tests.conftest import Dict, Files, MakeMachine, captured

CPU = "/sys/devices/system/cpu"
X86 = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8480+
microcode\t: 0x2b0004b1
cpu MHz\t\t: 2000.500
flags\t\t: fpu avx2 fma avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni avx512_bf16 amx_tile amx_bf16 amx_int8 hypervisor

processor\t: 1
vendor_id\t: GenuineIntel
"""
S390 = """vendor_id       : IBM/S390
# processors    : 2
bogomips per cpu: 3241.00
features\t: esan3 zarch stfle msa ldisp eimm dfp edat etf3eh highgprs te vx vxd vxe gs sie
processor 0: version = 00,  identification = 0133E8,  machine = 2964
processor 1: version = 00,  identification = 0133E8,  machine = 2964

cpu number      : 0
cpu MHz dynamic : 5000
cpu MHz static  : 5000
"""
LOONGARCH = """system type\t\t: generic-loongson-machine

processor\t\t: 0
package\t\t\t: 0
core\t\t\t: 0
CPU Family\t\t: Loongson-64bit
Model Name\t\t: Loongson-3A5000
CPU MHz\t\t\t: 2500.00
Features\t\t: cpucfg lam ual fpu lsx lasx crc32 complex crypto lvz
"""
RISCV = """processor\t: 0
hart\t\t: 1
isa\t\t: rv64imafdcv_zicbom_zba
mmu\t\t: sv39
uarch\t\t: sifive,x280
mvendorid\t: 0x489
marchid\t\t: 0x8000000000000007

processor\t: 1
hart\t\t: 0
isa\t\t: rv64imac
uarch\t\t: sifive,s7
mvendorid\t: 0x489
marchid\t\t: 0x8000000000000001
"""


def listed(groups: tuple[CpuSet, ...] | None) -> list[str] | None:
    return None if groups is None else [str(group) for group in groups]


def cpus(*siblings: str, package: str = "0-3", extra: Mapping[str, str | bytes | OSError] | None = None) -> Files:
    """A machine whose CPU n has the siblings given n-th, all in one package."""
    files: Files = {f"{CPU}/online": f"0-{len(siblings) - 1}\n"}
    for cpu, mates in enumerate(siblings):
        files[f"{CPU}/cpu{cpu}/topology/core_cpus_list"] = mates
        files[f"{CPU}/cpu{cpu}/topology/package_cpus_list"] = package
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = "0"
    return {**files, **(extra or {})}


# ---------------------------------------------------------------------- captured machines


FIELDS = ("online_cpus", "allowed_cpus", "packages", "cores", "threads_per_core_max", "cpu_kinds", "l3_domains")


@pytest.mark.parametrize(("kind", "name", "field", "value"), expected(*FIELDS))
def test_captured_machine(kind: str, name: str, field: str, value: object) -> None:
    """Every captured machine reads as hwloc, lscpu and a plain reading of its files say."""
    facts = collect(captured(kind, name))
    read = {
        "online_cpus": str(facts.online),
        "allowed_cpus": str(facts.allowed),
        "packages": facts.packages,
        "cores": facts.cores,
        "threads_per_core_max": facts.threads_per_core,
        "cpu_kinds": listed(facts.kinds),
        "l3_domains": listed(facts.l3_domains),
    }
    assert read[field] == value


@pytest.mark.parametrize(("kind", "name"), every_machine())
def test_captured_machine_is_consistent(kind: str, name: str) -> None:
    """Kinds, cores and caches only name online CPUs, each once; facts survive JSON."""
    facts = collect(captured(kind, name))
    assert facts.kinds is not None
    assert facts.performance_cpus is not None
    assert facts.efficiency_cpus is not None
    assert CpuSet.union(facts.kinds) == facts.online
    assert sum(map(len, facts.kinds)) == len(facts.online)
    assert facts.performance_cpus | facts.efficiency_cpus == facts.online
    assert facts.performance_cpus.isdisjoint(facts.efficiency_cpus)
    assert CpuSet.union(facts.l3_domains or ()).issubset(facts.online)
    assert facts.hybrid is (len(facts.kinds) > 1)
    assert from_json(to_json(facts), Cpu) == facts


@pytest.mark.parametrize(("kind", "name", "_field", "kinds"), expected("cpu_kinds"))
def test_hybrid_machines(kind: str, name: str, _field: str, kinds: list[str]) -> None:
    """Where there are two kinds of cores, the capable ones compute and the others save energy."""
    facts = collect(captured(kind, name))
    assert facts.hybrid
    assert [str(facts.efficiency_cpus), str(facts.performance_cpus)] == kinds


# ---------------------------------------------------------------------- online


def test_each_cpu_decides_without_a_list(machine: MakeMachine) -> None:
    """Without cpu/online a CPU is online unless its own file says 0; one without that file is online."""
    host = machine({f"{CPU}/cpu0/topology/core_id": "0", f"{CPU}/cpu1/online": "0\n", f"{CPU}/cpu2/online": "1\n", f"{CPU}/cpuidle/x": ""})
    assert str(online_cpus(host)) == "0,2"
    facts = collect(host)
    assert str(facts.offline) == "1"


def test_online_list_may_end_in_nul(machine: MakeMachine) -> None:
    """Old kernels end lists with a newline and a NUL byte."""
    assert str(online_cpus(machine({f"{CPU}/online": b"0-1,4\n\0"}))) == "0-1,4"


def test_cpuinfo_lists_cpus_where_sysfs_is_hidden(machine: MakeMachine) -> None:
    """In a sandbox without /sys the processors of /proc/cpuinfo are those online."""
    assert str(online_cpus(machine({"/proc/cpuinfo": X86}))) == "0-1"
    assert str(online_cpus(machine({"/proc/cpuinfo": S390}))) == "0-1"


def test_nothing_says_which_cpus(machine: MakeMachine) -> None:
    """No list, no folders and no cpuinfo: the area is unknown, not a machine without CPUs."""
    with pytest.raises(Missing, match="cpu"):
        collect(machine({}))


def test_absurd_cpu_numbers_are_left_out(machine: MakeMachine) -> None:
    """A folder that is no CPU, or numbers a CPU that Linux cannot have, is not counted."""
    host = machine({f"{CPU}/cpu3/online": "1", f"{CPU}/cpu99999/online": "1", f"{CPU}/cpu1x/online": "1", f"{CPU}/cpufreq/online": "1"})
    assert str(cpu_topology.cpu_folders(host)) == "3"


# ---------------------------------------------------------------------- cores and packages


def test_siblings_make_cores(machine: MakeMachine) -> None:
    """Two threads a core: four CPUs are two cores."""
    facts = collect(machine(cpus("0,2", "1,3", "0,2", "1,3")))
    assert (facts.cores, facts.threads_per_core, facts.smt, facts.packages) == (2, 2, True, 1)


def test_offline_siblings_do_not_count(machine: MakeMachine) -> None:
    """Siblings that are offline are cut away: this core has one thread."""
    files = cpus("0,4", "1,5", "2,6", "3,7")
    facts = collect(machine(files))
    assert (facts.cores, facts.threads_per_core, facts.smt) == (4, 1, False)


def test_core_numbers_are_not_identities(machine: MakeMachine) -> None:
    """Both dies have a core 0: siblings, not core numbers, say that these are two cores."""
    facts = collect(machine(cpus("0", "1", extra={f"{CPU}/cpu0/topology/core_id": "0", f"{CPU}/cpu1/topology/core_id": "0"})))
    assert facts.cores == 2


def test_old_kernels_have_masks_only(machine: MakeMachine) -> None:
    """thread_siblings is read as a mask where there is no list."""
    files: Files = {f"{CPU}/online": "0-33"}
    for cpu in range(34):
        files[f"{CPU}/cpu{cpu}/topology/thread_siblings"] = f"{(3 << cpu // 2 * 2) >> 32:08x},{(3 << cpu // 2 * 2) & 0xFFFFFFFF:08x}"
    assert collect(machine(files)).cores == 17


def test_sockets_of_the_same_number_in_two_drawers(machine: MakeMachine) -> None:
    """s390 numbers sockets within a book: packages are told apart by their CPUs."""
    files = cpus("0", "1", "2", "3", package="0-1")
    files |= {f"{CPU}/cpu{cpu}/topology/package_cpus_list": "2-3" for cpu in (2, 3)}
    assert collect(machine(files)).packages == 2


def test_unknown_packages(machine: MakeMachine) -> None:
    """physical_package_id -1 means that the kernel does not know packages."""
    facts = collect(machine(cpus("0", "1", extra={f"{CPU}/cpu{cpu}/topology/physical_package_id": "-1" for cpu in (0, 1)})))
    assert facts.packages is None
    assert facts.cores == 2


def test_unread_topology_is_unknown(machine: MakeMachine) -> None:
    """Without topology files we know no cores, and do not guess one a CPU."""
    facts = collect(machine({f"{CPU}/online": "0-3"}))
    assert (facts.cores, facts.threads_per_core, facts.smt, facts.packages, facts.l3_domains) == (None,) * 5


def test_one_cpu(machine: MakeMachine) -> None:
    """A machine with one CPU."""
    facts = collect(machine(cpus("0", package="0")))
    assert (str(facts.online), facts.cores, facts.packages, facts.threads_per_core, facts.hybrid) == ("0", 1, 1, 1, False)


def test_many_cpus_cost_few_reads(machine: MakeMachine) -> None:
    """256 threads of 128 cores: siblings that were seen are not asked again."""
    files = cpus(*(f"{cpu % 128},{cpu % 128 + 128}" for cpu in range(256)), package="0-255")
    for cpu in range(256):
        first = cpu % 128 // 8 * 8
        files[f"{CPU}/cpu{cpu}/cache/index3/level"] = "3"
        files[f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_list"] = f"{first}-{first + 7},{first + 128}-{first + 135}"
    host = machine(files)
    facts = collect(host)
    assert (facts.cores, len(facts.l3_domains or ())) == (128, 16)
    assert len(host.sources) < 250


# ---------------------------------------------------------------------- caches


def test_no_l3_is_known(machine: MakeMachine) -> None:
    """Caches are described and none is of level 3: an empty list, not an unknown."""
    cache = {
        f"{CPU}/cpu{cpu}/cache/index0/{name}": value
        for cpu in (0, 1)
        for name, value in (("level", "1"), ("type", "Data"), ("size", "32K"))
    }
    facts = collect(machine(cpus("0", "1", extra=cache)))
    assert facts.l3_domains == ()
    assert facts.l3_bytes == 0


def test_l3_beside_cores_without_one(machine: MakeMachine) -> None:
    """Low-power cores may have no L3 while the others share one."""
    files = cpus("0", "1", "2")
    for cpu in (0, 1):
        files[f"{CPU}/cpu{cpu}/cache/index3/level"] = "3"
        files[f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_map"] = "3"
    files[f"{CPU}/cpu2/cache/index2/level"] = "2"
    assert listed(collect(machine(files)).l3_domains) == ["0-1"]


def test_the_last_cache_has_its_size(machine: MakeMachine) -> None:
    """Above all others."""
    files = cpus("0")
    for index, (level, kind, size) in enumerate(
        (("1", "Instruction", "64K"), ("1", "Data", "48K"), ("2", "Unified", "2048K"), ("3", "Unified", "30M"))
    ):
        files |= {f"{CPU}/cpu0/cache/index{index}/{name}": value for name, value in (("level", level), ("type", kind), ("size", size))}
    facts = collect(machine(files))
    assert facts.l3_bytes == 30 << 20


# ---------------------------------------------------------------------- kinds of cores


def test_counter_units_name_the_kinds(machine: MakeMachine) -> None:
    """Intel: cpu_core and cpu_atom, whatever the frequencies."""
    facts = collect(machine(cpus("0", "1", "2", "3", extra={"/sys/devices/cpu_core/cpus": "0-1", "/sys/devices/cpu_atom/cpus": "2-3"})))
    assert listed(facts.kinds) == ["2-3", "0-1"]
    assert (str(facts.performance_cpus), str(facts.efficiency_cpus)) == ("0-1", "2-3")


def test_a_cpu_is_of_one_kind(machine: MakeMachine) -> None:
    """Where a kernel counts low-power cores with the efficiency cores, too, they are low-power cores."""
    pmus = {"/sys/devices/cpu_core/cpus": "0-1", "/sys/devices/cpu_atom/cpus": "2-3", "/sys/devices/cpu_lowpower/cpus": "3"}

    assert collect(machine(cpus("0", "1", "2", "3", extra=pmus))).kinds == (CpuSet.parse("3"), CpuSet.parse("2"), CpuSet.parse("0-1"))


def test_three_kinds_of_intel_cores(machine: MakeMachine) -> None:
    """Only the performance cores compute where there are two kinds of small ones."""
    pmus = {"/sys/devices/cpu_core/cpus": "0-1", "/sys/devices/cpu_atom/cpus": "2", "/sys/devices/cpu_lowpower/cpus": "3"}
    facts = collect(machine(cpus("0", "1", "2", "3", extra=pmus)))
    assert listed(facts.kinds) == ["3", "2", "0-1"]
    assert str(facts.efficiency_cpus) == "2-3"


def test_kinds_shrink_with_what_is_online(machine: MakeMachine) -> None:
    """With every efficiency core offline the machine is no hybrid."""
    facts = collect(machine(cpus("0", "1", extra={"/sys/devices/cpu_core/cpus": "0-1", "/sys/devices/cpu_atom/cpus": "2-3"})))
    assert not facts.hybrid
    assert listed(facts.kinds) == ["0-1"]


def arm(*parts: str) -> str:
    return "\n\n".join(f"processor\t: {cpu}\nCPU implementer\t: 0x41\nCPU part\t: {part}" for cpu, part in enumerate(parts)) + "\n"


def test_arm_parts_are_kinds(machine: MakeMachine) -> None:
    """big.LITTLE: the design of the core decides, capacity orders."""
    capacity = {f"{CPU}/cpu{cpu}/cpu_capacity": value for cpu, value in enumerate(("1024", "400", "1010", "400"))}
    facts = collect(machine(cpus("0", "1", "2", "3", extra={"/proc/cpuinfo": arm("0xd0c", "0xd05", "0xd0c", "0xd05"), **capacity})))
    assert listed(facts.kinds) == ["1,3", "0,2"]
    assert facts.model_name == "Neoverse-N1 + Cortex-A55"


def test_arm_server_of_one_design(machine: MakeMachine) -> None:
    """One design with unequal capacities, as binned cores have, is one kind."""
    capacity = {f"{CPU}/cpu{cpu}/cpu_capacity": value for cpu, value in enumerate(("1024", "700"))}
    assert not collect(machine(cpus("0", "1", extra={"/proc/cpuinfo": arm("0xd4f", "0xd4f"), **capacity}))).hybrid


def test_a_lone_prime_core_is_joined(machine: MakeMachine) -> None:
    """Phones have one prime core: it computes together with the kind below it."""
    capacity = {f"{CPU}/cpu{cpu}/cpu_capacity": value for cpu, value in enumerate(("280", "855", "855", "1024"))}
    facts = collect(machine(cpus("0", "1", "2", "3", extra={"/proc/cpuinfo": arm("0xd46", "0xd47", "0xd47", "0xd4e"), **capacity})))
    assert str(facts.performance_cpus) == "1-3"


def test_capacity_tells_kinds_of_unnamed_cores(machine: MakeMachine) -> None:
    """Capacities far apart are kinds, close ones are favoured cores."""
    capacity = {f"{CPU}/cpu{cpu}/cpu_capacity": value for cpu, value in enumerate(("1024", "998", "603", "600"))}
    assert listed(collect(machine(cpus("0", "1", "2", "3", extra=capacity))).kinds) == ["2-3", "0-1"]


def test_priority_cores_are_no_kind(machine: MakeMachine) -> None:
    """Intel SST-BF gives some cores of a server a higher base frequency: the cores are alike."""
    base = {f"{CPU}/cpu{cpu}/cpufreq/base_frequency": value for cpu, value in enumerate(("2800000", "2100000"))}
    assert not collect(machine(cpus("0", "1", extra=base))).hybrid


def test_offline_sibling_makes_no_kind(machine: MakeMachine) -> None:
    """A core that lost a thread is still of the same kind as the others."""
    base = {f"{CPU}/cpu{cpu}/cpufreq/base_frequency": "2100000" for cpu in range(3)}
    assert not collect(machine(cpus("0-1", "0-1", "2-3", extra=base))).hybrid


def test_riscv_kinds(machine: MakeMachine) -> None:
    """RISC-V names the microarchitecture of each hart."""
    facts = collect(machine(cpus("0", "1", extra={"/proc/cpuinfo": RISCV})))
    assert facts.hybrid
    assert facts.isa is not None
    assert facts.isa.rvv


# ---------------------------------------------------------------------- what may be used

V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"


def test_own_mask_wins(machine: MakeMachine) -> None:
    """/proc/self/status has the last word, cut to what is online."""
    facts = collect(machine(cpus("0", "1", "2", "3", extra={"/proc/self/status": "Cpus_allowed_list:\t2-9\nMems_allowed_list:\t0\n"})))
    assert str(facts.allowed) == "2-3"
    assert facts.cores_allowed == 2


def test_allowed_cores_count_once(machine: MakeMachine) -> None:
    """Two threads of one core are one core to compute on."""
    files = cpus("0,2", "1,3", "0,2", "1,3", extra={"/proc/self/status": "Cpus_allowed_list:\t0,2\n"})
    assert collect(machine(files)).cores_allowed == 1


@pytest.mark.parametrize(
    ("mounts", "groups", "files"),
    [
        ("none /dev/cpuset cpuset rw 0 0", {"cpuset": "/job"}, {"/dev/cpuset/job/cpus": "1-2", "/dev/cpuset/job/mems": "0"}),
        ("none /dev/cpuset cgroup rw,cpuset,noprefix 0 0", {"cpuset": "/job"}, {"/dev/cpuset/job/cpus": "1-2", "/dev/cpuset/job/mems": "0"}),
        ("cgroup /cg/cpuset cgroup rw,cpuset 0 0", {"cgroup": "5:cpuset:/job\n4:cpu:/other"}, {"/cg/cpuset/job/cpuset.cpus": "1-2", "/cg/cpuset/job/cpuset.mems": "0"}),
        ("cgroup /cg/cpuset cgroup rw,cpuset 0 0", {"cgroup": "5:cpuset:/job"}, {"/cg/cpuset/job/cpuset.effective_cpus": "1-2", "/cg/cpuset/job/cpuset.cpus": "0-3", "/cg/cpuset/job/cpuset.effective_mems": "0"}),
        (V2, {"cgroup": "0::/job"}, {"/sys/fs/cgroup/job/cpuset.cpus.effective": "1-2", "/sys/fs/cgroup/job/cpuset.mems.effective": "0"}),
        (V2, {"cgroup": "0::/job/step/task"}, {"/sys/fs/cgroup/job/cpuset.cpus.effective": "1-2", "/sys/fs/cgroup/cpuset.cpus.effective": "0-3", "/sys/fs/cgroup/job/cpuset.mems.effective": "0"}),
        ("cgroup2 /a\\040b cgroup2 rw 0 0", {"cgroup": "0::/"}, {"/a b/cpuset.cpus.effective": "1-2", "/a b/cpuset.mems.effective": "0"}),
    ],
    ids=["file system", "noprefix", "v1", "v1 effective", "v2", "v2 nearest above", "elsewhere, with a blank"],
)  # fmt: skip
def test_cpuset_hierarchies(machine: MakeMachine, mounts: str, groups: dict[str, str], files: Files) -> None:
    """Every kind of hierarchy that has held cpusets, wherever it is mounted."""
    host = machine({"/proc/mounts": mounts + "\n", **{f"/proc/self/{name}": text for name, text in groups.items()}, **files})
    assert tuple(map(str, allowed_by_cpuset(host))) == ("1-2", "0")


def test_container_sees_its_own_root(machine: MakeMachine) -> None:
    """A container without a cgroup namespace: its mount shows the hierarchy from its own group on."""
    info = "30 20 0:27 /docker/abc /sys/fs/cgroup/cpuset ro shared:1 - cgroup cgroup rw,cpuset\n"
    host = machine({"/proc/self/mountinfo": info, "/proc/self/cgroup": "5:cpuset:/docker/abc\n", "/sys/fs/cgroup/cpuset/cpuset.cpus": "7"})
    assert str(allowed_by_cpuset(host)[0]) == "7"


def test_root_group_forbids_nothing(machine: MakeMachine) -> None:
    """/proc/self/cpuset is '/' and no file was captured: every online CPU is allowed."""
    facts = collect(machine(cpus("0", "1", extra={"/proc/self/cpuset": "/\n"})))
    assert str(facts.allowed) == "0-1"


def test_named_group_without_files_is_unknown(machine: MakeMachine) -> None:
    """A group whose files are not there may forbid anything."""
    facts = collect(machine(cpus("0", "1", extra={"/proc/self/cgroup": "0::/user.slice\n", "/proc/mounts": V2})))
    assert facts.allowed is None
    assert facts.cores_allowed is None


def test_group_above_our_namespace_is_unknown(machine: MakeMachine) -> None:
    """A path with .. lies above what this namespace shows: another group's set is not ours."""
    host = machine({"/proc/mounts": V2, "/proc/self/cgroup": "0::/../other\n", "/sys/fs/cgroup/cpuset.cpus.effective": "0-3"})
    assert allowed_by_cpuset(host) == (None, None)


# ---------------------------------------------------------------------- what the CPU is


def test_x86_identity(machine: MakeMachine) -> None:
    """Family, model and instructions of a Sapphire Rapids guest."""
    facts = collect(machine(cpus("0", "1", extra={"/proc/cpuinfo": X86})))
    assert (facts.vendor, facts.family, facts.model, facts.current_mhz) == ("GenuineIntel", 6, 143, 2000.5)
    assert facts.isa is not None
    assert (facts.isa.avx512, facts.isa.amx, facts.isa.bf16, facts.isa.sve) == (True, True, True, False)


def test_power_is_of_ibm() -> None:
    """POWER's cpuinfo names no vendor."""
    info = Cpuinfo("processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3450.000000MHz\nrevision\t: 2.1 (pvr 004e 1201)\n")
    assert (info.vendor(), info.model_name(), info.mhz()) == ("IBM", "POWER9, altivec supported", 3450.0)


def test_half_an_avx512_is_none() -> None:
    """Knights Landing has AVX-512 F and CD but not the parts that oneDNN's kernels need."""
    isa = Cpuinfo("processor: 0\nflags: avx2 avx512f avx512cd avx512er avx512pf\n").isa()
    assert isa is not None
    assert not isa.avx512


BIG_LITTLE = "\n".join(
    f"processor\t: {cpu}\nCPU implementer\t: 0x41\nCPU part\t: {part}\n" for cpu, part in enumerate(("0xd87", "0xd85", "0xd87", "0xfff"))
)


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (LOONGARCH, "Loongson-3A5000"),
        (RISCV, "sifive,x280"),
        (X86, "Intel(R) Xeon(R) Platinum 8480+"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "Neoverse-N1"),
        (BIG_LITTLE, "Cortex-A725 + Cortex-X925 + 0xfff"),
    ],
)
def test_model_names(text: str, model: str) -> None:
    """Each architecture names its CPU in other words; where cores are of several designs, all of them are named."""
    assert Cpuinfo(text).model_name() == model


def test_other_vectors() -> None:
    """s390 and LoongArch have their own vectors."""
    s390, loongarch = Cpuinfo(S390).isa(), Cpuinfo(LOONGARCH).isa()
    assert s390 is not None
    assert loongarch is not None
    assert (s390.vxe, loongarch.lasx, s390.avx2) == (True, True, False)


def test_unread_cpuinfo_is_unknown(machine: MakeMachine) -> None:
    """An unreadable cpuinfo leaves every instruction unknown, none false."""
    facts = collect(machine(cpus("0", extra={"/proc/cpuinfo": OSError(errno.EACCES, "Permission denied")})))
    assert (facts.isa, facts.vendor, facts.model_name, facts.family) == (None,) * 4


def test_maker_cannot_act_on_a_terminal(machine: MakeMachine) -> None:
    """A hypervisor chooses the model name: control characters are spelled out."""
    facts = collect(machine(cpus("0", extra={"/proc/cpuinfo": "processor: 0\nmodel name\t: \x1b[31mEvil\n"})))
    assert facts.model_name is not None
    assert "\x1b" not in facts.model_name


# ---------------------------------------------------------------------- load


def test_steal_is_a_share_of_all_ticks(machine: MakeMachine) -> None:
    """Guest time is inside user time and is not counted twice."""
    host = machine(cpus("0", extra={"/proc/stat": "cpu  400 0 100 400 50 0 0 50 30 0\ncpu0 1 2 3\n"}))
    assert collect(host).steal_share == 0.05


@pytest.mark.parametrize("text", ["", "cpu", "cpu 1 2 3", "cpu  x 0 0 0 0 0 0 0", "intr 1", "cpu  0 0 0 0 0 0 0 0 0 0"])
def test_unreadable_steal_is_unknown(machine: MakeMachine, text: str) -> None:
    """A stat file that does not have the column says nothing about steal."""
    assert collect(machine(cpus("0", extra={"/proc/stat": text}))).steal_share is None


def test_pressure(machine: MakeMachine) -> None:
    """Pressure is a share, and unknown on a kernel without it."""
    text = "some avg10=50.00 avg60=25.50 avg300=3.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    assert collect(machine(cpus("0", extra={"/proc/pressure/cpu": text}))).pressure_some == 0.255
    assert collect(machine(cpus("0"))).pressure_some is None


def test_mitigations_by_name(machine: MakeMachine) -> None:
    """Only what the kernel works around, not what is not affected or left open."""
    texts = {"l1tf": "Not affected", "mds": "Mitigation: Clear CPU buffers", "srbds": "Vulnerable"}
    facts = collect(machine(cpus("0", extra={f"{CPU}/vulnerabilities/{name}": text for name, text in texts.items()})))
    assert facts.mitigated == ("mds",)


# ---------------------------------------------------------------------- anything

PATHS = (
    f"{CPU}/online", f"{CPU}/present", f"{CPU}/cpu0/online", f"{CPU}/cpu0/topology/core_cpus_list", f"{CPU}/cpu0/topology/thread_siblings",
    f"{CPU}/cpu0/topology/package_cpus", f"{CPU}/cpu0/topology/physical_package_id", f"{CPU}/cpu0/cache/index3/level",
    f"{CPU}/cpu0/cache/index3/shared_cpu_list", f"{CPU}/cpu0/cache/index3/size", f"{CPU}/cpu0/cpu_capacity", f"{CPU}/cpu1/cpu_capacity",
    f"{CPU}/vulnerabilities/mds", "/sys/devices/cpu_core/cpus", "/sys/devices/cpu_atom/cpus", "/proc/cpuinfo", "/proc/stat", "/proc/mounts",
    "/proc/self/status", "/proc/self/cgroup", "/proc/self/cpuset", "/proc/pressure/cpu", "/sys/fs/cgroup/cpuset.cpus.effective",
)  # fmt: skip
TEXTS = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")),
    st.sampled_from(
        [
            b"0-1",
            b"0",
            b"-1",
            b"3",
            b"9" * 400,
            b"0-65535",
            b"1024",
            b"0::/a/b\n",
            b"cgroup2 / cgroup2 rw 0 0\n",
            X86.encode(),
            RISCV.encode(),
        ]
    ),
)


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(PATHS), TEXTS))
def test_any_content_is_survived(files: dict[str, bytes]) -> None:
    """Whatever the files hold, collecting gives facts or says that nothing is known, and the facts are JSON."""
    host = Host("/test-machine", tree=Dict(dict(files)))
    try:
        facts = collect(host)
    except Missing:
        return
    assert facts.online
    assert facts.kinds is None or CpuSet.union(facts.kinds) == facts.online
    assert to_json(facts)


@settings(max_examples=25)
@given(st.text(max_size=300))
def test_any_cpuinfo_is_survived(text: str) -> None:
    """No text breaks the reader of /proc/cpuinfo."""
    info = Cpuinfo(text)
    assert info.mhz() is None or info.mhz() >= 0  # type: ignore[operator]  # not None here
    assert all(0 <= cpu < 100_000 for cpu in info.designs())
    assert to_json([info.vendor(), info.model_name(), info.isa(), info.number("model")])


@pytest.mark.parametrize(("capacities", "share"), [(("1024", "720"), 0.703), (("1024", "1024"), 1.0), ((), None)])
def test_the_least_capacity_is_the_kernels_own(machine: MakeMachine, capacities: tuple[str, ...], share: float | None) -> None:
    """Two kinds of cores, which the kernel measured; without its measure nothing is guessed."""
    capacity = {f"{CPU}/cpu{cpu}/cpu_capacity": value for cpu, value in enumerate(capacities)}
    kinds = {} if capacities else {"/sys/devices/cpu_core/cpus": "0", "/sys/devices/cpu_atom/cpus": "1"}
    facts = collect(machine({f"{CPU}/online": "0-1", "/proc/cpuinfo": "processor : 0\n\nprocessor : 1\n", **capacity, **kinds}))

    assert facts.least_capacity == share
