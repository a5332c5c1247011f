"""A ladder: which configurations run, in which order, and what their runs say."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

import msgspec
import pytest

from sysperf import plugin
from sysperf.engine.bench import climb, results, traces
from sysperf.engine.bench.ladder import Ladder, affordable, sequence
from sysperf.engine.bench.state import CLIMB, ENDS, TOP, Request, Shot, State
from sysperf.engine.bench.traces import Traced
from sysperf.model.ladder import Ladder as Record
from sysperf.model.ladder import RungResult, Sign
from sysperf.model.record import from_json, to_json
from sysperf.report.experiments import ladder as report

ONLY = ("loader-workers", "fused-optimizer", "set-to-none")


class Advice(NamedTuple):
    """A rung of a small ladder."""

    id: str
    role: str = "ladder"
    requires: tuple[str, ...] = ()
    instead_of: str = ""
    title: str = ""
    rules: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    loss_bound: float = 0.0
    signs: tuple[tuple[str, str, str], ...] = ()
    predicted_by: str = ""


SMALL = (
    Advice("workers"), Advice("stay", requires=("workers",)), Advice("compile"), Advice("script", "doubtful", instead_of="compile"),
    Advice("affinity", "doubtful"), Advice("default", "doubtful", requires=("workers",)), Advice("other", "variant", instead_of="compile"),
)  # fmt: skip


def test_rungs_are_added_and_left_out() -> None:
    """What needs a rung goes with it; variants are tried where they are named."""
    ladder = Ladder(SMALL, {})

    assert ladder.steps == [(), ("workers",), ("workers", "stay"), ("workers", "stay", "compile")]
    assert ladder.without("workers") == ("compile",)
    assert ladder.without("stay") == ("workers", "compile")
    assert "other" in ladder.skipped
    assert "other" not in Ladder(SMALL, {}, ("other", "compile")).skipped


def test_what_is_doubtful_is_tried_at_the_bottom_and_at_the_top() -> None:
    """On what it needs, and in the place of its rival."""
    ladder = Ladder(SMALL, {})
    bottom = {pair.rung: (pair.without, pair.with_) for pair in ladder.climb() if pair.kind == "at the bottom"}
    top = {pair.rung: (pair.without, pair.with_) for pair in ladder.from_top() if pair.kind == "at the top"}

    assert bottom["affinity"] == ((), ("affinity",))
    assert bottom["default"] == (("workers",), ("workers", "default"))
    assert top["script"] == (ladder.top, ("workers", "stay", "script"))
    assert top["affinity"] == (ladder.top, (*ladder.top, "affinity"))


def test_what_a_machine_lacks_takes_what_needs_it_along() -> None:
    """With the reason of the one that lacks."""
    ladder = Ladder(SMALL, {"workers": "no shared memory"})

    assert ladder.skipped["stay"] == "it needs workers: no shared memory"
    assert ladder.top == ("compile",)


def test_named_rungs_bring_what_they_need() -> None:
    """And nothing else."""
    ladder = Ladder(SMALL, {}, ("stay",))

    assert ladder.top == ("workers", "stay")
    assert ladder.skipped["compile"] == "not asked for"


def test_neighbours_run_one_after_the_other() -> None:
    """The climb from either end; at the top the whole ladder again and again."""
    ladder = Ladder(SMALL, {})
    chains = {tuple(sequence(ladder.climb(), None, random.Random(seed))) for seed in range(8)}
    at_top = sequence(ladder.from_top(), ladder.top, random.Random(1))

    assert len(chains) == 2
    assert all(set(chain) == {one for pair in ladder.climb() for one in pair[2:]} for chain in chains)
    assert at_top[0] == at_top[-1] == ladder.top
    others = [place for place, one in enumerate(at_top) if one != ladder.top]
    assert all(ladder.top in (at_top[place - 1], at_top[place + 1]) for place in others)


def test_where_time_is_short_the_whole_ladder_comes_first() -> None:
    """Then the cheapest comparisons, whatever their runs gave; nothing where not even the whole ladder fits."""
    ladder = Ladder(SMALL, {})
    cost_s = {one: 20.0 if "compile" in one else 5.0 for pair in ladder.climb() for one in pair[2:]}

    some = affordable(ladder.climb(), ladder.top, cost_s, 36.0)
    everything = affordable(ladder.climb(), ladder.top, cost_s, 1000.0)

    assert some[0][2:] == ((), ladder.top)
    assert {"workers", "stay"} < {pair.rung for pair in some}
    assert sum(cost_s[one] for one in {one for pair in some for one in pair[2:]}) <= 36.0
    assert {pair.rung for pair in everything[1:]} == {pair.rung for pair in ladder.climb()}
    assert affordable(ladder.climb(), ladder.top, cost_s, 24.0) == []


@pytest.mark.parametrize(("apart", "holds"), [(3e-8, True), (1e-4, False)])
def test_rounding_is_no_other_loss(apart: float, holds: bool) -> None:
    """Compiled code and threads add in another order from run to run: a loss may move by rounding, and by no more."""
    losses = {BOTTOM: 2.0, ONE: 2.0 * (1 + apart), TWO: 2.0}
    shots = tuple(shot(one, number, 0.1, loss=loss) for number in range(4) for one, loss in losses.items())
    parity = rung(results.concluded(msgspec.structs.replace(state({}), shots=shots)), ONE[-1]).parity

    assert parity is not None
    assert (parity.equal, parity.holds) == (False, holds)


def test_the_trainers_own_ladder_can_be_climbed() -> None:
    """Every rung that it has is somewhere, or says why not."""
    for workload in ("text", "vision"):
        ladder = Ladder(plugin.trainer().rungs(workload), {})
        tried = {pair.rung for pair in (*ladder.climb(), *ladder.from_top())}

        assert tried | set(ladder.skipped) == {rung.id for rung in ladder.rungs}


# ---------------------------------------------------------------------- what runs say


def shot(configuration: tuple[str, ...], number: int, step_s: float, part: str = CLIMB, place: int = 0, loss: float = 2.0) -> Shot:
    """A run of twenty steps, with a little noise."""
    noise = random.Random(f"{configuration}{number}{part}{place}")
    times = [0.0]
    for _ in range(20):
        times.append(times[-1] + step_s * (1 + 0.02 * noise.random()))
    return Shot(
        part=part, round=number, place=place, configuration=configuration, step_times_s=tuple(times), losses=(loss, loss - 0.5), wall_s=times[-1],
        other_cpus=0.1, units_per_step=512.0, flop_per_step=1e9,
    )  # fmt: skip


def state(step_s: dict[tuple[str, ...], float], rounds: int = 4, **changed: object) -> State:
    shots = [shot(one, number, seconds) for number in range(rounds) for one, seconds in step_s.items()]
    made = State(
        request=Request(workload="text", rungs=ONLY, python="/usr/bin/python3"), about={"device": "cpu", "unit": "tokens"}, shots=tuple(shots),
        max_steps=20, peaks={"float32": (1e11, 2e11)},
    )  # fmt: skip
    return msgspec.structs.replace(made, **changed)


BOTTOM, ONE, TWO, THREE = (), ONLY[:1], ONLY[:2], ONLY


def rung(record: Record, name: str) -> RungResult:
    return next(one for one in record.rungs if one.id == name)


def test_each_rung_has_its_gain_and_the_ladder_its_total() -> None:
    """By the study of `verify`: an interval that holds the true ratio, faster, the same, slower."""
    record = results.concluded(state({BOTTOM: 0.4, ONE: 0.2, TWO: 0.2, THREE: 0.25}))

    assert record.total
    assert record.total.verdict == "faster"
    assert record.total.ratio == pytest.approx(0.4 / 0.25, rel=0.02)
    assert [rung(record, name).outcome for name in ONLY] == ["gain", "no gain here", "harms here"]
    first = rung(record, "loader-workers").trial("added")
    assert first
    assert first.low is not None
    assert first.high is not None
    assert first.low < 2.0 < first.high * 1.01
    assert rung(record, "bf16").outcome == "skipped"
    assert record.bottom_share_of_peak == pytest.approx(1e9 / 0.404 / 2e11, rel=0.02)


def test_the_total_counts_the_pairs_of_the_ends_too() -> None:
    """What the climb is too short for: its rounds and those of its ends alone are pairs of the same two starts."""
    ladder = state({BOTTOM: 0.4, ONE: 0.2, TWO: 0.2, THREE: 0.1}, rounds=2)
    ends = tuple(shot(one, number, seconds, ENDS) for number in range(6) for one, seconds in ((BOTTOM, 0.4), (THREE, 0.1)))
    short, record = results.concluded(ladder), results.concluded(msgspec.structs.replace(ladder, shots=(*ladder.shots, *ends)))

    assert short.total
    assert record.total
    assert (short.total.pairs, record.total.pairs) == (2, 8)
    assert [one.trials for one in record.rungs] == [one.trials for one in short.rungs]


def test_a_disturbed_run_counts_only_where_it_was_not_made_again() -> None:
    """Also the first of all, before which nobody knew what is usual here; whichever way it went, its speed is not looked at."""
    ladder = state({BOTTOM: 0.4, ONE: 0.2, TWO: 0.2, THREE: 0.1})
    first = msgspec.structs.replace(shot(BOTTOM, 0, 3.0), other_cpus=1.2)
    alone = results.concluded(msgspec.structs.replace(ladder, shots=(first, *ladder.shots[1:])))
    again = results.concluded(msgspec.structs.replace(ladder, shots=(first, *ladder.shots)))

    gains = [rung(record, "loader-workers").trial("added") for record in (alone, again)]
    assert [(gain.pairs, gain.dropped_pairs) for gain in gains if gain] == [(3, 1), (4, 0)]
    assert gains[1]
    assert gains[1].ratio == pytest.approx(2.0, rel=0.02)


def test_a_disturbed_run_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as others take its CPUs, at most twice, and not beyond its time; an undisturbed one is made once."""
    loads = iter((0.1, 0.1, 0.1, 0.1, 1.5, 0.1, 1.5, 1.5, 1.5, 1.5))
    climber = climb._Climber(state({}), lambda _: None)

    def made(configuration: tuple[str, ...], place: climb.Place, _steps: int) -> Shot:
        return msgspec.structs.replace(shot(configuration, place.round, 0.1, place=place.number), other_cpus=next(loads))

    monkeypatch.setattr(climber, "_shot", made)
    runs = []
    for number, until_s in enumerate([math.inf] * 6 + [0.0]):
        before = len(climber.state.shots)
        climber._run_undisturbed(BOTTOM, climb.Place(CLIMB, number, 0, 1), until_s)
        runs.append(len(climber.state.shots) - before)
    climber.close()

    assert runs == [1, 1, 1, 1, 2, 3, 1]


def test_what_is_noisy_among_the_rungs_widens_no_total() -> None:
    """A rung's few pairs lean on all comparisons, the total's do not."""
    quiet = {BOTTOM: 0.4, ONE: 0.2, TWO: 0.2, THREE: 0.1}
    ladder = state(quiet)
    rough = tuple(
        msgspec.structs.replace(one, step_times_s=tuple(time * (0.5 + one.round % 2) for time in one.step_times_s))
        if one.configuration in {ONE, TWO}
        else one
        for one in ladder.shots
    )
    totals = [results.concluded(msgspec.structs.replace(ladder, shots=shots)).total for shots in (ladder.shots, rough)]

    assert totals[0] == totals[1]


def test_losses_that_differ_are_no_gain() -> None:
    """A rung that must not change a bit did; one that may differ by a thousandth may."""
    ladder = state({BOTTOM: 0.4, ONE: 0.2, TWO: 0.2, THREE: 0.1})
    shots = tuple(msgspec.structs.replace(one, losses=(2.0001, 1.5)) if one.configuration == ONE else one for one in ladder.shots)
    record = results.concluded(msgspec.structs.replace(ladder, shots=shots))

    assert rung(record, "loader-workers").outcome == "losses differ"
    several = [rung(record, name).parity for name in ONLY[1:]]
    assert [(one.equal, one.holds) for one in several if one] == [(False, True), (True, True)]


@pytest.mark.parametrize(
    ("before", "after", "mechanism", "outcome"),
    [
        (40.0, 3.0, "seen", "gain with its mechanism"),
        (40.0, 39.0, "not seen", "gain without its mechanism"),
        (None, 3.0, "unknown", "gain"),
    ],
)
def test_a_gain_is_told_with_its_mechanism(before: float | None, after: float, mechanism: str, outcome: str) -> None:
    """By the figures that the rung names, of a trace without and one with it; and beside what was predicted."""
    figures = [{} if value is None else {"cpu.loader_pct": value} for value in (before, after)]
    traced = (
        Traced(configuration=BOTTOM, path="a", figures=figures[0], predictions={"loader": (30.0, 60.0)}),
        Traced(configuration=ONE, path="b", figures=figures[1]),
    )
    record = results.concluded(state({BOTTOM: 0.4, ONE: 0.2, TWO: 0.2, THREE: 0.2}, traced=traced))
    workers = rung(record, "loader-workers")

    assert (workers.mechanism, workers.outcome) == (mechanism, outcome)
    assert workers.predicted
    assert workers.predicted.measured == pytest.approx(50.0, abs=1.0)
    assert workers.predicted.holds is True
    assert record.predicted_held == (1, 1)
    assert record.predicted_error == pytest.approx(5.0, abs=1.0)


def test_a_figure_that_hardly_changes_is_no_mechanism() -> None:
    """A tenth, and a point of percent."""
    falls = (("cpu.loader_pct", "falls", "cpu"), ("figures.kernels_per_step", "falls", "cuda"))
    seen = traces.signs_of(
        falls, Traced(configuration=(), figures={"cpu.loader_pct": 2.0}), Traced(configuration=ONE, figures={"cpu.loader_pct": 1.5})
    )

    assert seen == (Sign("cpu.loader_pct", "falls", 2.0, 1.5, False),)
    assert traces.mechanism(()) == "unknown"


def test_a_rung_left_out_is_compared_with_the_nearest_whole_ladder() -> None:
    """Of several runs of the top in a round, the one beside it."""
    ladder = state({BOTTOM: 0.4, ONE: 0.2, TWO: 0.2, THREE: 0.1})
    more = [
        shot(one, number, seconds, TOP, place)
        for number in range(4)
        for place, (one, seconds) in enumerate([(THREE, 0.3), (("loader-workers", "set-to-none"), 0.3), (THREE, 0.1), (TWO, 0.2)])
    ]
    record = results.concluded(msgspec.structs.replace(ladder, shots=(*ladder.shots, *more)))
    left_out = rung(record, "set-to-none").trial("left out")

    assert left_out
    assert left_out.ratio == pytest.approx(2.0, rel=0.03)


def test_one_round_says_nothing_yet() -> None:
    """A ratio needs two pairs."""
    record = results.concluded(state({BOTTOM: 0.4, ONE: 0.2, TWO: 0.2, THREE: 0.1}, rounds=1))

    assert {one.outcome for one in record.rungs} == {"unclear here", "skipped"}
    assert "not known yet" in report.headline(record)


def test_a_record_is_told_in_each_format_and_compared() -> None:
    """Text, Markdown, a page with a picture that asks nobody; what a record says is escaped."""
    hostile = "<b>|` \x1b[31m"
    record = results.concluded(state({BOTTOM: 0.4, ONE: 0.2, TWO: 0.2, THREE: 0.1}, failed={hostile: hostile}))
    record = msgspec.structs.replace(record, device=hostile, bottom_trace=f"traces/{hostile}.html")

    for other in (None, record):
        texts = report.text(record, other), report.markdown(record, other), report.page(record, other)
        assert not any("\x1b" in text for text in texts)
        assert all("loader-workers" in text for text in texts)
        assert "<b>" not in texts[2]
    page = report.page(record)
    assert "<svg" in page
    assert "Content-Security-Policy" in page
    assert "4.0" in report.headline(record) or "4.00" in report.headline(record)
    assert from_json(to_json(record), Record) == record
    assert math.isclose(record.total.ratio or 0, 4.0, rel_tol=0.05) if record.total else False
