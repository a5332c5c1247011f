"""power: what governs the CPU's speed: governor, energy preference, boost, caps, sleep states, heat and the battery.

Reads   /sys/devices/system/cpu/cpufreq/policy*/{scaling_driver,scaling_governor,energy_performance_preference}
        /sys/devices/system/cpu/cpufreq/policy*/{scaling_max_freq,cpuinfo_max_freq}
        /sys/devices/system/cpu/cpu*/cpufreq/* (older kernels)  /sys/devices/system/cpu/cpufreq/boost
        /sys/devices/system/cpu/intel_pstate/no_turbo  /sys/devices/system/cpu/cpu*/cpuidle/state*/{name,latency,disable}
        /sys/devices/system/cpu/cpu*/thermal_throttle/package_throttle_{count,total_time_ms}
        /sys/firmware/acpi/platform_profile{,_choices}  /sys/class/power_supply/*/{type,online,status,scope}
Kernel  https://docs.kernel.org/admin-guide/pm/cpufreq.html
        https://docs.kernel.org/admin-guide/pm/intel_pstate.html
        https://docs.kernel.org/admin-guide/pm/cpuidle.html
        https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-power
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from sysperf.collect.readers.cpu_topology import SYSTEM, online_cpus, packages
from sysperf.collect.readers.unreadable import is_unreadable
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record, fact, joined
from sysperf.model.text import neutral
from sysperf.startup import lazy

CPUFREQ = f"{SYSTEM}/cpufreq"
POLICIES = f"{CPUFREQ}/policy*"
OLDER = f"{SYSTEM}/cpu*/cpufreq"
BOOST = f"{CPUFREQ}/boost"
NO_TURBO = f"{SYSTEM}/intel_pstate/no_turbo"
IDLE = f"{SYSTEM}/cpu*/cpuidle"
THROTTLE = f"{SYSTEM}/cpu*/thermal_throttle"
PROFILE = "/sys/firmware/acpi/platform_profile"
PROFILES = "/sys/firmware/acpi/platform_profile_choices"
SUPPLIES = "/sys/class/power_supply"

MAX_VALUES = 64

_POLICY = lazy(r"policy[0-9]{1,5}")


class Power(Record):
    """What governs the CPU's speed. Settings are summed up over all CPUs."""

    driver: Annotated[
        str | None,
        fact(
            "driver that changes the CPU's speed; empty where none does, as in most virtual machines", f"{POLICIES}/scaling_driver", CPUFREQ
        ),
    ] = None
    policies: Annotated[int | None, fact("CPUs, or groups of CPUs, that change speed by themselves", CPUFREQ)] = None
    governors: Annotated[
        tuple[str, ...] | None, fact("governors in use, the most used first", f"{POLICIES}/scaling_governor", f"{OLDER}/scaling_governor")
    ] = None
    epp: Annotated[
        tuple[str, ...] | None,
        fact(
            "energy performance preferences in use, the most used first; empty without such a control",
            f"{POLICIES}/energy_performance_preference",
        ),
    ] = None
    boost: Annotated[bool | None, fact("speeds above the nominal one are allowed", BOOST, NO_TURBO)] = None
    boost_control: Annotated[bool | None, fact("there is a switch for them", BOOST, NO_TURBO)] = None
    boost_path: Annotated[str | None, fact("the switch; Intel's says the opposite: 1 is off", BOOST, NO_TURBO)] = None
    max_freq_share: Annotated[
        float | None,
        fact(
            "highest speed allowed over highest speed possible, of the CPU with the lowest share",
            f"{POLICIES}/scaling_max_freq",
            f"{POLICIES}/cpuinfo_max_freq",
        ),
    ] = None
    capped_policies: Annotated[int | None, fact("policies that may not reach their highest speed", f"{POLICIES}/scaling_max_freq")] = None
    platform_profile: Annotated[str | None, fact("the firmware's profile; empty where there is none", PROFILE)] = None
    platform_profiles: Annotated[tuple[str, ...] | None, fact("profiles to choose from", PROFILES)] = None
    cstate: Annotated[str | None, fact("deepest sleep state that is on, on the first CPU", f"{IDLE}/state*/name")] = None
    cstate_latency_us: Annotated[
        int | None, fact("time to wake from it, in microseconds; 0 without sleep states", f"{IDLE}/state*/latency", IDLE)
    ] = None
    throttle_count: Annotated[
        int | None,
        fact("times since the start that a package was slowed by heat, of the worst package", f"{THROTTLE}/package_throttle_count"),
    ] = None
    throttle_time_ms: Annotated[
        int | None, fact("time since the start that it was slowed by heat", f"{THROTTLE}/package_throttle_total_time_ms")
    ] = None
    on_battery: Annotated[bool | None, fact("it runs from its battery now", SUPPLIES, f"{SUPPLIES}/*/online", f"{SUPPLIES}/*/status")] = (
        None
    )


def collect(host: Host) -> Power:
    """Read what governs the CPU's speed."""
    return joined(_frequency(host), _boost(host), _profile(host), _idle(host), _throttling(host), _battery(host))


def _policies(host: Host) -> list[str]:
    """The folder of each policy; older kernels have one in each CPU's folder. None of them when they cannot be listed."""
    names = host.names(CPUFREQ)
    if names is None and is_unreadable(host, CPUFREQ):
        return []
    names = names or ()
    folders = [f"{CPUFREQ}/{name}" for name in names if _POLICY.fullmatch(name)]
    if folders or host.exists(f"{CPUFREQ}/policy0") is False:
        return folders
    older = [f"{SYSTEM}/cpu{cpu}/cpufreq" for cpu in online_cpus(host) or ()]
    return older if older and host.word(f"{older[0]}/scaling_driver") else []


def _frequency(host: Host) -> Power:
    """The driver and the settings of every policy; nothing where the machine does not say."""
    folders = _policies(host)
    if not folders:
        none = host.exists(f"{CPUFREQ}/policy0") is False and host.exists(f"{SYSTEM}/cpu0/cpufreq") is False
        return Power(driver="", policies=0, governors=(), epp=()) if none else Power()
    every = [_share(host, folder) for folder in folders]
    shares = [share for share in every if share is not None] if None not in every else []
    return Power(
        driver=_text(host.word(f"{folders[0]}/scaling_driver")),
        policies=len(folders),
        governors=_values(host, folders, "scaling_governor"),
        epp=_preferences(host, folders),
        max_freq_share=max(round(min(shares), 4), 0.0001) if shares else None,
        capped_policies=sum(1 for share in shares if share < 1) if shares else None,
    )


def _values(host: Host, folders: list[str], name: str) -> tuple[str, ...] | None:
    """The values that policies have, the most frequent first; None when one cannot be read."""
    every = {folder: host.word(f"{folder}/{name}") for folder in folders}
    if any(word is None and is_unreadable(host, f"{folder}/{name}") for folder, word in every.items()):
        return None
    words = [word for word in every.values() if word]
    return tuple(neutral(word, 60) for word, _ in Counter(words).most_common(MAX_VALUES)) or None


def _preferences(host: Host, folders: list[str]) -> tuple[str, ...] | None:
    name = "energy_performance_preference"
    if host.exists(f"{folders[0]}/{name}") is False:
        return ()
    if host.word(f"{folders[0]}/{name}") is None:
        return None
    return _values(host, folders, name)


def _share(host: Host, folder: str) -> float | None:
    allowed, possible = host.number(f"{folder}/scaling_max_freq"), host.number(f"{folder}/cpuinfo_max_freq")
    return allowed / possible if allowed is not None and possible and 0 < allowed <= possible else None


def _boost(host: Host) -> Power:
    """The switch of all CPUs. Intel's says the opposite: no_turbo."""
    for path, on in ((NO_TURBO, 0), (BOOST, 1)):
        if host.exists(path):
            value = host.number(path)
            return Power(boost=None if value is None else value == on, boost_control=True, boost_path=path)
    absent = host.exists(NO_TURBO) is False and host.exists(BOOST) is False
    return Power(boost_control=False) if absent else Power()


def _profile(host: Host) -> Power:
    if host.exists(PROFILE) is False:
        return Power(platform_profile="", platform_profiles=())
    choices = host.word(PROFILES)
    return Power(
        platform_profile=_text(host.word(PROFILE)),
        platform_profiles=None if choices is None else tuple(neutral(choices).split()),
    )


def _idle(host: Host) -> Power:
    """The deepest sleep state that is not switched off, of the first online CPU."""
    first = (online_cpus(host) or CpuSet((0,))).first()
    folder = f"{SYSTEM}/cpu{first}/cpuidle"
    states = [name for name in host.names(folder) or () if name.startswith("state")][:MAX_VALUES]
    if not states:
        return Power(cstate="", cstate_latency_us=0) if host.exists(folder) is False else Power()
    for name in reversed(states):
        off = host.number(f"{folder}/{name}/disable")
        if off is None:
            return Power()
        if off == 0:
            return Power(cstate=_text(host.word(f"{folder}/{name}/name")), cstate_latency_us=host.number(f"{folder}/{name}/latency"))
    return Power()


def _throttling(host: Host) -> Power:
    """Read the package that was slowed most, asked of one CPU in each. Only Intel's CPUs count."""
    online = online_cpus(host) or CpuSet()
    if not host.names(THROTTLE.replace("*", str(online.first()))):
        return Power()
    firsts = [group.first() for group in packages(host, online) or (online,)]
    return Power(
        throttle_count=_largest(host, firsts, "package_throttle_count"),
        throttle_time_ms=_largest(host, firsts, "package_throttle_total_time_ms"),
    )


def _largest(host: Host, cpus: list[int | None], name: str) -> int | None:
    counts = [host.number(f"{THROTTLE.replace('*', str(cpu))}/{name}") for cpu in cpus]
    known = [count for count in counts if count is not None]
    return max(known, default=None) if len(known) == len(counts) else None


def _battery(host: Host) -> Power:
    """Supplies of the machine itself: a mouse's battery has the scope ``Device``."""
    names = host.names(SUPPLIES)
    if names is None:
        return Power(on_battery=False) if host.exists(SUPPLIES) is False else Power()
    folders = [f"{SUPPLIES}/{name}" for name in names[:MAX_VALUES]]
    supplies = [(folder, host.word(f"{folder}/type")) for folder in folders if host.word(f"{folder}/scope") != "Device"]
    batteries = [folder for folder, kind in supplies if kind == "Battery"]
    if not batteries:
        return Power() if any(kind is None for _, kind in supplies) else Power(on_battery=False)
    plugged = [host.number(f"{folder}/online") for folder, kind in supplies if kind in ("Mains", "USB", "Wireless")]
    charging = [host.word(f"{folder}/status") for folder in batteries]
    return Power(on_battery=None if any(kind is None for _, kind in supplies) else _on_battery(plugged, charging))


def _on_battery(plugged: list[int | None], charging: list[str | None]) -> bool | None:
    """Whether a machine with a battery runs from it: no other supply is online, or the battery is being emptied."""
    if 1 in plugged:
        return False
    if "Discharging" in charging and None not in plugged:
        return True
    if None in plugged or None in charging:
        return None
    return 0 in plugged


def _text(word: str | None) -> str | None:
    return neutral(word, 60) if word else None
