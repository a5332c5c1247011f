"""What a search found: what each factor did, and the launch profile of the winner."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence

from sysperf.engine.tune import space
from sysperf.engine.tune.plan import Plan
from sysperf.launch.profile import Profile, text
from sysperf.model.comparison import Comparison
from sysperf.model.record import convert
from sysperf.model.text import neutral
from sysperf.model.tuning import Choice, Factor, FactorEffect, LevelEffect
from sysperf.verify.search import effects
from sysperf.verify.search.plan import WRAP, Search

WRAPPED = "sysperf wrap without a profile"
MIN_TOLD = 0.005
"""A cost of the start that is worth a note, a log ratio."""
PROFILE_MARK = "found by sysperf tune"
"""What a profile that `sysperf tune` wrote begins with: only such a file is replaced."""


def words(factors: Sequence[Factor], choice: Choice) -> str:
    """Return a choice as ``threads 8, allocator jemalloc``."""
    if WRAP in choice:
        return WRAPPED
    parts = [f"{factor.name}: {factor.levels[level].name}" for factor, level in zip(factors, choice, strict=True) if level]
    return ", ".join(parts) or "plain"


def effects_of(search: Search, factors: Sequence[Factor]) -> tuple[FactorEffect, ...]:
    """Return what each factor did, the one that mattered most first."""
    model = search.model()
    seen = search.observations()
    shares = effects.importance(model, seen)

    def levels(place: int) -> Iterator[LevelEffect]:
        for level, entry in enumerate(factors[place].levels):
            mean, error = model.effect(place, level), model.error(place, level)
            runs = sum(1 for observation in seen if observation.choice[place] == level)
            yield LevelEffect(entry.name, math.exp(mean), math.exp(mean - error), math.exp(mean + error), runs)

    by_factor = [FactorEffect(factor.name, shares[place], tuple(levels(place))) for place, factor in enumerate(factors)]
    return tuple(sorted(by_factor, key=lambda effect: -effect.importance))


def start_notes(search: Search | None) -> Iterator[str]:
    """Say what the start through `wrap` itself costs, where that is more than chance."""
    if search and search.observations():
        model = search.model()
        cost, error = model.start(), model.start_error()
        if -cost > max(2 * error, MIN_TOLD):
            yield f"starting through `sysperf wrap` as it is: {math.expm1(cost) * 100:+.1f} % ±{error * 100:.1f}; effects are beside it"


def confirmation_notes(count: int) -> Iterator[str]:
    """Say that this is not the first confirmation of a search, and what that costs."""
    if count > 1:
        yield f"{count} confirmations of this search: each has half the level of the one before, so that all together err in 5 %"


def profile_text(plan: Plan, winner: Choice, comparison: Comparison) -> str:
    """Return the launch profile of a confirmed winner; nothing of the command but its program's name is in it."""
    gained = f"{((comparison.ratio or 1) - 1) * 100:.1f} % faster than plain"
    interval = f"{((comparison.low or 1) - 1) * 100:+.1f} to {((comparison.high or 1) - 1) * 100:+.1f} %"
    name = os.path.basename(plan.argv[1] if len(plan.argv) > 1 and not plan.argv[1].startswith("-") else plan.argv[0])
    note = (
        f"{PROFILE_MARK} for {neutral(name, 100)} on {time.strftime('%Y-%m-%d')}: {words(plan.factors, winner)}\n"
        f"{gained} ({interval}; {plan.metric.name}, {comparison.pairs} pairs)"
    )
    fields = {} if WRAP in winner else space.profile_of(plan.factors, winner)
    return text(convert({**fields, "note": note}, Profile))
