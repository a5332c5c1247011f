"""memory: how much there is, huge pages, swap, /dev/shm, write-back and reclaim settings, waiting and errors.

Reads   /proc/{meminfo,swaps,vmstat,uptime}  /proc/pressure/memory  /proc/sys/vm/*  /dev/shm
        /sys/kernel/mm/transparent_hugepage/*  /sys/kernel/mm/hugepages/*  /sys/devices/system/edac/mc/mc*/*_count
        `dmidecode -t 17` under --deep
Kernel  https://docs.kernel.org/filesystems/proc.html#meminfo
        https://docs.kernel.org/admin-guide/mm/transhuge.html
        https://docs.kernel.org/admin-guide/sysctl/vm.html
        https://docs.kernel.org/accounting/psi.html
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from sysperf.collect.memory.dimms import DMIDECODE, Dimm, parse_dimms
from sysperf.collect.readers.mounts import mount_of
from sysperf.collect.readers.pressure import waited
from sysperf.host import Host
from sysperf.model.record import Record, fact, joined
from sysperf.model.text import neutral
from sysperf.procfs import meminfo, vmstat
from sysperf.procfs.numbers import decimal, whole
from sysperf.startup import lazy

MEMINFO = "/proc/meminfo"
VMSTAT = "/proc/vmstat"
SWAPS = "/proc/swaps"
PRESSURE = "/proc/pressure/memory"
THP = "/sys/kernel/mm/transparent_hugepage/"
POOLS = "/sys/kernel/mm/hugepages/hugepages-[0-9]*kB"
VM = "/proc/sys/vm/"
SHM = "/dev/shm"  # noqa: S108 - its fixed place, read only
CONTROLLERS = "/sys/devices/system/edac/mc/mc[0-9]*"
MAX_FILES = 2_000

_CHOSEN = lazy(r"\[([a-z_+]{1,20})\]")
_OURS = lazy(r"torch_([0-9]{1,10})_|psm_[0-9a-f]|nccl-")


class Memory(Record):
    """Memory of the machine. Counters run since boot, for `counted_s` seconds."""

    total_bytes: Annotated[int | None, fact("memory that the kernel manages", MEMINFO)] = None
    available_bytes: Annotated[int | None, fact("memory that programs can get without swapping", MEMINFO)] = None
    free_bytes: Annotated[int | None, fact("memory that holds nothing at all", MEMINFO)] = None
    swap_total_bytes: Annotated[int | None, fact("size of all swap areas", MEMINFO)] = None
    swap_free_bytes: Annotated[int | None, fact("unused part of it", MEMINFO)] = None
    swap_zram_only: Annotated[bool | None, fact("all swap is compressed memory (zram), none is on a disk", SWAPS)] = None
    committed_bytes: Annotated[int | None, fact("memory that programs asked for", MEMINFO)] = None
    commit_limit_bytes: Annotated[int | None, fact("how much they can ask for when overcommit_memory is 2", MEMINFO)] = None

    hugetlb_bytes: Annotated[
        int | None, fact("memory set aside for explicit huge pages of all sizes", MEMINFO, f"{POOLS}/nr_hugepages")
    ] = None
    hugetlb_free_bytes: Annotated[int | None, fact("the part of it that nobody uses or reserved", MEMINFO, f"{POOLS}/free_hugepages")] = (
        None
    )
    hugepage_bytes: Annotated[int | None, fact("default size of a huge page", MEMINFO)] = None
    thp_enabled: Annotated[
        str | None, fact('transparent huge pages: always, madvise or never; "" is a kernel without them', f"{THP}enabled")
    ] = None
    thp_defrag: Annotated[
        str | None, fact("when a page fault waits for a huge page: always, defer, defer+madvise, madvise or never", f"{THP}defrag")
    ] = None
    thp_shmem: Annotated[
        str | None, fact("transparent huge pages in shared memory: always, within_size, advise or never", f"{THP}shmem_enabled")
    ] = None

    swappiness: Annotated[int | None, fact("how readily programs are swapped out instead of file cache dropped", f"{VM}swappiness")] = None
    zone_reclaim_mode: Annotated[int | None, fact("reclaim a full NUMA node before using the next: 0 is off", f"{VM}zone_reclaim_mode")] = (
        None
    )
    overcommit_memory: Annotated[
        int | None, fact("0 guess, 1 always grant, 2 never more than the commit limit", f"{VM}overcommit_memory")
    ] = None
    max_map_count: Annotated[int | None, fact("mappings that one process may have", f"{VM}max_map_count")] = None
    dirty_ratio: Annotated[
        int | None, fact("per cent of available memory at which writers must wait; 0: see dirty_limit_bytes", f"{VM}dirty_ratio")
    ] = None
    dirty_background_ratio: Annotated[
        int | None, fact("per cent at which writing back begins; 0: see dirty_background_limit_bytes", f"{VM}dirty_background_ratio")
    ] = None
    dirty_limit_bytes: Annotated[int | None, fact("bytes at which writers must wait; 0: see dirty_ratio", f"{VM}dirty_bytes")] = None
    dirty_background_limit_bytes: Annotated[
        int | None, fact("bytes at which writing back begins; 0: see dirty_background_ratio", f"{VM}dirty_background_bytes")
    ] = None

    shm_fstype: Annotated[str | None, fact("file system of /dev/shm", "/proc/self/mountinfo", "/proc/mounts")] = None
    shm_total_bytes: Annotated[int | None, fact("size of /dev/shm", f"space:{SHM}")] = None
    shm_free_bytes: Annotated[int | None, fact("free space in /dev/shm", f"space:{SHM}")] = None
    shm_files: Annotated[int | None, fact("files of torch, Python shared memory and NCCL in /dev/shm", SHM)] = None
    shm_files_bytes: Annotated[int | None, fact(f"their size; of the first {MAX_FILES} when there are more", f"owner:{SHM}/*", SHM)] = None
    shm_orphan_bytes: Annotated[
        int | None, fact("size of those torch files whose maker is no process that we can see", f"owner:{SHM}/torch_*", SHM)
    ] = None

    pressure_some: Annotated[float | None, fact("share of the last 60 s in which some task waited for memory", PRESSURE)] = None
    pressure_full: Annotated[float | None, fact("share of the last 60 s in which all tasks waited for memory", PRESSURE)] = None
    counted_s: Annotated[float | None, fact("seconds for which the counters run: since boot", "/proc/uptime")] = None
    oom_kills: Annotated[int | None, fact("processes killed for want of memory", VMSTAT)] = None
    compact_stalls: Annotated[int | None, fact("times a program waited while memory was compacted for a huge page", VMSTAT)] = None

    edac_controllers: Annotated[int | None, fact("memory controllers that report errors; 0 where none does", CONTROLLERS)] = None
    corrected_errors: Annotated[
        int | None, fact("memory errors that ECC corrected, since its counters were reset", f"{CONTROLLERS}/ce_count")
    ] = None
    uncorrected_errors: Annotated[int | None, fact("memory errors that ECC could not correct", f"{CONTROLLERS}/ue_count")] = None
    edac_counted_s: Annotated[int | None, fact("seconds since those counters were reset", f"{CONTROLLERS}/seconds_since_reset")] = None

    dimms: Annotated[tuple[Dimm, ...] | None, fact("memory slots, read only with --deep and as root", DMIDECODE)] = None
    channels: Annotated[int | None, fact("memory channels that the slots' labels name", DMIDECODE)] = None
    channels_used: Annotated[int | None, fact("those of them that hold memory", DMIDECODE)] = None


def collect(host: Host) -> Memory:
    """Read everything; what cannot be read stays unknown."""
    return joined(_meminfo(host), _vm(host), _thp(host), _shm(host), _counters(host), _edac(host), _slots(host))


# ---------------------------------------------------------------------- sizes


def _meminfo(host: Host) -> Memory:
    sizes = meminfo.sizes(host.text(MEMINFO) or "")
    swap_total_bytes = sizes.get("SwapTotal")
    found = Memory(
        total_bytes=sizes.get("MemTotal"),
        available_bytes=sizes.get("MemAvailable"),
        free_bytes=sizes.get("MemFree"),
        swap_total_bytes=swap_total_bytes,
        swap_free_bytes=sizes.get("SwapFree"),
        swap_zram_only=_zram_only(host, swap_total_bytes),
        committed_bytes=sizes.get("Committed_AS"),
        commit_limit_bytes=sizes.get("CommitLimit"),
        hugepage_bytes=sizes.get("Hugepagesize"),
    )
    return joined(found, _hugetlb(host, sizes))


def _zram_only(host: Host, swap_total_bytes: int | None) -> bool | None:
    """Whether every line after the heading of /proc/swaps is a zram device; False where there is no swap."""
    if swap_total_bytes == 0:
        return False
    text = host.text(SWAPS)
    if text is None:
        return None
    areas = text.splitlines()[1:]
    return bool(areas) and all(area.startswith("/dev/zram") for area in areas)


def _hugetlb(host: Host, sizes: dict[str, int]) -> Memory:
    """Explicit huge pages. meminfo counts those of the default size, ``Hugetlb`` in it (from 4.16 on) those of all."""
    default, total = sizes.get("Hugepagesize"), sizes.get("HugePages_Total")
    if sizes.get("Hugetlb") == 0 or (sizes and default is None):  # the latter: a kernel without them
        return Memory(hugetlb_bytes=0, hugetlb_free_bytes=0)
    pools = [_pool(host, path) for path in host.glob(POOLS)]
    if not pools and default is not None and total is not None:
        free, reserved = sizes.get("HugePages_Free"), sizes.get("HugePages_Rsvd")
        return Memory(hugetlb_bytes=total * default, hugetlb_free_bytes=None if free is None else max(0, free - (reserved or 0)) * default)
    return Memory(hugetlb_bytes=_sum(size for size, _ in pools), hugetlb_free_bytes=_sum(free for _, free in pools))


def _pool(host: Host, path: str) -> tuple[int | None, int | None]:
    """(bytes, unused bytes) of the huge pages of one size."""
    kibibytes = whole(path.rpartition("-")[2].removesuffix("kB"))
    pages = host.number(f"{path}/nr_hugepages")
    if pages == 0:
        return 0, 0
    free, reserved = host.number(f"{path}/free_hugepages"), host.number(f"{path}/resv_hugepages")
    if kibibytes is None or pages is None:
        return None, None
    unused = None if free is None else max(0, free - (reserved or 0)) * kibibytes * 1024
    return pages * kibibytes * 1024, unused


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum; None when there is nothing to add or a part of it is unknown."""
    known = list(values)
    return sum(value for value in known if value is not None) if known and None not in known else None


# ---------------------------------------------------------------------- settings


def _vm(host: Host) -> Memory:
    return Memory(
        swappiness=host.number(f"{VM}swappiness"),
        zone_reclaim_mode=host.number(f"{VM}zone_reclaim_mode"),
        overcommit_memory=host.number(f"{VM}overcommit_memory"),
        max_map_count=host.number(f"{VM}max_map_count"),
        dirty_ratio=host.number(f"{VM}dirty_ratio"),
        dirty_background_ratio=host.number(f"{VM}dirty_background_ratio"),
        dirty_limit_bytes=host.number(f"{VM}dirty_bytes"),
        dirty_background_limit_bytes=host.number(f"{VM}dirty_background_bytes"),
    )


def _thp(host: Host) -> Memory:
    enabled = _chosen(host, f"{THP}enabled")
    if enabled is None and host.exists(THP.rstrip("/")) is False:
        return Memory(thp_enabled="")
    return Memory(
        thp_enabled=enabled,
        thp_defrag=_chosen(host, f"{THP}defrag"),
        thp_shmem=_chosen(host, f"{THP}shmem_enabled"),
    )


def _chosen(host: Host, path: str) -> str | None:
    """The word in brackets: ``always [madvise] never``."""
    text = host.word(path)
    match = _CHOSEN.search(text or "")
    if text is not None and not match:
        host.refuse(path, f"no choice in {neutral(text, 60)!r}")
    return match[1] if match else None


# ---------------------------------------------------------------------- shared memory


def _shm(host: Host) -> Memory:
    space = host.space(SHM) or {}
    mount = mount_of(host, SHM)
    return joined(
        Memory(
            shm_fstype=neutral(mount.fstype, 40) if mount else None,
            shm_total_bytes=space.get("total_bytes"),
            shm_free_bytes=space.get("free_bytes"),
        ),
        _shm_files(host),
    )


def _shm_files(host: Host) -> Memory:
    """Files that PyTorch, Python and NCCL leave behind when they are killed.

    PyTorch names them ``torch_<pid of the maker>_…`` (ATen/MapAllocator.cpp).
    """
    names = host.names(SHM)
    if names is None:
        return Memory()
    ours = {name: match for name in names if (match := _OURS.match(name))}
    sizes = {name: _allocated_bytes(host.owner(f"{SHM}/{name}") or {}) for name in list(ours)[:MAX_FILES]}
    makers = {match[1] for name, match in ours.items() if name in sizes and match[1]}
    gone = {pid for pid in makers if host.exists(f"/proc/{pid}") is False}
    orphans = sum(size for name, size in sizes.items() if ours[name][1] in gone)
    return Memory(shm_files=len(ours), shm_files_bytes=sum(sizes.values()), shm_orphan_bytes=orphans)


def _allocated_bytes(owner: dict[str, int]) -> int:
    """The memory that a file takes: a sparse one takes less than its size. Older captures have the size only."""
    return owner.get("allocated_bytes", owner.get("size_bytes", 0))


# ---------------------------------------------------------------------- counters


def _counters(host: Host) -> Memory:
    some, full = waited(host, PRESSURE)
    counts = vmstat.counts(host.text(VMSTAT), ("oom_kill", "compact_stall"))
    uptime = (host.word("/proc/uptime") or "").split(" ")[0]
    return Memory(
        pressure_some=some,
        pressure_full=full,
        counted_s=decimal(uptime),
        oom_kills=counts["oom_kill"],
        compact_stalls=counts["compact_stall"],
    )


def _edac(host: Host) -> Memory:
    if host.exists(CONTROLLERS.rpartition("/")[0]) is False:
        return Memory(edac_controllers=0)
    controllers = host.glob(CONTROLLERS)
    return Memory(
        edac_controllers=len(controllers) if host.sources[-1].error is None else None,
        corrected_errors=_sum(host.number(f"{path}/ce_count") for path in controllers),
        uncorrected_errors=_sum(host.number(f"{path}/ue_count") for path in controllers),
        edac_counted_s=min((host.number(f"{path}/seconds_since_reset") or 0 for path in controllers), default=None),
    )


def _slots(host: Host) -> Memory:
    text = host.run("dmidecode-memory") if host.deep else None
    dimms = parse_dimms(text or "")
    if not dimms:
        return Memory()
    labels = [dimm.channel for dimm in dimms]
    if None in labels or any(dimm.size_bytes is None for dimm in dimms):
        return Memory(dimms=dimms)
    return Memory(dimms=dimms, channels=len(set(labels)), channels_used=len({dimm.channel for dimm in dimms if dimm.size_bytes}))
