"""kernel: which kernel runs, on what kind of machine, how it was started, and which clock it reads.

Reads   /proc/sys/kernel/{osrelease,arch,perf_event_paranoid,hung_task_detect_count,sched_autogroup_enabled}
        /proc/sys/kernel/yama/ptrace_scope
        /proc/{version,cmdline,uptime}  /sys/kernel/security/lockdown
        /sys/devices/system/clocksource/clocksource0/{current,available}_clocksource  /sys/class/dmi/id/{chassis_type,...}
        /etc/tuned/active_profile  /run/systemd/{units,timesync/synchronized}  and what `hypervisor` and `alarms` read
Kernel  https://docs.kernel.org/admin-guide/kernel-parameters.html
        https://docs.kernel.org/admin-guide/sysctl/kernel.html
"""

from __future__ import annotations

import os
from typing import Annotated

from sysperf.collect.kernel.alarms import Alarm, alarms
from sysperf.collect.kernel.hypervisor import AVAILABLE, DEVICE_TREE, DMI, HYPERVISOR, hypervisor
from sysperf.collect.readers.cpuinfo import cpuinfo
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.startup import lazy

RELEASE = "/proc/sys/kernel/osrelease"
ARCH = "/proc/sys/kernel/arch"
VERSION = "/proc/version"
CMDLINE = "/proc/cmdline"
UPTIME = "/proc/uptime"
PARANOID = "/proc/sys/kernel/perf_event_paranoid"
AUTOGROUP = "/proc/sys/kernel/sched_autogroup_enabled"
PTRACE = "/proc/sys/kernel/yama/ptrace_scope"
CURRENT = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
CHASSIS = f"{DMI}/chassis_type"
BATTERIES = "/sys/class/power_supply"
TUNED = "/etc/tuned/active_profile"
UNITS = "/run/systemd/units"

LAPTOPS = frozenset((8, 9, 10, 11, 14, 30, 31, 32))
"""SMBIOS chassis types: portable, laptop, notebook, hand held, sub notebook, tablet, convertible, detachable."""

FLAGS = frozenset((
    "isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity", "nosmt", "maxcpus", "nr_cpus", "mitigations", "preempt", "idle", "audit", "psi",
    "iommu", "intel_iommu", "amd_iommu", "iommu.passthrough", "iommu.strict", "arm-smmu.disable_bypass", "pci", "pcie_aspm", "swiotlb",
    "intel_pstate", "amd_pstate", "processor.max_cstate", "intel_idle.max_cstate", "cpuidle.off", "cpufreq.off", "cpufreq.default_governor",
    "transparent_hugepage", "hugepages", "hugepagesz", "default_hugepagesz", "numa", "numa_balancing", "init_on_alloc", "init_on_free",
    "clocksource", "tsc", "nohpet", "highres", "nopti", "pti", "spectre_v2", "retbleed", "clearcpuid", "mem",
    "systemd.unified_cgroup_hierarchy", "nvidia-drm.modeset", "nouveau.modeset", "modprobe.blacklist", "rd.driver.blacklist",
    "ttm.pages_limit", "amdttm.pages_limit", "amdgpu.gttsize", "amdgpu.gtt_size", "xe.force_probe", "i915.force_probe", "nomodeset",
    "module_blacklist",
))  # fmt: skip
"""Start parameters that decide speed; no other is kept."""

SERVICES = (
    "irqbalance", "tuned", "tuned-ppd", "numad", "power-profiles-daemon", "tlp", "auto-cpufreq", "thermald", "ksmtuned", "systemd-oomd",
    "earlyoom", "nvidia-persistenced", "nvidia-fabricmanager", "nvidia-powerd",
)  # fmt: skip
"""Services that change the settings which rules look at."""

SYNCHRONIZED = "/run/systemd/timesync/synchronized"
LOCKDOWN = "/sys/kernel/security/lockdown"
HUNG_TASKS = "/proc/sys/kernel/hung_task_detect_count"
_TIME_ERROR = 5

_CHOSEN = lazy(r"\[(none|integrity|confidentiality)\]")
_UPTIME = lazy(r"([0-9]{1,12}\.[0-9]{1,6}) ")


class Kernel(Record):
    """The kernel and the kind of machine it runs on."""

    release: Annotated[str | None, fact("kernel release", RELEASE, VERSION, "uname")] = None
    arch: Annotated[str | None, fact("machine architecture: x86_64, aarch64", "uname", ARCH)] = None
    wsl: Annotated[bool | None, fact("Windows Subsystem for Linux", RELEASE, VERSION, "uname")] = None
    virtual: Annotated[bool | None, fact("a virtual machine", *HYPERVISOR)] = None
    hypervisor: Annotated[
        str | None, fact("kvm, vmware, hyperv, xen...; other when it hides its name; empty on bare metal", *HYPERVISOR)
    ] = None
    laptop: Annotated[bool | None, fact("a machine to carry about, by its chassis", CHASSIS, f"{DEVICE_TREE}/chassis-type", BATTERIES)] = (
        None
    )
    clocksource: Annotated[str | None, fact("clock that time is read from", CURRENT)] = None
    clocksources: Annotated[tuple[str, ...] | None, fact("clocks that the kernel trusts here", AVAILABLE)] = None
    cmdline: Annotated[dict[str, str] | None, fact("start parameters that decide speed; `on` for one without a value", CMDLINE)] = None
    isolcpus: Annotated[CpuSet | None, fact("CPUs named by isolcpus", CMDLINE)] = None
    nohz_full: Annotated[CpuSet | None, fact("CPUs named by nohz_full", CMDLINE)] = None
    perf_event_paranoid: Annotated[
        int | None, fact("what a user may measure: 2 own programs, above that nothing, below also the kernel and the machine", PARANOID)
    ] = None
    autogroup: Annotated[
        bool | None, fact("each session gets an equal part of the CPUs, whatever the nice values within it", AUTOGROUP)
    ] = None
    ptrace_scope: Annotated[
        int | None, fact("Yama: 0 a user may look into all own programs, 1 only into children, 2 root, 3 nobody", PTRACE)
    ] = None
    uptime_s: Annotated[float | None, fact("seconds since the start", UPTIME)] = None
    tuned_profile: Annotated[str | None, fact("active profile of tuned; empty where tuned has none", TUNED)] = None
    clock_synchronized: Annotated[
        bool | None, fact("a time service keeps the clock right; asked of the kernel under --deep", SYNCHRONIZED, "clock:unsynchronized")
    ] = None
    hung_tasks: Annotated[
        int | None, fact("tasks that the kernel found blocked for two minutes since its start; older kernels do not count them", HUNG_TASKS)
    ] = None
    lockdown: Annotated[
        str | None, fact("none, or integrity or confidentiality, with which Secure Boot keeps modules without a signature out", LOCKDOWN)
    ] = None
    services: Annotated[tuple[str, ...] | None, fact("active services that change settings (systemd)", UNITS)] = None
    alarms: Annotated[
        tuple[Alarm, ...] | None, fact("CPUs that were stuck, and errors that nobody corrected, in the kernel's log (--deep)", "run:dmesg")
    ] = None


def collect(host: Host) -> Kernel:
    """Read the kernel's own words."""
    uname = host.uname() or (None, None)
    release = _release(host) or uname[0]
    wsl = "microsoft" in release.lower() if release else None
    name = "hyperv" if wsl else hypervisor(host, cpuinfo(host))
    virtual = None if name is None else name != ""
    flags = _flags(host)
    return Kernel(
        release=neutral(release, 120) if release else None,
        arch=uname[1] or host.word(ARCH),
        wsl=wsl,
        virtual=virtual,
        hypervisor=name,
        laptop=_laptop(host, virtual),
        clocksource=host.word(CURRENT),
        clocksources=_words(host.word(AVAILABLE)),
        cmdline=flags,
        isolcpus=_cpus(host, flags, "isolcpus"),
        nohz_full=_cpus(host, flags, "nohz_full"),
        perf_event_paranoid=host.number(PARANOID),
        autogroup=_autogroup(host),
        ptrace_scope=0 if host.exists(PTRACE) is False else host.number(PTRACE),
        uptime_s=_uptime(host),
        tuned_profile="" if host.exists(TUNED) is False else _text(host.word(TUNED)),
        clock_synchronized=_clock_synchronized(host),
        hung_tasks=host.number(HUNG_TASKS),
        lockdown=_lockdown(host),
        services=_services(host),
        alarms=alarms(host),
    )


def _lockdown(host: Host) -> str | None:
    """``none [integrity] confidentiality``: the kernel puts its choice into brackets."""
    match = _CHOSEN.search((host.word(LOCKDOWN) or "") if host.exists(LOCKDOWN) else "")
    return match[1] if match else None


def _autogroup(host: Host) -> bool | None:
    """Whether the scheduler groups tasks by session; a kernel without the file does not."""
    if host.exists(AUTOGROUP) is False:
        return False
    number = host.number(AUTOGROUP)
    return None if number is None else bool(number)


def _clock_synchronized(host: Host) -> bool | None:
    """systemd-timesyncd leaves a file; for chrony, ntpd and PTP the kernel's own word is asked."""
    if host.exists(SYNCHRONIZED):
        return True
    answer: bool | None = host.call("clock:unsynchronized", _unsynchronized, bool) if host.deep else None
    return None if answer is None else not answer


def _unsynchronized() -> bool:
    """adjtimex(2) without a change: state 5 is TIME_ERROR, a clock that nobody sets right. Raises OSError."""
    import ctypes  # noqa: PLC0415 - 4 ms, and only --deep asks

    timex = (ctypes.c_long * 64)()  # struct timex is 208 bytes; `modes`, its first field, is 0
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return bool(state == _TIME_ERROR)


def _release(host: Host) -> str | None:
    release = host.word(RELEASE)
    if release:
        return release
    words = (host.word(VERSION) or "").split()
    return words[2] if words[:2] == ["Linux", "version"] and words[2:] else None


def _laptop(host: Host, virtual: bool | None) -> bool | None:
    """Tell a laptop by the chassis type; a machine that has no such table is one only when it has a battery."""
    if virtual:
        return False
    chassis = host.number(CHASSIS)
    if chassis is not None:
        return chassis in LAPTOPS
    shape = host.word(f"{DEVICE_TREE}/chassis-type")
    if shape is not None:
        return shape in ("laptop", "convertible", "detachable", "tablet", "handset")
    if host.exists(DMI) is False:
        return any("bat" in name.lower() for name in host.names(BATTERIES) or ())
    return None


def _flags(host: Host) -> dict[str, str] | None:
    line = host.word(CMDLINE, 65_536)
    if line is None:
        return None
    pairs = (word.partition("=") for word in line.partition(" -- ")[0].split())
    return {name: neutral(value, 200) if equals else "on" for name, equals, value in pairs if name in FLAGS}


def _cpus(host: Host, flags: dict[str, str] | None, name: str) -> CpuSet | None:
    """The CPU list of a flag; isolcpus may have words before it (``domain,managed_irq,2-7``)."""
    if flags is None:
        return None
    listed = ",".join(part for part in flags.get(name, "").split(",") if part[:1].isdigit())
    try:
        return CpuSet.parse(listed)
    except ValueError as error:
        host.refuse(CMDLINE, f"{name}: {error}"[:200])
        return None


def _words(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(text.split())


def _text(word: str | None) -> str | None:
    return None if word is None else neutral(word, 120)


def _uptime(host: Host) -> float | None:
    match = _UPTIME.match(host.text(UPTIME) or "")
    return float(match[1]) if match else None


def _services(host: Host) -> tuple[str, ...] | None:
    """systemd keeps a link for each unit that is active; nothing is asked of it."""
    names = host.names(UNITS)
    return None if names is None else tuple(name for name in SERVICES if f"invocation:{name}.service" in names)
