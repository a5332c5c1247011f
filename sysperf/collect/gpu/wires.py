"""What a GPU is joined by: PCI Express, NVLink with its fabric, xGMI.

Reads   NVML (libnvidia-ml.so.1)  /sys/bus/pci/devices  /sys/class/kfd
NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.driver import NVML
from sysperf.collect.gpu.places import CARD, KFD, PCI, STATUS
from sysperf.model.record import Record, fact

FABRIC_STATES = {0: "not-supported", 1: "not-started", 2: "in-progress", 3: "completed"}
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
