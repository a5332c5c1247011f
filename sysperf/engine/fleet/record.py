"""The verb `node record`: what a machine says of itself to a fleet."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

import msgspec

from sysperf.collect.machine_facts import MachineFacts
from sysperf.engine.audit import audit
from sysperf.engine.judging import Terms
from sysperf.evaluate.compare import comparables, installed_bytes
from sysperf.host import Host
from sysperf.model.difference import NOT_SET, UNKNOWN
from sysperf.model.finding import Report
from sysperf.model.node import NodeCeiling, NodeFinding, NodeRecord, Unread
from sysperf.model.snapshot import Snapshot
from sysperf.model.text import neutral, size

MAX_FINDINGS = 200
MAX_MESSAGE = 300
JOB = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
"""Where schedulers say which job runs here."""


def record(host: Host, terms: Terms, node: str = "") -> NodeRecord:
    """Read and judge a machine, and keep what a fleet compares. `node` is its name there."""
    return of_report(audit(host, terms), terms, node or name())


def name() -> str:
    """How this machine is called where nobody says otherwise."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def of_report(report: Report, terms: Terms, node: str) -> NodeRecord:
    """The same of an audit that was made."""
    found = report.findings()
    return NodeRecord(
        node=node,
        taken_at=report.snapshot.taken_at,
        sysperf=report.sysperf,
        hardware=hardware(report.snapshot),
        comparables=comparables(report.snapshot, terms.ruleset.tables.get("matters", {})),
        findings=tuple(
            NodeFinding(outcome.rule, outcome.severity, outcome.state, outcome.about[:200], neutral(outcome.message, MAX_MESSAGE))
            for outcome in found[:MAX_FINDINGS]
        ),
        unknown=tuple(Unread(name, neutral(area.problem, 200)) for name, area in report.snapshot.areas.items() if area.problem),
        job=neutral(next((os.environ[name] for name in JOB if os.environ.get(name)), ""), 80),
        took_ms=report.took_ms,
    )


def with_ceilings(said: NodeRecord, groups: tuple[str, ...], runs: int) -> NodeRecord:
    """The record with figures that are measured now. Raises UsageError."""
    from sysperf.engine.bench import host  # noqa: PLC0415 - a record without figures does not pay for it

    measured = host.measure(host.Request(groups=groups, runs=runs))
    ceilings = tuple(NodeCeiling(each.metric, each.unit, each.group, each.values) for each in measured.ceilings if each.values)
    return msgspec.structs.replace(said, ceilings=ceilings)


def hardware(machine: Snapshot) -> dict[str, str]:
    """What a machine is made of, part by part."""
    facts = MachineFacts(machine.areas)
    gpus = facts.gpu.devices if facts.gpu else None
    ports = facts.network.rdma if facts.network else None
    memory = facts.memory.total_bytes if facts.memory else None
    return {
        "gpu": UNKNOWN if gpus is None else _counted(gpu.name or UNKNOWN for gpu in gpus),
        "cpu": f"{facts.cpu.packages or UNKNOWN} × {neutral(facts.cpu.model_name, 100)}" if facts.cpu and facts.cpu.model_name else UNKNOWN,
        "rdma": UNKNOWN if ports is None else _counted(f"{port.rate_gbps:g} Gb/s" if port.rate_gbps else "port" for port in ports),
        "memory": UNKNOWN if memory is None else size(installed_bytes(memory)),
    }


def _counted(names: Iterable[str]) -> str:
    """Return equal names once, with their number before them."""
    counts = Counter(neutral(name, 100) for name in names)
    return " + ".join(f"{count} × {name}" for name, count in sorted(counts.items())) or NOT_SET
