"""From the kernel's files to a placement: what is read of a machine, and what ranks get there."""

from __future__ import annotations

from pathlib import Path

import pytest

from sysperf.engine import wrap as wrapping
from sysperf.evaluate.ruleset import Ruleset
from sysperf.host import Host
from sysperf.launch.placement import Placement
from sysperf.model.cpuset import CpuSet
from tests.conftest import Files, MakeMachine

CPU, NODE = "/sys/devices/system/cpu", "/sys/devices/system/node"


@pytest.fixture(autouse=True)
def _no_site_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def files(count: int, packages: list[str], nodes: dict[int, tuple[str, str]], **other: str) -> Files:
    """A machine of single-threaded cores; `nodes` are (CPUs, distances)."""
    content: Files = {f"{CPU}/online": f"0-{count - 1}\n", "/proc/self/status": f"Cpus_allowed_list:\t0-{count - 1}\n"}
    for number, text in enumerate(packages):
        for cpu in CpuSet.parse(text):
            topology = f"{CPU}/cpu{cpu}/topology"
            content[f"{topology}/core_cpus_list"] = f"{cpu}\n"
            content[f"{topology}/package_cpus_list"] = f"{text}\n"
            content[f"{topology}/physical_package_id"] = f"{number}\n"
    for number, (text, distances) in nodes.items():
        content[f"{NODE}/node{number}/cpulist"] = f"{text}\n"
        content[f"{NODE}/node{number}/distance"] = f"{distances}\n"
        content[f"{NODE}/node{number}/meminfo"] = f"Node {number} MemTotal:  1000000 kB\nNode {number} MemFree:  500000 kB\n"
    return {**content, **{path.replace("__", "/"): text for path, text in other.items()}}


def placed(machine: MakeMachine, content: Files, size: int, **env: str) -> list[Placement]:
    """What each rank gets."""
    placements = []
    for rank in range(size):
        ranks = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)} if size > 1 else {}
        request = wrapping.LaunchRequest(argv=("python", "train.py"))
        placements.append(wrapping.wrap(machine(content), wrapping.rules(), request, {**ranks, **env}, "/").placement)
    return placements


ROUND_ROBIN = files(
    16,
    ["0-3,8-11", "4-7,12-15"],
    {0: ("0-3", "10 21 11 21"), 1: ("4-7", "21 10 21 11"), 2: ("8-11", "11 21 10 21"), 3: ("12-15", "21 11 21 10")},
)


def test_nodes_numbered_round_robin_over_sockets(machine: MakeMachine) -> None:
    """SNC2 with nodes 0 and 2 on the first socket: two ranks take a socket each, four a node each, in the order of the sockets."""
    two, four = placed(machine, ROUND_ROBIN, 2), placed(machine, ROUND_ROBIN, 4)

    assert [str(share.cpus) for share in two] == ["0-3,8-11", "4-7,12-15"]
    assert [str(share.memory_nodes) for share in two] == ["0,2", "1,3"]
    assert [str(share.cpus) for share in four] == ["0-3", "8-11", "4-7", "12-15"]


@pytest.mark.parametrize("missing", ["distance", "package"])
def test_either_of_distances_and_packages_is_enough(machine: MakeMachine, missing: str) -> None:
    """Firmware without the one, kernels without the other."""
    content = {path: text for path, text in ROUND_ROBIN.items() if missing not in path}

    assert [str(share.cpus) for share in placed(machine, content, 2)] == ["0-3,8-11", "4-7,12-15"]


def test_sockets_of_even_and_odd_cpus_in_one_node(machine: MakeMachine) -> None:
    """No caches are described."""
    content = files(8, ["0,2,4,6", "1,3,5,7"], {0: ("0-7", "10")})

    assert [str(share.cpus) for share in placed(machine, content, 2)] == ["0,2,4,6", "1,3,5,7"]


def test_one_thread_on_two_nodes(machine: MakeMachine) -> None:
    """OMP_NUM_THREADS=1 binds nothing; memory comes from the node with most to spare first."""
    (placement,) = placed(machine, ROUND_ROBIN, 1, OMP_NUM_THREADS="1")

    assert (placement.target, str(placement.cpus), len(placement.memory_nodes)) == ("", "0-15", 1)


def hybrid(capacity: int) -> Files:
    """Four cores of a capable design and four of another one."""
    kinds = {f"{CPU}/cpu{cpu}/cpu_capacity": f"{1024 if cpu < 4 else capacity}\n" for cpu in range(8)}
    parts = "".join(
        f"processor\t: {cpu}\nCPU implementer\t: 0x41\nCPU part\t: {'0xd8' if cpu < 4 else '0xd4'}{cpu // 4}\n\n" for cpu in range(8)
    )
    return {**files(8, ["0-7"], {0: ("0-7", "10")}), **kinds, "/proc/cpuinfo": parts}


@pytest.mark.parametrize(("capacity", "threads"), [(1024, 8), (737, 8), (400, 4)])
def test_slow_cores_compute_by_their_capacity(machine: MakeMachine, capacity: int, threads: int) -> None:
    """Equal capacity is equal, whatever the frequency; 0.72 of it gains with all eight; 0.39 does not."""
    (placement,) = placed(machine, hybrid(capacity), 1)

    assert placement.threads == threads


def test_tickless_cpus_are_left_out(machine: MakeMachine) -> None:
    """nohz_full beside others: kept for what names them."""
    content = {**files(8, ["0-7"], {0: ("0-7", "10")}), f"{CPU}/nohz_full": "4-7\n"}
    (placement,) = placed(machine, content, 1)

    assert placement.threads == 4
    assert "nohz_full" in placement.notes[0]


def test_ranks_end_where_an_l2_cache_ends(machine: MakeMachine) -> None:
    """Seven cores, two to a cache: four and three, not three and four."""
    content = files(7, ["0-6"], {0: ("0-6", "10")})
    for cpu in range(7):
        index = f"{CPU}/cpu{cpu}/cache/index2"
        mates = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}" if cpu < 6 else "6"
        content |= {f"{index}/level": "2\n", f"{index}/type": "Unified\n", f"{index}/shared_cpu_list": f"{mates}\n"}

    assert [str(share.cpus) for share in placed(machine, content, 2)] == ["0-3", "4-6"]


@pytest.mark.parametrize("name", ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"])
def test_gpus_of_other_makers_are_said_not_to_be_read(machine: MakeMachine, name: str) -> None:
    """Where it is beside one of several nodes, the note says what is not known."""
    (placement,) = placed(machine, ROUND_ROBIN, 1, **{name: "1"})

    assert placement.target == ""
    assert f"{name} is not read" in placement.notes[0]


def test_a_site_s_rule_looks_at_the_words_of_a_command_that_is_only_started(tmp_path: Path) -> None:
    """They are redacted for whoever reads them: a report, or a rule. Ours look at what the words mean."""
    site = tmp_path / "site.toml"
    site.write_text(
        '[[rule]]\nid = "launch.site-debug"\ntitle = "T"\nscope = "launch"\nseverity = "warning"\nwhen = "\'--debug\' in launch.command"\n'
        'message = "{launch.command|list}"\nexplain = "E"\n'
    )
    request = wrapping.LaunchRequest(argv=("python", "train.py", "--debug", "--token", "abcdefgh"))

    def started(ruleset: Ruleset, *, reported: bool) -> wrapping.Decision:
        return wrapping.wrap(Host(), ruleset, request, {}, "/", reported=reported)

    assert started(wrapping.rules(), reported=False).launch.command == ()
    assert started(wrapping.rules(), reported=True).launch.command[:3] == ("python", "train.py", "--debug")
    decision = started(wrapping.rules([site]), reported=False)
    assert "abcdefgh" not in decision.launch.command
    assert [outcome.state for outcome in decision.outcomes if outcome.rule == "launch.site-debug"] == ["finding"]
