"""The records of the area `pcie`."""

from __future__ import annotations

from typing import Annotated

from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record, fact

PCI = "/sys/bus/pci/devices"
EACH = f"{PCI}/*"
IOMMU_TYPES = "/sys/kernel/iommu_groups/*/type"


class Device(Record):
    """A device whose place and link decide speed."""

    address: Annotated[str, fact("domain:bus:device.function", PCI)]
    kind: Annotated[str | None, fact("gpu, accelerator, network or nvme; unknown where the class cannot be read", f"{EACH}/class")]
    vendor_id: Annotated[str | None, fact("vendor, four hexadecimal digits: 10de is NVIDIA", f"{EACH}/vendor")] = None
    device_id: Annotated[str | None, fact("model, four hexadecimal digits", f"{EACH}/device")] = None
    driver: Annotated[str | None, fact("kernel driver; empty when none is bound", f"{EACH}/driver")] = None
    integrated: Annotated[bool | None, fact("whether a GPU of AMD or Intel is part of a processor", PCI, f"{EACH}/vendor")] = None
    numa_node: Annotated[
        int | None, fact("memory node beside it; unknown when the firmware does not say (-1)", f"{EACH}/numa_node", f"{EACH}/local_cpus")
    ] = None
    locality_known: Annotated[bool | None, fact("whether the firmware says which node is near", f"{EACH}/numa_node")] = None
    local_cpus: Annotated[
        CpuSet | None,
        fact("online CPUs beside it; every CPU where the firmware does not say", f"{EACH}/local_cpulist", f"{EACH}/local_cpus"),
    ] = None
    suspended: Annotated[bool | None, fact("powered down while idle: its link cannot be read then", f"{EACH}/power/runtime_status")] = None
    link_width_lanes: Annotated[int | None, fact("lanes in use", f"{EACH}/current_link_width")] = None
    max_link_width_lanes: Annotated[int | None, fact("lanes the device has", f"{EACH}/max_link_width")] = None
    link_speed_gts: Annotated[float | None, fact("transfers in use, GT/s a lane; idle GPUs lower it", f"{EACH}/current_link_speed")] = None
    max_link_speed_gts: Annotated[float | None, fact("transfers the device can do, GT/s a lane", f"{EACH}/max_link_speed")] = None
    path: Annotated[tuple[str, ...] | None, fact("bridges above it, root port first", PCI, EACH)] = None
    port_max_link_width_lanes: Annotated[int | None, fact("lanes of the port (slot) it is in", f"{EACH}/max_link_width")] = None
    port_max_link_speed_gts: Annotated[float | None, fact("transfers its port can do, GT/s a lane", f"{EACH}/max_link_speed")] = None
    iommu: Annotated[
        str | None,
        fact("how the IOMMU maps it: DMA, DMA-FQ (translating) or identity; empty behind none", f"{EACH}/iommu_group", IOMMU_TYPES),
    ] = None
    aer_correctable: Annotated[int | None, fact("corrected link errors since boot (GPUs)", f"{EACH}/aer_dev_correctable")] = None
    bridges_aer_correctable: Annotated[int | None, fact("the same of the bridges above it", f"{EACH}/aer_dev_correctable")] = None
    aer_nonfatal: Annotated[int | None, fact("uncorrected link errors since boot (GPUs)", f"{EACH}/aer_dev_nonfatal")] = None
    aer_fatal: Annotated[int | None, fact("fatal link errors since boot (GPUs)", f"{EACH}/aer_dev_fatal")] = None


class Pcie(Record):
    """The PCI Express devices that decide speed, in the order of their addresses."""

    devices: Annotated[tuple[Device, ...], fact("GPUs, accelerators, network cards and NVMe drives", f"{EACH}/class")]
    functions: Annotated[int, fact("all functions of the bus", PCI)]
    virtual_functions: Annotated[int, fact("SR-IOV functions of the kinds above, which are not listed", f"{EACH}/physfn")] = 0
    nvidia_gpus: Annotated[int | None, fact("GPUs of NVIDIA: display and 3D controllers", f"{EACH}/class", f"{EACH}/vendor")] = None
    amd_gpus: Annotated[int | None, fact("GPUs of AMD, with those inside CPUs", f"{EACH}/class", f"{EACH}/vendor")] = None
    intel_gpus: Annotated[int | None, fact("GPUs of Intel, with those inside CPUs", f"{EACH}/class", f"{EACH}/vendor")] = None
    nvswitches: Annotated[
        int | None,
        fact("NVSwitches on the bus, which need the fabric manager; Blackwell's are not there", f"{EACH}/class", f"{EACH}/vendor"),
    ] = None
    acs_redirects: Annotated[
        tuple[str, ...] | None,
        fact("switch ports above GPUs that send traffic between peers up to the CPU (ACS redirect)", f"{EACH}/config"),
    ] = None
