"""Every figure, finding and verdict of the labelled traces, as two independent programs computed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sysperf.trace import read
from sysperf.trace.accounting.account import Accounting
from sysperf.trace.accounting.window import all_steps, extent
from sysperf.trace.output.analysis import summary
from sysperf.trace.replay.fixes import MAX_ERROR_PCT

from .labelled import detected, result, traces, truth

TRACES = traces()
FIGURES = ("steps", "step_ms_median", "dataloader_workers", "dataloader_calls", "gpu_busy_pct_mean", "kernel_busy_pct", "dataloader_pct",
           "dataloader_exposed_pct", "pageable_h2d_per_step", "pageable_d2h_per_step", "pageable_wait_pct", "h2d_exposed_pct",
           "h2d_pinned_exposed_pct", "copy_exposed_pct", "sync_api_ms_per_step", "sync_api_pct", "sync_exposed_pct", "copy_api_pct",
           "copy_api_exposed_pct", "launch_api_pct", "alloc_api_exposed_pct", "host_exposed_pct", "host_starved_pct", "dispatch_idle_pct",
           "idle_queued_pct", "idle_long_gaps_pct", "longest_gap_ms", "kernels", "kernels_per_step", "tiny_kernel_share",
           "matmul_time_share", "tensor_core_share", "nccl_pct", "nccl_exposed_pct", "nccl_kernels_per_step", "pageable_h2d",
           "pageable_d2h", "mtia_busy_pct")  # fmt: skip
COUNTS = ("gpu_before_launch", "bad_durations", "uncorrelated_gpu_ops", "gpu_ops", "same_stream_overlaps")


@pytest.fixture(scope="module", params=TRACES, ids=lambda path: path.name.partition(".")[0])
def path(request: pytest.FixtureRequest) -> Path:
    """Each labelled trace: a fixture of the module, so that its tests run one after the other and read it once."""
    traced: Path = request.param
    return traced


def assert_close(figures: dict[str, Any], known: dict[str, Any], names: tuple[str, ...] = FIGURES) -> None:
    """Within 1 %, or a twentieth of a percentage point where that is more; unknown exactly where the truth is."""
    for name in names:
        value, right = figures[name], known[name]
        if right is None or isinstance(right, str):
            assert value == right, name
        else:
            assert value == pytest.approx(right, rel=0.01, abs=0.05), name


def test_figures_of_the_window(path: Path) -> None:
    """Every figure, and the window that it is about."""
    known, rank = truth(path), result(path).analysis.trace.ranks[0]
    figures = summary(rank)

    assert rank.window_rule == known["window_rule"]
    assert rank.window_ms == pytest.approx(known["window"]["ms"], rel=1e-4)
    assert_close(figures, known)
    for device, busy in (known["gpu_busy_pct"] or {}).items():
        assert figures["gpu_busy_pct"][device] == pytest.approx(busy, rel=0.01, abs=0.05)
    assert {name: figures["trust"][name] for name in COUNTS} == {name: known["trust"][name] for name in COUNTS}


def test_figures_of_other_windows(path: Path) -> None:
    """All steps, and all that the device did."""
    timeline = read(str(path))
    for name, known in truth(path)["other_windows"].items():
        window = all_steps(timeline) if name == "all_steps" else extent(timeline)
        figures = Accounting(timeline, window).figures()
        assert_close({figure: getattr(figures, figure) for figure in FIGURES[4:]}, known, FIGURES[4:])


def test_findings_and_verdict(path: Path) -> None:
    """What is there is found, what is not there is not reported, and the verdict is one of those that are right."""
    known, analyzed = truth(path), result(path)
    named, verdict = detected(analyzed), analyzed.analysis.trace.verdict

    assert set(known["expect_findings"]) <= named
    assert not set(known["expect_absent"]) & named
    right = [known["verdict"], *known["verdict_also_ok"]]
    assert verdict in right or (verdict in ("compute-bound", "healthy") and "compute-bound/healthy" in right)
    assert analyzed.analysis.trace.why


def test_exposed_shares_and_busy_add_up(path: Path) -> None:
    """Every moment of the window belongs to one of them."""
    figures = result(path).analysis.trace.ranks[0].figures
    if figures.gpu_busy_pct_mean is None:
        return
    parts = (
        figures.gpu_busy_pct_mean,
        figures.dataloader_exposed_pct,
        figures.sync_exposed_pct,
        figures.copy_api_exposed_pct,
        figures.host_exposed_pct,
    )

    assert sum(part or 0.0 for part in parts) == pytest.approx(100)


def test_predictions_keep_their_bounds(path: Path) -> None:
    """No gain without a replay within 5 %, none that is more than its cause costs, none upside down."""
    rank = result(path).analysis.trace.ranks[0]
    replay = rank.replay

    assert not rank.has_device or replay.usable == (replay.error_pct is not None and replay.error_pct <= MAX_ERROR_PCT)
    assert replay.usable or (replay.why and not replay.predictions)
    assert all(0 <= prediction.low <= prediction.high <= 100 for prediction in replay.predictions)


def test_the_fixed_loader_is_what_the_replay_said() -> None:
    """The same program before and after: 176.5 ms without workers, 126.3 ms with four, and 30 to 34 % were predicted."""
    by_name = {path.name: path for path in TRACES}
    before, after = (result(by_name[f"kineto_resnet50_nw{number}.json.gz"]).analysis for number in (0, 4))
    (gain,) = [prediction for prediction in before.trace.ranks[0].replay.predictions if prediction.fix == "loader"]
    steps = [analysis.trace.ranks[0].step_ms_median or 0.0 for analysis in (before, after)]
    measured = 100 * (1 - steps[1] / steps[0])

    assert (gain.low + gain.high) / 2 == pytest.approx(measured, rel=0.2)
