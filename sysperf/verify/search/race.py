"""The race of the best choices against plain, in shuffled blocks: who falls behind is out.

After irace (López-Ibáñez et al., Operations Research Perspectives 3, 2016): a choice is dropped after at least three blocks when
it is two standard errors behind the one in front. A choice whose runs vary more than plain's is taken for that much slower, since
what is fast only sometimes disappoints later (Freischuetz et al., TUNA, EuroSys 2025).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from sysperf.model.tuning import Choice

MIN_BLOCKS = 3
MAX_BEHIND, TIE = 2.0, 1.0
"""Standard errors behind the one in front: with more a choice is out, with less it is as good."""

Blocks = Sequence[Mapping[Choice, float]]
"""The log speed of each choice in each block that is complete."""


class Standing(NamedTuple):
    """Where a choice stands after some blocks."""

    choice: Choice
    score: float
    """Log ratio to plain, less what it varies more than plain does."""
    blocks: int


def survivors(candidates: Sequence[Choice], blocks: Blocks) -> list[Choice]:
    """Return the choices that are still in the race, plain always among them."""
    plain = (0,) * len(candidates[0])
    racing = list(candidates)
    for end in range(MIN_BLOCKS, len(blocks) + 1):
        seen = blocks[:end]
        front = max(racing, key=lambda choice: _mean(choice, seen))
        racing = [choice for choice in racing if choice == plain or not _is_behind(choice, front, seen)]
    return racing


def standings(candidates: Sequence[Choice], blocks: Blocks) -> list[Standing]:
    """Return the survivors, best first; plain has the score 0."""
    plain = (0,) * len(candidates[0])
    calm = _spread([block[plain] for block in blocks if plain in block])
    ranking = []
    for choice in survivors(candidates, blocks):
        ratios = [block[choice] - block[plain] for block in blocks if choice in block and plain in block]
        wild = _spread([block[choice] for block in blocks if choice in block])
        score = 0.0 if choice == plain else fmean(ratios) - max(0.0, wild - calm) if ratios else -math.inf
        ranking.append(Standing(choice, score, len(ratios)))
    return sorted(ranking, key=lambda standing: -standing.score)


def winner(candidates: Sequence[Choice], blocks: Blocks) -> Choice:
    """Return the best choice: of those that are within a standard error of the one in front, the one that changes least."""
    ranked = [standing for standing in standings(candidates, blocks) if standing.blocks]
    front = ranked[0].choice
    tied = [standing.choice for standing in ranked if standing.choice == front or not _is_behind(standing.choice, front, blocks, TIE)]
    return min(tied, key=changes)


def changes(choice: Choice) -> int:
    """Return how many factors a choice sets; `sysperf wrap` without a profile, whose levels are negative, counts as one."""
    return 1 if min(choice, default=0) < 0 else sum(1 for level in choice if level)


def order(racing: Sequence[Choice], block: int, seed: int) -> list[Choice]:
    """Return the order of a block's runs."""
    return random.Random(f"{seed}/race/{block}").sample(list(racing), len(racing))  # noqa: S311 - an order, no secret


def _mean(choice: Choice, blocks: Blocks) -> float:
    values = [block[choice] for block in blocks if choice in block]
    return fmean(values) if len(values) == len(blocks) else -math.inf


def _is_behind(choice: Choice, front: Choice, blocks: Blocks, errors: float = MAX_BEHIND) -> bool:
    """Whether a choice is slower than the one in front by so many errors; one without a value in some block has failed there."""
    behind = [block[front] - block[choice] for block in blocks if choice in block and front in block]
    if len(behind) < len(blocks):
        return True
    error = stdev(behind) / math.sqrt(len(behind))
    return choice != front and fmean(behind) > errors * error


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
