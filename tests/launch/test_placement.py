"""Placement, a pure function: which CPUs, which memory, how many threads."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.launch.cores import CoreMap, _ranks_on_fast
from sysperf.launch.gpus import PlacedGpu, VisibleGpus
from sysperf.launch.machine import CoreKind, Machine, MemoryNode
from sysperf.launch.placement import Placement, Refused, RequestedPlacement, place
from sysperf.launch.ranks import Ranks
from sysperf.model.cpuset import CpuSet

GIB = 1 << 30


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def one_node(count: int = 8, **other: Any) -> Machine:
    every = CpuSet(range(count))
    return Machine(**{"allowed": every, "online": every, "nodes": (MemoryNode(0, every),), "quota": 0.0, **other})


def two_nodes(**other: Any) -> Machine:
    """Two sockets of 8 cores with two threads each: node 0 has 0-7,16-23, node 1 has 8-15,24-31."""
    every = CpuSet(range(32))
    nodes = (MemoryNode(0, cpus("0-7,16-23"), 10 * GIB), MemoryNode(1, cpus("8-15,24-31"), 20 * GIB))
    cores = tuple(CpuSet([cpu, cpu + 16]) for cpu in range(16))
    return Machine(**{"allowed": every, "online": every, "cores": cores, "nodes": nodes, "quota": 0.0, **other})


EIGHT_GPUS = tuple(PlacedGpu(f"0000:{bus:02x}:00.0", index // 4) for index, bus in enumerate(range(16, 24)))
GPUS = VisibleGpus(EIGHT_GPUS, EIGHT_GPUS)


def put(machine: Machine, ranks: Ranks | None = None, gpus: VisibleGpus | None = None, **wishes: Any) -> Placement:
    return place(machine, ranks or Ranks(), gpus or VisibleGpus(), RequestedPlacement(**wishes))


def rank(number: int, size: int | None, **other: Any) -> Ranks:
    return Ranks("torchrun", number, size, **other)


# ---------------------------------------------------------------------- one process


def test_a_plain_machine_is_left_alone() -> None:
    """One node, cores alike: all CPUs, a thread a core, no policy."""
    share = put(one_node())

    assert (share.cpus, share.target, share.memory_nodes, share.threads) == (CpuSet(range(8)), "", CpuSet(), 8)


@pytest.mark.parametrize(("quota", "threads"), [(0.1, 1), (0.5, 1), (1.0, 1), (1.5, 2), (2.0, 2), (7.2, 8), (64.0, 8), (0.0, 8), (None, 8)])
def test_threads_are_the_quota_rounded_up(quota: float | None, threads: int) -> None:
    """Never the CPUs of the host: 1 for half a CPU, 2 for 1.5; an unknown quota cuts nothing."""
    assert put(one_node(quota=quota)).threads == threads


def test_siblings_stay_in_the_mask_and_compute_nothing() -> None:
    """One compute thread a physical core, all hardware threads for workers."""
    share = put(two_nodes(allowed=cpus("0-7,16-23")))

    assert (share.cpus, share.threads) == (cpus("0-7,16-23"), 8)


def test_performance_cores_compute_and_all_stay_in_the_mask() -> None:
    """Hybrid: six P cores with two threads (0-11) and eight E cores (12-19)."""
    cores = (*(CpuSet([cpu, cpu + 1]) for cpu in range(0, 12, 2)), *(CpuSet([cpu]) for cpu in range(12, 20)))
    machine = one_node(20, cores=cores, performance=cpus("0-11"))

    assert (put(machine).threads, put(machine).cpus) == (6, cpus("0-19"))
    assert put(msgspec_replace(machine, allowed=cpus("12-19"))).threads == 8


def msgspec_replace(machine: Machine, **other: Any) -> Machine:
    return Machine(**{**{name: getattr(machine, name) for name in Machine.__struct_fields__}, **other})


@pytest.mark.parametrize("threads", [1, 4, 8])
def test_few_threads_keep_all_cpus_for_workers(threads: int) -> None:
    """OMP_NUM_THREADS=1 says nothing about loader workers: the mask stays, and the node with most memory to spare is preferred."""
    share = put(two_nodes(), threads=threads)

    assert (share.cpus, share.target, share.memory_nodes, share.threads) == (cpus("0-31"), "", CpuSet([1]), threads)
    assert "loader workers" in share.notes[0]


def test_a_quota_that_fits_binds_to_the_roomiest_node() -> None:
    """A quota of 4 CPUs is all that program and workers get together: the node with more memory to spare, and its memory first."""
    share = put(two_nodes(quota=4.0))

    assert (share.cpus, share.target, share.memory_nodes, share.threads) == (cpus("8-15,24-31"), "node", CpuSet([1]), 4)


def test_a_quota_makes_a_program_fit() -> None:
    """A quota of 3 CPUs needs 3 threads, and those fit on one node."""
    assert put(two_nodes(quota=2.5)).target == "node"


def test_a_program_that_needs_both_nodes_keeps_them_and_is_told() -> None:
    """Nothing is bound, no policy is set, and the way out is named."""
    share = put(two_nodes())

    assert (share.cpus, share.target, share.memory_nodes) == (CpuSet(range(32)), "", CpuSet())
    assert "--nproc 2" in share.notes[0]


def test_memory_that_only_one_node_has() -> None:
    """--memory chooses among the nodes; more than any has leaves everything alone, and memory is named as the reason."""
    machine = two_nodes(nodes=(MemoryNode(0, cpus("0-7,16-23"), 20 * GIB), MemoryNode(1, cpus("8-15,24-31"), 10 * GIB)))

    assert put(machine, threads=4, memory_bytes=15 * GIB).memory_nodes == CpuSet([0])
    assert put(machine, threads=4, memory_bytes=99 * GIB).target == ""
    assert put(machine, threads=4, memory_bytes=99 * GIB).notes[0].startswith("no node has that much memory")


def test_memory_only_nodes_are_never_bound_to() -> None:
    """CXL, HBM and a GPU's own memory have no CPUs; a node without memory of its own is no place for pages."""
    nodes = (MemoryNode(0, cpus("0-3"), GIB), MemoryNode(1, CpuSet(), 99 * GIB), MemoryNode(250, CpuSet(), 99 * GIB, gpu_memory=True))

    share = put(one_node(4, nodes=nodes), threads=2)
    assert (share.target, share.memory_nodes) == ("", CpuSet())


def test_a_node_whose_memory_the_cpuset_forbids() -> None:
    """Its CPUs may compute; its memory is not asked for."""
    placement = put(two_nodes(allowed_nodes=CpuSet([0])), threads=4)
    assert placement.memory_nodes != CpuSet([1])

    shares = [put(two_nodes(allowed_nodes=CpuSet([0])), rank(number, 2)) for number in range(2)]
    assert [share.memory_nodes for share in shares] == [CpuSet([0]), CpuSet()]
    assert CpuSet.union(share.cpus or CpuSet() for share in shares) == CpuSet(range(32))


def test_isolated_cpus_are_not_counted() -> None:
    """A mask that holds isolated CPUs beside others: threads stay off them; who is on them alone, or names them, gets them."""
    machine = two_nodes(isolated=cpus("4-15,20-31"))

    assert (put(machine).threads, put(machine).cpus, put(machine).target) == (4, CpuSet(range(32)), "")
    assert [str(put(machine, rank(number, 2)).cpus) for number in range(2)] == ["0-1,16-17", "2-3,18-19"]
    assert put(two_nodes(isolated=cpus("4-15,20-31"), allowed=cpus("8-11"))).threads == 4
    assert (put(machine, cpus=cpus("8-9")).threads, put(machine, node=1).memory_nodes) == (2, CpuSet([1]))


def test_nothing_known() -> None:
    """No /sys: no CPU list, no cores, no nodes. The mask decides, and without it nothing is bound."""
    assert put(Machine(allowed=cpus("0-1"), online=cpus("0-1"))).threads == 2
    assert put(Machine()).cpus is None
    assert put(Machine(online=cpus("0-3"))).cpus == cpus("0-3")


# ---------------------------------------------------------------------- GPUs


def test_the_gpus_node() -> None:
    """One visible GPU: the CPUs of its node, all of them, and its memory first."""
    share = put(two_nodes(), gpus=VisibleGpus(EIGHT_GPUS[5:6], EIGHT_GPUS))

    assert (share.cpus, share.target, share.memory_nodes, share.threads) == (cpus("8-15,24-31"), "gpu-node", CpuSet([1]), 8)


def test_gpus_on_several_nodes_bind_nothing() -> None:
    """One process that sees GPUs of both nodes may use any: it is told how to choose."""
    share = put(two_nodes(), gpus=GPUS)

    assert share.target == ""
    assert "CUDA_VISIBLE_DEVICES" in share.notes[0]


def test_a_torch_without_gpus_is_not_bound_to_one() -> None:
    """A CPU build cannot use them."""
    assert put(two_nodes(), gpus=VisibleGpus(EIGHT_GPUS[5:6], EIGHT_GPUS), uses_gpu=False).target == ""


def test_a_gpu_whose_node_nobody_knows() -> None:
    """Firmware that says -1: nothing is done, and that is said; CPUs beside it that are a node's are as good as its number."""
    unknown = VisibleGpus((PlacedGpu("0000:10:00.0"),), (PlacedGpu("0000:10:00.0"),))
    by_cpus = PlacedGpu("0000:10:00.0", None, cpus("8-15,24-31"))

    assert put(two_nodes(), gpus=unknown).target == ""
    assert "firmware" in put(two_nodes(), gpus=unknown).notes[0]
    assert put(two_nodes(), gpus=VisibleGpus((by_cpus,), (by_cpus,))).memory_nodes == CpuSet([1])


def test_gpus_that_cannot_be_told() -> None:
    """The reason is passed on."""
    assert "no idea" in put(two_nodes(), gpus=VisibleGpus(None, EIGHT_GPUS, problem="no idea")).notes[0]


def test_skipping_the_rule_skips_the_binding() -> None:
    """Targets that no rule in force wants are not aimed at, and threads count the whole mask."""
    share = put(two_nodes(), gpus=VisibleGpus(EIGHT_GPUS[5:6], EIGHT_GPUS), targets=frozenset())

    assert (share.cpus, share.target, share.threads) == (CpuSet(range(32)), "", 16)


# ---------------------------------------------------------------------- ranks


def test_eight_ranks_with_eight_gpus() -> None:
    """Four on each node, two cores each with their siblings, no core twice."""
    shares = [put(two_nodes(), rank(number, 8), GPUS) for number in range(8)]

    assert [str(share.cpus) for share in shares] == [
        "0-1,16-17",
        "2-3,18-19",
        "4-5,20-21",
        "6-7,22-23",
        "8-9,24-25",
        "10-11,26-27",
        "12-13,28-29",
        "14-15,30-31",
    ]
    assert {share.threads for share in shares} == {2}
    assert [str(share.memory_nodes) for share in shares] == ["0"] * 4 + ["1"] * 4


def test_each_rank_sees_only_its_own_gpu() -> None:
    """As under Slurm with one GPU a task: the place among the machine's GPUs tells which part of the node is free for it."""
    shares = [put(two_nodes(), Ranks("Slurm", number, 8), VisibleGpus((EIGHT_GPUS[7 - number],), EIGHT_GPUS)) for number in range(8)]

    assert str(shares[0].cpus) == "14-15,30-31"
    assert CpuSet.union(share.cpus or CpuSet() for share in shares) == CpuSet(range(32))
    assert sum(len(share.cpus or ()) for share in shares) == 32


@pytest.mark.parametrize("ours", [False, True])
def test_several_ranks_on_one_of_many_gpus(ours: bool) -> None:
    """`CUDA_VISIBLE_DEVICES=3` for all of them: they divide the CPUs beside that GPU, instead of all taking the part of its only rank."""
    visible = VisibleGpus(EIGHT_GPUS[3:4], EIGHT_GPUS, restricted=True)
    shares = [put(two_nodes(), rank(number, 4, same_gpus=True, divides_gpus=ours), visible) for number in range(4)]

    assert [str(share.cpus) for share in shares] == ["0-1,16-17", "2-3,18-19", "4-5,20-21", "6-7,22-23"]


def test_ranks_of_which_one_has_a_gpu_beside_no_known_node() -> None:
    """It would take its even part of all CPUs: so all do, or two would be on the same cores."""
    gpus = (PlacedGpu("0000:0f:00.0"), PlacedGpu("0000:10:00.0"), *EIGHT_GPUS[4:6])
    shares = [put(two_nodes(), rank(number, 4), VisibleGpus(gpus, gpus)) for number in range(4)]

    assert [str(share.cpus) for share in shares] == ["0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"]
    assert "divide all CPUs evenly" in shares[3].notes[0]


def test_two_ranks_without_gpus_take_a_node_each() -> None:
    """Nodes first."""
    shares = [put(two_nodes(), rank(number, 2)) for number in range(2)]

    assert [str(share.cpus) for share in shares] == ["0-7,16-23", "8-15,24-31"]
    assert [share.memory_nodes for share in shares] == [CpuSet([0]), CpuSet([1])]


def test_ranks_that_do_not_divide_the_nodes() -> None:
    """Three ranks on two nodes: even parts, of which the middle one straddles; the others prefer their node's memory."""
    shares = [put(two_nodes(), rank(number, 3)) for number in range(3)]

    assert [str(share.cpus) for share in shares] == ["0-4,16-20", "5-9,21-25", "10-15,26-31"]
    assert [share.memory_nodes for share in shares] == [CpuSet([0]), CpuSet(), CpuSet([1])]


def test_four_ranks_on_two_nodes() -> None:
    """Two on each, and each prefers its memory."""
    assert [str(put(two_nodes(), rank(number, 4)).cpus) for number in range(4)] == ["0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"]


def test_nodes_of_which_we_may_use_unequal_parts() -> None:
    """A cpuset of 6 cores on one node and 2 on the other: even parts, not one node each."""
    machine = two_nodes(allowed=cpus("2-9"))

    assert [str(put(machine, rank(number, 2)).cpus) for number in range(2)] == ["2-5", "6-9"]


def test_more_ranks_than_cores_share_and_are_told() -> None:
    """Each rank has a core, some the same."""
    shares = [put(one_node(2), rank(number, 5)) for number in range(5)]

    assert all(len(share.cpus or ()) == 1 for share in shares)
    assert "5 ranks share 2 cores" in shares[0].notes


def test_ranks_follow_l3_caches() -> None:
    """CPUs numbered round-robin over two L3 caches: a rank gets cores under one."""
    machine = one_node(8, l3_domains=(cpus("0,2,4,6"), cpus("1,3,5,7")))

    assert [str(put(machine, rank(number, 2)).cpus) for number in range(2)] == ["0,2,4,6", "1,3,5,7"]


def test_ranks_on_a_hybrid_part_share_both_kinds() -> None:
    """No rank is left with efficiency cores alone: it would be the one that all wait for."""
    machine = one_node(8, performance=cpus("0-3"))

    assert [str(put(machine, rank(number, 2)).cpus) for number in range(2)] == ["0-1,4-5", "2-3,6-7"]
    assert put(machine, rank(0, 2)).threads == 2


def test_more_ranks_than_performance_cores() -> None:
    """Two P cores with two threads each (0-3) and eight E cores: four ranks share no core, since there are enough of both together."""
    cores = (*(CpuSet([cpu, cpu + 1]) for cpu in (0, 2)), *(CpuSet([cpu]) for cpu in range(4, 12)))
    shares = [put(one_node(12, cores=cores, performance=cpus("0-3")), rank(number, 4)) for number in range(4)]

    assert [str(share.cpus) for share in shares] == ["0-3,10-11", "4-5", "6-7", "8-9"]
    assert [share.threads for share in shares] == [2, 2, 2, 2]
    assert not any(share.notes for share in shares)


def hybrid(fast: int = 6, slow: int = 8, capacity: int | None = None) -> Machine:
    """P cores with two threads each, then E cores with one."""
    first = 2 * fast
    cores = (*(CpuSet([cpu, cpu + 1]) for cpu in range(0, first, 2)), *(CpuSet([cpu]) for cpu in range(first, first + slow)))
    performance = CpuSet(range(first))
    kinds = (CoreKind(CpuSet(range(first, first + slow)), capacity), CoreKind(performance, 1024 if capacity else None))
    return one_node(first + slow, cores=cores, performance=performance, kinds=kinds)


def computed(machine: Machine, share: Placement, capacity: float = 0.6) -> float:
    """What a rank computes: threads on equal cores, or all as fast as the slowest."""
    assert share.cpus is not None
    fast = sum(1 for core in machine.cores or () if core & share.cpus & (machine.performance or CpuSet()))
    return float(min(share.threads or 0, fast)) if fast else capacity * (share.threads or 0)


@pytest.mark.parametrize(("ranks", "weakest", "strongest"), [(2, 3, 3), (3, 2, 2), (4, 2.4, 3), (6, 1, 1), (8, 1, 1.2), (14, 0.6, 1)])
def test_ranks_on_six_fast_and_eight_slow_cores(ranks: int, weakest: float, strongest: float) -> None:
    """A slow core counts as 0.6 of a fast one: no rank has one slow core while another has two fast ones."""
    machine = hybrid()
    shares = [put(machine, rank(number, ranks)) for number in range(ranks)]
    power = [computed(machine, share) for share in shares]

    assert (min(power), max(power)) == (weakest, strongest)
    assert CpuSet.union(share.cpus or CpuSet() for share in shares) == machine.online
    assert sum(len(share.cpus or ()) for share in shares) == len(machine.online)


@pytest.mark.parametrize(("capacity", "threads"), [(737, 14), (614, 14), (400, 6), (526, 6), (527, 14), (None, 6)])
def test_slow_cores_compute_where_all_together_gain(capacity: int | None, threads: int) -> None:
    """All are as fast as the slowest: 14 cores at 0.72 are worth 10 of the fast ones, at 0.39 less than the six; below 1.2 times nothing changes."""
    assert put(hybrid(capacity=capacity)).threads == threads


@pytest.mark.parametrize(("capacity", "part"), [(512, 0.5), (1024, 1.0), (None, 0.6)])
def test_what_a_slow_core_counts(capacity: int | None, part: float) -> None:
    """As the kernel says; 0.6 where it does not; all alike without kinds."""
    machine = hybrid(capacity=capacity)

    assert CoreMap(machine, machine.online)._slow_capacity() == part


def test_instances_and_a_quota() -> None:
    """One instance of one gets all; the quota of a process of its own is not divided."""
    alone = Ranks("sysperf wrap --nproc", 0, None, divides_gpus=True)

    assert put(one_node(), alone, cpus=cpus("0-3")).cpus == cpus("0-3")
    assert put(one_node(quota=4.0), rank(0, None), cpus=cpus("0-7")).budget == 4


def test_cpus_of_no_node_are_shared_too() -> None:
    """Two nodes of four CPUs and one CPU that no node lists: a node each would leave it to nobody."""
    every = CpuSet(range(9))
    machine = Machine(every, every, nodes=(MemoryNode(0, cpus("0-3")), MemoryNode(1, cpus("4-7"))), quota=0.0)

    assert CpuSet.union(put(machine, rank(number, 2)).cpus or CpuSet() for number in range(2)) == every


def test_strict_memory_on_a_node_with_room_for_torch() -> None:
    """256 MiB are what importing torch takes: a node with 300 is accepted."""
    roomy = two_nodes(nodes=tuple(msgspec.structs.replace(node, available_bytes=300 << 20) for node in two_nodes().nodes))

    assert put(roomy, node=1, strict=True).strict


def test_more_ranks_than_gpus() -> None:
    """Sixteen ranks on eight GPUs take them in turn: four on each GPU's node, and none on the cores of another."""
    shares = [put(two_nodes(), rank(number, 16), GPUS) for number in range(16)]

    assert [str(share.nodes) for share in shares[:8]] == ["0"] * 4 + ["1"] * 4 == [str(share.nodes) for share in shares[8:]]
    assert CpuSet.union(share.cpus or CpuSet() for share in shares) == CpuSet(range(32))
    assert all(len(share.cpus or ()) == 2 for share in shares)


def test_a_kept_mask_of_several_nodes_prefers_none() -> None:
    """The launcher's choice is on both: each page lies where it is first used."""
    share = put(two_nodes(), Ranks("Slurm", 1, 4, own_cpus=True))

    assert (share.memory_nodes, share.threads) == (CpuSet(), 16)


def snc(order: str = "round robin", **other: Any) -> Machine:
    """Two sockets of two nodes each, four CPUs a node: nodes 0 and 2 on the first socket, 1 and 3 on the second."""
    near = {0: 2, 2: 0, 1: 3, 3: 1} if order == "round robin" else {0: 1, 1: 0, 2: 3, 3: 2}
    nodes = tuple(
        MemoryNode(
            node,
            CpuSet(range(4 * node, 4 * node + 4)),
            GIB,
            distances={to: 10 if to == node else 11 if near[node] == to else 21 for to in range(4)},
        )
        for node in range(4)
    )
    every = CpuSet(range(16))
    return Machine(**{"allowed": every, "online": every, "nodes": nodes, "quota": 0.0, **other})


@pytest.mark.parametrize("packages", [None, (cpus("0-3,8-11"), cpus("4-7,12-15"))])
def test_ranks_do_not_straddle_sockets_whose_nodes_are_numbered_round_robin(packages: tuple[CpuSet, ...] | None) -> None:
    """Nodes at distance 11 before those at 21, with the packages known or not; each rank prefers the memory of its socket."""
    shares = [put(snc(packages=packages), rank(number, 2)) for number in range(2)]

    assert [str(share.cpus) for share in shares] == ["0-3,8-11", "4-7,12-15"]
    assert [share.memory_nodes for share in shares] == [CpuSet([0, 2]), CpuSet([1, 3])]


def test_three_ranks_straddle_as_little_as_three_can() -> None:
    """16 cores in the order 0, 2, 1, 3: parts of 5 or 6, and only the middle one is on both sockets."""
    shares = [put(snc(), rank(number, 3)) for number in range(3)]

    assert [str(share.cpus) for share in shares] == ["0-3,8", "4-5,9-11", "6-7,12-15"]


def test_sockets_with_even_and_odd_cpus() -> None:
    """One memory node, no L3: the packages alone tell what is together."""
    machine = one_node(8, packages=(cpus("0,2,4,6"), cpus("1,3,5,7")))

    assert [str(put(machine, rank(number, 2)).cpus) for number in range(2)] == ["0,2,4,6", "1,3,5,7"]


def test_even_and_odd_sockets_without_any_node() -> None:
    """A kernel without NUMA."""
    machine = Machine(CpuSet(range(8)), CpuSet(range(8)), packages=(cpus("0,2,4,6"), cpus("1,3,5,7")))

    assert [str(put(machine, rank(number, 2)).cpus) for number in range(2)] == ["0,2,4,6", "1,3,5,7"]


def test_shares_end_where_a_cache_ends() -> None:
    """Seven cores of which the first four share an L3: four and three, not three and four. The same for L2."""
    l3, l2 = (cpus("0-3"), cpus("4-6")), (cpus("0-1"), cpus("2-3"), cpus("4-5"), cpus("6"))

    assert [str(put(one_node(7, l3_domains=l3), rank(number, 2)).cpus) for number in range(2)] == ["0-3", "4-6"]
    assert [str(put(one_node(7, l2_domains=l2), rank(number, 2)).cpus) for number in range(2)] == ["0-3", "4-6"]
    assert [str(put(one_node(7), rank(number, 2)).cpus) for number in range(2)] == ["0-2", "3-6"]


def test_ranks_that_the_launcher_bound_alike() -> None:
    """srun --cpu-bind=sockets with four ranks on two sockets: two share a mask, and divide it where their number is known."""
    alike = two_nodes(allowed=cpus("8-15,24-31"))
    known = [put(alike, Ranks("Slurm", 2 + number, 4, own_cpus=True, sharing=2, place_among_sharing=number)) for number in range(2)]
    unknown = put(alike, Ranks("Open MPI", 3, 4, own_cpus=True, sharing=2, place_among_sharing=None))

    assert [str(share.cpus) for share in known] == ["8-11,24-27", "12-15,28-31"]
    assert [share.threads for share in known] == [4, 4]
    assert (unknown.cpus, unknown.target, unknown.threads) == (cpus("8-15,24-31"), "", 4)
    assert "to 2 ranks: kept" in unknown.notes[0]


def test_ranks_divide_a_quota() -> None:
    """All ranks are in one control group: five CPUs' worth for two ranks is three and two threads, however their CPUs were chosen."""
    assert [put(one_node(quota=5.0), rank(number, 2)).threads for number in range(2)] == [3, 2]
    assert put(one_node(quota=0.5), rank(1, 2)).threads == 1
    assert put(one_node(quota=5.0), rank(1, 2, own_cpus=True)).threads == 2
    assert put(one_node(quota=5.0), rank(1, 2), cpus=cpus("0-3")).threads == 2


def test_ranks_that_are_not_bound_still_divide_the_threads() -> None:
    """With the rule skipped, or before a launcher starts them, each computes with its part of the cores, not with all."""
    assert put(two_nodes(), rank(0, 4), targets=frozenset()).threads == 4
    assert put(one_node(2), rank(0, 4), targets=frozenset()).threads == 1


def test_cpus_that_the_launcher_divided_stay() -> None:
    """The mask is the rank's own; one inside a node prefers its memory."""
    share = put(two_nodes(allowed=cpus("8-11")), Ranks("Slurm", 1, 4, own_cpus=True))

    assert (share.cpus, share.target, share.memory_nodes, share.threads) == (cpus("8-11"), "", CpuSet([1]), 4)
    assert "kept" in share.notes[0]


def test_a_launcher_that_does_not_say_how_many() -> None:
    """Dividing by an unknown number would be a guess."""
    share = put(one_node(), rank(0, None))

    assert (share.cpus, share.target, share.threads) == (CpuSet(range(8)), "", None)
    assert "does not say how many" in share.notes[0]


def test_ranks_of_unknown_number_do_not_crowd_on_one_node() -> None:
    """Each of them would find the same node the roomiest; the node of a rank's own GPU is another's only by chance."""
    assert put(two_nodes(), rank(0, None), threads=4).memory_nodes == CpuSet()
    assert put(two_nodes(), rank(5, None), GPUS).memory_nodes == CpuSet([1])


def test_one_rank_is_a_process_with_a_number() -> None:
    """torchrun with one rank: cuda:0 is its GPU, and the whole node is its."""
    share = put(two_nodes(), rank(0, 1), GPUS)

    assert (share.target, share.cpus) == ("gpu-node", cpus("0-7,16-23"))


def test_instances_of_ours_divide_the_gpus() -> None:
    """--nproc 2 with eight GPUs: the first four are on node 0."""
    shares = [put(two_nodes(), Ranks("sysperf wrap --nproc", number, 2, divides_gpus=True), GPUS) for number in range(2)]

    assert [str(share.cpus) for share in shares] == ["0-7,16-23", "8-15,24-31"]


def test_instances_of_ours_divide_the_cpus_asked_for() -> None:
    """--nproc 2 with --cpus or --node: a part each, the quota too."""
    ours = [Ranks("sysperf wrap --nproc", number, 2, divides_gpus=True) for number in range(2)]

    assert [str(put(two_nodes(), rank, cpus=cpus("0-3,16-19")).cpus) for rank in ours] == ["0-1,16-17", "2-3,18-19"]
    assert [put(two_nodes(quota=3.0), rank, node=1).threads for rank in ours] == [2, 1]


# ---------------------------------------------------------------------- wishes


def test_cpus_asked_for() -> None:
    """They are taken as they are, with the memory of their node; what is not allowed is refused with what is."""
    share = put(two_nodes(), cpus=cpus("8-9"))
    assert (share.cpus, share.target, share.memory_nodes, share.threads) == (cpus("8-9"), "cpus", CpuSet([1]), 2)

    with pytest.raises(Refused, match="64 may not be used") as refused:
        put(two_nodes(), cpus=cpus("0,64"))
    assert "0-31" in refused.value.hint


def test_a_node_asked_for() -> None:
    """Its allowed CPUs; one that is not there is refused with those that are."""
    assert put(two_nodes(), node=1).cpus == cpus("8-15,24-31")
    with pytest.raises(Refused, match="no such memory node") as refused:
        put(two_nodes(), node=7)
    assert "0-1" in refused.value.hint
    with pytest.raises(Refused, match="none of its CPUs"):
        put(two_nodes(allowed=cpus("0-3")), node=1)


def test_strict_memory_that_would_not_fit_is_refused() -> None:
    """A strict policy on a full node ends in a kill: refused, with the way out."""
    assert put(two_nodes(), node=1, strict=True, memory_bytes=15 * GIB).strict
    with pytest.raises(Refused, match="does not fit on node 1") as refused:
        put(two_nodes(), node=1, strict=True, memory_bytes=30 * GIB)
    assert "leave out --strict-memory" in refused.value.hint


def test_strict_memory_on_a_full_node_is_refused_though_nobody_said_how_much() -> None:
    """A node with less to spare than torch takes; who needs less can say so."""
    full = two_nodes(nodes=tuple(msgspec.structs.replace(node, available_bytes=100 << 20) for node in two_nodes().nodes))
    with pytest.raises(Refused, match="a program with torch takes does not fit on node 1") as refused:
        put(full, node=1, strict=True)
    assert "--memory" in refused.value.hint
    assert put(full, node=1, strict=True, memory_bytes=10 << 20).strict


# ---------------------------------------------------------------------- always


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    count = draw(st.integers(1, 24))
    threads = draw(st.sampled_from([1, 2, 4]))
    every = CpuSet(range(count))
    cores = tuple(CpuSet(range(start, min(start + threads, count))) for start in range(0, count, threads))
    edges = sorted({0, count, *draw(st.lists(st.integers(0, count), max_size=3))})
    nodes = tuple(
        MemoryNode(2 * index, CpuSet(range(low, high)), draw(st.integers(0, 9)))
        for index, (low, high) in enumerate(itertools.pairwise(edges))
    )
    allowed = CpuSet(draw(st.sets(st.sampled_from(range(count)), min_size=1)))
    fast = CpuSet(draw(st.sets(st.sampled_from(range(count)))))
    quota = draw(st.sampled_from([None, 0.0, 0.5, 1.5, 4.0]))
    slow = every - fast
    kinds = (CoreKind(slow, draw(st.sampled_from([None, 300, 700, 1024]))), CoreKind(fast, 1024)) if fast and slow else ()
    half = (CpuSet(range(0, count, 2)), CpuSet(range(1, count, 2)))
    return Machine(
        allowed,
        every,
        draw(st.sampled_from([cores, None])),
        fast or None,
        draw(st.sampled_from([None, half])),
        (*nodes, MemoryNode(99, CpuSet(), 5)),
        None,
        quota,
        packages=draw(st.sampled_from([None, half])),
        kinds=kinds,
    )


@settings(max_examples=60)
@given(machines(), st.integers(1, 6), st.booleans())
def test_every_placement_is_inside_what_is_allowed(machine: Machine, size: int, own: bool) -> None:
    """Some allowed CPU, at least one thread and never more than cores or quota; ranks cover cores and share none while there are enough."""
    shares = [put(machine, Ranks("torchrun" if size > 1 else "", number, size, own_cpus=own and size > 1)) for number in range(size)]
    for share in shares:
        assert share.cpus
        assert machine.allowed is not None
        assert share.cpus.issubset(machine.allowed)
        assert 1 <= (share.threads or 0) <= max(1, share.cores or 0)
        assert 99 not in share.memory_nodes
        if machine.quota:
            assert (share.threads or 0) <= -(-machine.quota // 1)
    if size > 1 and not own and not any("share" in note for share in shares for note in share.notes):
        assert sum(len(share.cpus or ()) for share in shares) == len(CpuSet.union(share.cpus or CpuSet() for share in shares))


def test_ranks_that_see_two_gpus_of_eight() -> None:
    """Two ranks with a GPU each, one beside each node: each has its node for itself."""
    shares = [put(two_nodes(), rank(number, 2), VisibleGpus(EIGHT_GPUS[3:5], EIGHT_GPUS, restricted=True)) for number in range(2)]

    assert [str(share.cpus) for share in shares] == ["0-7,16-23", "8-15,24-31"]


@pytest.mark.parametrize(("fast", "slow", "parts", "on_fast"), [(3, 8, 4, 1), (3, 8, 2, 1), (4, 8, 2, 2), (5, 2, 4, 4)])
def test_at_least_one_rank_computes_on_fast_cores(fast: int, slow: int, parts: int, on_fast: int) -> None:
    """And as many more as make the weakest rank stronger: cores that are equally fast are divided evenly."""
    assert _ranks_on_fast(fast, slow, parts, 1.0) == on_fast
