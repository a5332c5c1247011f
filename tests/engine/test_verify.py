"""Facts about the verdict of a study: what fresh pairs, losses and steps have to say before a gain is believed."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sysperf.cli.verify.output import exit_code
from sysperf.cli.verify.study import progress_line, state_path
from sysperf.engine import verify
from sysperf.engine.verify import Plan, State, TriedPlan, conclude, measuring, trying
from sysperf.engine.verify.measuring import Measured
from sysperf.model.comparison import Conditions, Metric, Run, Variant
from sysperf.model.errors import SysperfError
from sysperf.report.experiments.comparison import basis, interval, remarks, verdict
from sysperf.verify import stats

A, B = Variant("A", ("a",)), Variant("B", ("b",))
SPEED = Metric("speed", "", True, "speed: (.*)")
STEPS = Metric("steps per second", "steps/s", True, "", "optimizer")


def study(ratios: list[float], **b: Any) -> State:
    """A study in which B had these speeds, beside 100 of A, after a pair that warmed caches."""
    runs = [Run(0, "a", 100.0, 1.0, 1.0), Run(0, "b", 100.0, 1.0, 1.0)]
    for pair, ratio in enumerate(ratios, 1):
        runs += [Run(pair, "a", 100.0, 1.0, 1.0, loss=1.0), Run(pair, "b", 100.0 * ratio, 1.0, 1.0, **{"loss": 1.0, **b})]
    return State(plan=Plan(a=A, b=B, metric=SPEED), runs=tuple(runs))


def test_a_gain_that_fresh_pairs_contradict_is_unclear() -> None:
    """Six lucky pairs, and five further ones that show the opposite: it is not `faster` by a negative gain."""
    lucky = [1.03, 1.031, 1.029, 1.03, 1.032, 1.028]
    against = conclude(study([*lucky, 0.97, 0.971, 0.969, 0.97, 0.972]))
    confirmed = conclude(study([*lucky, 1.01, 1.011, 1.009, 1.02, 1.012]))

    assert (against.verdict, confirmed.verdict) == ("unclear", "faster")
    assert "the opposite in the further ones" in against.reason
    assert against.high
    assert against.high < 1


def test_no_bound_is_kept_by_work_that_differs() -> None:
    """Twice as fast at another loss: no ratio, so that neither CI nor a finding's gain takes it for one."""
    comparison = conclude(study([2.0, 2.01, 1.99, 2.0, 2.02, 1.98, 2.0, 2.0, 2.01, 2.02, 1.99], loss=1.5))

    assert (comparison.verdict, comparison.ratio) == ("unclear", None)
    assert exit_code(comparison, 2.0) == 3
    assert comparison.median_b == pytest.approx(200)


def test_losses_that_differ_by_chance_alone_hide_no_gain() -> None:
    """They vary by 30 % from run to run: a difference of 5 % between the means is no other work."""
    state = study([2.0, 2.01, 1.99, 2.0, 2.02, 1.98, 2.0, 2.0, 2.01, 2.02, 1.99])
    losses = {"a": (1.0, 1.3), "b": (1.05, 1.37)}
    runs = tuple(msgspec.structs.replace(run, loss=losses[run.arm][run.pair % 2]) for run in state.runs)

    assert conclude(msgspec.structs.replace(state, runs=runs)).verdict == "faster"


def test_the_interval_of_a_study_that_noise_ended_may_be_looked_at_any_time() -> None:
    """It ended at no planned look: its interval is the e-process's, at its level. Fewer than six pairs have none."""

    def disturbed(*pairs: int) -> list[Run]:
        return [Run(pair, arm, 1.0, 1.0, 1.0, disturbed="others") for pair in pairs for arm in ("a", "b")]

    few = conclude(State(plan=Plan(a=A, b=B, metric=SPEED), runs=(*study([1.03, 1.031, 1.029, 1.03]).runs, *disturbed(5, 6))))
    runs = (*study([1.03, 1.031, 1.029, 1.03, 1.1, 0.97, 1.03]).runs, *disturbed(8, 9))
    noisy = conclude(State(plan=Plan(a=A, b=B, metric=SPEED), runs=runs))

    assert (few.verdict, few.reason, few.ratio) == ("unclear", "2 of 6 pairs were disturbed", None)
    assert noisy.verdict == "unclear"
    assert noisy.reason == "2 of 9 pairs were disturbed"
    assert noisy.low
    assert noisy.low < 1
    assert (noisy.high or math.inf) > 1.03


def test_each_pair_makes_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """B makes fewer steps from its third run on, as when an error ends it early."""
    runs = {"A": 0, "B": 0}

    def measured(variant: Variant, *_: object, **__: object) -> Measured:
        runs[variant.name] += 1
        steps = 10 if variant.name == "B" and runs["B"] > 2 else 20
        return Measured(100.0, 1.0, 1.0, None, tuple(map(float, range(steps))))

    monkeypatch.setattr(measuring, "measure", measured)
    with pytest.raises(SysperfError, match="A made 20 steps and B 10"):
        verify.verify(Plan(a=A, b=B, metric=Metric("steps per second", "steps/s", True, "", "optimizer")))


def test_a_fix_is_certain_only_with_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses that differ make it unclear, however small the p-value is."""

    def measured(variant: Variant, *_: object, **__: object) -> Measured:
        return Measured(200.0 if variant.name == "B" else 100.0, 1.0, 1.0, None, (), 2.0 if variant.name == "B" else 1.0)

    monkeypatch.setattr(measuring, "measure", measured)
    (fix,) = verify.verify_each([TriedPlan(("x",), "", Plan(a=A, b=B, metric=SPEED))])

    assert fix.comparison
    assert fix.comparison.verdict == "unclear"
    assert not fix.certain


def test_no_room_for_a_run_is_an_error_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where temporary files go not even a folder can be made."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(SysperfError, match="no folder for the run's files") as error:
        measuring.measure(Variant("A", ("true",)), SPEED, 5.0)
    assert "TMPDIR" in error.value.hint


@pytest.mark.parametrize("keep", [False, True])
def test_a_pair_in_which_a_gpu_was_slowed_is_dropped_whole(monkeypatch: pytest.MonkeyPatch, keep: bool) -> None:
    """In the fifth pair the GPU's clock falls during one run. What was not seen of the machine is in the result."""
    seen: list[str] = []

    def measured(variant: Variant, *_: object, **__: object) -> Measured:
        seen.append(variant.name)
        slowed = len(seen) == 10
        conditions = Conditions(gpus=(0,), gpu_mhz=1_200.0 if slowed else 1_980.0)
        return Measured(70.0 if slowed else 100.0, 1.0, 1.0, page_faults=7, conditions=conditions, unwatched=("GPU 1 (GPU is lost)",))

    monkeypatch.setattr(measuring, "measure", measured)
    comparison = verify.verify(Plan(a=A, b=B, metric=SPEED, keep_disturbed=keep, max_pairs=6))

    assert comparison.dropped_pairs == (0 if keep else 1)
    assert (
        [run.disturbed for run in comparison.runs if run.disturbed] == []
        if keep
        else ["the GPUs' clock: 1200 MHz in one run, 1980 in the other"]
    )
    assert comparison.verdict == ("unclear" if keep else "same")
    assert (comparison.page_faults_a, comparison.unwatched) == (7, ("GPU 1 (GPU is lost)",))


def test_ctrl_c_ends_all_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is pressed once, in the second of three: what is there stays, and the third is not begun."""
    seen: list[str] = []

    def measured(variant: Variant, *_: object, **__: object) -> Measured:
        seen.append(variant.name)
        if len(seen) == 30:
            raise KeyboardInterrupt
        return Measured(100.0 * (1 + 0.5 * (variant.name == "B")) * (1 + 0.001 * (len(seen) % 3)), 1.0, 1.0)

    monkeypatch.setattr(measuring, "measure", measured)
    fixes = verify.verify_each([TriedPlan((name,), "", Plan(a=A, b=B, metric=SPEED)) for name in ("x", "y", "z")])

    assert [fix.problem for fix in fixes] == ["", "", "interrupted before"]
    assert fixes[0].comparison
    assert fixes[0].comparison.verdict == "faster"
    assert len(seen) == 30


def test_a_study_that_was_interrupted_says_how_many_pairs_would_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate from the spread so far."""
    values = iter([100.0, 100.0, 103.0, 100.0, 97.0, 100.0, 103.0, 97.0, 100.0, 103.0])

    def measured(*_: object, **__: object) -> Measured:
        value = next(values, None)
        if value is None:
            raise KeyboardInterrupt
        return Measured(value, 1.0, 1.0)

    monkeypatch.setattr(measuring, "measure", measured)
    comparison = verify.verify(Plan(a=A, b=B, metric=SPEED))

    assert comparison.verdict == "unclear"
    assert re.search(
        r"interrupted after 4 pairs, too few for an interval; about \d+ more pairs \(\d+ min\) would decide", comparison.reason
    )


class Machine:
    """A machine on which each run takes a second, or what is said of the pair: a clock that only runs advance."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, ratio: Callable[[int], float], pair_s: Callable[[int], float] = lambda _: 2.0
    ) -> None:
        self.at_s, self.runs, self.ratio, self.pair_s = 1_000.0, 0, ratio, pair_s
        monkeypatch.setattr(measuring, "measure", self.measured)
        monkeypatch.setattr(verify, "time", SimpleNamespace(monotonic=lambda: self.at_s))

    def measured(self, variant: Variant, *_: object, **__: object) -> Measured:
        pair, took_s = self.runs // 2, self.pair_s(self.runs // 2) / 2
        self.runs += 1
        self.at_s += took_s
        return Measured(100.0 * (self.ratio(pair) if variant.name == "B" else 1.0), took_s, took_s)


def unsteady(pair: int) -> float:
    """B's speed over A's: 30 % and 5 % faster, in turn."""
    return 1.3 if pair % 2 else 1.05


def test_the_last_look_is_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """15 pairs fit beside the one that warms caches: a look is at them all, and none before that leaves no time for fresh pairs."""
    machine = Machine(monkeypatch, lambda pair: 1.5 if pair % 3 else 0.9)
    states: list[State] = []
    comparison = verify.verify(Plan(a=A, b=B, metric=SPEED, budget_s=33.0), states.append)

    assert machine.at_s == 1_032.0  # a pair that would end too late is not begun
    assert (comparison.pairs, comparison.verdict, comparison.confidence) == (15, "faster", 1 - stats.LOOK_LEVEL)
    assert comparison.reason == "the time that was allowed is over"
    assert states[-1].looks == (6, 9, 15)
    assert "when the time is over" in progress_line(states[10])


def test_one_look_is_at_all_pairs_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However clear it is before: the interval is that of all pairs, at 95 %. A study of a number of pairs is the same."""
    machine = Machine(monkeypatch, unsteady)
    timed = verify.verify(Plan(a=A, b=B, metric=SPEED, budget_s=120.0, one_look=True, max_pairs=1_000))
    assert machine.at_s == 1_120.0
    assert (timed.pairs, timed.fresh_pairs, timed.verdict, timed.confidence) == (59, 0, "faster", 0.95)

    counted = verify.verify(Plan(a=A, b=B, metric=SPEED, one_look=True, max_pairs=20))
    assert (counted.pairs, counted.fresh_pairs, counted.verdict, counted.confidence) == (20, 0, "faster", 0.95)


def test_looks_follow_runs_that_get_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the sixth pair on a pair takes five times as long: the look after nine has no time for its fresh pairs any more."""
    Machine(monkeypatch, lambda pair: 2.0 if pair % 2 else 0.8, lambda pair: 2.0 if pair < 6 else 10.0)
    comparison = verify.verify(Plan(a=A, b=B, metric=SPEED, budget_s=62.0))

    assert (comparison.pairs, comparison.fresh_pairs) == (10, 0)


def test_an_early_gain_is_measured_anew_where_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six pairs are clear; with time for five further ones the gain is theirs, without it that of all pairs."""
    Machine(monkeypatch, lambda pair: 1.5 + 0.01 * (pair % 3))
    long = verify.verify(Plan(a=A, b=B, metric=SPEED, budget_s=30.0))
    short = verify.verify(Plan(a=A, b=B, metric=SPEED, budget_s=21.0))

    assert (long.pairs, long.fresh_pairs) == (6, 5)
    assert (short.pairs, short.fresh_pairs, short.verdict) == (9, 0, "faster")


def test_more_time_for_a_study_whose_time_was_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on from its pairs, and the look that was made counts among all. One look that was made is not made again."""
    Machine(monkeypatch, lambda pair: 1.5 if pair % 2 else 0.7)
    states: list[State] = []
    first = verify.verify(Plan(a=A, b=B, metric=SPEED, budget_s=18.0), states.append)
    more = verify.verify(states[-1].plan, states.append, states[-1])
    assert first.verdict == "unclear"
    assert first.reason.startswith("the time that was allowed is over after 8 pairs; about ")
    assert more.pairs == 17
    assert states[-1].looks == (8, 9, 17)

    once = verify.verify(Plan(a=A, b=B, metric=SPEED, budget_s=18.0, one_look=True), states.append)
    again = verify.verify(states[-1].plan, states.append, states[-1])
    assert (once.pairs, again.pairs) == (8, 8)


@pytest.mark.parametrize(("budget_s", "reason"), [(1.0, "before a pair was complete"), (4.0, "after 1 pair, too few for an interval")])
def test_too_little_time_is_told(monkeypatch: pytest.MonkeyPatch, budget_s: float, reason: str) -> None:
    """No ratio is made up."""
    Machine(monkeypatch, unsteady)
    comparison = verify.verify(Plan(a=A, b=B, metric=SPEED, budget_s=budget_s))

    assert (comparison.verdict, comparison.ratio) == ("unclear", None)
    assert reason in comparison.reason


def test_all_runs_make_the_steps_of_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of so many seconds is asked for: the first one tells how many steps that is, and what is resumed knows it."""
    asked: list[tuple[float, int]] = []

    def measured(_: Variant, metric: Metric, *__: object, **___: object) -> Measured:
        asked.append((metric.run_s, metric.max_steps))
        return Measured(1.0, 1.0, 1.0, step_times_s=tuple(map(float, range(80))), agreed_steps=0 if metric.max_steps else 80)

    monkeypatch.setattr(measuring, "measure", measured)
    plan = Plan(a=A, b=B, metric=msgspec.structs.replace(STEPS, run_s=10.0), max_pairs=2)
    states: list[State] = []
    verify.verify(plan, states.append)

    assert asked == [(10.0, 0)] + [(10.0, 80)] * 5
    assert state_path(states[-1].plan) == state_path(plan)


def test_a_variant_that_is_much_slower_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is ten times the longest run of the same variant, a minute at least, and never more than the one that was asked for."""
    limits: list[tuple[str, float]] = []

    def measured(variant: Variant, _: Metric, limit_s: float, *__: object, **___: object) -> Measured:
        limits.append((variant.name, limit_s))
        return Measured(1.0, 1.0 if variant.name == "A" else 65.0, 1.0)

    monkeypatch.setattr(measuring, "measure", measured)
    verify.verify(Plan(a=A, b=B, metric=SPEED, max_pairs=2))
    assert limits[:2] == [("A", 3_600.0), ("B", 3_600.0)]
    assert set(limits[2:]) == {("A", 60.0), ("B", 650.0)}

    limits.clear()
    verify.verify(Plan(a=A, b=B, metric=SPEED, max_pairs=2, limit_s=5.0))
    assert {seconds for _, seconds in limits} == {5.0}


def test_an_interval_that_tells_nothing_is_shown_as_such() -> None:
    """Two pairs at 1e-300 and 1e300 times the speed: a ratio that no float holds, and no row of digits."""
    state = msgspec.structs.replace(study([1e-300, 1e300]), plan=Plan(a=A, b=B, metric=SPEED, max_pairs=2))
    comparison = conclude(state)

    assert comparison.verdict == "unclear"
    assert comparison.high
    assert math.isfinite(comparison.high)
    assert interval(comparison) == "not known yet"
    assert "the gain is not known yet" in progress_line(state)
    assert basis(comparison).startswith("not known yet; ")
    assert re.match(r"about \d+ more pairs \(\d+ min\) would decide", comparison.reason)
    assert interval(msgspec.structs.replace(comparison, low=0.4, high=3.9)) == "-60.0 to +290.0 %"


@pytest.mark.parametrize(
    ("low", "ratio", "high", "said", "known"),
    [
        (1.02, 3.28, 10.48, "B is faster than A; by how much is not known yet", "at least +2.0 %"),
        (0.05, 0.3, 0.97, "B is slower than A; by how much is not known yet", "at most -3.0 %"),
        (1.02, 1.28, 1.48, "B is 28.0 % faster than A", "+2.0 to +48.0 %"),
    ],
)
def test_of_a_wide_interval_the_end_beside_no_change_is_told(low: float, ratio: float, high: float, said: str, known: str) -> None:
    """Nine pairs on a crowded machine: that B is faster is sure, by how much is not; both stand there, and do not contradict each other."""
    comparison = msgspec.structs.replace(
        conclude(study([1.3] * 6)), verdict="faster" if low > 1 else "slower", low=low, ratio=ratio, high=high, confidence=0.98
    )

    assert verdict(comparison) == said
    assert basis(comparison).startswith(f"{known} at 98 %; ")
    assert ("would tell by how much" in " ".join(remarks(comparison))) == ("not known" in said)


def test_progress_says_in_which_phase_a_study_is() -> None:
    """A look that finds nothing is the last one, and measures no gain."""
    unclear, early = study([1.5, 0.7] * 20), study([1.3] * 6 + [1.31])

    assert progress_line(unclear).startswith("40 pairs, the last look; ")
    assert progress_line(early).startswith("clear; measuring the gain on fresh pairs, 1 of 5; ")
    assert progress_line(study([1.0] * 3)).startswith("3 pairs, next look at 6; ")
    assert progress_line(study([1.0])).startswith("1 pair, next look at 6; ")


def test_what_the_warm_up_took_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """B's first 30 steps take ten times as long: its compilation may cost more than it gains. A's steps never become steady."""

    def measured(variant: Variant, *_: object, **__: object) -> Measured:
        steps = [1.0] * 30 + [0.1] * 90 if variant.name == "B" else ([0.1] * 20 + [0.2] * 20) * 3
        times = tuple(sum(steps[:count]) for count in range(len(steps) + 1))
        return Measured(100.0, 1.0, 1.0, step_times_s=times)

    monkeypatch.setattr(measuring, "measure", measured)
    comparison = verify.verify(Plan(a=A, b=B, metric=Metric("steps per second", "steps/s", True, "", "optimizer"), max_pairs=2))

    assert comparison.warm_up_steps == 33
    assert set(comparison.notes) == {
        "no steady state was found in the first run of A",
        "the first 33 steps are left out as warm-up: 4.6 s of A and 30.3 s of B",
    }


def test_ranks_that_are_less_efficient_are_no_finding() -> None:
    """They nearly always are; a bound that the user gives still counts."""
    slower = conclude(study([0.8, 0.801, 0.799, 0.8, 0.802, 0.798, 0.8, 0.8, 0.801, 0.8, 0.799]))
    ranks = msgspec.structs.replace(slower, ranks=(1, 4))

    assert slower.verdict == "slower"
    assert (exit_code(slower, None), exit_code(ranks, None), exit_code(ranks, 10.0)) == (1, 0, 1)


@pytest.mark.parametrize(
    ("rule", "does"),
    [
        ("numa.gpu-unbound", ("launch.gpu-node-unbound",)),
        ("numa.pages-remote", ("launch.node-unbound",)),
        ("numa.balancing-on", ()),
    ],
)
def test_a_rule_of_running_programs_that_binds_is_tried_by_wrap(rule: str, does: tuple[str, ...]) -> None:
    """By the launch rules that bind to the same."""
    found = trying._binding_rules(trying.find(rule))
    tried = trying.Try(rule=rule, kind="launch", launch_rules=found)

    assert found == does
    assert not does or trying.variants((tried,), ("true",))[1].argv[-3:] == (does[0], "--", "true")


def test_a_script_that_cannot_be_started_is_told_how(tmp_path: Path) -> None:
    """Whoever forgets `python` is told so, as by `wrap`."""
    script = tmp_path / "train.py"
    script.write_text("")
    with pytest.raises(SysperfError, match="Permission denied") as caught:
        measuring.measure(Variant("plain", (str(script),)), SPEED, 5.0)

    assert caught.value.hint == f"a script is run as: python {script}"
