"""What a GPU is joined by: PCI Express, NVLink with its fabric, xGMI.

Reads   NVML (libnvidia-ml.so.1)  /sys/bus/pci/devices  /sys/class/kfd
NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.gpu.places import CARD, KFD, PCI, of_drivers, of_nvml
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

    width_lanes: Annotated[int | None, of_nvml("lanes in use", "DeviceGetCurrPcieLinkWidth", f"{PCI}/*/current_link_width")] = None
    max_width_lanes: Annotated[int | None, of_nvml("lanes that the GPU has", "DeviceGetMaxPcieLinkWidth", f"{PCI}/*/max_link_width")] = None
    slot_width_lanes: Annotated[int | None, fact("lanes that the port above it has", f"{PCI}/*", "/sys/devices/*/max_link_width")] = None
    generation: Annotated[
        int | None, of_nvml("generation in use now", "DeviceGetCurrPcieLinkGeneration", f"{PCI}/*/current_link_speed")
    ] = None
    max_generation: Annotated[
        int | None, of_nvml("newest generation of GPU and system together", "DeviceGetMaxPcieLinkGeneration", f"{PCI}/*/max_link_speed")
    ] = None
    gpu_generation: Annotated[int | None, of_nvml("newest generation of the GPU", "DeviceGetGpuMaxPcieLinkGeneration")] = None
    slot_generation: Annotated[int | None, fact("newest generation of the port above it", f"{PCI}/*", "/sys/devices/*/max_link_speed")] = (
        None
    )
    downgraded: Annotated[
        bool | None,
        fact(
            "whether an Intel GPU took an older generation than it has, as its link was not stable", f"{PCI}/*/auto_link_downgrade_status"
        ),
    ] = None
    replays: Annotated[
        int | None, of_drivers("packets sent again since the driver was loaded", "DeviceGetPcieReplayCounter", f"{CARD}/pcie_replay_count")
    ] = None
    replays_per_hour: Annotated[
        float | None, of_drivers("the same, an hour of uptime", "DeviceGetPcieReplayCounter", "/proc/uptime", f"{CARD}/pcie_replay_count")
    ] = None


class NvLink(Record):
    """NVLink of a GPU."""

    links: Annotated[int | None, of_nvml("links that the GPU has; 0 without NVLink", "DeviceGetNvLinkState DeviceGetFieldValues")] = None
    active: Annotated[int | None, of_nvml("links that are up", "DeviceGetNvLinkState")] = None
    reduced: Annotated[
        bool | None, of_nvml("whether somebody made its links slower to save power", "SystemGetNvlinkBwMode DeviceGetNvlinkBwMode")
    ] = None
    switch_links: Annotated[int | None, of_nvml("links that lead to an NVSwitch", "DeviceGetFieldValues")] = None
    crc_errors: Annotated[int | None, of_nvml("checksum errors since the driver was loaded", "DeviceGetFieldValues")] = None
    replays: Annotated[int | None, of_nvml("packets sent again since the driver was loaded", "DeviceGetFieldValues")] = None
    recoveries: Annotated[int | None, of_nvml("links trained again since the driver was loaded", "DeviceGetFieldValues")] = None
    effective_errors: Annotated[int | None, of_nvml("errors that error correction could not undo (NVLink 5)", "DeviceGetFieldValues")] = (
        None
    )
    fabric_faults: Annotated[
        tuple[str, ...] | None, of_nvml("what is wrong with its place in the NVSwitch fabric", "DeviceGetGpuFabricInfoV")
    ] = None
    c2c_links: Annotated[int | None, of_nvml("links to a Grace CPU", "DeviceGetFieldValues")] = None
    c2c_active: Annotated[int | None, of_nvml("links to a Grace CPU that are up", "DeviceGetFieldValues")] = None
    fabric: Annotated[
        str | None, of_nvml(f"joining the NVSwitch fabric: {', '.join(FABRIC_STATES.values())}", "DeviceGetGpuFabricInfoV")
    ] = None


class Xgmi(Record):
    """Links of an AMD GPU to those that it is joined with."""

    peers: Annotated[int | None, fact("GPUs of its hive, which should reach each other over xGMI", KFD)] = None
    over_pcie: Annotated[int | None, fact("those of them that it reaches over PCIe only", KFD)] = None
    readable: Annotated[int | None, fact("GPUs outside of its hive whose memory the kernel lets it read over PCIe", KFD)] = None
