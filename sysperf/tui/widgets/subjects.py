"""Which meter a finding belongs to, so that it is shown beside it."""

from __future__ import annotations

from collections.abc import Iterable

from sysperf.collect.gpu.records import Device
from sysperf.model.finding import Finding
from sysperf.report.as_text import MARKS
from sysperf.report.words import message
from sysperf.tui.widgets.line import Line, line, span

_METERS = {
    # meter: the areas whose findings stand beside it
    "cpu": ("cpu", "numa", "power", "kernel"),
    "memory": ("memory", "allocator"),
    "disk": ("storage",),
    "network": ("network", "nccl", "ddp"),
    "pressure": ("cgroup", "limits", "container"),
}
METER_OF = {name: meter for meter, names in _METERS.items() for name in names}


def at_meter(findings: Iterable[Finding], meter: str) -> list[Finding]:
    """The findings about the machine that belong to a meter."""
    return [finding for finding in findings if finding.scope == "host" and METER_OF.get(finding.rule.partition(".")[0]) == meter]


def at_gpu(findings: Iterable[Finding], device: Device) -> list[Finding]:
    """The findings about one GPU."""
    return [finding for finding in findings if finding.scope == "gpu" and finding.subject.index == device.index]


def named(outcome: Finding, *, subject: bool = True) -> Line:
    """A finding in one line, to be clipped; without its subject where that stands above it."""
    about = f"{outcome.about}: " if outcome.about and subject else ""
    return line(
        span(f"{MARKS[outcome.severity]} ", outcome.severity), span(f"{outcome.rule}  ", "strong"),
        span(about, "dim"), span(message(outcome)),
        key=outcome.key,
    )  # fmt: skip
