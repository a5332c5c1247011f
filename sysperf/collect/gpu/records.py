"""The record of one GPU, whoever made it.

Reads   NVML (libnvidia-ml.so.1)  /sys/class/drm/card*/device  /sys/class/kfd
NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.driver import NVML
from sysperf.collect.gpu.places import (
    CARD,
    DRM,
    FREQ,
    INFORMATION,
    KFD,
    KFD_PROCESSES,
    MODULES,
    OLDER_FREQ,
    PCI,
    STATUS,
    of_drivers,
    of_nvml,
)
from sysperf.collect.gpu.state import Clocks, Ecc, Power, Thermal
from sysperf.collect.gpu.wires import NvLink, Pcie, Xgmi
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record, fact
from sysperf.startup import lazy

COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}
_MOBILE = lazy(r"Laptop|Max-Q|Mobile|\bMX[0-9]{3}\b")


class Process(Record):
    """One process that holds memory of a GPU."""

    pid: Annotated[int, of_nvml("its number, in the PID namespace of this audit", "DeviceGetComputeRunningProcesses_v3")]
    used_bytes: Annotated[int | None, of_nvml("GPU memory it holds", "DeviceGetComputeRunningProcesses_v3")] = None
    kind: Annotated[str, of_nvml("compute, graphics or mps", "DeviceGetComputeRunningProcesses_v3")] = "compute"


class Device(Record):
    """One GPU."""

    index: Annotated[int, of_nvml("NVML's number of the GPU; its rank by PCI address when NVML does not answer", "DeviceGetCount")]
    vendor: Annotated[str, fact("who made it: nvidia, amd or intel", DRM, "nvml:DeviceGetCount", PCI)] = "nvidia"
    card: Annotated[str | None, fact("name of a GPU of AMD or Intel in /sys/class/drm", DRM)] = None
    bus_id: Annotated[str | None, of_nvml("PCI address as sysfs writes it, such as 0000:65:00.0", "DeviceGetPciInfo", PCI)] = None
    name: Annotated[str | None, of_nvml("model", "DeviceGetName", INFORMATION)] = None
    uuid: Annotated[str | None, of_nvml("NVIDIA's name of this very GPU", "DeviceGetUUID", INFORMATION, f"{CARD}/unique_id")] = None
    minor: Annotated[int | None, of_nvml("N of /dev/nvidiaN", "DeviceGetMinorNumber")] = None
    brand: Annotated[
        str | None, of_nvml("product line: tesla, nvidia (data centre), nvidia-rtx, quadro-rtx, geforce, …", "DeviceGetBrand")
    ] = None
    architecture: Annotated[str | None, of_nvml("ampere, ada, hopper, blackwell, …", "DeviceGetArchitecture")] = None
    compute_capability: Annotated[str | None, of_nvml("compute capability, such as 9.0", "DeviceGetCudaComputeCapability")] = None
    target: Annotated[str | None, fact("compiler target of an AMD GPU, such as gfx942", KFD)] = None
    kfd_listed: Annotated[bool | None, fact("whether AMD's driver for computing lists it", KFD)] = None
    compute_units: Annotated[int | None, fact("compute units of an AMD GPU", KFD)] = None
    performance_level: Annotated[
        str | None,
        fact("who chooses the clocks of an AMD GPU: auto, low, high, manual, …", f"{CARD}/power_dpm_force_performance_level", STATUS),
    ] = None
    power_profiles: Annotated[
        tuple[str, ...] | None,
        of_drivers(
            "what its firmware is told to care for: power-saving, compute, max-q, …; nothing where it has no choice",
            "DeviceWorkloadPowerProfileGetCurrentProfiles",
            f"{CARD}/pp_power_profile_mode",
            f"{FREQ}/power_profile",
            f"{OLDER_FREQ}/slpc_power_profile",
        ),
    ] = None
    compute_partition: Annotated[
        str | None, fact("how an AMD GPU is divided: SPX is whole, … CPX", f"{CARD}/current_compute_partition")
    ] = None
    memory_partition: Annotated[
        str | None, fact("how the memory of an AMD GPU is divided: NPS1 is whole, … NPS4", f"{CARD}/current_memory_partition")
    ] = None
    compute_engines: Annotated[
        int | None,
        fact("engines among which an Intel GPU's compute units are shared out; 1 gives a program all", f"{CARD}/tile*/gt*/ccs_mode"),
    ] = None
    xgmi: Annotated[Xgmi, fact("its links to other AMD GPUs", KFD)] = Xgmi()
    vbios: Annotated[str | None, of_nvml("version of its firmware", "DeviceGetVbiosVersion", f"{CARD}/vbios_version")] = None
    queue_firmware: Annotated[
        str | None, fact("version of the firmware that schedules an AMD GPU's queues, such as 0x83", f"{CARD}/fw_version/mes_fw_version")
    ] = None
    mobile: Annotated[bool | None, of_nvml("whether the model is one for laptops", "DeviceGetName", INFORMATION)] = None
    lost: Annotated[bool | None, of_nvml("whether it does not answer the driver any more", "DeviceGetUUID DeviceGetUtilizationRates")] = (
        None
    )
    problem: Annotated[str | None, of_nvml("why it does not answer; '' when it does", "DeviceGetUUID DeviceGetUtilizationRates")] = None
    troubles: Annotated[
        tuple[str, ...] | None,
        of_nvml(
            "single questions that it answers with an error of its own, with the driver's words",
            "DeviceGetPowerUsage",
            f"{CARD}/gpu_busy_percent",
        ),
    ] = None
    inforom: Annotated[
        bool | None, of_nvml("whether the settings in its own memory are sound, asked under --deep", "DeviceValidateInforom")
    ] = None
    recovery_action: Annotated[
        str | None, of_nvml("what the driver asks for: none, reset, reboot, drain-p2p, drain-and-reset, …", "DeviceGetFieldValues")
    ] = None
    memory_total_bytes: Annotated[
        int | None,
        of_nvml(
            "its memory; unknown where it shares the machine's",
            "DeviceGetMemoryInfo",
            f"{CARD}/mem_info_vram_total",
            f"{CARD}/tile*/physical_vram_size_bytes",
        ),
    ] = None
    memory_shared_bytes: Annotated[
        int | None, fact("memory of the machine that the driver of an AMD GPU lets it use", f"{CARD}/mem_info_gtt_total")
    ] = None
    memory_shared_module: Annotated[
        str | None, fact("module that limits this memory: ttm, or amdttm of AMD's own packages", f"{MODULES}/amdttm", f"{MODULES}/ttm")
    ] = None
    memory_shared_limit_bytes: Annotated[
        int | None, fact("its limit in force, for all GPUs", f"{MODULES}/*/parameters/pages_limit", f"{MODULES}/amdttm", f"{MODULES}/ttm")
    ] = None
    memory_used_bytes: Annotated[
        int | None, of_nvml("memory that processes hold", "DeviceGetMemoryInfo", f"{CARD}/mem_info_vram_used", "run:xpu-smi-dump")
    ] = None
    memory_reserved_bytes: Annotated[int | None, of_nvml("memory that the driver holds", "DeviceGetMemoryInfo")] = None
    bar1_total_bytes: Annotated[
        int | None,
        of_nvml(
            "window through which others reach its memory", "DeviceGetBAR1MemoryInfo", f"{CARD}/mem_info_vis_vram_total", f"{CARD}/resource"
        ),
    ] = None
    utilization_percent: Annotated[
        int | None,
        of_drivers(
            "share of the last sampling period in which any kernel ran; of Intel's, in which it was awake",
            "DeviceGetUtilizationRates",
            f"{CARD}/gpu_busy_percent",
            f"{CARD}/tile*/gt*/gtidle/idle_residency_ms",
            "gpu:awake",
        ),
    ] = None
    memory_utilization_percent: Annotated[
        int | None,
        of_drivers(
            "share of the last sampling period in which its memory was read or written",
            "DeviceGetUtilizationRates",
            f"{CARD}/mem_busy_percent",
        ),
    ] = None
    performance_state: Annotated[int | None, of_nvml("0 is fastest, 15 slowest", "DeviceGetPerformanceState")] = None
    persistence: Annotated[bool | None, of_nvml("whether the driver keeps the idle GPU initialised", "DeviceGetPersistenceMode")] = None
    compute_mode: Annotated[str | None, of_nvml(f"who may use it: {', '.join(COMPUTE_MODES.values())}", "DeviceGetComputeMode")] = None
    mig_enabled: Annotated[bool | None, of_nvml("whether it is partitioned into instances", "DeviceGetMigMode")] = None
    mig_pending: Annotated[bool | None, of_nvml("whether it will be after its next reset", "DeviceGetMigMode")] = None
    mig_instances: Annotated[
        int | None, of_nvml("instances that programs can compute on; 0 where it is not partitioned", "DeviceGetMigDeviceHandleByIndex")
    ] = None
    mig_uuids: Annotated[tuple[str, ...] | None, of_nvml("names of these instances", "DeviceGetMigDeviceHandleByIndex")] = None
    display_active: Annotated[bool | None, of_nvml("whether a display is drawn on it", "DeviceGetDisplayActive")] = None
    virtualization: Annotated[
        str | None, of_nvml(f"how a virtual machine has it: {', '.join(VIRTUALIZATION.values())}", "DeviceGetVirtualizationMode")
    ] = None
    licensed: Annotated[bool | None, of_nvml("whether a virtual GPU holds its licence", "DeviceGetGridLicensableFeatures")] = None
    addressing_mode: Annotated[
        str | None, of_nvml("how it shares addresses with the CPU: none, hmm (software), ats (hardware)", "DeviceGetAddressingMode")
    ] = None
    gpm_supported: Annotated[
        bool | None, of_nvml("whether it counts activity of its units (Hopper and newer)", "GpmQueryDeviceSupport")
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
        int | None, of_nvml("NUMA node that its own memory is, on machines with Grace CPUs", "DeviceGetNumaNodeId")
    ] = None
    local_cpus: Annotated[CpuSet | None, fact("CPUs beside it", f"{PCI}/*/local_cpulist", "nvml:DeviceGetCpuAffinity", NVML)] = None
    clocks: Annotated[Clocks, of_nvml("its clocks", "DeviceGetClockInfo")] = Clocks()
    power: Annotated[Power, of_nvml("its power", "DeviceGetPowerUsage")] = Power()
    thermal: Annotated[Thermal, of_nvml("its temperatures", "DeviceGetTemperature")] = Thermal()
    ecc: Annotated[Ecc, of_nvml("errors of its memory", "DeviceGetEccMode")] = Ecc()
    pcie: Annotated[Pcie, of_nvml("its PCI Express link", "DeviceGetCurrPcieLinkWidth")] = Pcie()
    nvlink: Annotated[NvLink, of_nvml("its NVLink", "DeviceGetNvLinkState")] = NvLink()
    processes: Annotated[
        tuple[Process, ...] | None,
        of_nvml(
            "processes that hold its memory", "DeviceGetComputeRunningProcesses_v3 DeviceGetGraphicsRunningProcesses_v3", KFD_PROCESSES
        ),
    ] = None


def is_mobile(name: str | None) -> bool | None:
    """Whether a model is one for laptops, whose links are narrow by design."""
    return None if name is None else bool(_MOBILE.search(name))
