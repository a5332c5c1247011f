"""Folders and files in which drivers of GPUs show what they know, and facts that are read from there."""

from __future__ import annotations

import msgspec

from sysperf.collect.driver import NVML
from sysperf.model.record import fact

PCI = "/sys/bus/pci/devices"
INFORMATION = "/proc/driver/nvidia/gpus/*/information"
DRM = "/sys/class/drm"
KFD = "/sys/class/kfd"
KFD_PROCESSES = f"{KFD}/kfd/proc/*"
CARD = f"{DRM}/card*/device"
SENSORS = f"{CARD}/hwmon"
STATUS = f"{CARD}/power/runtime_status"
FREQ = f"{CARD}/tile0/gt0/freq0"
OLDER_FREQ = f"{DRM}/card*/gt/gt0"
RAS = f"{CARD}/ras"
MODULES = "/sys/module"


def of_nvml(doc: str, calls: str, *files: str) -> msgspec.Meta:
    """Document a field for what NVML says, or these files; where NVML does not answer at all, that is why it is unknown."""
    return fact(doc, *(f"nvml:{call}" for call in calls.split()), *files, NVML)


def of_drivers(doc: str, calls: str, *files: str) -> msgspec.Meta:
    """Document a field for what NVML says, or other drivers in these files, of a GPU that does not sleep."""
    return of_nvml(doc, calls, *files, STATUS)
