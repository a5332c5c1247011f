"""The first runs of a search: each level of each factor equally often, in random order, with plain as every sixth run."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sysperf.model.tuning import Choice

PLAIN_EVERY = 6


def balanced(sizes: Sequence[int], runs: int, seed: int) -> list[Choice]:
    """Return the choices of so many runs; the first one is plain.

    More runs begin with those of fewer, so that it may be decided late how many there are.
    """
    plain = (0,) * len(sizes)
    others = runs - -(-runs // PLAIN_EVERY)
    columns = [_equally_often(size, others, random.Random(f"{seed}/design/{place}")) for place, size in enumerate(sizes)]  # noqa: S311 - an order, no secret
    rest = iter(list(zip(*columns, strict=True)) if columns else [()] * others)
    return [plain if number % PLAIN_EVERY == 0 else next(rest) for number in range(runs)]


def _equally_often(size: int, runs: int, rng: random.Random) -> list[int]:
    """Levels in rounds of all of them, each in an order of its own."""
    levels: list[int] = []
    while len(levels) < runs:
        levels += rng.sample(range(size), size)
    return levels[:runs]
