"""network: interfaces, RDMA ports, and files that set NCCL's variables behind the user's back.

Reads   /sys/class/net  /sys/class/net/*/{operstate,speed,mtu,type,wireless}  /proc/net/{route,ipv6_route,bonding}
        /sys/class/infiniband/*/ports/*/{state,rate,link_layer}  /sys/class/infiniband/*/device/net
        /etc/nccl.conf  ~/.nccl.conf
Kernel  https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-net
        https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
NVIDIA  https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

import re
from typing import Annotated

from sysperf.collect.pcie import locality
from sysperf.collect.pcie.records import PCI
from sysperf.collect.readers.home import home_of
from sysperf.collect.readers.unreadable import is_unreadable
from sysperf.host import Host, redact
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.procfs.numbers import whole
from sysperf.procfs.pci import address_in
from sysperf.startup import lazy

NET = "/sys/class/net"
EACH = f"{NET}/*"
BONDS = "/proc/net/bonding"
ROUTES = "/proc/net/route"
ROUTES6 = "/proc/net/ipv6_route"
RDMA = "/sys/class/infiniband"
PORTS = f"{RDMA}/*/ports"
SYSTEM_CONF = "/etc/nccl.conf"
USER_CONF = "~/.nccl.conf"
MAX_INTERFACES = 256
MAX_ADAPTERS = 128
MAX_PORTS = 16
MAX_CONF_BYTES = 65_536

_NAME = lazy(r"[^/\s]{1,64}")
_RATE = lazy(r"([0-9]{1,5}(?:\.[0-9]{1,2})?) Gb/sec")
_STATE = lazy(r"[0-9]: ([A-Z_]{1,24})")
_SETTING = lazy(r"\s*(NCCL_[A-Z0-9_]{1,80})\s*=(.*)")
_ETHERNET, _INFINIBAND = 1, 32
_NO_ADDRESS = "0" * 32


class Interface(Record):
    """A network interface."""

    name: Annotated[str, fact("kernel name", NET)]
    kind: Annotated[
        str | None, fact("ethernet, infiniband, wireless, bond, loopback, other, or virtual (containers, bridges)", NET, f"{EACH}/type")
    ]
    up: Annotated[bool | None, fact("whether it can carry traffic", f"{EACH}/operstate")] = None
    speed_mbps: Annotated[int | None, fact("link speed, Mbit/s; unknown of virtual machines' and wireless ones", f"{EACH}/speed")] = None
    mtu: Annotated[int | None, fact("largest packet, bytes", f"{EACH}/mtu")] = None
    driver: Annotated[str | None, fact("kernel driver; empty when it has none", f"{EACH}/device/driver")] = None
    pci_address: Annotated[str | None, fact("its card on PCI; empty when on none", NET)] = None
    numa_node: Annotated[int | None, fact("memory node beside its card", f"{PCI}/*/numa_node")] = None


class RdmaPort(Record):
    """A port of an adapter that moves data without the CPU: InfiniBand, RoCE or a cloud's own."""

    name: Annotated[str, fact("adapter, as NCCL_IB_HCA names it", RDMA)]
    port: Annotated[int, fact("number of the port", PORTS)]
    active: Annotated[bool | None, fact("whether its link is up", f"{PORTS}/*/state")] = None
    rate_gbps: Annotated[float | None, fact("link rate, Gbit/s", f"{PORTS}/*/rate")] = None
    link_layer: Annotated[str | None, fact("InfiniBand or Ethernet (RoCE)", f"{PORTS}/*/link_layer")] = None
    interfaces: Annotated[tuple[str, ...] | None, fact("network interfaces of the adapter", f"{RDMA}/*/device/net")] = None
    pci_address: Annotated[str | None, fact("its card on PCI; empty when on none", RDMA)] = None
    numa_node: Annotated[int | None, fact("memory node beside its card", f"{PCI}/*/numa_node")] = None


class NcclFile(Record):
    """A file out of which NCCL takes variables that the environment does not show."""

    path: Annotated[str, fact("the file", SYSTEM_CONF, USER_CONF)]
    settings: Annotated[dict[str, str] | None, fact("the variables it sets", SYSTEM_CONF, "/*/.nccl.conf")] = None


class Network(Record):
    """How this machine reaches others."""

    interfaces: Annotated[tuple[Interface, ...] | None, fact("network interfaces that our own process sees", NET)] = None
    default_interface: Annotated[str | None, fact("where traffic to the world leaves; empty when it cannot", ROUTES, ROUTES6)] = None
    rdma: Annotated[tuple[RdmaPort, ...] | None, fact("ports of RDMA adapters", RDMA)] = None
    nccl_files: Annotated[tuple[NcclFile, ...] | None, fact("configuration files of NCCL that exist", SYSTEM_CONF, "/*/.nccl.conf")] = None


def collect(host: Host) -> Network:
    """Read interfaces, RDMA ports and NCCL's files."""
    default = _default_interface(host)
    return Network(
        interfaces=_interfaces(host, default),
        default_interface=default,
        rdma=_rdma(host),
        nccl_files=_nccl_files(host),
    )


# ---------------------------------------------------------------------- interfaces


def _interfaces(host: Host, default: str | None) -> tuple[Interface, ...] | None:
    names = host.names(NET)
    if names is None:
        return None
    bonds = host.names(BONDS) or () if "bonding_masters" in names else ()
    wanted = [name for name in names if _NAME.fullmatch(name) and name != "bonding_masters"]
    return tuple(_interface(host, name, default, name in bonds) for name in wanted[:MAX_INTERFACES])


def _interface(host: Host, name: str, default: str | None, bond: bool) -> Interface:
    target = host.link(f"{NET}/{name}")
    label = neutral(name, 64)
    if target is None and host.exists(f"{NET}/{name}/operstate") is True:
        return Interface(label, None)
    hardware = target is not None and "/virtual/" not in target
    if not hardware and not bond and name != default:
        # A node with containers has hundreds of these: their names are enough.
        return Interface(label, "loopback" if name == "lo" else "virtual")
    folder = f"{NET}/{name}"
    state, address = host.word(f"{folder}/operstate"), address_in(target or "")
    return Interface(
        name=label,
        kind=_kind(host, folder, hardware, bond),
        up=None if state is None else state in ("up", "unknown"),
        speed_mbps=_speed(host, folder) if state == "up" else None,
        mtu=host.number(f"{folder}/mtu"),
        driver=_driver(host, folder) if hardware else "",
        pci_address=address,
        numa_node=locality(host, address)[0] if address else None,
    )


def _kind(host: Host, folder: str, hardware: bool, bond: bool) -> str | None:
    if not hardware:
        return "bond" if bond else "virtual"
    number = host.number(f"{folder}/type")
    if number == _ETHERNET:
        return "wireless" if host.exists(f"{folder}/wireless") else "ethernet"
    return None if number is None else "infiniband" if number == _INFINIBAND else "other"


def _speed(host: Host, folder: str) -> int | None:
    speed = host.number(f"{folder}/speed")
    if speed is None or 0 < speed < 1 << 31:
        return speed
    host.refuse(f"{folder}/speed", f"{speed}: this driver does not say")
    return None


def _driver(host: Host, folder: str) -> str | None:
    target = host.link(f"{folder}/device/driver")
    return None if target is None else neutral(target.rpartition("/")[2], 60)


def _default_interface(host: Host) -> str | None:
    """The interface of the default route with the smallest metric; of IPv6 when IPv4 has none."""
    text = host.text(ROUTES)
    routes = [] if text is None else sorted(route for line in text.splitlines()[1:4096] if (route := _route(line)))
    if routes:
        return routes[0][1]
    text6 = host.text(ROUTES6) if text is None or host.exists(ROUTES6) else ""
    routes = [] if text6 is None else sorted(route for line in text6.splitlines()[:4096] if (route := _route6(line)))
    if routes:
        return routes[0][1]
    return "" if text is not None and text6 is not None else None


def _route(line: str) -> tuple[int, str] | None:
    """``eth0 00000000 010200C0 0003 0 0 100 00000000 0 0 0``: interface, destination, …, metric, mask."""
    words = line.split()
    if len(words) < 8 or words[1] != "00000000" or words[7] != "00000000" or (metric := whole(words[6])) is None:
        return None
    return metric, neutral(words[0], 64)


def _route6(line: str) -> tuple[int, str] | None:
    """Destination, its prefix length, source, its prefix length, next hop, metric, …, interface."""
    words = line.split()
    if len(words) < 10 or (words[0], words[1]) != (_NO_ADDRESS, "00") or words[9] == "lo":
        return None
    return (int(words[5], 16), neutral(words[9], 64)) if re.fullmatch(r"[0-9a-f]{8}", words[5]) else None


# ---------------------------------------------------------------------- RDMA


def _rdma(host: Host) -> tuple[RdmaPort, ...] | None:
    names = host.names(RDMA)
    if names is None:
        return () if host.exists(RDMA) is False and host.exists("/sys/class") else None
    adapters = [_adapter(host, name) for name in [name for name in names if _NAME.fullmatch(name)][:MAX_ADAPTERS]]
    return None if None in adapters else tuple(port for adapter in adapters for port in adapter or ())


def _adapter(host: Host, name: str) -> list[RdmaPort] | None:
    folder, target = f"{RDMA}/{name}", host.link(f"{RDMA}/{name}")
    address = address_in(target or "")
    node = locality(host, address)[0] if address else None
    interfaces = host.names(f"{folder}/device/net")
    names = host.names(f"{folder}/ports")
    if names is None and is_unreadable(host, f"{folder}/ports"):
        return None
    ports = [port for port in names or () if re.fullmatch(r"[0-9]{1,3}", port)]
    return [
        RdmaPort(
            name=neutral(name, 64),
            port=int(port),
            active=_active(host, f"{folder}/ports/{port}/state"),
            rate_gbps=_rate(host, f"{folder}/ports/{port}/rate"),
            link_layer=_link_layer(host, f"{folder}/ports/{port}/link_layer"),
            interfaces=None if interfaces is None else tuple(neutral(interface, 64) for interface in interfaces[:MAX_PORTS]),
            pci_address=None if target is None else address,
            numa_node=node,
        )
        for port in ports[:MAX_PORTS]
    ]


def _active(host: Host, path: str) -> bool | None:
    """``4: ACTIVE``."""
    match = _STATE.fullmatch(host.word(path) or "")
    return match[1] == "ACTIVE" if match else None


def _rate(host: Host, path: str) -> float | None:
    """``400 Gb/sec (4X NDR)``."""
    match = _RATE.match(host.word(path) or "")
    return float(match[1]) if match else None


def _link_layer(host: Host, path: str) -> str | None:
    word = host.word(path)
    return None if word is None else neutral(word, 24)


# ---------------------------------------------------------------------- NCCL's files


def _nccl_files(host: Host) -> tuple[NcclFile, ...] | None:
    """The files that exist; None when one may exist that we cannot see."""
    home = home_of(host)
    files: list[NcclFile] = []
    for label, path in ((SYSTEM_CONF, SYSTEM_CONF), (USER_CONF, f"{home}/.nccl.conf" if home else "")):
        exists = host.exists(path) if path else None
        if exists is None:
            return None
        if exists:
            files.append(NcclFile(label, _settings(host, path)))
    return tuple(files)


def _settings(host: Host, path: str) -> dict[str, str] | None:
    """The NCCL variables of a file; what is shaped like a secret is hidden."""
    text = host.text(path, MAX_CONF_BYTES)
    if text is None:
        return None
    settings = [match for line in text.splitlines()[:500] if (match := _SETTING.match(line)) and redact.keeps(match[1])]
    return {match[1]: neutral(redact.variable(match[1], match[2].strip()), 200) for match in settings}
