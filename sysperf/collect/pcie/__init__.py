"""pcie: GPUs, accelerators, network cards and NVMe drives on PCI Express: where they sit and how wide their links are.

Reads   /sys/bus/pci/devices/*/{class,vendor,device,driver,numa_node,local_cpulist,local_cpus,physfn,config,iommu_group,aer_dev_*}
        /sys/bus/pci/devices/*/{current,max}_link_{width,speed}  /sys/bus/pci/devices/*/power/runtime_status
        /sys/kernel/iommu_groups/*/type  /sys/devices/system/node/node*/{cpulist,cpumap}
Kernel  https://docs.kernel.org/PCI/sysfs-pci.html
        https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci

A machine can have more than a thousand functions: of each only `class` is read, the rest of those that decide speed.
"""

from __future__ import annotations

from collections import Counter

from sysperf.collect.pcie.reader import VENDORS, Reader, hex_number
from sysperf.collect.pcie.records import PCI, Device, Pcie
from sysperf.collect.pcie.redirects import acs_redirects
from sysperf.collect.readers.unreadable import is_unreadable
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import Missing
from sysperf.procfs.pci import is_address

MAX_DETAILED = 256

KINDS = {"0300": "gpu", "0302": "gpu", "0380": "gpu", "0b40": "accelerator", "0200": "network", "0207": "network", "0108": "nvme"}
"""What a device class (the first four digits) is; 12xx, processing accelerators, come on top."""


def collect(host: Host) -> Pcie:
    """Read the devices that decide speed. Raises Missing where the bus cannot be listed."""
    addresses = _addresses(host)
    kinds = {address: _kind(host, address) for address in addresses}
    reader = Reader(host, addresses)
    devices: list[Device] = []
    virtual, complete = 0, None not in kinds.values()
    for address, kind in kinds.items():
        if kind and not kind[1]:
            continue
        if kind is None and not is_unreadable(host, f"{PCI}/{address}/class"):
            continue
        if host.exists(f"{PCI}/{address}/physfn"):
            virtual += 1
        elif len(devices) < MAX_DETAILED:
            devices.append(reader.device(address, kind[1] if kind else None))
        else:
            complete = False
    gpus = Counter(device.vendor_id for device in devices if device.kind == "gpu")
    counts = {name: None if None in gpus or not complete else gpus[vendor] for name, vendor in VENDORS.items()}
    return Pcie(
        devices=tuple(devices),
        functions=len(addresses),
        virtual_functions=virtual,
        nvidia_gpus=counts["nvidia"],
        amd_gpus=counts["amd"],
        intel_gpus=counts["intel"],
        nvswitches=_nvswitches(host, kinds) if complete else None,
        acs_redirects=acs_redirects(host, devices),
    )


def _nvswitches(host: Host, kinds: dict[str, tuple[str, str] | None]) -> int | None:
    """NVIDIA's bridges of no other kind."""
    bridges = [address for address, kind in kinds.items() if kind and kind[0].startswith("0680")]
    vendors = [hex_number(host, f"{PCI}/{address}/vendor", 4) for address in bridges]
    return None if None in vendors else vendors.count(VENDORS["nvidia"])


def locality(host: Host, address: str) -> tuple[int | None, CpuSet | None]:
    """The memory node and the CPUs beside a PCI device, for devices of other areas (disks, network interfaces)."""
    node, _, cpus = Reader(host).place(f"{PCI}/{address}")
    return node, cpus


def _addresses(host: Host) -> list[str]:
    names = host.names(PCI)
    if names is None:
        if host.exists("/sys/bus") and host.exists(PCI) is False:
            return []
        raise Missing(f"{PCI} cannot be listed: no /sys, or not captured")
    return [name for name in names if is_address(name)]


def _kind(host: Host, address: str) -> tuple[str, str] | None:
    """(class, kind); the kind is empty for what does not decide speed. None when the class is unknown."""
    class_id = hex_number(host, f"{PCI}/{address}/class", 6)
    if class_id is None:
        return None
    return class_id, "accelerator" if class_id.startswith("12") else KINDS.get(class_id[:4], "")
