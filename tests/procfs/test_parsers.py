"""Every parser of procfs: what it reads back of what the kernel writes, and that no other text breaks it."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sysperf.model.cpuset import CpuSet
from sysperf.procfs import (
    cgroup,
    children,
    cmdline,
    cpu_ticks,
    cpu_topology,
    cpulist,
    diskstats,
    environ,
    ldcache,
    meminfo,
    mountinfo,
    net_dev,
    numbers,
    pci,
    psi,
    rank_variables,
    schedstat,
    torch_version,
    vmstat,
)
from sysperf.procfs.cpuinfo import Cpuinfo
from sysperf.procfs.maps import Mapped, torch_mapped
from sysperf.procfs.numa_maps import NumaMaps
from sysperf.procfs.stat import Stat, parse
from sysperf.procfs.status import Status

COUNT = st.integers(0, (1 << 63) - 1)
WORD = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":/\\,=()"), min_size=1, max_size=12)
ANY = st.text(max_size=400)
NEARLY = st.lists(
    st.sampled_from(
        [" ", "\n", ":", "\t", ",", "=", "/", ")", " (", "-", "\0", "kB", "N0=", "²", "٣", "9" * 5000, "1", "cpu", "avg60=", "0::/"]
    )
    | WORD,
    max_size=60,
).map("".join)
"""Texts made of what the formats are made of."""
FOREIGN_DIGITS = ("²", "٣", "１", "1_0", "+1", " 1", "1 ", "", "-", "9" * 20)


# ---------------------------------------------------------------------- numbers


@given(COUNT)
def test_a_whole_number_is_read_back(number: int) -> None:
    """Text and bytes alike."""
    assert numbers.whole(str(number)) == numbers.whole(str(number).encode()) == number


@pytest.mark.parametrize("text", FOREIGN_DIGITS)
def test_what_the_kernel_never_writes_is_no_number(text: str) -> None:
    """Digits of other scripts, signs, underscores and more digits than 64 bits hold."""
    assert numbers.whole(text) is None
    assert numbers.whole(text.encode()) is None
    assert numbers.decimal(text) is None


@given(st.integers(0, 10**11), st.integers(0, 99))
def test_a_decimal_is_read_back(seconds: int, hundredths: int) -> None:
    """As in /proc/uptime."""
    assert numbers.decimal(f"{seconds}.{hundredths:02d}") == pytest.approx(seconds + hundredths / 100)


# ---------------------------------------------------------------------- stat


def stat_line(pid: int, comm: str, state: str, fields: list[int]) -> str:
    """As the kernel writes it: 49 numbers behind the state."""
    return f"{pid} ({comm}) {state} {' '.join(map(str, fields))}\n"


@given(
    COUNT,
    st.text(st.characters(min_codepoint=1, max_codepoint=126), max_size=15),
    st.sampled_from("RSDZTXI"),
    st.lists(COUNT, min_size=49, max_size=49),
)
@example(1, "a) R 1 (b", "S", list(range(49)))
def test_stat_is_read_back_whatever_the_name_holds(pid: int, comm: str, state: str, fields: list[int]) -> None:
    """Brackets, blanks and newlines in a name move no field."""
    line = stat_line(pid, comm, state, fields)
    stat, of_bytes = Stat(line), Stat(line.encode())

    assert (stat.pid, stat.comm, stat.state, stat.ppid) == (pid, comm, state, fields[0])
    assert (stat.minor_faults, stat.major_faults, stat.cpu_ticks) == (fields[6], fields[8], fields[10] + fields[11])
    assert (stat.nice, stat.threads, stat.start_ticks, stat.rss_pages) == (fields[15], fields[16], fields[18], fields[20])
    assert (stat.stack, stat.last_cpu, stat.policy) == (fields[24], fields[35], fields[37])
    assert stat.has_ended is (state in "ZX")
    assert all(getattr(stat, name) == getattr(of_bytes, name) for name in Stat.__slots__)


@given(st.integers(0, 48), st.sampled_from([*FOREIGN_DIGITS[:4], "9" * 400, "x"]))
def test_a_damaged_field_of_stat_is_no_other_number(place: int, damage: str) -> None:
    """A field that is no number makes the text no stat; never an overflow, never another value."""
    fields = [str(1000 + index) for index in range(49)]
    whole = parse(stat_line(7, "python", "R", list(range(1000, 1049))))
    fields[place] = damage
    stat = parse(f"7 (python) R {' '.join(fields)}")

    assert whole is not None
    assert stat is None


@given(ANY | NEARLY | st.binary(max_size=200))
def test_no_text_breaks_stat(text: str | bytes) -> None:
    """Anything is a stat or None."""
    stat = parse(text)
    assert stat is None or isinstance(stat.cpu_s, float)


# ---------------------------------------------------------------------- processes


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True),
        st.text(max_size=30).filter(lambda text: "\0" not in text),
        max_size=20,
    )
)
def test_variables_are_read_back(variables: dict[str, str]) -> None:
    """Values may hold anything but NUL, equals signs and newlines included."""
    text = "".join(f"{name}={value}\0" for name, value in variables.items())

    assert environ.variables(text) == variables
    assert environ.variables(text + "".join(f"{name}=later\0" for name in variables)) == variables
    assert environ.variables(text, 3) == dict(list(variables.items())[:3])


@given(st.lists(st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text), min_size=1, max_size=20))
def test_arguments_are_read_back(arguments: list[str]) -> None:
    """Arguments may hold blanks and newlines."""
    assert cmdline.arguments("".join(f"{argument}\0" for argument in arguments)) == tuple(arguments)


@given(COUNT, COUNT, COUNT)
def test_schedstat_is_read_back(run_ns: int, wait_ns: int, turns: int) -> None:
    """Text and bytes alike, with and without what follows."""
    line = f"{run_ns} {wait_ns} {turns}\n"

    assert schedstat.parse(line) == schedstat.parse(line.encode()) == schedstat.parse(f"{run_ns} {wait_ns}") == (run_ns, wait_ns)


@given(st.sets(st.integers(0, 300), min_size=1), COUNT, st.integers(0, 1 << 40))
def test_status_is_read_back(cpus: set[int], user: int, kib: int) -> None:
    """User, CPUs, nodes and sizes; what is not there is unknown."""
    status = Status(f"Name:\tpython\nUid:\t{user}\t1\t2\t3\nPPid:\t{user}\nCpus_allowed_list:\t{CpuSet(cpus)}\nVmRSS:\t{kib:8d} kB\n")

    assert (status.user, status.ppid, status.cpus, status.size_bytes("VmRSS")) == (user, user, CpuSet(cpus), kib * 1024)
    assert (status.group, status.nodes, status.size_bytes("VmSwap"), status.get("none")) == (None, None, None, None)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["default", "bind:0", "prefer (many):1", "weighted interleave:0-1"]),
            st.booleans(),
            st.dictionaries(st.integers(0, 9), st.integers(1, 10**9), max_size=3),
            st.sampled_from([4, 2048]),
        ),
        max_size=20,
    )
)
def test_numa_maps_are_added_up(regions: list[tuple[str, bool, dict[int, int], int]]) -> None:
    """Bytes by node and policy, pages of each size as they are, and what is no file apart."""
    lines, total, own = [], 0, 0
    for policy, is_file, pages, page_kb in regions:
        words = " ".join(f"N{node}={count}" for node, count in pages.items())
        lines.append(
            f"7f00 {policy} {'file=/usr/lib/libc.so.6' if is_file else 'anon=9'} dirty=9 active=3 {words} kernelpagesize_kB={page_kb}"
        )
        total += sum(pages.values()) * page_kb * 1024
        own += 0 if is_file else sum(pages.values()) * page_kb * 1024
    maps = NumaMaps("\n".join(lines))

    assert maps.by_node.total() == maps.by_policy.total() == total
    assert maps.own_by_node.total() == own
    assert maps.policy in {"default", *(policy for policy, *_ in regions)}


@given(st.lists(st.from_regex(r"/[a-z0-9/._-]{1,40}", fullmatch=True), max_size=20))
def test_mapped_files_are_found(paths: list[str]) -> None:
    """A process is PyTorch's when one of its files is, and the number of regions is that of the lines."""
    raw = "".join(f"7f00-7f01 r-xp 00000000 08:01 123    {path}\n" for path in paths).encode()
    torch = raw + b"7f00-7f01 r-xp 00000000 08:01 123    /v/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so\n"
    mapped = torch_mapped(torch)

    assert mapped is not None
    assert mapped.torch.endswith("libtorch_cpu.so")
    assert mapped.count == len(paths) + 1
    assert {path.rpartition("/")[2] for path in paths} <= mapped.names


# ---------------------------------------------------------------------- the machine

MOUNT_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=12).map(lambda text: "/" + text)


def quoted(text: str) -> str:
    """As the kernel writes a path."""
    return re.sub(r"[ \t\n\\]", lambda match: f"\\{ord(match[0]):03o}", text)


@given(MOUNT_TEXT, MOUNT_TEXT, st.lists(WORD, min_size=1, max_size=4), st.lists(WORD, min_size=1, max_size=4))
@example("/mnt", "/", ["-"], ["rw"])
def test_mounts_are_read_back(point: str, root: str, options: list[str], more: list[str]) -> None:
    """Blanks and backslashes in paths are octal; /proc/mounts tells the same without roots."""
    line = f"36 35 98:0 {quoted(root)} {quoted(point)} {','.join(options)} shared:1 master:2 - ext4 /dev/sda {','.join(more)}\n"
    (mount,) = mountinfo.parse(line)
    (older,) = mountinfo.parse_mounts(f"/dev/sda {quoted(point)} ext4 {','.join(options)} 0 0\n")

    assert (mount.point, mount.root, mount.fstype, mount.source, mount.device) == (point, root, "ext4", "/dev/sda", "98:0")
    assert mount.options == {*options, *more}
    assert (older.point, older.options, older.own_options) == (point, frozenset(options), mount.own_options)


def test_the_innermost_and_latest_mount_holds_a_path() -> None:
    """/data/a is on the second mount of /data, and /database is not."""
    mounts = tuple(mountinfo.Mount(point, fstype, frozenset()) for point, fstype in (("/", "ext4"), ("/data", "nfs4"), ("/data", "xfs")))

    holders = [mountinfo.mount_of(mounts, path) for path in ("/data/a", "/data", "/database")]
    assert [mount and mount.fstype for mount in holders] == ["xfs", "xfs", "ext4"]


@given(st.dictionaries(WORD, st.integers(0, 1 << 40), max_size=20), st.booleans())
def test_meminfo_is_read_back(sizes: dict[str, int], of_node: bool) -> None:
    """Those of a node have its name in front."""
    text = "".join(f"{'Node 3 ' if of_node else ''}{name}: {kib:>12} kB\n" for name, kib in sizes.items())

    assert meminfo.sizes(text) == {name: kib * 1024 for name, kib in sizes.items()}


@given(st.lists(st.integers(0, 10_000), min_size=6, max_size=6), COUNT)
def test_pressure_is_read_back(hundredths: list[int], total_us: int) -> None:
    """Percents become shares; a line that is not there is unknown."""
    avg10, avg60, avg300, *rest = (f"{number / 100:.2f}" for number in hundredths)
    some = f"some avg10={avg10} avg60={avg60} avg300={avg300} total={total_us}\n"
    pressure = psi.parse(some + f"full avg10={rest[0]} avg60={rest[1]} avg300={rest[2]} total=0\n")

    assert pressure.some is not None
    assert msgspec.structs.astuple(pressure.some) == pytest.approx((*(number / 10_000 for number in hundredths[:3]), total_us))
    assert pressure.full is not None
    assert psi.parse(some.encode()) == psi.Pressure(pressure.some, None)


@given(st.sets(st.integers(0, 400), min_size=1))
def test_cpu_lists_and_processors_are_read_back(cpus: set[int]) -> None:
    """A list inside a status, the processors of /proc/cpuinfo, and the folders of sysfs."""
    info = "\n\n".join(f"processor\t: {cpu}\nmodel name\t: X" for cpu in sorted(cpus))

    assert cpulist.parse(str(CpuSet(cpus))) == CpuSet(cpus) == Cpuinfo(info).processors()
    assert cpu_topology.cpu_numbers([*(f"cpu{cpu}" for cpu in cpus), "cpufreq", "cpu٣", "cpuidle"]) == CpuSet(cpus)


@given(st.sets(st.integers(0, 63), min_size=1), st.integers(1, 8))
def test_cores_part_the_online_cpus(cpus: set[int], threads: int) -> None:
    """Every online CPU is in exactly one core, whatever its siblings say."""
    online = CpuSet(cpus)
    groups = cpu_topology.partition(online, lambda cpu: CpuSet(range(cpu // threads * threads, cpu // threads * threads + threads)))

    assert groups is not None
    assert CpuSet.union(groups) == online
    assert sum(map(len, groups)) == len(online)
    assert cpu_topology.partition(online, lambda _: None) is None


def test_kinds_of_cores_lie_clearly_apart() -> None:
    """GB10: ten cores of 718 to 731, ten of 997 to 1024."""
    kinds = cpu_topology.by_capacity([(1024, CpuSet((2,))), (718, CpuSet((0,))), (997, CpuSet((3,))), (731, CpuSet((1,)))])

    assert [str(kind) for kind in kinds] == ["0-1", "2-3"]


@given(st.dictionaries(st.sampled_from(["cpu", "cpuacct", "memory", "pids", "cpuset"]), MOUNT_TEXT, max_size=5), MOUNT_TEXT)
def test_groups_are_read_back(groups: dict[str, str], unified: str) -> None:
    """One line a hierarchy; the unified one has no controller."""
    text = "".join(f"{index}:{name}:{path}\n" for index, (name, path) in enumerate(groups.items(), 2)) + f"0::{unified} (deleted)\n"

    assert cgroup.group_paths(text) == {**groups, cgroup.V2: unified}


@given(st.integers(1, 10**9), st.integers(1, 10**6))
def test_limits_are_read_back(number: int, period: int) -> None:
    """No limit is 0, no answer is None."""
    assert (cgroup.limit(str(number)), cgroup.limit("max"), cgroup.limit("9223372036854771712"), cgroup.limit("-1")) == (number, 0, 0, None)
    assert cgroup.cpus_of_quota(str(number), str(period)) == pytest.approx(max(number / period, 0.0001), abs=1e-4)
    assert (cgroup.cpus_of_quota("max", "100000"), cgroup.cpus_of_quota("-1", ""), cgroup.cpus_of_quota("5", "0")) == (0.0, 0.0, None)
    assert cgroup.stopped_us({"throttled_usec": str(number)}) == cgroup.stopped_us({"throttled_time": str(number * 1000)}) == number


# ---------------------------------------------------------------------- devices and files


@given(st.integers(0, 0xFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))
def test_addresses_are_read_back(domain: int, bus: int, device: int, function: int) -> None:
    """sysfs, NVML and the kernel's log write one address in three ways."""
    address = f"{domain:04x}:{bus:02x}:{device:02x}.{function}"

    assert pci.is_address(address)
    assert pci.bus_id(f"{domain:08X}:{bus:02X}:{device:02X}.{function}") == pci.bus_id(address) == address
    assert pci.bus_id(address.rpartition(".")[0]) == f"{address.rpartition('.')[0]}.0"
    assert pci.address_in(f"../../devices/pci0000:00/0000:00:01.0/{address}/net/eth0") == address


@given(st.integers(-5, 300), st.sampled_from(["2.5", "5.0", "8.0", "16.0", "32.0", "64.0"]))
def test_links_are_read_back(width: int, speed: str) -> None:
    """A link that is down or asleep has no width, and an unknown speed no generation."""
    assert pci.lanes(width) == (width if width in (1, 2, 4, 8, 12, 16, 32) else None)
    assert pci.speed_gts(f"{speed} GT/s PCIe") == float(speed)
    assert pci.generation(f"{speed} GT/s PCIe") in range(1, 7)
    assert (pci.speed_gts("Unknown"), pci.generation("Unknown"), pci.hex_id("0x10DE", 4), pci.hex_id("10de", 4)) == (
        None,
        None,
        "10de",
        None,
    )


def test_an_access_control_capability_is_found() -> None:
    """At 0x100 another capability that leads to it at 0x140, with request redirect on."""
    config = bytearray(4096)
    config[0x100:0x104] = struct.pack("<I", 0x140 << 20 | 1 << 16 | 0x0001)
    config[0x140:0x144] = struct.pack("<I", 1 << 16 | 0x000D)
    config[0x146:0x148] = struct.pack("<H", 0x04)

    assert pci.redirects_peers(bytes(config))
    config[0x146:0x148] = struct.pack("<H", 0x01)
    assert not pci.redirects_peers(bytes(config))


@settings(max_examples=25)
@given(st.binary(max_size=4096))
def test_the_walk_through_capabilities_ends(config: bytes) -> None:
    """A chain that is a ring or points outside ends."""
    assert pci.redirects_peers(config) in (True, False)


@given(st.sampled_from(["2.13.0+cpu", "2.4.0a0+git1234567", "2.1.0.dev20230801+cu121", "1.13.1"]), st.sampled_from([None, "13.0"]))
def test_the_version_of_a_build_is_read_back(version: str, cuda: str | None) -> None:
    """With type annotations and without, with either quotes."""
    text = f"from typing import Optional\n__version__ = '{version}'\ndebug = False\ncuda: Optional[str] = {cuda!r}\ngit_version = \"abc\"\n"

    assert torch_version.version(text) == version
    assert torch_version.assignments(text) == {"__version__": version, "debug": "False", "cuda": cuda or "", "git_version": "abc"}


@pytest.mark.parametrize("text", ["root:x:0:0:root:/root:/bin/bash", "2", "2.0.0 \x1b[31m", "2.0.0\nroot", "", "2.0.0" + "a" * 100])
def test_what_is_no_version_is_not_shown(text: str) -> None:
    """Whoever chooses the file does not choose what we show of it."""
    assert torch_version.checked(text) is None


@given(
    st.dictionaries(
        st.from_regex(rb"lib[a-z]{1,8}\.so\.[0-9]", fullmatch=True),
        st.from_regex(rb"/[a-z/]{1,20}", fullmatch=True),
        min_size=1,
        max_size=10,
    )
)
def test_the_loader_cache_is_read_back(libraries: dict[bytes, bytes]) -> None:
    """The new format, with entries of another architecture between."""
    header = 48
    strings, entries = b"", []
    start = header + struct.calcsize("<iIIIQ") * len(libraries) * 2
    for name, path in libraries.items():
        at = start + len(strings)
        strings += name + b"\0" + path + b"\0"
        entries.append(struct.pack("<iIIIQ", 0x0803, at, at + len(name) + 1, 0, 0))
        entries.append(struct.pack("<iIIIQ", 0x0303, at, at + len(name) + 1, 0, 0))
    raw = (b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries), len(strings))).ljust(header, b"\0") + b"".join(entries) + strings

    assert ldcache.parse(raw, frozenset(libraries), ldcache.FLAGS["x86_64"]) == libraries
    assert ldcache.parse(raw, frozenset((b"libother.so",))) == {}


# ---------------------------------------------------------------------- anything else

TEXT_PARSERS: dict[str, Callable[[str], Any]] = {
    "numbers": numbers.whole,
    "decimal": numbers.decimal,
    "environ": environ.variables,
    "cmdline": cmdline.arguments,
    "maps": lambda text: Mapped(text.encode("utf-8", "surrogatepass")),
    "numa_maps": lambda text: NumaMaps(text).policy,
    "status": lambda text: (Status(text).user, Status(text).cpus, Status(text).nodes, Status(text).size_bytes("VmRSS")),
    "schedstat": schedstat.parse,
    "mountinfo": mountinfo.parse,
    "mounts": mountinfo.parse_mounts,
    "meminfo": meminfo.sizes,
    "psi": psi.parse,
    "cpuinfo": lambda text: (
        Cpuinfo(text).processors(),
        Cpuinfo(text).isa(),
        Cpuinfo(text).mhz(),
        Cpuinfo(text).designs(),
        Cpuinfo(text).model_name(),
    ),
    "cpu_topology": lambda text: cpu_topology.cpu_numbers(text.split()),
    "cpulist": cpulist.parse,
    "cgroup": cgroup.group_paths,
    "limit": cgroup.limit,
    "quota": lambda text: cgroup.cpus_of_quota(text, text),
    "pci": lambda text: (pci.bus_id(text), pci.address_in(text), pci.generation(text), pci.hex_id(text, 4)),
    "torch_version": torch_version.version,
}


@pytest.mark.parametrize("name", TEXT_PARSERS)
@settings(max_examples=25)
@given(text=ANY | NEARLY)
def test_no_text_breaks_a_parser(name: str, text: str) -> None:
    """Anything is read as something or as unknown; nothing is raised."""
    TEXT_PARSERS[name](text)


@settings(max_examples=25)
@given(st.binary(max_size=400), st.sampled_from([b"", b"glibc-ld.so.cache1.1", b"ld.so-1.7.0\0"]))
def test_no_bytes_break_the_loader_cache(raw: bytes, magic: bytes) -> None:
    """What is none says so."""
    try:
        ldcache.parse(magic + raw, frozenset((b"libc.so.6",)))
    except ValueError as error:
        assert str(error)  # noqa: PT017 - either answer is right; anything else is a defect


# ---------------------------------------------------------------------- ranks


@pytest.mark.parametrize(
    "launcher", [launcher for launcher in rank_variables.LAUNCHERS if launcher.rank], ids=lambda launcher: launcher.name
)
@given(size=st.integers(1, rank_variables.MAX_RANKS), data=st.data())
def test_the_rank_that_a_launcher_gives_is_read_back(launcher: rank_variables.Launcher, size: int, data: st.DataObject) -> None:
    """Among all ranks and among those of this machine."""
    rank = data.draw(st.integers(0, size - 1))
    env = {launcher.rank: str(rank), launcher.local_rank: str(rank), launcher.world_size: str(size)}
    env |= {name: str(size) for name in (*launcher.local_sizes, *(() if launcher.local_sizes else ("FLUX_JOB_SIZE",)))}
    env |= {"FLUX_JOB_NNODES": "1"}

    assert rank_variables.global_rank(env, started_by_srun=False) == rank_variables.GlobalRank(rank, rank, size)
    assert rank_variables.local_rank(env) == rank_variables.LocalRank(launcher.name, rank, size)


@given(st.dictionaries(st.sampled_from(sorted(rank_variables.NAMES)), NEARLY | st.sampled_from(FOREIGN_DIGITS)), st.booleans())
def test_no_variable_breaks_the_reading_of_ranks(env: dict[str, str], started_by_srun: bool) -> None:
    """A size is larger than its rank, or unknown."""
    place = rank_variables.local_rank(env)
    world = rank_variables.global_rank(env, started_by_srun=started_by_srun)

    assert place.size is None or place.rank < place.size
    assert world.rank >= -1


def test_a_batch_script_of_slurm_is_no_rank() -> None:
    """Slurm sets SLURM_PROCID there too: only what srun started is one."""
    env = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}

    assert rank_variables.global_rank(env, started_by_srun=False) == rank_variables.GlobalRank(-1, -1, 1)
    assert rank_variables.global_rank(env, started_by_srun=True) == rank_variables.GlobalRank(3, 1, 8)


# ---------------------------------------------------------------------- counters of the machine

TICKS = "cpu  10 1 5 70 4 2 3 5 9 9\ncpu0 4 0 2 40 2 1 1 2 0 0\ncpu12 6 1 3 30 2 1 2 3 0 0\nintr 7 0 0\nprocs_running 3\nprocs_blocked 0\n"


@pytest.mark.parametrize("text", [TICKS, TICKS.encode()])
def test_ticks_of_all_cpus_and_of_each(text: str | bytes) -> None:
    """What guests used is within `user`, and is not counted twice."""
    total = cpu_ticks.of_all(text)

    assert total == (10, 1, 5, 70, 4, 2, 3, 5)
    assert (total.unused, total.worked) == (74, 21)
    assert {cpu: sum(ticks) for cpu, ticks in cpu_ticks.of_each(text).items()} == {0: 52, 12: 48}
    assert cpu_ticks.running(text) == 3


@pytest.mark.parametrize("text", [None, "", "cpu  1 2 3\n", "cpu  1 2 3 4 x 6 7 8\n", "cpux 1 2 3 4 5 6 7 8", "intr 1 2 3 4 5 6 7 8 9"])
def test_other_text_has_no_ticks(text: str | None) -> None:
    """Unknown, never 0."""
    assert cpu_ticks.of_all(text) is None
    assert cpu_ticks.of_each(text) == {}


def test_counters_of_the_memory_manager() -> None:
    """The first line is one, too; a name is a whole name, and one that is not there is unknown."""
    text = "nr_free_pages 7\nxpswpin 1\npswpin 5\noom_kill x\n"

    assert vmstat.counts(text, ("nr_free_pages", "pswpin", "oom_kill", "numa_miss")) == {
        "nr_free_pages": 7, "pswpin": 5, "oom_kill": None, "numa_miss": None,
    }  # fmt: skip


def test_disks_that_are_asked_for() -> None:
    """A partition's bytes are its disk's, so who asks names the disks."""
    line = "   8  {0} {1} 100 2 3{0} 4 200 5 6{0} 7 0 8{0} 9\n"
    data = (line.format(0, "sda") + line.format(1, "sda1") + " 8 2 short 1\n").encode()

    assert diskstats.parse(data, ("sda", "short")) == {"sda": diskstats.Disk(30, 60, 80)}


def test_bytes_of_interfaces() -> None:
    """A name may stand close to its first number."""
    head = "Inter-|   Receive  |  Transmit\n face |bytes packets |bytes packets\n"
    data = f"{head}    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n eth0:123 1 0 0 0 0 0 0 456 1 0 0 0 0 0 0\nbroken: 1\n".encode()

    assert net_dev.parse(data) == {"lo": (5, 5), "eth0": (123, 456)}


def test_children_of_a_thread() -> None:
    """Numbers only."""
    assert children.parse("12 345 x 6 ") == [12, 345, 6]
    assert children.parse(b"7") == [7]
    assert children.parse(None) == []


@given(st.binary(max_size=400))
def test_no_counters_in_any_bytes(data: bytes) -> None:
    """No text breaks a parser."""
    cpu_ticks.of_all(data), cpu_ticks.of_each(data), cpu_ticks.running(data), vmstat.counts(data, ("pswpin",)), children.parse(data)
    net_dev.parse(data), diskstats.parse(data, ("sda",))
