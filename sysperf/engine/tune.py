"""The verb `tune`: search for the best start of a program, race the best, and confirm the winner against plain with fresh pairs."""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, stdev
from typing import Any

import msgspec

from sysperf.engine import measuring, tune_space, verify
from sysperf.engine.measuring import Measured, RunFailed
from sysperf.engine.wrap_facts import gather
from sysperf.host import Host, files
from sysperf.launch import environment
from sysperf.launch.profile import Profile, text
from sysperf.launch.request import LaunchRequest
from sysperf.model.comparison import Comparison, Metric, Variant
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.record import Record, convert
from sysperf.model.text import neutral
from sysperf.model.tuning import Choice, Factor, FactorEffect, LeftOut, LevelEffect, State, TuneRun, Tuning
from sysperf.verify import noise, probe
from sysperf.verify.search import effects, tpe
from sysperf.verify.search.plan import MIN_RUNS, WRAP, Proposal, Search
from sysperf.verify.search.store import Store

MAX_RUNS = 120
SEARCH_SHARE = 0.6
"""Of the budget; the rest confirms the winner."""
CONFIRMING_RUNS = 26
"""A pair that warms caches, six pairs, and their fresh ones with some room."""
PILOT_RUNS = 3
MAX_DISTURBED_SHARE = 0.2
"""Once more runs than this were disturbed, disturbed ones count: that is how this machine is."""
MAX_ERROR = 0.01
"""Standard error of a run's rate that is good enough: a run ends after the steps that this takes."""
BATCHES = 20
WRAPPED = "sysperf wrap without a profile"


class Plan(Record, kw_only=True):
    """What is searched, and for how long."""

    argv: tuple[str, ...]
    metric: Metric
    factors: tuple[Factor, ...]
    left_out: tuple[LeftOut, ...] = ()
    budget_s: float = 1_800.0
    limit_s: float = 3_600.0
    margin: float = 0.01
    max_runs: int = MAX_RUNS
    keep_disturbed: bool = False
    """Count the runs that others disturbed, too."""
    seed: int = 0


class Pilot(Record):
    """What the first runs tell of all others."""

    metric: Metric
    """The plan's; of steps with as many as a good rate takes."""
    run_s: float
    warm_up_steps: int = 0
    steps: int | None = None
    """Steps of every run; None where the program's own runs differ."""
    total: int = 0
    """Runs that the search has time for."""
    use_tpe: bool = False


class Progress(Record):
    """Where a search stands, for who watches it."""

    phase: str
    done: int
    total: int
    last: TuneRun
    best: str = ""
    ratio: float | None = None
    """The speed of the best so far as a multiple of plain's, as the model has it."""


def plan_of(argv: Sequence[str], metric: Metric, asked: tune_space.Asked) -> Plan:
    """Return a plan with the factors that this machine and program have. Raises UsageError where there is none."""
    known = gather(Host(), LaunchRequest(argv=tuple(argv)), environment.inherited(), os.getcwd(), None)
    if unknown := [name for name in asked.without if name not in tune_space.NAMES]:
        raise UsageError(f"--without {unknown[0]}: no such factor", f"factors are {', '.join(tune_space.NAMES)}")
    found = tune_space.space(known, asked)
    if not found.factors:
        why = "; ".join(f"{left.name}: {left.reason}" for left in found.left_out)
        raise UsageError(f"there is nothing to tune: {neutral(why, 800)}", "`sysperf wrap --explain` tells what is known of the program")
    return Plan(argv=tuple(argv), metric=metric, factors=found.factors, left_out=found.left_out)


def tune(plan: Plan, store: Store, scratch: str, observe: Callable[[Progress | verify.State], object] = lambda _: None) -> Tuning:
    """Search until the budget is spent. `scratch` is the file for profiles that are tried. Raises SysperfError, sqlite3.Error.

    Ctrl-C ends it with what is there. A store that has runs is gone on with.
    """
    search = _Tuner(plan, store, scratch, observe)
    try:
        search.pilot()
        search.search()
    except KeyboardInterrupt:
        return search.result("unconfirmed", "interrupted before the search was over")
    return search.confirmed()


class _Tuner:
    def __init__(self, plan: Plan, store: Store, scratch: str, observe: Callable[[Progress | verify.State], object]) -> None:
        self.plan, self.store, self.scratch, self.observe = plan, store, scratch, observe
        self.runs = store.runs()
        self.known = store.kept("pilot", Pilot)
        spent_s = sum(run.wall_s for run in self.runs)
        self.end = time.monotonic() + plan.budget_s - spent_s

    # ------------------------------------------------------------------ the phases

    def pilot(self) -> None:
        """Run the plain program twice and a wrapped one: caches are warm then, and it is known how long a run takes."""
        if self.known:
            return
        search = Search(tuple(len(factor.levels) for factor in self.plan.factors), 0, 0, higher_is_better=True, use_tpe=False)
        choices = (search.plain, search.wrapped, search.plain)
        measured = [measuring.measure(self._variant(choice), self.plan.metric, self.plan.limit_s) for choice in choices]
        self.known = _pilot(self.plan, measured, self.end - time.monotonic())
        self.store.keep("pilot", self.known)

    def search(self) -> None:
        """Run what the search proposes until it is over, or the time for it is."""
        end = self.end - (1 - SEARCH_SHARE) * self.plan.budget_s
        while (proposal := self._search().proposal()) and time.monotonic() < end:
            run = self._run(proposal)
            self.runs.append(run)
            self.store.add(run)
            self.observe(self._progress(run))

    def confirmed(self) -> Tuning:
        """Compare the winner with plain in fresh pairs, and say what comes of it."""
        winner = self._winner()
        if winner is None:
            return self.result("nothing", "plain was the fastest of the race")
        plan = verify.Plan(
            a=self._variant(self._plain()),
            b=msgspec.structs.replace(self._variant(winner), name="tuned"),
            metric=self._pilot().metric,
            margin=self.plan.margin,
            budget_s=max(self._pilot().run_s, self.end - time.monotonic()),
            limit_s=self.plan.limit_s,
            seed=self.plan.seed,
            keep_disturbed=self.plan.keep_disturbed,
        )
        note = f"confirm {winner}"  # by choice: all of them are started in the same way, and read the same file
        saved = self.store.kept(note, verify.State)
        state = None if saved is None else msgspec.structs.replace(saved, plan=plan)

        def keep(now: verify.State) -> None:
            self.store.keep(note, now)
            self.observe(now)

        comparison = verify.verify(plan, keep, state)
        if comparison.verdict == "faster" and not comparison.is_certain():
            return self.result("unconfirmed", "faster by little: the further pairs do not show how much", winner, comparison)
        states: dict[str, State] = {"faster": "confirmed", "unclear": "unconfirmed"}
        reason = comparison.reason if comparison.verdict in states else "the best of the race is no faster than plain in fresh pairs"
        return self.result(states.get(comparison.verdict, "nothing"), reason, winner, comparison)

    def result(self, state: State, reason: str, winner: Choice | None = None, comparison: Comparison | None = None) -> Tuning:
        """Return what is known so far."""
        search = self._search() if self.known else None
        plan = self.plan
        return Tuning(
            state=state,
            reason="" if state == "confirmed" else reason,
            argv=plan.argv,
            metric=self.known.metric if self.known else plan.metric,
            factors=plan.factors,
            left_out=plan.left_out,
            effects=effects_of(search, plan.factors) if search and search.observations() else (),
            winner=winner,
            comparison=comparison,
            profile=profile_text(plan, winner, comparison) if state == "confirmed" and winner and comparison else "",
            runs=tuple(self.runs),
            with_tpe=bool(self.known and self.known.use_tpe),
            seed=plan.seed,
        )

    # ------------------------------------------------------------------ one run

    def _run(self, proposal: Proposal) -> TuneRun:
        """Do a run. One that fails is kept with its reason, except the plain program's own. Raises RunFailed."""
        pilot, number = self._pilot(), len(self.runs)
        start = time.monotonic()
        limit_s = measuring.limit_s(self.plan.limit_s, [pilot.run_s, *(run.wall_s for run in self.runs if not run.failed)])
        try:
            done = self._measured(proposal.choice, limit_s)
        except RunFailed as error:
            if proposal.choice == self._plain():
                raise
            return TuneRun(
                number,
                proposal.phase,
                proposal.choice,
                wall_s=time.monotonic() - start,
                failed=neutral(str(error), 300),
                block=proposal.block,
            )
        return TuneRun(
            number,
            proposal.phase,
            proposal.choice,
            done.value,
            done.wall_s,
            done.cpu_s,
            None if done.load is None else done.load.total,
            self._disturbance(done),
            block=proposal.block,
        )

    def _measured(self, choice: Choice, limit_s: float) -> Measured:
        pilot, instances = self._pilot(), int(self._fields(choice).get("instances", 1))
        done = measuring.measure(self._variant(choice), pilot.metric, limit_s, pilot.warm_up_steps, instances)
        if pilot.steps and instances == 1 and len(done.step_times_s) != pilot.steps:
            raise RunFailed(f"it made {len(done.step_times_s)} steps instead of {pilot.steps}", "a setting must not change the work")
        return done

    def _disturbance(self, done: Measured) -> str:
        disturbed = sum(1 for run in self.runs if run.disturbed)
        if self.plan.keep_disturbed or disturbed + 1 > MAX_DISTURBED_SHARE * max(len(self.runs), MIN_RUNS):
            return ""
        return noise.disturbance(
            done.load, [noise.Load(run.other_cpus, 0.0, run.wall_s) for run in self.runs if run.other_cpus is not None]
        )

    def _variant(self, choice: Choice) -> Variant:
        """How a choice is started: plain is the command itself, everything else goes through `sysperf wrap`."""
        if choice == self._plain():
            return Variant("plain", self.plan.argv)
        wrap = (sys.executable, "-m", "sysperf", "wrap", "--quiet")
        if WRAP in choice:
            return Variant(WRAPPED, (*wrap, "--", *self.plan.argv))
        try:
            files.replace(self.scratch, text(convert(self._fields(choice), Profile)).encode())
        except OSError as error:
            raise SysperfError(f"{self.scratch}: {error.strerror or error}", "make room on that disk, then --resume") from None
        return Variant(self._words(choice), (*wrap, "--profile", self.scratch, "--", *self.plan.argv))

    def _fields(self, choice: Choice) -> dict[str, Any]:
        return {} if WRAP in choice else tune_space.profile_of(self.plan.factors, choice)

    # ------------------------------------------------------------------ the state

    def _pilot(self) -> Pilot:
        assert self.known is not None  # noqa: S101 - the pilot comes before every other phase
        return self.known

    def _plain(self) -> Choice:
        return (0,) * len(self.plan.factors)

    def _search(self) -> Search:
        pilot = self._pilot()
        sizes = tuple(len(factor.levels) for factor in self.plan.factors)
        return Search(sizes, pilot.total, self.plan.seed, pilot.metric.higher_is_better, pilot.use_tpe, self.runs)

    def _winner(self) -> Choice | None:
        best = self._search().winner() if self._search().observations() else self._plain()
        return None if best == self._plain() else best

    def _progress(self, run: TuneRun) -> Progress:
        search = self._search()
        model = search.model()
        best = model.sparing()
        return Progress(
            phase=run.phase,
            done=len(self.runs),
            total=self._pilot().total,
            last=run,
            best=self._words(best),
            ratio=math.exp(model.predicted(best)),
        )

    def _words(self, choice: Choice) -> str:
        return words(self.plan.factors, choice)


def words(factors: Sequence[Factor], choice: Choice) -> str:
    """Return a choice as ``threads 8, allocator jemalloc``."""
    if WRAP in choice:
        return WRAPPED
    parts = [f"{factor.name}: {factor.levels[level].name}" for factor, level in zip(factors, choice, strict=True) if level]
    return ", ".join(parts) or "plain"


def _pilot(plan: Plan, measured: Sequence[Measured], left_s: float) -> Pilot:
    """Decide how long a run is and how many there will be. Raises UsageError where the budget has room for too few."""
    metric, warm_up, last = plan.metric, 0, measured[-1]
    counts = {len(done.step_times_s) for done in measured}
    steps_of_all = counts.pop() if metric.counts and len(counts) == 1 else None
    run_s = max(done.wall_s for done in measured[1:])
    if metric.counts:
        steps = probe.Steps(last.step_times_s)
        warm_up = probe.warm_up_steps(steps, steps)
        enough = warm_up + steps_for(steps.durations()[warm_up:])
        if not metric.max_steps and enough < min(len(done.step_times_s) for done in measured):
            metric = msgspec.structs.replace(metric, max_steps=enough)
            run_s -= steps.times[-1] - steps.times[enough - 1]
            steps_of_all = enough
    possible = int(left_s / max(run_s, 0.01))
    total = min(plan.max_runs, max(round(SEARCH_SHARE * possible), min(MIN_RUNS, possible - CONFIRMING_RUNS)))
    if total < MIN_RUNS:
        needed = math.ceil((MIN_RUNS + CONFIRMING_RUNS + PILOT_RUNS) * run_s / 60) + 1
        raise UsageError(
            f"a run takes {run_s:.0f} s: there is time for {max(0, possible)} runs, and a search with its confirmation needs "
            f"{MIN_RUNS + CONFIRMING_RUNS}",
            f"--minutes {needed}, or shorter runs: --steps optimizer --max-steps N",
        )
    use_tpe = tpe.available() and total >= tpe.MIN_RUNS
    return Pilot(metric, run_s, warm_up, steps_of_all, total, use_tpe)


def steps_for(durations: Sequence[float]) -> int:
    """Return how many steps give a rate with a standard error of 1 %, by the means of batches, since neighbours are alike."""
    size = max(1, len(durations) // BATCHES)
    means = [fmean(durations[at : at + size]) for at in range(0, len(durations) - size + 1, size)]
    if len(means) < 2:
        return len(durations)
    batches = (stdev(means) / fmean(means) / MAX_ERROR) ** 2
    return max(size * 2, probe.MIN_STEPS * 2, math.ceil(size * batches))


def effects_of(search: Search, factors: Sequence[Factor]) -> tuple[FactorEffect, ...]:
    """Return what each factor did, the one that mattered most first."""
    model = search.model()
    shares = effects.importance(model)
    seen = search.observations()

    def levels(place: int) -> Iterator[LevelEffect]:
        for level, entry in enumerate(factors[place].levels):
            mean, error = model.effect(place, level), model.error(place, level)
            runs = sum(1 for found in seen if found.choice[place] == level)
            yield LevelEffect(entry.name, math.exp(mean), math.exp(mean - error), math.exp(mean + error), runs)

    found = [FactorEffect(factor.name, shares[place], tuple(levels(place))) for place, factor in enumerate(factors)]
    return tuple(sorted(found, key=lambda effect: -effect.importance))


def profile_text(plan: Plan, winner: Choice, comparison: Comparison) -> str:
    """Return the launch profile of a confirmed winner; nothing of the command but its program's name is in it."""
    gained = f"{((comparison.ratio or 1) - 1) * 100:.1f} % faster than plain"
    interval = f"{((comparison.low or 1) - 1) * 100:+.1f} to {((comparison.high or 1) - 1) * 100:+.1f} %"
    name = os.path.basename(plan.argv[1] if len(plan.argv) > 1 and not plan.argv[1].startswith("-") else plan.argv[0])
    note = (
        f"{PROFILE_MARK} for {neutral(name, 100)} on {time.strftime('%Y-%m-%d')}: {words(plan.factors, winner)}\n"
        f"{gained} ({interval}; {plan.metric.name}, {comparison.fresh_pairs or comparison.pairs} pairs)"
    )
    fields = {} if WRAP in winner else tune_space.profile_of(plan.factors, winner)
    return text(convert({**fields, "note": note}, Profile))


PROFILE_MARK = "found by sysperf tune"


@contextlib.contextmanager
def opened(path: str, *, resume: bool) -> Iterator[Store]:
    """Open the file of a study, anew or as it was left. Raises SysperfError."""
    hint = "run it without --resume, or make room on that disk"
    try:
        store = Store(path, anew=not resume)
    except (sqlite3.Error, OSError) as error:
        raise SysperfError(f"{path}: {error}", hint) from None
    try:
        yield store
    except (sqlite3.Error, msgspec.MsgspecError) as error:
        raise SysperfError(f"{path}: {error}", hint) from None
    finally:
        store.close()
