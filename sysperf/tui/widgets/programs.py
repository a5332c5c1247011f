"""The PyTorch programs, one row each with its workers folded in, and everything that is known of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sysperf.model.cpuset import CpuSet
from sysperf.model.outcome import Outcome, Rewrap
from sysperf.model.pattern import lazy
from sysperf.model.rule import Severity
from sysperf.model.text import neutral, size
from sysperf.report import text
from sysperf.report.machine import look
from sysperf.report.processes import age
from sysperf.report.text import MARKS
from sysperf.tui.now import Now, cpus
from sysperf.tui.widgets import ansi
from sysperf.tui.widgets.bar import percent, shade
from sysperf.tui.widgets.line import BLANK, Line, Lines, Span, fitted, folded, line, padded, paragraph, span

_PID = lazy(r"\(pid (\d{1,10})\)$")
COLUMNS = (
    # head, width, from which width of the screen on
    ("pid", 7, 0), ("rank", 4, 0), ("GPU", 4, 0), ("GPU %", 6, 0), ("GPU mem", 8, 90), ("CPUs", 5, 0), ("main", 5, 70), ("wait", 5, 100),
    ("thr", 4, 70), ("work", 9, 60), ("allocator", 9, 100), ("local", 6, 80), ("memory", 9, 0), ("age", 8, 110), ("torch", 7, 140),
)  # fmt: skip
LEFT = ("allocator", "torch")
ORDERS = ("start", "cpu", "gpu", "memory")


def chosen(now: Now, words_wanted: str, order: str) -> list[Any]:
    """The programs that hold all of these words, in this order."""
    wanted = words_wanted.lower().split()
    found = [one for one in now.processes() if all(word in _searched(one) for word in wanted)]
    if order == "cpu":
        found.sort(key=lambda one: -(now.of_process(look(one, "pid"), "cpu") or 0.0))
    elif order == "gpu":
        found.sort(key=lambda one: -(now.of_process(look(one, "pid"), "gpu_memory_bytes") or 0.0))
    elif order == "memory":
        found.sort(key=lambda one: -(_resident(now, one) or 0.0))
    return found


def _searched(one: Any) -> str:
    return " ".join(str(look(one, name) or "") for name in ("pid", "name", "command", "torch_prefix", "torch_version", "allocator")).lower()


def columns(now: Now, width: int) -> list[tuple[str, int]]:
    """The columns that fit; those about GPUs only where there are some."""
    return [(name, wide) for name, wide, least in COLUMNS if width >= least and (now.devices() or not name.startswith("GPU"))]


def head(now: Now, width: int) -> Line:
    """The names of the columns."""
    parts = [Span(padded(name, wide, right=name not in LEFT), "dim") for name, wide in columns(now, width)]
    return fitted(line(*_spaced(parts), Span("  program", "dim")), width)


def _spaced(parts: Sequence[Span]) -> list[Span]:
    out: list[Span] = []
    for part in parts:
        out += [part, Span(" ")]
    return out


def draw(now: Now, programs: Sequence[Any], width: int, in_sight: range | None = None) -> Lines:
    """A row each; where none runs, that is said. Rows out of sight are blank: to write them is most of what a sample costs."""
    if not programs:
        return _empty(now, width)
    table = _Table(now, width)
    return [table.row(one) if in_sight is None or number in in_sight else Line(key=look(one, "pid")) for number, one in enumerate(programs)]


def _empty(now: Now, width: int) -> Lines:
    if now.snapshot is None:
        return [line(span("Looking for PyTorch programs …", "dim"))]
    if now.processes():
        return [line(span("No program has all of these words. Esc shows all.", "dim"))]
    area = now.snapshot.areas.get("process")
    if area is None or area.facts is None:
        return paragraph(f"PyTorch programs are unknown: {area.problem if area else 'the area was not read'}", width, "unknown")
    scanned, unreadable = now.fact("process", "scanned"), now.fact("process", "unreadable")
    out = paragraph(f"No PyTorch program is running{f' among {scanned} processes' if scanned else ''}.", width)
    if unreadable:
        out += paragraph(f"{unreadable} large programs of other users could not be examined: run it as root.", width, "unknown")
    return out


class _Table:
    """What all rows share: the columns, the numbers of GPUs, whose finding is whose, and what lies near which CPUs."""

    def __init__(self, now: Now, width: int) -> None:
        self._now, self._width = now, width
        self._columns = columns(now, width)
        self._numbers = {str(look(device, "bus_id")).lower(): str(look(device, "index")) for device in now.devices()}
        self._marks: dict[int, Severity] = {}
        for one in now.findings():
            if match := _PID.search(one.subject):
                self._marks.setdefault(int(match[1]), one.severity)

    def row(self, one: Any) -> Line:
        """One program."""
        cells = self._cells(one)
        parts: list[Span] = []
        plain = ""  # cells of one style are one span: the fewer there are, the less a row costs
        for name, wide in self._columns:
            text, style = cells[name]
            shown = padded(text, wide, right=name not in LEFT)
            if style:
                parts += [Span(plain), Span(shown, style)]
                plain = " "
            else:
                plain += f"{shown} "
        parts.append(Span(plain))
        severity = self._marks.get(look(one, "pid"))
        parts.append(Span(f"{MARKS[severity]} ", severity) if severity else Span("  "))
        return fitted(Line((*parts, span(program(one))), look(one, "pid")), self._width)

    def _cells(self, one: Any) -> dict[str, tuple[str, str]]:
        now = self._now
        prefix = f"process.{look(one, 'pid')}."

        def meter(name: str) -> float | None:
            return now.meters.get(prefix + name)

        cpu, main, wait, busy = meter("cpu"), meter("main_run"), meter("main_wait"), meter("gpu_utilization")
        memory, resident, threads = meter("gpu_memory_bytes"), _resident(now, one), meter("threads")
        near = locality(now, one)
        return {
            "pid": (str(look(one, "pid")), ""),
            "rank": (_rank(one), ""),
            "GPU": (self._gpus(one), ""),
            "GPU %": ("" if busy is None else percent(busy), ""),
            "GPU mem": ("" if memory is None else size(round(memory, -6)), ""),
            "CPUs": ("?" if cpu is None else f"{cpu:.1f}", ""),
            "main": ("?" if main is None else percent(main), ""),
            "wait": ("?" if wait is None else percent(wait), "" if wait is None or wait < 0.05 else shade(0.7 + wait)),
            "thr": (f"{threads:.0f}" if threads is not None else str(look(one, "threads") or "?"), ""),
            "work": (_workers(now, one), ""),
            "allocator": (neutral(str(look(one, "allocator") or "?"), 12), ""),
            "local": ("-" if near is None else percent(near), "" if near is None or near >= 0.9 else "warm" if near >= 0.6 else "hot"),
            "memory": ("?" if resident is None else size(round(resident)), ""),
            "age": (age(now.age_s(one)), "dim"),
            "torch": (neutral(str(look(one, "torch_version") or "?"), 12).partition("+")[0], "dim"),
        }

    def _gpus(self, one: Any) -> str:
        addresses = look(one, "gpu_bus_ids")
        if addresses is None:
            return "?" if look(one, "cuda_used") else "-"
        return ",".join(self._numbers.get(str(address).lower(), "?") for address in addresses) or "-"


def _resident(now: Now, one: Any) -> float | None:
    live = now.of_process(look(one, "pid"), "rss_bytes")
    return live if live is not None else look(one, "rss_bytes")


def _rank(one: Any) -> str:
    rank, size_of_world = look(one, "rank"), look(one, "world_size")
    if look(one, "launcher"):
        return "-"
    return str(rank) if isinstance(rank, int) and rank >= 0 and (size_of_world or 1) > 1 else "-"


def _workers(now: Now, one: Any) -> str:
    """``8 (3.1)``: how many, and the CPUs that they use."""
    live = now.of_process(look(one, "pid"), "workers")
    number = int(live) if live is not None else look(one, "workers") or 0
    used = now.of_process(look(one, "pid"), "workers_cpu")
    return f"{number} ({used:.1f})" if number and used is not None else str(number or "-")


def locality(now: Now, one: Any) -> float | None:
    """The share of its memory that lies on the nodes of the CPUs it may use; None on one node, or when unknown."""
    name = ("locality", look(one, "pid"))
    if name not in now.derived:
        now.derived[name] = _locality(now, one)
    return now.derived[name]


def _locality(now: Now, one: Any) -> float | None:
    pages, nodes = look(one, "numa_pages"), now.fact("numa", "nodes") or ()
    allowed = cpus(look(one, "allowed"))
    if not pages or allowed is None or (now.fact("numa", "nodes_with_cpus") or 0) < 2:
        return None
    near = {look(node, "id") for node in nodes if (cpus(look(node, "cpus")) or CpuSet()) & allowed}
    total = sum(look(page, "bytes") for page in pages)
    return sum(look(page, "bytes") for page in pages if look(page, "node") in near) / total if total else None


def program(one: Any) -> str:
    """Its command line, the interpreter without its folder."""
    first, *rest = (look(one, "command") or look(one, "name") or "?").split(" ")
    return neutral(" ".join([first.rpartition("/")[2] or first, *rest]), 1_000)


def findings_of(now: Now, pid: int) -> list[Outcome]:
    """What is wrong with one program."""
    return [one for one in now.findings() if (match := _PID.search(one.subject)) and int(match[1]) == pid]


# ---------------------------------------------------------------------- one program


def detail(now: Now, one: Any, again: Rewrap | str | None, width: int) -> Lines:
    """How it was started, its threads, its memory, the libraries that matter, its findings, and the wrap that would have been right."""
    pid = look(one, "pid")
    out: Lines = [line(span(program(one), "strong")), *_facts(now, one, width), BLANK]
    found = findings_of(now, pid)
    out += [line(span(f"Findings ({len(found)})" if found else "Nothing found that slows this program down.", "title"))]
    for finding in found:
        out += [BLANK, *ansi.lines(text.finding(finding, color=True, width=width))]
    out += [BLANK, line(span("Started otherwise", "title")), *_wrap(again, width)]
    out += [BLANK, line(span("Environment at its start, secrets left out", "title")), *_environment(one, width)]
    out += [BLANK, line(span("Libraries that matter", "title")), *_libraries(one, width)]
    return [part for whole in out for part in folded(whole, width)]


def _facts(now: Now, one: Any, width: int) -> Lines:
    allowed, team = cpus(look(one, "allowed")), look(one, "compute_threads")
    mounts = [
        f"{look(mount, 'fstype')} at {look(mount, 'point')} ({look(mount, 'files')} files)" for mount in look(one, "data_mounts") or ()
    ]
    pages = [f"node {look(page, 'node')}: {size(look(page, 'bytes'))}" for page in look(one, "numa_pages") or ()]
    names = look(one, "thread_names") or ()
    rows = [
        ("process", f"{look(one, 'pid')}, {age(now.age_s(one))} old, nice {look(one, 'nice')}"),
        ("torch", f"{look(one, 'torch_version') or '?'} in {look(one, 'torch_prefix') or '?'}"),
        ("CPUs", f"{allowed if allowed is not None else '?'} ({len(allowed) if allowed is not None else '?'})"),
        (
            "threads",
            f"{look(one, 'threads')}, {team if team is not None else '?'} of them compute; {', '.join(map(str, names[:12]))}".rstrip("; "),
        ),
        ("workers", _about_workers(one)),
        ("allocator", str(look(one, "allocator"))),
        ("OpenMP", ", ".join(str(look(lib, "name")) for lib in look(one, "openmp") or ()) or "none"),
        ("memory", _about_memory(now, one)),
        ("on nodes", ", ".join(pages)),
        ("policy", str(look(one, "numa_policy") or "")),
        ("data", "; ".join(mounts)),
    ]
    out: Lines = []
    for label, told in rows:
        if told:
            parts = paragraph(told, width - 11)
            out += [Line((Span(padded("" if number else label, 11), "dim"), *part.spans)) for number, part in enumerate(parts)]
    return out


def _about_workers(one: Any) -> str:
    workers = look(one, "workers") or 0
    if not workers:
        return "none"
    resident = look(one, "worker_rss_bytes")
    told = f"{workers} by {look(one, 'worker_start') or '?'}, on CPUs {look(one, 'worker_cpus') or '?'}"
    return told + (f", {size(resident)}" if resident else "")


def _about_memory(now: Now, one: Any) -> str:
    resident, peak, swapped = _resident(now, one), look(one, "peak_rss_bytes"), look(one, "swap_bytes")
    parts = (
        f"{size(round(resident))} resident" if resident else "",
        f"{size(peak)} at most" if peak else "",
        f"{size(swapped)} in swap" if swapped else "",
    )
    return ", ".join(part for part in parts if part) or "?"


def _wrap(again: Rewrap | str | None, width: int) -> Lines:
    if again is None:
        return [line(span("looking …", "dim"))]
    if isinstance(again, str):
        return paragraph(again, width, "dim")
    changes = paragraph(f"wrap would have set {', '.join(again.changes)}; the gain is unmeasured", width)
    return [*changes, line(span(neutral(again.command, 4_000), "command"))]


def _environment(one: Any, width: int) -> Lines:
    env = look(one, "env")
    if env is None:
        return paragraph("unknown: it could not be read", width, "unknown")
    if not env:
        return [line(span("none of the variables that matter for speed is set", "dim"))]
    return [
        line(span(f"{neutral(str(name), 80)}", "strong"), Span("="), span(neutral(str(value), 400))) for name, value in sorted(env.items())
    ]


def _libraries(one: Any, width: int) -> Lines:
    found = look(one, "libraries") or ()
    if not found:
        return paragraph("none", width, "dim")
    return [_library(one) for one in found]


def _library(one: Any) -> Line:
    name, version = padded(str(look(one, "name")), 16), padded(str(look(one, "version") or ""), 12)
    return line(Span(name, "strong"), Span(version), span(str(look(one, "path")), "dim"))
