"""Facts about when a finding is one, and when it is gone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.evaluate.subject import fingerprint
from sysperf.live.hysteresis import MIN_FLAPS, FindingTracker
from sysperf.live.tracked_finding import Past, Times, Transition
from sysperf.model.finding import Finding, State, Subject
from sysperf.model.rule import Hold, Rule

NUMA = "numa.balancing-on"


def rule(hold: Hold | None = None, name: str = NUMA) -> Rule:
    return Rule(id=name, title="t", scope="process", severity="info", message="m", when="x", explain="e", hold=hold)


def outcome(state: State = "finding", subject: str = "", name: str = NUMA) -> Finding:
    return Finding(
        name, state, "info", "process", "t", Subject("item", subject), "m", key=f"{name}@{subject}", fingerprint=fingerprint(name, subject)
    )


class Case:
    """Evaluations of one rule, so many seconds apart."""

    def __init__(self, hold: Hold | None = None, step_s: float = 15.0, past: Past | None = None, period_s: float = 0.0) -> None:
        self.findings = FindingTracker(past) if past else FindingTracker()
        self.rule = rule(hold)
        self.step_s = step_s
        self.period_s = period_s
        self.now = 100.0

    def see(self, *outcomes: Finding, present: Sequence[str] | None = None) -> list[str]:
        """One evaluation; the kinds of news."""
        self.now += self.step_s
        there = None if present is None else {"process": present}
        news = self.findings.take(Times(self.now, 1e9 + self.now), {NUMA: self.rule}, outcomes, lambda _: self.period_s, there)
        return [item.kind for item in news]

    def pattern(self, text: str) -> str:
        """A letter an evaluation: F finding, . quiet, ? unknown, s suppressed; answers active (A) or not (-)."""
        states: dict[str, tuple[Finding, ...]] = {
            "F": (outcome(),), ".": (), "?": (outcome("unknown"),), "s": (outcome("suppressed"),),
        }  # fmt: skip
        answer = ""
        for letter in text:
            self.see(*states[letter])
            answer += "A" if self.findings.active() else "-"
        return answer


def test_without_a_hold_once_is_enough() -> None:
    """A condition that says nothing about time is a finding at once, and gone at once."""
    assert Case().pattern("F.F") == "A-A"


def test_samples_in_a_row() -> None:
    """Three samples in a row; two with a gap are not three, and going takes as many."""
    assert Case(Hold(samples=3)).pattern("FF.FFF..F...F") == "-----AAAAAA--"


def test_a_window_takes_its_time() -> None:
    """Samples enough, but too early: only when the window is over."""
    assert Case(Hold(samples=2, window_s=60), step_s=15).pattern("FFFFFF") == "----AA"


def test_samples_are_as_many_as_the_window_holds() -> None:
    """Sixty samples in a minute, from facts that are read each 15 s, are five."""
    assert Case(Hold(samples=60, window_s=60), step_s=15, period_s=15).pattern("FFFFFF") == "----AA"


def test_unknown_changes_nothing() -> None:
    """Nobody knows: an active finding stays, and a coming one does not come closer."""
    assert Case(Hold(samples=2)).pattern("F?F") == "--A"
    assert Case(Hold(samples=2)).pattern("FF????") == "-AAAAA"
    assert Case(Hold(samples=2)).pattern("F????") == "-----"


def test_suppressed_is_quiet() -> None:
    """A guard or a waiver ends a finding."""
    assert Case().pattern("Fs") == "A-"


def test_a_process_that_ended_takes_its_findings_along() -> None:
    """However long the rule would wait."""
    case = Case(Hold(samples=10, window_s=0))
    for _ in range(10):
        case.see(outcome(subject="python (pid 7)"), present=["python (pid 7)"])
    assert case.findings.active()

    assert case.see(present=[]) == ["gone"]
    assert not case.findings.active()
    assert case.findings.all()[0].state == "gone"


def test_what_somebody_fixed_is_gone_at_once() -> None:
    """However long it must hold to be one, and however often it came back: a setting was changed for it, and it no longer holds."""
    case = Case(Hold(samples=3))
    assert case.pattern("FFF...FFF") == "--AAA---A"
    case.now += 1
    news = case.findings.take(Times(case.now, 1e9), {NUMA: case.rule}, [], touched={"another.rule"})
    assert news == []
    news = case.findings.take(Times(case.now, 1e9), {NUMA: case.rule}, [], touched={NUMA})
    assert [item.kind for item in news] == ["gone"]


def test_subjects_are_apart() -> None:
    """Two processes of one name share a fingerprint, and no state."""
    case = Case()

    case.see(outcome(subject="python (pid 7)"), outcome(subject="python (pid 8)"))
    case.see(outcome(subject="python (pid 8)"))

    assert [finding.outcome.about for finding in case.findings.active()] == ["python (pid 8)"]


def test_rules_that_were_not_judged_keep_their_findings() -> None:
    """Only what was judged can go."""
    case = Case()
    case.see(outcome())

    case.findings.take(Times(200, 2e9), {"other.rule": rule(name="other.rule")}, [])

    assert case.findings.active()


def test_one_that_comes_and_goes_each_time_stays() -> None:
    """On and off with every evaluation: it is gone once, and from then on held as active."""
    case = Case()

    kinds = [kind for _ in range(200) for kind in (*case.see(outcome()), *case.see())]

    assert kinds == ["finding", "gone", "finding"]
    assert case.findings.active()


def test_one_that_keeps_coming_is_called_flapping() -> None:
    """Each return within the hour doubles the quiet that it takes to go."""
    case = Case()

    kinds = [kind for _ in range(12) for kind in (*case.see(outcome()), *[later for _ in range(8) for later in case.see()])]

    assert kinds[: 2 * MIN_FLAPS] == ["finding", "gone"] * MIN_FLAPS
    assert kinds[2 * MIN_FLAPS :] == ["flapping", "gone", "flapping"]
    assert case.findings.active()


def test_calm_forgives() -> None:
    """After an hour without coming or going it is told again."""
    case = Case()
    for _ in range(20):
        case.see(outcome())
        case.see()
    for _ in range(600):
        case.see()

    assert case.see(outcome()) == ["finding"]


def test_first_seen_outlives_a_restart() -> None:
    """What the store knows of it is when it was seen first; what held a minute ago is active at once, and no news."""
    mine = fingerprint(NUMA, "")
    past = Past({mine: 5e8}.get, {mine: 1e9 + 60.0}.get)
    case = Case(Hold(samples=9, window_s=900), past=past)

    news: list[Transition] = case.findings.take(Times(case.now, 1e9 + 100), {NUMA: case.rule}, [outcome()])

    assert [item.restored for item in news] == [True]
    assert case.findings.active()[0].first_seen == 5e8


def test_what_held_long_ago_waits_as_any_other() -> None:
    """It keeps its first day, and has to hold again."""
    mine = fingerprint(NUMA, "")
    case = Case(Hold(samples=2), past=Past({mine: 5e8}.get, {mine: 6e8}.get))

    assert case.pattern("FF") == "-A"
    assert case.findings.active()[0].first_seen == 5e8


def test_rules_out_of_force_are_gone() -> None:
    """A reload without a rule ends its findings."""
    case = Case(Hold(samples=3))
    case.pattern("FFF")

    news = case.findings.keep_rules(set(), Times(case.now, 1e9))

    assert [item.kind for item in news] == ["gone"]
    assert not case.findings.active()


@settings(max_examples=25)
@given(st.text(alphabet="F.?s", max_size=60), st.integers(1, 4), st.sampled_from([0.0, 20.0, 60.0]))
def test_any_order_of_answers(text: str, samples: int, window_s: float) -> None:
    """It becomes active on a finding only, goes on quiet only, and last_seen is never before first_seen."""
    case = Case(Hold(samples, window_s))
    before = "-"
    for letter in text:
        now = case.pattern(letter)
        assert not (before == "-" and now == "A") or letter == "F"
        assert not (before == "A" and now == "-") or letter in ".s"
        before = now
    for tracked in case.findings.all():
        assert tracked.first_seen <= tracked.last_seen


def test_a_number_that_was_given_away_is_another_subject() -> None:
    """A program ended and another got its number: the finding about the first goes, and that about the second is new."""
    case = Case()
    before = msgspec.structs.replace(outcome(subject="process:7:100"), key=f"{NUMA}@process:7:100")
    after = msgspec.structs.replace(before, key=f"{NUMA}@process:7:200")

    assert case.see(before, present=["process:7:100"]) == ["finding"]
    assert sorted(case.see(after, present=["process:7:200"])) == ["finding", "gone"]
    assert [finding.outcome.key for finding in case.findings.active()] == [after.key]
