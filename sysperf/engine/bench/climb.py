"""The verb `bench trainer`: every rung of a ladder with and without, in rounds in which each configuration runs once.

Neighbours of the ladder run one after the other, in either direction: the same run is the later one of one rung and the earlier one of
the next, which halves the time. What a rung gains is then the study of `verify` over the rounds, looked at once, at the end.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from sysperf import paths
from sysperf.engine.bench import traces
from sysperf.engine.bench.ladder import WHOLE, Compared, Configuration, Ladder, affordable, sequence
from sysperf.engine.bench.state import CLIMB, ENDS, PARTS, TOP, Observe, Progress, Request, Shot, State, load_of, name_of
from sysperf.engine.bench.trainer import Trainer, read_record
from sysperf.engine.bench.workers import Worker
from sysperf.engine.verify import measuring, resuming
from sysperf.engine.verify.measuring import RunFailed
from sysperf.host import redact
from sysperf.host.scratch import Scratch
from sysperf.model.comparison import Metric
from sysperf.model.record import Json
from sysperf.model.text import neutral
from sysperf.verify import noise

CLIMB_SHARE, ENDS_SHARE = 0.6, 0.2
"""The parts of the time for the climb, and for no rung beside all of them; the rest leaves rungs out of the whole ladder."""
TRACE_SHARE = 0.25
"""The part of the time after which no further trace is taken."""
MIN_ROUNDS = 3
"""Of each part, where there is time: two pairs make an interval that says little."""
MAX_ROUNDS = 40
RUN_S, MIN_STEPS, MAX_STEPS = 2.0, 14, 400
"""A run makes as many steps as take so long at the bottom of the ladder."""
PARITY_STEPS = 20
PEAK_DTYPES = ("float32", "bfloat16")
PEAK_S, PEAK_LIMIT_S = 0.3, 120.0
LIMIT_S = 1_800.0
"""Of a run, while there is none to compare it with."""
MAX_REPEATS = 2
"""Times that a disturbed run is made again."""
TOP_EVERY = 1.5
"""Runs of a round for each rung that is left out, those of the whole ladder between them counted in."""


def metric(name: str) -> Metric:
    """Return what is measured of a workload."""
    return Metric(f"steps per second of the reference trainer, {name}", "steps/s", True, "", "optimizer")


def begun(request: Request) -> State:
    """Return a ladder on which nothing ran yet. Raises UsageError, SysperfError."""
    return State(request=request, machine=machine(), lacks=Trainer(request).lacks())


def machine() -> dict[str, str]:
    """Return what decides whether runs can be compared: kernel, CPUs, driver, and variables that explain performance."""
    variables = {f"env.{name}": neutral(value, 200) for name, value in sorted(os.environ.items()) if redact.keeps(name)}
    return {**resuming.machine(), **variables}


def climb(state: State, observe: Observe = lambda _: None) -> State:
    """Climb until the time is over; Ctrl-C ends it with what is there. Raises SysperfError where no configuration runs."""
    climber = _Climber(state, observe)
    try:
        climber.climb()
    except KeyboardInterrupt:
        climber.keep(ended="interrupted")
    finally:
        climber.close()
    return climber.state


def ladder_of(state: State) -> Ladder:
    """Return which configurations are compared."""
    return Ladder(Trainer(state.request).rungs, state.lacks, state.request.rungs)


class Place(NamedTuple):
    """Place of a run in its part and round."""

    part: str
    round: int
    number: int
    """In the sequence of its round."""
    of: int


class _LacksRung(Exception):
    """A rung that does not run here: the ladder goes on without it."""


class _Climber:
    """Runs configurations, and keeps what they gave."""

    def __init__(self, state: State, observe: Observe) -> None:
        self.state, self._observe = msgspec.structs.replace(state, ended=""), observe
        self.trainer = Trainer(state.request)
        self.ladder = Ladder(self.trainer.rungs, state.lacks, state.request.rungs)
        self._began, self._spent_before_s = time.monotonic(), state.spent_s
        self._folder = Scratch("bench", paths.temporary_home())
        self._worker = Worker(self.trainer.python)

    def close(self) -> None:
        self._worker.close()
        self._folder.cleanup()

    def climb(self) -> None:
        """Find out how long a run is, take traces, run rounds of the climb, of its two ends alone, then without each rung."""
        if not self.state.max_steps:
            self._calibrate()
        self._take_traces()
        budget_s = self.state.request.minutes * 60
        left_s = budget_s - self._spent_s()
        climbing_until_s = self._spent_s() + left_s * CLIMB_SHARE
        while not self._is_climbed(climbing_until_s, left_s * ENDS_SHARE, budget_s):
            self.ladder = ladder_of(self.state)

    def _is_climbed(self, climbing_until_s: float, ends_s: float, budget_s: float) -> bool:
        """Run all rounds; False where a rung turned out not to run here, so that the ladder is another one."""
        several = len(self.ladder.top) > 1
        try:
            self._rounds(CLIMB, self.ladder.climb(), climbing_until_s, budget_s - ends_s * several)
            if several and self._spent_s() < budget_s:
                ends_until_s = min(budget_s, self._spent_s() + ends_s)
                self._rounds(ENDS, [Compared(WHOLE, "added", (), self.ladder.top)], ends_until_s, ends_until_s)
            self._rounds(TOP, self._worth_leaving_out(), budget_s, budget_s)
        except _LacksRung:
            return False
        return True

    def keep(self, **changed: Json) -> None:
        """Keep what is new."""
        self.state = msgspec.structs.replace(self.state, spent_s=self._spent_s(), **changed)

    def _spent_s(self) -> float:
        return self._spent_before_s + time.monotonic() - self._began

    def _say(self, what: str) -> None:
        self._observe(Progress(what, self.state, max(0.0, self.state.request.minutes * 60 - self._spent_s())))

    def _calibrate(self) -> None:
        """Run the bottom of the ladder once, for its step's time: data are prepared and caches are warm then, too."""
        self._say("the first run prepares the data")
        steps = self.state.request.steps or MIN_STEPS
        shot = self._shot((), Place("first", 0, 0, 1), steps)
        if not self.state.request.steps:
            durations = [after - before for before, after in itertools.pairwise(shot.step_times_s)]
            steps = max(MIN_STEPS, min(MAX_STEPS, round(RUN_S / max(1e-6, statistics.median(durations or [RUN_S])))))
        self.keep(max_steps=steps)

    def _take_traces(self) -> None:
        """Take a trace of each configuration of the climb, where there is none yet."""
        if self.state.request.traces_with == "none":
            return
        with_signs = {rung.id for rung in self.ladder.rungs if rung.signs or rung.predicted_by}
        wanted = [one for pair in self.ladder.climb() if pair.rung in with_signs for one in (pair.without, pair.with_)]
        there = {traced.configuration for traced in self.state.traced}
        for configuration in dict.fromkeys(one for one in wanted if one not in there):
            if self._spent_s() > self.state.request.minutes * 60 * TRACE_SHARE:
                return
            self._say(f"trace of {name_of(configuration)}")
            traced = traces.take(self.trainer, configuration, len(self.state.traced))
            self.keep(traced=(*self.state.traced, traced))
            self._say(f"trace of {name_of(configuration)}: {traced.problem or 'taken'}")

    def _worth_leaving_out(self) -> list[Compared]:
        """The comparisons at the top that there is time for: those first whose rung changed most when it was added."""
        if not any(shot.part == CLIMB and shot.round for shot in self.state.shots):
            return []  # the climb itself has no second round yet
        compared = self.ladder.from_top()
        changed = {pair.rung: abs(gain) for pair in self.ladder.climb() if (gain := self._log_gain(pair)) is not None}
        compared.sort(key=lambda pair: -changed.get(pair.rung, 0.0))
        run_s = statistics.median([shot.wall_s for shot in self.state.shots if shot.configuration == self.ladder.top] or [0.0])
        left_s = self.state.request.minutes * 60 - self._spent_s()
        begun = {shot.configuration for shot in self.state.shots if shot.part == TOP} - {self.ladder.top}
        room = int(left_s / run_s / MIN_ROUNDS / TOP_EVERY) if run_s else 0
        return [pair for number, pair in enumerate(compared) if number < room or begun.intersection(pair[2:])]

    def _log_gain(self, pair: Compared) -> float | None:
        """A first look at what a rung changed, to order what comes: by the fastest steps."""
        speeds = [[_fastest(shot) for shot in self.state.shots if shot.configuration == one and shot.step_times_s] for one in pair[2:]]
        return math.log(min(speeds[0]) / min(speeds[1])) if all(speeds) else None

    def _rounds(self, part: str, compared: Sequence[Compared], until_s: float, budget_s: float) -> None:
        """Run rounds until the time is over; a round that would end too late is not begun, where there are enough."""
        if not compared:
            return
        done = max((shot.round for shot in self.state.shots if shot.part == part), default=-1)
        goes_on = (part != CLIMB or done == 0) and done >= 0 and not self._is_whole(part, done, compared)
        number = done if goes_on else done + 1
        short = False  # of time: then nothing is left out of the whole ladder, and the climb has all that is left
        while number < MAX_ROUNDS:
            left_s = (budget_s if number < MIN_ROUNDS or short else until_s) - self._spent_s()
            chosen = compared
            if part == CLIMB and number > 0:
                chosen = affordable(compared, self.ladder.top, self._cost_s(compared), left_s / max(1, MIN_ROUNDS - number))
                short |= number < MIN_ROUNDS and len(chosen) <= len(compared)
            last_s = 0.0 if part == CLIMB else self._round_s(part)
            if number > 0 and (last_s > left_s or not chosen):
                return
            self._measure_peaks()
            drawn = random.Random(f"{self.state.request.seed}/{part}/{number}")  # noqa: S311 - an order, no secret
            order = sequence(chosen, self.ladder.top if part == TOP else None, drawn)
            if part == CLIMB and number == 0:  # from the bottom up: the first configuration that does not run names the rung
                order.sort(key=len)
            for place, configuration in enumerate(order):
                if name_of(configuration) not in self.state.failed and not self._has(part, number, place, configuration):
                    self._run_undisturbed(configuration, Place(part, number, place, len(order)), budget_s)
            number += 1

    def _cost_s(self, compared: Sequence[Compared]) -> dict[Configuration, float]:
        """How long a run of each configuration takes; infinite where none was made."""
        some = {one for pair in compared for one in pair[2:]} | {(), self.ladder.top}
        walls = {one: [shot.wall_s for shot in self.state.shots if shot.configuration == one] for one in some}
        return {one: statistics.median(walls[one] or [math.inf]) for one in some}

    def _run_undisturbed(self, configuration: Configuration, place: Place, until_s: float) -> None:
        """Run a configuration, and again where others took its CPUs, as long as there is time."""
        for _ in range(1 + MAX_REPEATS):
            if not self._run(configuration, place) or self._spent_s() > until_s or not (why := self._disturbed()):
                return
            self._say(f"{why}: once more")

    def _run(self, configuration: Configuration, place: Place) -> bool:
        """Run a configuration once; False where it does not run."""
        name = name_of(configuration)
        self._say(f"round {place.round + 1} of {PARTS[place.part]}, {place.number + 1} of {place.of}: {name}")
        try:
            shot = self._shot(configuration, place, self.state.max_steps)
        except RunFailed as error:
            why = neutral(f"{error}: {error.hint}", 400)
            if not configuration:
                raise
            if place.part == CLIMB and not any(shot.configuration == configuration for shot in self.state.shots):
                self.keep(lacks={**self.state.lacks, configuration[-1]: f"it does not run here: {why}"})
                raise _LacksRung from None
            self.keep(failed={**self.state.failed, name: why})
            return False
        self.keep(shots=(*self.state.shots, shot))
        self._say(f"{name}: {shot.wall_s:.1f} s")
        return True

    def _disturbed(self) -> str:
        """Why the latest run was disturbed; "" where it was not."""
        *earlier, latest = (load_of(shot) for shot in self.state.shots)
        return noise.disturbance(latest, [load for load in earlier if load is not None])

    def _has(self, part: str, number: int, place: int, configuration: Configuration) -> bool:
        """Whether a run was made; in the climb each configuration runs once a round, wherever."""
        of_round = (shot for shot in self.state.shots if (shot.part, shot.round) == (part, number))
        return any(shot.configuration == configuration and (part == CLIMB or shot.place == place) for shot in of_round)

    def _is_whole(self, part: str, number: int, compared: Sequence[Compared]) -> bool:
        wanted = {one for pair in compared for one in (pair.without, pair.with_) if name_of(one) not in self.state.failed}
        return wanted <= {shot.configuration for shot in self.state.shots if (shot.part, shot.round) == (part, number)}

    def _round_s(self, part: str) -> float:
        """The time of the latest round of a part; 0 before."""
        rounds = {shot.round for shot in self.state.shots if shot.part == part}
        return sum(shot.wall_s for shot in self.state.shots if shot.part == part and shot.round == max(rounds)) if rounds else 0.0

    def _shot(self, configuration: Configuration, place: Place, steps: int) -> Shot:
        """Run a configuration once. Raises RunFailed."""
        path = f"{self._folder.name}/record.json"
        options = ("--max-steps", str(steps), "--seed", str(self.state.request.seed), "--no-progress", "--json", path)
        variant = self.trainer.variant(configuration, *options)
        earlier = [shot.wall_s for shot in self.state.shots]
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        done = measuring.measure(variant, metric(self.state.request.workload), measuring.limit_s(LIMIT_S, earlier))
        record = read_record(path)
        if not self.state.about:
            kept = ("device", "torch", "unit", "size", "batch")
            self.keep(about={name: neutral(str(record.get(name) or ""), 100) for name in kept})
        samples = (record.get("batch") or 0) * (record.get("ranks") or 1)
        return Shot(
            part=place.part, round=place.round, place=place.number, configuration=configuration, step_times_s=done.step_times_s,
            losses=tuple(float(loss) for loss in record.get("losses", ())[:PARITY_STEPS]), wall_s=done.wall_s, cpu_s=done.cpu_s,
            other_cpus=None if done.load is None else done.load.total, loss=done.loss, page_faults=done.page_faults,
            conditions=done.conditions, units_per_step=samples * (record.get("units_per_sample") or 0) or None,
            flop_per_step=samples * (record.get("flop_per_sample") or 0) or None,
        )  # fmt: skip

    def _measure_peaks(self) -> None:
        """Measure matrix products between two rounds: what the floating-point operations of a run are compared with."""
        for request in _peak_requests(self.state):
            self._say(f"matrix products in {request['dtype']}")
            answer = self._worker.ask(request, PEAK_LIMIT_S)
            dtype = request["dtype"]
            if answer.rate:
                self.keep(peaks={**self.state.peaks, dtype: (*self.state.peaks.get(dtype, ()), answer.rate)})
            else:
                self.keep(unmeasured={**self.state.unmeasured, dtype: answer.problem})


def _peak_requests(state: State) -> Iterator[dict[str, Json]]:
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    where = {"cpus": cpus} if state.about.get("device") == "cpu" else {"device": "cuda:0"}
    for dtype in PEAK_DTYPES:
        if dtype not in state.unmeasured:
            yield {"task": "matmul", "dtype": dtype, "seconds": PEAK_S, **where}


def _fastest(shot: Shot) -> float:
    """The seconds of the fastest step."""
    return min((after - before for before, after in itertools.pairwise(shot.step_times_s)), default=1e-9) or 1e-9
