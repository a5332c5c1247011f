"""One NVIDIA GPU, asked through NVML.

Reads   NVML (libnvidia-ml.so.1)  /sys/bus/pci/devices/*/{numa_node,local_cpulist}  max_link_* of the port above it
NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
Kernel  https://docs.kernel.org/PCI/sysfs-pci.html

A GPU that lacks a feature answers "Not Supported". That is knowledge: no ECC, no MIG, no NVLink. Every other failure
leaves the fact unknown, with the reason.
"""

from typing import Annotated, Any

from sysperf.collect.driver import NVML
from sysperf.host import Host
from sysperf.model.cpuset import LARGEST, CpuSet
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.procfs import pci
from sysperf.startup import lazy

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
RETIRE_PAGES = ("kepler", "maxwell", "pascal", "volta", "turing")
BRANDS = {
    1: "quadro", 2: "tesla", 3: "nvs", 4: "grid", 5: "geforce", 6: "titan", 7: "vapps", 8: "vpc", 9: "vcs", 10: "vws",
    11: "cloud-gaming", 12: "quadro-rtx", 13: "nvidia-rtx", 14: "nvidia", 15: "geforce-rtx", 16: "titan-rtx",
}  # fmt: skip
COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}
ADDRESSING = {0: "none", 1: "hmm", 2: "ats"}
FABRIC_STATES = {0: "not-supported", 1: "not-started", 2: "in-progress", 3: "completed"}

# NVML_FI_DEV_*: NVLink count, CRC errors (flits, data), replays, recoveries; memory temperature; links to an NVSwitch
FIELDS = (91, 38, 45, 52, 59, 82, 147)

_MOBILE = lazy(r"Laptop|Max-Q|Mobile|\bMX[0-9]{3}\b")
_SLOWEST = 15  # performance states; 32 says that it is unknown


class Process(Record):
    """One process that holds memory of a GPU."""

    pid: Annotated[int, fact("its number, in the PID namespace of this audit", "nvml:DeviceGetComputeRunningProcesses_v3", NVML)]
    used_bytes: Annotated[int | None, fact("GPU memory it holds", "nvml:DeviceGetComputeRunningProcesses_v3", NVML)] = None
    kind: Annotated[str, fact("compute, graphics or mps", "nvml:DeviceGetComputeRunningProcesses_v3", NVML)] = "compute"


class Clocks(Record):
    """Clocks of a GPU."""

    sm_mhz: Annotated[int | None, fact("clock of the streaming multiprocessors now", "nvml:DeviceGetClockInfo", NVML)] = None
    sm_max_mhz: Annotated[int | None, fact("highest clock of the streaming multiprocessors", "nvml:DeviceGetMaxClockInfo", NVML)] = None
    memory_mhz: Annotated[int | None, fact("clock of the memory now", "nvml:DeviceGetClockInfo", NVML)] = None
    memory_max_mhz: Annotated[int | None, fact("highest clock of the memory", "nvml:DeviceGetMaxClockInfo", NVML)] = None
    app_mhz: Annotated[int | None, fact("application clock that somebody set", "nvml:DeviceGetApplicationsClock", NVML)] = None
    app_default_mhz: Annotated[int | None, fact("application clock of the factory", "nvml:DeviceGetDefaultApplicationsClock", NVML)] = None
    events: Annotated[
        tuple[str, ...] | None,
        fact(
            f"why the clocks are not at their highest: {', '.join(CLOCK_EVENTS.values())}",
            "nvml:DeviceGetCurrentClocksEventReasons",
            "nvml:DeviceGetCurrentClocksThrottleReasons",
            NVML,
        ),
    ] = None


class Power(Record):
    """Power of a GPU."""

    usage_watts: Annotated[float | None, fact("drawn now", "nvml:DeviceGetPowerUsage", NVML)] = None
    limit_watts: Annotated[float | None, fact("limit that is set", "nvml:DeviceGetPowerManagementLimit", NVML)] = None
    default_limit_watts: Annotated[float | None, fact("limit of the factory", "nvml:DeviceGetPowerManagementDefaultLimit", NVML)] = None
    enforced_limit_watts: Annotated[float | None, fact("lowest of all limits that hold", "nvml:DeviceGetEnforcedPowerLimit", NVML)] = None


class Thermal(Record):
    """Temperatures of a GPU."""

    celsius: Annotated[int | None, fact("temperature of the GPU", "nvml:DeviceGetTemperature", NVML)] = None
    slowdown_celsius: Annotated[
        int | None, fact("temperature at which hardware slows it down", "nvml:DeviceGetTemperatureThreshold", NVML)
    ] = None
    margin_celsius: Annotated[int | None, fact("degrees left until it slows down", "nvml:DeviceGetMarginTemperature", NVML)] = None
    memory_celsius: Annotated[int | None, fact("temperature of the memory", "nvml:DeviceGetFieldValues", NVML)] = None
    fan_percent: Annotated[int | None, fact("speed of the fan; unknown without one", "nvml:DeviceGetFanSpeed", NVML)] = None


class Ecc(Record):
    """Errors of a GPU's memory, and what was done about them."""

    enabled: Annotated[bool | None, fact("whether error correction is on; false on a GPU without it", "nvml:DeviceGetEccMode", NVML)] = None
    supported: Annotated[bool | None, fact("whether the GPU has error correction", "nvml:DeviceGetEccMode", NVML)] = None
    corrected: Annotated[int | None, fact("corrected errors since the driver was loaded", "nvml:DeviceGetTotalEccErrors", NVML)] = None
    uncorrected: Annotated[int | None, fact("uncorrected errors since the driver was loaded", "nvml:DeviceGetTotalEccErrors", NVML)] = None
    uncorrected_ever: Annotated[int | None, fact("uncorrected errors in the GPU's life", "nvml:DeviceGetTotalEccErrors", NVML)] = None
    sram_threshold_exceeded: Annotated[
        bool | None, fact("whether SRAM errors passed the vendor's limit for replacement", "nvml:DeviceGetSramEccErrorStatus", NVML)
    ] = None
    remapped_rows: Annotated[int | None, fact("memory rows replaced by spare ones", "nvml:DeviceGetRemappedRows", NVML)] = None
    remap_pending: Annotated[
        bool | None,
        fact(
            "whether rows or pages wait for a reset to be replaced",
            "nvml:DeviceGetRemappedRows",
            "nvml:DeviceGetRetiredPagesPendingStatus",
            NVML,
        ),
    ] = None
    remap_failed: Annotated[bool | None, fact("whether a row could not be replaced", "nvml:DeviceGetRemappedRows", NVML)] = None


class Pcie(Record):
    """The PCI Express link of a GPU. An idle GPU lowers its generation, never its width."""

    width_lanes: Annotated[int | None, fact("lanes in use", "nvml:DeviceGetCurrPcieLinkWidth", f"{PCI}/*/current_link_width", NVML)] = None
    max_width_lanes: Annotated[
        int | None, fact("lanes that the GPU has", "nvml:DeviceGetMaxPcieLinkWidth", f"{PCI}/*/max_link_width", NVML)
    ] = None
    slot_width_lanes: Annotated[int | None, fact("lanes that the port above it has", f"{PCI}/*", "/sys/devices/*/max_link_width")] = None
    generation: Annotated[
        int | None, fact("generation in use now", "nvml:DeviceGetCurrPcieLinkGeneration", f"{PCI}/*/current_link_speed", NVML)
    ] = None
    max_generation: Annotated[
        int | None,
        fact("newest generation of GPU and system together", "nvml:DeviceGetMaxPcieLinkGeneration", f"{PCI}/*/max_link_speed", NVML),
    ] = None
    gpu_generation: Annotated[int | None, fact("newest generation of the GPU", "nvml:DeviceGetGpuMaxPcieLinkGeneration", NVML)] = None
    slot_generation: Annotated[int | None, fact("newest generation of the port above it", f"{PCI}/*", "/sys/devices/*/max_link_speed")] = (
        None
    )
    replays: Annotated[int | None, fact("packets sent again since the driver was loaded", "nvml:DeviceGetPcieReplayCounter", NVML)] = None
    replays_per_hour: Annotated[
        float | None, fact("the same, an hour of uptime", "nvml:DeviceGetPcieReplayCounter", "/proc/uptime", NVML)
    ] = None


class NvLink(Record):
    """NVLink of a GPU."""

    links: Annotated[
        int | None, fact("links that the GPU has; 0 without NVLink", "nvml:DeviceGetNvLinkState", "nvml:DeviceGetFieldValues", NVML)
    ] = None
    active: Annotated[int | None, fact("links that are up", "nvml:DeviceGetNvLinkState", NVML)] = None
    switch_links: Annotated[int | None, fact("links that lead to an NVSwitch", "nvml:DeviceGetFieldValues", NVML)] = None
    crc_errors: Annotated[int | None, fact("checksum errors since the driver was loaded", "nvml:DeviceGetFieldValues", NVML)] = None
    replays: Annotated[int | None, fact("packets sent again since the driver was loaded", "nvml:DeviceGetFieldValues", NVML)] = None
    recoveries: Annotated[int | None, fact("links trained again since the driver was loaded", "nvml:DeviceGetFieldValues", NVML)] = None
    fabric: Annotated[
        str | None, fact(f"joining the NVSwitch fabric: {', '.join(FABRIC_STATES.values())}", "nvml:DeviceGetGpuFabricInfoV", NVML)
    ] = None


class Device(Record):
    """One GPU."""

    index: Annotated[int, fact("NVML's number of the GPU; its rank by PCI address when NVML does not answer", "nvml:DeviceGetCount", NVML)]
    bus_id: Annotated[str | None, fact("PCI address as sysfs writes it, such as 0000:65:00.0", "nvml:DeviceGetPciInfo", PCI, NVML)] = None
    name: Annotated[str | None, fact("model", "nvml:DeviceGetName", INFORMATION, NVML)] = None
    uuid: Annotated[str | None, fact("NVIDIA's name of this very GPU", "nvml:DeviceGetUUID", INFORMATION, NVML)] = None
    minor: Annotated[int | None, fact("N of /dev/nvidiaN", "nvml:DeviceGetMinorNumber", NVML)] = None
    brand: Annotated[
        str | None, fact("product line: tesla, nvidia (data centre), nvidia-rtx, quadro-rtx, geforce, …", "nvml:DeviceGetBrand", NVML)
    ] = None
    architecture: Annotated[str | None, fact("ampere, ada, hopper, blackwell, …", "nvml:DeviceGetArchitecture", NVML)] = None
    compute_capability: Annotated[str | None, fact("compute capability, such as 9.0", "nvml:DeviceGetCudaComputeCapability", NVML)] = None
    vbios: Annotated[str | None, fact("version of its firmware", "nvml:DeviceGetVbiosVersion", NVML)] = None
    mobile: Annotated[bool | None, fact("whether the model is one for laptops", "nvml:DeviceGetName", INFORMATION, NVML)] = None
    lost: Annotated[
        bool | None, fact("whether the driver cannot reach it any more", "nvml:DeviceGetUUID", "nvml:DeviceGetUtilizationRates", NVML)
    ] = None
    memory_total_bytes: Annotated[
        int | None, fact("its memory; unknown where it shares the machine's", "nvml:DeviceGetMemoryInfo", NVML)
    ] = None
    memory_used_bytes: Annotated[int | None, fact("memory that processes hold", "nvml:DeviceGetMemoryInfo", NVML)] = None
    memory_reserved_bytes: Annotated[int | None, fact("memory that the driver holds", "nvml:DeviceGetMemoryInfo", NVML)] = None
    bar1_total_bytes: Annotated[int | None, fact("window through which others reach its memory", "nvml:DeviceGetBAR1MemoryInfo", NVML)] = (
        None
    )
    utilization_percent: Annotated[
        int | None, fact("share of the last sampling period in which any kernel ran", "nvml:DeviceGetUtilizationRates", NVML)
    ] = None
    memory_utilization_percent: Annotated[
        int | None,
        fact("share of the last sampling period in which its memory was read or written", "nvml:DeviceGetUtilizationRates", NVML),
    ] = None
    performance_state: Annotated[int | None, fact("0 is fastest, 15 slowest", "nvml:DeviceGetPerformanceState", NVML)] = None
    persistence: Annotated[
        bool | None, fact("whether the driver keeps the idle GPU initialised", "nvml:DeviceGetPersistenceMode", NVML)
    ] = None
    compute_mode: Annotated[str | None, fact(f"who may use it: {', '.join(COMPUTE_MODES.values())}", "nvml:DeviceGetComputeMode", NVML)] = (
        None
    )
    mig_enabled: Annotated[bool | None, fact("whether it is partitioned into instances", "nvml:DeviceGetMigMode", NVML)] = None
    display_active: Annotated[bool | None, fact("whether a display is drawn on it", "nvml:DeviceGetDisplayActive", NVML)] = None
    virtualization: Annotated[
        str | None, fact(f"how a virtual machine has it: {', '.join(VIRTUALIZATION.values())}", "nvml:DeviceGetVirtualizationMode", NVML)
    ] = None
    addressing_mode: Annotated[
        str | None, fact("how it shares addresses with the CPU: none, hmm (software), ats (hardware)", "nvml:DeviceGetAddressingMode", NVML)
    ] = None
    gpm_supported: Annotated[
        bool | None, fact("whether it counts activity of its units (Hopper and newer)", "nvml:GpmQueryDeviceSupport", NVML)
    ] = None
    numa_node: Annotated[
        int | None,
        fact(
            "NUMA node it is attached to; unknown when the firmware does not say (-1)",
            f"{PCI}/*/numa_node",
            "nvml:DeviceGetMemoryAffinity",
            NVML,
        ),
    ] = None
    locality_known: Annotated[bool | None, fact("whether the firmware says which NUMA node is near", f"{PCI}/*/numa_node")] = None
    local_cpus: Annotated[CpuSet | None, fact("CPUs beside it", f"{PCI}/*/local_cpulist", "nvml:DeviceGetCpuAffinity", NVML)] = None
    clocks: Annotated[Clocks, fact("its clocks", "nvml:DeviceGetClockInfo", NVML)] = Clocks()
    power: Annotated[Power, fact("its power", "nvml:DeviceGetPowerUsage", NVML)] = Power()
    thermal: Annotated[Thermal, fact("its temperatures", "nvml:DeviceGetTemperature", NVML)] = Thermal()
    ecc: Annotated[Ecc, fact("errors of its memory", "nvml:DeviceGetEccMode", NVML)] = Ecc()
    pcie: Annotated[Pcie, fact("its PCI Express link", "nvml:DeviceGetCurrPcieLinkWidth", NVML)] = Pcie()
    nvlink: Annotated[NvLink, fact("its NVLink", "nvml:DeviceGetNvLinkState", NVML)] = NvLink()
    processes: Annotated[
        tuple[Process, ...] | None,
        fact(
            "processes that hold its memory", "nvml:DeviceGetComputeRunningProcesses_v3", "nvml:DeviceGetGraphicsRunningProcesses_v3", NVML
        ),
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
    """Everything NVML and sysfs tell about the GPU of this number; `hours` is how long the machine is up."""
    gpu = _Asked(host, index)
    bus_id = bus_id_in(gpu.ask("DeviceGetPciInfo"))
    name, uuid = gpu.text("DeviceGetName"), gpu.text("DeviceGetUUID")
    architecture = gpu.one_of(ARCHITECTURES, "DeviceGetArchitecture")
    capability = gpu.numbers("DeviceGetCudaComputeCapability")
    memory = _memory(gpu)
    utilization = gpu.ask("DeviceGetUtilizationRates")
    state = gpu.number("DeviceGetPerformanceState")
    fields = gpu.ask("DeviceGetFieldValues", *FIELDS)
    mig = gpu.ask("DeviceGetMigMode", absent=[0, 0])
    node = host.number(f"{PCI}/{bus_id}/numa_node") if bus_id else None
    return Device(
        index=index,
        bus_id=bus_id,
        name=name,
        uuid=uuid,
        minor=gpu.number("DeviceGetMinorNumber"),
        brand=gpu.one_of(BRANDS, "DeviceGetBrand"),
        architecture=architecture,
        compute_capability=None if None in capability else f"{capability[0]}.{capability[1]}",
        vbios=gpu.text("DeviceGetVbiosVersion"),
        mobile=is_mobile(name),
        memory_total_bytes=key(memory, "total"),
        memory_used_bytes=key(memory, "used"),
        memory_reserved_bytes=key(memory, "reserved"),
        bar1_total_bytes=key(gpu.ask("DeviceGetBAR1MemoryInfo"), "bar1Total"),
        utilization_percent=_percent(key(utilization, "gpu")),
        memory_utilization_percent=_percent(key(utilization, "memory")),
        performance_state=state if state is not None and state <= _SLOWEST else None,
        persistence=gpu.truth("DeviceGetPersistenceMode"),
        compute_mode=gpu.one_of(COMPUTE_MODES, "DeviceGetComputeMode"),
        mig_enabled=bool(mig[0]) if isinstance(mig, list | tuple) and mig else None,
        display_active=gpu.truth("DeviceGetDisplayActive", absent=False),
        virtualization=gpu.one_of(VIRTUALIZATION, "DeviceGetVirtualizationMode", absent="none"),
        addressing_mode=gpu.one_of(ADDRESSING, "DeviceGetAddressingMode", absent="none"),
        gpm_supported=_truth(key(gpu.ask("GpmQueryDeviceSupport", absent={"isSupportedDevice": 0}), "isSupportedDevice")),
        numa_node=_numa_node(gpu, node),
        locality_known=None if node is None else node >= 0,
        local_cpus=_local_cpus(gpu, bus_id),
        clocks=_clocks(gpu),
        power=_power(gpu),
        thermal=_thermal(gpu, fields),
        ecc=_ecc(gpu, architecture),
        pcie=_pcie(gpu, bus_id, hours),
        nvlink=_nvlink(gpu, fields),
        processes=_processes(gpu),
        lost=True if gpu.lost else None if uuid is None else False,
    )


def is_mobile(name: str | None) -> bool | None:
    """Whether a model is one for laptops, whose links are narrow by design."""
    return None if name is None else bool(_MOBILE.search(name))


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


def _ecc(gpu: _Asked, architecture: str | None) -> Ecc:
    mode = gpu.ask("DeviceGetEccMode", absent=[])
    known = isinstance(mode, list | tuple)
    supported, enabled = (bool(mode), bool(mode and mode[0])) if known else (None, None)
    corrected, uncorrected, volatile, aggregate = 0, 1, 0, 1
    sram = gpu.ask("DeviceGetSramEccErrorStatus", absent={"bThresholdExceeded": 0}) if enabled else None
    rows, pending, failed = _repairs(gpu, supported, architecture)
    return Ecc(
        supported=supported,
        enabled=enabled,
        corrected=gpu.number("DeviceGetTotalEccErrors", corrected, volatile) if enabled else None,
        uncorrected=gpu.number("DeviceGetTotalEccErrors", uncorrected, volatile) if enabled else None,
        uncorrected_ever=gpu.number("DeviceGetTotalEccErrors", uncorrected, aggregate) if enabled else None,
        sram_threshold_exceeded=_truth(key(sram, "bThresholdExceeded")),
        remapped_rows=rows,
        remap_pending=pending,
        remap_failed=failed,
    )


def _repairs(gpu: _Asked, supported: bool | None, architecture: str | None) -> tuple[int | None, bool | None, bool | None]:
    """(memory rows replaced, a replacement waits for a reset, one failed).

    GPUs before Ampere retire pages instead of rows. A partitioned GPU and a virtual one do not tell: unknown, not none.
    """
    if supported is False:
        return 0, False, False
    if architecture in RETIRE_PAGES:
        return 0, gpu.truth("DeviceGetRetiredPagesPendingStatus"), False
    corrected, uncorrected, pending, failed = gpu.numbers("DeviceGetRemappedRows", count=4)
    replaced = None if corrected is None or uncorrected is None else corrected + uncorrected
    return replaced, _truth(pending), _truth(failed)


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
    if not pci.is_address(parent.rpartition("/")[2]):
        return None, None  # attached to the root complex itself, as in many virtual machines
    port = f"/sys/{parent.lstrip('./')}"
    return lanes(host, f"{port}/max_link_width"), generation(host, f"{port}/max_link_speed")


def lanes(host: Host, path: str) -> int | None:
    """Lanes of a link; unknown when it is down."""
    return pci.lanes(host.number(path))


def generation(host: Host, path: str) -> int | None:
    """``32.0 GT/s PCIe`` is generation 5."""
    return pci.generation(host.word(path))


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


def _numa_node(gpu: _Asked, firmware_node: int | None) -> int | None:
    """The node that sysfs tells, else NVML's answer when that is a single one."""
    if firmware_node is not None:
        return firmware_node if 0 <= firmware_node <= LARGEST else None
    nodes = _mask(gpu.ask("DeviceGetMemoryAffinity", 16, 0))
    return nodes.first() if nodes is not None and len(nodes) == 1 else None


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


def bus_id_in(info: Any) -> str | None:
    """The PCI address as sysfs writes it."""
    return pci.bus_id(str(info.get("busId", ""))) if isinstance(info, dict) else None


def _truth(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def _percent(value: int | None) -> int | None:
    return value if value in range(101) else None


def key(answer: Any, name: str, otherwise: Any = None) -> Any:
    """The number of this name in a dict of answers."""
    found = number(answer.get(name)) if isinstance(answer, dict) else None
    return otherwise if found is None else found
