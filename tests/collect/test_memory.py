"""Memory: sizes, huge pages, swap, /dev/shm, settings, waiting, errors and slots."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sysperf.collect.memory import Memory, collect
from sysperf.collect.memory.dimms import parse_dimms
from sysperf.collect.readers.pressure import waited
from sysperf.host import Host
from sysperf.model.record import from_json, to_json
from tests.conftest import Files, MakeMachine, captured

MEMINFO = """MemTotal:       24684092 kB
MemFree:        24181012 kB
MemAvailable:   24295596 kB
SwapTotal:       8388604 kB
SwapFree:        8388000 kB
CommitLimit:    12342044 kB
Committed_AS:      72364 kB
AnonHugePages:      2048 kB
HugePages_Total:       {total}
HugePages_Free:        {free}
HugePages_Rsvd:        1
Hugepagesize:       2048 kB
{more}"""
PLAIN = MEMINFO.format(total=0, free=0, more="Hugetlb:               0 kB\n")
THP = "/sys/kernel/mm/transparent_hugepage"
POOL = "/sys/kernel/mm/hugepages/hugepages"


def memory(machine: MakeMachine, files: Files, **calls: object) -> Memory:
    return collect(machine(files, calls={name.replace("__", ":"): value for name, value in calls.items()}))


# ---------------------------------------------------------------------- sizes


def test_meminfo_is_in_bytes(machine: MakeMachine) -> None:
    """The kernel writes kB and means KiB."""
    facts = memory(machine, {"/proc/meminfo": PLAIN})

    assert facts.total_bytes == 24_684_092 * 1024
    assert (facts.available_bytes, facts.swap_total_bytes) == (24_295_596 * 1024, 8_388_604 * 1024)
    assert (facts.committed_bytes, facts.commit_limit_bytes) == (72_364 * 1024, 12_342_044 * 1024)
    assert facts.hugepage_bytes == 2 << 20


def test_unread_meminfo_is_unknown(machine: MakeMachine) -> None:
    """Without the file nothing is 0."""
    facts = memory(machine, {})

    assert (facts.total_bytes, facts.swap_total_bytes, facts.hugetlb_bytes) == (None, None, None)


def test_swap_on_zram_only(machine: MakeMachine) -> None:
    """Compressed memory is no disk; one disk area among them is."""
    head = "Filename\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
    zram, disk = "/dev/zram0  partition 100 0 100\n", "/swap.img  file 100 0 -2\n"

    assert memory(machine, {"/proc/meminfo": PLAIN, "/proc/swaps": head + zram}).swap_zram_only is True
    assert memory(machine, {"/proc/meminfo": PLAIN, "/proc/swaps": head + zram + disk}).swap_zram_only is False
    assert memory(machine, {"/proc/meminfo": PLAIN}).swap_zram_only is None
    assert memory(machine, {"/proc/meminfo": "SwapTotal: 0 kB\n"}).swap_zram_only is False


# ---------------------------------------------------------------------- huge pages


def test_no_explicit_huge_pages(machine: MakeMachine) -> None:
    """`Hugetlb: 0 kB` counts pages of every size: none is set aside, and no pool need be read."""
    host = machine({"/proc/meminfo": PLAIN})
    facts = collect(host)

    assert (facts.hugetlb_bytes, facts.hugetlb_free_bytes) == (0, 0)
    assert not any("hugepages-" in source.path for source in host.sources)


def test_huge_pages_of_two_sizes(machine: MakeMachine) -> None:
    """Pages of 1 GiB are not in meminfo's HugePages_Total; reserved pages are spoken for."""
    files: Files = {
        "/proc/meminfo": MEMINFO.format(total=512, free=300, more="Hugetlb:  5242880 kB\n"),
        f"{POOL}-2048kB/nr_hugepages": "512",
        f"{POOL}-2048kB/free_hugepages": "300",
        f"{POOL}-2048kB/resv_hugepages": "100",
        f"{POOL}-1048576kB/nr_hugepages": "4",
        f"{POOL}-1048576kB/free_hugepages": "4",
        f"{POOL}-1048576kB/resv_hugepages": "0",
    }
    facts = memory(machine, files)

    assert facts.hugetlb_bytes == (1 << 30) + (4 << 30)
    assert facts.hugetlb_free_bytes == 200 * (2 << 20) + (4 << 30)


def test_huge_pages_of_an_old_kernel(machine: MakeMachine) -> None:
    """Before 4.16 there is no Hugetlb line; without pools the default size is what we know."""
    facts = memory(machine, {"/proc/meminfo": MEMINFO.format(total=10, free=5, more="")})

    assert (facts.hugetlb_bytes, facts.hugetlb_free_bytes) == (10 * (2 << 20), 4 * (2 << 20))


def test_unreadable_pool_is_unknown(machine: MakeMachine) -> None:
    """A pool whose free pages were not read might hold everything."""
    files: Files = {
        "/proc/meminfo": MEMINFO.format(total=512, free=300, more="Hugetlb: 1048576 kB\n"),
        f"{POOL}-2048kB/nr_hugepages": "512",
    }
    facts = memory(machine, files)

    assert (facts.hugetlb_bytes, facts.hugetlb_free_bytes) == (1 << 30, None)


def test_transparent_huge_pages(machine: MakeMachine) -> None:
    """The word in brackets is the choice."""
    files: Files = {
        f"{THP}/enabled": "always [madvise] never\n",
        f"{THP}/defrag": "always defer [defer+madvise] madvise never\n",
        f"{THP}/shmem_enabled": "always within_size advise [never] deny force\n",
    }
    facts = memory(machine, files)

    assert (facts.thp_enabled, facts.thp_defrag, facts.thp_shmem) == ("madvise", "defer+madvise", "never")


def test_kernel_without_transparent_huge_pages(machine: MakeMachine) -> None:
    """An absent folder is a kernel without them, an unreadable one is unknown, and so is a text without a choice."""
    assert memory(machine, {}).thp_enabled == ""
    assert memory(machine, {f"{THP}/enabled": PermissionError(13, "Permission denied")}).thp_enabled is None
    assert memory(machine, {f"{THP}/enabled": "always madvise never"}).thp_enabled is None


# ---------------------------------------------------------------------- settings, shared memory


def test_vm_settings(machine: MakeMachine) -> None:
    """Each is the number in its file."""
    values = {
        "swappiness": 60, "zone_reclaim_mode": 1, "overcommit_memory": 2, "max_map_count": 65_530,
        "dirty_ratio": 20, "dirty_background_ratio": 10, "dirty_bytes": 0, "dirty_background_bytes": 5,
    }  # fmt: skip
    facts = memory(machine, {f"/proc/sys/vm/{name}": str(value) for name, value in values.items()})

    assert (facts.swappiness, facts.zone_reclaim_mode, facts.overcommit_memory, facts.max_map_count) == (60, 1, 2, 65_530)
    assert (facts.dirty_ratio, facts.dirty_background_ratio, facts.dirty_limit_bytes, facts.dirty_background_limit_bytes) == (20, 10, 0, 5)


def test_shared_memory_size_and_kind(machine: MakeMachine) -> None:
    """Size from statvfs, kind from the last mount at /dev/shm, which hides earlier ones."""
    mounts = (
        "24 1 0:6 / /dev rw - devtmpfs dev rw\n25 24 0:7 / /dev/shm rw - ramfs x rw\n26 25 0:8 / /dev/shm rw - tmpfs shm rw,size=65536k\n"
    )
    space = {"total_bytes": 64 << 20, "free_bytes": 1 << 20, "files": 9, "files_free": 8, "read_only": 0}
    facts = memory(machine, {"/proc/self/mountinfo": mounts}, **{"space__/dev/shm": space})

    assert (facts.shm_fstype, facts.shm_total_bytes, facts.shm_free_bytes) == ("tmpfs", 64 << 20, 1 << 20)


def test_files_left_in_shared_memory(machine: MakeMachine) -> None:
    """torch's files name their maker: without such a process they are orphans. Other programs' files are none of ours."""
    names = ("torch_41_123_0", "torch_42_99_7", "psm_0a1b2c3d", "nccl-AbCdEf", "sem.other", "torchvision.txt")
    owners = {f"owner__/dev/shm/{name}": {"uid": 0, "mode": 0o600, "size_bytes": 10**index} for index, name in enumerate(names)}
    facts = memory(machine, {**{f"/dev/shm/{name}": "" for name in names}, "/proc/41/stat": "x"}, **owners)

    assert (facts.shm_files, facts.shm_files_bytes, facts.shm_orphan_bytes) == (4, 1111, 10)


def test_a_sparse_file_counts_with_what_it_takes(machine: MakeMachine) -> None:
    """A shared tensor of 8 GiB of which 1 MiB was written takes 1 MiB of /dev/shm."""
    owner = {"owner__/dev/shm/torch_40_1_0": {"uid": 0, "mode": 0o600, "size_bytes": 8 << 30, "allocated_bytes": 1 << 20}}

    facts = memory(machine, {"/dev/shm/torch_40_1_0": ""}, **owner)

    assert (facts.shm_files_bytes, facts.shm_orphan_bytes) == (1 << 20, 1 << 20)


def test_unlisted_shared_memory_is_unknown(machine: MakeMachine) -> None:
    """A folder that cannot be listed is not an empty one."""
    assert memory(machine, {}).shm_files is None


def test_thousands_of_files_are_sampled(machine: MakeMachine) -> None:
    """Sizes are asked of a bounded number of files; all are counted."""
    host = machine({f"/dev/shm/torch_7_{number}_0": "" for number in range(3_000)})
    facts = collect(host)

    assert facts.shm_files == 3_000
    assert sum(1 for source in host.sources if source.path.startswith("owner:")) == 2_000


# ---------------------------------------------------------------------- counters


def test_counters_and_uptime(machine: MakeMachine) -> None:
    """Counters come with the time for which they ran, so that nobody takes them for rates."""
    vmstat = "pswpin 7\noom_kill 2\ncompact_stall 90\n"
    facts = memory(machine, {"/proc/vmstat": vmstat, "/proc/uptime": "351.23 690.12\n"})

    assert (facts.oom_kills, facts.compact_stalls, facts.counted_s) == (2, 90, 351.23)


def test_pressure_is_a_share(machine: MakeMachine) -> None:
    """Per cent in the file, a share in the fact; the last 60 seconds."""
    text = "some avg10=9.00 avg60=25.00 avg300=0.74 total=7\nfull avg10=9.00 avg60=1.50 avg300=0.00 total=0\n"
    facts = memory(machine, {"/proc/pressure/memory": text})

    assert (facts.pressure_some, facts.pressure_full) == (0.25, 0.015)


def test_kernel_started_without_psi_is_unknown(machine: MakeMachine) -> None:
    """With psi=0 reading fails: not asked is not idle."""
    assert memory(machine, {"/proc/pressure/memory": OSError(95, "Operation not supported")}).pressure_full is None


def test_ecc_counters_are_summed(machine: MakeMachine) -> None:
    """Two controllers, one count; the shorter time counts for a rate."""
    base = "/sys/devices/system/edac/mc/mc"
    files: Files = {
        f"{base}{index}/{name}": str(value)
        for index, row in enumerate(((3, 0, 100), (4, 1, 50)))
        for name, value in zip(("ce_count", "ue_count", "seconds_since_reset"), row, strict=True)
    }
    facts = memory(machine, files)

    assert (facts.edac_controllers, facts.corrected_errors, facts.uncorrected_errors, facts.edac_counted_s) == (2, 7, 1, 50)


def test_no_ecc_reporting_is_not_zero_errors(machine: MakeMachine) -> None:
    """A machine that reports no errors because nothing looks has 0 controllers and an unknown number of errors."""
    facts = memory(machine, {})

    assert (facts.edac_controllers, facts.corrected_errors, facts.uncorrected_errors) == (0, None, None)


# ---------------------------------------------------------------------- slots

SLOT = """Handle 0x{n:04X}, DMI type 17, 92 bytes
Memory Device
\tTotal Width: 72 bits
\tSize: {size}
\tLocator: {slot}
\tBank Locator: {bank}
\tType: DDR5
\tSpeed: 4800 MT/s
\tConfigured Memory Speed: 4400 MT/s
"""


def slots(*rows: tuple[str, str, str]) -> str:
    return "# dmidecode 3.4\n\n" + "\n".join(SLOT.format(n=n, slot=slot, bank=bank, size=size) for n, (slot, bank, size) in enumerate(rows))


def test_slots_are_read_with_deep_only(machine: MakeMachine) -> None:
    """dmidecode needs root and 10 ms, so an audit does not run it unasked."""
    calls = {"run:dmidecode-memory": slots(("DIMM_A1", "", "16 GB"))}
    host = machine({}, calls=calls)
    assert collect(host).dimms is None

    host.deep = True
    facts = collect(host).dimms
    assert facts is not None
    assert (facts[0].size_bytes, facts[0].speed_mts, facts[0].configured_mts) == (16 << 30, 4800, 4400)


@pytest.mark.parametrize(
    ("slot", "bank", "channel"),
    [
        ("DIMM 0", "P0 CHANNEL A", "0/A"),
        ("DIMM 1", "P1 CHANNEL H", "1/H"),
        ("ChannelA-DIMM0", "BANK 0", "0/A"),
        ("CPU1_DIMM_C2", "NODE 2", "2/C"),
        ("DIMM_B1", "", "0/B"),
        ("P1-DIMMD1", "P0_Node0_Channel3_Dimm0", "0/3"),
        ("A1", "Not Specified", None),
        ("DIMM 0", "Not Specified", None),
    ],
)
def test_channel_labels(slot: str, bank: str, channel: str | None) -> None:
    """Makers name channels in many ways; a label that names none gives none."""
    (dimm,) = parse_dimms(slots((slot, bank, "8192 MB")))

    assert dimm.channel == channel


def test_channels_that_hold_memory(machine: MakeMachine) -> None:
    """Of four labelled channels, two are filled."""
    rows = [
        ("DIMM 0", f"P0 CHANNEL {name}", size)
        for name, size in zip("ABCD", ("32 GB", "No Module Installed", "32 GB", "No Module Installed"), strict=True)
    ]
    host = machine({}, calls={"run:dmidecode-memory": slots(*rows)})
    host.deep = True
    facts = collect(host)

    assert (facts.channels, facts.channels_used) == (4, 2)


def test_one_slot_without_a_label_leaves_the_channels_unknown(machine: MakeMachine) -> None:
    """Half a picture is none."""
    host = machine({}, calls={"run:dmidecode-memory": slots(("DIMM 0", "P0 CHANNEL A", "1 GB"), ("X", "Y", "1 GB"))})
    host.deep = True
    facts = collect(host)

    assert (facts.channels, facts.channels_used) == (None, None)
    assert facts.dimms is not None
    assert len(facts.dimms) == 2


# ---------------------------------------------------------------------- hostile input


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=60), min_size=8, max_size=8))
def test_never_raises_and_encodes(machine: MakeMachine, contents: list[bytes]) -> None:
    """Whatever the files say, the answer is a record that survives the way through JSON."""
    paths = (
        "/proc/meminfo", "/proc/swaps", "/proc/vmstat", "/proc/uptime", "/proc/pressure/memory", f"{THP}/enabled",
        f"{POOL}-2048kB/nr_hugepages", "/sys/devices/system/edac/mc/mc0/ce_count",
    )  # fmt: skip
    facts = collect(machine(dict(zip(paths, contents, strict=True))))

    assert from_json(to_json(facts), Memory) == facts


@settings(max_examples=25)
@given(st.text(alphabet="Memory Device\n\t:SizeGB0123456789LocatorChannel", max_size=300))
def test_slots_never_raise(text: str) -> None:
    """Foreign text gives slots with unknown sizes, at most as many as it has headings."""
    assert len(parse_dimms(text)) <= text.count("Memory Device\n")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="somefull avg60=.0123456789-einf\n", max_size=80))
def test_pressure_stays_a_share(machine: MakeMachine, text: str) -> None:
    """No text makes more than all of the time, or less than none."""
    for share in waited(machine({"/p": text}), "/p"):
        assert share is None or 0 <= share <= 1


# ---------------------------------------------------------------------- captured and live machines


def test_captured_machines() -> None:
    """Sizes are read; what was not captured is unknown, not off."""
    hybrid = collect(captured("hwloc", "20em64t-hybrid-1p6c2t+2ca4co1t"))

    assert hybrid.total_bytes is not None
    assert hybrid.total_bytes > 1 << 30
    assert (hybrid.thp_enabled, hybrid.swappiness, hybrid.edac_controllers) == (None, None, None)


def test_this_machine() -> None:
    """What this machine says of itself is consistent."""
    facts = collect(Host("/"))

    assert facts.total_bytes is not None
    assert facts.available_bytes is not None
    assert 0 < facts.available_bytes <= facts.total_bytes
    assert facts.thp_enabled in ("always", "madvise", "never", "")
    assert facts.swappiness is not None
    assert 0 <= facts.swappiness <= 200
