"""nic: the health of network cards: ports of RDMA adapters, their error counters, and links that go down and up.

Reads   /sys/class/infiniband/*/{fw_ver,hca_type,ports/*/{state,phys_state,rate,link_layer,counters/*,hw_counters/*}}
        /sys/class/infiniband_verbs/uverbs*/ibdev  /dev/infiniband  /sys/class/net/*/{carrier_changes,operstate,device}
        /proc/uptime; --deep counts the errors of one second and asks the kernel's log (dmesg) for links that went down
        and adapters that are ill
Kernel  https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
        https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-net
NVIDIA  https://enterprise-support.nvidia.com/s/article/understanding-mlx5-linux-counters-and-status-parameters

Counters run since the driver was loaded: how long that is, nobody says exactly, so the time since the machine started stands for it.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from sysperf.collect.network import NET, PORTS, RDMA
from sysperf.collect.pcie import locality
from sysperf.collect.pcie.records import PCI
from sysperf.collect.readers.adapter_log import Complaint, complaints
from sysperf.collect.readers.growth import growth
from sysperf.collect.readers.unreadable import is_unreadable
from sysperf.host import Host
from sysperf.model.record import Record, fact, joined
from sysperf.model.text import neutral
from sysperf.procfs.numbers import decimal, whole
from sysperf.procfs.pci import address_in
from sysperf.startup import lazy

VERBS = "/sys/class/infiniband_verbs"
NODES = "/dev/infiniband"
EACH = f"{PORTS}/*"
DMESG = "run:dmesg"
SECOND_LOOK = "nic:errors-in-a-second"
LOOK_S = 1.0
MAX_ADAPTERS = 128
MAX_PORTS = 16
MAX_LINKS = 256
MAX_FLAPS = 64

COUNTERS = {
    # fact: the kernel's file
    "link_downed": "counters/link_downed",
    "link_recoveries": "counters/link_error_recovery",
    "symbol_errors": "counters/symbol_error",
    "receive_errors": "counters/port_rcv_errors",
    "send_discards": "counters/port_xmit_discards",
    "integrity_errors": "counters/local_link_integrity_errors",
    "buffer_overruns": "counters/excessive_buffer_overrun_errors",
    "not_ready_retries": "hw_counters/rnr_nak_retry_err",
    "slow_restarts": "hw_counters/roce_slow_restart",
    "ack_timeouts": "hw_counters/local_ack_timeout_err",
}
RATES = ("receive_errors", "send_discards", "slow_restarts", "ack_timeouts")

_NAME = lazy(r"[^/\s]{1,64}")
_PORT = lazy(r"[0-9]{1,3}")
_STATE = lazy(r"[0-9]{1,2}: ([A-Za-z_]{1,24})")
_RATE = lazy(r"([0-9]{1,5}(?:\.[0-9]{1,2})?) Gb/sec(?: \(([0-9]{1,2})X)?")
_DOWN = lazy(r"(\S{1,40}) .{0,120}?\b([A-Za-z][A-Za-z0-9_.-]{1,31})(?:\([a-z0-9_]{1,20}\))?:? (?:NIC )?[Ll]ink (?:is )?[Dd]own\b")
"""``2026-11-22T05:00:00,1+00:00 mlx5_core 0000:3b:00.0 ens1: Link down``, ``ixgbe 0000:01:00.0 eth0: NIC Link is Down``"""


class Port(Record, kw_only=True):
    """A port of an adapter that moves data without the CPU: InfiniBand, RoCE or a cloud's own."""

    name: Annotated[str, fact("adapter, as NCCL_IB_HCA names it", RDMA)]
    port: Annotated[int, fact("number of the port", PORTS)]
    link_layer: Annotated[str | None, fact("InfiniBand or Ethernet (RoCE)", f"{EACH}/link_layer")] = None
    state: Annotated[str | None, fact("ACTIVE carries data; INIT waits for a subnet manager; DOWN", f"{EACH}/state")] = None
    physical_state: Annotated[str | None, fact("LinkUp, Polling (no partner answers), Disabled, …", f"{EACH}/phys_state")] = None
    rate_gbps: Annotated[float | None, fact("link rate, Gbit/s", f"{EACH}/rate")] = None
    lanes: Annotated[int | None, fact("lanes of the cable in use: 4 is usual", f"{EACH}/rate")] = None
    firmware: Annotated[str | None, fact("firmware of the adapter", f"{RDMA}/*/fw_ver")] = None
    model: Annotated[str | None, fact("model of the adapter, such as MT4129; not all drivers say it", f"{RDMA}/*/hca_type")] = None
    verbs_node: Annotated[bool | None, fact("programs can open it: its uverbs device node is there", VERBS, NODES)] = None
    pci_address: Annotated[str | None, fact("its card on PCI; empty when on none", RDMA)] = None
    card: Annotated[str | None, fact("its card: the PCI address without the function, which all ports of a card share", RDMA)] = None
    numa_node: Annotated[int | None, fact("memory node beside its card", f"{PCI}/*/numa_node")] = None
    link_downed: Annotated[int | None, fact("times that the link went down", f"{EACH}/counters/link_downed")] = None
    link_recoveries: Annotated[
        int | None, fact("times that the link trained anew after errors", f"{EACH}/counters/link_error_recovery")
    ] = None
    symbol_errors: Annotated[int | None, fact("errors on the wire", f"{EACH}/counters/symbol_error")] = None
    receive_errors: Annotated[int | None, fact("packets received with errors", f"{EACH}/counters/port_rcv_errors")] = None
    send_discards: Annotated[int | None, fact("packets dropped instead of sent", f"{EACH}/counters/port_xmit_discards")] = None
    integrity_errors: Annotated[
        int | None, fact("times that errors of the wire passed the port's limit", f"{EACH}/counters/local_link_integrity_errors")
    ] = None
    buffer_overruns: Annotated[
        int | None, fact("times that the port's buffers overflowed again and again", f"{EACH}/counters/excessive_buffer_overrun_errors")
    ] = None
    not_ready_retries: Annotated[
        int | None, fact("transfers given up because the receiver was never ready", f"{EACH}/hw_counters/rnr_nak_retry_err")
    ] = None
    slow_restarts: Annotated[
        int | None, fact("RoCE: times that a sender fell back to its lowest rate", f"{EACH}/hw_counters/roce_slow_restart")
    ] = None
    ack_timeouts: Annotated[int | None, fact("transfers that were not answered in time", f"{EACH}/hw_counters/local_ack_timeout_err")] = (
        None
    )
    receive_errors_per_s: Annotated[float | None, fact("packets received with errors, now (--deep)", SECOND_LOOK)] = None
    send_discards_per_s: Annotated[float | None, fact("packets dropped instead of sent, now (--deep)", SECOND_LOOK)] = None
    slow_restarts_per_s: Annotated[float | None, fact("RoCE: senders that fell back to their lowest rate, now (--deep)", SECOND_LOOK)] = (
        None
    )
    ack_timeouts_per_s: Annotated[float | None, fact("transfers not answered in time, now (--deep)", SECOND_LOOK)] = None


class Link(Record):
    """A network interface of a card."""

    name: Annotated[str, fact("its name", NET)]
    up: Annotated[bool | None, fact("whether it can carry traffic", f"{NET}/*/operstate")] = None
    carrier_changes: Annotated[int | None, fact("times that its link went up or down since it was made", f"{NET}/*/carrier_changes")] = None


class Flap(Record):
    """A link that the kernel's log saw going down."""

    name: Annotated[str, fact("interface or adapter", DMESG)]
    count: Annotated[int, fact("times", DMESG)]
    last_at: Annotated[str, fact("when, last", DMESG)]


class Nic(Record):
    """The network cards of this machine."""

    ports: Annotated[tuple[Port, ...] | None, fact("ports of RDMA adapters", RDMA)] = None
    links: Annotated[tuple[Link, ...] | None, fact("network interfaces of cards", NET)] = None
    counted_hours: Annotated[float | None, fact("for how long the counters run at most: since the machine started", "/proc/uptime")] = None
    flaps: Annotated[tuple[Flap, ...] | None, fact("links that went down, in the kernel's log (--deep)", DMESG)] = None
    complaints: Annotated[tuple[Complaint, ...] | None, fact("what drivers say of adapters that are ill, in the same", DMESG)] = None


def collect(host: Host) -> Nic:
    """Read ports, links and counters; under --deep the counters twice, and the kernel's log."""
    ports = _ports(host)
    seconds = decimal((host.word("/proc/uptime") or "").partition(" ")[0])
    log = host.run("dmesg") if host.deep else None
    return Nic(
        ports=_with_rates(host, ports) if ports and host.deep else ports,
        links=_links(host),
        counted_hours=None if seconds is None else round(seconds / 3600, 2),
        flaps=None if log is None else _flaps(log),
        complaints=None if log is None else complaints(log),
    )


# ---------------------------------------------------------------------- ports


def _ports(host: Host) -> tuple[Port, ...] | None:
    names = host.names(RDMA)
    if names is None:
        return () if host.exists(RDMA) is False and host.exists("/sys/class") else None
    nodes = _verbs_nodes(host) if names else {}
    adapters = [_adapter(host, name, nodes) for name in names[:MAX_ADAPTERS] if _NAME.fullmatch(name)]
    return None if None in adapters else tuple(port for adapter in adapters for port in adapter or ())


def _verbs_nodes(host: Host) -> dict[str, bool] | None:
    """Whether each adapter's device node is there; None when the adapters' nodes are unknown."""
    names, there = host.names(VERBS), host.names(NODES)
    if names is None:
        return None
    if there is None and host.exists(NODES) is not False:
        return None
    adapters = {name: host.word(f"{VERBS}/{name}/ibdev") for name in names if name.startswith("uverbs")}
    return {adapter: name in (there or ()) for name, adapter in adapters.items() if adapter}


def _adapter(host: Host, name: str, nodes: dict[str, bool] | None) -> list[Port] | None:
    folder, target = f"{RDMA}/{name}", host.link(f"{RDMA}/{name}")
    numbers = host.names(f"{folder}/ports")
    if numbers is None and is_unreadable(host, f"{folder}/ports"):
        return None
    address = address_in(target or "")
    known_as = neutral(name, 64)
    adapter = Port(
        name=known_as,
        port=0,
        firmware=_text(host.word(f"{folder}/fw_ver"), 40),
        model=_text(host.word(f"{folder}/hca_type"), 40),
        verbs_node=None if nodes is None else nodes.get(name, False),
        pci_address=None if target is None else address,
        card=address.partition(".")[0] if address else None,
        numa_node=locality(host, address)[0] if address else None,
    )
    chosen = [number for number in (numbers or ())[:MAX_PORTS] if _PORT.fullmatch(number)]
    return [joined(adapter, _port(host, f"{folder}/ports/{number}", known_as, int(number))) for number in chosen]


def _port(host: Host, folder: str, name: str, number: int) -> Port:
    rate = _RATE.match(host.word(f"{folder}/rate") or "")
    counter = {name: whole(host.word(f"{folder}/{file}")) for name, file in COUNTERS.items()}
    return Port(
        name=name,
        port=number,
        link_layer=_text(host.word(f"{folder}/link_layer"), 24),
        state=_state(host, f"{folder}/state"),
        physical_state=_state(host, f"{folder}/phys_state"),
        rate_gbps=float(rate[1]) if rate else None,
        lanes=int(rate[2]) if rate and rate[2] else None,
        link_downed=counter["link_downed"],
        link_recoveries=counter["link_recoveries"],
        symbol_errors=counter["symbol_errors"],
        receive_errors=counter["receive_errors"],
        send_discards=counter["send_discards"],
        integrity_errors=counter["integrity_errors"],
        buffer_overruns=counter["buffer_overruns"],
        not_ready_retries=counter["not_ready_retries"],
        slow_restarts=counter["slow_restarts"],
        ack_timeouts=counter["ack_timeouts"],
    )


def _state(host: Host, path: str) -> str | None:
    """``4: ACTIVE`` is ACTIVE."""
    match = _STATE.fullmatch(host.word(path) or "")
    return match[1] if match else None


def _text(word: str | None, limit: int) -> str | None:
    return neutral(word, limit) if word else None


def _with_rates(host: Host, ports: tuple[Port, ...]) -> tuple[Port, ...]:
    """The ports with the errors of one second, which the machine itself is asked for: a capture has the answer."""
    files = {
        f"{port.name}/{port.port} {name}": f"{RDMA}/{port.name}/ports/{port.port}/{COUNTERS[name]}" for port in ports for name in RATES
    }
    rates = host.call(SECOND_LOOK, lambda: _errors_in_a_second(files), dict[str, float])
    return tuple(_with_rate(port, rates or {}) for port in ports)


def _with_rate(port: Port, rates: dict[str, float]) -> Port:
    from msgspec.structs import replace  # noqa: PLC0415 - only --deep asks

    return replace(port, **{f"{name}_per_s": rates.get(f"{port.name}/{port.port} {name}") for name in RATES})


def _errors_in_a_second(files: dict[str, str]) -> dict[str, float]:
    grown, seconds = growth(files.values(), LOOK_S)
    return {key: round(grown[path] / seconds, 2) for key, path in files.items() if path in grown}


# ---------------------------------------------------------------------- links


def _links(host: Host) -> tuple[Link, ...] | None:
    """The interfaces of cards: those of containers and bridges have no device."""
    names = host.names(NET)
    if names is None:
        return None
    links = []
    for name in [name for name in names if _NAME.fullmatch(name)][:MAX_LINKS]:
        target = host.link(f"{NET}/{name}")
        if target is None or "/virtual/" in target:
            continue
        state = host.word(f"{NET}/{name}/operstate")
        up = None if state is None else state in ("up", "unknown")
        links.append(Link(neutral(name, 64), up, whole(host.word(f"{NET}/{name}/carrier_changes"))))
    return tuple(links)


def _flaps(log: str) -> tuple[Flap, ...]:
    """Links that went down since the log begins, the most frequent first."""
    counts: Counter[str] = Counter()
    last_at: dict[str, str] = {}
    for line in log.splitlines():
        match = _DOWN.match(line) if "ink" in line else None
        if match:
            counts[match[2]] += 1
            last_at[match[2]] = neutral(match[1], 40)
    return tuple(Flap(neutral(name, 40), count, last_at[name]) for name, count in counts.most_common(MAX_FLAPS))
