"""What we say of interfaces, RDMA ports and NCCL's files is what the kernel and the files say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.collect.network import Interface, NcclFile, Network, RdmaPort, collect
from sysperf.host import Host
from tests.conftest import Files, MakeMachine, make_machine

CARD = "../../devices/pci0000:17/0000:17:01.0/0000:18:00.0"
ROUTE_HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
SYS: Files = {"/sys/class/x/y": ""}
HOME: dict[str, object] = {"home": "/home/ada"}


def card(name: str, **files: str) -> tuple[Files, dict[str, str]]:
    """A network card on PCI, with its link in /sys/class/net."""
    folder = f"/sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/net/{name}"
    contents = {"operstate": "up\n", "speed": "100000\n", "mtu": "9000\n", "type": "1\n", **files}
    links = {f"/sys/class/net/{name}": f"{CARD}/net/{name}", f"{folder}/device/driver": "../../../../bus/pci/drivers/mlx5_core"}
    return {f"{folder}/{path}": content for path, content in contents.items()}, links


def only(machine: MakeMachine, name: str = "eth0", **files: str) -> Interface:
    (interface,) = collect(machine(*card(name, **files))).interfaces or ()
    return interface


def test_a_card_is_described(machine: MakeMachine) -> None:
    """Speed, packet size, driver, and the node of its card on PCI."""
    files, links = card("eth0")
    route = f"{ROUTE_HEAD}eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
    host = machine({**files, "/sys/bus/pci/devices/0000:18:00.0/numa_node": "1", "/proc/net/route": route}, links)

    facts = collect(host)

    assert facts.interfaces == (Interface("eth0", "ethernet", True, 100_000, 9_000, "mlx5_core", "0000:18:00.0", 1),)
    assert facts.default_interface == "eth0"


def test_a_down_interface_is_not_asked_for_its_speed(machine: MakeMachine) -> None:
    """The kernel refuses that, and the number would mean nothing."""
    down = only(machine, operstate="down\n")

    assert (down.up, down.speed_mbps) == (False, None)


def test_a_speed_that_the_driver_does_not_say_is_unknown(machine: MakeMachine) -> None:
    """Paravirtual cards say -1."""
    assert only(machine, speed="-1\n").speed_mbps is None


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"type": "1"}, "ethernet"),
        ({"type": "32"}, "infiniband"),
        ({"type": "1", "wireless/x": ""}, "wireless"),
        ({"type": "512"}, "other"),
    ],
)
def test_kinds(machine: MakeMachine, files: dict[str, str], kind: str) -> None:
    """Ethernet, InfiniBand and wireless cards are told apart."""
    assert only(machine, **files).kind == kind


def test_virtual_interfaces_are_named_and_no_more(machine: MakeMachine) -> None:
    """A node with containers has hundreds of them: three files of each would cost more than all the rest."""
    links = {f"/sys/class/net/{name}": f"../../devices/virtual/net/{name}" for name in ("lo", "docker0", "veth1")}
    host = machine({}, links)

    facts = collect(host).interfaces or ()

    assert {interface.name: interface.kind for interface in facts} == {"lo": "loopback", "docker0": "virtual", "veth1": "virtual"}
    assert not [source.path for source in host.sources if source.path.startswith("/sys/class/net/") and source.path.count("/") > 4]


def test_a_bond_has_a_speed(machine: MakeMachine) -> None:
    """A bond is virtual, but it is what traffic uses."""
    folder = "/sys/devices/virtual/net/bond0"
    files: Files = {
        f"{folder}/operstate": "up",
        f"{folder}/speed": "50000",
        "/sys/class/net/bonding_masters": "bond0",
        "/proc/net/bonding/bond0": "",
    }

    (bond,) = collect(machine(files, {"/sys/class/net/bond0": "../../devices/virtual/net/bond0"})).interfaces or ()

    assert (bond.kind, bond.speed_mbps) == ("bond", 50_000)


def test_the_default_route_with_the_smallest_metric_counts(machine: MakeMachine) -> None:
    """Two default routes: a laptop's cable (100) before its wireless (600)."""
    rows = "wlan0\t00000000\t0102A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\neth0\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"

    assert collect(machine({"/proc/net/route": ROUTE_HEAD + rows})).default_interface == "eth0"


def test_the_default_route_of_an_ipv6_machine(machine: MakeMachine) -> None:
    """Without an IPv4 default route the IPv6 one counts; the kernel's unreachable route on lo does not."""
    zero = "0" * 32
    rows = f"{zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n{zero} 00 {zero} 00 fe80{'0' * 28} 00000400 00000001 00000000 00000003     ens3\n"

    assert collect(machine({"/proc/net/route": ROUTE_HEAD, "/proc/net/ipv6_route": rows})).default_interface == "ens3"


def test_no_default_route_is_empty_not_unknown(machine: MakeMachine) -> None:
    """A machine that was read and has no way out says so."""
    assert collect(machine({"/proc/net/route": ROUTE_HEAD})).default_interface == ""
    assert collect(machine({})).default_interface is None


def rdma(name: str, state: str, rate: str, layer: str) -> tuple[Files, dict[str, str]]:
    folder = f"/sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/infiniband/{name}"
    files: Files = {
        f"{folder}/ports/1/state": state,
        f"{folder}/ports/1/rate": rate,
        f"{folder}/ports/1/link_layer": layer,
        f"{folder}/device/net/ib0/mtu": "",
    }
    return files, {f"/sys/class/infiniband/{name}": f"{CARD}/infiniband/{name}"}


def test_an_infiniband_port_is_described(machine: MakeMachine) -> None:
    """State, rate and layer of the port, the adapter's interface, card and node."""
    files, links = rdma("mlx5_0", "4: ACTIVE\n", "400 Gb/sec (4X NDR)\n", "InfiniBand\n")
    host = machine({**files, "/sys/bus/pci/devices/0000:18:00.0/numa_node": "0"}, links)

    assert collect(host).rdma == (RdmaPort("mlx5_0", 1, True, 400.0, "InfiniBand", ("ib0",), "0000:18:00.0", 0),)


def test_a_port_without_cable_is_not_active(machine: MakeMachine) -> None:
    """``1: DOWN`` and ``2: INIT`` carry nothing."""
    (port,) = collect(machine(*rdma("mlx5_1", "1: DOWN\n", "2.5 Gb/sec (1X SDR)\n", "InfiniBand\n"))).rdma or ()

    assert (port.active, port.rate_gbps) == (False, 2.5)


def test_no_rdma_is_known_on_a_whole_machine_only(machine: MakeMachine) -> None:
    """Without /sys nothing is known of adapters; with it, their absence is."""
    assert collect(machine({"/sys/class/net/lo/mtu": "65536"})).rdma == ()
    assert collect(machine({})).rdma is None


def test_files_of_nccl_are_shown_with_their_variables(machine: MakeMachine) -> None:
    """Both places NCCL looks; comments and other names are left out."""
    files: Files = {
        "/etc/nccl.conf": "# site\nNCCL_IB_HCA=mlx5_0\nNCCL_SOCKET_IFNAME==ens1f0\nPATH=/x\n",
        "/home/ada/.nccl.conf": "NCCL_DEBUG=INFO\n",
    }

    assert collect(machine(files, calls=HOME)).nccl_files == (
        NcclFile("/etc/nccl.conf", {"NCCL_IB_HCA": "mlx5_0", "NCCL_SOCKET_IFNAME": "=ens1f0"}),
        NcclFile("~/.nccl.conf", {"NCCL_DEBUG": "INFO"}),
    )


def test_no_file_of_nccl_is_known_none(machine: MakeMachine) -> None:
    """Both are absent: nothing hidden. When the home folder is unknown, so is the answer."""
    assert collect(machine({}, calls=HOME)).nccl_files == ()
    assert collect(machine({})).nccl_files is None


def test_an_unreadable_file_of_nccl_is_there_with_unknown_content(machine: MakeMachine) -> None:
    """That it exists is a fact although nobody may read it."""
    host = machine({"/etc/nccl.conf": PermissionError(13, "Permission denied")}, calls=HOME)

    assert collect(host).nccl_files == (NcclFile("/etc/nccl.conf", None),)


def test_a_secret_in_a_file_of_nccl_is_hidden(machine: MakeMachine) -> None:
    """Whatever somebody wrote there, no key leaves the machine."""
    host = machine({"/etc/nccl.conf": "NCCL_X_TOKEN=abc\nNCCL_DEBUG_FILE=https://user:pw@host/x\n"}, calls=HOME)

    assert "abc" not in repr(collect(host))
    assert "user:pw" not in repr(collect(host))


@settings(max_examples=25)
@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=40))
def test_any_content_is_survived(route: bytes, conf: bytes, word: bytes) -> None:
    """Garbage gives unknowns, and what is shown is one harmless line."""
    ports: Files = {f"/sys/class/infiniband/mlx5_0/ports/1/{name}": word for name in ("state", "rate", "link_layer")}
    cards: Files = {f"/sys/class/net/eth0/{name}": word for name in ("operstate", "speed", "mtu", "type")}
    files: Files = {"/proc/net/route": b"\n" + route, "/proc/net/ipv6_route": route, "/etc/nccl.conf": conf, **ports, **cards}
    host = make_machine(files, calls=HOME)

    facts = collect(host)

    assert facts.default_interface is None or facts.default_interface.isprintable()
    for file in facts.nccl_files or ():
        assert all(value.isprintable() for value in (file.settings or {}).values())
    assert all(interface.mtu is None or isinstance(interface.mtu, int) for interface in facts.interfaces or ())


@pytest.mark.skipif(not Path("/sys/class/net/lo").exists(), reason="no /sys here")
def test_this_machine_has_a_loopback() -> None:
    """On the machine that runs the tests, lo is found and the default route names an interface that exists."""
    facts: Network = collect(Host("/"))

    names = {interface.name for interface in facts.interfaces or ()}
    assert "lo" in names
    assert facts.default_interface in (None, "", *names)
