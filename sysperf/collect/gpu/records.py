"""The record of one GPU, whoever made it.

Reads   NVML (libnvidia-ml.so.1)  /sys/class/drm/card*/device  /sys/class/kfd
NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.driver import NVML
from sysperf.collect.gpu.places import CARD, DRM, INFORMATION, KFD, KFD_PROCESSES, PCI, STATUS
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

    pid: Annotated[int, fact("its number, in the PID namespace of this audit", "nvml:DeviceGetComputeRunningProcesses_v3", NVML)]
    used_bytes: Annotated[int | None, fact("GPU memory it holds", "nvml:DeviceGetComputeRunningProcesses_v3", NVML)] = None
    kind: Annotated[str, fact("compute, graphics or mps", "nvml:DeviceGetComputeRunningProcesses_v3", NVML)] = "compute"


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
    troubles: Annotated[
        tuple[str, ...] | None,
        fact("single questions that it answers with an error of its own, with the driver's words", "nvml:DeviceGetPowerUsage", NVML),
    ] = None
    inforom: Annotated[
        bool | None, fact("whether the settings in its own memory are sound, asked under --deep", "nvml:DeviceValidateInforom", NVML)
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
        int | None,
        fact(
            "window through which others reach its memory",
            "nvml:DeviceGetBAR1MemoryInfo",
            f"{CARD}/mem_info_vis_vram_total",
            f"{CARD}/resource",
            NVML,
        ),
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
    mig_pending: Annotated[bool | None, fact("whether it will be after its next reset", "nvml:DeviceGetMigMode", NVML)] = None
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
