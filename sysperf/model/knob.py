"""The settings that sysperf can change, compiled in. A rule chooses one by name and never names a path."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record
from sysperf.startup import lazy

Kind = Literal["sysctl", "sysfs", "nvml", "process", "latency", "mount", "file", "mark"]
Item = Literal["", "block device", "process", "PCI address of a GPU", "transaction", "node"]

_ITEMS = {
    "block device": lazy(r"[A-Za-z0-9][A-Za-z0-9_!-]{0,63}"),
    "process": lazy(r"[1-9][0-9]{0,9}"),
    "PCI address of a GPU": lazy(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"),
    "transaction": lazy(r"[0-9]{6}"),
    "node": lazy(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}"),
}


class Knob(Record):
    """One writable setting: where it lives, what it may be set to, and who documents that."""

    name: str
    path: str
    source: str
    kind: Kind = "sysfs"
    item: Item = ""
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    unit: str = ""
    listed: Literal["", "cpus", "nodes"] = ""
    """The value is a list of CPUs or nodes."""
    offers: str = ""
    """The file beside it that lists what this machine takes."""
    yields_to: str = ""
    """The setting that is in force instead while this one reads 0; sysperf then leaves both alone."""
    partial: bool = False
    """The kernel may take a part of what is asked for."""
    guards: bool = False
    """It keeps users from each other: changed only for a finding or setting that is named."""
    needs_keeper: bool = False
    """It holds only as long as a process keeps it."""
    note: str = ""

    @property
    def per_item(self) -> bool:
        """Whether the name of a device or process belongs to it."""
        return bool(self.item)

    def takes_item(self, item: str) -> bool:
        """Whether this names a device or process, and nothing else."""
        return bool(_ITEMS[self.item].fullmatch(item)) if self.item else not item

    def accepts(self, value: str | int) -> bool:
        """Whether this value may be written."""
        if self.listed:
            return _is_list(str(value))
        if self.choices:
            return str(value) in self.choices
        if isinstance(value, str) and not _NUMBER.fullmatch(value):
            return False
        number = int(value)
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)

    def canonical(self, value: str) -> str:
        """A value that it accepts, as the kernel writes it: to the kernel, ``010`` is eight."""
        if self.listed:
            return str(CpuSet.parse(value))
        return value if self.choices else str(int(value))

    def covers(self, path: str) -> bool:
        """Whether this is its file, or one of its files."""
        parts = self.path.split("{item}")
        if len(parts) == 1:
            return bool(re.fullmatch(re.escape(self.path).replace(r"policy\*", "policy[0-9]{1,5}"), path))
        before, after = parts
        return path.startswith(before) and path.endswith(after) and self.takes_item(path[len(before) : len(path) - len(after)])

    def range(self) -> str:
        """What it takes, for people."""
        if self.listed:
            return f"a list of {'CPUs' if self.listed == 'cpus' else 'NUMA nodes'}, such as 0-3"
        if self.choices:
            return ", ".join(self.choices)
        low = "" if self.low is None else str(self.low)
        return f"{low}…{'' if self.high is None else self.high}{self.unit and ' ' + self.unit}"


_NUMBER = lazy(r"-?[0-9]{1,19}")
_MAX_LIST_LENGTH = 4_096


def _is_list(value: str) -> bool:
    if len(value) > _MAX_LIST_LENGTH:
        return False
    try:
        return bool(CpuSet.parse(value))
    except ValueError:
        return False


_SYSCTL = "https://docs.kernel.org/admin-guide/sysctl/"
_LSM = "https://docs.kernel.org/admin-guide/LSM/"
_THP = "https://docs.kernel.org/admin-guide/mm/transhuge.html"
_PM = "https://docs.kernel.org/admin-guide/pm/"
_BLOCK = "https://docs.kernel.org/admin-guide/abi-stable-files.html#abi-file-stable-sysfs-block"
_MAN = "https://man7.org/linux/man-pages/"


def _sysctl(
    key: str,
    doc: str,
    low: int,
    high: int,
    *,
    source: str = _SYSCTL,
    yields_to: str = "",
    partial: bool = False,
    guards: bool = False,
    note: str = "",
) -> Knob:
    return Knob(
        name=key,
        path="/proc/sys/" + key.replace(".", "/"),
        source=source + doc,
        kind="sysctl",
        low=low,
        high=high,
        yields_to=yields_to,
        partial=partial,
        guards=guards,
        note=note,
    )


def _named(*knobs: Knob) -> dict[str, Knob]:
    return {knob.name: knob for knob in knobs}


_SHOWS = "lower shows more to every user: give it a lease"
_READS = "lower lets users' processes read each other: give it a lease"

SYSCTLS = _named(
    _sysctl("kernel.numa_balancing", "kernel.html#numa-balancing", 0, 3),
    _sysctl("kernel.perf_event_paranoid", "kernel.html#perf-event-paranoid", -1, 4, guards=True, note=_SHOWS),
    _sysctl("kernel.yama.ptrace_scope", "Yama.html", 0, 2, source=_LSM, guards=True, note=_READS),
    _sysctl("vm.zone_reclaim_mode", "vm.html#zone-reclaim-mode", 0, 7),
    _sysctl("vm.swappiness", "vm.html#swappiness", 0, 200),
    _sysctl("vm.dirty_ratio", "vm.html#dirty-ratio", 1, 100, yields_to="vm.dirty_bytes"),
    _sysctl("vm.dirty_background_ratio", "vm.html#dirty-background-ratio", 1, 100, yields_to="vm.dirty_background_bytes"),
    _sysctl("vm.dirty_expire_centisecs", "vm.html#dirty-expire-centisecs", 100, 360_000),
    _sysctl("vm.dirty_writeback_centisecs", "vm.html#dirty-writeback-centisecs", 0, 360_000),
    _sysctl("vm.max_map_count", "vm.html#max-map-count", 65_530, 2_147_483_647),
    _sysctl("vm.nr_hugepages", "vm.html#nr-hugepages", 0, 1 << 32, partial=True, note="the kernel may find fewer: then nothing is changed"),
    _sysctl("vm.overcommit_memory", "vm.html#overcommit-memory", 0, 1),
)

_THP_ROOT = "/sys/kernel/mm/transparent_hugepage/"
_POLICY = "/sys/devices/system/cpu/cpufreq/policy*/"

SYSFS = _named(
    Knob(name="thp.enabled", path=_THP_ROOT + "enabled", source=_THP, choices=("always", "madvise", "never")),
    Knob(name="thp.defrag", path=_THP_ROOT + "defrag", source=_THP, choices=("always", "defer", "defer+madvise", "madvise", "never")),
    Knob(
        name="cpu.governor",
        path=_POLICY + "scaling_governor",
        source=_PM + "cpufreq.html",
        choices=("performance", "powersave", "schedutil", "ondemand", "conservative"),
        offers="scaling_available_governors",
    ),
    Knob(
        name="cpu.epp",
        path=_POLICY + "energy_performance_preference",
        source=_PM + "intel_pstate.html#energy-vs-performance-hints",
        choices=("performance", "balance_performance", "balance_power", "power", "default"),
        offers="energy_performance_available_preferences",
    ),
    Knob(
        name="cpu.boost", path="/sys/devices/system/cpu/cpufreq/boost", source=_PM + "cpufreq.html#frequency-boost-support", low=0, high=1
    ),
    Knob(name="cpu.no_turbo", path="/sys/devices/system/cpu/intel_pstate/no_turbo", source=_PM + "intel_pstate.html", low=0, high=1),
    Knob(
        name="cpu.platform_profile",
        path="/sys/firmware/acpi/platform_profile",
        source="https://docs.kernel.org/userspace-api/sysfs-platform_profile.html",
        choices=("low-power", "quiet", "balanced", "balanced-performance", "performance"),
        offers="platform_profile_choices",
    ),
    Knob(name="cpu.max_freq_khz", path=_POLICY + "scaling_max_freq", source=_PM + "cpufreq.html", low=100_000, high=20_000_000, unit="kHz"),
    Knob(
        name="block.read_ahead_kb",
        path="/sys/block/{item}/queue/read_ahead_kb",
        source=_BLOCK,
        item="block device",
        low=0,
        high=65_536,
        unit="kB",
    ),
    Knob(
        name="block.scheduler",
        path="/sys/block/{item}/queue/scheduler",
        source=_BLOCK,
        item="block device",
        choices=("none", "mq-deadline", "kyber", "bfq"),
    ),
)

OTHERS = _named(
    # set by system calls; rules choose the first by fixes of their own kinds
    Knob(
        name="gpu.persistence",
        path="nvml:DeviceSetPersistenceMode",
        source="https://docs.nvidia.com/deploy/driver-persistence/",
        kind="nvml",
        item="PCI address of a GPU",
        low=0,
        high=1,
    ),
    Knob(
        name="process.cpus",
        path="sched_setaffinity",
        source=_MAN + "man2/sched_setaffinity.2.html",
        kind="process",
        item="process",
        listed="cpus",
    ),
    Knob(
        name="process.pages",
        path="migrate_pages",
        source=_MAN + "man2/migrate_pages.2.html",
        kind="process",
        item="process",
        listed="nodes",
        note="moves memory once; undone exactly only where it came from one node",
    ),
    Knob(
        name="process.nice", path="setpriority", source=_MAN + "man2/setpriority.2.html", kind="process", item="process", low=-20, high=19
    ),
    Knob(
        name="process.io_class",
        path="ioprio_set",
        source=_MAN + "man2/ioprio_set.2.html",
        kind="process",
        item="process",
        choices=("none", "best-effort", "idle"),
    ),
    Knob(
        name="cpu.dma_latency_us",
        path="/dev/cpu_dma_latency",
        source=_PM + "pm_qos_interface.html",
        kind="latency",
        low=0,
        high=10_000,
        unit="µs",
        needs_keeper=True,
    ),
    Knob(
        name="shm.size_bytes",
        path="/dev/shm",  # noqa: S108 - the file system itself, which is remounted
        source="https://docs.kernel.org/filesystems/tmpfs.html",
        kind="mount",
        low=64 << 20,
        high=1 << 48,
        unit="bytes",
    ),
)

KNOBS = {**SYSCTLS, **SYSFS, **OTHERS}

PERSISTED = _named(
    # the system's own mechanisms to set something at every start; one file a transaction, which undoing removes
    Knob(
        name="persist.sysctl",
        path="/etc/sysctl.d/90-sysperf-{item}.conf",
        source=_MAN + "man5/sysctl.d.5.html",
        kind="file",
        item="transaction",
    ),
    Knob(
        name="persist.tmpfiles",
        path="/etc/tmpfiles.d/sysperf-{item}.conf",
        source=_MAN + "man5/tmpfiles.d.5.html",
        kind="file",
        item="transaction",
    ),
)

_MARK = lazy(r"(mark|drain)\.([a-z][a-z0-9_]{0,31})")


def of_mark(name: str) -> Knob | None:
    """What ``drain.slurm`` means: a scheduler is told of a node, through the marker of that name. No rule chooses it."""
    match = _MARK.fullmatch(name)
    if not match:
        return None
    what = {"mark": "comment", "drain": "drain"}[match[1]]
    return Knob(name=name, path=f"{match[2]}: {what} of {{item}}", source=f"the plugin {match[2]}", kind="mark", item="node")


SETTABLE = {name: knob for name, knob in OTHERS.items() if name not in ("gpu.persistence", "process.cpus", "process.pages")}
"""What a rule chooses by a fix of kind ``setting``; all others have kinds of their own."""

NVML_SETTINGS: dict[str, Callable[[str], tuple[str, str]]] = {
    # setting -> for a PCI bus id: (the command a person would run, the command that takes it back)
    "persistence": lambda bus_id: (f"sudo nvidia-smi -i {bus_id} -pm 1", f"sudo nvidia-smi -i {bus_id} -pm 0"),
}

_WRITABLE = (*SYSCTLS.values(), *SYSFS.values(), *PERSISTED.values(), OTHERS["cpu.dma_latency_us"])


def is_writable(path: str) -> bool:
    """Whether a file is one of the allow-list's."""
    return any(knob.covers(path) for knob in _WRITABLE)
