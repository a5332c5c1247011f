"""Meters of the machine: CPU, memory, pressure, disk and network, each with its past and with what is wrong there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sysperf.model.finding import Finding
from sysperf.model.text import size
from sysperf.tui.now import Now
from sysperf.tui.widgets import subjects
from sysperf.tui.widgets.bar import bar, percent, spark
from sysperf.tui.widgets.line import Line, Lines, Span, fitted, line, padded, span, width_of

LABEL = 9
WIDE = 100
"""From this width on a finding stands beside its meter; below, under it."""


PRESSURES = tuple(f"pressure.{name}.some_avg10" for name in ("cpu", "memory", "io"))


class Meter(NamedTuple):
    """One row: a name, a share for the bar, its values as text, and the series of its curve."""

    name: str
    share: float | None
    text: str
    series: str
    top: float = 1.0
    heat: bool = False
    falling: bool = False
    """The series counts what is left: its curve shows what is used."""


def draw(now: Now, width: int, *, findings: bool = True) -> Lines:
    """A row for each meter."""
    outcomes = now.findings() if findings else []
    out: Lines = []
    for meter in meters(now):
        out += _row(now, meter, subjects.at_meter(outcomes, meter.name), width)
    return out


def meters(now: Now) -> list[Meter]:
    """What there is to show. A meter whose series are unknown says so."""
    get = now.meters.get
    total = (now.facts.memory.total_bytes or 0) if now.facts.memory else 0
    available = get("memory.available_bytes")
    used = 1 - available / total if total and available is not None else None
    worst = max(PRESSURES, key=lambda name: get(name, -1.0))
    return [
        Meter("cpu", get("cpu.busy"), _cpu(now), "cpu.busy"),
        Meter("memory", used, _memory(now, total, available), "memory.available_bytes", float(total), heat=True, falling=True),
        Meter("pressure", get(worst), _pressure(now), worst, heat=True),
        Meter("disk", get("disk.busy"), _both(now, "disk.read_bytes_per_s", "disk.written_bytes_per_s", "read", "write"), "disk.busy"),
        Meter("network", None, _both(now, "network.received_bytes_per_s", "network.sent_bytes_per_s", "in", "out"),
              "network.received_bytes_per_s", 0.0),
    ]  # fmt: skip


def _cpu(now: Now) -> str:
    get = now.meters.get
    parts = [percent(get("cpu.busy")) if "cpu.busy" in now.meters else ""]
    for name, label, least in (("iowait", "I/O wait", 0.02), ("steal", "stolen", 0.005)):
        share = get(f"cpu.{name}")
        parts.append(f"{percent(share)} {label}" if share is not None and share >= least else "")
    clock, waiting = get("cpu.frequency_mhz"), get("cgroup.throttled_cpus")
    parts.append(f"{clock / 1000:.1f} GHz" if clock else "")
    parts.append(f"quota takes {waiting:.1f} CPUs" if waiting and waiting >= 0.05 else "")
    return "  ".join(part for part in parts if part) or "not measured"


def _memory(now: Now, total: int, available: float | None) -> str:
    if available is None:
        return f"? of {size(total)}" if total else "unknown"
    swap = now.meters.get("memory.swap_used_bytes")
    usage = f"{size(total - available)} of {size(total)}" if total else f"{size(available)} available"
    return usage + (f"  swap {size(swap)}" if swap else "")


def _pressure(now: Now) -> str:
    shares = [(name, now.meters.get(f"pressure.{name}.some_avg10")) for name in ("cpu", "memory", "io")]
    if all(share is None for _, share in shares):
        return "unknown"
    return "  ".join(f"{name} {percent(share)}" for name, share in shares)


def _both(now: Now, first: str, second: str, into: str, out: str) -> str:
    first_rate, second_rate = now.meters.get(first), now.meters.get(second)
    if first_rate is None and second_rate is None:
        return "not measured"
    return f"{into} {_rate(first_rate)}  {out} {_rate(second_rate)}"


def _rate(per_s: float | None) -> str:
    return "?" if per_s is None else f"{size(round(per_s))}/s"


def _row(now: Now, meter: Meter, outcomes: Sequence[Finding], width: int) -> Lines:
    beside = width >= WIDE
    room = width // 2 - 1 if beside else width
    curve = _curve(now, meter, 12 if room >= 60 else 6)
    length = max(8, min(24, room // 4))
    full, empty = bar(meter.share, length, heat=meter.heat) if meter.name != "network" else (Span(""), Span(" " * length))
    head = line(Span(padded(meter.name, LABEL), "dim"), full, empty, Span(" "), span(curve, "dim"), Span(" "), span(meter.text))
    if not outcomes:
        return [fitted(head, width)]
    head = fitted(head, room)
    names = [subjects.named(finding) for finding in outcomes[:2]]
    if beside:
        gap = Span(" " * (room - width_of(head.spans) + 2))
        first = Line((*head.spans, gap, *names[0].spans), names[0].key)
        rest = [Line((Span(" " * (room + 2)), *other.spans), other.key) for other in names[1:]]
        return [fitted(first, width), *(fitted(other, width) for other in rest)]
    return [head, *(fitted(Line((Span(" " * LABEL), *other.spans), other.key), width) for other in names[:1])]


def _curve(now: Now, meter: Meter, width: int) -> str:
    past = now.past.get(meter.series, ())
    values = [meter.top - value for value in past] if meter.falling and meter.top else [*past]
    return spark(values, width, meter.top)
