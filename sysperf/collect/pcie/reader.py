"""One device of the bus: what it is, where it sits and how wide its link is."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sysperf.collect.cpu import online_cpus
from sysperf.collect.numa import NODES
from sysperf.collect.pcie.records import PCI, Device
from sysperf.collect.readers.unreadable import is_unreadable
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.text import neutral
from sysperf.procfs.numbers import whole
from sysperf.procfs.pci import hex_id, is_address, lanes, speed_gts
from sysperf.startup import lazy

_GROUP = lazy(r"/([0-9]{1,9})$")
VENDORS = {"nvidia": "10de", "amd": "1002", "intel": "8086"}
INTEL_INTEGRATED = "0000:00:02.0"
INTEL_CARDS = ("0bd", "0be", "490", "569", "56a", "56b", "56c", "674", "e20", "e21", "e22")
"""How the device ids of Intel's cards begin: https://dgpu-docs.intel.com/devices/hardware-table.html. Others are parts of processors."""
PROCESSORS_OF_AMD = "1022"
"""What AMD's processors call their maker: their security processor and USB are in the slot of their GPU. AMD's GPUs say 1002."""


class Reader:
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
        vendor = hex_number(host, f"{folder}/vendor", 4)
        if kind == "accelerator" and vendor == VENDORS["amd"]:
            kind = "gpu"  # Instinct calls itself a processing accelerator
        path = self._path(address)
        port = self._port(path[-1]) if path and not suspended else (None, None)
        errors = kind in ("gpu", "accelerator")
        return Device(
            address=address,
            kind=kind,
            vendor_id=vendor,
            device_id=hex_number(host, f"{folder}/device", 4),
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
        """Intel's GPU of a processor is told by its model; AMD's shares its slot with functions of the processor's maker."""
        if vendor == VENDORS["intel"]:
            return not is_card_of_intel(address, hex_number(self._host, f"{PCI}/{address}/device", 4))
        if vendor != VENDORS["amd"]:
            return False if vendor else None
        slot = address.rpartition(".")[0]
        beside = [other for other in self._addresses if other.rpartition(".")[0] == slot and other != address]
        vendors = [hex_number(self._host, f"{PCI}/{other}/vendor", 4) for other in beside]
        return True if PROCESSORS_OF_AMD in vendors else None if None in vendors else False

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


def hex_number(host: Host, path: str, digits: int) -> str | None:
    """A number such as ``0x10de`` as lower-case digits."""
    word = host.word(path)
    if word is None:
        return None
    number = hex_id(word, digits)
    if number is None:
        host.refuse(path, f"no number of {digits} hexadecimal digits")
    return number


def is_card_of_intel(address: str, model: str | None) -> bool:
    """Whether a GPU of Intel's is a card. A guest sees that of its host's processor at any address, and a card at the processor's."""
    return address != INTEL_INTEGRATED if model is None else model.startswith(INTEL_CARDS)
