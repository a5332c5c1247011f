"""One NVIDIA GPU, asked through NVML.

Reads   NVML (libnvidia-ml.so.1)  /sys/bus/pci/devices/*/{numa_node,local_cpulist}  max_link_* of the port above it
NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
Kernel  https://docs.kernel.org/PCI/sysfs-pci.html

A GPU that lacks a feature answers "Not Supported". That is knowledge: no ECC, no MIG, no NVLink. Every other failure
leaves the fact unknown, with the reason.
"""

import re
from typing import Annotated, Any

from sysperf.host import Host
from sysperf.model.cpuset import LARGEST, CpuSet
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral

PCI = "/sys/bus/pci/devices"
INFORMATION = "/proc/driver/nvidia/gpus/*/information"

NOT_SUPPORTED = "Not Supported"
LOST = "GPU is lost"

MAX_PROCESSES = 4_096
MAX_LINKS = 64

CLOCK_EVENTS = {
    # nvmlClocksEventReason* of nvml.h
    0x1: "idle",
    0x2: "application-clocks",
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "hw-power-brake",
    0x100: "display",
}
ARCHITECTURES = {
    2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada", 9: "hopper", 10: "blackwell", 13: "rubin",
}  # fmt: skip
BRANDS = {
    1: "quadro", 2: "tesla", 3: "nvs", 4: "grid", 5: "geforce", 6: "titan", 7: "vapps", 8: "vpc", 9: "vcs", 10: "vws",
    11: "cloud-gaming", 12: "quadro-rtx", 13: "nvidia-rtx", 14: "nvidia", 15: "geforce-rtx", 16: "titan-rtx",
}  # fmt: skip
COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}
ADDRESSING = {0: "none", 1: "hmm", 2: "ats"}
FABRIC_STATES = {0: "not-supported", 1: "not-started", 2: "in-progress", 3: "completed"}
GENERATIONS = {"2.5": 1, "5": 2, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6, "128.0": 7}

# NVML_FI_DEV_*: NVLink count, CRC errors (flits, data), replays, recoveries; memory temperature; links to an NVSwitch
FIELDS = (91, 38, 45, 52, 59, 82, 147)

_BUS_ID = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])")
_MOBILE = re.compile(r"Laptop|Max-Q|Mobile|\bMX\d{3}\b")
_SLOWEST = 15


class Process(Record):
    """One process that holds memory of a GPU."""

    pid: Annotated[int, fact("its number, in the PID namespace of this audit", "nvml:DeviceGetComputeRunningProcesses_v3")]
    used_bytes: Annotated[int | None, fact("GPU memory it holds", "nvml:DeviceGetComputeRunningProcesses_v3")] = None
    kind: Annotated[str, fact("compute, graphics or mps", "nvml:DeviceGetComputeRunningProcesses_v3")] = "compute"


class Clocks(Record):
    """Clocks of a GPU."""

    sm_mhz: Annotated[int | None, fact("clock of the streaming multiprocessors now", "nvml:DeviceGetClockInfo")] = None
    sm_max_mhz: Annotated[int | None, fact("highest clock of the streaming multiprocessors", "nvml:DeviceGetMaxClockInfo")] = None
    memory_mhz: Annotated[int | None, fact("clock of the memory now", "nvml:DeviceGetClockInfo")] = None
    memory_max_mhz: Annotated[int | None, fact("highest clock of the memory", "nvml:DeviceGetMaxClockInfo")] = None
    app_mhz: Annotated[int | None, fact("application clock that somebody set", "nvml:DeviceGetApplicationsClock")] = None
    app_default_mhz: Annotated[int | None, fact("application clock of the factory", "nvml:DeviceGetDefaultApplicationsClock")] = None
    events: Annotated[
        tuple[str, ...] | None,
        fact(
            f"why the clocks are not at their highest: {', '.join(CLOCK_EVENTS.values())}",
            "nvml:DeviceGetCurrentClocksEventReasons",
            "nvml:DeviceGetCurrentClocksThrottleReasons",
        ),
    ] = None


class Power(Record):
    """Power of a GPU."""

    usage_watts: Annotated[float | None, fact("drawn now", "nvml:DeviceGetPowerUsage")] = None
    limit_watts: Annotated[float | None, fact("limit that is set", "nvml:DeviceGetPowerManagementLimit")] = None
    default_limit_watts: Annotated[float | None, fact("limit of the factory", "nvml:DeviceGetPowerManagementDefaultLimit")] = None
    enforced_limit_watts: Annotated[float | None, fact("lowest of all limits that hold", "nvml:DeviceGetEnforcedPowerLimit")] = None


class Thermal(Record):
    """Temperatures of a GPU."""

    celsius: Annotated[int | None, fact("temperature of the GPU", "nvml:DeviceGetTemperature")] = None
    slowdown_celsius: Annotated[int | None, fact("temperature at which hardware slows it down", "nvml:DeviceGetTemperatureThreshold")] = None
    margin_celsius: Annotated[int | None, fact("degrees left until it slows down", "nvml:DeviceGetMarginTemperature")] = None
    memory_celsius: Annotated[int | None, fact("temperature of the memory", "nvml:DeviceGetFieldValues")] = None
    fan_percent: Annotated[int | None, fact("speed of the fan; unknown without one", "nvml:DeviceGetFanSpeed")] = None


class Ecc(Record):
    """Errors of a GPU's memory, and what was done about them."""

    enabled: Annotated[bool | None, fact("whether error correction is on; false on a GPU without it", "nvml:DeviceGetEccMode")] = None
    supported: Annotated[bool | None, fact("whether the GPU has error correction", "nvml:DeviceGetEccMode")] = None
    corrected: Annotated[int | None, fact("corrected errors since the driver was loaded", "nvml:DeviceGetTotalEccErrors")] = None
    uncorrected: Annotated[int | None, fact("uncorrected errors since the driver was loaded", "nvml:DeviceGetTotalEccErrors")] = None
    uncorrected_ever: Annotated[int | None, fact("uncorrected errors in the GPU's life", "nvml:DeviceGetTotalEccErrors")] = None
    sram_threshold_exceeded: Annotated[
        bool | None, fact("whether SRAM errors passed the vendor's limit for replacement", "nvml:DeviceGetSramEccErrorStatus")
    ] = None
    remapped_rows: Annotated[int | None, fact("memory rows replaced by spare ones", "nvml:DeviceGetRemappedRows")] = None
    remap_pending: Annotated[
        bool | None,
        fact("whether rows or pages wait for a reset to be replaced", "nvml:DeviceGetRemappedRows", "nvml:DeviceGetRetiredPagesPendingStatus"),
    ] = None
    remap_failed: Annotated[bool | None, fact("whether a row could not be replaced", "nvml:DeviceGetRemappedRows")] = None


class Pcie(Record):
    """The PCI Express link of a GPU. An idle GPU lowers its generation, never its width."""

    width_lanes: Annotated[int | None, fact("lanes in use", "nvml:DeviceGetCurrPcieLinkWidth", f"{PCI}/*/current_link_width")] = None
    max_width_lanes: Annotated[int | None, fact("lanes that the GPU has", "nvml:DeviceGetMaxPcieLinkWidth", f"{PCI}/*/max_link_width")] = None
    slot_width_lanes: Annotated[int | None, fact("lanes that the port above it has", f"{PCI}/*", "/sys/devices/*/max_link_width")] = None
    generation: Annotated[
        int | None, fact("generation in use now", "nvml:DeviceGetCurrPcieLinkGeneration", f"{PCI}/*/current_link_speed")
    ] = None
    max_generation: Annotated[
        int | None, fact("newest generation of GPU and system together", "nvml:DeviceGetMaxPcieLinkGeneration", f"{PCI}/*/max_link_speed")
    ] = None
    gpu_generation: Annotated[int | None, fact("newest generation of the GPU", "nvml:DeviceGetGpuMaxPcieLinkGeneration")] = None
    slot_generation: Annotated[int | None, fact("newest generation of the port above it", f"{PCI}/*", "/sys/devices/*/max_link_speed")] = None
    replays: Annotated[int | None, fact("packets sent again since the driver was loaded", "nvml:DeviceGetPcieReplayCounter")] = None
    replays_per_hour: Annotated[float | None, fact("the same, an hour of uptime", "nvml:DeviceGetPcieReplayCounter", "/proc/uptime")] = None


class NvLink(Record):
    """NVLink of a GPU."""

    links: Annotated[int | None, fact("links that the GPU has; 0 without NVLink", "nvml:DeviceGetNvLinkState", "nvml:DeviceGetFieldValues")] = None
    active: Annotated[int | None, fact("links that are up", "nvml:DeviceGetNvLinkState")] = None
    switch_links: Annotated[int | None, fact("links that lead to an NVSwitch", "nvml:DeviceGetFieldValues")] = None
    crc_errors: Annotated[int | None, fact("checksum errors since the driver was loaded", "nvml:DeviceGetFieldValues")] = None
    replays: Annotated[int | None, fact("packets sent again since the driver was loaded", "nvml:DeviceGetFieldValues")] = None
    recoveries: Annotated[int | None, fact("links trained again since the driver was loaded", "nvml:DeviceGetFieldValues")] = None
    fabric: Annotated[
        str | None, fact(f"joining the NVSwitch fabric: {', '.join(FABRIC_STATES.values())}", "nvml:DeviceGetGpuFabricInfoV")
    ] = None


class Device(Record):
    """One GPU."""

    index: Annotated[int, fact("NVML's number of the GPU; its rank by PCI address when NVML does not answer", "nvml:DeviceGetCount")]
    bus_id: Annotated[str | None, fact("PCI address as sysfs writes it, such as 0000:65:00.0", "nvml:DeviceGetPciInfo", PCI)] = None
    name: Annotated[str | None, fact("model", "nvml:DeviceGetName", INFORMATION)] = None
    uuid: Annotated[str | None, fact("NVIDIA's name of this very GPU", "nvml:DeviceGetUUID", INFORMATION)] = None
    minor: Annotated[int | None, fact("N of /dev/nvidiaN", "nvml:DeviceGetMinorNumber")] = None
    brand: Annotated[str | None, fact("product line: tesla, nvidia (data centre), nvidia-rtx, quadro-rtx, geforce, …", "nvml:DeviceGetBrand")] = None
    architecture: Annotated[str | None, fact("ampere, ada, hopper, blackwell, …", "nvml:DeviceGetArchitecture")] = None
    compute_capability: Annotated[str | None, fact("compute capability, such as 9.0", "nvml:DeviceGetCudaComputeCapability")] = None
    vbios: Annotated[str | None, fact("version of its firmware", "nvml:DeviceGetVbiosVersion")] = None
    mobile: Annotated[bool | None, fact("whether the model is one for laptops", "nvml:DeviceGetName", INFORMATION)] = None
    lost: Annotated[bool | None, fact("whether the driver cannot reach it any more", "nvml:DeviceGetUUID", "nvml:DeviceGetUtilizationRates")] = None
    memory_total_bytes: Annotated[int | None, fact("its memory; unknown where it shares the machine's", "nvml:DeviceGetMemoryInfo")] = None
    memory_used_bytes: Annotated[int | None, fact("memory that processes hold", "nvml:DeviceGetMemoryInfo")] = None
    memory_reserved_bytes: Annotated[int | None, fact("memory that the driver holds", "nvml:DeviceGetMemoryInfo")] = None
    bar1_total_bytes: Annotated[int | None, fact("window through which others reach its memory", "nvml:DeviceGetBAR1MemoryInfo")] = None
    utilization_percent: Annotated[
        int | None, fact("share of the last sampling period in which any kernel ran", "nvml:DeviceGetUtilizationRates")
    ] = None
    memory_utilization_percent: Annotated[
        int | None, fact("share of the last sampling period in which its memory was read or written", "nvml:DeviceGetUtilizationRates")
    ] = None
    performance_state: Annotated[int | None, fact("0 is fastest, 15 slowest", "nvml:DeviceGetPerformanceState")] = None
    persistence: Annotated[bool | None, fact("whether the driver keeps the idle GPU initialised", "nvml:DeviceGetPersistenceMode")] = None
    compute_mode: Annotated[str | None, fact(f"who may use it: {', '.join(COMPUTE_MODES.values())}", "nvml:DeviceGetComputeMode")] = None
    mig_enabled: Annotated[bool | None, fact("whether it is partitioned into instances", "nvml:DeviceGetMigMode")] = None
    display_active: Annotated[bool | None, fact("whether a display is drawn on it", "nvml:DeviceGetDisplayActive")] = None
    virtualization: Annotated[
        str | None, fact(f"how a virtual machine has it: {', '.join(VIRTUALIZATION.values())}", "nvml:DeviceGetVirtualizationMode")
    ] = None
    addressing_mode: Annotated[
        str | None, fact("how it shares addresses with the CPU: none, hmm (software), ats (hardware)", "nvml:DeviceGetAddressingMode")
    ] = None
    gpm_supported: Annotated[bool | None, fact("whether it counts activity of its units (Hopper and newer)", "nvml:GpmQueryDeviceSupport")] = None
    numa_node: Annotated[
        int | None, fact("NUMA node it is attached to; -1 when the firmware does not say", f"{PCI}/*/numa_node", "nvml:DeviceGetMemoryAffinity")
    ] = None
    local_cpus: Annotated[CpuSet | None, fact("CPUs beside it", f"{PCI}/*/local_cpulist", "nvml:DeviceGetCpuAffinity")] = None
    clocks: Annotated[Clocks, fact("its clocks", "nvml:DeviceGetClockInfo")] = Clocks()
    power: Annotated[Power, fact("its power", "nvml:DeviceGetPowerUsage")] = Power()
    thermal: Annotated[Thermal, fact("its temperatures", "nvml:DeviceGetTemperature")] = Thermal()
    ecc: Annotated[Ecc, fact("errors of its memory", "nvml:DeviceGetEccMode")] = Ecc()
    pcie: Annotated[Pcie, fact("its PCI Express link", "nvml:DeviceGetCurrPcieLinkWidth")] = Pcie()
    nvlink: Annotated[NvLink, fact("its NVLink", "nvml:DeviceGetNvLinkState")] = NvLink()
    processes: Annotated[
        tuple[Process, ...] | None,
        fact("processes that hold its memory", "nvml:DeviceGetComputeRunningProcesses_v3", "nvml:DeviceGetGraphicsRunningProcesses_v3"),
    ] = None


class _Asked:
    """One GPU's answers. What it lacks answers `absent`; what could not be asked is None."""

    def __init__(self, host: Host, index: int) -> None:
        self.host = host
        self.index = index
        self.lost = False

    def ask(self, name: str, *args: int, absent: Any = None) -> Any:
        answer = self.host.nvml(name, self.index, *args)
        if answer is None:
            reason = self.host.sources[-1].error
            self.lost = self.lost or reason == LOST
            return absent if reason == NOT_SUPPORTED else None
        return answer

    def number(self, name: str, *args: int, absent: int | None = None) -> int | None:
        return number(self.ask(name, *args, absent=absent))

    def watts(self, name: str) -> float | None:
        milliwatts = self.number(name)
        return None if milliwatts is None else milliwatts / 1000

    def truth(self, name: str, *args: int, absent: bool | None = None) -> bool | None:
        answer = self.ask(name, *args, absent=absent)
        return bool(answer) if isinstance(answer, bool | int) else None

    def text(self, name: str) -> str | None:
        answer = self.ask(name)
        return neutral(answer, 120) if isinstance(answer, str) and answer else None

    def one_of(self, names: dict[int, str], name: str, absent: str | None = None) -> str | None:
        answer = self.ask(name, absent=absent)
        return answer if answer is not None and answer == absent else names.get(answer) if isinstance(answer, int) else None

    def numbers(self, name: str, *args: int, count: int = 2) -> list[int | None]:
        """A list of `count` numbers, each unknown where it is none."""
        answer = self.ask(name, *args)
        found = [number(item) for item in answer[:count]] if isinstance(answer, list | tuple) else []
        return found + [None] * (count - len(found))


def one_gpu(host: Host, index: int, hours: float | None) -> Device:
    gpu = _Asked(host, index)
    bus_id = _bus_id(gpu.ask("DeviceGetPciInfo"))
    name, uuid = gpu.text("DeviceGetName"), gpu.text("DeviceGetUUID")
    capability = gpu.numbers("DeviceGetCudaComputeCapability")
    memory = _memory(gpu)
    utilization = gpu.ask("DeviceGetUtilizationRates")
    state = gpu.number("DeviceGetPerformanceState")
    fields = gpu.ask("DeviceGetFieldValues", *FIELDS)
    mig = gpu.ask("DeviceGetMigMode", absent=[0, 0])
    return Device(
        index=index,
        bus_id=bus_id,
        name=name,
        uuid=uuid,
        minor=gpu.number("DeviceGetMinorNumber"),
        brand=gpu.one_of(BRANDS, "DeviceGetBrand"),
        architecture=gpu.one_of(ARCHITECTURES, "DeviceGetArchitecture"),
        compute_capability=None if None in capability else f"{capability[0]}.{capability[1]}",
        vbios=gpu.text("DeviceGetVbiosVersion"),
        mobile=None if name is None else bool(_MOBILE.search(name)),
        memory_total_bytes=key(memory, "total"),
        memory_used_bytes=key(memory, "used"),
        memory_reserved_bytes=key(memory, "reserved"),
        bar1_total_bytes=key(gpu.ask("DeviceGetBAR1MemoryInfo"), "bar1Total"),
        utilization_percent=_percent(key(utilization, "gpu")),
        memory_utilization_percent=_percent(key(utilization, "memory")),
        performance_state=state if state is not None and state < 16 else None,
        persistence=gpu.truth("DeviceGetPersistenceMode"),
        compute_mode=gpu.one_of(COMPUTE_MODES, "DeviceGetComputeMode"),
        mig_enabled=bool(mig[0]) if isinstance(mig, list | tuple) and mig else None,
        display_active=gpu.truth("DeviceGetDisplayActive", absent=False),
        virtualization=gpu.one_of(VIRTUALIZATION, "DeviceGetVirtualizationMode", absent="none"),
        addressing_mode=gpu.one_of(ADDRESSING, "DeviceGetAddressingMode", absent="none"),
        gpm_supported=_supported(gpu.ask("GpmQueryDeviceSupport", absent={"isSupportedDevice": 0})),
        numa_node=_numa_node(gpu, bus_id),
        local_cpus=_local_cpus(gpu, bus_id),
        clocks=_clocks(gpu),
        power=_power(gpu),
        thermal=_thermal(gpu, fields),
        ecc=_ecc(gpu),
        pcie=_pcie(gpu, bus_id, hours),
        nvlink=_nvlink(gpu, fields),
        processes=_processes(gpu),
        lost=True if gpu.lost else None if uuid is None else False,
    )


def _memory(gpu: _Asked) -> Any:
    """The second version of the call (driver 510) tells the driver's own memory from that of processes."""
    second = gpu.ask("DeviceGetMemoryInfo", 0x2000028)
    return gpu.ask("DeviceGetMemoryInfo") if second is None else second


def _clocks(gpu: _Asked) -> Clocks:
    graphics, sm, memory = 0, 1, 2
    reasons = gpu.number("DeviceGetCurrentClocksEventReasons")
    if reasons is None:  # its name before driver 535
        reasons = gpu.number("DeviceGetCurrentClocksThrottleReasons")
    return Clocks(
        sm_mhz=gpu.number("DeviceGetClockInfo", sm),
        sm_max_mhz=gpu.number("DeviceGetMaxClockInfo", sm),
        memory_mhz=gpu.number("DeviceGetClockInfo", memory),
        memory_max_mhz=gpu.number("DeviceGetMaxClockInfo", memory),
        app_mhz=gpu.number("DeviceGetApplicationsClock", graphics),
        app_default_mhz=gpu.number("DeviceGetDefaultApplicationsClock", graphics),
        events=None if reasons is None else tuple(name for bit, name in CLOCK_EVENTS.items() if reasons & bit),
    )


def _power(gpu: _Asked) -> Power:
    return Power(
        usage_watts=gpu.watts("DeviceGetPowerUsage"),
        limit_watts=gpu.watts("DeviceGetPowerManagementLimit"),
        default_limit_watts=gpu.watts("DeviceGetPowerManagementDefaultLimit"),
        enforced_limit_watts=gpu.watts("DeviceGetEnforcedPowerLimit"),
    )


def _thermal(gpu: _Asked, fields: Any) -> Thermal:
    sensor, slowdown = 0, 1
    return Thermal(
        celsius=gpu.number("DeviceGetTemperature", sensor),
        slowdown_celsius=gpu.number("DeviceGetTemperatureThreshold", slowdown),
        margin_celsius=gpu.number("DeviceGetMarginTemperature"),
        memory_celsius=key(fields, "82") or None,
        fan_percent=gpu.number("DeviceGetFanSpeed"),
    )


def _ecc(gpu: _Asked) -> Ecc:
    mode = gpu.ask("DeviceGetEccMode", absent=[])
    enabled = None if not isinstance(mode, list | tuple) else bool(mode and mode[0])
    corrected, uncorrected, volatile, aggregate = 0, 1, 0, 1
    sram = gpu.ask("DeviceGetSramEccErrorStatus", absent={"bThresholdExceeded": 0}) if enabled else None
    rows = gpu.ask("DeviceGetRemappedRows", absent=[])
    remap = _remap(gpu, rows if isinstance(rows, list | tuple) else None)
    return Ecc(
        supported=None if enabled is None else bool(mode),
        enabled=enabled,
        corrected=gpu.number("DeviceGetTotalEccErrors", corrected, volatile) if enabled else None,
        uncorrected=gpu.number("DeviceGetTotalEccErrors", uncorrected, volatile) if enabled else None,
        uncorrected_ever=gpu.number("DeviceGetTotalEccErrors", uncorrected, aggregate) if enabled else None,
        sram_threshold_exceeded=None if (exceeded := key(sram, "bThresholdExceeded")) is None else bool(exceeded),
        remapped_rows=remap[0],
        remap_pending=remap[1],
        remap_failed=remap[2],
    )


def _remap(gpu: _Asked, rows: Any) -> tuple[int | None, bool | None, bool | None]:
    """(rows replaced, a replacement waits for a reset, one failed). GPUs before Ampere retire pages instead."""
    if rows is None:
        return None, None, None
    if not rows:
        return 0, gpu.truth("DeviceGetRetiredPagesPendingStatus", absent=False), False
    corrected, uncorrected, pending, failed = [*(number(item) for item in rows[:4]), None, None, None, None][:4]
    replaced = None if corrected is None or uncorrected is None else corrected + uncorrected
    return replaced, None if pending is None else bool(pending), None if failed is None else bool(failed)


def _pcie(gpu: _Asked, bus_id: str | None, hours: float | None) -> Pcie:
    replays = gpu.number("DeviceGetPcieReplayCounter")
    slot_width, slot_generation = slot(gpu.host, bus_id)
    return Pcie(
        width_lanes=gpu.number("DeviceGetCurrPcieLinkWidth") or None,
        max_width_lanes=gpu.number("DeviceGetMaxPcieLinkWidth") or None,
        slot_width_lanes=slot_width,
        generation=gpu.number("DeviceGetCurrPcieLinkGeneration") or None,
        max_generation=gpu.number("DeviceGetMaxPcieLinkGeneration") or None,
        gpu_generation=gpu.number("DeviceGetGpuMaxPcieLinkGeneration") or None,
        slot_generation=slot_generation,
        replays=replays,
        replays_per_hour=None if replays is None or not hours else replays / hours,
    )


def slot(host: Host, bus_id: str | None) -> tuple[int | None, int | None]:
    """Lanes and generation of the port above a device."""
    target = host.link(f"{PCI}/{bus_id}") if bus_id else None
    parent = (target or "").rpartition("/")[0]
    if not _BUS_ID.fullmatch(parent.rpartition("/")[2]):
        return None, None  # attached to the root complex itself, as in many virtual machines
    port = f"/sys/{parent.lstrip('./')}"
    return lanes(host, f"{port}/max_link_width"), generation(host, f"{port}/max_link_speed")


def lanes(host: Host, path: str) -> int | None:
    lanes = host.number(path)
    return lanes if lanes is not None and 0 < lanes <= 32 else None  # 0 and 255 mean that the link is down


def generation(host: Host, path: str) -> int | None:
    """``32.0 GT/s PCIe`` is generation 5."""
    return GENERATIONS.get((host.word(path) or "").partition(" ")[0])


def _nvlink(gpu: _Asked, fields: Any) -> NvLink:
    states = _link_states(gpu, key(fields, "91"))
    crc = [key(fields, "38"), key(fields, "45")]
    info = gpu.ask("DeviceGetGpuFabricInfoV", absent={"state": 0})
    return NvLink(
        links=None if states is None else len(states),
        active=None if states is None else sum(states),
        switch_links=key(fields, "147"),
        crc_errors=sum(one or 0 for one in crc) if crc != [None, None] else None,
        replays=key(fields, "52"),
        recoveries=key(fields, "59"),
        fabric=FABRIC_STATES.get(key(info, "state", -1)),
    )


def _link_states(gpu: _Asked, links: int | None) -> list[bool] | None:
    """Whether each NVLink is up. Drivers that do not tell their number refuse the link after the last."""
    states: list[bool] = []
    for link in range(min(MAX_LINKS if links is None else links, MAX_LINKS)):
        state = gpu.ask("DeviceGetNvLinkState", link, absent=-1)
        if not isinstance(state, int):
            return states if states and links is None else None
        if state < 0:
            break
        states.append(bool(state))
    return states


def _processes(gpu: _Asked) -> tuple[Process, ...] | None:
    """Each process once; a compute process that is listed as graphics too counts as compute."""
    found: dict[int, Process] = {}
    for kind, name in (("compute", "Compute"), ("graphics", "Graphics"), ("mps", "MPSCompute")):
        listed = gpu.ask(f"DeviceGet{name}RunningProcesses_v3", absent=[])
        if not isinstance(listed, list | tuple):
            if kind == "compute":
                return None
            continue
        for one in listed[:MAX_PROCESSES]:
            pid = key(one, "pid")
            if pid:
                found.setdefault(pid, Process(pid, key(one, "usedGpuMemory"), kind))
    return tuple(found.values())


def _numa_node(gpu: _Asked, bus_id: str | None) -> int | None:
    node = gpu.host.number(f"{PCI}/{bus_id}/numa_node") if bus_id else None
    if node is None:
        nodes = _mask(gpu.ask("DeviceGetMemoryAffinity", 16, 0))
        return nodes.first() if nodes is not None and len(nodes) == 1 else None
    return node if -1 <= node <= LARGEST else None


def _local_cpus(gpu: _Asked, bus_id: str | None) -> CpuSet | None:
    cpus = gpu.host.cpus(f"{PCI}/{bus_id}/local_cpulist") if bus_id else None
    return _mask(gpu.ask("DeviceGetCpuAffinity", 64)) if cpus is None else cpus


def _mask(words: Any) -> CpuSet | None:
    """NVML's sets are lists of 64-bit words, lowest first."""
    if not isinstance(words, list | tuple):
        return None
    bits = 0
    for position, word in enumerate(words[: LARGEST // 64]):
        bits |= (word & (1 << 64) - 1 if isinstance(word, int) else 0) << 64 * position
    return CpuSet(bits=bits)


def _bus_id(info: Any) -> str | None:
    """NVML writes ``00000000:65:00.0`` where sysfs writes ``0000:65:00.0``."""
    found = _BUS_ID.fullmatch(str(info.get("busId", ""))) if isinstance(info, dict) else None
    return f"{int(found[1], 16):04x}:{found[2]}:{found[3]}.{found[4]}".lower() if found else None


def _supported(answer: Any) -> bool | None:
    supported = key(answer, "isSupportedDevice")
    return None if supported is None else bool(supported)


def number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def _percent(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= 100 else None


def key(answer: Any, name: str, otherwise: Any = None) -> Any:
    """A number in a dict of answers."""
    number = number(answer.get(name)) if isinstance(answer, dict) else None
    return otherwise if number is None else number
