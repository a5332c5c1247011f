"""GPUs of Intel, from files alone.

Reads   /sys/class/drm/card*/device/tile*/gt*/freq0/{act,min,max,rp0}_freq  …/freq0/throttle/*  …/tile*/physical_vram_size_bytes
        /sys/class/drm/card*/device/tile0/gt0/ccs_mode  …/freq0/power_profile  /sys/bus/pci/devices/*/auto_link_downgrade_status
        /sys/class/drm/card*/gt/gt*/{rps_*_freq_mhz,throttle_reason_*,slpc_power_profile} of the older driver
        …/device/{resource,hwmon}  /sys/bus/pci/devices/*  what intel_use reads
Kernel  https://docs.kernel.org/gpu/xe/xe_gt_freq.html
        https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon
"""

from __future__ import annotations

from msgspec import structs

from sysperf.collect.gpu.amd import link
from sysperf.collect.gpu.drm import Card, asleep, fan_percent, labels, optional, scaled, sensors, whole
from sysperf.collect.gpu.intel_use import Told, awake, idle_files, told
from sysperf.collect.gpu.places import PCI
from sysperf.collect.gpu.records import Device
from sysperf.collect.gpu.state import Clocks, Ecc, Power, Thermal
from sysperf.collect.gpu.wires import NvLink, Xgmi
from sysperf.collect.pcie.reader import is_card_of_intel
from sysperf.host import Host
from sysperf.model.cpuset import MAX_CPU
from sysperf.startup import lazy

MODELS = {
    # by PCI device id: https://dgpu-docs.intel.com/devices/hardware-table.html
    "0bd5": "Intel Data Center GPU Max 1550", "0bd6": "Intel Data Center GPU Max 1550", "0bd7": "Intel Data Center GPU Max 1350",
    "0bd8": "Intel Data Center GPU Max 1350", "0bd9": "Intel Data Center GPU Max 1100", "0bda": "Intel Data Center GPU Max 1100",
    "0bdb": "Intel Data Center GPU Max 1100", "56b0": "Intel Arc Pro A30M", "56b1": "Intel Arc Pro A40", "56b2": "Intel Arc Pro A60M",
    "56b3": "Intel Arc Pro A60", "5690": "Intel Arc A770M", "5691": "Intel Arc A730M", "5692": "Intel Arc A550M",
    "e223": "Intel Arc Pro B70", "56c0": "Intel Data Center GPU Flex 170",
    "56c1": "Intel Data Center GPU Flex 140", "56a0": "Intel Arc A770", "56a1": "Intel Arc A750", "56a2": "Intel Arc A580",
    "56a5": "Intel Arc A380", "56a6": "Intel Arc A310", "e20b": "Intel Arc B580", "e20c": "Intel Arc B570", "e211": "Intel Arc Pro B60",
    "e212": "Intel Arc Pro B50",
}  # fmt: skip
NOT_OFFERED = ("mem_busy_percent", "mem_info_vram_used", "pcie_replay_count")
"""Files that amdgpu has and Intel's drivers do not: what they would tell is unknown for that reason."""
HAVE_ECC = ("0bd5", "0bd6", "0bd7", "0bd8", "0bd9", "0bda", "0bdb", "56c0", "56c1", "e211", "e212")
REASONS = {
    "pl1": "sw-power-cap", "pl2": "sw-power-cap", "pl4": "sw-power-cap", "ratl": "sw-thermal", "thermal": "hw-thermal",
    "vr_thermalert": "hw-thermal", "vr_tdc": "sw-power-cap", "prochot": "hw-power-brake",
    # of Crescent Island; p0_freq, which is the highest clock itself, is no reason
    "soc_thermal": "hw-thermal", "mem_thermal": "hw-thermal", "vr_thermal": "hw-thermal", "soc_avg_thermal": "sw-thermal",
    "iccmax": "sw-power-cap", "fastvmode": "sw-power-cap", "psys_pl1": "sw-power-cap", "psys_pl2": "sw-power-cap",
    "psys_crit": "hw-power-brake",
}  # fmt: skip

_CHOSEN = lazy(r"\[([a-z_]{1,30})\]")


def devices(host: Host, cards: list[Card], first: int, hours: float | None) -> list[Device]:
    """The GPUs for computing among these cards, numbered from `first` on."""
    mine = computing(cards)
    busy = awake(host, {card.name: [] if asleep(host, card) else idle_files(host, card.folder) for card in mine})
    said = told(host) if mine and host.deep else {}
    return [
        _with_use(_device(host, card, first + place, hours), busy.get(card.name), said.get(card.bus_id, Told()))
        for place, card in enumerate(mine)
    ]


def _with_use(device: Device, percent: int | None, said: Told) -> Device:
    ecc = device.ecc
    if said.uncorrected is not None:
        ecc = structs.replace(ecc, supported=True, enabled=True, corrected=said.corrected, uncorrected=said.uncorrected)
    return structs.replace(device, utilization_percent=percent, memory_used_bytes=said.memory_used_bytes, ecc=ecc)


def computing(cards: list[Card]) -> list[Card]:
    """Cards of this container that are not the graphics of a processor."""
    return [card for card in cards if card.given and card.vendor == "intel" and is_card_of_intel(card.bus_id, card.device_id)]


def _device(host: Host, card: Card, index: int, hours: float | None) -> Device:
    node = host.number(f"{PCI}/{card.bus_id}/numa_node")
    at = sensors(host, card.folder)
    for name in NOT_OFFERED:
        host.refuse(f"{card.folder}/{name}", "xe and i915 do not offer it")
    device = Device(
        index=index,
        vendor="intel",
        card=card.name,
        bus_id=card.bus_id,
        name=MODELS.get(card.device_id, f"Intel GPU {card.device_id}"),
        mobile=False,
        problem="",
        lost=False,
        memory_total_bytes=_memory(host, card.folder),
        bar1_total_bytes=_window(host, card.folder),
        mig_enabled=False,
        compute_engines=_engines(host, f"{card.folder}/tile0/gt0/ccs_mode"),
        numa_node=node if node is not None and 0 <= node <= MAX_CPU else None,
        locality_known=None if node is None else node >= 0,
        local_cpus=host.cpus(f"{PCI}/{card.bus_id}/local_cpulist"),
        ecc=Ecc() if card.device_id in HAVE_ECC else Ecc(False, False, remapped_rows=0, remap_pending=False, remap_failed=False),
        nvlink=NvLink(links=0, active=0, switch_links=0, fabric="not-supported", fabric_faults=()),
        xgmi=Xgmi(peers=0, over_pcie=0),
    )
    if asleep(host, card):
        return device
    return structs.replace(
        device,
        power_profiles=_power_profiles(host, card.folder),
        clocks=_clocks(host, card.folder),
        power=_power(host, at),
        thermal=_thermal(host, at),
        pcie=structs.replace(link(host, card.bus_id, None, hours), downgraded=_downgraded(host, card.bus_id)),
    )


def _engines(host: Host, path: str) -> int | None:
    """One, where the driver has nothing to choose: only xe has the file, and only for a GPU of several engines."""
    there = host.exists(path)
    return host.number(path) if there else 1 if there is False else None


def _power_profiles(host: Host, folder: str) -> tuple[str, ...] | None:
    """The one in brackets, of ``base [power_saving]``; nothing where the kernel offers no choice."""
    for path in (f"{folder}/tile0/gt0/freq0/power_profile", f"{folder.rpartition('/')[0]}/gt/gt0/slpc_power_profile"):
        if host.exists(path):
            chosen = _CHOSEN.search(host.text(path, 256) or "")
            return (chosen[1].replace("_", "-"),) if chosen else None
    return ()


def _downgraded(host: Host, bus_id: str) -> bool | None:
    """Only xe tells it, of Battlemage."""
    path = f"{PCI}/{bus_id}/auto_link_downgrade_status"
    said = optional(host, path)
    return False if host.exists(path) is False else None if said is None else said == 1


def _memory(host: Host, folder: str) -> int | None:
    """The sum over its tiles."""
    words = [host.word(path) for path in host.glob(f"{folder}/tile[0-9]*/physical_vram_size_bytes")]
    try:
        return sum(int(word or "", 16) for word in words) or None
    except ValueError:
        return None


def _window(host: Host, folder: str) -> int | None:
    """The size of the window to its memory: the third line of `resource` has its first and last address."""
    text = host.text(f"{folder}/resource", 8192) if host.exists(f"{folder}/resource") else None
    lines = (text or "").splitlines()
    try:
        first, last, _ = (int(word, 16) for word in lines[2].split())
    except (ValueError, IndexError):
        return None
    return last - first + 1 if last > first else None


def _clocks(host: Host, folder: str) -> Clocks:
    """Clocks of the first tile, from the newer driver `xe`, else from `i915`."""
    frequency = f"{folder}/tile0/gt0/freq0"
    if host.exists(frequency):
        now, highest, most, least = (optional(host, f"{frequency}/{name}_freq") for name in ("act", "rp0", "max", "min"))
        reasons = _reasons(host, f"{frequency}/throttle", "reason_")
    else:
        older = f"{folder.rpartition('/')[0]}/gt/gt0"
        now, highest, most, least = (optional(host, f"{older}/rps_{name}_freq_mhz") for name in ("act", "RP0", "max", "min"))
        reasons = _reasons(host, older, "throttle_reason_")
    return Clocks(sm_mhz=now, sm_max_mhz=highest, allowed_max_mhz=most, allowed_min_mhz=least, events=reasons)


def _reasons(host: Host, folder: str, start: str) -> tuple[str, ...] | None:
    found = {name: optional(host, f"{folder}/{start}{name}") for name in REASONS}
    if set(found.values()) == {None}:
        return None
    return tuple(dict.fromkeys(REASONS[name] for name, value in found.items() if value))


def _power(host: Host, at: str | None) -> Power:
    """Power limits. One of 0 is none, so that the factory's holds."""
    if at is None:
        return Power()
    rated = optional(host, f"{at}/power1_rated_max") or None
    limit = optional(host, f"{at}/power1_max")
    limit = rated if limit == 0 else limit
    return Power(limit_watts=scaled(limit, 1e6), default_limit_watts=scaled(rated, 1e6), enforced_limit_watts=scaled(limit, 1e6))


def _thermal(host: Host, at: str | None) -> Thermal:
    """Package and memory, by their labels."""
    if at is None:
        return Thermal()
    named = labels(host, at)
    package, memory = named.get("pkg"), named.get("vram")
    return Thermal(
        celsius=whole(optional(host, f"{at}/temp{package}_input"), 1000) if package else None,
        slowdown_celsius=whole(optional(host, f"{at}/temp{package}_crit"), 1000) if package else None,
        memory_celsius=whole(optional(host, f"{at}/temp{memory}_input"), 1000) if memory else None,
        fan_percent=fan_percent(host, at),
    )
