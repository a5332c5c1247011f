"""The agent's metrics, as Prometheus' own client parses them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from prometheus_client.parser import text_string_to_metric_families

from sysperf.agent import metrics
from sysperf.agent.state import Program
from sysperf.agent.store import Store
from sysperf.collect.process.parts import LoadedTorch
from sysperf.collect.process.records import Process
from sysperf.collect.process.workers import Worker, Workers
from sysperf.live.metric import SHARE
from sysperf.live.metrics import METERS, find
from sysperf.live.tracked_finding import TrackedFinding
from sysperf.model.text import neutral
from sysperf.report.formats.as_prometheus import MAX_SERIES
from tests.agent.states import NAME, PID, START, Table, every_meter
from tests.report import reports
from tests.report.hostile import texts

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(table: Table, loaders: tuple[Workers, ...] = ()) -> Samples:
    """Every sample by name and labels; equal ones would be an error to a server."""
    by_metric: Samples = {}
    families = set()
    for family in text_string_to_metric_families(metrics.render(table, loaders)):
        assert family.name not in families
        families.add(family.name)
        assert family.type in ("gauge", "counter")
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in by_metric
            by_metric[key] = sample.value
    return by_metric


def test_every_meter_has_a_metric_of_its_own() -> None:
    """Each documented series is there, none shares a name, and its value is in a base unit."""
    table = Table()
    by_metric = samples(table)
    names = [metric.prometheus_name for metric in METERS.values()]

    assert len(set(names)) == len(names)
    for series, value in table.figures.items():
        metric = find(series).metric
        assert metric is not None
        (exposed_value,) = [number for (name, _), number in by_metric.items() if name == f"sysperf_{metric.prometheus_name}"]
        assert exposed_value == pytest.approx(value * metric.unit.factor)


@pytest.mark.parametrize("pattern", METERS)
def test_names_follow_the_conventions(pattern: str) -> None:
    """Base units in the name, ratios say so, and the help is a sentence."""
    metric = METERS[pattern]

    assert pattern == metric.pattern
    assert pattern.endswith(metric.unit.ending.lstrip("_"))
    assert not metric.prometheus_name.endswith(("_ms", "_mhz", "_percent", "_per_s", "_s"))
    assert metric.prometheus_name.endswith("_ratio") == (metric.unit is SHARE) == ("share of" in metric.help)


def test_gpus_and_processes_are_told_apart() -> None:
    """By number and address, by number and name."""
    table = Table()
    table.figures = {"gpu.0.power_watts": 300.0, "gpu.7.power_watts": 10.0, f"process.{PID}.cpu": 1.5, "process.1.cpu": 2.0}
    by_metric = samples(table)

    assert by_metric["sysperf_gpu_power_watts", (("bus_id", "0000:65:00.0"), ("gpu", "0"))] == 300
    assert by_metric["sysperf_gpu_power_watts", (("bus_id", ""), ("gpu", "7"))] == 10
    assert by_metric["sysperf_process_cpus", (("name", neutral(NAME)), ("pid", str(PID)))] == 1.5
    assert by_metric["sysperf_process_cpus", (("name", ""), ("pid", "1"))] == 2


def test_units_are_base_units() -> None:
    """Megahertz become hertz, bytes stay whole."""
    table = Table()
    table.figures = {"cpu.frequency_mhz": 3_450.5, "memory.available_bytes": 1_649_267_441_663.0}
    by_metric = samples(table)

    assert by_metric["sysperf_cpu_frequency_hertz", ()] == 3_450_500_000
    assert by_metric["sysperf_memory_available_bytes", ()] == 1_649_267_441_663


def test_a_meter_without_documentation_is_shown_too() -> None:
    """Under its own name as a label: every figure is there."""
    table = Table()
    table.figures = {"new.thing": 3.0, "gpu.0.new": 4.0}
    by_metric = samples(table)

    assert by_metric["sysperf_meter", (("series", "new.thing"),)] == 3
    assert by_metric["sysperf_meter", (("series", "gpu.0.new"),)] == 4


def test_each_worker_has_its_figures() -> None:
    """By its place in the loader, so that an epoch with new workers is no new series; what cannot be read is left out."""
    loaders = (
        Workers(PID, 1.0, (Worker(50, "R", 2.5, rss_bytes=7 << 20, read_bytes=4096), Worker(51, "S", 0.25))),
        Workers(1, 1.0, None),
    )
    by_metric = samples(Table(), loaders)
    first, second = ((("name", neutral(NAME)), ("pid", str(PID)), ("worker", place)) for place in "01")

    assert by_metric["sysperf_process_worker_cpu_seconds_total", first] == 2.5
    assert by_metric["sysperf_process_worker_cpu_seconds_total", second] == 0.25
    assert by_metric["sysperf_process_worker_resident_memory_bytes", first] == 7 << 20
    assert by_metric["sysperf_process_worker_read_bytes_total", first] == 4096
    assert len([labels for _, labels in by_metric if "worker" in dict(labels)]) == 4


def test_what_is_unknown_has_no_series() -> None:
    """Never 0."""
    table = Table()
    table.figures = {"cpu.busy": math.nan}
    table.shown = None
    table.programs = ()
    by_metric = samples(table)

    assert not [name for name, _ in by_metric if name.startswith(("sysperf_cpu", "sysperf_gpu", "sysperf_memory", "sysperf_area"))]
    assert by_metric["sysperf_processes", ()] == 0


def test_findings_are_series_while_they_hold() -> None:
    """With since when; those that are gone are counted, and no series."""
    by_metric = samples(Table())
    labels = (("rule", "numa.balancing-on"), ("severity", "warning"), ("subject", ""))

    assert by_metric["sysperf_finding", labels] == 1
    assert by_metric["sysperf_finding_first_seen_timestamp_seconds", labels] == START
    assert by_metric["sysperf_findings", (("severity", "warning"),)] == 1
    assert by_metric["sysperf_findings", (("severity", "error"),)] == 0
    assert by_metric["sysperf_findings_gone", (("severity", "error"),)] == 1
    assert not [key for key in by_metric if ("rule", "gpu.link-narrow") in key[1]]


def test_the_agent_tells_of_itself() -> None:
    """Its cost, its samples, its problems."""
    table = Table()
    table.figures = {}
    table.problem = "the disk is full"
    by_metric = samples(table)

    assert by_metric["sysperf_agent_cpu_seconds_total", ()] == 1.25
    assert by_metric["sysperf_agent_resident_memory_bytes", ()] == 26 << 20
    assert by_metric["sysperf_agent_samples_total", ()] == 61
    assert by_metric["sysperf_agent_history_healthy", ()] == 0
    assert by_metric["sysperf_agent_history_bytes", ()] > 0
    assert by_metric["sysperf_build_info", (("mode", "observe"), ("version", "0.1.0"))] == 1


def test_families_are_bounded() -> None:
    """A machine of ten thousand programs does not fill the server."""
    table = Table()
    table.figures = {f"process.{pid}.cpu": 1.0 for pid in range(10_000)}
    table.held = tuple(TrackedFinding(reports.brief(f"rule.{number}", "error", "text"), START, START) for number in range(5_000))

    names = [name for name, _ in samples(table)]

    assert names.count("sysperf_process_cpus") == names.count("sysperf_finding") == MAX_SERIES


@given(texts)
@settings(max_examples=25)
def test_foreign_text_is_a_label(text: str) -> None:
    """Names of processes, GPUs and findings: quotes, newlines and escapes end nothing."""
    table = Table(Store.open(None))
    table.figures = {**every_meter(), text: 1.0}
    table.programs = (Program(Process(pid=PID, ppid=1, name=text, torch=LoadedTorch(version=text)), {}),)
    table.held = (TrackedFinding(reports.brief(text, "error", text, text), START, START),)
    table.shown = reports.snapshot(gpu={"devices": [{"index": 0, "bus_id": text, "name": text}]})
    by_metric = samples(table)

    assert by_metric["sysperf_process_cpus", (("name", neutral(text)), ("pid", str(PID)))]
    assert by_metric["sysperf_finding", (("rule", neutral(text)), ("severity", "error"), ("subject", neutral(text)))] == 1
