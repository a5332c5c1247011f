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
from collections.abc import Collection, Iterable
from typing import Annotated

from sysperf.collect.cpu import online_cpus
from sysperf.collect.numa import NODES
from sysperf.collect.readers.unreadable import is_unreadable
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import Missing
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.procfs.numbers import whole
from sysperf.procfs.pci import EXTENDED, hex_id, is_address, lanes, redirects_peers, speed_gts
from sysperf.startup import lazy

PCI = "/sys/bus/pci/devices"
EACH = f"{PCI}/*"
IOMMU_TYPES = "/sys/kernel/iommu_groups/*/type"
MAX_DETAILED = 256

KINDS = {"0300": "gpu", "0302": "gpu", "0380": "gpu", "0b40": "accelerator", "0200": "network", "0207": "network", "0108": "nvme"}
"""What a device class (the first four digits) is; 12xx, processing accelerators, come on top."""

_GROUP = lazy(r"/([0-9]{1,9})$")
_VENDORS = {"nvidia": "10de", "amd": "1002", "intel": "8086"}
INTEL_INTEGRATED = "0000:00:02.0"
PROCESSORS_OF_AMD = "1022"
"""What AMD's processors call their maker: their security processor and USB are in the slot of their GPU. AMD's GPUs say 1002."""


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


class Function(Record):
    """Any function of the bus, bridges included."""

    address: str
    class_id: str | None
    vendor_id: str | None
    device_id: str | None
    numa_node: int | None
    local_cpus: CpuSet | None


def collect(host: Host) -> Pcie:
    """Read the devices that decide speed. Raises Missing where the bus cannot be listed."""
    addresses = _addresses(host)
    kinds = {address: _kind(host, address) for address in addresses}
    reader = _Reader(host, addresses)
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
    counts = {name: None if None in gpus or not complete else gpus[vendor] for name, vendor in _VENDORS.items()}
    return Pcie(
        devices=tuple(devices),
        functions=len(addresses),
        virtual_functions=virtual,
        nvidia_gpus=counts["nvidia"],
        amd_gpus=counts["amd"],
        intel_gpus=counts["intel"],
        nvswitches=_nvswitches(host, kinds) if complete else None,
        acs_redirects=_acs_redirects(host, devices),
    )


def _nvswitches(host: Host, kinds: dict[str, tuple[str, str] | None]) -> int | None:
    """NVIDIA's bridges of no other kind."""
    bridges = [address for address, kind in kinds.items() if kind and kind[0].startswith("0680")]
    vendors = [_hex(host, f"{PCI}/{address}/vendor", 4) for address in bridges]
    return None if None in vendors else vendors.count(_VENDORS["nvidia"])


def functions(host: Host) -> tuple[Function, ...]:
    """Every function of the bus with its ids and its place: five files each, so for tests and for people."""
    reader = _Reader(host)
    return tuple(reader.function(address) for address in _addresses(host))


def locality(host: Host, address: str) -> tuple[int | None, CpuSet | None]:
    """The memory node and the CPUs beside a PCI device, for devices of other areas (disks, network interfaces)."""
    node, _, cpus = _Reader(host).place(f"{PCI}/{address}")
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
    class_id = _hex(host, f"{PCI}/{address}/class", 6)
    if class_id is None:
        return None
    return class_id, "accelerator" if class_id.startswith("12") else KINDS.get(class_id[:4], "")


def _hex(host: Host, path: str, digits: int) -> str | None:
    """A number such as ``0x10de`` as lower-case digits."""
    word = host.word(path)
    if word is None:
        return None
    number = hex_id(word, digits)
    if number is None:
        host.refuse(path, f"no number of {digits} hexadecimal digits")
    return number


class _Reader:
    """Reads devices; keeps what many of them share."""

    def __init__(self, host: Host, addresses: Collection[str] = ()) -> None:
        self._host = host
        self._addresses = addresses
        self._online = online_cpus(host)
        self._node_of: dict[CpuSet, int] | None = None
        self._iommu_types: dict[str, str | None] = {}
        self._ports: dict[str, tuple[int | None, float | None]] = {}

    def device(self, address: str, kind: str | None) -> Device:
        host, folder = self._host, f"{PCI}/{address}"
        node, known, cpus = self.place(folder)
        suspended = self._suspended(folder)
        vendor = _hex(host, f"{folder}/vendor", 4)
        if kind == "accelerator" and vendor == _VENDORS["amd"]:
            kind = "gpu"  # Instinct calls itself a processing accelerator
        path = self._path(address)
        port = self._port(path[-1]) if path and not suspended else (None, None)
        errors = kind in ("gpu", "accelerator")
        return Device(
            address=address,
            kind=kind,
            vendor_id=vendor,
            device_id=_hex(host, f"{folder}/device", 4),
            driver=_driver(host, folder),
            integrated=self._integrated(address, vendor) if kind == "gpu" else None,
            numa_node=node,
            locality_known=known,
            local_cpus=cpus,
            suspended=suspended,
            link_width_lanes=None if suspended else _width(host, f"{folder}/current_link_width"),
            max_link_width_lanes=None if suspended else _width(host, f"{folder}/max_link_width"),
            link_speed_gts=None if suspended else _speed(host, f"{folder}/current_link_speed"),
            max_link_speed_gts=None if suspended else _speed(host, f"{folder}/max_link_speed"),
            path=path,
            port_max_link_width_lanes=port[0],
            port_max_link_speed_gts=port[1],
            iommu=None if kind == "nvme" else self._iommu(folder),
            aer_correctable=_errors(host, folder, "correctable", "COR") if errors else None,
            bridges_aer_correctable=_sum_of_known(_errors(host, f"{PCI}/{bridge}", "correctable", "COR") for bridge in path or ())
            if errors
            else None,
            aer_nonfatal=_errors(host, folder, "nonfatal", "NONFATAL") if errors else None,
            aer_fatal=_errors(host, folder, "fatal", "FATAL") if errors else None,
        )

    def _integrated(self, address: str, vendor: str | None) -> bool | None:
        """Intel's GPU of a processor has a place of its own; AMD's shares its slot with functions of the processor's maker."""
        if vendor == _VENDORS["intel"]:
            return address == INTEL_INTEGRATED
        if vendor != _VENDORS["amd"]:
            return False if vendor else None
        slot = address.rpartition(".")[0]
        beside = [other for other in self._addresses if other.rpartition(".")[0] == slot and other != address]
        vendors = [_hex(self._host, f"{PCI}/{other}/vendor", 4) for other in beside]
        return True if PROCESSORS_OF_AMD in vendors else None if None in vendors else False

    def function(self, address: str) -> Function:
        host, folder = self._host, f"{PCI}/{address}"
        node, _, cpus = self.place(folder)
        class_id = _hex(host, f"{folder}/class", 6)
        return Function(address, class_id, _hex(host, f"{folder}/vendor", 4), _hex(host, f"{folder}/device", 4), node, cpus)

    def place(self, folder: str) -> tuple[int | None, bool | None, CpuSet | None]:
        """(node, whether the firmware says so, CPUs)."""
        cpus = self._local_cpus(folder)
        node = self._host.number(f"{folder}/numa_node")
        if node is None:
            node = None if is_unreadable(self._host, f"{folder}/numa_node") else self._same_cpus(cpus)
            return node, True if node is not None else None, cpus
        if node < 0:
            self._host.refuse(f"{folder}/numa_node", f"{node}: the firmware does not say")
            return None, False, cpus
        return node, True, cpus

    def _local_cpus(self, folder: str) -> CpuSet | None:
        cpus = self._host.cpus(f"{folder}/local_cpulist")
        if cpus is None:
            cpus = self._host.mask(f"{folder}/local_cpus")
        return cpus if cpus is None or self._online is None else cpus & self._online

    def _same_cpus(self, cpus: CpuSet | None) -> int | None:
        """The node that has exactly these CPUs: what older kernels, without numa_node, leave to the reader."""
        if not cpus:
            return None
        if self._node_of is None:
            self._node_of = self._nodes()
        return self._node_of.get(cpus)

    def _nodes(self) -> dict[CpuSet, int]:
        nodes: dict[CpuSet, int] = {}
        for path in self._host.glob(NODES):
            cpus = self._host.cpus(f"{path}/cpulist")
            if cpus is None:
                cpus = self._host.mask(f"{path}/cpumap")
            number = path.rpartition("node")[2]
            if cpus is not None and (node := whole(number)) is not None:
                nodes.setdefault(cpus if self._online is None else cpus & self._online, node)
        return nodes

    def _suspended(self, folder: str) -> bool | None:
        """Whether the device sleeps. Then reading its link would wake it (laptops, for seconds) or give nonsense."""
        status = self._host.word(f"{folder}/power/runtime_status")
        if status == "suspended":
            for name in ("current_link_width", "max_link_width", "current_link_speed", "max_link_speed"):
                self._host.refuse(f"{folder}/{name}", "not read: the device is powered down, and reading would wake it")
        return None if status is None else status == "suspended"

    def _path(self, address: str) -> tuple[str, ...] | None:
        target = self._host.link(f"{PCI}/{address}")
        if target is None:
            return None
        above = tuple(part for part in target.split("/") if is_address(part))
        return above[:-1] if above and above[-1] == address else None

    def _port(self, address: str) -> tuple[int | None, float | None]:
        if address not in self._ports:
            folder = f"{PCI}/{address}"
            self._ports[address] = (_width(self._host, f"{folder}/max_link_width"), _speed(self._host, f"{folder}/max_link_speed"))
        return self._ports[address]

    def _iommu(self, folder: str) -> str | None:
        target = self._host.link(f"{folder}/iommu_group")
        if target is None:
            return "" if self._host.exists(f"{folder}/iommu_group") is False else None
        group = _GROUP.search(target)
        if not group:
            self._host.refuse(f"{folder}/iommu_group", "leads to no numbered group")
            return None
        if group[1] not in self._iommu_types:
            kind = self._host.word(f"/sys/kernel/iommu_groups/{group[1]}/type")
            self._iommu_types[group[1]] = None if kind is None else neutral(kind, 40)
        return self._iommu_types[group[1]]


def _driver(host: Host, folder: str) -> str | None:
    target = host.link(f"{folder}/driver")
    if target is None:
        return "" if host.exists(f"{folder}/driver") is False else None
    return neutral(target.rpartition("/")[2], 60)


def _width(host: Host, path: str) -> int | None:
    number = host.number(path)
    width = lanes(number)
    if number is not None and width is None:
        host.refuse(path, f"{number}: no link, or its width is unknown")  # virtual machines show 0, sleeping devices 63
    return width


def _speed(host: Host, path: str) -> float | None:
    word = host.word(path)
    speed = speed_gts(word)
    if word is not None and speed is None:
        host.refuse(path, f"{word[:20]!r}: no link, or its speed is unknown")
    return speed


def _errors(host: Host, folder: str, name: str, total: str) -> int | None:
    """The last line of an AER file: ``TOTAL_ERR_COR 0``."""
    return whole((host.pairs(f"{folder}/aer_dev_{name}", " ") or {}).get(f"TOTAL_ERR_{total}"))


def _sum_of_known(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _acs_redirects(host: Host, devices: list[Device]) -> tuple[str, ...] | None:
    """The switch ports that redirect traffic between a GPU and another device below the same switch.

    Only such pairs lose by it: traffic between root ports passes the CPU anyway.
    """
    ports = _switch_ports(devices)
    if ports is None:
        return None
    redirecting = [(port, _redirects(host, f"{PCI}/{port}/config")) for port in ports]
    if any(answer is None for _, answer in redirecting):
        return None
    return tuple(port for port, answer in redirecting if answer)


def _switch_ports(devices: list[Device]) -> list[str] | None:
    below: dict[str, list[Device]] = {}
    for device in devices:
        if device.path is None:
            return None
        if len(device.path) > 2:
            below.setdefault(device.path[1], []).append(device)
    ports: dict[str, None] = {}
    for peers in below.values():
        if len({peer.address.rpartition(".")[0] for peer in peers}) > 1 and any(peer.kind in ("gpu", "accelerator") for peer in peers):
            ports.update((port, None) for peer in peers for port in (peer.path or ())[2:])
    return list(ports)


def _redirects(host: Host, path: str) -> bool | None:
    """Whether a port's Access Control Services redirect traffic between peers; None when that may not be read."""
    config = host.data(path)
    if config is None:
        return None
    if len(config) <= EXTENDED:
        host.refuse(path, "Permission denied: only root may read beyond the first 64 bytes")
        return None
    return redirects_peers(config)
