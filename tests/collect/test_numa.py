"""Memory nodes: their CPUs, sizes and distances, and which of them are no memory of the machine."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.collect.numa import Numa, collect
from sysperf.host import Host
from sysperf.model.errors import Missing
from sysperf.model.record import from_json, plain, to_json
from tests.collect.machines import every_machine, expected
from tests.conftest import Dict, Files, MakeMachine, captured

NODE = "/sys/devices/system/node/node"
BALANCING = "/proc/sys/kernel/numa_balancing"
ONLINE = "/sys/devices/system/cpu/online"
MEMINFO = """
Node 0 MemTotal:       1000 kB
Node 0 MemFree:         100 kB
Node 0 Active(file):    200 kB
Node 0 Inactive(file):  300 kB
Node 0 Active(anon):    400 kB
Node 0 HugePages_Total:   0
"""


@pytest.mark.parametrize(("kind", "name", "_field", "nodes"), expected("numa_nodes"))
def test_captured_nodes(kind: str, name: str, _field: str, nodes: list[dict[str, object]]) -> None:
    """Numbers, online CPUs, sizes and GPU memory of every captured machine."""
    facts = collect(captured(kind, name))
    assert [node.id for node in facts.nodes] == [node["id"] for node in nodes]
    assert [str(node.cpus) for node in facts.nodes] == [node["cpus"] for node in nodes]
    assert [node.gpu_memory for node in facts.nodes] == [node.get("kind") == "gpu-memory" for node in nodes]
    for node, known in zip(facts.nodes, nodes, strict=True):
        assert known["memory_bytes"] in (None, node.mem_total_bytes)


@pytest.mark.parametrize(("kind", "name", "field", "value"), expected("distances", "allowed_nodes"))
def test_captured_distances_and_restrictions(kind: str, name: str, field: str, value: object) -> None:
    """The kernel's distance matrix, and the nodes that the cpuset leaves."""
    facts = collect(captured(kind, name))
    read = {"distances": [list(node.distances or ()) for node in facts.nodes], "allowed_nodes": str(facts.allowed_nodes)}
    assert read[field] == value


@pytest.mark.parametrize(("kind", "name"), every_machine())
def test_captured_facts_survive_json(kind: str, name: str) -> None:
    """A machine with nodes reads back from its JSON; one without says why there are none."""
    host = captured(kind, name)
    if not host.glob(f"{NODE}[0-9]*"):
        with pytest.raises(Missing, match="node"):
            collect(host)
        return
    facts = collect(host)
    assert from_json(to_json(facts), Numa) == facts
    assert {"id", "cpus", "mem_total_bytes"} <= set(plain(facts)["nodes"][0])


def test_unread_balancing_is_unknown_not_off(machine: MakeMachine) -> None:
    """Without numa_balancing in /proc we say None, and say which file was absent."""
    host = machine({f"{NODE}0/cpulist": "0"})
    assert collect(host).balancing is None
    assert BALANCING in [source.path for source in host.sources if source.error]


def test_balancing_modes(machine: MakeMachine) -> None:
    """2 is memory tiering: a number, no truth value."""
    assert collect(machine({f"{NODE}0/cpulist": "0", BALANCING: "2\n"})).balancing == 2


def test_no_nodes_is_missing(machine: MakeMachine) -> None:
    """A kernel without NUMA support shows no node folder."""
    with pytest.raises(Missing, match="NUMA"):
        collect(machine({ONLINE: "0"}))


def test_nodes_are_in_the_order_of_numbers(machine: MakeMachine) -> None:
    """node10 comes after node9, and numbers may have gaps; what only looks like a node is none."""
    files: Files = {f"{NODE}{number}/cpulist": "" for number in (10, 9, 255)}
    facts = collect(machine({**files, f"{NODE}0x/cpulist": "0", f"{NODE}99999999/cpulist": "0"}))
    assert [node.id for node in facts.nodes] == [9, 10, 255]


def test_cpus_are_cut_to_those_online(machine: MakeMachine) -> None:
    """A node lists CPUs that are gone."""
    facts = collect(machine({f"{NODE}0/cpumap": "ff", ONLINE: "0-3"}))
    assert str(facts.nodes[0].cpus) == "0-3"


def test_memory_only_nodes_are_no_place_to_run(machine: MakeMachine) -> None:
    """CXL or HBM: a node without CPUs, and one without memory, are not counted as nodes to run on."""
    files = {f"{NODE}0/cpulist": "0-3", f"{NODE}1/cpulist": "", f"{NODE}2/cpulist": "4-7", f"{NODE}2/meminfo": "Node 2 MemTotal: 0 kB"}
    facts = collect(machine({**files, f"{NODE}0/meminfo": MEMINFO, f"{NODE}1/meminfo": MEMINFO.replace("Node 0", "Node 1")}))
    assert facts.nodes_with_cpus == 1


def test_gpu_memory_is_marked(machine: MakeMachine) -> None:
    """POWER9 and Grace Hopper show a GPU's memory as a node."""
    files = {
        f"{NODE}0/cpulist": "0",
        f"{NODE}8/cpulist": "",
        "/proc/driver/nvidia/gpus/0000:01:00.0/numa_status": "Node:      8\nStatus: online\n",
    }
    assert [node.gpu_memory for node in collect(machine(files)).nodes] == [False, True]


def test_available_memory_counts_file_cache(machine: MakeMachine) -> None:
    """File cache gives way when a program wants memory of that node; anonymous memory does not."""
    node = collect(machine({f"{NODE}0/meminfo": MEMINFO})).nodes[0]
    assert (node.mem_total_bytes, node.mem_free_bytes, node.mem_available_bytes) == (1000 << 10, 100 << 10, 600 << 10)


def test_unread_node_is_unknown(machine: MakeMachine) -> None:
    """Sizes, distances and CPUs that cannot be read are None, not 0 and not empty."""
    node = collect(machine({f"{NODE}0/meminfo": "Node 0 MemTotal: many", f"{NODE}0/distance": "10 far"})).nodes[0]
    assert (node.cpus, node.mem_total_bytes, node.mem_free_bytes, node.mem_available_bytes, node.distances) == (None,) * 5


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.sampled_from(
            [f"{NODE}0/cpulist", f"{NODE}1/cpumap", f"{NODE}1/meminfo", f"{NODE}0/distance", BALANCING, ONLINE, f"{NODE}{'9' * 30}/x"]
        ),
        st.one_of(
            st.binary(max_size=50), st.sampled_from([b"0-3", b"ff", b"10 20", MEMINFO.encode(), b"Node 1 MemTotal: 999999999999999999 PB"])
        ),
    )
)
def test_any_content_is_survived(files: dict[str, bytes]) -> None:
    """Whatever the files hold, collecting gives facts that are JSON, or says that there are no nodes."""
    try:
        facts = collect(Host("/test-machine", tree=Dict(dict(files))))
    except Missing:
        return
    assert facts.nodes
    assert to_json(facts)
