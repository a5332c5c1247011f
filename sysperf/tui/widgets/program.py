"""Everything that is known of one PyTorch program."""

from __future__ import annotations

from typing import Any

from sysperf.model.outcome import Outcome, Rewrap
from sysperf.model.text import neutral, size
from sysperf.report import as_text
from sysperf.report.machine import look
from sysperf.report.processes import age
from sysperf.tui.now import Now, cpus
from sysperf.tui.widgets import ansi, programs
from sysperf.tui.widgets.bar import percent
from sysperf.tui.widgets.line import BLANK, Line, Lines, Span, folded, line, padded, paragraph, span


def findings_of(now: Now, pid: int) -> list[Outcome]:
    """What is wrong with one program."""
    return [finding for finding in now.findings() if (match := programs.PID.search(finding.subject)) and int(match[1]) == pid]


def detail(now: Now, one: Any, again: Rewrap | str | None, width: int) -> Lines:
    """How it was started, its threads, its memory, the libraries that matter, its findings, and the wrap that would have been right."""
    pid = look(one, "pid")
    out: Lines = [line(span(programs.program(one), "strong")), *_facts(now, one, width), BLANK]
    found = findings_of(now, pid)
    out += [line(span(f"Findings ({len(found)})" if found else "Nothing found that slows this program down.", "title"))]
    for finding in found:
        out += [BLANK, *ansi.lines(as_text.finding(finding, color=True, width=width))]
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
        ("data wait", _about_data(now, one)),
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
    number = look(one, "workers") or 0
    if not number:
        return "none"
    resident = look(one, "worker_rss_bytes")
    told = f"{number} by {look(one, 'worker_start') or '?'}, on CPUs {look(one, 'worker_cpus') or '?'}"
    return told + (f", {size(resident)}" if resident else "")


def _about_data(now: Now, one: Any) -> str:
    bound = programs.data_wait(now, one)
    if bound == "-":
        return "unknown: without workers it loads in the main thread, which looks like work from outside; `sysperf stacks PID` tells"
    if isinstance(bound, str):
        return "unknown so far"
    return f"at most {percent(bound)} of the time: the main thread slept, and no backward ran; other waits count, too"


def _about_memory(now: Now, one: Any) -> str:
    resident, peak, swapped = programs.resident(now, one), look(one, "peak_rss_bytes"), look(one, "swap_bytes")
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
