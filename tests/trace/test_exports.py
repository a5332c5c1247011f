"""Exports of Nsight Systems without CUDA, with reasons of its own, and with what is no launch: as real ones are, made small."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from sysperf.engine.analyze import Result, analyze
from sysperf.model.errors import TraceError

from .labelled import rules
from .synthetic import Machine, exported, steps

THREAD = 4_000 << 24 | 4_000
SLEEPING, READING = 1, 2
SYSTEM_CALLS = (
    "CREATE TABLE OSRT_API (start, end, globalTid, nameId, nestingLevel)",
    "INSERT INTO StringIds VALUES (1, 'clock_nanosleep'), (2, 'read'), (3, 'profiling started')",
    "INSERT INTO OSRT_API VALUES (5, NULL, 67108868000, 3, 0)",
)


def without_cuda(folder: Path, *changes: str, with_ranges: bool = True) -> str:
    """Ten steps of 10 ms, 6 of which are slept, and another thread that reads all the time."""
    path = folder / "export.sqlite"
    with sqlite3.connect(path) as export:
        export.execute("CREATE TABLE StringIds (id, value)")
        for change in (*SYSTEM_CALLS, "CREATE TABLE NVTX_EVENTS (start, end, eventType, globalTid, text)"):
            export.execute(change)
        for number in range(10):
            start = 1_000_000 + number * 10_000_000
            export.execute("INSERT INTO OSRT_API VALUES (?, ?, ?, ?, 0)", (start, start + 6_000_000, THREAD, SLEEPING))
            export.execute("INSERT INTO OSRT_API VALUES (?, ?, ?, ?, 1)", (start, start + 5_000_000, THREAD, READING))
            export.execute("INSERT INTO OSRT_API VALUES (?, ?, ?, ?, 0)", (start, start + 9_900_000, THREAD + 1, READING))
            export.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?)", (start, start + 9_900_000, THREAD, f"step {number}"))
        for change in (*(() if with_ranges else ("DROP TABLE NVTX_EVENTS",)), *changes):
            export.execute(change)
    return str(path)


def only(result: Result, rule: str) -> list[str]:
    return [finding.message for finding in result.analysis.findings if finding.rule == rule]


def test_an_export_without_cuda_has_steps_and_waits(tmp_path: Path) -> None:
    """Steps are those of NVTX; what the main thread waits in is the calls of the operating system, and not those of other threads."""
    result = analyze([without_cuda(tmp_path)], rules())
    rank = result.analysis.trace.ranks[0]

    assert (rank.steps.by, rank.steps.count) == ("NVTX", 9)
    assert rank.host.system_call == "clock_nanosleep"
    assert rank.host.system_call_pct == pytest.approx(60, abs=2)
    assert "`clock_nanosleep` 6" in result.analysis.trace.why
    assert only(result, "program.in-system-calls")
    assert not only(result, "trust.file-damaged")


def with_steps(folder: Path, lengths: Sequence[int], *outside: tuple[int, int, str]) -> str:
    """Steps of so many ms, one behind the other, all called `step`; and other ranges: (from ms, to ms, name)."""
    path = folder / "export.sqlite"
    ends = list(itertools.accumulate(lengths))
    with sqlite3.connect(path) as export:
        for change in (
            "CREATE TABLE StringIds (id, value)",
            *SYSTEM_CALLS,
            "CREATE TABLE NVTX_EVENTS (start, end, eventType, globalTid, text)",
        ):
            export.execute(change)
        for start, end, name in (*((end - took, end, "step") for took, end in zip(lengths, ends, strict=True)), *outside):
            export.execute("INSERT INTO OSRT_API VALUES (?, ?, ?, ?, 0)", (start * 1_000_000, end * 1_000_000, THREAD, SLEEPING))
            export.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?)", (start * 1_000_000, end * 1_000_000, THREAD, name))
    return str(path)


@pytest.mark.parametrize(
    ("lengths", "count"),
    [
        pytest.param([10, 10, 10, 50] * 4, 15, id="an evaluation in each fourth"),
        pytest.param([5, 50] * 6, 11, id="two kinds of steps in turn"),
        pytest.param([10] * 5 + [100] + [10] * 5, 10, id="one long step"),
        pytest.param([40, *[10] * 10], 9, id="a long first one is a start"),
        pytest.param([400, *[10] * 10], 0, id="a start that takes most of the time"),
    ],
)
def test_what_is_called_a_step_is_one_however_long(tmp_path: Path, lengths: Sequence[int], count: int) -> None:
    """And that all the time is in steps says nothing of where in the program it goes."""
    result = analyze([with_steps(tmp_path, lengths)], rules())

    assert (result.analysis.trace.ranks[0].steps.by, result.analysis.trace.ranks[0].steps.count) == ("NVTX" if count else "", count)
    assert not only(result, "program.region-heavy")


def test_a_range_within_the_main_loop_is_where_the_time_goes(tmp_path: Path) -> None:
    """Neither the loop around all of it, nor its epochs, of which each holds steps."""
    epochs = [(start, start + 24, "epoch") for start in range(0, 120, 24)]
    losses = [(start, start + 5, "loss") for start in range(0, 120, 12)]
    result = analyze([with_steps(tmp_path, [12] * 10, (0, 120, "main"), *epochs, *losses)], rules())

    assert (result.analysis.trace.ranks[0].steps.by, result.analysis.trace.ranks[0].steps.count) == ("NVTX", 9)
    assert only(result, "program.region-heavy") == ["`loss` covers 41.7 % of the time."]


def test_calls_of_the_operating_system_alone_are_an_export(tmp_path: Path) -> None:
    result = analyze([without_cuda(tmp_path, with_ranges=False)], rules())

    assert "in `clock_nanosleep`" in result.analysis.trace.why


@pytest.mark.parametrize("table", ["PROFILER_OVERHEAD", "DIAGNOSTIC_EVENT", "ANALYSIS_DETAILS"])
def test_an_export_that_recorded_nothing_is_one_all_the_same(tmp_path: Path, table: str) -> None:
    path = tmp_path / "export.sqlite"
    with sqlite3.connect(path) as export:
        export.execute(f"CREATE TABLE {table} (start, end)")
    result = analyze([str(path)], rules())

    assert result.analysis.trace.verdict == "cannot-tell"


def test_reasons_of_the_profiler_are_told_in_its_words(tmp_path: Path) -> None:
    """Once each, without what went well."""
    changes = (
        "CREATE TABLE DIAGNOSTIC_EVENT (timestamp, severity, text)",
        "INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 1, 'Profiling has started.')",
        *("INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 2, 'CUDA driver (13.3) is not supported by this build')",) * 2,
    )
    result = analyze([without_cuda(tmp_path, *changes)], rules())

    assert only(result, "trust.profiler-complains") == ["CUDA driver (13.3) is not supported by this build"]


def test_page_migrations_are_no_missing_launches(tmp_path: Path) -> None:
    """Unified memory moves pages by itself: kinds 11 and 12."""
    path = exported(tmp_path, steps(Machine(), 6, lambda machine: [machine.kernel(50) for _ in range(20)]))
    with sqlite3.connect(path) as export:
        rows = [(1_000_000_000_000 + number * 1_000, 1_000_000_000_500 + number * 1_000, 0, 9, 0, 4_000 << 24, kind, 0, 2)
                for number, kind in enumerate((11, 12) * 50)]  # fmt: skip
        export.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    trust = analyze([path], rules()).analysis.trace.ranks[0].trust

    assert trust.uncorrelated_gpu_ops == 0


def test_a_log_that_was_not_folded_in_is_named(tmp_path: Path) -> None:
    """A copy that was made while nsys still wrote: the tables are in SQLite's log beside it."""
    path, copy = tmp_path / "export.sqlite", tmp_path / "copy.sqlite"
    export = sqlite3.connect(path)
    export.execute("PRAGMA journal_mode=WAL")
    export.execute("CREATE TABLE OSRT_API (start, end)")
    export.commit()
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    export.close()
    with pytest.raises(TraceError, match=r"copy\.sqlite-wal"):
        analyze([str(copy)], rules())
