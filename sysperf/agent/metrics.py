"""Everything the agent shows, as Prometheus metrics.

A meter's name becomes the metric's: ``gpu.0.power_watts`` is ``sysperf_gpu_power_watts{gpu="0"}``. Units are the base ones
of Prometheus: seconds, bytes, hertz, and ratios from 0 to 1. Only PyTorch processes have series of their own, and of
these only as many as the agent watches.

Names  https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sysperf.agent.state import AgentState
from sysperf.agent.status import Status
from sysperf.collect.process.workers import Workers
from sysperf.live.hysteresis import TrackedFinding
from sysperf.live.metric import Metric
from sysperf.live.metrics import METERS, find
from sysperf.model.rule import SEVERITIES
from sysperf.model.snapshot import Snapshot
from sysperf.model.text import neutral
from sysperf.report.as_prometheus import Sample, areas, family, findings, gauge, name_of
from sysperf.report.machine import facts, look

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(state: AgentState, loaders: Iterable[Workers] = ()) -> str:
    """All metrics, as text."""
    snapshot, status = state.snapshot(), state.status()
    labels = _labels(snapshot, state.processes())
    families = [
        *findings([held.outcome for held in state.findings() if held.state == "active"]),
        *_since(state.findings()),
        *_meters(state.meters(), labels),
        *_workers(loaders, labels),
        *_machine(snapshot, state.processes()),
        *(areas(snapshot) if snapshot else ()),
        *_changes(state.changes()),
        *_agent(status, state),
    ]
    return "".join(families)


def _since(held: Iterable[TrackedFinding]) -> list[str]:
    known = [one for one in held if one.state == "active"]
    gone = [one for one in held if one.state == "gone"]
    counts = [one.outcome.severity for one in gone]
    return [
        gauge(
            "finding_first_seen_timestamp_seconds", "When a finding held first.", [(name_of(one.outcome), one.first_seen) for one in known]
        ),
        gauge(
            "findings_gone",
            "Findings that are gone since a short while.",
            [({"severity": name}, counts.count(name)) for name in SEVERITIES],
        ),
    ]


Labels = Mapping[tuple[str, str], dict[str, str]]


def _labels(snapshot: Snapshot | None, processes: Iterable[Any]) -> Labels:
    """What tells one GPU or process from another: (area, number) to labels."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for device in _devices(snapshot):
        found["gpu", str(look(device, "index"))] = {"gpu": str(look(device, "index")), "bus_id": str(look(device, "bus_id") or "")}
    for process in processes:
        pid = str(_of(process, "pid"))
        found["process", pid] = {"pid": pid, "name": str(_of(process, "name") or "")}
    return found


def _of(process: Any, field: str) -> Any:
    """A fact of a process, which may lie beside its meters."""
    value = look(process, field)
    return look(process, "process", field) if value is None else value


def _devices(snapshot: Snapshot | None) -> tuple[Any, ...]:
    return tuple(look(facts(snapshot, "gpu"), "devices") or ()) if snapshot else ()


def _meters(meters: Mapping[str, float], labels: Labels) -> list[str]:
    """A family a meter; those that nobody documented share one."""
    found: dict[Metric, list[Sample]] = {}
    other: list[Sample] = []
    for series, value in meters.items():
        metric, area, item = find(series)
        if not math.isfinite(value):
            continue
        if metric is None:
            other.append(({"series": series}, value))
            continue
        found.setdefault(metric, []).append((_label(area, item, labels), value * metric.unit.factor))
    families = [family(metric.prometheus_name, _sentence(metric.help), samples, metric.kind) for metric, samples in found.items()]
    return [*families, gauge("meter", "Meters without a name of their own.", other)]


def _label(area: str, item: str, labels: Labels) -> dict[str, str]:
    if not item:
        return {}
    unnamed = {"gpu": item, "bus_id": ""} if area == "gpu" else {"pid": item, "name": ""}
    return labels.get((area, item), unnamed)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _workers(loaders: Iterable[Workers], labels: Labels) -> list[str]:
    """Each DataLoader worker by its place in its loader: numbers of processes would be new series with each epoch."""
    found = [
        ({**_label("process", str(loader.pid), labels), "worker": str(place)}, worker)
        for loader in loaders
        for place, worker in enumerate(loader.workers or ())
    ]
    return [
        family(
            "process_worker_cpu_seconds_total",
            "CPU time of a DataLoader worker; each epoch may begin with new ones.",
            [(named, one.cpu_s) for named, one in found],
            "counter",
        ),
        family(
            "process_worker_read_bytes_total",
            "Bytes that a DataLoader worker had read from storage.",
            [(named, one.read_bytes) for named, one in found if one.read_bytes is not None],
            "counter",
        ),
        gauge(
            "process_worker_resident_memory_bytes",
            "Resident memory of a DataLoader worker, shared pages included.",
            [(named, one.rss_bytes) for named, one in found if one.rss_bytes is not None],
        ),
    ]


def _machine(snapshot: Snapshot | None, processes: Iterable[Any]) -> list[str]:
    """Facts that meters are compared with."""
    memory = look(facts(snapshot, "memory"), "total_bytes") if snapshot else None
    gpus = [({"gpu": str(look(device, "index")), "bus_id": str(look(device, "bus_id") or "")}, device) for device in _devices(snapshot)]
    running = [({"pid": str(_of(process, "pid")), "name": str(_of(process, "name") or "")}, process) for process in processes]
    return [
        gauge("memory_total_bytes", "Memory of the machine.", [] if memory is None else [({}, memory)]),
        gauge("gpu_info", "A GPU.", [({**labels, "name": str(look(one, "name") or "")}, 1) for labels, one in gpus]),
        gauge(
            "gpu_memory_total_bytes",
            "Memory of the GPU.",
            [(labels, total) for labels, one in gpus if (total := look(one, "memory_total_bytes")) is not None],
        ),
        gauge(
            "process_info",
            "A PyTorch process.",
            [({**labels, "torch": str(_of(one, "torch_version") or "")}, 1) for labels, one in running],
        ),
        gauge(
            "process_start_time_seconds",
            "When the process started, in Unix time.",
            [(labels, started) for labels, one in running if (started := _of(one, "started_at")) is not None],
        ),
        gauge("processes", "PyTorch processes.", [({}, len(running))]),
    ]


def _changes(changes: Iterable[Any]) -> list[str]:
    states = [neutral(str(look(change, "state"))) for change in changes]
    return [
        gauge(
            "changes",
            "Changes that sysperf made on this machine.",
            [({"state": state}, states.count(state)) for state in sorted(set(states))],
        )
    ]


def _agent(status: Status, state: AgentState) -> list[str]:
    cost = status.cost
    families = [
        gauge("build_info", "The version of the agent.", [({"version": status.version, "mode": status.mode}, 1)]),
        gauge("agent_start_time_seconds", "When the agent started, in Unix time.", [({}, status.started_at)]),
        family("agent_samples_total", "Samples taken.", [({}, status.samples)], "counter"),
        gauge("agent_clients", "Connections to the agent's socket.", [({}, status.clients)]),
        gauge("agent_problems", "What does not work; GET /v1/status says what.", [({}, len(status.problems))]),
        gauge("agent_history_bytes", "Size of the history.", [({}, state.store.size_bytes)]),
        gauge("agent_history_healthy", "1 while nothing is wrong with the history file.", [({}, not status.store_problem)]),
    ]
    if cost.cpu_s is not None:
        families.append(family("agent_cpu_seconds_total", "CPU time that the agent used.", [({}, cost.cpu_s)], "counter"))
    if cost.rss_bytes is not None and "agent.rss_bytes" not in state.meters():
        resident = METERS["agent.rss_bytes"]
        families.append(gauge(resident.prometheus_name, _sentence(resident.help), [({}, cost.rss_bytes)]))
    return families
