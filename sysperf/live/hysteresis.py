"""Findings over time: one that comes and goes is no news, one that stays is.

A rule says how long its condition must hold (`hold = { samples, window_s }`). A finding becomes active when the
condition held so often in a row and for so long, and is gone after as much quiet. Unknown is neither: it changes
nothing. One that keeps coming back needs twice as much quiet each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Literal, NamedTuple

from sysperf.evaluate.judge import rank
from sysperf.model.outcome import Outcome
from sysperf.model.record import Record, fact
from sysperf.model.rule import Hold, Rule

ONCE = Hold()
CALM_S = 3600.0
"""After so long without coming or going, a finding is no longer flapping."""
MOST_DOUBLINGS = 5
FLAPPING_FROM = 3
RESTORE_S = 900.0
"""A finding that held so recently, before a restart, is active again at once."""
GONE_KEPT_S = 3600.0
EARLY_S = 0.5
"""Samples come when a timer says, not to the millisecond."""
MOST_GONE = 200
MOST_FINDINGS = 5_000

Kind = Literal["finding", "gone", "flapping"]


class TrackedFinding(Record):
    """A finding over time: what a rule says, since when, and whether it still does."""

    outcome: Outcome
    first_seen: Annotated[float, fact("when it was found first, in Unix time; agents before this one count")]
    last_seen: Annotated[float, fact("when it held last, in Unix time")]
    state: Annotated[Literal["active", "gone"], fact("gone: it held before, and no longer does")] = "active"
    samples: Annotated[int, fact("in how many samples in a row it held; 0 once it is gone")] = 0


class Transition(NamedTuple):
    """What changed: a finding is new, is gone, or keeps coming and going."""

    kind: Kind
    held: TrackedFinding
    restored: bool = False
    """It held before a restart already: nobody needs to hear of it again."""


class Times(NamedTuple):
    """The moment of an evaluation: on the clock that never jumps, and on the one that people read."""

    now_s: float
    at: float


class Past(NamedTuple):
    """What was known before this agent started: when a finding held first and last, in Unix time."""

    first_seen: Callable[[str], float | None]
    last_seen: Callable[[str], float | None]


NO_PAST = Past(lambda _: None, lambda _: None)


class _Finding:
    """One rule about one subject."""

    __slots__ = ("active", "changed_s", "fired", "fired_s", "first_seen", "flaps", "last_seen", "outcome", "quiet", "quiet_s")

    def __init__(self, outcome: Outcome, at: float, now_s: float) -> None:
        self.outcome = outcome
        self.active = False
        self.fired = self.quiet = self.flaps = 0
        self.fired_s = self.quiet_s = now_s
        self.changed_s = -math.inf
        self.first_seen = self.last_seen = at

    def held(self) -> TrackedFinding:
        return TrackedFinding(
            self.outcome, self.first_seen, self.last_seen, "active" if self.active else "gone", self.fired if self.active else 0
        )


class FindingTracker:
    """All findings that are active, about to be, or went lately."""

    def __init__(self, past: Past = NO_PAST) -> None:
        self._past = past
        self._known: dict[str, _Finding] = {}
        """By the key of the outcome: a rule about one very subject."""

    def take(
        self,
        times: Times,
        rules: Mapping[str, Rule],
        outcomes: Iterable[Outcome],
        period_s: Callable[[Rule], float] = lambda _: 0.0,
        present: Mapping[str, Collection[str]] | None = None,
        touched: Collection[str] = (),
    ) -> list[Transition]:
        """One evaluation of these rules, about every `period_s` seconds; returns what changed.

        `present` holds the subjects that exist by scope, as keys name them: what was said of one that ended is gone at once. So is what
        no longer holds of the rules `touched`, for which somebody has just changed a setting: that is no coming and going.
        """
        news: list[Transition] = []
        judged = {outcome.key: outcome for outcome in outcomes if outcome.rule in rules}
        for key, outcome in judged.items():
            if outcome.state == "finding":
                news += self._on_fire(key, outcome, times, _need(rules[outcome.rule], period_s))
        for key, finding in list(self._known.items()):
            rule = finding.outcome.rule
            if rule not in rules or ((latest := judged.get(key)) is not None and latest.state != "suppressed"):
                continue
            ended = rule in touched or not _is_present(finding.outcome, present)
            news += self._on_clear(key, finding, times, ONCE if ended else _need(rules[rule], period_s), ended=ended)
        return news

    def keep_rules(self, known: Collection[str], times: Times) -> list[Transition]:
        """Forget what rules said that are no longer in force."""
        gone = [(key, finding) for key, finding in self._known.items() if finding.outcome.rule not in known]
        return [one for key, finding in gone for one in self._on_clear(key, finding, times, ONCE, ended=True)]

    def active(self) -> tuple[TrackedFinding, ...]:
        """What holds now, most costly first."""
        held = (finding.held() for finding in self._known.values() if finding.active)
        return tuple(sorted(held, key=lambda one: rank(one.outcome)))

    def all(self) -> tuple[TrackedFinding, ...]:
        """What holds now, then what went lately, the newest first."""
        gone = [finding.held() for finding in self._known.values() if not finding.active and finding.changed_s > -math.inf]
        return (*self.active(), *sorted(gone, key=lambda one: -one.last_seen)[:MOST_GONE])

    # ------------------------------------------------------------------ inside

    def _on_fire(self, key: str, outcome: Outcome, times: Times, need: Hold) -> list[Transition]:
        finding = self._known.get(key)
        if finding is None:
            if len(self._known) >= MOST_FINDINGS:
                return []
            finding = self._known[key] = _Finding(outcome, times.at, times.now_s)
        if not finding.fired:
            finding.fired_s = times.now_s
        finding.outcome, finding.last_seen, finding.quiet = outcome, times.at, 0
        finding.fired += 1
        if finding.active:
            return []
        restored = self._held_lately(outcome, times) and finding.changed_s == -math.inf
        if not restored and (finding.fired < need.samples or times.now_s - finding.fired_s < need.window_s - EARLY_S):
            return []
        return self._appear(finding, times, restored=restored)

    def _appear(self, finding: _Finding, times: Times, *, restored: bool) -> list[Transition]:
        came_back = finding.changed_s > -math.inf
        finding.flaps = finding.flaps + 1 if came_back and times.now_s - finding.changed_s < CALM_S else 0
        finding.active, finding.changed_s = True, times.now_s
        finding.first_seen = min(finding.first_seen, self._past.first_seen(finding.outcome.fingerprint) or times.at)
        return [Transition("flapping" if finding.flaps >= FLAPPING_FROM else "finding", finding.held(), restored)]

    def _on_clear(self, key: str, finding: _Finding, times: Times, need: Hold, *, ended: bool) -> list[Transition]:
        if not finding.active:
            if finding.changed_s == -math.inf or times.now_s - finding.changed_s > GONE_KEPT_S:
                del self._known[key]
            finding.fired = 0
            return []
        if not finding.quiet:
            finding.quiet_s = times.now_s
        finding.quiet += 1
        factor = 1 << min(finding.flaps, MOST_DOUBLINGS)
        if not ended and (finding.quiet < need.samples * factor or times.now_s - finding.quiet_s < need.window_s * factor - EARLY_S):
            return []
        finding.active, finding.changed_s, finding.fired = False, times.now_s, 0
        return [Transition("gone", finding.held())]

    def _held_lately(self, outcome: Outcome, times: Times) -> bool:
        last = self._past.last_seen(outcome.fingerprint)
        return last is not None and 0 <= times.at - last < RESTORE_S


def _is_present(outcome: Outcome, present: Mapping[str, Collection[str]] | None) -> bool:
    """Whether the subject still exists; where nobody lists those of its scope, it does."""
    subject = outcome.key.partition("@")[2]
    return present is None or subject in present.get(outcome.scope, (subject,))


def _need(rule: Rule, period_s: Callable[[Rule], float]) -> Hold:
    """What a rule asks for, at the pace at which its facts are read: 60 samples of a minute are 5 when read each 15 s."""
    hold, period = rule.hold or ONCE, period_s(rule)
    if not hold.window_s or not period:
        return hold
    return Hold(max(1, min(hold.samples, 1 + math.ceil(hold.window_s / period))), hold.window_s)
