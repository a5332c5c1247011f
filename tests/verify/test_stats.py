"""Facts about the statistics of comparisons: known values, and error rates by simulation."""

from __future__ import annotations

import functools
import json
import math
import random
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.verify import stats
from sysperf.verify.study import MIN_FRESH_PAIRS, Study
from tests.verify.simulation import Budget, Rates, made_up, rates, replayed

T_TABLE = [
    (0.975, 1, 12.70620),
    (0.975, 4, 2.776445),
    (0.975, 5, 2.570582),
    (0.995, 2, 9.924843),
    (0.975, 39, 2.022691),
    (0.99, 30, 2.457262),
]
"""NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2."""
values = st.lists(st.floats(-0.5, 0.5), min_size=stats.MIN_ANYTIME_PAIRS, max_size=40)


@pytest.mark.parametrize(("probability", "freedom", "expected"), T_TABLE)
def test_quantiles_are_those_of_the_tables(probability: float, freedom: int, expected: float) -> None:
    """Student's distribution, odd and even degrees of freedom."""
    assert stats.t_quantile(probability, freedom) == pytest.approx(expected, rel=1e-5)


@given(values, st.floats(0.95, 0.999))
def test_an_interval_is_as_wide_as_the_exact_variance_says(log_ratios: list[float], level: float) -> None:
    """Equal values have a variance of exactly 0."""
    half = stats.t_quantile((1 + level) / 2, len(log_ratios) - 1) * statistics.stdev(log_ratios) / math.sqrt(len(log_ratios))
    found = stats.interval(log_ratios, 1 - level)
    equal = stats.interval([log_ratios[0]] * len(log_ratios), 1 - level)

    assert found.high - found.mean == pytest.approx(half, rel=1e-9, abs=1e-12)
    assert equal.low == equal.mean == equal.high


@given(values, st.floats(-0.2, 0.2))
def test_intervals_move_with_the_data_and_hold_their_mean(log_ratios: list[float], shift: float) -> None:
    """Both kinds; exchanging the variants mirrors them."""
    for make in (lambda data: stats.interval(data, 0.05), stats.anytime_interval):
        interval, moved, mirrored = make(log_ratios), make([value + shift for value in log_ratios]), make([-value for value in log_ratios])
        assert interval
        assert moved
        assert mirrored
        assert interval.low <= interval.mean <= interval.high
        assert moved.mean == pytest.approx(interval.mean + shift, abs=1e-9)
        assert (mirrored.low, mirrored.high) == pytest.approx((-interval.high, -interval.low), abs=1e-6)


def test_an_e_value_never_overflows() -> None:
    """Hundreds of huge differences are overwhelming evidence, not an error."""
    assert stats.e_value([0.7] * 500) > 1e100
    assert stats.e_value([-0.7] * 500) > 1e100
    assert stats.e_value([0.7, -0.7] * 250) < 1


def test_holm_rejects_in_steps() -> None:
    """The example of the paper's method: a large p-value ends it for all larger ones."""
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]
    assert stats.holm([0.011, 0.02, 0.03, 0.012]) == [True] * 4


# ---------------------------------------------------------------------- error rates


def simulated(spread: float, gain: float, studies: int) -> Rates:
    """What comes of so many studies of this noise."""
    rng = random.Random(20_261_122)
    return rates(lambda: made_up(rng, spread), gain, studies, rng)


@pytest.mark.parametrize("spread", [pytest.param(0.005, marks=pytest.mark.slow), 0.01, pytest.param(0.03, marks=pytest.mark.slow)])
def test_a_program_is_not_called_different_from_itself(spread: float, capsys: pytest.CaptureFixture[str]) -> None:
    """A/A under drift, bursts and outliers: at most 5 % (here with the noise of 400 studies), and intervals that hold 0."""
    result = simulated(spread, 0.0, 400)
    with capsys.disabled():
        print(f"\nA/A, run noise {spread:.1%}: called different {result.different:.3f}, coverage {result.coverage:.3f}, {result.verdicts}")

    assert result.different <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 400)
    assert result.coverage >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / 400)


SERIES = json.loads((Path(__file__).parents[2] / "benchmarks/noise.json").read_text())["series"]


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("gain", [0.0, pytest.param(0.05, marks=pytest.mark.slow)])
def test_intervals_hold_on_noise_that_was_recorded(name: str, gain: float, capsys: pytest.CaptureFixture[str]) -> None:
    """Run times of a real machine, which drift, have neighbours and two modes: the program against itself, and a planted gain."""
    rng, studies = random.Random(name), 200
    series = [math.log(microseconds) for microseconds in SERIES[name]]
    result = rates(lambda: replayed(series, rng), gain, studies, rng)
    with capsys.disabled():
        print(f"\n{name}, true gain {gain:+.0%}: coverage {result.coverage:.3f}, {result.mean_pairs:.0f} pairs, {result.verdicts}")

    assert result.coverage >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / studies)
    assert result.verdicts["slower" if gain else "faster"] <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / studies)
    assert gain or result.different <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / studies)


@pytest.mark.parametrize(("gain", "power"), [(0.02, 0.9), (0.05, 0.99)])
def test_a_planted_gain_is_found_and_not_overstated(gain: float, power: float, capsys: pytest.CaptureFixture[str]) -> None:
    """Run noise of 1 %: found, the interval holds it, and fresh pairs keep the early stop from overstating it."""
    result = simulated(0.01, gain, 200)
    with capsys.disabled():
        print(f"\n+{gain:.0%}, run noise 1 %: mean {result.mean_gain:.4f}, coverage {result.coverage:.3f}, {result.verdicts}")

    assert result.verdicts["faster"] >= power
    assert result.verdicts["slower"] == 0
    assert result.coverage >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 200)
    assert result.mean_gain == pytest.approx(gain, rel=0.1)


@pytest.mark.parametrize("max_pairs", [6, 40, *(pytest.param(pairs, marks=pytest.mark.slow) for pairs in (41, 122, 400))])
def test_more_pairs_call_a_program_different_no_more_often(max_pairs: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A/A with normal noise, where a t-test is exact, and so much of it that no study ends as `same`: each look may err."""
    rng, different, studies = random.Random(max_pairs), 0, 400
    for _ in range(studies):
        study = Study(looks=stats.looks(max_pairs))
        while not (study.decided() and study.progress().verdict):
            study = study.with_pair(rng.gauss(0, 1))
        different += study.progress().verdict in ("faster", "slower")
    with capsys.disabled():
        print(f"\nA/A, at most {max_pairs} pairs, {len(stats.looks(max_pairs))} looks: called different {different / studies:.3f}")

    assert different / studies <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / studies)


def test_looks_beyond_40_grow_with_the_pairs() -> None:
    """Up to 40 as ever; a study that may take hundreds of pairs may stop before its end, at a level that is lower for many looks."""
    assert [stats.looks(pairs) for pairs in (2, 6, 20, 40)] == [(2,), (6,), (6, 9, 13, 19, 20), stats.LOOKS]
    assert stats.looks(200) == (*stats.LOOKS, 58, 84, 122, 177, 200)
    assert [stats.look_level(count) for count in (1, 6, 10, 20)] == [0.0155, 0.0155, 0.0155, 0.00775]


@pytest.mark.slow
def test_looks_at_any_time_are_right_too() -> None:
    """The e-process, looked at after each of 60 pairs of A/A: called different in at most 5 % of the studies."""
    rng = random.Random(7)
    wrong = 0
    for _ in range(150):
        times, pairs = made_up(rng, 0.01), list[float]()
        for _ in range(60):
            pairs.append((next(times) - next(times)) * rng.choice((1, -1)))
            if stats.e_value(pairs) >= stats.E_VALUE_LIMIT:
                wrong += 1
                break

    assert wrong / 150 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 150)


# ---------------------------------------------------------------------- the state of a study


def test_a_study_stops_only_at_its_looks() -> None:
    """However clear it is: six pairs, and fresh ones after an early stop."""
    study = Study()
    for number in range(6):
        assert study.progress().verdict is None, number
        study = study.with_pair(0.10 + 0.001 * (number % 2))
    assert len(study.pairs) == 6
    for _ in range(MIN_FRESH_PAIRS):
        assert study.progress().verdict is None
        study = study.with_pair(0.08 + 0.001 * len(study.fresh))

    done = study.progress()
    assert (done.verdict, len(study.pairs), len(study.fresh)) == ("faster", 6, MIN_FRESH_PAIRS)
    assert done.gain
    assert done.gain.mean == pytest.approx(0.082)


def test_same_means_inside_the_margin() -> None:
    """A difference of 0.2 % that is certain is `same` at ±1 %, and needs no fresh pairs."""
    study = Study()
    for number in range(6):
        study = study.with_pair(0.002 + 0.0001 * (number % 2))

    assert study.progress().verdict == "same"


def test_noise_is_unclear_and_says_what_would_help() -> None:
    """After the last look, with how many more pairs would decide; or at once where many pairs were disturbed."""
    study = Study()
    for number in range(40):
        study = study.with_pair(0.2 if number % 2 else -0.2)
    assert study.progress().verdict == "unclear"
    assert study.more_pairs() > 40

    disturbed = Study(pairs=(0.0, 0.01, 0.02, 0.01), dropped=2)
    assert disturbed.progress().verdict == "unclear"
    assert "2 of 6 pairs" in disturbed.progress().reason


@pytest.mark.parametrize(("gain", "spread"), [(0.0, 0.04), (0.005, 0.04), (0.02, 0.08)])
def test_as_many_pairs_as_were_forecast_decide(gain: float, spread: float) -> None:
    """After 40 pairs that tell nothing: most studies are decided at the forecast number, beyond 40 too, where the level is lower."""
    rng, decided, forecasts = random.Random(f"{gain} {spread}"), 0, 0
    while forecasts < 40:
        pairs = [rng.gauss(gain, spread) for _ in range(40)]
        study = Study(pairs=tuple(pairs))
        needed = study.pairs_needed()
        if study.progress().verdict != "unclear" or needed is None:
            continue
        forecasts += 1
        pairs += [rng.gauss(gain, spread) for _ in range(needed - 40)]
        planned = stats.looks(max(needed, 40))
        level = stats.look_level(len(planned))
        decided += any(stats.verdict(stats.interval(pairs[:look], level), study.margin) != "unclear" for look in planned if look >= 40)

    assert decided >= 0.65 * forecasts


# ---------------------------------------------------------------------- studies with a budget of time


@pytest.mark.parametrize("one_look", [False, True])
@pytest.mark.parametrize(("name", "run_times"), [("quiet", 30.0), pytest.param("crowded", 16.0, marks=pytest.mark.slow)])
def test_a_study_whose_time_is_over_is_as_right_as_one_of_planned_pairs(
    name: str, run_times: float, one_look: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last look is when the time is over, and slow runs leave fewer pairs: A/A and a gain of 20 % on recorded run times."""
    studies, rng, budget = 200, random.Random(f"{name} {one_look}"), Budget(run_times, one_look)
    middle = statistics.median(SERIES[name])
    series = [math.log(microseconds / middle) for microseconds in SERIES[name]]
    same, gained = (rates(lambda: replayed(series, rng), gain, studies, rng, budget) for gain in (0.0, 0.2))
    with capsys.disabled():
        print(f"\n{name}, {run_times:g} run times, {'one look' if one_look else 'looks'}: A/A called different {same.different:.3f}, "
              f"coverage {same.coverage:.3f} and {gained.coverage:.3f}, {gained.verdicts}, half width {gained.half_width:.3f}")  # fmt: skip

    assert same.different <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / studies)
    assert min(same.coverage, gained.coverage) >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / studies)
    assert gained.mean_gain == pytest.approx(0.2, abs=0.02)


def test_one_look_gives_the_narrowest_interval_for_the_time() -> None:
    """The same noise and budget: no interval at the level of a look, and none of few further pairs."""
    widths = []
    for one_look in (False, True):
        rng = random.Random(5)
        widths.append(rates(functools.partial(made_up, rng, 0.01), 0.05, 60, rng, Budget(60.0, one_look)).half_width)

    assert widths[1] < 0.6 * widths[0]


def test_looks_are_planned_for_the_time_that_is_left() -> None:
    """An early look needs time for its fresh pairs; looks that were made stay; the end of the time is the last one."""
    study = Study()
    assert study.with_room_for(14, 40).looks == (6, 9, 40)
    assert study.with_room_for(10.9, 40).looks == (40,)
    assert study.with_room_for(math.inf, 40).looks == stats.LOOKS

    noisy = Study(looks=(6, 40)).with_pairs([0.2, -0.2] * 4, 0)
    assert noisy.with_room_for(12, 40).looks == (6, 40)
    over = noisy.at_the_end()
    assert over.looks == (6, 8)
    assert over.progress().verdict == "unclear"
    assert over.progress().gain == stats.interval(noisy.pairs, stats.LOOK_LEVEL)


def test_an_early_verdict_without_time_for_its_fresh_pairs_is_none() -> None:
    """The gain is that of all pairs at the end, which no lucky moment chose."""
    clear = [0.10, 0.11, 0.10, 0.11, 0.10, 0.11]
    study = Study().with_pairs([*clear, 0.05, 0.04], 0)
    assert (len(study.pairs), len(study.fresh), study.progress().verdict) == (6, 2, None)

    over = study.at_the_end()
    assert (over.looks, len(over.pairs), over.fresh) == ((8,), 8, ())
    assert over.progress().verdict == "faster"
    assert over.progress().gain == stats.interval([*clear, 0.05, 0.04], stats.LOOK_LEVEL)


def test_one_look_that_was_made_is_the_only_one() -> None:
    """A second one at the same level would call a program different from itself too often. Of several looks there may be one more."""
    noise = [0.2, -0.2] * 4
    once = Study(looks=(40,), one_look=True).with_pairs(noise, 0).at_the_end()
    assert once.level == stats.TOTAL_LEVEL
    assert once.with_room_for(30, 40).looks == (8,)

    several = Study().with_pairs(noise, 0).at_the_end()
    assert several.with_room_for(30, 40).looks == (6, 8, 9, 13, 19, 40)


def test_all_pairs_at_once_are_the_same_study_as_one_after_the_other() -> None:
    """Pairs, fresh pairs and verdict, at any length of several sequences."""
    rng = random.Random(3)
    for gain in (0.0, 0.01, 0.05):
        study, ratios = Study(), list[float]()
        while study.progress().verdict is None:
            ratios.append(rng.gauss(gain, 0.02))
            study = study.with_pair(ratios[-1])
            assert Study().with_pairs(ratios, 0) == study


def test_few_pairs_have_no_interval_at_any_time() -> None:
    """Five that agree are as likely as 6 % by chance: nothing is excluded at 5 %, and no interval is made up."""
    assert stats.e_value([10.0] * 5) < stats.E_VALUE_LIMIT < stats.e_value([10.0] * 6)
    assert stats.anytime_interval([0.1] * 5) is None
    assert stats.anytime_interval([0.1] * 6) is not None


def test_a_study_of_thousands_of_pairs_is_judged_at_its_looks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its statistics are asked for after each run: they look at each pair once, and make no interval of each."""
    made = 0
    make = stats.interval

    def counted(log_ratios: Sequence[float], level: float, spread: stats.Spread | None = None) -> stats.Interval:
        nonlocal made
        made += 1
        return make(log_ratios, level, spread)

    monkeypatch.setattr(stats, "interval", counted)
    rng, looks = random.Random(1), stats.looks(5_000)
    study = Study(looks=looks).with_pairs([rng.gauss(0, 0.3) for _ in range(4_900)], 0)

    assert study.progress().verdict is None
    assert made <= 3 * len(looks)


def test_the_spread_of_many_comparisons_is_found() -> None:
    """Variances that are all alike are worth many degrees of freedom, variances a hundredfold apart few; too few comparisons none."""
    draw = random.Random(3)
    alike = [[draw.gauss(0, 0.05) for _ in range(4)] for _ in range(60)]
    apart = [[draw.gauss(0, 0.05 * 10 ** draw.uniform(-1, 1)) for _ in range(4)] for _ in range(60)]

    spread, mixed = stats.spread_of(alike), stats.spread_of(apart)
    assert spread
    assert mixed
    assert math.sqrt(spread.variance) == pytest.approx(0.05, rel=0.15)
    assert spread.freedom > 30
    assert mixed.freedom < 4
    assert stats.spread_of(alike[: stats.MIN_SETS - 1]) is None
    assert stats.spread_of([[0.1, 0.1]] * 9) is None


@pytest.mark.parametrize("outliers", [0.0, 0.05])
def test_comparisons_that_share_their_spread_hold_the_truth(outliers: float) -> None:
    """Twenty comparisons of three pairs, no effect, also where one run in twenty is disturbed: at most 5 % exclude 0, at a third of the width."""
    draw = random.Random(7)
    excluded, narrower = 0, list[float]()
    for _ in range(60):
        sets = [[draw.gauss(0, 0.06) + (draw.random() < outliers) * draw.choice((-0.8, 0.8)) for _ in range(3)] for _ in range(20)]
        spread = stats.spread_of(sets)
        shared = [stats.interval(one, 0.05, spread) for one in sets]
        alone = [stats.interval(one, 0.05) for one in sets]
        excluded += sum(one.low > 0 or one.high < 0 for one in shared)
        narrower.append(statistics.median(one.high - one.low for one in shared) / statistics.median(one.high - one.low for one in alone))

    assert excluded <= 0.05 * 60 * 20
    assert statistics.median(narrower) < (0.75 if outliers else 0.6)


def test_an_outlier_among_quiet_comparisons_is_no_gain() -> None:
    """One run of three is disturbed: however sure the others are of the spread, that comparison keeps its own."""
    quiet = stats.Spread(0.001, 200.0)
    interval = stats.interval([0.0, 0.01, 0.9], 0.05, quiet)

    assert interval.low < 0 < interval.high
