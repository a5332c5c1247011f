"""The verb `tune`: search for the best start of a program, race the best, and confirm the winner against plain with fresh pairs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import msgspec

from sysperf.engine import verify
from sysperf.engine.tune import space
from sysperf.engine.tune.plan import (
    MIN_CONFIRMING_PAIRS,
    PILOT_RUNS,
    SHORTEST_CONFIRMATION,
    Pilot,
    Plan,
    confirming_pairs,
    cut,
    first_metric,
    most_runs,
    pilot_of,
    searching,
)
from sysperf.engine.tune.result import WRAPPED, confirmation_notes, effects_of, profile_text, start_notes, words
from sysperf.engine.verify import measuring
from sysperf.engine.verify.measuring import Measured, RunFailed
from sysperf.host import files, redact
from sysperf.host.commands import sysperf_command
from sysperf.launch.profile import Profile, text
from sysperf.model.comparison import Comparison, Conditions, Metric, Variant
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.record import JsonObject, Record, convert
from sysperf.model.text import neutral
from sysperf.model.tuning import Choice, State, TuneRun, Tuning
from sysperf.verify import noise
from sysperf.verify.run import Meanwhile, ticking
from sysperf.verify.search.plan import MIN_RUNS, WRAP, Proposal, Search
from sysperf.verify.search.store import Store
from sysperf.verify.stats import TOTAL_LEVEL

CONFIRMATIONS = "confirmations"
"""The name of how many there were, in the store."""
MIN_WORKERS_GAIN = 0.03
"""Other loader workers must be faster by so much: each costs memory and CPU time."""
MAX_DISTURBED_SHARE = 0.2
"""Once more runs than this were disturbed, disturbed ones count: that is how this machine is."""


class Progress(Record):
    """The state of a search, for who watches it."""

    phase: str
    done: int
    total: int
    last: TuneRun | None = None
    """None: the first runs."""
    running_s: float | None = None
    """For how long a run has been going on; None: it is over."""
    best: str = ""
    ratio: float | None = None
    """The speed of the best so far as a multiple of plain's, as the model has it."""


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
        if self.known:
            self.plan = cut(plan, self.known)
        self.earlier_s = sum(run.wall_s for run in self.runs)
        self.began = time.monotonic()
        self.end = self.began + plan.budget_s - self.earlier_s

    # ------------------------------------------------------------------ the phases

    def pilot(self) -> None:
        """Run the plain program twice, for several factors a wrapped one, too: then caches are warm, and a run's time is known."""
        if self.known:
            return
        search = Search(tuple(len(factor.levels) for factor in self.plan.factors), 0, 0, higher_is_better=True, use_tpe=False)
        first = self._piloted(search.plain, first_metric(self.plan))
        self.plan = msgspec.structs.replace(self.plan, metric=first.bounding(first_metric(self.plan)))
        measured = [first]
        try:
            measured += [self._piloted(search.wrapped, self.plan.metric)] if len(self.plan.factors) > 1 else []
        except RunFailed as error:  # one start of many, which the race then leaves out
            failed = TuneRun(len(self.runs), "pilot", search.wrapped, failed=neutral(str(error), 300))
            self.runs.append(failed)
            self.store.add(failed)
        measured.append(self._piloted(search.plain, self.plan.metric))
        self.known = self._with_workers(pilot_of(self.plan, measured, self.end - time.monotonic()))
        self.store.keep("pilot", self.known)
        self.plan = cut(self.plan, self.known)

    def _piloted(self, choice: Choice, metric: Metric) -> Measured:
        limit_s = min(self.plan.limit_s, max(0.01, self.end - time.monotonic()))
        try:
            return measuring.measure(self._variant(choice), metric, limit_s, meanwhile=self._ticking("the first runs"))
        except RunFailed:
            if time.monotonic() < self.end:
                raise
            budget = f"{self.plan.budget_s / 60:.3g} min: there is time for no search"
            raise UsageError(
                f"the first runs take {budget}", "more --minutes, or shorter runs: --steps optimizer --run-seconds 10"
            ) from None

    def _ticking(self, phase: str) -> Meanwhile:
        """Tell each second how a run stands."""
        last = self.runs[-1] if self.runs else None
        done, total = len(self.runs), self._total() if self.known else PILOT_RUNS
        return ticking(lambda seconds: self.observe(Progress(phase, done, total, last, running_s=seconds)))

    def _with_workers(self, pilot: Pilot) -> Pilot:
        """The pilot with numbers of loader workers to try, from a run with one and a run with one for each CPU."""
        place = next((place for place, factor in enumerate(self.plan.factors[: pilot.factors]) if factor.name == space.LOADER), None)
        if place is None:
            return pilot
        numbers = [level.profile.get("loader_workers", 0) for level in self.plan.factors[place].levels]
        cpus = numbers[-1] // 2  # the most that are tried are two for each
        starts = [tuple(numbers.index(number) * (at == place) for at in range(len(self.plan.factors))) for number in (1, cpus)]
        try:
            one, many = (measuring.measure(self._variant(start), pilot.metric, self.plan.limit_s, pilot.warm_up_steps) for start in starts)
        except RunFailed:  # the plan's own numbers are tried, and this one is told of there
            return pilot
        speedup = many.value / one.value if pilot.metric.higher_is_better else one.value / many.value
        basis = f"Little's law: with {cpus} loader workers it is {speedup:.2f} times as fast as with one; numbers near that are tried"
        return msgspec.structs.replace(pilot, workers=space.feeding(speedup, cpus), basis=basis)

    def search(self) -> None:
        """Run what the search proposes until it is over; it has no time left for a run when the shortest confirmation needs all of it."""
        self.began = time.monotonic()
        while (proposal := self._search().proposal()) and self._runs_left() > SHORTEST_CONFIRMATION:
            run = self._run(proposal)
            self.runs.append(run)
            self.store.add(run)
            self.observe(self._progress(run))

    def confirmed(self) -> Tuning:
        """Compare the winner with plain in fresh pairs, and say what comes of it."""
        winner = self._winner()
        if winner is None:
            return self._without_winner()
        plan = verify.Plan(
            a=self._variant(self._plain()),
            b=msgspec.structs.replace(self._variant(winner), name="tuned"),
            metric=self._pilot().metric,
            margin=self.plan.margin,
            max_pairs=confirming_pairs(self._search().model(), winner),
            budget_s=max(self._pilot().run_s, self.end - time.monotonic()),
            one_look=True,  # what was measured before chose the winner: none of these pairs did, and all of them tell how much it gains
            limit_s=self.plan.limit_s,
            seed=self.plan.seed,
            keep_disturbed=self.plan.keep_disturbed,
        )
        note = f"confirm {winner}"  # by choice: all of them are started in the same way, and read the same file
        state = self._confirmation_to_go_on_with(self.store.kept(note, verify.State), plan)
        if state is None:
            plan = msgspec.structs.replace(plan, one_look_level=self._next_level())

        def keep(now: verify.State) -> None:
            self.store.keep(note, now)
            self.observe(now)

        comparison = verify.verify(plan, keep, state)
        states: dict[str, State] = {"faster": "confirmed", "unclear": "unconfirmed"}
        reason = comparison.reason if comparison.verdict in states else "the best of the race is no faster than plain in fresh pairs"
        return self.result(states.get(comparison.verdict, "nothing"), reason, winner, comparison)

    def _without_winner(self) -> Tuning:
        """Plain is the best of the race, or there was no time for one."""
        search = self._search()
        if search.observations() and search.has_raced():
            return self.result("nothing", "plain was the fastest of the race")
        return self.result("unconfirmed", "the time was over before the race of the best; --resume with more --minutes goes on")

    def _confirmation_to_go_on_with(self, saved: verify.State | None, plan: verify.Plan) -> verify.State | None:
        """The pairs that are kept; None: it begins anew, since its one look told nothing, and there is time for another."""
        if saved is None or not saved.plan.one_look:
            return None
        is_unclear = saved.study().progress().verdict == "unclear"
        has_time = self.end - time.monotonic() > MIN_CONFIRMING_PAIRS * saved.pair_s()
        kept = msgspec.structs.replace(plan, one_look_level=saved.plan.one_look_level)
        return None if is_unclear and has_time else msgspec.structs.replace(saved, plan=kept)

    def _next_level(self) -> float:
        """The level of a confirmation that begins: half of that of the one before, so that all together err as often as two do."""
        earlier = self._confirmations()
        self.store.keep(CONFIRMATIONS, earlier + 1)
        return TOTAL_LEVEL * 0.5**earlier

    def _confirmations(self) -> int:
        return self.store.kept(CONFIRMATIONS, int) or 0

    def result(self, state: State, reason: str, winner: Choice | None = None, comparison: Comparison | None = None) -> Tuning:
        """Return what is known so far."""
        search = self._search() if self.known else None
        plan = self.plan
        return Tuning(
            state=state,
            reason="" if state == "confirmed" else reason,
            argv=redact.own_command(plan.argv),
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
            notes=(
                *([self.known.basis] if self.known and self.known.basis else []),
                *start_notes(search),
                *confirmation_notes(self._confirmations()),
                *noise.constant([run.other_cpus for run in self.runs], [run.gpu_others for run in self.runs]),
            ),
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
            gpu_others=done.conditions.gpu_others if done.conditions else None,
        )

    def _measured(self, choice: Choice, limit_s: float) -> Measured:
        pilot, instances = self._pilot(), int(self._fields(choice).get("instances", 1))
        meanwhile = self._ticking("searching")
        done = measuring.measure(self._variant(choice), pilot.metric, limit_s, pilot.warm_up_steps, instances, meanwhile)
        if pilot.steps and instances == 1 and len(done.step_times_s) != pilot.steps:
            raise RunFailed(f"it made {len(done.step_times_s)} steps instead of {pilot.steps}", "a setting must not change the work")
        return done

    def _disturbance(self, done: Measured) -> str:
        disturbed = sum(1 for run in self.runs if run.disturbed)
        if self.plan.keep_disturbed or disturbed + 1 > MAX_DISTURBED_SHARE * max(len(self.runs), MIN_RUNS):
            return ""
        met = [Conditions(gpu_others=run.gpu_others) for run in self.runs]
        history = [noise.Load(run.other_cpus, 0.0, run.wall_s) for run in self.runs if run.other_cpus is not None]
        return noise.disturbance(done.load, history) or noise.others_on_gpus(done.conditions, met)

    def _variant(self, choice: Choice) -> Variant:
        """How a choice is started: plain is the command itself, everything else goes through `sysperf wrap`."""
        if choice == self._plain():
            return Variant("plain", self.plan.argv)
        wrap = (*sysperf_command(), "wrap", "--quiet")
        if WRAP in choice:
            return Variant(WRAPPED, (*wrap, "--", *self.plan.argv))
        try:
            files.replace(self.scratch, text(convert(self._fields(choice), Profile)).encode())
        except OSError as error:
            raise SysperfError(f"{self.scratch}: {error.strerror or error}", "make room on that disk, then --resume") from None
        return Variant(self._words(choice), (*wrap, "--profile", self.scratch, "--", *self.plan.argv))

    def _fields(self, choice: Choice) -> JsonObject:
        return {} if WRAP in choice else space.profile_of(self.plan.factors, choice)

    # ------------------------------------------------------------------ the state

    def _pilot(self) -> Pilot:
        assert self.known is not None  # noqa: S101 - the pilot comes before every other phase
        return self.known

    def _plain(self) -> Choice:
        return (0,) * len(self.plan.factors)

    def _runs_left(self) -> float:
        """How many more runs there is time for, if they take as long as those so far; one that does not count costs its time, too."""
        counted = sum(1 for run in self.runs if not run.disturbed)
        spent_s = PILOT_RUNS * self._pilot().run_s + self.earlier_s + time.monotonic() - self.began
        return (self.end - time.monotonic()) * (PILOT_RUNS + counted) / max(spent_s, 0.01)

    def _total(self) -> int:
        """How many runs the search has in all: planned anew before each, since runs take longer or shorter than the first ones."""
        counted = sum(1 for run in self.runs if not run.disturbed)
        return min(self.plan.max_runs, most_runs(self.plan.factors), searching(counted + self._runs_left()))

    def _search(self) -> Search:
        pilot = self._pilot()
        sizes = tuple(len(factor.levels) for factor in self.plan.factors)
        worth = MIN_WORKERS_GAIN if [factor.name for factor in self.plan.factors] == [space.LOADER] else 0.0
        return Search(sizes, self._total(), self.plan.seed, pilot.metric.higher_is_better, pilot.use_tpe, self.runs, worth)

    def _winner(self) -> Choice | None:
        best = self._search().winner() if self._search().observations() else self._plain()
        return None if best == self._plain() else best

    def _progress(self, run: TuneRun) -> Progress:
        search = self._search()
        progress = Progress(phase=run.phase, done=len(self.runs), total=search.total, last=run)
        if not search.observations():
            return progress
        model = search.model()
        best = model.sparing()
        return msgspec.structs.replace(progress, best=self._words(best), ratio=math.exp(model.predicted(best)))

    def _words(self, choice: Choice) -> str:
        return words(self.plan.factors, choice)
