"""Everything that is known of one PyTorch program."""

from __future__ import annotations

from sysperf.collect.process.records import Process
from sysperf.model.finding import Finding, Rewrap
from sysperf.model.text import neutral, size
from sysperf.procfs.maps import Library
from sysperf.report.formats import as_text
from sysperf.report.processes import age
from sysperf.tui.now import Now
from sysperf.tui.widgets import ansi, one_program
from sysperf.tui.widgets.bar import percent
from sysperf.tui.widgets.line import BLANK, Line, Lines, Span, folded, line, padded, paragraph, span


def findings_of(now: Now, pid: int) -> list[Finding]:
    """What is wrong with one program."""
    return [finding for finding in now.findings() if finding.subject.pid == pid]


def detail(now: Now, process: Process, again: Rewrap | str | None, width: int) -> Lines:
    """How it was started, its threads, its memory, the libraries that matter, its findings, and the wrap that would have been right."""
    pid = process.pid
    out: Lines = [line(span(one_program.program(process), "strong")), *_facts(now, process, width), BLANK]
    findings = findings_of(now, pid)
    out += [line(span(f"Findings ({len(findings)})" if findings else "Nothing found that slows this program down.", "title"))]
    for finding in findings:
        out += [BLANK, *ansi.lines(as_text.finding(finding, color=True, width=width))]
    out += [BLANK, line(span("Started otherwise", "title")), *_wrap(again, width)]
    out += [BLANK, line(span("Environment at its start, secrets left out", "title")), *_environment(process, width)]
    out += [BLANK, line(span("Libraries that matter", "title")), *_libraries(process, width)]
    return [part for whole in out for part in folded(whole, width)]


def _facts(now: Now, process: Process, width: int) -> Lines:
    allowed, team = process.affinity.now, process.threads.computing
    mounts = [f"{mount.fstype} at {mount.point} ({mount.files} files)" for mount in process.files.mounts or ()]
    pages = [f"node {page.node}: {size(page.bytes)}" for page in process.memory.nodes or ()]
    names = process.threads.names or ()
    rows = [
        ("process", f"{process.pid}, {age(now.age_s(process))} old, nice {process.nice}"),
        ("torch", f"{process.torch.version or '?'} in {process.torch.prefix or '?'}"),
        ("CPUs", f"{allowed if allowed is not None else '?'} ({len(allowed) if allowed is not None else '?'})"),
        (
            "threads",
            f"{process.threads.count}, {team if team is not None else '?'} of them compute; {', '.join(names[:12])}".rstrip("; "),
        ),
        ("workers", _about_workers(now, process)),
        ("data wait", _about_data(now, process)),
        ("allocator", process.loaded.allocator),
        ("OpenMP", ", ".join(library.name for library in process.loaded.openmp) or "none"),
        ("memory", _about_memory(now, process)),
        ("on nodes", ", ".join(pages)),
        ("policy", process.memory.policy or ""),
        ("data", "; ".join(mounts)),
    ]
    out: Lines = []
    for label, text in rows:
        if text:
            parts = paragraph(text, width - 11)
            out += [Line((Span(padded("" if number else label, 11), "dim"), *part.spans)) for number, part in enumerate(parts)]
    return out


def _about_workers(now: Now, process: Process) -> str:
    number = one_program.number_of_workers(now, process)
    if not number:
        return "none" if number == 0 else "unknown so far"
    if not process.workers.count:
        return f"{number}, which started after its facts were read"
    resident = process.workers.rss_bytes
    sentence = f"{number} by {process.workers.start or '?'}, on CPUs {process.workers.cpus or '?'}"
    return sentence + (f", {size(resident)}" if resident else "")


def _about_data(now: Now, process: Process) -> str:
    bound = one_program.data_wait(now, process)
    if bound == "-":
        return "unknown: without workers it loads in the main thread, which looks like work from outside; `sysperf stacks PID` tells"
    if isinstance(bound, str):
        return "unknown so far"
    return f"at most {percent(bound)} of the time: the main thread slept, and no backward ran; other waits count, too"


def _about_memory(now: Now, process: Process) -> str:
    resident, peak, swapped = one_program.resident(now, process), process.memory.peak_bytes, process.memory.swap_bytes
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


def _environment(process: Process, width: int) -> Lines:
    env = process.env
    if env is None:
        return paragraph("unknown: it could not be read", width, "unknown")
    if not env:
        return [line(span("none of the variables that matter for speed is set", "dim"))]
    return [line(span(neutral(name, 80), "strong"), Span("="), span(neutral(value, 400))) for name, value in sorted(env.items())]


def _libraries(process: Process, width: int) -> Lines:
    if not process.loaded.libraries:
        return paragraph("none", width, "dim")
    return [_library(library) for library in process.loaded.libraries]


def _library(library: Library) -> Line:
    name, version = padded(library.name, 16), padded(library.version or "", 12)
    return line(Span(name, "strong"), Span(version), span(library.path, "dim"))
