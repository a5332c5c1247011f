"""`sysperf wrap` on machines with several memory nodes: where programs run, and on which node their memory really is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from sysperf.model.cpuset import CpuSet
from tests.numa.machine import Done, Machine, Node

pytestmark = [pytest.mark.numa, pytest.mark.timeout(1_000)]

TOUCH = """
import json, os, re
block = bytearray(64 << 20)
for at in range(0, len(block), 4096):
    block[at] = 1
pages, policies = {}, {}
for line in open("/proc/self/numa_maps"):
    if "anon=" in line:
        policy = re.match(r"\\S+ (.*?) (?:anon|file|heap|stack|mapped)", line)[1]
        for node, count in re.findall(r" N(\\d+)=(\\d+)", line):
            pages[node] = pages.get(node, 0) + int(count)
            policies[policy] = policies.get(policy, 0) + int(count)
print(json.dumps({
    "cpus": sorted(os.sched_getaffinity(0)),
    "pages": pages,
    "policy": max(policies, key=policies.get),
    "threads": os.environ.get("OMP_NUM_THREADS"),
}))
"""
HOLD = """
import sys, time
block = bytearray(int(sys.argv[1]) << 20)
for at in range(0, len(block), 4096):
    block[at] = 1
open("/tmp/held", "w").close()
time.sleep(600)
"""
# As a PyTorch program looks to others: libtorch is mapped.
PRETEND = "import mmap; lib = open('/tmp/torch/lib/libtorch_cpu.so', 'rb'); kept = mmap.mmap(lib.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE)\n"
INTERLEAVE = """
schema = 1
[[rule]]
id = "site.spread"
title = "Memory of programs that need several nodes is spread evenly"
scope = "launch"
severity = "info"
confidence = "medium"
applies = "numa.nodes_with_cpus > 1"
when = "launch.target == '' and len(launch.nodes) > 1"
message = "Memory over nodes {launch.nodes}."
explain = "This site's programs share what they read."
refs = ["https://docs.kernel.org/admin-guide/mm/numa_memory_policy.html"]
impact = { metric = "step time", basis = "opinion" }
fix = [{ kind = "bind", to = "memory-interleave", safety = "safe", title = "interleave" }]
test = [
  { name = "two", expect = "fire", given = { numa = { nodes_with_cpus = 2 }, launch = { target = "", nodes = "0-1" } } },
  { name = "bound", expect = "pass", given = { numa = { nodes_with_cpus = 2 }, launch = { target = "node", nodes = "0" } } },
  { name = "?", expect = "unknown", given = { numa = { nodes_with_cpus = 2 }, launch = { target = "" } } },
]
"""
FILES = {"touch.py": TOUCH, "hold.py": HOLD, "pretend.py": PRETEND + HOLD, "interleave.toml": INTERLEAVE}
PROGRAM = "python /run/job/touch.py"
GROUPS = (
    "cd /sys/fs/cgroup; echo '+cpu +cpuset +memory' >cgroup.subtree_control; mkdir -p {name}; {settings}; echo $$ >{name}/cgroup.procs; "
)


def full(node: int, megabytes: int, line: str, program: str = "hold.py", policy: str = "--membind") -> str:
    """A shell line that runs while another program holds much of a node's memory."""
    start = f"numactl {policy}={node} python /run/job/{program} {megabytes} & while [ ! -e /tmp/held ]; do sleep 0.1; done; "
    return f"{start}{line}; code=$?; kill %1 2>/dev/null || kill $!; wait $! 2>/dev/null; rm -f /tmp/held; exit $code"


def group(name: str, settings: Mapping[str, str], line: str) -> str:
    """A shell line inside a control group of its own."""
    return GROUPS.format(name=name, settings="; ".join(f"echo {value} >{name}/{key}" for key, value in settings.items()) or ":") + line


RANK = "LOCAL_RANK={rank} LOCAL_WORLD_SIZE=2 "
COMMANDS = {
    "plain": PROGRAM,
    "fits": f"sysperf wrap --threads 2 -- {PROGRAM}",
    "node 0 is full": full(0, 350, f"sysperf wrap --threads 2 -- {PROGRAM}"),
    "node 1 is full": full(1, 350, f"sysperf wrap --threads 2 -- {PROGRAM}"),
    "needs 500M": full(1, 350, f"sysperf wrap --threads 2 --memory 500M -- {PROGRAM}"),
    "needs both": f"sysperf wrap -- {PROGRAM}",
    "interleaved": f"sysperf wrap --rules /run/job/interleave.toml -- {PROGRAM}",
    "node 1": f"sysperf wrap --node 1 -- {PROGRAM}",
    "node 1 by line": f'line=$(sysperf wrap --node 1 --print -- {PROGRAM}) && echo "$line" >&2 && eval "$line"',
    "strict": f"sysperf wrap --node 1 --strict-memory -- {PROGRAM}",
    "strict by line": f'line=$(sysperf wrap --node 1 --strict-memory --print -- {PROGRAM}) && echo "$line" >&2 && eval "$line"',
    "strict, does not fit": f"sysperf wrap --node 1 --strict-memory --memory 4G -- {PROGRAM}",
    "strict, no room": full(1, 500, f"sysperf wrap --node 1 --strict-memory -- {PROGRAM}"),
    "no such node": f"sysperf wrap --node 2 -- {PROGRAM}",
    "instances": f"sysperf wrap --nproc 2 -- {PROGRAM}",
    "rank 0": RANK.format(rank=0) + f"sysperf wrap -- {PROGRAM}",
    "rank 1": RANK.format(rank=1) + f"sysperf wrap -- {PROGRAM}",
    "twice": f"sysperf wrap --threads 2 -- sysperf wrap -- {PROGRAM}",
    "numactl outside": f"numactl --cpunodebind=1 sysperf wrap -- {PROGRAM}",
    "policy outside": f"numactl --interleave=all sysperf wrap --threads 2 -- {PROGRAM}",
    "numactl inside": f"sysperf wrap --threads 2 -- numactl --cpunodebind=0 --membind=1 {PROGRAM}",
    "facts": "sysperf facts --format json numa",
    "audit": "sysperf audit --format json",
    "audit, balancing off": "echo 0 >/proc/sys/kernel/numa_balancing; sysperf audit --format json; echo 1 >/proc/sys/kernel/numa_balancing",
    "audit beside strict": "mkdir -p /tmp/torch/lib; head -c 4096 /dev/zero >/tmp/torch/lib/libtorch_cpu.so; echo \"__version__ = '2.13.0+cpu'\" >/tmp/torch/version.py; "
    + full(0, 610, "sysperf audit --format json", "pretend.py"),
    "audit beside preferred": full(0, 610, "sysperf audit --format json", "pretend.py", "--preferred-many"),
    "partition": "cd /sys/fs/cgroup; echo '+cpuset' >cgroup.subtree_control; mkdir part; echo 2-3 >part/cpuset.cpus; echo root >part/cpuset.cpus.partition; "
    f"cat part/cpuset.cpus.partition >&2; sysperf wrap -- {PROGRAM}; code=$?; rmdir part; exit $code",
    "half a CPU": group("half", {"cpu.max": "'50000 100000'"}, f"sysperf wrap -- {PROGRAM}"),
    "1.5 CPUs": group("more", {"cpu.max": "'150000 100000'"}, f"sysperf wrap -- {PROGRAM}"),
    "quota": group("more", {}, "sysperf facts --format json cgroup"),
    "ranks under a quota": group("more", {}, f"{RANK.format(rank=1)} sysperf wrap -- {PROGRAM}"),
    "cpuset": group("second", {"cpuset.cpus": "2-3"}, f"sysperf wrap -- {PROGRAM}"),
    "cpuset across": group("across", {"cpuset.cpus": "1-2"}, f"sysperf wrap --nproc 2 -- {PROGRAM}"),
    "memory of node 0 only": group("mems", {"cpuset.mems": "0"}, f"sysperf wrap --threads 2 -- {PROGRAM}"),
    "CPUs and memory apart": group("apart", {"cpuset.cpus": "2-3", "cpuset.mems": "0"}, f"sysperf wrap -- {PROGRAM}"),
}


@pytest.fixture(scope="module")
def seen() -> dict[str, Done]:
    """What each command did on a machine with two nodes of two CPUs."""
    return Machine().shell(COMMANDS, files=FILES, timeout_s=900)


def placed(done: Done) -> dict[str, Any]:
    """What the program saw of itself."""
    assert done.rc == 0, done.err
    placement: dict[str, Any] = done.json
    return placement


def home(placement: Mapping[str, Any]) -> str:
    """The node that has 99 % of the program's memory, else nothing."""
    pages = placement["pages"]
    return next((node for node in pages if pages[node] > 0.99 * sum(pages.values())), "")


def on_node(placement: Mapping[str, Any], node: int) -> bool:
    """Whether it may run only on this node's CPUs, and has its memory there."""
    return placement["cpus"] == [2 * node, 2 * node + 1] and home(placement) == str(node)


def threads(placement: Mapping[str, Any]) -> int:
    """How many PyTorch would start: as told, else one a CPU."""
    return int(placement["threads"] or len(placement["cpus"]))


def state(done: Done, rule: str) -> str:
    """What an audit says of a rule: the first of its outcomes."""
    report = json.loads(done.out)
    return next((outcome["state"] for outcome in report["outcomes"] if outcome["rule"] == rule), "silent")


# ---------------------------------------------------------------------- one program


def test_without_wrap_a_program_may_run_anywhere(seen: dict[str, Done]) -> None:
    """What the others are compared with."""
    placement = placed(seen["plain"])
    assert (placement["cpus"], placement["policy"]) == ([0, 1, 2, 3], "default")


def test_a_program_with_few_threads_keeps_its_cpus_and_has_its_memory_on_a_node(seen: dict[str, Done]) -> None:
    """Two threads say nothing about loader workers: all CPUs stay, and all 64 MiB are on one node."""
    placement = placed(seen["fits"])
    assert placement["cpus"] == [0, 1, 2, 3]
    assert home(placement) in ("0", "1")


@pytest.mark.parametrize(("taken", "free"), [(0, 1), (1, 0)])
def test_the_node_with_more_memory_to_spare_is_chosen(seen: dict[str, Done], taken: int, free: int) -> None:
    """Another program holds half of the other."""
    assert home(placed(seen[f"node {taken} is full"])) == str(free)


def test_a_node_without_room_for_what_is_needed_is_not_chosen(seen: dict[str, Done]) -> None:
    assert home(placed(seen["needs 500M"])) == "0"


def test_a_program_that_needs_both_nodes_keeps_them(seen: dict[str, Done]) -> None:
    """Nothing is bound, and that is said."""
    placement = placed(seen["needs both"])
    assert (placement["cpus"], placement["policy"]) == ([0, 1, 2, 3], "default")
    assert "need more than one of 2 nodes" in seen["needs both"].err


def test_a_sites_rule_may_interleave(seen: dict[str, Done]) -> None:
    """Half of the pages on each node."""
    placement = placed(seen["interleaved"])
    assert placement["policy"] == "interleave:0-1"
    assert 0.4 < placement["pages"]["0"] / sum(placement["pages"].values()) < 0.6


def test_a_node_asked_for(seen: dict[str, Done]) -> None:
    assert on_node(placed(seen["node 1"]), 1)
    assert seen["no such node"].rc == 2
    assert "nodes with CPUs are 0-1" in seen["no such node"].err


@pytest.mark.parametrize("how", ["node 1", "strict"])
def test_the_printed_line_does_the_same(seen: dict[str, Done], how: str) -> None:
    """It names numactl, and numactl gives the same CPUs, policy and pages."""
    ours, theirs = placed(seen[how]), placed(seen[f"{how} by line"])
    assert "numactl" in seen[f"{how} by line"].err
    assert on_node(theirs, 1)
    assert {**ours, "pages": {}, "policy": ours["policy"].replace(" (many)", "")} == {**theirs, "pages": {}}


# ---------------------------------------------------------------------- strict memory


def test_strict_memory(seen: dict[str, Done]) -> None:
    placement = placed(seen["strict"])
    assert on_node(placement, 1)
    assert placement["policy"] == "bind:1"


def test_strict_memory_that_does_not_fit_is_refused(seen: dict[str, Done]) -> None:
    """Not started; what would work is said."""
    refused = seen["strict, does not fit"]
    assert (refused.rc, refused.out) == (2, "")
    assert "4.0 GiB does not fit on node 1" in refused.err
    assert "leave out --strict-memory" in refused.err


def test_strict_memory_on_a_node_without_room_is_refused(seen: dict[str, Done]) -> None:
    """Nobody said how much is needed; what is left there is too little for any PyTorch program."""
    refused = seen["strict, no room"]
    assert (refused.rc, refused.out) == (2, "")
    assert "does not fit on node 1, which has" in refused.err
    assert "--memory" in refused.err


# ---------------------------------------------------------------------- several


def test_instances_take_a_node_each(seen: dict[str, Done]) -> None:
    done = seen["instances"]
    assert done.rc == 0, done.err
    lines = dict(line[1:].split("] ", 1) for line in done.out.splitlines())
    for number in range(2):
        assert on_node(json.loads(lines[str(number)]), number)


def test_ranks_of_a_launcher_take_a_node_each(seen: dict[str, Done]) -> None:
    for number in range(2):
        placement = placed(seen[f"rank {number}"])
        assert on_node(placement, number)
        assert threads(placement) == 2


# ---------------------------------------------------------------------- what others decided


def test_wrapped_twice_is_wrapped_once(seen: dict[str, Done]) -> None:
    """The inner one changes nothing: CPUs and memory are those that the outer one gave."""
    twice = placed(seen["twice"])
    assert home(twice) in ("0", "1")
    assert twice["threads"] == "2"
    outer, inner = seen["twice"].err.splitlines()
    assert f"memory of node {home(twice)}" in outer
    assert "placed it already" in inner


def test_cpus_of_an_outer_numactl_stay(seen: dict[str, Done]) -> None:
    assert on_node(placed(seen["numactl outside"]), 1)


def test_a_memory_policy_of_an_outer_numactl_stays(seen: dict[str, Done]) -> None:
    """The policy is kept, and that is said."""
    placement = placed(seen["policy outside"])
    assert placement["policy"] == "interleave:0-1"
    assert "kept" in seen["policy outside"].err


def test_numactl_in_the_command_decides(seen: dict[str, Done]) -> None:
    placement = placed(seen["numactl inside"])
    assert (placement["cpus"], placement["policy"], home(placement)) == ([0, 1], "bind:1", "1")


# ---------------------------------------------------------------------- the audit there


def test_the_facts_of_the_nodes(seen: dict[str, Done]) -> None:
    """CPUs, sizes and distances as QEMU was told."""
    numa = json.loads(seen["facts"].out)["areas"]["numa"]["facts"]
    assert [(node["id"], node["cpus"], node["distances"]) for node in numa["nodes"]] == [(0, "0-1", [10, 21]), (1, "2-3", [21, 10])]
    assert all(600 << 20 < node["mem_available_bytes"] < node["mem_total_bytes"] < 768 << 20 for node in numa["nodes"])
    assert (numa["nodes_with_cpus"], numa["balancing"], numa["allowed_nodes"]) == (2, 1, "0-1")


def test_balancing_is_found_when_it_is_on(seen: dict[str, Done]) -> None:
    assert state(seen["audit"], "numa.balancing-on") == "finding"
    assert state(seen["audit, balancing off"], "numa.balancing-on") != "finding"


def test_a_strictly_bound_program_on_a_full_node_is_found(seen: dict[str, Done]) -> None:
    """One that only prefers the node is not: it goes on elsewhere."""
    assert state(seen["audit beside strict"], "numa.membind-oom-risk") == "finding", seen["audit beside strict"].err
    assert state(seen["audit beside preferred"], "numa.membind-oom-risk") != "finding"
    policies = [
        process["memory"]["policy"]
        for name in ("audit beside strict", "audit beside preferred")
        for process in json.loads(seen[name].out)["snapshot"]["areas"]["process"]["facts"]["processes"]
    ]
    assert policies == ["bind:0", "prefer (many):0"]


# ---------------------------------------------------------------------- control groups, version 2


@pytest.mark.parametrize(("name", "expected"), [("half a CPU", 1), ("1.5 CPUs", 2)])
def test_threads_follow_the_quota(seen: dict[str, Done], name: str, expected: int) -> None:
    """And their memory is on one node."""
    placement = placed(seen[name])
    assert threads(placement) == expected
    assert home(placement) in ("0", "1")


def test_ranks_share_the_quota(seen: dict[str, Done]) -> None:
    placement = placed(seen["ranks under a quota"])
    assert placement["threads"] == "1"
    assert on_node(placement, 1)


def test_the_facts_of_a_group(seen: dict[str, Done]) -> None:
    cgroup = json.loads(seen["quota"].out)["areas"]["cgroup"]["facts"]
    assert (cgroup["version"], cgroup["path"], cgroup["cpu_quota"], cgroup["cpuset"]) == (2, "/more", 1.5, "0-3")


def test_a_cpuset_is_never_left(seen: dict[str, Done]) -> None:
    """On one node: memory near. Across two: each instance has its CPU and that CPU's memory."""
    assert on_node(placed(seen["cpuset"]), 1)
    placements = [json.loads(line[4:]) for line in sorted(seen["cpuset across"].out.splitlines())]
    assert [(rank["cpus"], home(rank)) for rank in placements] == [([1], "0"), ([2], "1")]


def test_memory_that_the_cpuset_forbids_is_not_asked_for(seen: dict[str, Done]) -> None:
    """Its memory may come from node 0 only: there it runs when it may, and nothing fails when it may not."""
    placement, apart = placed(seen["memory of node 0 only"]), placed(seen["CPUs and memory apart"])
    assert home(placement) == "0"
    assert placement["cpus"] in ([0, 1], [0, 1, 2, 3])
    assert (apart["cpus"], home(apart)) == ([2, 3], "0")
    assert "warning" not in seen["CPUs and memory apart"].err


def test_cpus_that_a_partition_took_away(seen: dict[str, Done]) -> None:
    """A cpuset partition takes its CPUs from everybody else."""
    assert seen["partition"].err.startswith("root\n")
    assert placed(seen["partition"])["cpus"] == [0, 1]


# ---------------------------------------------------------------------- other shapes

# The device beside the second node, with the firmware's place and NVIDIA's name.
GPU = """
device=$(realpath /sys/bus/pci/devices/0000:41:00.0)
mkdir -p /tmp/gpu
for name in device numa_node local_cpulist local_cpus; do cat $device/$name >/tmp/gpu/$name; done
echo 0x10de >/tmp/gpu/vendor; echo 0x030200 >/tmp/gpu/class; ln -sfn ../nvidia /tmp/gpu/driver
mount --bind /tmp/gpu $device
"""


@pytest.fixture(scope="module")
def large() -> dict[str, Done]:
    """Two nodes of two cores with two threads each, a larger node of memory alone, and a device beside the second node."""
    machine = Machine((Node(4), Node(4), Node(0, memory_mb=1024)), threads_per_core=2, devices=((1, "e1000e"),))
    return machine.shell(
        {
            "fits": f"sysperf wrap --threads 2 -- {PROGRAM}",
            "needs 900M": f"sysperf wrap --threads 2 --memory 900M --json -- {PROGRAM}",
            "memory alone": f"sysperf wrap --node 2 -- {PROGRAM}",
            "rank 1": RANK.format(rank=1) + f"sysperf wrap -- {PROGRAM}",
            "instances": f"sysperf wrap --nproc 4 -- {PROGRAM}",
            "facts": "sysperf facts --format json cpu numa pcie",
            "without GPU": f"sysperf wrap -- {PROGRAM}",
            "with GPU": f"{GPU} sysperf wrap -- {PROGRAM}",
        },
        files=FILES,
        timeout_s=900,
    )


def test_a_node_without_cpus_is_never_bound_to(large: dict[str, Done]) -> None:
    """Though it has the most memory. Asked for, it is refused."""
    placement = placed(large["fits"])
    assert home(placement) in ("0", "1")
    assert CpuSet(placement["cpus"]) == CpuSet(range(8))
    assert not large["needs 900M"].json["plan"]["memory_nodes"]
    assert large["memory alone"].rc == 2
    assert "nodes with CPUs are 0-1" in large["memory alone"].err


def test_threads_are_cores_and_siblings_stay_in_the_mask(large: dict[str, Done]) -> None:
    """A rank gets the four CPUs of its node, and two threads."""
    placement = placed(large["rank 1"])
    assert (placement["cpus"], placement["threads"], home(placement)) == ([4, 5, 6, 7], "2", "1")


def test_four_instances_take_a_core_each(large: dict[str, Done]) -> None:
    """Both threads of one core, memory of its node."""
    placements = [json.loads(line[4:]) for line in sorted(large["instances"].out.splitlines())]
    assert [(rank["cpus"], rank["threads"], home(rank)) for rank in placements] == [
        ([0, 1], "1", "0"),
        ([2, 3], "1", "0"),
        ([4, 5], "1", "1"),
        ([6, 7], "1", "1"),
    ]


def test_the_facts_of_such_a_machine(large: dict[str, Done]) -> None:
    areas = json.loads(large["facts"].out)["areas"]
    numa, (device,) = areas["numa"]["facts"], areas["pcie"]["facts"]["devices"]
    assert [node["cpus"] for node in numa["nodes"]] == ["0-3", "4-7", ""]
    assert numa["nodes_with_cpus"] == 2
    assert (areas["cpu"]["facts"]["threads_per_core"], areas["cpu"]["facts"]["packages"]) == (2, 2)
    assert (device["address"], device["numa_node"], device["local_cpus"]) == ("0000:41:00.0", 1, "4-7")


def test_a_program_runs_beside_its_gpu(large: dict[str, Done]) -> None:
    """Where that is, the firmware says; only the device's maker and class are pretended. Without a GPU the program keeps all nodes."""
    placement = placed(large["with GPU"])
    assert (placement["cpus"], home(placement)) == ([4, 5, 6, 7], "1")
    assert placed(large["without GPU"])["cpus"] == list(range(8))
