"""DataLoader workers: a row each under their program, when somebody unfolds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sysperf.collect.process.workers import Worker, Workers
from sysperf.model.text import neutral, size
from sysperf.tui.widgets.line import Line, Lines, Span, fitted, padded, span

STATES = {
    "R": "runs",
    "S": "waits",
    "D": "waits for a disk",
    "I": "waits",
    "T": "is stopped",
    "t": "is traced",
    "Z": "has ended",
    "X": "has ended",
}


MORE, LAST = "├", "└"
MAX_STATE_WIDTH = max(map(len, STATES.values()))


class WorkerReadings(NamedTuple):
    """The workers of a program, read twice: the rates lie in between."""

    latest: Workers | None = None
    before: Workers | None = None
    problem: str = ""

    def then(self, read: Workers | None, problem: str = "") -> WorkerReadings:
        """After another reading."""
        return WorkerReadings(read, self.latest, problem)


class Pace(NamedTuple):
    """What a worker did between two readings; None when there was only one."""

    cpus: float | None
    read_bytes_per_s: float | None


def paces(readings: WorkerReadings) -> Mapping[int, Pace]:
    """The rates of each worker that was there at both readings."""
    if readings.latest is None or readings.before is None or readings.latest.at <= readings.before.at:
        return {}
    took_s = readings.latest.at - readings.before.at
    known = {worker.pid: worker for worker in readings.before.workers or ()}
    return {worker.pid: _pace(known[worker.pid], worker, took_s) for worker in readings.latest.workers or () if worker.pid in known}


def _pace(before: Worker, now: Worker, took_s: float) -> Pace:
    if now.cpu_s < before.cpu_s:  # another process with the same number
        return Pace(None, None)
    read = None if now.read_bytes is None or before.read_bytes is None else max(0, now.read_bytes - before.read_bytes) / took_s
    return Pace((now.cpu_s - before.cpu_s) / took_s, read)


def draw(pid: int, readings: WorkerReadings, width: int) -> Lines:
    """A row each, in columns of their own; one that says why there is none."""
    if readings.latest is None or not readings.latest.workers:
        return [fitted(Line((Span(f"  {LAST} ", "dim"), span(_none(readings), "dim")), (pid, 0)), width)]
    pace = paces(readings)
    return [
        fitted(_row(pid, worker, pace.get(worker.pid, Pace(None, None)), LAST if worker is readings.latest.workers[-1] else MORE), width)
        for worker in readings.latest.workers
    ]


def _none(readings: WorkerReadings) -> str:
    if readings.problem:
        return f"its workers are unknown: {readings.problem}"
    if readings.latest is None:
        return "reading its workers …"
    return "its workers are unknown here" if readings.latest.workers is None else "it has no worker right now"


def _row(pid: int, worker: Worker, pace: Pace, branch: str) -> Line:
    """``└ 4300  1.0 CPUs  256 MiB  waits  CPU 3 of 0-7  reads 3 MiB/s``."""
    used = "?" if pace.cpus is None else f"{pace.cpus:.1f}"
    memory = "?" if worker.rss_bytes is None else size(worker.rss_bytes)
    state = STATES.get(worker.state, neutral(f"state {worker.state}", 20))
    where = f"CPU {'?' if worker.last_cpu is None else worker.last_cpu} of {'?' if worker.allowed is None else worker.allowed}"
    read = "" if pace.read_bytes_per_s is None else f"  reads {size(round(pace.read_bytes_per_s))}/s"
    text = f"{worker.pid:>7} {used:>5} CPUs {memory:>9}  {padded(state, MAX_STATE_WIDTH)}  {where}{read}"
    return Line((Span(f"  {branch} ", "dim"), span(text)), (pid, worker.pid))
