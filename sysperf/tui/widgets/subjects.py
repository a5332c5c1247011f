"""Which meter a finding belongs to, so that it is shown beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sysperf.model.outcome import Outcome
from sysperf.report.as_text import MARKS
from sysperf.report.machine import look
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


def at_meter(findings: Iterable[Outcome], meter: str) -> list[Outcome]:
    """The findings about the machine that belong to a meter."""
    return [one for one in findings if one.scope == "host" and METER_OF.get(one.rule.partition(".")[0]) == meter]


def at_gpu(findings: Iterable[Outcome], device: Any) -> list[Outcome]:
    """The findings about one GPU."""
    return [one for one in findings if one.scope == "gpu" and one.subject.startswith(f"GPU {look(device, 'index')} ")]


def named(one: Outcome, *, subject: bool = True) -> Line:
    """A finding in one line, to be clipped; without its subject where that stands above it."""
    about = f"{one.subject}: " if one.subject and subject else ""
    return line(
        span(f"{MARKS[one.severity]} ", one.severity), span(f"{one.rule}  ", "strong"), span(about, "dim"), span(message(one)),
        key=one.key,
    )  # fmt: skip
