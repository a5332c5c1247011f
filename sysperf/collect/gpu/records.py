"""Records of one GPU, whoever made it: its clocks, power, temperatures, errors and links.

Reads   NVML (libnvidia-ml.so.1)  /sys/class/drm/card*/device  /sys/class/kfd
NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.driver import NVML
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record, fact
from sysperf.startup import lazy

PCI = "/sys/bus/pci/devices"
INFORMATION = "/proc/driver/nvidia/gpus/*/information"
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
COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}
FABRIC_STATES = {0: "not-supported", 1: "not-started", 2: "in-progress", 3: "completed"}
DRM = "/sys/class/drm"
KFD = "/sys/class/kfd"
KFD_PROCESSES = f"{KFD}/kfd/proc/*"
CARD = f"{DRM}/card*/device"
SENSORS = f"{CARD}/hwmon"
STATUS = f"{CARD}/power/runtime_status"
FREQ = f"{CARD}/tile0/gt0/freq0"
OLDER_FREQ = f"{DRM}/card*/gt/gt0"
RAS = f"{CARD}/ras"
FABRIC_HEALTH = (
    # NVML_GPU_FABRIC_HEALTH_MASK_*: shift, width, and the values that are ill
    (0, 0x3, {1: "degraded bandwidth"}),
    (2, 0x3, {1: "a route is being recovered"}),
    (4, 0x3, {1: "unhealthy route"}),
    (6, 0x3, {1: "recovery of an access timeout"}),
    (8, 0xF, {
        2: "wrong system GUID", 3: "wrong chassis serial number", 4: "no partition", 5: "too few NVLinks", 6: "incompatible GPU firmware",
        7: "wrong place", 8: "invalid state of the GPU",
    }),
    (12, 0x3, {2: "no partition assigned"}),
    (14, 0x3, {2: "fabric manager disconnected"}),
)  # fmt: skip
_MOBILE = lazy(r"Laptop|Max-Q|Mobile|\bMX[0-9]{3}\b")


class Process(Record):
    """One process that holds memory of a GPU."""

    pid: Annotated[int, fact("its number, in the PID namespace of this audit", "nvml:DeviceGetComputeRunningProcesses_v3", NVML)]
    used_bytes: Annotated[int | None, fact("GPU memory it holds", "nvml:DeviceGetComputeRunningProcesses_v3", NVML)] = None
    kind: Annotated[str, fact("compute, graphics or mps", "nvml:DeviceGetComputeRunningProcesses_v3", NVML)] = "compute"


class Clocks(Record):
    """Clocks of a GPU."""

    sm_mhz: Annotated[
        int | None,
        fact(
            "clock of the streaming multiprocessors now",
            "nvml:DeviceGetClockInfo",
            f"{SENSORS}/*/freq1_input",
            f"{FREQ}/act_freq",
            f"{OLDER_FREQ}/rps_act_freq_mhz",
            SENSORS,
            STATUS,
            NVML,
        ),
    ] = None
    sm_max_mhz: Annotated[
        int | None,
        fact(
            "highest clock of the streaming multiprocessors",
            "nvml:DeviceGetMaxClockInfo",
            f"{CARD}/pp_dpm_sclk",
            f"{FREQ}/rp0_freq",
            f"{OLDER_FREQ}/rps_RP0_freq_mhz",
            STATUS,
            NVML,
        ),
    ] = None
    memory_mhz: Annotated[
        int | None, fact("clock of the memory now", "nvml:DeviceGetClockInfo", f"{SENSORS}/*/freq2_input", SENSORS, STATUS, NVML)
    ] = None
    memory_max_mhz: Annotated[
        int | None, fact("highest clock of the memory", "nvml:DeviceGetMaxClockInfo", f"{CARD}/pp_dpm_mclk", STATUS, NVML)
    ] = None
    app_mhz: Annotated[int | None, fact("application clock that somebody set", "nvml:DeviceGetApplicationsClock", NVML)] = None
    app_default_mhz: Annotated[int | None, fact("application clock of the factory", "nvml:DeviceGetDefaultApplicationsClock", NVML)] = None
    events: Annotated[
        tuple[str, ...] | None,
        fact(
            f"why the clocks are not at their highest: {', '.join(CLOCK_EVENTS.values())}",
            "nvml:DeviceGetCurrentClocksEventReasons",
            "nvml:DeviceGetCurrentClocksThrottleReasons",
            f"{CARD}/gpu_metrics",
            f"{FREQ}/throttle/*",
            f"{OLDER_FREQ}/throttle_reason_*",
            STATUS,
            NVML,
        ),
    ] = None
    allowed_max_mhz: Annotated[
        int | None, fact("highest clock that somebody allows (Intel)", f"{FREQ}/max_freq", f"{OLDER_FREQ}/rps_max_freq_mhz", STATUS)
    ] = None
    allowed_min_mhz: Annotated[
        int | None, fact("lowest clock that somebody allows (Intel)", f"{FREQ}/min_freq", f"{OLDER_FREQ}/rps_min_freq_mhz", STATUS)
    ] = None
    power_capped_s: Annotated[
        float | None, fact("seconds at its power limit since the driver was loaded", "nvml:DeviceGetFieldValues", NVML)
    ] = None
    sync_boost_s: Annotated[float | None, fact("the same, held by a sync-boost group", "nvml:DeviceGetFieldValues", NVML)] = None
    sw_thermal_s: Annotated[float | None, fact("the same, slowed by the driver because of heat", "nvml:DeviceGetFieldValues", NVML)] = None
    hw_thermal_s: Annotated[float | None, fact("the same, slowed by hardware because of heat", "nvml:DeviceGetFieldValues", NVML)] = None
    power_brake_s: Annotated[
        float | None, fact("the same, slowed by a brake of power supply or chassis", "nvml:DeviceGetFieldValues", NVML)
    ] = None


class Power(Record):
    """Power of a GPU."""

    usage_watts: Annotated[
        float | None,
        fact("drawn now", "nvml:DeviceGetPowerUsage", f"{SENSORS}/*/power1_average", f"{SENSORS}/*/power1_input", SENSORS, STATUS, NVML),
    ] = None
    limit_watts: Annotated[
        float | None,
        fact(
            "limit that is set",
            "nvml:DeviceGetPowerManagementLimit",
            f"{SENSORS}/*/power1_cap",
            f"{SENSORS}/*/power1_max",
            SENSORS,
            STATUS,
            NVML,
        ),
    ] = None
    default_limit_watts: Annotated[
        float | None,
        fact(
            "limit of the factory",
            "nvml:DeviceGetPowerManagementDefaultLimit",
            f"{SENSORS}/*/power1_cap_default",
            f"{SENSORS}/*/power1_rated_max",
            SENSORS,
            STATUS,
            NVML,
        ),
    ] = None
    enforced_limit_watts: Annotated[
        float | None,
        fact(
            "lowest of all limits that hold",
            "nvml:DeviceGetEnforcedPowerLimit",
            f"{SENSORS}/*/power1_cap",
            f"{SENSORS}/*/power1_max",
            SENSORS,
            STATUS,
            NVML,
        ),
    ] = None


class Thermal(Record):
    """Temperatures of a GPU."""

    celsius: Annotated[
        int | None, fact("temperature of the GPU", "nvml:DeviceGetTemperature", f"{SENSORS}/*/temp*_input", SENSORS, STATUS, NVML)
    ] = None
    slowdown_celsius: Annotated[
        int | None,
        fact(
            "temperature at which hardware slows it down",
            "nvml:DeviceGetTemperatureThreshold",
            f"{SENSORS}/*/temp*_crit",
            SENSORS,
            STATUS,
            NVML,
        ),
    ] = None
    margin_celsius: Annotated[
        int | None,
        fact("degrees left until it slows down", "nvml:DeviceGetMarginTemperature", f"{SENSORS}/*/temp*_crit", SENSORS, STATUS, NVML),
    ] = None
    memory_celsius: Annotated[
        int | None, fact("temperature of the memory", "nvml:DeviceGetFieldValues", f"{SENSORS}/*/temp*_input", SENSORS, STATUS, NVML)
    ] = None
    fan_percent: Annotated[int | None, fact("speed of the fan; unknown without one", "nvml:DeviceGetFanSpeed", NVML)] = None


class Ecc(Record):
    """Errors of a GPU's memory, and what was done about them."""

    enabled: Annotated[
        bool | None,
        fact("whether error correction is on; false on a GPU without it", "nvml:DeviceGetEccMode", f"{RAS}/*", RAS, STATUS, NVML),
    ] = None
    supported: Annotated[bool | None, fact("whether the GPU has error correction", "nvml:DeviceGetEccMode", NVML)] = None
    corrected: Annotated[
        int | None,
        fact(
            "corrected errors since the driver was loaded",
            "nvml:DeviceGetTotalEccErrors",
            f"{RAS}/*",
            "run:xpu-smi-dump",
            RAS,
            STATUS,
            NVML,
        ),
    ] = None
    uncorrected: Annotated[
        int | None,
        fact(
            "uncorrected errors since the driver was loaded",
            "nvml:DeviceGetTotalEccErrors",
            f"{RAS}/*",
            "run:xpu-smi-dump",
            RAS,
            STATUS,
            NVML,
        ),
    ] = None
    uncorrected_ever: Annotated[int | None, fact("uncorrected errors in the GPU's life", "nvml:DeviceGetTotalEccErrors", NVML)] = None
    sram_threshold_exceeded: Annotated[
        bool | None, fact("whether SRAM errors passed the vendor's limit for replacement", "nvml:DeviceGetSramEccErrorStatus", NVML)
    ] = None
    remapped_rows: Annotated[
        int | None, fact("memory rows replaced by spare ones", "nvml:DeviceGetRemappedRows", f"{RAS}/*", RAS, STATUS, NVML)
    ] = None
    remap_pending: Annotated[
        bool | None,
        fact(
            "whether rows or pages wait for a reset to be replaced",
            "nvml:DeviceGetRemappedRows",
            "nvml:DeviceGetRetiredPagesPendingStatus",
            f"{RAS}/*",
            RAS,
            STATUS,
            NVML,
        ),
    ] = None
    remap_failed: Annotated[
        bool | None, fact("whether a row could not be replaced", "nvml:DeviceGetRemappedRows", f"{RAS}/*", RAS, STATUS, NVML)
    ] = None
    banks_without_spares: Annotated[
        int | None, fact("memory banks that have no spare row left", "nvml:DeviceGetRowRemapperHistogram", NVML)
    ] = None
    banks_low_on_spares: Annotated[
        int | None, fact("memory banks that have few spare rows left", "nvml:DeviceGetRowRemapperHistogram", NVML)
    ] = None
    channel_repair_pending: Annotated[
        bool | None, fact("whether a memory channel waits for a reset to be repaired", "nvml:DeviceGetRepairStatus", NVML)
    ] = None
    tpc_repair_pending: Annotated[
        bool | None, fact("whether a group of multiprocessors waits for a reset to be repaired", "nvml:DeviceGetRepairStatus", NVML)
    ] = None


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
    replays: Annotated[
        int | None,
        fact(
            "packets sent again since the driver was loaded", "nvml:DeviceGetPcieReplayCounter", f"{CARD}/pcie_replay_count", STATUS, NVML
        ),
    ] = None
    replays_per_hour: Annotated[
        float | None,
        fact("the same, an hour of uptime", "nvml:DeviceGetPcieReplayCounter", "/proc/uptime", f"{CARD}/pcie_replay_count", STATUS, NVML),
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
    effective_errors: Annotated[
        int | None, fact("errors that error correction could not undo (NVLink 5)", "nvml:DeviceGetFieldValues", NVML)
    ] = None
    fabric_faults: Annotated[
        tuple[str, ...] | None, fact("what is wrong with its place in the NVSwitch fabric", "nvml:DeviceGetGpuFabricInfoV", NVML)
    ] = None
    c2c_links: Annotated[int | None, fact("links to a Grace CPU", "nvml:DeviceGetFieldValues", NVML)] = None
    c2c_active: Annotated[int | None, fact("links to a Grace CPU that are up", "nvml:DeviceGetFieldValues", NVML)] = None
    fabric: Annotated[
        str | None, fact(f"joining the NVSwitch fabric: {', '.join(FABRIC_STATES.values())}", "nvml:DeviceGetGpuFabricInfoV", NVML)
    ] = None


class Xgmi(Record):
    """Links of an AMD GPU to those that it is joined with."""

    peers: Annotated[int | None, fact("GPUs of its hive, which should reach each other over xGMI", KFD)] = None
    over_pcie: Annotated[int | None, fact("those of them that it reaches over PCIe only", KFD)] = None


class Device(Record):
    """One GPU."""

    index: Annotated[int, fact("NVML's number of the GPU; its rank by PCI address when NVML does not answer", "nvml:DeviceGetCount", NVML)]
    vendor: Annotated[str, fact("who made it: nvidia, amd or intel", DRM, "nvml:DeviceGetCount", PCI)] = "nvidia"
    card: Annotated[str | None, fact("name of a GPU of AMD or Intel in /sys/class/drm", DRM)] = None
    bus_id: Annotated[str | None, fact("PCI address as sysfs writes it, such as 0000:65:00.0", "nvml:DeviceGetPciInfo", PCI, NVML)] = None
    name: Annotated[str | None, fact("model", "nvml:DeviceGetName", INFORMATION, NVML)] = None
    uuid: Annotated[str | None, fact("NVIDIA's name of this very GPU", "nvml:DeviceGetUUID", INFORMATION, f"{CARD}/unique_id", NVML)] = None
    minor: Annotated[int | None, fact("N of /dev/nvidiaN", "nvml:DeviceGetMinorNumber", NVML)] = None
    brand: Annotated[
        str | None, fact("product line: tesla, nvidia (data centre), nvidia-rtx, quadro-rtx, geforce, …", "nvml:DeviceGetBrand", NVML)
    ] = None
    architecture: Annotated[str | None, fact("ampere, ada, hopper, blackwell, …", "nvml:DeviceGetArchitecture", NVML)] = None
    compute_capability: Annotated[str | None, fact("compute capability, such as 9.0", "nvml:DeviceGetCudaComputeCapability", NVML)] = None
    target: Annotated[str | None, fact("compiler target of an AMD GPU, such as gfx942", KFD)] = None
    kfd_listed: Annotated[bool | None, fact("whether AMD's driver for computing lists it", KFD)] = None
    compute_units: Annotated[int | None, fact("compute units of an AMD GPU", KFD)] = None
    performance_level: Annotated[
        str | None,
        fact("who chooses the clocks of an AMD GPU: auto, low, high, manual, …", f"{CARD}/power_dpm_force_performance_level", STATUS),
    ] = None
    compute_partition: Annotated[
        str | None, fact("how an AMD GPU is divided: SPX is whole, … CPX", f"{CARD}/current_compute_partition")
    ] = None
    memory_partition: Annotated[
        str | None, fact("how the memory of an AMD GPU is divided: NPS1 is whole, … NPS4", f"{CARD}/current_memory_partition")
    ] = None
    xgmi: Annotated[Xgmi, fact("its links to other AMD GPUs", KFD)] = Xgmi()
    vbios: Annotated[str | None, fact("version of its firmware", "nvml:DeviceGetVbiosVersion", f"{CARD}/vbios_version", NVML)] = None
    mobile: Annotated[bool | None, fact("whether the model is one for laptops", "nvml:DeviceGetName", INFORMATION, NVML)] = None
    lost: Annotated[
        bool | None, fact("whether it does not answer the driver any more", "nvml:DeviceGetUUID", "nvml:DeviceGetUtilizationRates", NVML)
    ] = None
    problem: Annotated[
        str | None, fact("why it does not answer; '' when it does", "nvml:DeviceGetUUID", "nvml:DeviceGetUtilizationRates", NVML)
    ] = None
    recovery_action: Annotated[
        str | None,
        fact("what the driver asks for: none, reset, reboot, drain-p2p, drain-and-reset, …", "nvml:DeviceGetFieldValues", NVML),
    ] = None
    memory_total_bytes: Annotated[
        int | None,
        fact(
            "its memory; unknown where it shares the machine's",
            "nvml:DeviceGetMemoryInfo",
            f"{CARD}/mem_info_vram_total",
            f"{CARD}/tile*/physical_vram_size_bytes",
            NVML,
        ),
    ] = None
    memory_used_bytes: Annotated[
        int | None,
        fact("memory that processes hold", "nvml:DeviceGetMemoryInfo", f"{CARD}/mem_info_vram_used", "run:xpu-smi-dump", NVML),
    ] = None
    memory_reserved_bytes: Annotated[int | None, fact("memory that the driver holds", "nvml:DeviceGetMemoryInfo", NVML)] = None
    bar1_total_bytes: Annotated[
        int | None, fact("window through which others reach its memory", "nvml:DeviceGetBAR1MemoryInfo", f"{CARD}/resource", NVML)
    ] = None
    utilization_percent: Annotated[
        int | None,
        fact(
            "share of the last sampling period in which any kernel ran; of Intel's, in which it was awake",
            "nvml:DeviceGetUtilizationRates",
            f"{CARD}/gpu_busy_percent",
            f"{CARD}/tile*/gt*/gtidle/idle_residency_ms",
            "gpu:awake",
            STATUS,
            NVML,
        ),
    ] = None
    memory_utilization_percent: Annotated[
        int | None,
        fact(
            "share of the last sampling period in which its memory was read or written",
            "nvml:DeviceGetUtilizationRates",
            f"{CARD}/mem_busy_percent",
            STATUS,
            NVML,
        ),
    ] = None
    performance_state: Annotated[int | None, fact("0 is fastest, 15 slowest", "nvml:DeviceGetPerformanceState", NVML)] = None
    persistence: Annotated[
        bool | None, fact("whether the driver keeps the idle GPU initialised", "nvml:DeviceGetPersistenceMode", NVML)
    ] = None
    compute_mode: Annotated[str | None, fact(f"who may use it: {', '.join(COMPUTE_MODES.values())}", "nvml:DeviceGetComputeMode", NVML)] = (
        None
    )
    mig_enabled: Annotated[bool | None, fact("whether it is partitioned into instances", "nvml:DeviceGetMigMode", NVML)] = None
    mig_instances: Annotated[
        int | None,
        fact("instances that programs can compute on; 0 where it is not partitioned", "nvml:DeviceGetMigDeviceHandleByIndex", NVML),
    ] = None
    display_active: Annotated[bool | None, fact("whether a display is drawn on it", "nvml:DeviceGetDisplayActive", NVML)] = None
    virtualization: Annotated[
        str | None, fact(f"how a virtual machine has it: {', '.join(VIRTUALIZATION.values())}", "nvml:DeviceGetVirtualizationMode", NVML)
    ] = None
    licensed: Annotated[bool | None, fact("whether a virtual GPU holds its licence", "nvml:DeviceGetGridLicensableFeatures", NVML)] = None
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
    memory_numa_node: Annotated[
        int | None, fact("NUMA node that its own memory is, on machines with Grace CPUs", "nvml:DeviceGetNumaNodeId", NVML)
    ] = None
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
            "processes that hold its memory",
            "nvml:DeviceGetComputeRunningProcesses_v3",
            "nvml:DeviceGetGraphicsRunningProcesses_v3",
            KFD_PROCESSES,
            NVML,
        ),
    ] = None


def is_mobile(name: str | None) -> bool | None:
    """Whether a model is one for laptops, whose links are narrow by design."""
    return None if name is None else bool(_MOBILE.search(name))
