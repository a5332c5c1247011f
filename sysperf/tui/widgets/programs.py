"""The PyTorch programs, one row each with its workers folded in, and everything that is known of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sysperf.collect.process.records import Process
from sysperf.model.rule import Severity
from sysperf.model.text import neutral, size
from sysperf.report.formats.as_text import MARKS
from sysperf.report.processes import age
from sysperf.report.terminal import cells, clip
from sysperf.report.words import count
from sysperf.tui.now import Now
from sysperf.tui.widgets import one_program as one
from sysperf.tui.widgets import users, workers
from sysperf.tui.widgets.bar import percent, shade
from sysperf.tui.widgets.line import Line, Lines, Span, fitted, line, padded, paragraph, span

COLUMNS = (
    # head, width, and when it gives way: the highest first. The first column is the mark of what can be unfolded
    ("", 1, 0), ("pid", 7, 0), ("rank", 4, 0), ("GPU", 4, 0), ("GPU %", 6, 0), ("GPU mem", 8, 4), ("CPUs", 5, 0), ("main", 5, 3),
    ("wait", 5, 7), ("data", 5, 1), ("thr", 4, 6), ("work", 9, 2), ("allocator", 9, 8), ("local", 6, 5), ("memory", 9, 0),
    ("user", 8, 5), ("age", 8, 9), ("torch", 7, 10),
)  # fmt: skip
MIN_COMMAND = 14
"""Columns of the screen that are left for the command, with the mark before it."""
LUXURY, MAX_COMMAND = 8, 34
"""Columns that give way this early do so also where a command of up to so many columns would be cut."""
LEFT = ("allocator", "user", "torch")
FOLDED, UNFOLDED = "▸", "▾"
MUCH = 0.2
"""From this share on, waiting for data is worth a look."""
START = "start"
_METERS = {"CPUs": "cpu", "GPU %": "gpu_utilization", "GPU mem": "gpu_memory_bytes", "main": "main_run", "wait": "main_wait",
           "data": "data_wait", "work": "workers_cpu", "thr": "threads"}  # fmt: skip
ORDERS = (START, "CPUs", "data", "GPU mem", "memory", "GPU %", "main", "wait", "work", "thr", "local", "age")
"""As they started, or by a column, the largest first."""


def chosen(now: Now, words_wanted: str, order: str) -> list[Process]:
    """The programs that hold all of these words, in this order; unknown values last."""
    wanted = words_wanted.lower().split()
    matching = [process for process in now.processes() if all(word in _searched(process) for word in wanted)]
    if order != START:
        matching.sort(key=lambda process: _value(now, process, order), reverse=True)
    return matching


def _value(now: Now, process: Process, column: str) -> float:
    if column == "memory":
        value = one.resident(now, process)
    elif column == "local":
        value = one.locality(now, process)
        return -1.0 - value if value is not None else -3.0  # the worst first
    elif column == "age":
        value = now.age_s(process)
    else:
        value = now.of_process(process.pid, _METERS[column])
    return -1.0 if value is None else value


def orders(now: Now, width: int) -> list[str]:
    """What the rows can be sorted by here."""
    names = {name for name, _ in columns(now, width)}
    return [name for name in ORDERS if name == START or name in names]


def column_at(now: Now, width: int, x: int) -> str:
    """The order that a click on the names of the columns asks for; empty where there is none."""
    for name, wide in columns(now, width):
        if x <= wide:
            return name if name in ORDERS else START if name == "pid" else ""
        x -= wide + 1
    return ""


def _searched(process: Process) -> str:
    values = (process.pid, process.name, process.command, process.torch.prefix, process.torch.version, process.loaded.allocator)
    return " ".join(str(value or "") for value in values).lower()


def columns(now: Now, width: int) -> list[tuple[str, int]]:
    """The columns that fit; those about GPUs, ranks, NUMA nodes and users only where there are some, of users several."""
    gpus, nodes = bool(now.devices()), one.has_nodes(now)
    ranks = any((process.job.world_size or 1) > 1 for process in now.processes())
    several = len({process.user for process in now.processes()}) > 1
    there = {"GPU": gpus, "GPU %": gpus, "GPU mem": gpus, "rank": ranks, "local": nodes, "user": several}
    absent = {name for name in there if not there[name]}
    known = [column for column in COLUMNS if column[0] not in absent]
    room, fitting, longer = width - MIN_COMMAND, set(), max(0, _widest(now) - MIN_COMMAND)
    for name, wide, place in sorted(known, key=lambda column: column[2]):
        room -= wide + 1
        if place == 0 or room >= (longer if place >= LUXURY else 0):
            fitting.add(name)
    return [(name, wide) for name, wide, _ in known if name in fitting]


def _widest(now: Now) -> int:
    """Columns of the longest command, as far as they matter, with the mark before it; found once for each look at the programs."""
    known: int | None = now.derived.get(("widest command",))
    if known is None:
        widths = (cells(one.without_folder(one.program(process))) for process in now.processes())
        known = now.derived["widest command",] = min(MAX_COMMAND, max(widths, default=0) + 2)
    return known


def head(now: Now, width: int, order: str = START) -> Line:
    """The names of the columns, the one that rows are sorted by standing out."""
    parts = [
        Span(padded(name, wide, right=name not in LEFT), "strong" if name and name == order else "dim")
        for name, wide in columns(now, width)
    ]
    return fitted(line(*_spaced(parts), Span("  program", "dim")), width)


def _spaced(parts: Sequence[Span]) -> list[Span]:
    out: list[Span] = []
    for part in parts:
        out += [part, Span(" ")]
    return out


def draw(
    now: Now,
    programs: Sequence[Process],
    width: int,
    in_sight: range | None = None,
    unfolded: Mapping[int, workers.WorkerReadings] | None = None,
) -> Lines:
    """A row each; where none runs, a line says so. Rows out of sight are blank: to write them is most of what a sample costs."""
    if not programs:
        return _empty(now, width)
    table, out = _Table(now, width), Lines()
    for process in programs:
        pid = process.pid
        readings = unfolded.get(pid) if unfolded else None
        out.append(table.row(process, unfolded=readings is not None) if in_sight is None or len(out) in in_sight else Line(key=pid))
        if readings is not None:
            out += workers.draw(pid, readings, width)
    return out


def _empty(now: Now, width: int) -> Lines:
    if now.snapshot is None:
        return [line(span("Looking for PyTorch programs …", "dim"))]
    if now.processes():
        return [line(span("No program has all of these words. Esc shows all.", "dim"))]
    facts = now.facts.process
    if facts is None:
        area = now.snapshot.areas.get("process")
        return paragraph(f"PyTorch programs are unknown: {area.problem if area else 'the area was not read'}", width, "unknown")
    hides = " that /proc shows: it hides those of other users (hidepid)" if facts.hidden else ""
    out = paragraph(f"No PyTorch program is running{f' among {facts.scanned} processes' if facts.scanned else ''}{hides}.", width)
    if facts.unreadable:
        out += paragraph(
            f"{count(facts.unreadable, 'large program')} of other users could not be examined: run it as root.", width, "unknown"
        )
    return out


class _Fixed(NamedTuple):
    """What a row shows of a program's facts, which change with the next look only."""

    pid: int
    prefix: str
    cells: Mapping[str, tuple[str, str]]
    command: str
    threads: str
    rss_bytes: float | None


class _Table:
    """What all rows share: the columns, the numbers of GPUs, whose finding is whose, and what lies near which CPUs."""

    def __init__(self, now: Now, width: int) -> None:
        self._now = now
        self._columns = columns(now, width)
        self._room = width - sum(wide + 1 for _, wide in self._columns) - 2
        self._numbers = {str(device.bus_id).lower(): str(device.index) for device in now.devices()}
        self._marks: dict[int, Severity] = {}
        for finding in now.findings():
            if finding.subject.pid is not None:
                self._marks.setdefault(finding.subject.pid, finding.severity)

    def row(self, process: Process, *, unfolded: bool = False) -> Line:
        """One program. Its width is known, so nothing but the command has to be measured."""
        fixed = self._fixed(process)
        cells = self._cells(process, fixed, unfolded=unfolded)
        parts: list[Span] = []
        plain = ""  # cells of one style are one span: the fewer there are, the less a row costs
        for name, wide in self._columns:
            text, style = cells.get(name) or fixed.cells[name]
            if len(text) > wide:
                text = clip(text, wide)
            text = text.ljust(wide) if name in LEFT else text.rjust(wide)
            if style:
                parts += [Span(plain), Span(text, style)]
                plain = " "
            else:
                plain += f"{text} "
        severity = self._marks.get(fixed.pid)
        tail = self._clipped(fixed)
        if severity is None:
            return Line((*parts, Span(f"{plain}  {tail}")), fixed.pid)
        return Line((*parts, Span(plain), Span(f"{MARKS[severity]} ", severity), Span(tail)), fixed.pid)

    def _clipped(self, fixed: _Fixed) -> str:
        known: str | None = self._now.derived.get(("command", fixed.pid, self._room))
        if known is None:
            shorter = one.without_folder(fixed.command)
            ways = (fixed.command, shorter, one.without_interpreter(shorter))
            command = next((way for way in ways if cells(way) <= self._room), ways[-1])
            known = self._now.derived["command", fixed.pid, self._room] = clip(command, self._room)
        return known

    def _fixed(self, process: Process) -> _Fixed:
        pid = process.pid
        known: _Fixed | None = self._now.derived.get(("row", pid))
        if known is None:
            known = self._now.derived["row", pid] = self._computed(process, pid)
        return known

    def _computed(self, process: Process, pid: int) -> _Fixed:
        near = one.locality(self._now, process)
        cells = {
            "pid": (str(pid), ""),
            "rank": (_rank(process), ""),
            "GPU": (self._gpus(process), ""),
            "allocator": (neutral(process.loaded.allocator or "?", 12), ""),
            "local": ("-" if near is None else percent(near), "" if near is None or near >= 0.9 else "warm" if near >= 0.6 else "hot"),
            "user": (neutral(users.owner(process.user, here=self._now.here), 40), ""),
            "torch": (neutral(process.torch.version or "?", 12).partition("+")[0], "dim"),
        }
        threads = str(process.threads.count or "?")
        return _Fixed(pid, f"process.{pid}.", cells, one.program(process), threads, process.memory.rss_bytes)

    def _cells(self, process: Process, fixed: _Fixed, *, unfolded: bool) -> dict[str, tuple[str, str]]:
        """What changes with each sample."""
        get, prefix = self._now.meters.get, fixed.prefix
        cpu, main, wait, busy = get(f"{prefix}cpu"), get(f"{prefix}main_run"), get(f"{prefix}main_wait"), get(f"{prefix}gpu_utilization")
        memory, resident, threads = get(f"{prefix}gpu_memory_bytes"), get(f"{prefix}rss_bytes", fixed.rss_bytes), get(f"{prefix}threads")
        workers, used, data = one.number_of_workers(self._now, process), get(f"{prefix}workers_cpu"), get(f"{prefix}data_wait")
        unknown = "-" if fixed.cells["GPU"][0] == "-" else "?"
        mark = UNFOLDED if unfolded else FOLDED if workers else " "
        return {
            "": (mark, ""),
            "GPU %": (unknown if busy is None else percent(busy), ""),
            "GPU mem": (unknown if memory is None else size(round(memory, -6)), ""),
            "CPUs": ("?" if cpu is None else f"{cpu:.1f}", ""),
            "main": ("?" if main is None else percent(main), ""),
            "wait": ("?" if wait is None else percent(wait), "" if wait is None or wait < 0.05 else shade(0.7 + wait)),
            "data": _bound(workers, data),
            "thr": (fixed.threads if threads is None else f"{threads:.0f}", ""),
            "work": (_workers(workers, used), ""),
            "memory": ("?" if resident is None else size(round(resident)), ""),
            "age": (age(self._now.age_s(process)), "dim"),
        }

    def _gpus(self, process: Process) -> str:
        addresses = process.gpu_bus_ids
        if addresses is None:
            return "?" if process.cuda_used else "-"
        return ",".join(self._numbers.get(address.lower(), "?") for address in addresses) or "-"


def _bound(workers: int | None, data: float | None) -> tuple[str, str]:
    if workers == 0:
        return "-", ""
    return ("?", "") if data is None else (f"≤{data * 100:.0f}%", "warm" if data >= MUCH else "")


def _workers(number: int | None, used: float | None) -> str:
    """``8 (3.1)``: how many, and the CPUs that they use."""
    if not number:
        return "-" if number == 0 else "?"
    return f"{number}" if used is None else f"{number} ({used:.1f})"


def _rank(process: Process) -> str:
    rank = process.job.rank
    if process.job.launcher or rank is None or rank < 0:
        return "-"
    return str(rank) if (process.job.world_size or 1) > 1 else "-"
