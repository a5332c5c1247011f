"""Of a large trace, the first part is examined: its figures are those of the whole, and what is kept does not grow."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from sysperf.engine.analyze import analyze
from sysperf.report.profiling import analysis as text
from sysperf.trace import account, read
from sysperf.trace.reading.part import MAX_ROWS
from sysperf.trace.timeline import OPERATOR, PYTHON, Timeline

from .labelled import rules
from .synthetic import Machine, steps, written

SOURCE = Path(__file__).parent.parent / "traces/kineto_resnet50_nw4.json.gz"
STEPS = 6  # in the source
TURNS = 3


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A trace of 135,000 rows: a real one again and again, each time later."""
    trace = json.loads(gzip.decompress(SOURCE.read_bytes()))
    events = [event for event in trace["traceEvents"] if event["ph"] in ("X", "M")]
    timed = [event["ts"] for event in events if event["ph"] == "X"]
    span = max(timed) - min(timed) + 1_000
    path = tmp_path_factory.mktemp("large") / "trace.json"
    with path.open("w") as out:
        out.write('{"traceEvents": [\n')
        out.write(",\n".join(json.dumps(later(event, turn, span)) for turn in range(TURNS) for event in events))
        out.write("\n]}")
    return str(path)


def later(event: dict[str, object], turn: int, span: float) -> dict[str, object]:
    args = event.get("args")
    correlation = args.get("correlation") if isinstance(args, dict) else None
    changed = {**event, "ts": event["ts"] + turn * span}  # type: ignore[operator]
    if isinstance(args, dict) and correlation is not None:
        changed["args"] = {**args, "correlation": correlation + turn * 10_000_000}
    return changed


def rows(timeline: Timeline) -> int:
    return len(timeline.operations) + len(timeline.calls) + len(timeline.ranges)


@pytest.mark.slow
def test_a_file_of_usual_size_is_examined_whole(repeated: str) -> None:
    """It has more rows than are kept of a large file, and all of them count."""
    timeline = read(repeated)

    assert rows(timeline) > MAX_ROWS
    assert account(timeline).kept_until_us is None


def test_a_large_file_gives_the_figures_of_a_part_and_says_so(repeated: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps are counted, the figures are those of one turn, and fewer rows are kept than the bound."""
    monkeypatch.setattr("sysperf.trace.reading.part.WHOLE_BYTES", 1)
    monkeypatch.setattr("sysperf.trace.reading.part.SAMPLED_ROWS", 51_000)  # one turn has 45,000
    timeline = read(repeated)
    whole, one_turn = account(timeline), account(read(str(SOURCE)))
    assert rows(timeline) < MAX_ROWS
    assert whole.step_count == TURNS * STEPS
    assert whole.kept_until_us is not None
    assert one_turn.kept_until_us is None
    assert whole.verdict == one_turn.verdict
    assert whole.trust.uncorrelated_pct == pytest.approx(one_turn.trust.uncorrelated_pct, abs=1)
    for figure in ("gpu_busy_pct_mean", "dataloader_exposed_pct", "host_exposed_pct", "sync_exposed_pct", "tensor_core_share"):
        assert getattr(whole.figures, figure) == pytest.approx(getattr(one_turn.figures, figure), abs=1), figure
    assert "the first part of a large file" in text._about(whole)


def test_ranks_of_large_files_are_compared_where_both_were_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank has twice as many rows, so its file is cut earlier; the straggler and what it costs are those of the whole files."""

    def files(folder: Path) -> list[str]:
        paths = []
        for rank in range(2):

            def step(machine: Machine, late: bool = rank == 1) -> None:
                for _ in range(20):
                    machine.kernel(200 if late else 100)
                    if late:
                        machine.range("aten::extra", machine.now - 1, "cpu_op")
                        machine.range("aten::extra", machine.now - 1, "cpu_op")
                machine.synchronize()
                machine.kernel(300 if late else 2_300, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
                machine.synchronize()

            machine = steps(Machine(), 40, step)
            paths.append(written(folder, machine.trace(distributedInfo={"rank": rank, "world_size": 2}), f"rank{rank}.json"))
        return paths

    paths = files(tmp_path)
    whole = analyze(paths, rules()).analysis.trace
    monkeypatch.setattr("sysperf.trace.reading.part.WHOLE_BYTES", 1)
    monkeypatch.setattr("sysperf.trace.reading.part.MAX_ROWS", 1_500)
    cut = analyze(paths, rules()).analysis.trace

    assert all(rank.kept_until_us for rank in cut.ranks)
    assert cut.ranks[0].kept_until_us != cut.ranks[1].kept_until_us
    assert 0 < cut.skew.matched < whole.skew.matched
    assert (cut.skew.late, cut.skew.late_share) == (whole.skew.late, whole.skew.late_share) == ((1,), 100.0)
    assert cut.skew.lost_pct == pytest.approx(whole.skew.lost_pct, abs=2)


def test_python_functions_take_no_room_of_what_they_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large file with stacks, in which nobody marked steps, all operators are kept, and the longer ones of the functions."""
    machine = Machine()
    for _ in range(100):
        for length in range(20):
            machine.event("python_function", "server.py(7): tokenize", machine.now, 5 + length)
            machine.think(30)
        machine.event("cpu_op", "aten::mm", machine.now, 50)
        machine.think(60)
    path = written(tmp_path, machine.trace())
    for name, bound in {"WHOLE_BYTES": 1, "MAX_ROWS": 150, "MAX_UNMARKED_ROWS": 150, "SAMPLED_ROWS": 10, "MAX_FUNCTIONS": 1_000}.items():
        monkeypatch.setattr(f"sysperf.trace.reading.part.{name}", bound)
    timeline = read(path)
    rows = timeline.ranges
    lengths = [rows.end[i] - rows.start[i] for i, kind in enumerate(rows.kind) if kind == PYTHON]

    assert rows.kind.count(OPERATOR) == 100
    assert 300 <= len(lengths) <= 1_000
    assert sum(length == 24_000 for length in lengths) == 100
    assert len(lengths) + timeline.short_functions == 2_000


def test_of_few_marked_steps_all_are_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six steps with so many Python functions that a sample cuts the file within the first one."""

    def step(machine: Machine) -> None:
        for _ in range(400):
            machine.event("python_function", "json/encoder.py(224): floatstr", machine.now, 8)
            machine.think(10)
        for _ in range(20):
            machine.event("cpu_op", "aten::mm", machine.now, 50)
            machine.think(60)

    path = written(tmp_path, steps(Machine(), 6, step).trace())
    for name, bound in {"WHOLE_BYTES": 1, "SAMPLED_ROWS": 50, "MAX_FUNCTIONS": 1_000, "SAMPLE_BYTES": 1 << 11}.items():
        monkeypatch.setattr(f"sysperf.trace.reading.part.{name}", bound)
    rank = account(read(path))

    assert (rank.steps.by, rank.steps.count) == ("ProfilerStep", 5)
    assert rank.verdict == "host-bound"
