"""The settings that sysperf can change, compiled in. A rule chooses one by name and never names a path."""

from __future__ import annotations

from collections.abc import Callable

from sysperf.model.record import Record


class Knob(Record):
    """One writable setting: where it lives, what it may be set to, and who documents that."""

    name: str
    path: str
    source: str
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None

    @property
    def per_item(self) -> bool:
        """Whether the path needs a device name."""
        return "{item}" in self.path

    def accepts(self, value: str | int) -> bool:
        """Whether this value may be written."""
        if self.choices:
            return str(value) in self.choices
        try:
            number = int(value)
        except ValueError:
            return False
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)


_SYSCTL = "https://docs.kernel.org/admin-guide/sysctl/"
_THP = "https://docs.kernel.org/admin-guide/mm/transhuge.html"
_PM = "https://docs.kernel.org/admin-guide/pm/"
_BLOCK = "https://docs.kernel.org/admin-guide/abi-stable-files.html#abi-file-stable-sysfs-block"


def _sysctl(key: str, doc: str, low: int, high: int) -> Knob:
    return Knob(name=key, path="/proc/sys/" + key.replace(".", "/"), source=_SYSCTL + doc, low=low, high=high)


SYSCTLS = {
    knob.name: knob
    for knob in (
        _sysctl("kernel.numa_balancing", "kernel.html#numa-balancing", 0, 3),
        _sysctl("kernel.perf_event_paranoid", "kernel.html#perf-event-paranoid", -1, 4),
        _sysctl("kernel.yama.ptrace_scope", "../LSM/Yama.html", 0, 2),
        _sysctl("vm.zone_reclaim_mode", "vm.html#zone-reclaim-mode", 0, 7),
        _sysctl("vm.swappiness", "vm.html#swappiness", 0, 200),
        _sysctl("vm.dirty_ratio", "vm.html#dirty-ratio", 1, 100),
        _sysctl("vm.dirty_background_ratio", "vm.html#dirty-background-ratio", 1, 100),
        _sysctl("vm.max_map_count", "vm.html#max-map-count", 65_530, 2_147_483_647),
        _sysctl("vm.nr_hugepages", "vm.html#nr-hugepages", 0, 1 << 32),
        _sysctl("vm.overcommit_memory", "vm.html#overcommit-memory", 0, 1),
    )
}

_THP_ROOT = "/sys/kernel/mm/transparent_hugepage/"
_POLICY = "/sys/devices/system/cpu/cpufreq/policy*/"

SYSFS = {
    knob.name: knob
    for knob in (
        Knob(name="thp.enabled", path=_THP_ROOT + "enabled", source=_THP, choices=("always", "madvise", "never")),
        Knob(
            name="thp.defrag",
            path=_THP_ROOT + "defrag",
            source=_THP,
            choices=("always", "defer", "defer+madvise", "madvise", "never"),
        ),
        Knob(
            name="cpu.governor",
            path=_POLICY + "scaling_governor",
            source=_PM + "cpufreq.html",
            choices=("performance", "powersave", "schedutil", "ondemand", "conservative"),
        ),
        Knob(
            name="cpu.epp",
            path=_POLICY + "energy_performance_preference",
            source=_PM + "intel_pstate.html#energy-vs-performance-hints",
            choices=("performance", "balance_performance", "balance_power", "power", "default"),
        ),
        Knob(
            name="cpu.boost",
            path="/sys/devices/system/cpu/cpufreq/boost",
            source=_PM + "cpufreq.html#frequency-boost-support",
            low=0,
            high=1,
        ),
        Knob(
            name="cpu.no_turbo",
            path="/sys/devices/system/cpu/intel_pstate/no_turbo",
            source=_PM + "intel_pstate.html",
            low=0,
            high=1,
        ),
        Knob(
            name="cpu.platform_profile",
            path="/sys/firmware/acpi/platform_profile",
            source="https://docs.kernel.org/userspace-api/sysfs-platform_profile.html",
            choices=("low-power", "quiet", "balanced", "balanced-performance", "performance"),
        ),
        Knob(name="cpu.max_freq_khz", path=_POLICY + "scaling_max_freq", source=_PM + "cpufreq.html", low=100_000),
        Knob(
            name="block.read_ahead_kb",
            path="/sys/block/{item}/queue/read_ahead_kb",
            source=_BLOCK,
            low=0,
            high=65_536,
        ),
        Knob(
            name="block.scheduler",
            path="/sys/block/{item}/queue/scheduler",
            source=_BLOCK,
            choices=("none", "mq-deadline", "kyber", "bfq"),
        ),
    )
}

NVML_SETTINGS: dict[str, Callable[[str], tuple[str, str]]] = {
    # setting -> for a PCI bus id: (the command a person would run, the command that takes it back)
    "persistence": lambda bus_id: (f"sudo nvidia-smi -i {bus_id} -pm 1", f"sudo nvidia-smi -i {bus_id} -pm 0"),
}
