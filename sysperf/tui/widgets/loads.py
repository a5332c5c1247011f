"""What the main threads of programs do, as one bar each: they run, are ready without a CPU, or wait for data (an upper bound)."""

from __future__ import annotations

from collections.abc import Sequence

from sysperf.collect.process.records import Process
from sysperf.model.text import size
from sysperf.report.formats.as_text import MARKS
from sysperf.tui.now import Now
from sysperf.tui.widgets import one_program, programs, users
from sysperf.tui.widgets.bar import percent
from sysperf.tui.widgets.line import Line, Lines, Span, fitted, line, padded, span

RUNS, READY, WAITS = "█", "▒", "░"
WIDE = 100
MUCH = 0.2


def title(now: Now) -> list[Span]:
    """``Programs 4``."""
    known = now.facts.process is not None
    return [Span("Programs", "strong"), Span(f" {len(now.processes())}" if known else " ?")]


def busiest(now: Now, most: int) -> list[Process]:
    """The programs to show where not all fit: those with findings, then those that use most; in the order of their start."""
    every = now.processes()
    if len(every) <= most:
        return [*every]
    sick = {finding.subject.pid for finding in now.findings()}
    keyed = sorted(every, key=lambda one: (one.pid not in sick, -(now.of_process(one.pid, "cpu") or 0.0)))[:most]
    wanted = {one.pid for one in keyed}
    return [one for one in every if one.pid in wanted]


def draw(now: Now, chosen: Sequence[Process], width: int) -> Lines:
    """The names of the columns and a row each; where none runs, a line says so."""
    if not chosen:
        return programs.draw(now, [], width)
    ranks = any((process.job.world_size or 1) > 1 for process in chosen)
    gpus = bool(now.devices())
    cells = _cells(width)
    names = padded("rank", 5) if ranks else ""
    names += padded("pid", 7, right=True) + (padded("GPU", 5, right=True) if gpus else "")
    names += f"  {padded(f'{RUNS} runs {READY} no CPU {WAITS} waits for data', cells + 14)}"
    names += padded("CPUs", 6, right=True) + padded("workers", 10, right=True)
    names += padded("memory", 11, right=True) + "  user      program" if width >= WIDE else "   program"
    marks = {finding.subject.pid: finding.severity for finding in reversed(now.findings()) if finding.subject.pid is not None}
    out = [fitted(line(span(names, "dim")), width)]
    numbers = {str(device.bus_id).lower(): str(device.index) for device in now.devices()}
    for process in chosen:
        head = (
            padded(f"r{process.job.rank}" if (process.job.rank or 0) >= 0 and (process.job.world_size or 1) > 1 else "-", 5)
            if ranks
            else ""
        )
        place = ",".join(numbers.get(address.lower(), "?") for address in process.gpu_bus_ids or ()) or "-"
        head += padded(str(process.pid), 7, right=True) + (padded(place, 5, right=True) if gpus else "") + "  "
        severity = marks.get(process.pid)
        flag = [Span(f"{MARKS[severity]} ", severity)] if severity else [Span("  ")]
        parts = (Span(head), *_main(now, process, cells), *_rest(now, process, width), *flag, _command(process))
        out.append(fitted(Line(parts, process.pid), width))
    return out


def _cells(width: int) -> int:
    return max(8, min(40, width // 5))


def _main(now: Now, process: Process, cells: int) -> list[Span]:
    run, ready, data = (now.of_process(process.pid, name) for name in ("main_run", "main_wait", "data_wait"))
    has = one_program.has_workers(now, process)
    waits = "-" if not has else "?" if data is None else f"≤{data * 100:.0f} %"
    if run is None:
        return [Span("·" * cells, "dim"), Span("     ?"), Span(padded(waits, 8, right=True))]
    parts = [(RUNS, "cool", run), (READY, "hot", ready or 0.0), (WAITS, "warm", (data or 0.0) if has else 0.0)]
    out, left = [], cells
    for char, style, share in parts:
        taken = min(left, max(round(share * cells), int(share >= 0.02)))
        out.append(Span(char * taken, style))
        left -= taken
    much = (data or 0.0) >= MUCH and has
    return [*out, Span("─" * left, "dim"), Span(f"{percent(run):>6}"), Span(" " * (8 - len(waits))), Span(waits, "caution" if much else "")]


def _rest(now: Now, process: Process, width: int) -> list[Span]:
    cpu, used = now.of_process(process.pid, "cpu"), now.of_process(process.pid, "workers_cpu")
    number = now.of_process(process.pid, "workers")
    number = float(process.workers.count) if number is None else number
    work = "-" if not number else f"{number:.0f}" + (f" ({used:.1f})" if used is not None else "")
    text = padded("?" if cpu is None else f"{cpu:.1f}", 6, right=True) + padded(work, 10, right=True)
    if width >= WIDE:
        resident = one_program.resident(now, process)
        text += padded("?" if resident is None else size(round(resident)), 11, right=True)
        text += "  " + padded(users.owner(process.user, here=now.here), 8)
    return [Span(text + " ")]


def _command(process: Process) -> Span:
    """Leave the interpreter out: the script is what tells programs apart."""
    return span(one_program.without_interpreter(one_program.without_folder(one_program.program(process))))
