"""Findings over time: one is reported when it stays, not each time that it comes and goes.

A rule says how long its condition must hold (`hold = { samples, window_s }`). A finding becomes active when the
condition held so often in a row and for so long, and is gone after as much quiet. Unknown is neither: it changes
nothing. One that keeps coming back needs twice as much quiet each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal

from sysperf.live.tracked_finding import NO_PAST, Past, Times, TrackedFinding, Transition
from sysperf.model.finding import Finding, by_weight
from sysperf.model.rule import Hold, Rule

ONCE = Hold()
STEADY_AFTER_S = 3600.0
"""After so long without coming or going, a finding is no longer flapping."""
MAX_DOUBLINGS = 5
MIN_FLAPS = 3
KEEP_GONE_S = 3600.0
MAX_EARLY_S = 0.5
"""Samples come when a timer says, not to the millisecond."""
MAX_GONE = 200
MAX_FINDINGS = 5_000


class _History:
    """How one rule held about one subject: when it began and ended, and how often it came back."""

    __slots__ = ("active", "changed_s", "fired", "fired_s", "first_seen", "flaps", "last_seen", "outcome", "quiet", "quiet_s")

    def __init__(self, outcome: Finding, times: Times) -> None:
        self.outcome = outcome
        self.active = False
        self.fired = self.quiet = self.flaps = 0
        self.fired_s = self.quiet_s = times.now_s
        self.changed_s = -math.inf
        self.first_seen = self.last_seen = times.at

    @property
    def came_before(self) -> bool:
        """Whether it has ever been active."""
        return self.changed_s > -math.inf

    def finding(self) -> TrackedFinding:
        """What is told of it."""
        state: Literal["active", "gone"] = "active" if self.active else "gone"
        return TrackedFinding(self.outcome, self.first_seen, self.last_seen, state, self.fired if self.active else 0)

    def on_fire(self, outcome: Finding, times: Times, need: Hold, past: Past) -> list[Transition]:
        """The condition held."""
        if not self.fired:
            self.fired_s = times.now_s
        self.outcome, self.last_seen, self.quiet = outcome, times.at, 0
        self.fired += 1
        if self.active:
            return []
        restored = not self.came_before and past.held_lately(outcome, times)
        if not restored and (self.fired < need.samples or times.now_s - self.fired_s < need.window_s - MAX_EARLY_S):
            return []
        self.flaps = self.flaps + 1 if self.came_before and times.now_s - self.changed_s < STEADY_AFTER_S else 0
        self.active, self.changed_s = True, times.now_s
        self.first_seen = min(self.first_seen, past.first_seen(outcome.fingerprint) or times.at)
        return [Transition("flapping" if self.flaps >= MIN_FLAPS else "finding", self.finding(), restored)]

    def on_clear(self, times: Times, need: Hold, *, ended: bool) -> list[Transition]:
        """The condition did not hold; with `ended`, it cannot hold again."""
        if not self.active:
            self.fired = 0
            return []
        if not self.quiet:
            self.quiet_s = times.now_s
        self.quiet += 1
        factor = 1 << min(self.flaps, MAX_DOUBLINGS)
        if not ended and (self.quiet < need.samples * factor or times.now_s - self.quiet_s < need.window_s * factor - MAX_EARLY_S):
            return []
        self.active, self.changed_s, self.fired = False, times.now_s, 0
        return [Transition("gone", self.finding())]

    def is_forgotten(self, times: Times) -> bool:
        """Whether it is over for so long that nobody asks for it, or never became active."""
        return not self.active and (not self.came_before or times.now_s - self.changed_s > KEEP_GONE_S)


class FindingTracker:
    """All findings that are active, about to be, or went lately."""

    def __init__(self, past: Past = NO_PAST) -> None:
        self._past = past
        self._known: dict[str, _History] = {}
        """By the key of the outcome: a rule about one very subject."""

    def take(
        self,
        times: Times,
        rules: Mapping[str, Rule],
        outcomes: Iterable[Finding],
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
            if outcome.state == "finding" and (history := self._history(key, outcome, times)) is not None:
                fired = rules[outcome.rule]
                news += history.on_fire(outcome, times, _need(fired, period_s), self._past)
        for key, history in list(self._known.items()):
            rule = history.outcome.rule
            if rule not in rules or ((latest := judged.get(key)) is not None and latest.state != "suppressed"):
                continue
            ended = rule in touched or not _is_present(history.outcome, present)
            news += self._on_clear(key, times, ONCE if ended else _need(rules[rule], period_s), ended=ended)
        return news

    def keep_rules(self, known: Collection[str], times: Times) -> list[Transition]:
        """Forget what rules said that are no longer in force."""
        gone = [key for key, history in self._known.items() if history.outcome.rule not in known]
        return [transition for key in gone for transition in self._on_clear(key, times, ONCE, ended=True)]

    def active(self) -> tuple[TrackedFinding, ...]:
        """What holds now, most costly first."""
        active = (history.finding() for history in self._known.values() if history.active)
        return tuple(sorted(active, key=lambda finding: by_weight(finding.outcome)))

    def all(self) -> tuple[TrackedFinding, ...]:
        """What holds now, then what went lately, the newest first."""
        gone = [history.finding() for history in self._known.values() if not history.active and history.came_before]
        return (*self.active(), *sorted(gone, key=lambda finding: -finding.last_seen)[:MAX_GONE])

    def _history(self, key: str, outcome: Finding, times: Times) -> _History | None:
        """What is known of this finding, from now on at least; None when there are too many."""
        if key not in self._known and len(self._known) < MAX_FINDINGS:
            self._known[key] = _History(outcome, times)
        return self._known.get(key)

    def _on_clear(self, key: str, times: Times, need: Hold, *, ended: bool) -> list[Transition]:
        history = self._known[key]
        if history.is_forgotten(times):
            del self._known[key]
            return []
        return history.on_clear(times, need, ended=ended)


def _is_present(outcome: Finding, present: Mapping[str, Collection[str]] | None) -> bool:
    """Whether the subject still exists; where nobody lists those of its scope, it does."""
    subject = outcome.subject.identity
    return present is None or subject in present.get(outcome.scope, (subject,))


def _need(rule: Rule, period_s: Callable[[Rule], float]) -> Hold:
    """What a rule asks for, at the pace at which its facts are read: 60 samples of a minute are 5 when read each 15 s."""
    hold, period = rule.hold or ONCE, period_s(rule)
    if not hold.window_s or not period:
        return hold
    return Hold(max(1, min(hold.samples, 1 + math.ceil(hold.window_s / period))), hold.window_s)
