"""The running PyTorch programs as `sysperf ps` shows them, each with what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sysperf.collect.machine_facts import MachineFacts
from sysperf.model.finding import Finding, Report, Rewrap
from sysperf.model.text import neutral, size
from sysperf.report import words
from sysperf.report.formats.as_text import MARKS, fix_lines
from sysperf.report.terminal import Ink, Page, clip, table

TYPE_CHECKING = False  # as typing's: records of areas that nobody read are not imported
if TYPE_CHECKING:
    from sysperf.collect.process.records import Process, Processes

HEAD = ("pid", "age", "torch", "GPU", "CPUs", "threads", "workers", "memory", "program")
RIGHT = (0, 1, 5, 6, 7)
MAX_CPUS_WIDTH = 14
NONE = "-"
_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3_600, 60


def render(report: Report, *, color: bool = False, width: int = 100, verbose: bool = False) -> str:
    """One row a program, its findings below; `verbose` adds how it was started and the commands that help."""
    page = Page(Ink(color), width)
    snapshot, outcomes = report.snapshot, report.outcomes
    facts = MachineFacts(snapshot.areas)
    if facts.process is None:
        problem = facts.problem("process") or "the area was not read"
        page.paragraph(f"PyTorch programs are unknown: {neutral(problem)}", "unknown")
        return str(page)
    processes, gpu_numbers = facts.process.processes, _gpu_numbers(facts)
    head, *rows = table(HEAD, (_row(process, gpu_numbers) for process in processes), page.ink, page.room, right=RIGHT)
    if processes:
        page.line(head)
    for row, process in zip(rows, processes, strict=True):
        page.line(row)
        if verbose:
            _details(page, process)
        _findings(page, [outcome for outcome in outcomes if outcome.subject.pid == process.pid], verbose)
        for rewrap in report.rewraps:
            if rewrap.pid == process.pid:
                _rewrap(page, rewrap, verbose)
    _foot(page, facts.process, outcomes)
    return str(page)


def _row(process: Process, gpu_numbers: Mapping[str, str]) -> list[str]:
    return [
        str(process.pid),
        age(process.age_s),
        neutral(process.torch.version or "?", 24).partition("+")[0],
        _gpus(process, gpu_numbers),
        "?" if process.affinity.now is None else clip(neutral(str(process.affinity.now)), MAX_CPUS_WIDTH),
        str(process.threads.count),
        str(process.workers.count or NONE),
        "?" if process.memory.rss_bytes is None else size(process.memory.rss_bytes),
        _program(process),
    ]


def _program(process: Process) -> str:
    """Return its command line, the interpreter without its folder."""
    first, *rest = (process.command or process.name or "?").split(" ")
    return neutral(" ".join([first.rpartition("/")[2] or first, *rest]), 2_000)


def age(seconds: float | None) -> str:
    """A time in its two largest units: ``3 h 05``, ``12 min``."""
    if seconds is None or seconds < 0:
        return "?"
    whole = int(seconds)
    if whole >= _DAY_S:
        return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S:02} h"
    if whole >= _HOUR_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02}"
    return f"{whole // _MINUTE_S} min" if whole >= _MINUTE_S else f"{whole} s"


def _gpu_numbers(facts: MachineFacts) -> dict[str, str]:
    """The number of each GPU by its PCI address."""
    return {device.bus_id.lower(): str(device.index) for device in facts.gpus if device.bus_id}


def _gpus(process: Process, numbers: Mapping[str, str]) -> str:
    """The numbers of its GPUs; their bus addresses where no number is known; nothing for a program on CPUs."""
    if process.gpu_bus_ids is None:
        return "?" if process.cuda_used else NONE
    return ",".join(numbers.get(address.lower(), neutral(address, 20)) for address in process.gpu_bus_ids) or NONE


def _details(page: Page, process: Process) -> None:
    started = (
        ("rank", f"{process.job.rank} of {process.job.world_size}" if (process.job.world_size or 1) > 1 else ""),
        ("prefix", process.torch.prefix),
        ("allocator", process.loaded.allocator),
        ("OpenMP", ", ".join(library.name for library in process.loaded.openmp)),
    )
    page.labelled("started", "; ".join(f"{name} {neutral(value)}" for name, value in started if value))
    if process.env is None:
        page.labelled("set", "unknown: its environment could not be read", "dim")
    else:
        page.labelled("set", " ".join(f"{neutral(name, 60)}={neutral(value, 200)}" for name, value in process.env.items()))


def _findings(page: Page, outcomes: Iterable[Finding], verbose: bool) -> None:
    doubts = []
    for outcome in outcomes:
        if outcome.state == "unknown":
            doubts.append(outcome)
        if outcome.state != "finding":
            continue
        mark = page.ink(outcome.severity, MARKS[outcome.severity])
        text = f"{neutral(outcome.rule)}  {words.message(outcome)}"
        page.line(f"      {mark} {text if verbose else clip(text, page.room - 8)}")
        for fix in outcome.fixes if verbose else ():
            fix_lines(page, "fix", fix)
    if doubts:
        text = _doubt(doubts, verbose=verbose)
        page.line(f"      {page.ink('unknown', '?')} {text if verbose else clip(text, page.room - 8)}")


def _doubt(outcomes: list[Finding], *, verbose: bool) -> str:
    """Which checks could not be made, for want of what, and why."""
    gaps = [gap for outcome in outcomes for gap in outcome.unknown]
    who = words.some([neutral(outcome.rule) for outcome in outcomes], len(outcomes)) if verbose else words.count(len(outcomes), "check")
    lacking = dict.fromkeys(neutral(gap.fact) for gap in gaps)
    why = dict.fromkeys(neutral(gap.reason) for gap in gaps)
    need = "needs" if len(outcomes) == 1 else "need"
    return f"{who} {need} {words.some(lacking, len(lacking) if verbose else 3)}: {words.some(why, len(why) if verbose else 1)}"


def _rewrap(page: Page, rewrap: Rewrap, verbose: bool) -> None:
    changes = [neutral(change, 200) for change in rewrap.changes]
    text = f"wrap would have set {words.some(changes, len(changes) if verbose else 3)}"
    page.line(f"      {page.ink('dim', '→')} {text if verbose else clip(text, page.room - 8)}")
    if verbose:
        page.verbatim("", neutral(rewrap.command, 2_000), "command")


def _foot(page: Page, processes: Processes, outcomes: Sequence[Finding]) -> None:
    page.line()
    among = f" among {processes.scanned} processes" if processes.scanned else ""
    running = words.count(len(processes.processes), "PyTorch program") if processes.processes else "No PyTorch program is running"
    page.paragraph(f"{running}{among}{' that /proc shows: it hides those of other users (hidepid)' if processes.hidden else ''}.")
    if processes.unreadable:
        unseen = f"{words.count(processes.unreadable, 'large program')} of other users could not be examined"
        page.paragraph(f"{unseen} → run it as root: `sudo sysperf ps`", "unknown")
    rules = [outcome.rule for outcome in outcomes if outcome.state == "finding"]
    if rules:
        page.paragraph(f"Next: sysperf explain {neutral(rules[0])}", "strong")
