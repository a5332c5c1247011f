"""What the runs of a ladder say: each rung's gain with its interval, mechanism, prediction and losses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from sysperf import __version__
from sysperf.engine import reading
from sysperf.engine.bench import traces
from sysperf.engine.bench.climb import CLIMB_SHARE, MIN_ROUNDS, ladder_of, metric
from sysperf.engine.bench.ladder import WHOLE, Compared, Configuration, Ladder
from sysperf.engine.bench.state import CLIMB, ENDS, TOP, Shot, State, load_of, name_of
from sysperf.engine.bench.traces import Traced
from sysperf.engine.verify import Plan, conclude
from sysperf.engine.verify import State as Study
from sysperf.model import ladder as model
from sysperf.model.comparison import Arm, Comparison, Run, Variant
from sysperf.plugin import Rung
from sysperf.verify import noise, probe, stats

TERA = 1e12
MARGIN = 0.01


def concluded(state: State) -> model.Ladder:
    """Return what is known so far."""
    ladder = ladder_of(state)
    seen = _seen(state, ladder)
    rungs = tuple(_rung(rung, number, ladder, seen) for number, rung in enumerate(ladder.rungs, 1))
    predicted = [rung.predicted for rung in rungs if rung.predicted is not None and rung.predicted.measured is not None]
    bottom = next((traced for traced in state.traced if not traced.configuration), None)
    alone = seen._replace(spread=None)  # the total has pairs enough for a spread of its own
    return model.Ladder(
        sysperf=__version__,
        taken_at=reading.now(),
        took_s=state.spent_s,
        workload=state.request.workload,
        machine=state.machine,
        device=state.about.get("device", ""),
        torch=state.about.get("torch", ""),
        unit=state.about.get("unit", ""),
        size=state.about.get("size", ""),
        batch=int(state.about.get("batch") or 0) or None,
        max_steps=state.max_steps,
        seed=state.request.seed,
        rounds=max((shot.round + 1 for shot in state.shots if shot.part == CLIMB), default=0),
        total=_compared(Compared(WHOLE, "added", (), ladder.top), (CLIMB, ENDS), alone) if ladder.top else None,
        rungs=rungs,
        peak_tflops={dtype: max(values) / TERA for dtype, values in state.peaks.items()},
        bottom_share_of_peak=_share_of_peak(state, (), _peak(state)),
        bottom_units_per_s=_units_per_s(state, ()),
        bottom_trace=bottom.path if bottom else "",
        predicted_error=median(abs(one.error or 0.0) for one in predicted) if predicted else None,
        predicted_held=(sum(bool(one.holds) for one in predicted), len(predicted)) if predicted else None,
        predicted_agree=sum(one.agrees for one in predicted) if predicted else None,
        notes=tuple(_notes(state)),
        interrupted=state.ended,
    )


def _notes(state: State) -> Iterator[str]:
    for name, why in state.failed.items():
        yield f"{name} does not run: {why}"
    for dtype, why in state.unmeasured.items():
        yield f"matrix products in {dtype} were not measured: {why}"
    for traced in state.traced:
        if traced.problem:
            yield f"no trace of {name_of(traced.configuration)}: {traced.problem}"
    rounds = {one: len({shot.round for shot in state.shots if (shot.part, shot.configuration) == (CLIMB, one)}) for one in _climbed(state)}
    few = [one for one, times in rounds.items() if times < MIN_ROUNDS and name_of(one) not in state.failed]
    if few and len(few) < len(rounds):
        round_s = sum(median([shot.wall_s for shot in state.shots if shot.configuration == one] or [0.0]) for one in rounds)
        before_s = state.spent_s - sum(shot.wall_s for shot in state.shots)
        minutes = math.ceil((before_s + MIN_ROUNDS * round_s) / CLIMB_SHARE / 60)
        yield f"{len(few)} of {len(rounds)} configurations had no time for {MIN_ROUNDS} runs; --resume --minutes {minutes} runs them"
    yield from noise.constant([shot.other_cpus for shot in state.shots], [])


def _climbed(state: State) -> list[Configuration]:
    """Return the configurations of the climb."""
    return list(dict.fromkeys(one for pair in ladder_of(state).climb() for one in pair[2:]))


class _Seen(NamedTuple):
    """All runs, and what they say of each other."""

    state: State
    disturbed: dict[int, str]
    """Why a run does not count, by its place among all: others took more CPUs than usual. Blind to what ran."""
    spread: stats.Spread | None = None
    """Of the pairs of a comparison, as all comparisons together tell it."""


def _seen(state: State, ladder: Ladder) -> _Seen:
    loads = [load_of(shot) for shot in state.shots]
    others = [[load for place, load in enumerate(loads) if load is not None and place != number] for number in range(len(loads))]
    disturbed = {number: why for number, load in enumerate(loads) if (why := noise.disturbance(load, others[number]))}
    seen = _Seen(state, disturbed)
    parted = [(pair, (CLIMB,)) for pair in ladder.climb()] + [(pair, (TOP,)) for pair in ladder.from_top()]
    studies = [study for pair, parts in parted if (study := _study(pair, parts, seen))]
    return seen._replace(spread=stats.spread_of([study.study().pairs for study in studies]))


def _rung(rung: Rung, place: int, ladder: Ladder, seen: _Seen) -> model.RungResult:
    state = seen.state
    pairs = [pair for pair in (*ladder.climb(), *ladder.from_top()) if pair.rung == rung.id]
    skipped = ladder.skipped.get(rung.id) or next((why for pair in pairs if (why := state.failed.get(name_of(pair.with_)))), "")
    known = model.RungResult(
        id=rung.id, title=rung.title, place=place, role=rung.role, rules=tuple(rung.rules), seeds=tuple(rung.seeds), outcome="skipped",
        skipped=skipped or ("" if pairs else "there is nothing to compare it with"),
    )  # fmt: skip
    if known.skipped:
        return known
    first, trials = pairs[0], tuple(_trials(pairs, seen))
    before, after = (_traced(state, one) for one in first[2:])
    signs = traces.signs_of(rung.signs, before, after)
    parity = _parity(state, first, rung.loss_bound)
    return msgspec.structs.replace(
        known,
        outcome=_outcome(trials, traces.mechanism(signs), parity),
        trials=trials,
        mechanism=traces.mechanism(signs),
        signs=signs,
        predicted=_predicted(rung, before, trials),
        parity=parity,
        share_of_peak=_share_of_peak(state, first.with_, _peak(state)),
        units_per_s=_units_per_s(state, first.with_),
        trace=after.path if after else "",
    )


def _trials(pairs: Sequence[Compared], seen: _Seen) -> Iterator[model.Trial]:
    for pair in pairs:
        part = CLIMB if pair.kind in ("added", "at the bottom") else TOP
        comparison = _compared(pair, (part,), seen)
        if comparison is not None:
            yield model.Trial(kind=pair.kind, comparison=comparison)


def _compared(pair: Compared, parts: Sequence[str], seen: _Seen) -> Comparison | None:
    """What the study of two configurations says; None where no round has both."""
    study = _study(pair, parts, seen)
    return conclude(study.at_the_end(), spread=seen.spread) if study else None


def _study(pair: Compared, parts: Sequence[str], seen: _Seen) -> Study | None:
    """The study of two configurations over all rounds, looked at once; None where none has both."""
    shots = seen.state.shots
    places = list(_pairs(pair, parts, seen))
    if not places:
        return None
    warm_up = probe.warm_up_steps(*(probe.Steps(shots[place].step_times_s) for place in places[0]))
    runs: list[Run] = []
    for number, both in enumerate(places, 1):
        made = [_run(shots[place], number, arm, warm_up, seen.disturbed.get(place, "")) for place, arm in zip(both, ARMS, strict=True)]
        if None not in made:
            runs += [run for run in made if run is not None]
    plan = Plan(
        a=Variant(name_of(pair.without), ()), b=Variant(name_of(pair.with_), ()), metric=metric(seen.state.request.workload), margin=MARGIN,
        max_pairs=max(2, len(places)), one_look=True, seed=seen.state.request.seed,
    )  # fmt: skip
    return Study(plan=plan, runs=tuple(runs), warm_up_steps=warm_up) if runs else None


ARMS: tuple[Arm, Arm] = ("a", "b")


def _pairs(pair: Compared, parts: Sequence[str], seen: _Seen) -> Iterator[tuple[int, int]]:
    """Pair, in each round, the run with the rung and the nearest one without it: their places among all runs."""
    of_parts = [(number, shot) for number, shot in enumerate(seen.state.shots) if shot.part in parts]
    for _, of_round in itertools.groupby(of_parts, key=lambda one: (one[1].part, one[1].round)):
        some = list(of_round)
        without, with_ = (_best([number for number, shot in some if shot.configuration == one], seen.disturbed) for one in pair[2:])
        if without and with_:
            yield min(((a, b) for a in without for b in with_), key=lambda both: abs(both[0] - both[1]))


def _best(numbers: list[int], disturbed: Mapping[int, str]) -> list[int]:
    """Choose runs that nobody disturbed, where there are any: a disturbed one was made again."""
    return [number for number in numbers if number not in disturbed] or numbers


def _run(shot: Shot, pair: int, arm: Arm, warm_up: int, disturbed: str) -> Run | None:
    value = probe.steps_per_s(probe.Steps(shot.step_times_s), warm_up)
    if value is None:
        return None
    return Run(
        pair, arm, value, shot.wall_s, shot.cpu_s, shot.other_cpus, len(shot.step_times_s), disturbed=disturbed, loss=shot.loss,
        conditions=shot.conditions, page_faults=shot.page_faults,
    )  # fmt: skip


def _outcome(trials: Sequence[model.Trial], mechanism: model.Mechanism, parity: model.Parity | None) -> model.Finding:
    """What is said of a rung: by what it does where it is added, at the bottom or on the rungs below it."""
    if not trials:
        return "unclear here"
    verdict = trials[0].comparison.verdict
    if parity is not None and not parity.holds:
        return "losses differ"
    if verdict == "faster":
        gains: dict[model.Mechanism, model.Finding] = {
            "seen": "gain with its mechanism", "not seen": "gain without its mechanism", "unknown": "gain",
        }  # fmt: skip
        return gains[mechanism]
    if verdict == "slower":
        return "harms here"
    return "no gain here" if verdict == "same" else "unclear here"


def _predicted(rung: Rung, before: Traced | None, trials: Sequence[model.Trial]) -> model.Predicted | None:
    """What the trace without the rung says, beside the measured part of the step that the rung saved."""
    if before is None or rung.predicted_by not in before.predictions:
        return None
    low, high = before.predictions[rung.predicted_by]
    comparison = trials[0].comparison if trials else None
    ratios = (comparison.ratio, comparison.low, comparison.high) if comparison else (None, None, None)
    return model.Predicted(rung.predicted_by, low, high, *(None if ratio is None else 100 * (1 - 1 / ratio) for ratio in ratios))


ROUNDING = 1e-6
"""The part of a float32 loss that additions in another order move, which threads and compiled code do from run to run."""


def _parity(state: State, pair: Compared, bound: float) -> model.Parity | None:
    """The losses of the first steps, the same in every run of a configuration but for the order of additions."""
    losses = [next((shot.losses for shot in state.shots if shot.configuration == one and shot.losses), ()) for one in pair[2:]]
    steps = min(map(len, losses))
    if not steps:
        return None
    without, with_ = (fmean(some[:steps]) for some in losses)
    equal = losses[0][:steps] == losses[1][:steps]
    apart = abs(with_ - without) / max(abs(without), 1e-12)
    return model.Parity(steps, without, with_, bound, equal, equal or (math.isfinite(apart) and apart <= max(bound, ROUNDING)))


def _traced(state: State, configuration: Configuration) -> Traced | None:
    return next((traced for traced in state.traced if traced.configuration == configuration and not traced.problem), None)


def _rate(state: State, configuration: Configuration) -> float | None:
    """Steps a second, the median of its runs in the climb and at its ends."""
    some = [shot for shot in state.shots if shot.configuration == configuration and shot.part != TOP]
    rates = [rate for shot in some if (rate := probe.steps_per_s(probe.Steps(shot.step_times_s), len(shot.step_times_s) // 3)) is not None]
    return median(rates) if rates else None


def _units_per_s(state: State, configuration: Configuration) -> float | None:
    rate = _rate(state, configuration)
    units = next((shot.units_per_step for shot in state.shots if shot.configuration == configuration), None)
    return None if rate is None or units is None else rate * units


def _peak(state: State) -> float | None:
    """The highest matmul peak of all types and rounds, in operations a second: others that take CPUs can only lower it."""
    return max(itertools.chain.from_iterable(state.peaks.values()), default=None)


def _share_of_peak(state: State, configuration: Configuration, peak: float | None) -> float | None:
    rate = _rate(state, configuration)
    flop = next((shot.flop_per_step for shot in state.shots if shot.configuration == configuration), None)
    return None if None in (rate, flop, peak) else (rate or 0.0) * (flop or 0.0) / state.request.ranks / (peak or 1.0)
