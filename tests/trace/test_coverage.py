"""What a file does not hold is unknown and never zero: absent tables, columns and names, and kinds of events that were not recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from sysperf.engine.analyze import Result, analyze
from sysperf.trace.facts import Rank
from sysperf.trace.output.drawing import CAUSES, Subject, draw

from .labelled import found, rules
from .synthetic import MS, Machine, exported, steps, written

KERNEL, MEMCPY, CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME"
OF_IDLE = ("gpu_busy_pct_mean", "dataloader_exposed_pct", "sync_exposed_pct", "copy_api_exposed_pct", "host_exposed_pct", "host_starved_pct",
           "dispatch_idle_pct", "idle_queued_pct", "idle_long_gaps_pct", "longest_gap_ms", "alloc_api_exposed_pct")  # fmt: skip
OF_COPIES = ("copy_exposed_pct", "h2d_exposed_pct", "h2d_pinned_exposed_pct", "pageable_wait_pct", "pageable_h2d", "pageable_d2h")
OF_CALLS = ("sync_api_pct", "sync_exposed_pct", "copy_api_pct", "copy_api_exposed_pct", "launch_api_pct", "alloc_api_exposed_pct",
            "host_exposed_pct", "host_starved_pct", "dispatch_idle_pct", "idle_queued_pct")  # fmt: skip
OF_LAUNCHES = ("host_starved_pct", "dispatch_idle_pct", "idle_queued_pct")
OF_NAMES = ("matmul_time_share", "tensor_core_share", "nccl_pct", "nccl_exposed_pct")


def step(machine: Machine) -> None:
    """A loader of 3 ms, a pageable copy, kernels, and a wait."""
    machine.load(3 * MS)
    machine.copy(2 * MS, "Memcpy HtoD (Pageable -> Device)", blocking=True)
    for _ in range(20):
        machine.kernel(100)
    machine.synchronize()


def program() -> Machine:
    return steps(Machine(), 6, step)


def analyzed(folder: Path, *statements: str) -> Result:
    return analyze([exported(folder, program(), changes=statements)], rules())


def rank(result: Result) -> Rank:
    return result.analysis.trace.ranks[0]


def unknown(result: Result, figures: tuple[str, ...]) -> None:
    """None of these figures is known."""
    assert {name: getattr(rank(result).figures, name) for name in figures} == dict.fromkeys(figures)


def test_an_export_gives_what_the_chrome_trace_of_the_same_program_gives(tmp_path: Path) -> None:
    """With all tables, nothing is unknown."""
    export, chrome = rank(analyzed(tmp_path)), rank(analyze([written(tmp_path, program().trace())], rules()))

    assert export.trust.unrecorded == chrome.trust.unrecorded == ()
    assert export.figures == chrome.figures
    assert export.verdict == chrome.verdict == "input-bound"


def test_without_the_calls_nobody_knows_what_the_device_waited_for(tmp_path: Path) -> None:
    result = analyzed(tmp_path, f"DROP TABLE {CALLS}")

    unknown(result, (*OF_CALLS, "pageable_wait_pct"))
    assert rank(result).figures.gpu_busy_pct_mean is not None
    assert rank(result).figures.dataloader_exposed_pct is not None
    assert rank(result).hole.pct is None
    assert rank(result).verdict == "input-bound"
    assert "trust.events-missing" in found(result)


def test_without_the_calls_idle_time_without_a_known_cause_is_no_verdict(tmp_path: Path) -> None:
    """The loader's ranges are gone as well."""
    result = analyzed(tmp_path, f"DROP TABLE {CALLS}", "DROP TABLE NVTX_EVENTS")

    assert rank(result).verdict == "cannot-tell"
    assert "calls of the host" in rank(result).why


def test_copies_that_were_called_for_and_are_in_no_table_leave_idle_time_unknown(tmp_path: Path) -> None:
    """While they ran, the device looks idle: no gap has a cause."""
    result = analyzed(tmp_path, f"DROP TABLE {MEMCPY}")

    unknown(result, (*OF_IDLE, *OF_COPIES))
    assert rank(result).figures.kernel_busy_pct is not None
    assert rank(result).devices[0].busy_pct is None
    assert not any(finding.gain.interval or finding.cost_pct for finding in result.analysis.findings)
    assert rank(result).verdict == "cannot-tell"
    assert "copies" in rank(result).why


def test_no_gain_is_predicted_where_idle_time_is_unknown(tmp_path: Path) -> None:
    """Also not for work of the device itself."""

    def pointwise(machine: Machine) -> None:
        machine.copy(200, "Memcpy HtoD (Pageable -> Device)", blocking=True)
        for _ in range(40):
            machine.kernel(200, "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>")
        machine.synchronize()

    whole, cut = (
        analyze([exported(tmp_path, steps(Machine(), 6, pointwise), changes=changes)], rules())
        for changes in ([], [f"DROP TABLE {MEMCPY}"])
    )
    gains = [{finding.rule for finding in result.analysis.findings if finding.gain.interval} for result in (whole, cut)]

    assert "kernels.elementwise-heavy" in gains[0] & found(cut)
    assert not gains[1]


def test_a_program_that_copies_nothing_needs_no_table_of_copies(tmp_path: Path) -> None:
    """Nsight Systems leaves out tables without rows: where no call copied, there was no copy."""

    def only_kernels(machine: Machine) -> None:
        for _ in range(20):
            machine.kernel(100)
        machine.synchronize()

    result = analyze([exported(tmp_path, steps(Machine(), 6, only_kernels), changes=[f"DROP TABLE {MEMCPY}"])], rules())

    assert rank(result).figures.h2d_exposed_pct == 0
    assert rank(result).verdict == "healthy"


@pytest.mark.parametrize("statement", ["DROP TABLE {}", "DELETE FROM {}"])
def test_a_device_whose_kernels_are_in_no_table_was_not_traced(tmp_path: Path, statement: str) -> None:
    """The calls launched some, so that its copies alone say nothing about the device."""
    result = analyzed(tmp_path, statement.format(KERNEL))

    unknown(result, (*OF_IDLE, *OF_COPIES, *OF_NAMES, "kernel_busy_pct", "kernels"))
    assert found(result) == {"trust.device-events-missing"}
    assert rank(result).verdict == "cannot-tell"
    assert "cudaLaunchKernel" in rank(result).why


def test_kernels_that_a_chrome_trace_lost_are_unknown_as_well(tmp_path: Path) -> None:
    trace = program().trace()
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event["cat"] != "kernel"]
    result = analyze([written(tmp_path, trace)], rules())

    unknown(result, (*OF_IDLE, *OF_COPIES, "kernels"))
    assert rank(result).verdict == "cannot-tell"


def test_ranges_alone_do_not_say_that_the_cpu_computed(tmp_path: Path) -> None:
    """`nsys profile --trace nvtx` of any program: whether it used a device is unknown."""
    machine = program()
    for _ in range(100):
        start = machine.now
        machine.think(100)
        machine.range("aten::mm", start)
    path = exported(tmp_path, machine, changes=[f"DROP TABLE {table}" for table in (KERNEL, MEMCPY, "CUPTI_ACTIVITY_KIND_MEMSET", CALLS)])
    result = analyze([path], rules())

    assert rank(result).verdict == "cannot-tell"
    assert "nsys profile --trace cuda" in rank(result).why


@pytest.mark.parametrize(
    ("table", "columns", "figures"),
    [
        (KERNEL, ("shortName",), OF_NAMES),
        (CALLS, ("nameId",), OF_CALLS[:-1]),
        (MEMCPY, ("copyKind",), ("h2d_exposed_pct", "h2d_pinned_exposed_pct", "pageable_wait_pct")),
        (MEMCPY, ("srcKind", "dstKind"), ("h2d_pinned_exposed_pct", "pageable_wait_pct", "pageable_h2d", "pageable_h2d_per_step")),
        (CALLS, ("correlationId",), (*OF_LAUNCHES, "pageable_wait_pct")),
    ],
    ids=["kernels' names", "calls' names", "directions", "kinds of memory", "launches"],
)
def test_figures_that_need_an_absent_column_are_unknown(
    tmp_path: Path, table: str, columns: tuple[str, ...], figures: tuple[str, ...]
) -> None:
    result = analyzed(tmp_path, *(f"ALTER TABLE {table} RENAME COLUMN {column} TO other_{column}" for column in columns))

    unknown(result, figures)
    assert rank(result).figures.gpu_busy_pct_mean is not None


def test_names_are_unknown_where_no_table_holds_them(tmp_path: Path) -> None:
    result = analyzed(tmp_path, "DROP TABLE StringIds")

    unknown(result, (*OF_NAMES, *OF_CALLS))


@pytest.mark.parametrize("gone", [CALLS, MEMCPY])
def test_nothing_is_drawn_of_causes_that_are_unknown(tmp_path: Path, gone: str) -> None:
    accounting = analyzed(tmp_path, f"DROP TABLE {gone}").accounting
    assert accounting is not None
    names = {CAUSES[event.color] for row in draw(Subject(accounting)).rows if row.name.endswith("exposed time") for event in row.events}

    assert names == ({"busy", "loader"} if gone == CALLS else {"busy"})


UNTYPED = "gemmk1_kernel"
"""A name of cuBLAS without its template types."""


def products(folder: Path, *demangled: str) -> Rank:
    """An export of products of one short name; each of these full names belongs to as many of them as the others."""

    def step(machine: Machine) -> None:
        for _ in range(6):
            machine.kernel(500, UNTYPED)
        machine.synchronize()

    full = [f"INSERT INTO StringIds VALUES ({900 + number}, '{name}')" for number, name in enumerate(demangled)]  # noqa: S608 - our own names
    column = [f"ALTER TABLE {KERNEL} ADD COLUMN demangledName", f"UPDATE {KERNEL} SET demangledName = 900 + rowid % {len(demangled)}"]  # noqa: S608 - as above
    path = exported(folder, steps(Machine(), 6, step), changes=[*full, *column] if demangled else [])
    return rank(analyze([path], rules()))


@pytest.mark.parametrize(
    ("demangled", "share"),
    [
        ((), None),
        (("void gemmk1_kernel<float, 256, 5, true>(cublasGemmk1Params<float>)",), 100.0),
        (("void gemmk1_kernel<__nv_bfloat16, 256, 5, true>(cublasGemmk1Params<__nv_bfloat16>)",), 0.0),
        (("void gemmk1_kernel<int, 256>(int)",), None),
        (("void gemmk1_kernel<float, 256, 5>(float)", "void gemmk1_kernel<float, 128, 5>(float)"), 100.0),
        (("void gemmk1_kernel<float, 256, 5>(float)", "void gemmk1_kernel<__half, 256, 5>(__half)"), None),
    ],
)
def test_the_types_of_products_are_those_of_their_full_names(tmp_path: Path, demangled: tuple[str, ...], share: float | None) -> None:
    """`shortName` has no template arguments. Names stay what they are; where full names of one short name disagree, nobody knows."""
    told = products(tmp_path, *demangled)

    assert told.work.plain_matmul_share == share
    assert told.work.plain_matmul_pct == (pytest.approx(told.figures.kernel_busy_pct) if share else 0.0)
    assert told.figures == products(tmp_path).figures
