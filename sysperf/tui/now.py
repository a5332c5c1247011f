"""What the dashboard knows right now: one object that sources fill and screens draw."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from sysperf.collect.gpu.records import Device
from sysperf.collect.machine_facts import MachineFacts
from sysperf.collect.process.records import Process
from sysperf.live.gpus.meters import Reasons, Values, bits_of, put, put_events
from sysperf.live.metric import process_of
from sysperf.model import moment
from sysperf.model.change import Transaction
from sysperf.model.finding import Finding, Report
from sysperf.model.snapshot import Snapshot
from sysperf.report.changes import duration
from sysperf.tui.cure import Cure
from sysperf.tui.source import Changed, Facts, Load, Meters, Neighbour, Past, Problem, SourceUpdate

KEPT = 240
"""Samples of each series that are kept for the small curves."""
HOLD_S = 300.0
"""So long a finding about a program stays after it was seen last."""
STALE_AFTER_S = 60.0
"""A meter that was not read for so long is unknown."""
QUIET_S, MISSED = 10.0, 3
"""A source that told nothing for so long, and for so many of its usual intervals, is silent."""


class Now:
    """Facts, findings and meters. Sources call `take_…`, in the thread of the dashboard."""

    def __init__(self) -> None:
        self.origin = ""
        self.here = True
        """Whether it is this very machine."""
        self.report: Report | None = None
        self.facts = MachineFacts({})
        self.counted = True
        """Whether the report knows how many checks passed."""
        self.since: dict[str, float] = {}
        """When a finding held first, by its key, where somebody knows."""
        self.meters: dict[str, float] = {}
        self.unknown: Reasons = {}
        """Why meters are unknown, by their names."""
        self.at = 0.0
        self.samples = 0
        """How often meters came."""
        self.past: dict[str, deque[float]] = {}
        self.per_cpu: dict[int, float] = {}
        self.neighbours: tuple[Neighbour, ...] = ()
        self.faded: dict[str, float] = {}
        """Findings that were not there when the machine was read last: key to seconds since they were."""
        self._seen: dict[str, tuple[float, Finding]] = {}
        self.changes: tuple[Transaction, ...] = ()
        self.problem = ""
        self.fixed: dict[str, int] = {}
        """Findings that were fixed from here: key to transaction, until the source looks again."""
        self.cures: list[Cure] = []
        """What was changed from here, and the meters since."""
        self.waived: dict[str, str] = {}
        """Findings that were waived from here: key to reason."""
        self.derived: dict[tuple[object, ...], Any] = {}  # any: each widget keeps what it works out under a key of its own
        """What widgets worked out of these facts; forgotten with them."""
        self._read_at: dict[str, float] = {}
        self._heard = self._usual_s = 0.0
        self._born: dict[tuple[int, int | None], float] = {}
        """When programs started, as Unix times, by process number and start time."""

    # ------------------------------------------------------------------ taking

    def take(self, news: SourceUpdate) -> bool:
        """Keep news of any kind; true for a sample of meters."""
        if isinstance(news, Facts):
            self.take_report(news.report, news.since, counted=news.counted)
        elif isinstance(news, Meters):
            self.take_meters(news.at, news.meters)
            self.unknown = self.unknown if news.unknown is None else news.unknown
        elif isinstance(news, Load):
            self.per_cpu = dict(news.per_cpu)
            self.neighbours = tuple(news.neighbours) if news.neighbours is not None else self.neighbours
        elif isinstance(news, Past):
            for name, values in news.past.items():
                for value in values:
                    self.remember(name, value)
        elif isinstance(news, Changed):
            self.changes = tuple(news.changes)
            self._seen.clear()  # what goes now was cured
        elif isinstance(news, Problem):
            self.problem = f"{news.text}; trying again" if news.again else news.text
        return isinstance(news, Meters)

    def take_report(self, report: Report, since: Mapping[str, float] | None = None, *, counted: bool = True) -> None:
        """Facts and findings."""
        self.facts = MachineFacts(report.snapshot.areas)
        self.report, self.counted = self._steady(report), counted
        self.since = dict(since or {})
        self.derived.clear()
        self._born = self._births(moment.seconds(report.snapshot.taken_at))
        keys = {finding.key for finding in self.report.findings()}
        self.fixed = {name: number for name, number in self.fixed.items() if name in keys}
        self.waived = {name: reason for name, reason in self.waived.items() if name in keys}

    def _steady(self, report: Report) -> Report:
        """The report with what was found minutes ago: loader workers come and go with each epoch, and so do findings about them."""
        at, found = time.monotonic(), report.findings()
        there = {outcome.key for outcome in report.outcomes}
        alive = {process.pid for process in self.processes()}
        held = {
            key: (seen, finding)
            for key, (seen, finding) in self._seen.items()
            if key not in there and key not in self.fixed and at - seen < HOLD_S and finding.subject.pid in alive
        }
        self._seen = {**held, **{finding.key: (at, finding) for finding in found}}
        self.faded = {key: at - seen for key, (seen, _) in held.items()}
        return msgspec.structs.replace(report, outcomes=(*report.outcomes, *(finding for _, finding in held.values()))) if held else report

    def take_meters(self, at: float, meters: Mapping[str, float]) -> None:
        """One sample. What is read seldom stays for a while; processes that are not in it are gone."""
        heard = time.monotonic()
        self._heard, self._usual_s = heard, heard - self._heard if self._heard else 0.0
        self.samples += 1
        before = self.meters
        older = [name for name in before.keys() - meters.keys() if 0 <= at - self._read_at[name] < STALE_AFTER_S]
        alive = {"", *map(process_of, meters)}
        older = [name for name in older if process_of(name) in alive]
        self.meters = {**{name: before[name] for name in older}, **meters}
        self._read_at = {**{name: self._read_at[name] for name in older}, **dict.fromkeys(meters, at)}
        self.at = at
        for cure in self.cures:
            cure.take(meters)
        for name in self.past.keys() - self.meters.keys():
            del self.past[name]
        for name in self.past.keys() & meters.keys():
            self.past[name].append(meters[name])
        for name in meters.keys() - before.keys() - self.past.keys():
            if not name.startswith(("process.", "agent.")):
                self.remember(name, meters[name])

    def remember(self, name: str, value: float) -> None:
        """A value for the small curve of a series."""
        kept = self.past.get(name)
        if kept is None:
            kept = self.past[name] = deque(maxlen=KEPT)
        kept.append(value)

    # ------------------------------------------------------------------ asking

    def quiet_s(self) -> float:
        """Return how long the source has told nothing, where that is unusual; 0 for a capture, which stands still."""
        quiet = time.monotonic() - self._heard
        return quiet if self.at and quiet > max(QUIET_S, MISSED * self._usual_s) else 0.0

    @property
    def step_s(self) -> float:
        """Seconds between two samples."""
        return self._usual_s if 0.2 < self._usual_s < STALE_AFTER_S else 1.0

    def notice(self) -> str:
        """What is wrong with the source, and how old the meters are therefore; empty when all is well."""
        quiet = self.quiet_s()
        old = f"the meters are {duration(quiet)} old" if quiet else ""
        return "; ".join(part for part in (self.problem, old) if part)

    @property
    def snapshot(self) -> Snapshot | None:
        return self.report.snapshot if self.report else None

    def findings(self) -> list[Finding]:
        """What is wrong, most costly first; what was waived here is left out."""
        return [finding for finding in self.report.findings() if finding.key not in self.waived] if self.report else []

    def finding(self, key: str) -> Finding | None:
        """The finding about this very subject."""
        return next((outcome for outcome in self.report.outcomes if outcome.key == key), None) if self.report else None

    def devices(self) -> tuple[Device, ...]:
        """The GPUs."""
        return self.facts.gpus

    def processes(self) -> tuple[Process, ...]:
        """The PyTorch programs."""
        return self.facts.programs

    def age_s(self, process: Process) -> float | None:
        """How old a program is now: its age when it was read, and the time since."""
        born = self._born.get((process.pid, process.start_time))
        if process.age_s is None or born is None or not self.at:
            return process.age_s
        return max(process.age_s, self.at - born)

    def _births(self, taken_at: float | None) -> dict[tuple[int, int | None], float]:
        """Return when each program started. A report may hold what was read of a program earlier: the earliest time is nearest."""
        if taken_at is None:
            return {}
        ages = {(process.pid, process.start_time): process.age_s for process in self.processes()}
        return {key: min(taken_at - age, self._born.get(key, taken_at)) for key, age in ages.items() if age is not None}

    def of_process(self, pid: int, name: str) -> float | None:
        return self.meters.get(f"process.{pid}.{name}")


def meters_of(snapshot: Snapshot) -> dict[str, float]:
    """The meters that facts hold: all that there is of a captured machine, and of GPUs that nobody watches closely."""
    facts = MachineFacts(snapshot.areas)
    meters = _of_system(facts)
    for device in facts.gpus:
        meters |= _of_gpu(device)
    return {name: float(value) for name, value in meters.items() if value is not None}


def _of_system(facts: MachineFacts) -> dict[str, float | None]:
    meters: dict[str, float | None] = {}
    if memory := facts.memory:
        meters["memory.available_bytes"] = memory.available_bytes
        meters["pressure.memory.some_avg10"] = memory.pressure_some
        meters["pressure.memory.full_avg10"] = memory.pressure_full
        if memory.swap_total_bytes is not None and memory.swap_free_bytes is not None:
            meters["memory.swap_used_bytes"] = max(0, memory.swap_total_bytes - memory.swap_free_bytes)
    if facts.cpu:
        meters["pressure.cpu.some_avg10"] = facts.cpu.pressure_some
    if facts.storage:
        meters["pressure.io.some_avg10"] = facts.storage.pressure_some
        meters["pressure.io.full_avg10"] = facts.storage.pressure_full
    return meters


def _of_gpu(device: Device) -> Values:
    out: Values = {}
    for name, percent in (("utilization", device.utilization_percent), ("memory_utilization", device.memory_utilization_percent)):
        put(out, device.index, name, None if percent is None else percent / 100)
    put(out, device.index, "memory_used_bytes", device.memory_used_bytes)
    put(out, device.index, "power_watts", device.power.usage_watts)
    put(out, device.index, "sm_clock_mhz", device.clocks.sm_mhz)
    put(out, device.index, "celsius", device.thermal.celsius)
    put_events(out, device.index, bits_of(device.clocks.events))
    return out
