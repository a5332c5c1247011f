"""gpu: GPUs as NVML and the drivers of AMD and Intel show them, and where they sit in the machine.

Reads   NVML (libnvidia-ml.so.1)  /dev/nvidia*  /proc/bus/pci/devices  /sys/bus/pci/devices/*/{vendor,class,device,driver}
        /sys/class/drm  /sys/class/kfd  /sys/class/devfreq
        /proc/driver/nvidia/gpus/*/information  /proc/uptime  the kernel log under --deep
NVML    https://docs.nvidia.com/deploy/nvml-api/
Xid     https://docs.nvidia.com/deploy/xid-errors/
"""

from __future__ import annotations

import os
from typing import Annotated

import msgspec

from sysperf.collect.driver import NVML, nvml_problem
from sysperf.collect.gpu import drm, tegra
from sysperf.collect.gpu.answers import NOT_SUPPORTED, key, number
from sysperf.collect.gpu.kernel_log import Xid
from sysperf.collect.gpu.links import link_of_files
from sysperf.collect.gpu.log_faults import Fault
from sysperf.collect.gpu.log_of_gpus import log_of
from sysperf.collect.gpu.others import others
from sysperf.collect.gpu.places import KFD, PCI
from sysperf.collect.gpu.records import Device, is_mobile
from sysperf.collect.readers import jetson
from sysperf.host import Host
from sysperf.model.cpuset import MAX_CPU
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.procfs.pci import hex_id
from sysperf.startup import lazy

PCI_LIST = "/proc/bus/pci/devices"

MAX_GPUS = 128
MAX_P2P_GPUS = 16

P2P_STATES = {0: "ok", 1: "chipset", 2: "gpu", 3: "topology", 4: "disabled", 5: "not-supported"}

_NODE = lazy(r"nvidia[0-9]{1,4}")


class Function(Record):
    """One NVIDIA display or 3D function of the PCI bus."""

    bus_id: Annotated[str, fact("its PCI address", PCI)]
    driver: Annotated[str | None, fact("kernel driver that holds it; '' for none", f"{PCI}/*/driver")] = None
    module: Annotated[
        str | None,
        fact(
            "which of NVIDIA's kernel modules runs it: open (Blackwell and newer), proprietary (Volta and older) or either",
            f"{PCI}/*/device",
        ),
    ] = None


class Gpu(Record):
    """All GPUs of the machine that compute."""

    devices: Annotated[
        tuple[Device, ...] | None,
        fact("GPUs; NVIDIA's from PCI alone when NVML does not answer", "nvml:DeviceGetCount", PCI_LIST, PCI, NVML, drm.DRM),
    ] = None
    nvml: Annotated[bool | None, fact("whether NVML lists GPUs", "nvml:DeviceGetCount", NVML)] = None
    functions: Annotated[tuple[Function, ...] | None, fact("NVIDIA GPUs on the PCI bus", PCI_LIST, PCI)] = None
    p2p_blocked: Annotated[
        tuple[str, ...] | None,
        fact("pairs of GPUs that the platform keeps from reading each other, as 0-1 (chipset)", "nvml:DeviceGetP2PStatus", NVML),
    ] = None
    forbidden: Annotated[
        int | None, fact("GPUs whose device node this process may not open, as a batch system arranges it", "/dev", "access:/dev/nvidia*")
    ] = None
    confidential: Annotated[bool | None, fact("whether confidential computing is on", "nvml:SystemGetConfComputeState", NVML)] = None
    confidential_ready: Annotated[
        bool | None,
        fact("whether the GPUs of a confidential machine take work", "nvml:SystemGetConfComputeGpusReadyState", NVML),
    ] = None
    graphics_targets: Annotated[
        tuple[str, ...] | None,
        fact(
            "targets of AMD GPUs that draw a screen and are not among the devices: those of processors, and those that no build is for", KFD
        ),
    ] = None
    graphics_memory_bytes: Annotated[
        int | None, fact("memory that is set aside for a processor's graphics of AMD's, the largest where there are several", drm.DRM, KFD)
    ] = None
    kfd_gpus: Annotated[int | None, fact("GPUs, and parts of them, that AMD's driver for computing lists", KFD)] = None
    others: Annotated[
        tuple[str, ...] | None, fact("accelerators of other makers, of which nothing but their number is known here", PCI_LIST)
    ] = None
    xids: Annotated[tuple[Xid, ...] | None, fact("driver errors in the kernel log", "run:dmesg")] = None
    sxids: Annotated[tuple[Xid, ...] | None, fact("errors of NVSwitches in the kernel log", "run:dmesg")] = None
    faults: Annotated[tuple[Fault, ...] | None, fact("what else the driver says of GPUs that it could not start or lost", "run:dmesg")] = (
        None
    )


def collect(host: Host) -> Gpu:
    """Ask NVML about each GPU; without it, list what the PCI bus shows."""
    functions, strange = nvidia_functions(host), _others(host)
    problem = nvml_problem(host)
    count = number(host.nvml("DeviceGetCount")) if problem == "" else None
    nvidia = None if count is None else _by_nvml(host, count, functions)
    devices = _with_others(host, _as_allowed(host, _by_files(host, functions) if nvidia is None else nvidia))
    is_nvidia = nvidia is not None or bool(functions)
    held = tuple(function.bus_id for function in functions or ())
    log = log_of(host, devices or (), held, any_gpu=is_nvidia or bool(devices or strange), nvidia=is_nvidia)
    known = Gpu(
        devices,
        nvml=nvidia is not None,
        functions=functions,
        graphics_targets=(targets := _graphics_targets(host)),
        graphics_memory_bytes=_graphics_memory(host, targets),
        kfd_gpus=_kfd_gpus(host),
        others=strange,
        xids=log.xids,
        sxids=log.sxids,
        faults=log.faults,
    )
    if nvidia is None:
        return known
    confidential = _confidential(host)
    return msgspec.structs.replace(
        known,
        p2p_blocked=_p2p_blocked(host, len(nvidia)),
        forbidden=_forbidden(host) if len(nvidia) < len(functions or ()) else 0,
        confidential=confidential,
        confidential_ready=_ready(host) if confidential else None,
    )


def _by_nvml(host: Host, count: int, functions: tuple[Function, ...] | None) -> tuple[Device, ...]:
    """Return the GPUs of NVIDIA as its library answers."""
    from sysperf.collect.gpu.device import one_gpu  # noqa: PLC0415 - four modules, which machines without GPUs need not pay

    hours = _uptime_hours(host)
    held = [function.bus_id for function in functions or () if function.driver == "nvidia"]
    places = held if len(held) == count else []
    return tuple(one_gpu(host, index, hours, places[index] if places else None) for index in range(min(count, MAX_GPUS)))


def _by_files(host: Host, functions: tuple[Function, ...] | None) -> tuple[Device, ...] | None:
    """Return the GPUs of NVIDIA as far as the PCI bus shows them, or a Jetson's; None where neither can be told."""
    devices = None if functions is None else tuple(_from_pci(host, index, function.bus_id) for index, function in enumerate(functions))
    return devices or tegra.devices(host) or devices


def _as_allowed(host: Host, devices: tuple[Device, ...] | None) -> tuple[Device, ...] | None:
    """Add the clocks of the GPU inside of a Jetson, of which its library tells nothing; a card beside it has its own."""
    highest, allowed = jetson.clocks_mhz(host) if devices and jetson.is_jetson(host) else (None, None)
    if not devices or highest is None:
        return devices
    return tuple(
        msgspec.structs.replace(device, clocks=msgspec.structs.replace(device.clocks, sm_max_mhz=highest, allowed_max_mhz=allowed))
        if tegra.is_inside(device)
        else device
        for device in devices
    )


def _with_others(host: Host, devices: tuple[Device, ...] | None) -> tuple[Device, ...] | None:
    """Return the GPUs of NVIDIA, and behind them those of AMD and Intel; None where neither is known."""
    cards = drm.cards(host)
    if devices is None or cards is None:
        return devices or None
    if not cards:
        return devices
    from sysperf.collect.gpu import amd, intel  # noqa: PLC0415 - what only machines with such GPUs pay

    hours = _uptime_hours(host)
    found = [*devices, *amd.devices(host, cards, len(devices), hours)]
    return (*found, *intel.devices(host, cards, len(found), hours))[:MAX_GPUS]


def _graphics_targets(host: Host) -> tuple[str, ...] | None:
    there = host.exists(KFD)
    if not there:
        return None if there is None else ()
    from sysperf.collect.gpu import amd  # noqa: PLC0415 - as above

    return amd.graphics_targets(host)


def _graphics_memory(host: Host, targets: tuple[str, ...] | None) -> int | None:
    if not targets:
        return None
    from sysperf.collect.gpu import amd  # noqa: PLC0415 - as above

    return amd.graphics_memory(host, drm.cards(host) or [])


def _kfd_gpus(host: Host) -> int | None:
    """Count what AMD's driver for computing lists: nothing where it is not loaded."""
    there = host.exists(KFD)
    if not there:
        return None if there is None else 0
    from sysperf.collect.readers import kfd  # noqa: PLC0415 - as above

    return None if host.names(KFD) is None else len(kfd.nodes(host))


def _others(host: Host) -> tuple[str, ...] | None:
    return others(host.text(PCI_LIST)) if host.exists(PCI_LIST) else () if _no_bus(host) else None


def _no_bus(host: Host) -> bool:
    """Whether the kernel knows no PCI at all; a sandbox that hides it does not say so."""
    return host.exists("/sys/bus/pci") is False and host.exists("/sys/bus") is True


def _p2p_blocked(host: Host, count: int) -> tuple[str, ...] | None:
    """Pairs that chipset, topology or a driver setting keeps apart. A model without the feature is not blocked."""
    if count > MAX_P2P_GPUS:
        return None
    blocked, read = [], 0
    for first in range(count):
        for second in range(first + 1, count):
            state = host.nvml("DeviceGetP2PStatus", first, second, read)
            if state is None and host.sources[-1].error != NOT_SUPPORTED:
                return None
            name = P2P_STATES.get(state) if isinstance(state, int) else None
            if name in ("chipset", "topology", "disabled"):
                blocked.append(f"{first}-{second} ({name})")
    return tuple(blocked)


def _forbidden(host: Host) -> int | None:
    """NVML leaves out GPUs that a control group keeps from us: the kernel then refuses their device nodes."""
    names = host.names("/dev")
    if names is None:
        return None
    nodes = [f"/dev/{name}" for name in names if _NODE.fullmatch(name)][:MAX_GPUS]
    answers = [_may_open(host, node) for node in nodes]
    return None if None in answers else answers.count(False)


def _may_open(host: Host, node: str) -> bool | None:
    answer: bool | None = host.call(f"access:{node}", lambda: os.access(node, os.R_OK | os.W_OK), bool)
    return answer


def _confidential(host: Host) -> bool | None:
    state = host.nvml("SystemGetConfComputeState")
    if state is None:
        return False if host.sources[-1].error == NOT_SUPPORTED else None
    feature = key(state, "ccFeature")
    return None if feature is None else feature != 0


def _ready(host: Host) -> bool | None:
    """Protected GPUs take work only after somebody has attested them and said so."""
    state = number(host.nvml("SystemGetConfComputeGpusReadyState"))
    return None if state is None else state == 1


def nvidia_functions(host: Host) -> tuple[Function, ...] | None:
    """NVIDIA's display and 3D functions, without the virtual ones that a host has for its guests.

    The list in /proc spares most machines a look at every device.
    """
    listed = host.text(PCI_LIST) if host.exists(PCI_LIST) else None
    places = None if listed is None else {_place(line) for line in listed.splitlines() if "\t10de" in line}
    if places is not None and not places:
        return ()
    names = host.names(PCI, 8192)
    if names is None:
        return () if _no_bus(host) else None
    near = {name: _is_gpu(host, name) for name in names if places is None or name[-7:] in places}
    near = {name: is_gpu for name, is_gpu in near.items() if not (is_gpu and host.exists(f"{PCI}/{name}/physfn"))}
    if None in near.values():
        return None
    return tuple(Function(name, _bound_driver(host, name), _module(host, name)) for name, is_gpu in near.items() if is_gpu)


def _module(host: Host, name: str) -> str | None:
    """Which kernel module runs a chip. NVIDIA numbers chips in the order of their generations: Turing from 1e00, Blackwell from 2900."""
    number = hex_id(host.word(f"{PCI}/{name}/device") or "", 4)
    return None if number is None else "proprietary" if number < "1e00" else "open" if number >= "2900" else "either"


def _place(line: str) -> str:
    """``6500	10de2330 …`` is bus 65, device 00, function 0."""
    try:
        number = int(line[:4], 16)
    except ValueError:
        return ""
    return f"{number >> 8:02x}:{number >> 3 & 31:02x}.{number & 7}"


def _is_gpu(host: Host, name: str) -> bool | None:
    """Whether a function is a GPU of NVIDIA's; None for a display or 3D controller whose vendor is not known."""
    vendor = host.word(f"{PCI}/{name}/vendor")
    if vendor not in (None, "0x10de"):
        return False
    class_id = host.word(f"{PCI}/{name}/class")
    is_display = None if class_id is None else class_id.startswith("0x03")
    return None if vendor is None and is_display else is_display


def _bound_driver(host: Host, name: str) -> str | None:
    path = f"{PCI}/{name}/driver"
    target = host.link(path)
    if target is None:
        return "" if host.exists(path) is False else None
    return neutral(target.rpartition("/")[2], 40)


def _from_pci(host: Host, index: int, bus_id: str) -> Device:
    """A GPU that NVML does not tell about: its place, its link, and its name where the driver's files have it."""
    path = f"{PCI}/{bus_id}"
    node = host.number(f"{path}/numa_node")
    information = f"/proc/driver/nvidia/gpus/{bus_id}/information"
    fields = (host.pairs(information) or {}) if host.exists(information) else {}
    name, uuid = (neutral(fields.get(word, ""), 120) or None for word in ("Model", "GPU UUID"))
    return Device(
        index=index,
        bus_id=bus_id,
        name=name,
        uuid=None if uuid is None or "?" in uuid else uuid,  # GPU-????????-… until a program has opened it
        mobile=is_mobile(name),
        numa_node=node if node is not None and 0 <= node <= MAX_CPU else None,
        locality_known=None if node is None else node >= 0,
        local_cpus=host.cpus(f"{path}/local_cpulist"),
        pcie=link_of_files(host, bus_id),
    )


def _uptime_hours(host: Host) -> float | None:
    try:
        return float((host.word("/proc/uptime") or "").split()[0]) / 3600
    except (ValueError, IndexError):
        return None
