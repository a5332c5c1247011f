"""Everything the agent shows, as Prometheus metrics.

A meter's name becomes the metric's: ``gpu.0.power_watts`` is ``sysperf_gpu_power_watts{gpu="0"}``. Units are the base ones
of Prometheus: seconds, bytes, hertz, and ratios from 0 to 1. Only PyTorch processes have series of their own, and of
these only as many as the agent watches.

Names  https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from sysperf.agent.state import AgentState, Program
from sysperf.agent.status import Status
from sysperf.collect.gpu.records import Device
from sysperf.collect.machine_facts import MachineFacts
from sysperf.collect.process.records import Process
from sysperf.collect.process.workers import Workers
from sysperf.live.metric import Metric
from sysperf.live.metrics import METERS, find
from sysperf.live.tracked_finding import TrackedFinding
from sysperf.model.change import Transaction
from sysperf.model.rule import SEVERITIES
from sysperf.model.text import neutral
from sysperf.report.formats.as_prometheus import Sample, areas, family, findings, gauge, name_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(state: AgentState, loaders: Iterable[Workers] = ()) -> str:
    """All metrics, as text."""
    snapshot, status = state.snapshot(), state.status()
    facts, programs = MachineFacts(snapshot.areas if snapshot else {}), state.processes()
    labels = _labels(facts, programs)
    families = [
        *findings([finding.outcome for finding in state.findings() if finding.state == "active"]),
        *_since(state.findings()),
        *_meters(state.meters(), labels),
        *_workers(loaders, labels),
        *_machine(facts, programs),
        *(areas(snapshot) if snapshot else ()),
        *_changes(state.changes()),
        *_agent(status, state),
    ]
    return "".join(families)


def _since(findings: Iterable[TrackedFinding]) -> list[str]:
    active = [(name_of(finding.outcome), finding.first_seen) for finding in findings if finding.state == "active"]
    gone = [finding.outcome.severity for finding in findings if finding.state == "gone"]
    return [
        gauge("finding_first_seen_timestamp_seconds", "When a finding held first.", active),
        gauge(
            "findings_gone",
            "Findings that are gone since a short while.",
            [({"severity": name}, gone.count(name)) for name in SEVERITIES],
        ),
    ]


Labels = Mapping[tuple[str, str], dict[str, str]]


def _labels(facts: MachineFacts, programs: Iterable[Program]) -> Labels:
    """What tells one GPU or process from another: (area, number) to labels."""
    labels = {("gpu", str(device.index)): _gpu_labels(device) for device in facts.gpus}
    labels.update({("process", str(program.process.pid)): _process_labels(program.process) for program in programs})
    return labels


def _gpu_labels(device: Device) -> dict[str, str]:
    return {"gpu": str(device.index), "bus_id": device.bus_id or ""}


def _process_labels(process: Process) -> dict[str, str]:
    return {"pid": str(process.pid), "name": process.name}


def _meters(meters: Mapping[str, float], labels: Labels) -> list[str]:
    """A family a meter; those that nobody documented share one."""
    samples_by_metric: dict[Metric, list[Sample]] = {}
    other: list[Sample] = []
    for series, value in meters.items():
        metric, area, item = find(series)
        if not math.isfinite(value):
            continue
        if metric is None:
            other.append(({"series": series}, value))
            continue
        samples_by_metric.setdefault(metric, []).append((_label(area, item, labels), value * metric.unit.factor))
    families = [
        family(metric.prometheus_name, _sentence(metric.help), samples, metric.kind) for metric, samples in samples_by_metric.items()
    ]
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
    samples = [
        ({**_label("process", str(loader.pid), labels), "worker": str(place)}, worker)
        for loader in loaders
        for place, worker in enumerate(loader.workers or ())
    ]
    return [
        family(
            "process_worker_cpu_seconds_total",
            "CPU time of a DataLoader worker; each epoch may begin with new ones.",
            [(named, worker.cpu_s) for named, worker in samples],
            "counter",
        ),
        family(
            "process_worker_read_bytes_total",
            "Bytes that a DataLoader worker had read from storage.",
            [(named, worker.read_bytes) for named, worker in samples if worker.read_bytes is not None],
            "counter",
        ),
        gauge(
            "process_worker_resident_memory_bytes",
            "Resident memory of a DataLoader worker, shared pages included.",
            [(named, worker.rss_bytes) for named, worker in samples if worker.rss_bytes is not None],
        ),
    ]


def _machine(facts: MachineFacts, programs: Iterable[Program]) -> list[str]:
    """Facts that meters are compared with."""
    memory = facts.memory.total_bytes if facts.memory else None
    gpus = [(_gpu_labels(device), device) for device in facts.gpus]
    running = [(_process_labels(program.process), program.process) for program in programs]
    return [
        gauge("memory_total_bytes", "Memory of the machine.", [] if memory is None else [({}, memory)]),
        gauge("gpu_info", "A GPU.", [({**labels, "name": gpu.name or "", "vendor": gpu.vendor}, 1) for labels, gpu in gpus]),
        gauge(
            "gpu_memory_total_bytes",
            "Memory of the GPU.",
            [(labels, gpu.memory_total_bytes) for labels, gpu in gpus if gpu.memory_total_bytes is not None],
        ),
        gauge(
            "process_info",
            "A PyTorch process.",
            [({**labels, "torch": process.torch.version or ""}, 1) for labels, process in running],
        ),
        gauge("processes", "PyTorch processes.", [({}, len(running))]),
    ]


def _changes(changes: Iterable[Transaction]) -> list[str]:
    states = [neutral(change.state) for change in changes]
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
