"""CUDA graphs in exports of Nsight Systems: by default each launch is one row of a table of its own, and none of its kernels is there."""

# ruff: noqa: S608 - the tables are those that the tests themselves wrote
from __future__ import annotations

from pathlib import Path

import pytest

from sysperf.engine.analyze import analyze
from sysperf.trace.facts import Rank

from .labelled import rules
from .synthetic import CAPTURED, MS, Machine, exported, steps

KERNELS, GRAPHS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
OF_GRAPH = f"shortName = (SELECT id FROM StringIds WHERE value = '{CAPTURED}')"
COLUMNS = "start, end, deviceId, 1 AS contextId, 0 AS greenContextId, streamId, correlationId, globalPid, 7 AS graphId, 9 AS graphExecId"
ONLY_KERNELS = f"DELETE FROM {KERNELS} WHERE {OF_GRAPH}"
OF_KERNELS = ("kernels", "kernels_per_step", "tiny_kernel_share", "matmul_time_share", "tensor_core_share", "nccl_pct", "nccl_exposed_pct",
              "nccl_kernels_per_step")  # fmt: skip
OF_IDLE = ("gpu_busy_pct_mean", "host_starved_pct", "sync_exposed_pct", "idle_queued_pct", "longest_gap_ms")


def as_graphs(columns: str = COLUMNS, kernels: str = ONLY_KERNELS) -> tuple[str, str]:
    """What makes rows of graphs out of their kernels, as `--cuda-graph-trace=graph` records them."""
    return f"CREATE TABLE {GRAPHS} AS SELECT {columns} FROM {KERNELS} WHERE {OF_GRAPH}", kernels


def step(machine: Machine) -> None:
    """A loader of 3 ms, a graph of 6 ms, kernels launched one by one, and a wait."""
    machine.load(3 * MS)
    machine.graph(6 * MS)
    machine.think(200)
    for _ in range(10):
        machine.kernel(100)
    machine.synchronize()


def rank(folder: Path, *changes: str, body: object = step) -> Rank:
    (only,) = analyze([exported(folder, steps(Machine(), 6, body), changes=changes)], rules()).analysis.trace.ranks
    return only


def timed(rank: Rank) -> dict[str, object]:
    """All that does not depend on what a graph consists of."""
    figures = {name: value for name, value in vars_of(rank.figures).items() if name not in OF_KERNELS}
    return {"figures": figures, "devices": rank.devices, "verdict": rank.verdict, "why": rank.why, "host": rank.host, "replay": rank.replay,
            "window": rank.window_ms, "hole": rank.hole}  # fmt: skip


def vars_of(figures: object) -> dict[str, object]:
    return {name: getattr(figures, name) for name in figures.__struct_fields__}  # type: ignore[attr-defined]


def test_a_graph_in_one_piece_is_work_of_the_device(tmp_path: Path) -> None:
    """Busy, gaps, exposed time, launch delays and the replay are those of the same program recorded kernel by kernel."""
    pieces, nodes = rank(tmp_path, *as_graphs()), rank(tmp_path)

    assert timed(pieces) == timed(nodes)
    assert pieces.figures.gpu_busy_pct_mean == pytest.approx(70, abs=3)
    assert pieces.verdict == "input-bound"
    assert nodes.trust.unrecorded == ()


def test_what_kernels_a_graph_in_one_piece_ran_is_unknown(tmp_path: Path) -> None:
    pieces = rank(tmp_path, *as_graphs())

    assert {name: getattr(pieces.figures, name) for name in OF_KERNELS} == dict.fromkeys(OF_KERNELS)
    assert pieces.trust.unrecorded == ("kernels of CUDA graphs",)
    assert pieces.work.plain_matmul_share is pieces.work.elementwise_pct is None


def test_a_program_of_graphs_alone_has_no_table_of_kernels(tmp_path: Path) -> None:
    """Nsight Systems leaves out tables without rows."""

    def body(machine: Machine) -> None:
        machine.load(3 * MS)
        machine.graph(6 * MS)
        machine.synchronize()

    pieces = rank(tmp_path, *as_graphs(kernels=f"DROP TABLE {KERNELS}"), body=body)

    assert timed(pieces) == timed(rank(tmp_path, body=body)) | {"verdict": "input-bound", "why": pieces.why}
    assert pieces.figures.kernels is None


def test_graphs_whose_kernels_are_there_too_count_once(tmp_path: Path) -> None:
    """Both granularities in one file: the kernels tell more."""
    both = rank(tmp_path, *as_graphs(kernels="SELECT 1"))

    assert both == rank(tmp_path)
    assert both.trust.same_stream_overlaps == 0


def test_graphs_of_the_start_up_leave_the_figures_of_the_window_known(tmp_path: Path) -> None:
    first = f" AND start < (SELECT min(start) + 8000000 FROM {KERNELS})"
    create, delete = as_graphs()

    late = rank(tmp_path, create + first, delete + first)

    assert late.trust.unrecorded == ()
    assert late.figures.kernels == rank(tmp_path).figures.kernels


@pytest.mark.parametrize(
    "columns", ["start, end, correlationId", COLUMNS.replace("deviceId", "2147483647 AS deviceId"), COLUMNS.replace("globalPid, ", "")]
)
def test_a_graph_without_a_device_is_one_of_the_only_device(tmp_path: Path, columns: str) -> None:
    """A column can be absent, and where the first node runs on the host, CUPTI writes INT_MAX."""
    pieces, nodes = rank(tmp_path, *as_graphs(columns)), rank(tmp_path)

    assert [device.id for device in pieces.devices] == [0]
    assert pieces.figures.gpu_busy_pct_mean == nodes.figures.gpu_busy_pct_mean


@pytest.mark.parametrize("columns", ["", COLUMNS.replace("start, end", "0 AS start, 0 AS end")])
def test_where_graphs_were_launched_and_have_no_times_idle_time_is_unknown(tmp_path: Path, columns: str) -> None:
    """CUPTI writes 0 for both times where it could not collect them. Recorded or not: the device looks idle while they run."""
    pieces = rank(tmp_path, *(as_graphs(columns) if columns else (ONLY_KERNELS,)))

    assert {name: getattr(pieces.figures, name) for name in OF_IDLE} == dict.fromkeys(OF_IDLE)
    assert pieces.trust.unrecorded == ("CUDA graphs",)
    assert pieces.replay.why
    assert (pieces.trust.damaged_events > 0) == bool(columns)


@pytest.mark.parametrize("lost", ["start = 0, end = 0", "deviceId = 2147483647"])
def test_one_graph_that_ran_nobody_knows_when_or_where_makes_idle_time_unknown(tmp_path: Path, lost: str) -> None:
    """Two devices of one process: any of them may have been busy with it."""
    second = f"UPDATE {KERNELS} SET deviceId = 1 WHERE rowid % 2"
    one = f"UPDATE {GRAPHS} SET {lost} WHERE rowid = 3"

    pieces = rank(tmp_path, *as_graphs(), second, one)

    assert [device.id for device in pieces.devices] == [0, 1]
    assert {name: getattr(pieces.figures, name) for name in OF_IDLE} == dict.fromkeys(OF_IDLE)
    assert pieces.trust.unrecorded == ("CUDA graphs", "kernels of CUDA graphs")


def test_kernels_without_a_launch_may_be_those_of_graphs(tmp_path: Path) -> None:
    """Not every driver says which call launched the kernels of a graph. They are there, so idle time is known."""
    loose = rank(tmp_path, f"UPDATE {KERNELS} SET correlationId = 0 WHERE {OF_GRAPH}")

    assert loose.trust.unrecorded == ()
    assert loose.figures.gpu_busy_pct_mean == rank(tmp_path).figures.gpu_busy_pct_mean


def test_graphs_that_repeat_are_iterations(tmp_path: Path) -> None:
    """Without any marks, the period of what the device does is that of graphs and kernels."""

    def body(machine: Machine) -> None:
        machine.graph(MS)
        for _ in range(9):
            machine.kernel(100)
        machine.synchronize()

    pieces = rank(tmp_path, *as_graphs(), "DROP TABLE NVTX_EVENTS", body=body)

    assert pieces.steps.count == 5
