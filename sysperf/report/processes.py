"""The running PyTorch programs as `sysperf ps` shows them, each with what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sysperf.model.outcome import Outcome, Report, Rewrap
from sysperf.model.snapshot import Snapshot
from sysperf.model.text import neutral, size
from sysperf.report import words
from sysperf.report.as_text import MARKS, fix_lines
from sysperf.report.machine import facts, look
from sysperf.report.terminal import Ink, Page, clip, table
from sysperf.startup import lazy

HEAD = ("pid", "age", "torch", "GPU", "CPUs", "threads", "workers", "memory", "program")
RIGHT = (0, 1, 5, 6, 7)
WIDEST_CPUS = 14
NONE = "-"
_PID = lazy(r"\(pid (\d{1,10})\)$")
_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3_600, 60


def render(report: Report, *, color: bool = False, width: int = 100, verbose: bool = False) -> str:
    """One row a program, its findings below; `verbose` adds how it was started and the commands that help."""
    page = Page(Ink(color), width)
    snapshot, outcomes = report.snapshot, report.outcomes
    found = facts(snapshot, "process")
    if found is None:
        problem = look(snapshot.areas.get("process"), "problem") or "the area was not read"
        page.paragraph(f"PyTorch programs are unknown: {neutral(problem)}", "unknown")
        return str(page)
    processes = [*(look(found, "processes") or ())]
    head, *rows = table(HEAD, (_row(one, snapshot) for one in processes), page.ink, page.width, right=RIGHT)
    if processes:
        page.line(head)
    for row, process in zip(rows, processes, strict=True):
        page.line(row)
        if verbose:
            _details(page, process)
        _findings(page, [outcome for outcome in outcomes if _pid(outcome) == look(process, "pid")], verbose)
        for again in report.rewraps:
            if again.pid == look(process, "pid"):
                _rewrap(page, again, verbose)
    _foot(page, found, processes, outcomes)
    return str(page)


def _row(process: Any, snapshot: Snapshot) -> list[str]:
    allowed = look(process, "allowed")
    resident = look(process, "rss_bytes")
    return [
        str(look(process, "pid")),
        age(look(process, "age_s")),
        neutral(str(look(process, "torch_version") or "?"), 24).partition("+")[0],
        _gpus(process, snapshot),
        "?" if allowed is None else clip(neutral(str(allowed)), WIDEST_CPUS),
        str(look(process, "threads")),
        str(look(process, "workers") or NONE),
        "?" if resident is None else size(resident),
        _program(process),
    ]


def _program(process: Any) -> str:
    """Its command line, the interpreter without its folder."""
    first, *rest = (look(process, "command") or look(process, "name") or "?").split(" ")
    return neutral(" ".join([first.rpartition("/")[2] or first, *rest]), 2_000)


def age(seconds: Any) -> str:
    """A time in its two largest units: ``3 h 05``, ``12 min``."""
    if not isinstance(seconds, int | float) or seconds < 0:
        return "?"
    whole = int(seconds)
    if whole >= _DAY_S:
        return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S:02} h"
    if whole >= _HOUR_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02}"
    return f"{whole // _MINUTE_S} min" if whole >= _MINUTE_S else f"{whole} s"


def _gpus(process: Any, snapshot: Snapshot) -> str:
    """The numbers of its GPUs; their bus addresses where no number is known; nothing for a program on CPUs."""
    addresses = look(process, "gpu_bus_ids")
    if addresses is None:
        return "?" if look(process, "cuda_used") else NONE
    devices = look(facts(snapshot, "gpu"), "devices") or ()
    numbers = {str(look(device, "bus_id")).lower(): str(look(device, "index")) for device in devices}
    return ",".join(numbers.get(str(address).lower(), neutral(str(address), 20)) for address in addresses) or NONE


def _pid(outcome: Outcome) -> int | None:
    match = _PID.search(outcome.subject)
    return int(match[1]) if match else None


def _details(page: Page, process: Any) -> None:
    started = (
        ("rank", f"{look(process, 'rank')} of {look(process, 'world_size')}" if (look(process, "world_size") or 1) > 1 else ""),
        ("prefix", look(process, "torch_prefix")),
        ("allocator", look(process, "allocator")),
        ("OpenMP", ", ".join(str(look(one, "name")) for one in look(process, "openmp") or ())),
    )
    page.labelled("started", "; ".join(f"{name} {neutral(str(told))}" for name, told in started if told))
    env = look(process, "env")
    page.labelled("set", " ".join(f"{neutral(name, 60)}={neutral(value, 200)}" for name, value in (env or {}).items()))
    if env is None:
        page.labelled("set", "unknown: its environment could not be read", "dim")


def _findings(page: Page, outcomes: Iterable[Outcome], verbose: bool) -> None:
    doubts = []
    for outcome in outcomes:
        if outcome.state == "unknown":
            doubts.append(outcome)
        if outcome.state != "finding":
            continue
        mark = page.ink(outcome.severity, MARKS[outcome.severity])
        told = f"{neutral(outcome.rule)}  {words.message(outcome)}"
        page.line(f"      {mark} {told if verbose else clip(told, page.width - 8)}")
        for fix in outcome.fixes if verbose else ():
            fix_lines(page, "fix", fix)
    if doubts:
        told = _doubt(doubts, verbose=verbose)
        page.line(f"      {page.ink('unknown', '?')} {told if verbose else clip(told, page.width - 8)}")


def _doubt(outcomes: list[Outcome], *, verbose: bool) -> str:
    """Which checks could not be made, for want of what, and why."""
    gaps = [gap for outcome in outcomes for gap in outcome.unknown]
    who = words.some([neutral(outcome.rule) for outcome in outcomes], len(outcomes)) if verbose else words.count(len(outcomes), "check")
    lacking = dict.fromkeys(neutral(gap.fact) for gap in gaps)
    why = dict.fromkeys(neutral(gap.reason) for gap in gaps)
    need = "needs" if len(outcomes) == 1 else "need"
    return f"{who} {need} {words.some(lacking, len(lacking) if verbose else 3)}: {words.some(why, len(why) if verbose else 1)}"


def _rewrap(page: Page, again: Rewrap, verbose: bool) -> None:
    told = f"wrap would have set {words.some([neutral(change, 200) for change in again.changes], len(again.changes) if verbose else 3)}"
    page.line(f"      {page.ink('dim', '→')} {told if verbose else clip(told, page.width - 8)}")
    if verbose:
        page.verbatim("", neutral(again.command, 2_000), "command")


def _foot(page: Page, found: Any, processes: Sequence[Any], outcomes: Sequence[Outcome]) -> None:
    page.line()
    scanned, unreadable = look(found, "scanned"), look(found, "unreadable")
    among = f" among {scanned} processes" if scanned else ""
    running = words.count(len(processes), "PyTorch program") if processes else "No PyTorch program is running"
    page.paragraph(f"{running}{among}{' that /proc shows: it hides those of other users (hidepid)' if look(found, 'hidden') else ''}.")
    if unreadable:
        told = f"{words.count(unreadable, 'large program')} of other users could not be examined"
        page.paragraph(f"{told} → run it as root: `sudo sysperf ps`", "unknown")
    rules = [outcome.rule for outcome in outcomes if outcome.state == "finding"]
    if rules:
        page.paragraph(f"Next: sysperf explain {neutral(rules[0])}", "strong")
