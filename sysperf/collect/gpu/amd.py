"""GPUs of AMD, from files alone.

Reads   /sys/class/kfd/kfd/topology/nodes/*/{properties,gpu_id}  …/io_links/*/properties  /sys/class/kfd/kfd/proc/*/vram_*
        /sys/module/{ttm,amdttm}/parameters/pages_limit  amd-smi under --deep
        /sys/class/drm/card*/device/{product_name,vbios_version,fw_version/mes_fw_version,mem_info_*,gpu_busy_percent,mem_busy_percent,pp_dpm_*,gpu_metrics}
        …/{power_dpm_force_performance_level,pp_power_profile_mode,current_*_partition,unique_id,pcie_replay_count}  …/hwmon
        …/ras/{*_err_count,gpu_vram_bad_pages}  /sys/bus/pci/devices/*
Kernel  https://docs.kernel.org/gpu/amdgpu/index.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import structs

from sysperf.collect.gpu.amd_smi import throttled
from sysperf.collect.gpu.drm import Card, asleep, fan_percent, labels, optional, scaled, sensors, whole
from sysperf.collect.gpu.links import link_of_files
from sysperf.collect.gpu.places import MODULES, PCI
from sysperf.collect.gpu.records import Device, Process
from sysperf.collect.gpu.state import Clocks, Ecc, Power, Thermal
from sysperf.collect.gpu.wires import NvLink, Pcie, Xgmi
from sysperf.collect.readers import kfd
from sysperf.host import Host
from sysperf.model.cpuset import MAX_CPU
from sysperf.model.text import neutral
from sysperf.procfs import pci
from sysperf.procfs.gpu_metrics import MAX_BYTES, throttled_by
from sysperf.procfs.numbers import whole as number
from sysperf.startup import lazy

DRIVER = "amdgpu"
SHARED_MODULES = ("amdttm", "ttm")
PAGE_BYTES = 4096
MAX_LINKS = 64
XGMI = 11
MODELS = {
    # by PCI device id: https://pci-ids.ucw.cz/read/PC/1002
    "738c": "AMD Instinct MI100", "738e": "AMD Instinct MI100", "7408": "AMD Instinct MI250X", "740c": "AMD Instinct MI250X",
    "740f": "AMD Instinct MI210", "74a0": "AMD Instinct MI300A", "74a1": "AMD Instinct MI300X", "74a5": "AMD Instinct MI325X",
    "74b5": "AMD Instinct MI300X VF", "74a9": "AMD Instinct MI300X HF", "75a0": "AMD Instinct MI350X", "75a3": "AMD Instinct MI355X",
    "744c": "AMD Radeon RX 7900", "7448": "AMD Radeon PRO W7900", "745e": "AMD Radeon PRO W7800", "7480": "AMD Radeon RX 7600",
    "747e": "AMD Radeon RX 7800 XT", "7550": "AMD Radeon RX 9070", "7590": "AMD Radeon RX 9060 XT", "73bf": "AMD Radeon RX 6900",
    "1586": "AMD Radeon 8060S", "7551": "AMD Radeon AI PRO R9700", "66a1": "AMD Instinct MI50", "66af": "AMD Radeon VII",
    "73a3": "AMD Radeon PRO W6800", "73df": "AMD Radeon RX 6700", "73ff": "AMD Radeon RX 6600",
}  # fmt: skip
ARCHITECTURES = (
    ("gfx906", "vega"), ("gfx900", "vega"), ("gfx908", "cdna"), ("gfx90a", "cdna2"), ("gfx94", "cdna3"), ("gfx95", "cdna4"),
    ("gfx101", "rdna"), ("gfx103", "rdna2"), ("gfx115", "rdna3.5"), ("gfx11", "rdna3"), ("gfx12", "rdna4"),
)  # fmt: skip
INTEGRATED = (
    "gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1037", "gfx1103", "gfx1150", "gfx1152", "gfx1153",
)  # fmt: skip
"""Parts of processors that draw a screen. Those for computing, MI300A and the large gfx1151, are GPUs like others."""
NOT_BUILT_FOR = ("gfx6", "gfx7", "gfx8", "gfx101")
"""Generations that no build of PyTorch has code for, so that they draw a screen and no more."""
SMALL_BYTES = 4 << 30
"""Memory of its own that a card for computing exceeds, where no topology says what it is."""
_LEVEL = lazy(r"^\s*[0-9]{1,2}:\s*([0-9]{1,5})\s*[mM]hz", flags=re.MULTILINE)
_PROFILE = lazy(r"\b([A-Z0-9_]{2,30}) {0,30}\*")
_ERRORS = lazy(r"^(ue|ce):\s*([0-9]{1,18})\s*$", flags=re.MULTILINE)
_BAD_PAGE = lazy(r"^0x[0-9a-f]{1,16} : 0x[0-9a-f]{1,16} : ([RPF])\s*$", flags=re.MULTILINE)


def devices(host: Host, cards: list[Card], first: int, hours: float | None) -> list[Device]:
    """The GPUs for computing among these cards, numbered from `first` on."""
    nodes = kfd.nodes(host) if any(card.driver == DRIVER for card in cards) else []
    mine = computing(host, cards, nodes)
    told = throttled(host) if mine and host.deep else {}
    found: list[Device] = []
    for card, parts in mine:
        device = _device(host, card, parts, nodes, first + len(found), hours)
        if device.clocks.events is None and card.bus_id in told:
            device = structs.replace(device, clocks=structs.replace(device.clocks, events=told[card.bus_id]))
        found.append(device)
    return found


def computing(host: Host, cards: Iterable[Card], nodes: Sequence[kfd.Node]) -> list[tuple[Card, list[kfd.Node]]]:
    """The cards that are for computing, by their target, else by their memory, each with its nodes of the compute driver.

    A container that was given a part of a divided GPU has a node of it there, and no node of the card. Of a machine's GPUs a job may use
    those that the compute driver shows to its control group.
    """
    found = [(card, [node for node in nodes if node.bus_id == card.bus_id]) for card in cards if card.driver == DRIVER]
    if nodes and kfd.withheld(host):
        found = [(card, parts) for card, parts in found if parts]
    return [(card, parts) for card, parts in found if _computes(host, card, parts)]


def graphics_targets(host: Host) -> tuple[str, ...]:
    """Targets that kfd lists and that are not for computing."""
    return tuple(dict.fromkeys(node.target for node in kfd.nodes(host) if _only_draws(node.target)))


def graphics_memory(host: Host, cards: Iterable[Card]) -> int | None:
    """Return what the firmware set aside for the graphics of a processor."""
    places = {node.bus_id for node in kfd.nodes(host) if node.target in INTEGRATED}
    own = [optional(host, f"{card.folder}/mem_info_vram_total") for card in cards if card.bus_id in places]
    return max((amount for amount in own if amount is not None), default=None)


def _only_draws(target: str) -> bool:
    return target in INTEGRATED or target.startswith(NOT_BUILT_FOR)


def _computes(host: Host, card: Card, parts: list[kfd.Node]) -> bool:
    if parts:
        return not _only_draws(parts[0].target)
    return card.given and (optional(host, f"{card.folder}/mem_info_vram_total") or 0) > SMALL_BYTES


def _device(host: Host, card: Card, parts: list[kfd.Node], nodes: list[kfd.Node], index: int, hours: float | None) -> Device:
    folder, target = card.folder, parts[0].target if parts else None
    node = host.number(f"{PCI}/{card.bus_id}/numa_node")
    name = host.word(f"{folder}/product_name") if host.exists(f"{folder}/product_name") else ""
    unique = host.word(f"{folder}/unique_id") if host.exists(f"{folder}/unique_id") else None
    device = Device(
        index=index,
        vendor="amd",
        card=card.name,
        bus_id=card.bus_id,
        name=neutral(name or MODELS.get(card.device_id, f"AMD GPU {card.device_id}"), 120),
        uuid=neutral(unique, 60) if unique else None,
        architecture=next((name for start, name in ARCHITECTURES if (target or "").startswith(start)), None),
        target=target,
        kfd_listed=None if host.exists(kfd.NODES) is None else bool(parts),
        compute_units=sum(part.cus for part in parts) or None,
        vbios=_word(host, f"{folder}/vbios_version"),
        queue_firmware=_firmware(host, f"{folder}/fw_version/mes_fw_version"),
        mobile=False,
        problem="",
        lost=False,
        memory_total_bytes=optional(host, f"{folder}/mem_info_vram_total"),
        memory_used_bytes=optional(host, f"{folder}/mem_info_vram_used"),
        memory_shared_bytes=optional(host, f"{folder}/mem_info_gtt_total"),
        memory_shared_module=(module := _shared_module(host)),
        memory_shared_limit_bytes=_shared_limit(host, module),
        bar1_total_bytes=optional(host, f"{folder}/mem_info_vis_vram_total"),
        compute_partition=_word(host, f"{folder}/current_compute_partition"),
        memory_partition=_word(host, f"{folder}/current_memory_partition"),
        mig_enabled=len(parts) > 1 if parts else None,
        numa_node=node if node is not None and 0 <= node <= MAX_CPU else None,
        locality_known=None if node is None else node >= 0,
        local_cpus=host.cpus(f"{PCI}/{card.bus_id}/local_cpulist"),
        nvlink=NvLink(links=0, active=0, switch_links=0, fabric="not-supported", fabric_faults=()),
        xgmi=_xgmi(host, parts, nodes) if parts else Xgmi(),
        processes=_processes(host, {part.gpu_id for part in parts}),
    )
    if asleep(host, card):
        return device
    return structs.replace(
        device,
        utilization_percent=_percent(optional(host, f"{folder}/gpu_busy_percent")),
        memory_utilization_percent=_percent(optional(host, f"{folder}/mem_busy_percent")),
        troubles=_troubles(host, folder),
        power_profiles=_power_profiles(host, f"{folder}/pp_power_profile_mode"),
        performance_level=_word(host, f"{folder}/power_dpm_force_performance_level"),
        clocks=_clocks(host, folder),
        power=_power(host, folder),
        thermal=_thermal(host, folder),
        ecc=_errors(host, folder),
        pcie=link(host, card.bus_id, optional(host, f"{folder}/pcie_replay_count"), hours),
    )


def _firmware(host: Host, path: str) -> str | None:
    """Return a version that the driver pads with zeros, such as ``0x83``."""
    digits = pci.hex_id(host.word(path) or "", 8) if host.exists(path) else None
    return f"0x{digits.lstrip('0') or '0'}" if digits else None


def _shared_module(host: Host) -> str | None:
    """AMD's own packages bring a module of another name, which other parameters reach."""
    return next((name for name in SHARED_MODULES if host.exists(f"{MODULES}/{name}")), None)


def _shared_limit(host: Host, module: str | None) -> int | None:
    """Return the limit in force, which is told in pages of 4 KiB."""
    pages = optional(host, f"{MODULES}/{module}/parameters/pages_limit") if module else None
    return None if pages is None else pages * PAGE_BYTES


def _troubles(host: Host, folder: str) -> tuple[str, ...]:
    """A GPU that hangs, or that left the bus, has its files still: none of them reads as a number."""
    at = sensors(host, folder)
    power = next((name for name in ("power1_average", "power1_input") if at and host.exists(f"{at}/{name}")), None)
    asked = (f"{folder}/gpu_busy_percent", f"{at}/temp1_input", f"{at}/{power}")
    silent = power is not None and all(host.exists(path) and host.number(path) is None for path in asked)
    return ("none of its sensors answers",) if silent else ()


def _word(host: Host, path: str) -> str | None:
    word = host.word(path) if host.exists(path) else None
    return neutral(word, 60) if word else None


def _power_profiles(host: Host, path: str) -> tuple[str, ...] | None:
    """The profile with the star: one a line with older drivers, all in the first line with newer ones. Instinct GPUs have none."""
    there = host.exists(path)
    text = host.text(path, 16_384) if there else "" if there is False else None
    chosen = _PROFILE.search(text or "")
    return (chosen[1].lower().replace("_", "-"),) if chosen else None if text is None or text else ()


def _percent(value: int | None) -> int | None:
    return value if value in range(101) else None


def _levels(host: Host, path: str) -> int | None:
    """The highest of the clocks that the driver lists."""
    text = host.text(path, 8192) if host.exists(path) else None
    return max((int(level) for level in _LEVEL.findall(text or "")), default=None)


def _clocks(host: Host, folder: str) -> Clocks:
    at = sensors(host, folder)
    raw = host.data(f"{folder}/gpu_metrics", MAX_BYTES) if host.exists(f"{folder}/gpu_metrics") else None
    return Clocks(
        sm_mhz=whole(optional(host, f"{at}/freq1_input"), 1_000_000) if at else None,
        sm_max_mhz=_levels(host, f"{folder}/pp_dpm_sclk"),
        memory_mhz=whole(optional(host, f"{at}/freq2_input"), 1_000_000) if at else None,
        memory_max_mhz=_levels(host, f"{folder}/pp_dpm_mclk"),
        events=None if raw is None else throttled_by(raw),
    )


def _power(host: Host, folder: str) -> Power:
    at = sensors(host, folder)
    if at is None:
        return Power()
    drawn = optional(host, f"{at}/power1_average")
    limit = optional(host, f"{at}/power1_cap")
    return Power(
        usage_watts=scaled(optional(host, f"{at}/power1_input") if drawn is None else drawn, 1e6),
        limit_watts=scaled(limit, 1e6),
        default_limit_watts=scaled(optional(host, f"{at}/power1_cap_default"), 1e6),
        enforced_limit_watts=scaled(limit, 1e6),
    )


def _thermal(host: Host, folder: str) -> Thermal:
    """Sensors are edge, junction and memory; the junction is the one that slows it down."""
    at = sensors(host, folder)
    if at is None:
        return Thermal()
    named = labels(host, at)
    core = hottest(named)
    now, limit = (whole(optional(host, f"{at}/temp{core}_{kind}"), 1000) for kind in ("input", "crit"))
    memory, most = (
        whole(optional(host, f"{at}/temp{named['mem']}_{kind}"), 1000) if "mem" in named else None for kind in ("input", "crit")
    )
    return Thermal(
        celsius=now,
        slowdown_celsius=limit,
        margin_celsius=None if now is None or limit is None else limit - now,
        memory_celsius=memory,
        memory_max_celsius=most,
        fan_percent=fan_percent(host, at),
    )


def hottest(named: dict[str, int]) -> int:
    """The place of the sensor that slows the core down."""
    return named.get("junction", named.get("edge", 1))


def _errors(host: Host, folder: str) -> Ecc:
    """Counters of each block of the chip, and memory pages that were taken out of use."""
    ras = f"{folder}/ras"
    there = host.exists(ras)
    if not there:
        supported = None if there is None else False
        none = None if there is None else 0
        return Ecc(enabled=supported, supported=supported, remapped_rows=none, remap_pending=supported, remap_failed=supported)
    counted: dict[str, int] = {}
    for name in host.names(ras) or ():
        for kind, errors in _ERRORS.findall((host.text(f"{ras}/{name}", 4096) or "") if name.endswith("_err_count") else ""):
            counted[kind] = counted.get(kind, 0) + int(errors)
    pages = host.text(f"{ras}/gpu_vram_bad_pages") if host.exists(f"{ras}/gpu_vram_bad_pages") else None
    flags = None if pages is None else _BAD_PAGE.findall(pages)
    return Ecc(
        enabled=bool(counted) or None,
        supported=True,
        corrected=counted.get("ce"),
        uncorrected=counted.get("ue"),
        remapped_rows=None if flags is None else len(flags),
        remap_pending=None if flags is None else "P" in flags,
        remap_failed=None if flags is None else "F" in flags,
    )


def link(host: Host, bus_id: str, replays: int | None, hours: float | None) -> Pcie:
    """The link to the machine: on cards with a switch of their own, the GPU's own link to that is always full."""
    above = pci.addresses_in(host.link(f"{PCI}/{bus_id}") or "")[:-1]
    mine = host.word(f"{PCI}/{bus_id}/vendor")
    top = bus_id
    for bridge in reversed(above):
        if mine is None or host.word(f"{PCI}/{bridge}/vendor") != mine or _is_root(host, bridge):
            break
        top = bridge
    return link_of_files(host, top, replays, hours)


def _is_root(host: Host, bridge: str) -> bool:
    """Whether a bridge is a port of the processor, which may be of the same maker."""
    return len(pci.addresses_in(host.link(f"{PCI}/{bridge}") or "")) <= 1


def _xgmi(host: Host, parts: list[kfd.Node], nodes: list[kfd.Node]) -> Xgmi:
    """How the GPU reaches the others of its hive: those that it should reach over xGMI, and those that it reaches over PCIe.

    Parts of a divided GPU are nodes of their own. What they reach is one GPU's; where they tell of no such link, nothing is known.
    """
    hive = parts[0].hive
    peers = {node.number: node.bus_id for node in nodes if hive and node.hive == hive and node.bus_id != parts[0].bus_id}
    gpus = set(peers.values())
    if not gpus:
        return Xgmi(peers=0, over_pcie=0, readable=_readable(host, parts[0], nodes))
    links = [_links(host, part) for part in parts]
    reached = {peers[to] for kinds in links for to, kind in (kinds or {}).items() if kind == XGMI and to in peers}
    if None in links or (len(parts) > 1 and not reached):
        return Xgmi(peers=len(gpus))
    return Xgmi(peers=len(gpus), over_pcie=len(gpus - reached))


def _readable(host: Host, own: kfd.Node, nodes: list[kfd.Node]) -> int | None:
    """Count the GPUs that the kernel lists as peers, among them no processors. Kernels before 6.0 have no such list."""
    others = {node.number: node.bus_id for node in nodes if node.bus_id != own.bus_id}
    links = _links(host, own, "p2p_links") if others else {}
    return None if links is None else len({others[to] for to in links if to in others})


def _links(host: Host, node: kfd.Node, listed: str = "io_links") -> dict[int, int] | None:
    """The kind of the link to each other node; None where they are not listed."""
    folder = f"{kfd.NODES}/{node.number}/{listed}"
    names = host.names(folder)
    kinds: dict[int, int] = {}
    for name in (names or ())[:MAX_LINKS]:
        said = host.pairs(f"{folder}/{name}/properties", " ") or {}
        to, kind = number(said.get("node_to", "")), number(said.get("type", ""))
        if to is not None and kind is not None:
            kinds[to] = kind
    return None if names is None else kinds


def _processes(host: Host, gpu_ids: set[int | None]) -> tuple[Process, ...] | None:
    """Programs that hold memory of the GPU through the compute driver."""
    held = kfd.held(host, {gpu_id for gpu_id in gpu_ids if gpu_id is not None})
    return None if held is None or None in gpu_ids or not gpu_ids else tuple(Process(pid, sum(on.values())) for pid, on in held.items())
