"""Meters of the machine: its CPUs and who uses them; memory, pressure, disk and network, each with its past."""

from __future__ import annotations

from typing import NamedTuple

from sysperf.model.cpuset import CpuSet
from sysperf.model.text import neutral, size
from sysperf.report.terminal import cells
from sysperf.tui.now import Now
from sysperf.tui.widgets import users
from sysperf.tui.widgets.bar import bar, cell, percent, spark
from sysperf.tui.widgets.line import Line, Lines, Span, fitted, line, padded, span, width_of

LABEL, TEXT = 9, 32
PRESSURES = tuple(f"pressure.{name}.some_avg10" for name in ("cpu", "memory", "io"))
FEW = 16
"""Up to so many CPUs have a bar each; more have a character each."""
NAMED = 4
LEAST_CPUS = 0.05


class Meter(NamedTuple):
    """One row: a name, a share for the bar, its values as text, and the series of its curve."""

    name: str
    share: float | None
    text: str
    series: str
    top: float = 1.0
    falling: bool = False
    """The series counts what is left: its curve shows what is used."""


def draw(now: Now, width: int, *, brief: bool = False) -> Lines:
    """A row for each meter; in brief, one for disk and network."""
    every = meters(now)
    if not brief:
        return [_row(now, meter, width) for meter in every]
    *first, disk, network = every
    rates = line(Span(padded("disk", LABEL), "dim"), span(f"{disk.text}  "), Span("network ", "dim"), span(network.text))
    return [*(_row(now, meter, width) for meter in first), fitted(rates, width)]


def meters(now: Now) -> list[Meter]:
    """What there is to show. A meter whose series are unknown says so."""
    get = now.meters.get
    total = (now.facts.memory.total_bytes or 0) if now.facts.memory else 0
    available = get("memory.available_bytes")
    used = 1 - available / total if total and available is not None else None
    worst = max(PRESSURES, key=lambda name: get(name, -1.0))
    return [
        Meter("memory", used, _memory(now, total, available), "memory.available_bytes", float(total), falling=True),
        Meter("pressure", get(worst), _pressure(now), worst),
        Meter("disk", get("disk.busy"), _both(now, "disk.read_bytes_per_s", "disk.written_bytes_per_s", "read", "write"), "disk.busy"),
        Meter("network", None, _both(now, "network.received_bytes_per_s", "network.sent_bytes_per_s", "in", "out"),
              "network.received_bytes_per_s", 0.0),
    ]  # fmt: skip


def cpu_title(now: Now) -> list[Span]:
    """``CPU 42 %, 6 % I/O wait, 3.0 GHz``."""
    get = now.meters.get
    parts = [percent(get("cpu.busy")) if "cpu.busy" in now.meters else ""]
    for name, label, least in (("iowait", "I/O wait", 0.02), ("steal", "stolen", 0.005)):
        share = get(f"cpu.{name}")
        parts.append(f"{percent(share)} {label}" if share is not None and share >= least else "")
    clock, waiting = get("cpu.frequency_mhz"), get("cgroup.throttled_cpus")
    parts.append(f"{clock / 1000:.1f} GHz" if clock else "")
    parts.append(f"quota takes {waiting:.1f} CPUs" if waiting and waiting >= 0.05 else "")
    return [Span("CPU ", "strong"), span(", ".join(part for part in parts if part) or "not measured")]


def cpus(now: Now, width: int, height: int = 4) -> Lines:
    """The load of each CPU, then who uses them, in at most `height` lines."""
    who = _who(now, width, height)
    rows = _loads(now, width)
    if len(rows) > height - len(who) and len(now.per_cpu) > FEW:
        rows = [_strip(now.per_cpu, None, CpuSet(now.per_cpu), width)]
    return [*rows[: max(1, height - len(who))], *who]


def _loads(now: Now, width: int) -> Lines:
    loads = now.per_cpu
    if not loads:
        full, empty = bar(now.meters.get("cpu.busy"), max(8, min(40, width - 30)))
        return [fitted(line(Span(padded("cpu", LABEL), "dim"), full, empty, Span(" " + percent(now.meters.get("cpu.busy")))), width)]
    if len(loads) <= FEW:
        return _bars(loads, width)
    packages = [package & CpuSet(loads) for package in (now.facts.cpu.package_cpus or () if now.facts.cpu else ())]
    left = CpuSet(loads) - CpuSet.union(packages)
    return [_strip(loads, number, package, width) for number, package in enumerate([*packages, *([left] if left else [])]) if package]


def _bars(loads: dict[int, float], width: int) -> Lines:
    """A bar each, in as many columns as make them readable."""
    columns = max(1, min(len(loads), width // 24))
    wide = width // columns
    out: Lines = []
    numbers = sorted(loads)
    for first in range(0, len(numbers), columns):
        parts: list[Span] = []
        for cpu in numbers[first : first + columns]:
            parts += [Span(f"{cpu:>3} ", "dim"), *bar(loads[cpu], wide - 12), Span(f" {percent(loads[cpu]):>5}  ")]
        out.append(fitted(line(*parts), width))
    return out


def _strip(loads: dict[int, float], number: int | None, package: CpuSet, width: int) -> Line:
    """A character for each CPU of a socket; where there are more CPUs than room, for the busiest of some neighbours."""
    label = f" {package}"
    room = max(8, width - 3 - min(len(label), 14))
    numbers = [*package]
    share = -(-len(numbers) // room)
    shown = [cell(max(loads[cpu] for cpu in numbers[at : at + share])) for at in range(0, len(numbers), share)]
    wide = max(1, room // len(shown)) if share == 1 else 1
    parts = [Span(one.text * min(wide, 2), one.style) for one in shown]
    return fitted(line(Span("   " if number is None else f"{number:<2} ", "dim"), *parts, Span(label, "dim")), width)


def _who(now: Now, width: int, height: int) -> Lines:
    """PyTorch's CPUs, everybody else's, and the names of those that use most."""
    busy, total = now.meters.get("cpu.busy"), len(now.facts.cpu.online) if now.facts.cpu and now.facts.cpu.online else 0
    torch = sum(value for name, value in now.meters.items() if name.startswith("process.") and name.endswith((".cpu", ".workers_cpu")))
    if busy is None or not total:
        return []
    others = max(0.0, busy * total - torch)
    names = _named(now)
    first = [Span(f"PyTorch {torch:.1f} CPUs", "strong"), Span(f", others {others:.1f} of {total}{': ' if names else ''}")]
    named = span(names, "warning" if others > total / 4 else "")
    if not names or height < 3 or width_of((*first, named)) <= width:
        return [fitted(line(*first, named), width)]
    return [fitted(line(*first), width), fitted(line(named), width)]


def _named(now: Now) -> str:
    """``rsync 6.2 (root), 3 python 0.9 (alice)``: those of one name and owner together."""
    groups: dict[tuple[str, str], list[float]] = {}
    for one in users.outside(now):
        if one.cpus >= LEAST_CPUS:
            groups.setdefault((neutral(one.name, 20), users.owner(one.user, here=now.here)), []).append(one.cpus)
    most = sorted(groups.items(), key=lambda group: -sum(group[1]))[:NAMED]
    return ", ".join(f"{f'{len(cpus)} ' if len(cpus) > 1 else ''}{name} {sum(cpus):.1f} ({owner})" for (name, owner), cpus in most)


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


def _row(now: Now, meter: Meter, width: int) -> Line:
    room = width - LABEL - TEXT - 2
    length = max(6, min(40, room * 3 // 5))
    full, empty = bar(meter.share, length) if meter.name != "network" else (Span(""), Span(" " * length))
    past = _curve(now, meter, min(40, room - length))
    text = padded(meter.text, max(TEXT, cells(meter.text)))
    return fitted(line(Span(padded(meter.name, LABEL), "dim"), full, empty, Span(" "), span(text), Span(" "), span(past, "dim")), width)


def _curve(now: Now, meter: Meter, width: int) -> str:
    past = now.past.get(meter.series, ())
    values = [meter.top - value for value in past] if meter.falling and meter.top else [*past]
    return spark(values, width, meter.top)
