"""A ladder: which configurations of the trainer are run, and which two of them are compared for which rung."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from sysperf.plugin import Rung

LADDER, DOUBTFUL = "ladder", "doubtful"
Kind = Literal["added", "left out", "at the bottom", "at the top"]
Configuration = tuple[str, ...]
"""Ids of the rungs that are on, in the order of the ladder."""
LEFT_OUT_PER_TOP = 2
"""Configurations without a rung between two runs of the whole ladder."""


class Compared(NamedTuple):
    """Two configurations that differ by a rung."""

    rung: str
    kind: Kind
    without: Configuration
    with_: Configuration


class Ladder:
    """The rungs that can be had here, from the bottom to the top."""

    def __init__(self, rungs: Sequence[Rung], lacks: Mapping[str, str], wanted: Iterable[str] = ()) -> None:
        self.rungs = rungs
        self._order = [rung.id for rung in rungs]
        self._by_id = {rung.id: rung for rung in rungs}
        wanted = self._with_needs(wanted)
        self.skipped = {rung.id: why for rung in rungs if (why := lacks.get(rung.id) or self._unwanted(rung, wanted))}
        """Why a rung is not tried."""
        self._drop_what_lacks_its_ground()
        climbed = [rung for rung in rungs if rung.role == LADDER and rung.id not in self.skipped]
        self.steps = [tuple(rung.id for rung in climbed[:number]) for number in range(len(climbed) + 1)]
        """The configurations of the climb: no rung, one, two and so on."""

    @property
    def top(self) -> Configuration:
        """All rungs."""
        return self.steps[-1]

    def climb(self) -> list[Compared]:
        """Return each rung added to those below it, and what is doubtful at the bottom."""
        added = [Compared(after[-1], "added", before, after) for before, after in itertools.pairwise(self.steps)]
        return [*added, *(self._alone(rung, (), "at the bottom") for rung in self._extra())]

    def from_top(self) -> list[Compared]:
        """Return the whole ladder against all but one rung, and what is doubtful at the top."""
        left_out = [Compared(rung, "left out", self.without(rung), self.top) for rung in self.top] if len(self.top) > 1 else []
        return [*left_out, *(self._alone(rung, self.top, "at the top") for rung in self._extra() if self.top)]

    def without(self, rung: str) -> Configuration:
        """Return the whole ladder without a rung and what needs it."""
        return tuple(other for other in self.top if rung not in self._with_needs([other]))

    def _extra(self) -> list[Rung]:
        """Return those that are tried and not climbed: advice that is doubtful, variants, what buys memory."""
        return [rung for rung in self.rungs if rung.role != LADDER and rung.id not in self.skipped]

    def _alone(self, rung: Rung, ground: Configuration, kind: Kind) -> Compared:
        """A rung on some ground and what it needs; what it takes the place of is off."""
        base = {*ground, *self._with_needs([rung.id])} - {rung.id}
        rivals = {one for one in base if rung.instead_of and rung.instead_of in self._with_needs([one])}
        return Compared(rung.id, kind, self._sorted(base), self._sorted(base - rivals | {rung.id}))

    def _with_needs(self, rungs: Iterable[str]) -> set[str]:
        """Return these rungs, and what they need."""
        found, todo = set[str](), list(rungs)
        while todo:
            one = todo.pop()
            if one not in found:
                found.add(one)
                todo += self._by_id[one].requires
        return found

    def _sorted(self, rungs: Iterable[str]) -> Configuration:
        return tuple(sorted(rungs, key=self._order.index))

    def _drop_what_lacks_its_ground(self) -> None:
        for _ in self.rungs:
            for rung in self.rungs:
                missing = [other for other in rung.requires if other in self.skipped]
                if missing and rung.id not in self.skipped:
                    self.skipped[rung.id] = f"it needs {missing[0]}: {self.skipped[missing[0]]}"

    @staticmethod
    def _unwanted(rung: Rung, wanted: Collection[str]) -> str:
        if wanted:
            return "" if rung.id in wanted else "not asked for"
        return "" if rung.role in (LADDER, DOUBTFUL) else f"tried where --rungs names it: {ROLES.get(rung.role, rung.role)}"


ROLES = {"variant": "another form of a rung", "memory": "it buys memory and costs time"}


def affordable(compared: Sequence[Compared], top: Configuration, cost_s: Mapping[Configuration, float], seconds: float) -> list[Compared]:
    """Return the comparisons that a round of so many seconds has room for: the whole ladder with its bottom first, then the cheapest.

    What their runs gave so far is not looked at: comparisons chosen by it would seem to change more than they do.
    """
    runs, chosen = {(), top}, set[str]()
    if not top or sum(cost_s[one] for one in runs) > seconds:
        return []
    for pair in sorted(compared, key=lambda pair: cost_s[pair.without] + cost_s[pair.with_]):
        wanted = runs | set(pair[2:])
        if sum(cost_s[one] for one in wanted) <= seconds:
            runs, chosen = wanted, chosen | {pair.rung}
    return [Compared(WHOLE, "added", (), top), *(pair for pair in compared if pair.rung in chosen)]


WHOLE = ""
"""In place of a rung: all of them."""


def sequence(compared: Sequence[Compared], top: Configuration | None, drawn: random.Random) -> list[Configuration]:
    """Return every configuration of these comparisons, neighbours in time where they are compared, from either end.

    Where all are compared with the whole ladder, that runs between them again and again.
    """
    ordered = list(dict.fromkeys(one for pair in compared for one in (pair.without, pair.with_)))
    if top is not None:
        others = [one for one in ordered if one != top]
        drawn.shuffle(others)
        groups = [others[at : at + LEFT_OUT_PER_TOP] for at in range(0, len(others), LEFT_OUT_PER_TOP)]
        return [top, *(one for group in groups for one in (*group, top))]
    chain = sorted(ordered, key=len)
    return chain if drawn.random() < 0.5 else chain[::-1]
