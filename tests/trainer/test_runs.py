"""Runs of the trainer in a real torch: both workloads, checkpoints, ranks, and the same losses whichever rungs are on."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sqlite3
import subprocess
from ctypes.util import find_library
from pathlib import Path

import pytest
from sysperf_trainer.rung import DOUBTFUL, LADDER, Rung
from sysperf_trainer.rungs import rungs

from tests.trainer.conftest import TORCH_PYTHON, Run, Train, environment, needs_torch, program

pytestmark = [pytest.mark.torch, needs_torch]
STEPS = 20
ON_A_CPU = [
    (workload, rung)
    for workload in ("text", "vision")
    for rung in rungs(workload)
    if not {"cuda", "ranks", "checkpoints"} & set(rung.needs) and rung.launch is None
]


PRESENT = {name for name, found in {"numactl": shutil.which("numactl"), "jemalloc": find_library("jemalloc")}.items() if found}
WITHOUT: dict[tuple[str, str], Run] = {}
"""Runs that several rungs are held against."""


def difference(run: Run, other: Run) -> float:
    """Return by which share the mean losses of two runs differ."""
    means = [math.fsum(one.losses) / len(one.losses) for one in (run, other)]
    return abs(means[0] - means[1]) / means[1]


def with_required(rung: Rung) -> str:
    """Return the rung, and those without which it changes nothing."""
    return ",".join((*rung.requires, rung.id))


@pytest.mark.slow
def test_a_run_learns_and_leaves_a_record(train: Train) -> None:
    """Lines while it goes on, and the figures from which MFU and rates follow."""
    run = train("text", "--max-steps", "20")

    assert run.code == 0, run.err
    assert "step 10: loss" in run.out
    assert run.losses[-1] < run.losses[0]
    assert run.record["steps"] == len(run.record["step_ends_s"]) == STEPS
    assert run.record["units_per_s"] > 0
    weights, tokens, layers, width = run.record["weights"], 32, 2, 64
    positions = 32 * 64
    assert run.record["flop_per_sample"] == pytest.approx(tokens * (6 * (weights - positions) + 12 * layers * width * tokens), rel=0.02)


@pytest.mark.slow
def test_all_rungs_that_a_cpu_can_have_go_together(train: Train) -> None:
    """With a reason for each of the others, and the losses of the naive loop within the widest bound."""
    naive = train("text", "--max-steps", str(STEPS))
    run = train("text", "--max-steps", str(STEPS), "--without", "compile", rungs="all")

    assert run.code == 0, run.err
    assert {"chunked-loss", "fused-optimizer", "sdpa", "deferred-metrics", "gc-control"} <= set(run.record["rungs"])
    assert run.record["skipped"]["pinned-memory"] == "torch sees no GPU" or run.record["device"] != "cpu"
    assert run.record["skipped"]["compile"] == "left out by --without"
    assert difference(run, naive) <= max(rung.loss_bound for rung in rungs("text"))


@pytest.mark.slow
def test_images_travel_as_bytes_or_numbers_with_equal_losses(train: Train) -> None:
    """The loader's workers, and where pixels are normalised, change nothing of what is learnt."""
    naive = train("vision", "--max-steps", "7")
    run = train("vision", "--max-steps", "7", rungs="loader-workers,persistent-workers,prefetch-depth,normalise-on-device,set-to-none")

    assert naive.code == run.code == 0, naive.err + run.err
    assert run.losses == naive.losses
    assert run.record["loader_workers"] > 0


@pytest.mark.slow
def test_a_run_that_goes_on_has_the_losses_of_one_that_never_stopped(train: Train, tmp_path: Path) -> None:
    """Bit for bit, whichever way the checkpoint was written."""
    kept = ("--checkpoints", str(tmp_path / "checkpoints"), "--checkpoint-every", "3")
    first = train("text", "--max-steps", "5", *kept, rungs="async-checkpoint")
    second = train("text", "--max-steps", "9", "--resume", *kept)
    whole = train("text", "--max-steps", "9")

    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert (second.record["first_step"], second.record["checkpoints"]) == (5, 2)
    assert first.losses + second.losses == whole.losses
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000006", "step-00000009"]


@pytest.mark.slow
def test_two_ranks_learn_together(train: Train) -> None:
    """By torchrun and gloo, with every rung about the exchange of gradients."""
    plain = train("text", "--max-steps", "6", rungs="accumulation", ranks=2)
    run = train("text", "--max-steps", "6", rungs="accumulation,no-sync,large-buckets,bucket-views", ranks=2)

    assert (plain.code, run.code) == (0, 0), plain.err + run.err
    assert run.record["ranks"] == 2
    assert difference(run, plain) <= 1e-5


@pytest.mark.slow
def test_steps_are_counted_from_outside_and_seen_in_a_trace(data: Path, tmp_path: Path) -> None:
    """`verify` counts optimizer steps of any program; `analyze` finds steps by the profiler's marks."""
    from sysperf.trace import account, read
    from sysperf.verify import probe

    trace = tmp_path / "trace.json.gz"
    argv = program("--workload", "text", "--max-steps", "12", "--trace", trace, "--ranges", "profiler", data=data)
    variables = environment() | probe.environment(str(tmp_path), {})
    subprocess.run(argv, env=variables, check=True, capture_output=True, timeout=140)

    assert [len(steps.times) for steps in probe.read(str(tmp_path))] == [12]
    rank = account(read(str(trace)))
    assert rank.step_count == 5
    assert not rank.has_device


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not shutil.which("nsys"), reason="nsys is not installed: Debian's nsight-systems, in non-free")
def test_nsight_systems_sees_the_steps_of_each_rung(data: Path, tmp_path: Path) -> None:
    """Its real recording of a run of the ladder has each step and its phases as NVTX ranges, also of a torch that was built without NVTX."""
    from sysperf.engine.bench import traces
    from sysperf.engine.bench.state import Request
    from sysperf.engine.bench.trainer import Trainer

    arguments = ("--size", "tiny", "--cache", str(data))
    request = Request(python=TORCH_PYTHON, arguments=arguments, traces_with="nsys", folder=str(tmp_path / "traces"))
    traced = traces.take(Trainer(request), ("fused-optimizer",), 0)
    assert traced.problem == ""
    with contextlib.closing(sqlite3.connect(traced.path)) as export:
        ranges = dict(export.execute("SELECT value, count(*) FROM NVTX_EVENTS JOIN StringIds ON id = textId GROUP BY value"))

    assert ranges == dict.fromkeys(("step", "data", "forward", "backward", "optimizer"), traces.STEPS)


@pytest.mark.slow
def test_event_files_are_tensorboards_own(data: Path, tmp_path: Path) -> None:
    """Its reader finds each loss."""
    record = tmp_path / "record.json"
    argv = program("--workload", "text", "--max-steps", "4", "--tensorboard", tmp_path / "events", "--json", record, data=data)
    subprocess.run(argv, env=environment(), check=True, capture_output=True, timeout=140)
    read = f"from tensorboard.backend.event_processing.event_accumulator import EventAccumulator as E; e = E({str(tmp_path / 'events')!r}); e.Reload(); print([s.value for s in e.Scalars('loss')])"
    values = subprocess.run((TORCH_PYTHON, "-c", read), env=environment(), check=True, capture_output=True, text=True).stdout

    assert json.loads(values) == pytest.approx(json.loads(record.read_text())["losses"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("workload", "rung"), ON_A_CPU, ids=lambda value: getattr(value, "id", value))
def test_a_rung_keeps_the_losses_within_its_bound(train: Train, workload: str, rung: Rung) -> None:
    """So that no speed comes from other mathematics; where the bound is 0, bit for bit."""
    required = ",".join(rung.requires)
    without = WITHOUT.get((workload, required)) or train(workload, "--max-steps", str(STEPS), rungs=required)
    WITHOUT[workload, required] = without
    run = train(workload, "--max-steps", str(STEPS), rungs=with_required(rung))

    assert without.code == 0, without.err
    if run.code == 3:
        pytest.skip(run.err)
    assert run.code == 0, run.err
    assert difference(run, without) <= rung.loss_bound
    assert rung.loss_bound or run.losses == without.losses


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "rung", [rung for rung in rungs("text") if rung.launch and rung.role in (LADDER, DOUBTFUL)], ids=lambda rung: rung.id
)
def test_a_rung_of_the_launch_keeps_the_losses(train: Train, rung: Rung) -> None:
    """A start in another way computes the same."""
    if missing := {"numactl", "jemalloc"} & set(rung.needs) - PRESENT:
        pytest.skip(f"{' and '.join(missing)} is not installed")
    without, run = train("text", "--max-steps", "5"), train("text", "--max-steps", "5", rungs=rung.id)

    assert run.code == 0, run.err
    assert difference(run, without) <= rung.loss_bound
