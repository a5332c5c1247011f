"""The first runs of a search: each level of each factor equally often, in random order, with plain as every sixth run."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sysperf.model.tuning import Choice

PLAIN_EVERY = 6


def balanced(sizes: Sequence[int], runs: int, seed: int) -> list[Choice]:
    """Return the choices of so many runs; the first one is plain."""
    rng = random.Random(f"{seed}/design")  # noqa: S311 - an order, no secret
    plain = (0,) * len(sizes)
    others = runs - -(-runs // PLAIN_EVERY)
    columns = [_equally_often(size, others, rng) for size in sizes]
    rest = iter(list(zip(*columns, strict=True)) if columns else [()] * others)
    return [plain if number % PLAIN_EVERY == 0 else next(rest) for number in range(runs)]


def _equally_often(size: int, runs: int, rng: random.Random) -> list[int]:
    levels: list[int] = []
    while len(levels) < runs:
        levels += rng.sample(range(size), size)
    levels = levels[:runs]
    rng.shuffle(levels)
    return levels
