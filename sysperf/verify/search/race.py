"""The race of the best choices against plain, in shuffled blocks: who falls behind is out.

After irace (López-Ibáñez et al., Operations Research Perspectives 3, 2016): a choice is dropped after at least three blocks when
it is two standard errors behind the one in front. A choice whose runs vary more than plain's is taken for that much slower, since
what is fast only sometimes disappoints later (Freischuetz et al., TUNA, EuroSys 2025).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from sysperf.model.tuning import Choice

MIN_BLOCKS = 3
MAX_BEHIND, TIE = 2.0, 1.0
"""Standard errors behind the one in front: with more a choice is out, with less it is as good."""
MIN_TIE, MAX_TIE = 0.002, 0.02
"""Log ratios: what is less behind is as good, and what is further behind is not, however much runs vary."""
MIN_WILD = 3.0
"""A choice varies more than plain does when its spread is so much larger: those of a few runs differ by chance."""

Blocks = Sequence[Mapping[Choice, float]]
"""The log speed of each choice in each block that is complete."""


class Standing(NamedTuple):
    """The standing of a choice after some blocks."""

    choice: Choice
    score: float
    """Log ratio to plain, less what it varies more than plain does, where it is much more."""
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


def standings(candidates: Sequence[Choice], blocks: Blocks, gain: Callable[[Choice], float]) -> list[Standing]:
    """Return the survivors, best first; plain has the score 0. `gain` is a choice's log ratio to plain by all that is known of it."""
    plain = (0,) * len(candidates[0])
    calm = _spread([block[plain] for block in blocks if plain in block])
    ranking = []
    for choice in survivors(candidates, blocks):
        wild = _spread([block[choice] for block in blocks if choice in block])
        more = wild - calm if wild > MIN_WILD * calm else 0.0
        count = sum(1 for block in blocks if choice in block and plain in block)
        ranking.append(Standing(choice, 0.0 if choice == plain else gain(choice) - more, count))
    return sorted(ranking, key=lambda standing: -standing.score)


def winner(candidates: Sequence[Choice], blocks: Blocks, gain: Callable[[Choice], float], worth: float = 0.0) -> Choice:
    """Return the best choice: of those that are within a standard error of the one in front, and 2 %, the one that changes least.

    Of those that change as much, one that names its settings: what `sysperf wrap` does by itself may be something else on another day.
    Where later levels cost more, those that gain less than they are `worth`, a log ratio, are as good, and the first of these wins.
    """
    ranked = [standing for standing in standings(candidates, blocks, gain) if standing.blocks]
    front = ranked[0]

    def is_as_good(standing: Standing) -> bool:
        error = TIE * _error(standing.choice, front.choice, blocks)
        return front.score - standing.score <= max(MIN_TIE, worth, min(MAX_TIE, error))

    as_good = (standing.choice for standing in ranked if is_as_good(standing))
    return min(as_good, key=lambda choice: (changes(choice), min(choice) < 0, choice if worth else ()))


def changes(choice: Choice) -> int:
    """Return how many factors a choice sets; `sysperf wrap` without a profile, whose levels are negative, counts as one."""
    return 1 if min(choice, default=0) < 0 else sum(1 for level in choice if level)


def order(racing: Sequence[Choice], block: int, seed: int) -> list[Choice]:
    """Return the order of a block's runs."""
    return random.Random(f"{seed}/race/{block}").sample(list(racing), len(racing))  # noqa: S311 - an order, no secret


def _mean(choice: Choice, blocks: Blocks) -> float:
    values = [block[choice] for block in blocks if choice in block]
    return fmean(values) if len(values) == len(blocks) else -math.inf


def _is_behind(choice: Choice, front: Choice, blocks: Blocks) -> bool:
    """Whether a choice is slower than the one in front by so many errors; one without a value in some block has failed there."""
    behind = [block[front] - block[choice] for block in blocks if choice in block and front in block]
    if len(behind) < len(blocks):
        return True
    return choice != front and fmean(behind) > MAX_BEHIND * _error(choice, front, blocks)


def _error(choice: Choice, front: Choice, blocks: Blocks) -> float:
    """The standard error of how far a choice is behind another one."""
    behind = [block[front] - block[choice] for block in blocks if choice in block and front in block]
    return stdev(behind) / math.sqrt(len(behind)) if len(behind) > 1 else 0.0


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
