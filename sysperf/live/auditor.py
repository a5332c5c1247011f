"""An audit in parts: each area is read as often as it changes, and only the rules that name it are judged again.

All of this runs in a thread of its own: a file system that hangs must not stop the agent.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from sysperf.collect import AREAS, add_running_torch, collect
from sysperf.collect.machine_facts import MachineFacts
from sysperf.collect.readers.gpu_sleep import ASLEEP, gpus_asleep
from sysperf.engine import reading
from sysperf.engine.audit import judge_snapshot, with_drift
from sysperf.engine.judging import Terms
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.judge import JUDGED, Judge, judge
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.subject import process_subject
from sysperf.evaluate.waivers import apply_waivers
from sysperf.host import Host
from sysperf.live.gpus import Gpus
from sysperf.live.process_facts import ProcessFacts, batches, first_of, none_runs
from sysperf.live.scan import Change, Scanner
from sysperf.model.change import Transaction
from sysperf.model.errors import RuleError
from sysperf.model.finding import Finding, Report
from sysperf.model.rule import Rule
from sysperf.model.snapshot import Area, Snapshot, Source

STATIC_S = 600.0
PERIODS = {"memory": 30.0, "cgroup": 30.0, "process": 30.0, "gpu": 15.0, "power": 60.0, "numa": 60.0}
"""Seconds between two readings of what changes; everything else is read each STATIC_S."""
IDLE_PERIODS = {"memory": 60.0, "cgroup": 60.0, "power": 120.0, "numa": 120.0}
"""The same while no PyTorch runs."""
SHARE = 0.0005
"""An area that is slow to read is read less often, so that it takes no more than this of a CPU."""
LATEST = 10
"""… but at least once in so many periods."""
SCAN_S, SCAN_IDLE_S = 15.0, 20.0
SPREAD_S = 5.0
"""Of many programs that start at once, some are read each so many seconds, …"""
SPREAD_SHARE = 0.01
"""… and less often where that would take more than this of a CPU."""


class AuditPass(NamedTuple):
    """What one audit pass found."""

    change: Change
    refreshed: frozenset[str]
    rules: Mapping[str, Rule]
    """The rules that were judged."""
    outcomes: Sequence[Finding]
    passed: Mapping[str, int]
    """For how many of its subjects each of them passed."""
    not_applicable: Mapping[str, int]
    present: Mapping[str, Collection[str]]
    """The subjects that exist, by scope."""
    snapshot: Snapshot
    took_s: float = 0.0


class Auditor:
    """The machine's facts, kept fresh area by area, and what rules say of them."""

    def __init__(self, terms: Terms, scanner: Scanner, gpus: Gpus, clock: Callable[[], float] = time.monotonic) -> None:
        self._scanner = scanner
        self._gpus = gpus
        self._clock = clock
        self._areas: dict[str, Area] = {}
        self._programs = ProcessFacts()
        self._spread_due = math.inf
        self._sources: dict[str, dict[str, Source]] = {}
        self._due = dict.fromkeys(AREAS, clock())
        self._cost_s: dict[str, float] = {}
        self._scan_due = clock()
        self._invalid: list[str] = []  # filled by the event loop's thread, emptied by ours
        self._ended: list[int] = []
        self._next_terms: Terms | None = None
        self._torches: frozenset[tuple[str, str | None]] = frozenset()
        self._computes = False
        self.doing = ""
        """What is being read right now, for those who wonder why it takes long."""
        self.use(terms)

    def use(self, terms: Terms) -> None:
        """Judge by these from now on."""
        self._terms = terms
        rules = [rule for rule in terms.ruleset.rules if rule.scope in JUDGED and _is_right(terms.ruleset, rule)]
        shared: dict[frozenset[str], frozenset[str]] = {}  # hundreds of rules look at a few dozens of combinations
        areas = {rule.id: looks_at(terms.ruleset, rule.id) for rule in rules}
        self._looks_at = {rule: shared.setdefault(names, names) for rule, names in areas.items()}
        self._rules = rules

    @property
    def rules(self) -> Mapping[str, Rule]:
        """The rules that are judged, by id: a cause may have several witnesses."""
        return {rule.id: rule for rule in self._rules}

    @property
    def idle(self) -> bool:
        """Tell whether no PyTorch runs."""
        return not self._scanner.torch

    @property
    def computes(self) -> bool:
        """Some process uses a GPU."""
        return self._computes

    @property
    def throttle_files(self) -> tuple[str, ...]:
        """The counters of the control groups in which PyTorch runs."""
        sources = self._sources.get("process", {}) if self._scanner.torch else {}
        return tuple(path for path, source in sources.items() if path.endswith("/cpu.stat") and source.error is None)

    def areas_of(self, rule: str) -> frozenset[str]:
        """The areas that a rule looks at."""
        return self._looks_at.get(rule, frozenset())

    def renew(self, terms: Terms) -> None:
        """Judge by other rules from the next audit pass on, which reads everything. May be called from the other thread."""
        self._next_terms = terms
        self.invalidate()

    def ended(self, pid: int) -> None:
        """A process is gone. May be called from the other thread."""
        self._ended.append(pid)

    def invalidate(self, *areas: str) -> None:
        """Read these with the next audit pass; all of them when none is named. May be called from the other thread."""
        self._invalid += areas or AREAS

    def changed(self, transactions: Iterable[Transaction]) -> set[str]:
        """Something was changed or taken back: the next pass reads what the rules behind it look at. Returns those rules."""
        rules = {step.change.rule for transaction in transactions for step in transaction.steps}
        areas = {area for rule in rules for area in self.areas_of(rule)}
        if rules:
            self.invalidate(*(areas if all(map(self.areas_of, rules)) else ()))
        return rules

    def due(self) -> bool:
        """Whether an audit pass would do anything."""
        now = self._clock()
        return bool(self._invalid or self._ended) or min(self._scan_due, self._spread_due, *self._due.values()) <= now

    def period_s(self, rule: Rule) -> float:
        """How often a rule is judged: as often as the quickest area that it looks at is read."""
        return min((self._period(area) for area in self._looks_at.get(rule.id, ()) if area in self._due), default=STATIC_S)

    def run_pass(self) -> AuditPass:
        """Find new processes, read what is due, judge what it concerns."""
        start = self._clock()
        invalid = set()
        while self._invalid:
            invalid.add(self._invalid.pop())
        if self._next_terms is not None:
            terms, self._next_terms = self._next_terms, None
            self.use(terms)
        ended = bool(self._ended)
        while self._ended:
            self._scanner.forget(self._ended.pop())
        change = Change((), ())
        if self._scan_due <= start or invalid:
            self.doing = "looking for processes"
            change = self._scanner.scan()
            self._scan_due = start + (SCAN_IDLE_S if self.idle else SCAN_S)
        areas = {area for area, at in self._due.items() if at <= start} | (invalid & set(AREAS))
        if change.started:
            self._due.update({area: min(self._due[area], start + self._period(area)) for area in PERIODS})
        self._read([area for area in AREAS if area in areas])
        if "process" not in areas and "torch" not in areas and (ended or change.started or change.ended or self._spread_due <= start):
            self._read_new_programs()
            areas.add("process")
        self._follow_gpus(areas)
        refreshed = frozenset(areas)
        snapshot = self._snapshot()
        judged = [rule for rule in self._rules if not refreshed.isdisjoint(self._looks_at[rule.id])]
        answers, outcomes = self._judge(judged, snapshot)
        self.doing = ""
        return AuditPass(
            change,
            refreshed,
            {rule.id: rule for rule in judged},
            outcomes,
            answers.passed,
            answers.not_applicable,
            _present(snapshot),
            snapshot,
            self._clock() - start,
        )

    def report(self) -> Report:
        """What all rules say of the facts as they were read last: for a face that shows everything, passes and unknowns too."""
        from sysperf.engine.gains import with_gains  # noqa: PLC0415 - only a face that shows everything asks

        snapshot = self._snapshot()
        sources = (source for known in self._sources.values() for source in known.values())
        return with_gains(judge_snapshot(snapshot, self._terms, Ledger(snapshot, sources)))

    # ------------------------------------------------------------------ inside

    def _follow_gpus(self, areas: set[str]) -> None:
        """GPUs are watched closely only while a program computes on one, and let go of otherwise."""
        computed, self._computes = self._computes, any(process.cuda_used for process in MachineFacts(self._areas).programs)
        if self._computes and not computed and "gpu" not in areas:
            self._read(["gpu"])
            areas.add("gpu")
        if not self._computes:
            self._gpus.close()

    def _period(self, area: str) -> float:
        base = (IDLE_PERIODS if self.idle else PERIODS).get(area, STATIC_S)
        if area == "gpu" and not self._computes:
            base = STATIC_S
        return max(base, min(self._cost_s.get(area, 0.0) / SHARE, base * LATEST))

    def _read(self, areas: list[str]) -> None:
        """Read these areas: processes through a list that only names those with PyTorch, the rest one by one."""
        for area in areas:
            if area not in ("process", "torch"):
                self._read_from(Host("/", nvml=self._gpus), [area])
        if "torch" in areas:
            self._read_from(Host("/", nvml=self._gpus), ["torch"])
            self._torches = frozenset()  # what runs is to be added again
        if "torch" in areas or "process" in areas:
            self._read_all_programs()

    def _read_from(self, host: Host, areas: list[str]) -> None:
        if areas[0] in ("gpu", "driver") and gpus_asleep():
            self._areas.setdefault(areas[0], Area(None, ASLEEP))
            self._due[areas[0]] = self._clock() + STATIC_S
            return
        self.doing = f"reading {' and '.join(areas)}"
        start = time.thread_time()
        read = collect(host, areas)
        took_s = time.thread_time() - start
        for area in areas:
            self._areas[area] = read[area]
            self._sources[area] = {source.path: source for source in host.sources}
            self._read_at(area, took_s)

    def _read_at(self, area: str, took_s: float) -> None:
        self._cost_s[area] = took_s
        self._due[area] = self._clock() + self._period(area)

    def _read_all_programs(self) -> None:
        """Read the programs again, some at a time: what was read of the others is not held meanwhile. Of new ones, only some."""
        start = time.thread_time()
        new, known = self._families()
        now = first_of(new, self._scanner.workers)
        for pids in batches([*known, *now]) or [[]]:
            self._read_programs(pids)
        self._complete_processes()
        took_s = time.thread_time() - start
        self._read_at("process", took_s)
        self._spread(len(new) - len(now), took_s)

    def _read_new_programs(self) -> None:
        """Read some of the programs that are new, and forget those that ended. The rest of the new ones waits for a later pass."""
        start = time.thread_time()
        new, _ = self._families()
        now = first_of(new, self._scanner.workers)
        for pids in batches(now):
            self._read_programs(pids)
        self._complete_processes()
        self._spread(len(new) - len(now), time.thread_time() - start)

    def _families(self) -> tuple[list[list[int]], list[list[int]]]:
        """Return those with a process of which nothing was read yet, and the others."""
        unread = self._programs.unread(self._scanner.torch)
        new: list[list[int]] = []
        known: list[list[int]] = []
        for family in self._scanner.families():
            (known if unread.isdisjoint(family) else new).append(family)
        return new, known

    def _spread(self, left: int, took_s: float) -> None:
        """Choose when those that were not read yet are read."""
        self._spread_due = self._clock() + max(SPREAD_S, took_s / SPREAD_SHARE) if left else math.inf

    def _read_programs(self, pids: list[int]) -> None:
        self.doing = "reading process"
        host = Host("/", tree=self._scanner.tree(pids), nvml=self._gpus)
        self._programs.take(pids, collect(host, ["process"])["process"], host.sources)

    def _complete_processes(self) -> None:
        """What the scanner knows and the narrow lists do not; and a PyTorch that nobody knew yet."""
        self._programs.keep(self._scanner.torch)
        area = self._programs.area()
        if not self._scanner.torch and not self._scanner.problem:
            area = none_runs(area)
        self._sources["process"] = dict(self._programs.sources)
        if (known := MachineFacts({"process": area}).process) is not None:
            counted = msgspec.structs.replace(known, scanned=self._scanner.count, unreadable=len(self._scanner.unreadable))
            area = msgspec.structs.replace(area, facts=counted)
            self._find_running_torch(area)
        self._areas["process"] = area

    def _find_running_torch(self, processes: Area) -> None:
        """An installation of PyTorch that runs may be where nobody looks."""
        torches = frozenset((program.torch.prefix, program.torch.version) for program in MachineFacts({"process": processes}).programs)
        if "torch" in self._areas and torches - self._torches:
            host = Host("/", nvml=self._gpus)
            areas = {"torch": self._areas["torch"], "process": processes}
            add_running_torch(host, areas)
            self._areas["torch"] = areas["torch"]
            self._sources.setdefault("torch", {}).update((source.path, source) for source in host.sources)
        self._torches = torches

    def _snapshot(self) -> Snapshot:
        areas = {area: self._areas[area] for area in AREAS if area in self._areas}
        return with_drift(Snapshot(taken_at=reading.now(), areas=areas), self._terms.reference, self._terms.ruleset)

    def _judge(self, rules: Iterable[Rule], snapshot: Snapshot) -> tuple[Judge, list[Finding]]:
        """What these rules say, and what of that is left after waivers."""
        self.doing = "judging"
        sources = (source for known in self._sources.values() for source in known.values())
        answers = judge(self._terms.ruleset, snapshot, JUDGED, Ledger(snapshot, sources), rules=rules)
        outcomes = answers.outcomes
        if self._terms.waivers:
            outcomes = apply_waivers(outcomes, self._terms.waivers, None, self._terms.ruleset)
        return answers, [outcome for outcome in outcomes if outcome.rule != "waiver.stale"]


def _is_right(ruleset: Ruleset, rule: Rule) -> bool:
    """Whether a rule can be judged: one that names what is no fact says nothing, and the others go on."""
    with contextlib.suppress(RuleError):
        return bool(ruleset.compiled(rule.key).when)
    return False


def looks_at(ruleset: Ruleset, rule_id: str) -> frozenset[str]:
    """The areas whose facts a rule's conditions name."""
    named = frozenset[str]().union(*(ruleset.compiled(rule.key).areas for rule in ruleset.witnesses(rule_id) if rule.scope in JUDGED))
    return named.intersection(AREAS) or frozenset(("kernel",))  # what differs from a good machine seldom changes


def _present(snapshot: Snapshot) -> dict[str, Collection[str]]:
    """All processes as keys name them, so that findings about others can go."""
    known = MachineFacts(snapshot.areas).process
    return {} if known is None else {"process": {process_subject(process).identity for process in known.processes}}
