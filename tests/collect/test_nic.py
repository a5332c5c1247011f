"""The health of network cards: ports, error counters, device nodes, links that flap."""

from __future__ import annotations

import errno

import pytest

from sysperf.collect.nic import SECOND_LOOK, Flap, Link, Nic, Port, collect
from sysperf.collect.readers.adapter_log import complaints
from tests.conftest import Files, MakeMachine, captured

IB = "/sys/class/infiniband"
CARD = "0000:3b:00.0"


def port(name: str = "mlx5_0", number: int = 1, **changed: str) -> Files:
    """A healthy 400 Gbit/s port, as mlx5 shows it."""
    state = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand", **changed}
    counters = {
        f"counters/{name}": "0" for name in ("link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "port_xmit_discards")
    }
    counters |= {f"counters/{name}": "0" for name in ("local_link_integrity_errors", "excessive_buffer_overrun_errors")}
    files = {f"{IB}/{name}/ports/{number}/{file}": f"{text}\n" for file, text in {**counters, **state}.items()}
    return {
        **files,
        f"{IB}/{name}/fw_ver": "28.39.1002\n",
        f"{IB}/{name}/hca_type": "MT4129\n",
        "/proc/uptime": "36000.00 1.00\n",
        "/sys/class/x": "",
    }


def only(facts: Nic) -> Port:
    (nic_port,) = facts.ports or ()
    return nic_port


def test_a_healthy_port_is_described(machine: MakeMachine) -> None:
    """State, rate, lanes, firmware, place, and counters with how long they run."""
    device = f"/sys/devices/pci0000:3a/0000:3a:00.0/{CARD}/infiniband/mlx5_0"
    links = {f"{IB}/mlx5_0": f"../..{device.removeprefix('/sys')}"}
    there = {path.replace(f"{IB}/mlx5_0", device): content for path, content in port().items()}
    nodes: Files = {"/sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0\n", "/dev/infiniband/uverbs0": ""}
    facts = collect(machine({**there, **nodes, f"/sys/bus/pci/devices/{CARD}/numa_node": "1\n"}, links))
    nic_port = only(facts)

    assert (nic_port.name, nic_port.port, nic_port.state, nic_port.physical_state, nic_port.link_layer) == (
        "mlx5_0",
        1,
        "ACTIVE",
        "LinkUp",
        "InfiniBand",
    )
    assert (nic_port.rate_gbps, nic_port.lanes, nic_port.firmware, nic_port.verbs_node) == (400.0, 4, "28.39.1002", True)
    assert (nic_port.pci_address, nic_port.card, nic_port.numa_node, nic_port.model) == (CARD, "0000:3b:00", 1, "MT4129")
    assert (nic_port.link_downed, nic_port.symbol_errors, nic_port.integrity_errors, facts.counted_hours) == (0, 0, 0, 10.0)
    assert (nic_port.slow_restarts, nic_port.receive_errors_per_s) == (None, None)


def test_a_port_that_is_down_and_one_lane_of_four(machine: MakeMachine) -> None:
    """Polling: no partner answers. A rate without lanes in brackets is a rate all the same."""
    facts = collect(machine({**port(state="1: DOWN", phys_state="2: Polling"), **port("efa_0", rate="100 Gb/sec")}))

    assert [
        (nic_port.name, nic_port.state, nic_port.physical_state, nic_port.rate_gbps, nic_port.lanes) for nic_port in facts.ports or ()
    ] == [
        ("efa_0", "ACTIVE", "LinkUp", 100.0, None),
        ("mlx5_0", "DOWN", "Polling", 400.0, 4),
    ]


@pytest.mark.parametrize("text", ["N/A (no PMA)", "-1", "٣", "9" * 40, ""])
def test_a_counter_that_is_no_number_is_unknown(machine: MakeMachine, text: str) -> None:
    """Never 0: a port without counters is not one without errors."""
    nic_port = only(collect(machine({**port(), f"{IB}/mlx5_0/ports/1/counters/symbol_error": text})))

    assert nic_port.symbol_errors is None


def test_a_missing_device_node_is_seen_where_the_folder_can_be(machine: MakeMachine) -> None:
    """A container shows /sys of the host, and its own /dev."""
    verbs: Files = {"/sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0\n"}
    denied = PermissionError(errno.EACCES, "Permission denied", "ibdev")

    assert only(collect(machine({**port(), **verbs}))).verbs_node is False
    assert only(collect(machine({**port(), **verbs, "/dev/infiniband/uverbs0": ""}))).verbs_node is True
    assert only(collect(machine(port()))).verbs_node is None
    assert only(collect(machine({**port(), "/sys/class/infiniband_verbs/uverbs0/ibdev": denied}))).verbs_node is not True


def test_only_deep_counts_a_second_and_asks_the_log(machine: MakeMachine) -> None:
    """The errors of one second are the machine's own answer, so that a capture has them."""
    log = (
        "2026-11-22T04:00:00,1+00:00 mlx5_core 0000:3b:00.0 ens1f0np0: Link down\n"
        "2026-11-22T04:00:09,1+00:00 mlx5_core 0000:3b:00.0 ens1f0np0: Link up\n"
        "2026-11-22T05:00:00,1+00:00 mlx5_core 0000:3b:00.0 ens1f0np0: Link down\n"
        "2026-11-22T05:30:00,1+00:00 ixgbe 0000:01:00.0 eth0: NIC Link is Down\n"
        "2026-11-22T05:31:00,1+00:00 systemd: user asked whether the link is broken\n"
    )
    calls: dict[str, object] = {SECOND_LOOK: {"mlx5_0/1 receive_errors": 0.0, "mlx5_0/1 send_discards": 900.5}, "run:dmesg": log}
    deep, shallow = collect(machine(port(), calls=calls, deep=True)), collect(machine(port(), calls=calls))

    assert (only(deep).send_discards_per_s, only(deep).receive_errors_per_s, only(deep).slow_restarts_per_s) == (900.5, 0.0, None)
    assert deep.flaps == (Flap("ens1f0np0", 2, "2026-11-22T05:00:00,1+00:00"), Flap("eth0", 1, "2026-11-22T05:30:00,1+00:00"))
    assert (only(shallow).send_discards_per_s, shallow.flaps) == (None, None)


def test_no_adapter_is_known_and_an_unread_one_is_not_absent(machine: MakeMachine) -> None:
    """No folder: none. A folder whose ports cannot be listed: unknown."""
    assert collect(machine({"/sys/class/net/lo/mtu": "65536"})).ports == ()
    assert collect(captured("hwloc", "8em64t-4c2t")).ports is None


def test_only_links_of_cards_count(machine: MakeMachine) -> None:
    """Interfaces of containers go up and down all day."""
    folders = {"eth0": f"/sys/devices/pci0000:00/{CARD}/net/eth0", "veth1": "/sys/devices/virtual/net/veth1"}
    files: Files = {
        f"{folder}/{file}": text for folder in folders.values() for file, text in (("carrier_changes", "3\n"), ("operstate", "up\n"))
    }
    links = {f"/sys/class/net/{name}": f"../..{folder.removeprefix('/sys')}" for name, folder in folders.items()}

    assert collect(machine(files, links)).links == (Link("eth0", True, 3),)


def test_a_captured_infiniband_port() -> None:
    """A QLogic adapter of 2012: active, 40 Gbit/s on four lanes, without an error."""
    nic_port = only(collect(captured("hwloc", "40intel64-2g2n4c+pcilocality")))

    assert (nic_port.name, nic_port.state, nic_port.rate_gbps, nic_port.lanes) == ("qib0", "ACTIVE", 40.0, 4)
    assert (nic_port.link_downed, nic_port.symbol_errors, nic_port.integrity_errors, nic_port.numa_node) == (0, 0, 0, 2)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W).", "power"),
        ("mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature", "heat"),
        ("mlx5_core 0000:5c:00.0: Port module event[error]: module 1, Cable error, Bad or shorted cable/module", "cable"),
        ("mlx5_core 0000:5c:00.0: poll_health:815:(pid 0): device's health compromised - reached miss count", "firmware"),
        ("mlx5_core 0000:5c:00.0: Port module event: module 0, Cable plugged", ""),
        ("mlx5_core 0000:5c:00.0: mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource(0x5)", ""),
    ],
)
def test_what_a_driver_says_of_an_adapter_is_read_from_the_log(line: str, kind: str) -> None:
    found = complaints(f"2026-11-20T12:00:00,1+00:00 {line}\n" * 2)

    assert [(one.name, one.kind, one.count) for one in found] == ([("0000:5c:00.0", kind, 2)] if kind else [])
