"""A finding over time, and the event when it comes or goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

from sysperf.model.finding import Finding
from sysperf.model.record import Record, fact

RESTORE_WITHIN_S = 900.0
"""A finding that held so recently, before a restart, is active again at once."""
Kind = Literal["finding", "gone", "flapping"]


class TrackedFinding(Record):
    """A finding over time: what a rule says, since when, and whether it still does."""

    outcome: Finding
    first_seen: Annotated[float, fact("when it was found first, in Unix time; agents before this one count")]
    last_seen: Annotated[float, fact("when it held last, in Unix time")]
    state: Annotated[Literal["active", "gone"], fact("gone: it held before, and no longer does")] = "active"
    samples: Annotated[int, fact("in how many samples in a row it held; 0 once it is gone")] = 0


class Transition(NamedTuple):
    """What changed: a finding is new, is gone, or keeps coming and going."""

    kind: Kind
    finding: TrackedFinding
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

    def held_lately(self, outcome: Finding, times: Times) -> bool:
        """Whether a finding held shortly before this agent started."""
        last = self.last_seen(outcome.fingerprint)
        return last is not None and 0 <= times.at - last < RESTORE_WITHIN_S


NO_PAST = Past(lambda _: None, lambda _: None)
