"""The overview: what costs most, then the machine that it happens on. Every row of the screen has something to say."""

from __future__ import annotations

from collections.abc import Callable

from sysperf.tui.now import Now
from sysperf.tui.widgets import causes, curves, gpus, identity, loads, system, verdict
from sysperf.tui.widgets.boxes import box
from sysperf.tui.widgets.line import BLANK, Lines, Span, beside, fitted, line, span

FRAMED = 30
"""From so many rows on, parts have frames; below, rules."""
BESIDE = 100
"""From so many columns on, the CPUs stand beside the other meters."""
MOST_FIRST, MOST_PROGRAMS = 8, 4
"""Causes and programs that come before curves."""
KEYS = tuple(
    part
    for key, does in (("⏎", "why and fix"), ("d", "diagnose"), ("a", "apply"), ("y", "copy"))
    for part in (Span(key, "key"), Span(f" {does}  "))
)


def draw(now: Now, width: int, height: int) -> Lines:
    """What fits, most important first: causes, GPUs, CPUs and other meters, programs; what is left goes to curves."""
    framed = height >= FRAMED
    head = _head(now, width, 2 if framed else 1)
    edge = 2 if framed else 1
    inside = width - (2 if framed else 0)
    machine = _machine(now, width, framed=framed)
    found = causes.causes(now.findings())
    of_gpus = [] if gpus.absent(now) else gpus.draw(now, inside, folded=height < FRAMED or len(now.devices()) > max(8, height // 3))
    every = len(now.processes())

    left = height - len(head) - len(machine) - (len(of_gpus) + edge if of_gpus else 0) - 2 * edge - bool(every)
    first = min(every, MOST_PROGRAMS)
    shown = min(len(found), MOST_FIRST, max(3, left - min(first, 2)))
    left -= max(1, shown)
    running = min(every, max(1, first, left - curves.LEAST - edge)) if left > first else min(every, max(1, left))
    left -= max(1, running)
    more = min(len(found) - shown, max(0, left - curves.LEAST - edge))
    left -= more
    curve = _curve(now, width, left, framed=framed)
    said = max(0, left - len(curve))

    rows = _causes(now, found[: shown + more], inside, said)
    if rest := len(found) - shown - more:
        rows[-1] = fitted(line(span(f"  and {rest + 1} more: key 2", "dim"), key=rows[-1].key), inside)
    of_programs = loads.draw(now, loads.busiest(now, running), inside)
    out = [*head, *box([Span("What costs most", "strong")], rows, width, keys=KEYS if found else (), framed=framed)]
    out += box(gpus.title(now), of_gpus, width, framed=framed) if of_gpus else []
    return [*out, *machine, *box(loads.title(now), of_programs, width, framed=framed), *curve]


def printed(now: Now, width: int) -> Lines:
    """The same for a pipe: all of it, without frames and curves."""
    parts: list[tuple[list[Span], Callable[[], Lines]]] = [
        ([Span("What costs most", "strong")], lambda: _causes(now, causes.causes(now.findings()), width, 1_000)),
        (gpus.title(now), lambda: gpus.draw(now, width)),
        (system.cpu_title(now), lambda: system.cpus(now, width, 1_000)),
        ([Span("Machine", "strong")], lambda: system.draw(now, width)),
    ]
    out = _head(now, width, 8)
    for title, rows in parts:
        out += [BLANK, *box(title, rows(), width, framed=False)]
    return out


def _head(now: Now, width: int, identities: int) -> Lines:
    notice = [fitted(line(span(f"! {text}", "warning")), width)] if (text := now.notice()) else []
    return [*verdict.draw(now, width), *notice, *identity.draw(now.snapshot, width, now.origin, identities)]


def _causes(now: Now, found: list[causes.Cause], width: int, said: int) -> Lines:
    """A row each; below the first ones what was seen, while there are rows for it."""
    out: Lines = []
    for place, (cause, row) in enumerate(zip(found, causes.rows(now, found, width), strict=True)):
        out += [row, *(causes.said(cause, width) if place < said else ())]
    return out or causes.none(now, width)


def _machine(now: Now, width: int, *, framed: bool) -> Lines:
    """CPUs and who uses them; beside or below them memory, pressure, disk and network."""
    title = [Span("Machine", "strong")]
    edge = 2 if framed else 0
    if width < BESIDE:
        rows = [*system.cpus(now, width - edge, 4 if framed else 2), *system.draw(now, width - edge, brief=not framed)]
        return box(system.cpu_title(now), rows, width, framed=framed)
    half = width // 2
    meters = system.draw(now, width - half - edge)
    cpus = system.cpus(now, half - edge, max(len(meters), 4))
    high = max(len(meters), len(cpus))
    blank = [BLANK] * high
    left = box(system.cpu_title(now), [*cpus, *blank][:high], half, framed=framed)
    return beside(left, box(title, [*meters, *blank][:high], width - half, framed=framed), half, gap=0)


def _curve(now: Now, width: int, height: int, *, framed: bool) -> Lines:
    edge = 2 if framed else 1
    rows = curves.draw(now, width - (2 if framed else 0), height - edge)
    return box([Span("Last minutes", "strong")], rows, width, framed=framed) if rows else []
