"""The machine's ceilings: processes that measure, what the hardware should give, two records beside each other."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from sysperf.collect.cpu import Cpu
from sysperf.collect.gpu.records import Device
from sysperf.collect.gpu.wires import Pcie
from sysperf.collect.kernel import Kernel
from sysperf.collect.machine_facts import MachineFacts
from sysperf.collect.memory import Memory
from sysperf.collect.memory.dimms import Dimm
from sysperf.engine.bench import compare, expected, host
from sysperf.engine.bench.figures import GROUPS, planned
from sysperf.engine.bench.files import bench_folder
from sysperf.engine.bench.machine import Machine
from sysperf.engine.bench.workers import Ranks, Worker
from sysperf.launch.machine import MemoryNode
from sysperf.model.ceiling import Ceiling, Ceilings
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import UsageError
from sysperf.model.record import JsonObject
from sysperf.model.snapshot import Area
from sysperf.procfs.cpuinfo import Isa

TORCH_PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")
MINE = str(CpuSet(os.sched_getaffinity(0)))
ONE = str(min(os.sched_getaffinity(0)))
needs_torch = pytest.mark.skipif(not TORCH_PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch")


# ---------------------------------------------------------------------- the processes that measure


@pytest.mark.root(users=True)
def test_root_writes_no_files_where_another_user_may_put_links(tmp_path: Path) -> None:
    """The folder to measure in may be exchanged while it is written."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65_531, 65_531)
    with pytest.raises(UsageError, match="another user may exchange"), bench_folder(str(theirs)):
        pass
    assert os.listdir(theirs) == []


@pytest.mark.parametrize(
    "request_",
    [
        {"task": "copy", "cpus": MINE, "bytes": 8 << 20},
        {"task": "start", "argv": ["true"]},
        {"task": "big_file", "bytes": 1 << 20},
        {"task": "many_files", "files": 8, "readers": 2, "cold": True},
        {"task": "many_files", "files": 8, "readers": 2, "cold": False},
    ],
)
def test_what_needs_no_torch_is_measured_by_any_python(request_: dict[str, object], tmp_path: Path) -> None:
    """A rate, and the CPU time that it took; files are gone when the process ends."""
    folder = tmp_path / "files"
    folder.mkdir()
    worker = Worker(sys.executable)
    answer = worker.ask({**request_, "folder": str(folder), "seconds": 0.01}, 60)
    worker.close()

    assert answer.problem == ""
    assert answer.rate is not None
    assert answer.rate > 0
    assert folder.exists() != ("file" in str(request_["task"]))


def test_torch_that_is_missing_is_named() -> None:
    """And the process answers what comes next."""
    worker = Worker(sys.executable)
    without = worker.ask({"task": "triad", "cpus": ONE, "bytes": 3 << 20, "seconds": 0.01}, 60)
    after = worker.ask({"task": "start", "argv": ["true"], "seconds": 0.01}, 60)
    worker.close()

    assert "torch" in without.problem
    assert after.rate


def test_a_process_that_dies_is_told_and_started_again() -> None:
    """By its exit code and its last words."""
    worker = Worker("/bin/false")

    assert "exit code 1" in worker.ask({"task": "about"}, 60).problem
    assert "exit code 1" in worker.ask({"task": "about"}, 60).problem
    assert "No such file" in Worker("/nothing/of/this/name").ask({"task": "about"}, 60).problem


def test_a_process_that_hangs_is_ended_with_all_that_it_started() -> None:
    """The time limit is in the answer."""
    worker = Worker(sys.executable)
    worker.ask({"task": "start", "argv": ["true"], "seconds": 0.01}, 60)
    assert worker._process
    group = worker._process.pid
    answer = worker.ask({"task": "start", "argv": ["sleep", "600"], "seconds": 0.01}, 1)

    assert "no answer within 1 s" in answer.problem
    while _exists(group):  # the test's own time limit ends this
        time.sleep(0.01)


def _exists(group: int) -> bool:
    """Whether a process of this group is there still."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.torch
@needs_torch
def test_what_torch_measures() -> None:
    """Triad, products in two types, decoding."""
    worker = Worker(TORCH_PYTHON)
    requests: list[JsonObject] = [
        {"task": "triad", "cpus": MINE, "bytes": 3 << 20},
        {"task": "matmul", "cpus": ONE, "dtype": "float32"},
        {"task": "decode", "cpus": MINE, "processes": 2},
    ]
    answers = [worker.ask({**request, "seconds": 0.01}, 120) for request in requests]
    about = worker.ask({"task": "about"}, 120).about
    worker.close()

    assert [bool(answer.rate) for answer in answers[:2]] == [True, True], answers
    assert answers[2].rate or "PIL" in answers[2].problem
    assert "torch" in about


@pytest.mark.slow
@pytest.mark.torch
@needs_torch
def test_ranks_are_asked_together() -> None:
    """Two of them by gloo; where one fails, all say so."""
    ranks = Ranks(TORCH_PYTHON, 2)
    request = {"task": "all_reduce", "bytes": 1 << 20, "backend": "gloo", "cpus": MINE, "seconds": 0.01}
    answer = ranks.ask(request, 120)
    failed = ranks.ask({**request, "task": "luck"}, 120)
    ranks.close()

    assert answer.rate, answer
    assert failed.problem


# ---------------------------------------------------------------------- which figures


def test_each_figure_has_a_name_of_its_own() -> None:
    """Records of two machines are joined by it."""
    names = [figure.ceiling.metric for figure in planned(Machine(ranks=2), "/nowhere")]

    assert len(names) == len(set(names))
    assert {"start.program", "storage.file", "all-reduce.gloo.2"} <= set(names) or "all-reduce.nccl.2" in names


def test_memory_of_each_node_is_measured_from_each() -> None:
    """Near and far; a node without CPUs is measured from those that have some."""
    machine = Machine()
    machine.allowed = CpuSet.parse("0-7")
    nodes = (MemoryNode(0, CpuSet.parse("0-3")), MemoryNode(1, CpuSet.parse("4-7")), MemoryNode(2))
    machine.placement = type(machine.placement)(allowed=machine.allowed, online=machine.allowed, nodes=nodes)
    figures = {figure.ceiling.metric: figure for figure in planned(machine, "") if figure.ceiling.group == "memory"}

    assert {name.removeprefix("memory.triad.") for name in figures if ".triad." in name} == {
        "node0", "node0-from-node1", "node1", "node1-from-node0", "node2-from-node0", "node2-from-node1",
    }  # fmt: skip
    assert figures["memory.triad.node1-from-node0"].request["cpus"] == "0-3"
    assert figures["memory.triad.node1-from-node0"].request["near"] == "4-7"
    assert "near" not in figures["memory.copy.node2-from-node0"].request
    assert figures["memory.copy.node2-from-node0"].request["node"] == 2


# ---------------------------------------------------------------------- what the hardware should give


def facts(**areas: object) -> MachineFacts:
    return MachineFacts({name: Area(record) for name, record in areas.items()})


def test_memory_should_give_channels_times_rate() -> None:
    """Of one node; a virtual machine's slots are its firmware's invention."""
    slots = tuple(Dimm(f"DIMM {letter}", 32 << 30, 4800, 4800, f"0/{letter}") for letter in "ABCDEFGH")
    memory = Memory(total_bytes=256 << 30, dimms=slots, channels=8, channels_used=8)
    real = expected.memory_bytes(facts(memory=memory, kernel=Kernel(release="6", virtual=False)), 2)
    virtual = expected.memory_bytes(facts(memory=memory, kernel=Kernel(release="6", virtual=True)), 2)

    assert real.value == pytest.approx(4 * 4800 * 8 * 1e6)
    assert real.basis == "4 channels × 4800 MT/s × 8 bytes"
    assert (virtual.value, "virtual machine" in virtual.basis) == (None, True)


AVX2 = Isa(avx2=True, fma=True)
AVX512 = Isa(avx2=True, fma=True, avx512=True, avx512_bf16=True)
AMX = Isa(avx2=True, fma=True, avx512=True, avx512_bf16=True, amx=True, amx_bf16=True)


@pytest.mark.parametrize(
    ("vendor", "family", "model", "name", "isa", "dtype", "each"),
    [
        ("AuthenticAMD", 23, 0x31, "EPYC 7742", AVX2, "float32", 32),
        ("AuthenticAMD", 23, 0x01, "EPYC 7601", AVX2, "float32", 16),
        ("AuthenticAMD", 25, 0x11, "EPYC 9654", AVX512, "bfloat16", 64),
        ("AuthenticAMD", 26, 0x02, "EPYC 9755", AVX512, "float32", 64),
        ("AuthenticAMD", 26, 0x24, "Ryzen AI 9", AVX512, "float32", 32),
        ("GenuineIntel", 6, 143, "Xeon(R) Platinum 8480C", AMX, "bfloat16", 2048),
        ("GenuineIntel", 6, 85, "Xeon(R) Silver 4214", AVX512, "float32", 32),
        ("GenuineIntel", 6, 85, "Xeon(R) Gold 6230", AVX512, "float32", 64),
        ("GenuineIntel", 6, 79, "Xeon(R) E5-2680", AVX2, "bfloat16", None),
        ("ARM", None, None, "Neoverse-V2", Isa(neon=True, sve=True), "float32", None),
    ],
)
def test_products_should_give_cores_times_operations_times_clock(
    vendor: str, family: int | None, model: int | None, name: str, isa: Isa, dtype: str, each: int | None
) -> None:
    """By the maker's documents; what is not known says why."""
    cpu = Cpu(online=CpuSet.parse("0-3"), vendor=vendor, family=family, model=model, model_name=name, isa=isa, max_mhz=3000.0)
    value, basis = expected.matmul_flops(facts(cpu=cpu), dtype, 4)

    assert value == (None if each is None else pytest.approx(4 * each * 3e9))
    assert basis


def test_a_gpu_should_give_its_data_sheet_and_its_link() -> None:
    """The narrower of GPU and slot decides."""
    gpu = Device(0, name="NVIDIA H100 80GB HBM3", pcie=Pcie(max_width_lanes=16, slot_width_lanes=8, max_generation=5, slot_generation=4))

    assert expected.gpu_flops(gpu, "bfloat16").value == 989e12
    assert expected.gpu_flops(gpu, "float32").value is None
    assert expected.pcie_bytes(gpu).value == pytest.approx(8 * 1.969e9)
    assert expected.pcie_bytes(Device(0)).value is None


# ---------------------------------------------------------------------- the verb


def test_storage_is_measured_and_nothing_stays(tmp_path: Path) -> None:
    """Runs of each figure, units, and an empty folder."""
    record = host.measure(host.Request(groups=("storage", "start"), runs=2, folder=str(tmp_path)))

    assert [len(ceiling.values) for ceiling in record.ceilings] == [2] * 5
    assert all(value > 0 for ceiling in record.ceilings for value in ceiling.values)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (host.Request(groups=("luck",)), "no such group"),
        (host.Request(groups=("storage",), folder="/nothing/of/this/name"), "No such file"),
        (host.Request(groups=("storage",), folder="/proc"), "MiB are free|Permission|No such file|not permitted"),
    ],
)
def test_what_cannot_be_measured_is_an_error_before_it_begins(request_: host.Request, message: str) -> None:
    """With what to do instead."""
    with pytest.raises(UsageError, match=message) as error:
        host.measure(request_)
    assert error.value.hint


def test_all_groups_have_a_title() -> None:
    """Also those that this machine has none of."""
    from sysperf.report.experiments import ceilings

    assert set(ceilings.TITLES) == set(GROUPS)


# ---------------------------------------------------------------------- two records


def record(**values: tuple[float, ...]) -> Ceilings:
    return Ceilings(
        sysperf="0", taken_at="", ceilings=tuple(Ceiling(metric=name, group="memory", what=name, unit="GB/s", values=some) for name, some in values.items())
    )  # fmt: skip


def test_a_node_that_is_slow_becomes_a_number() -> None:
    """12 % less, with an interval that excludes none; equal figures with one that holds it; what only one record has is left out."""
    before = record(triad=(100.0, 101.0, 99.0, 100.5, 99.5), copy=(50.0, 52.0, 48.0, 51.0, 49.0), gone=(1.0, 1.0))
    now = record(triad=(88.0, 88.5, 87.5, 88.2, 87.8), copy=(49.0, 51.0, 50.0, 52.0, 48.0), new=(1.0, 1.0))
    slow, same = compare.compared(before, now)

    assert slow.ratio == pytest.approx(0.88, abs=0.002)
    assert slow.high is not None
    assert slow.high < 0.9
    assert same.low is not None
    assert same.high is not None
    assert same.low < 1 < same.high


def test_one_run_has_no_interval() -> None:
    """The medians are shown, and no ratio."""
    (one,) = compare.compared(record(triad=(100.0,)), record(triad=(90.0,)))

    assert (one.before, one.now, one.ratio) == (100.0, 90.0, None)
