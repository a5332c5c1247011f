"""A study of two variants: pairs of runs until the verdict is clear, as a state that knows nothing of processes.

The protocol: a first pair is discarded, since it warms caches; pairs are looked at after 6, 9, 13, 19, 28 and 40; noisy pairs
are dropped whole, blind to which variant was disturbed; a gain found at an early look is measured again on fresh pairs, since
stopping early overstates it. Where fresh pairs show the opposite, nothing is clear.

Where the time is bounded, the last look is when it is over. How many pairs there are by then follows from how long runs take, whichever
variant ran, and not from their differences: that look is as good as one after a number of pairs that was known before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from sysperf.verify import stats
from sysperf.verify.stats import LOOKS, TOTAL_LEVEL, Interval, Spread, Verdict

MIN_FRESH_PAIRS = 5
MAX_DROPPED_SHARE = 0.2
MIN_FORECAST_PAIRS = 3


class Progress(NamedTuple):
    """The state of a study."""

    verdict: Verdict | None
    """None: more pairs are to be run."""
    interval: Interval | None
    """Of all pairs so far, at the level of a look; None before two pairs."""
    gain: Interval | None = None
    """What is kept: of fresh pairs where the study stopped early, else of all; where noise ended it, one for any time."""
    reason: str = ""
    """Why it is unclear; empty where it has too few pairs."""


class Study(NamedTuple):
    """The log ratios of speeds (B over A) of the pairs that count, and how many were dropped."""

    margin: float = math.log(1.01)
    """Differences within ±margin, a log ratio, are called `same`."""
    looks: Sequence[int] = LOOKS
    one_look: bool = False
    """Look once, at the end: all pairs make one interval at 95 %, the narrowest that so many pairs can give."""
    one_look_level: float = TOTAL_LEVEL
    """The two-sided level of that look: lower where it is one of several that together have 5 %."""
    pairs: tuple[float, ...] = ()
    fresh: tuple[float, ...] = ()
    """Pairs run after the verdict, to measure the gain without the bias of an early stop."""
    dropped: int = 0
    spread: Spread | None = None
    """What comparisons beside this one tell of the spread of its pairs."""

    @property
    def level(self) -> float:
        """The two-sided level of each look."""
        return self.one_look_level if self.one_look else stats.look_level(len(self.looks))

    def with_pair(self, log_ratio: float) -> Study:
        """Return the study with another pair, in the phase in which it is."""
        if self._verdict() is None:
            return self._replace(pairs=(*self.pairs, log_ratio))
        return self._replace(fresh=(*self.fresh, log_ratio))

    def with_pairs(self, log_ratios: Sequence[float], dropped: int) -> Study:
        """Return the study with all these pairs, in their order, and so many that the noise guard refused. It has none before."""
        for look in (look for look in self.looks if look <= len(log_ratios)):
            study = self._replace(pairs=tuple(log_ratios[:look]), dropped=dropped)
            if study.decided():
                fresh = study.fresh_pairs() if study.is_early() else 0
                return study._replace(fresh=tuple(log_ratios[look : look + fresh]))
        return self._replace(pairs=tuple(log_ratios[: self.looks[-1]]), dropped=dropped)

    def with_room_for(self, pairs: float, max_pairs: int) -> Study:
        """Return the study with its next looks planned, where there is time for about so many pairs in all.

        An early look is worth taking where its fresh pairs have time, too. The looks that were made stay, also that at the end of a
        time that was allowed before. Where one look was asked for and made, there is no other.
        """
        if self._verdict() not in ((None,) if self.one_look else (None, "unclear")):
            return self
        done = len(self.pairs)
        planned = (max_pairs,) if self.one_look else stats.looks(max_pairs)
        to_come = (look for look in planned if look > done and (look == max_pairs or look + _fresh_pairs(look) <= pairs))
        return self._replace(looks=(*(look for look in self.looks if look <= done), *to_come))

    def at_the_end(self) -> Study:
        """Return the study as it is when its time is over: the last look is now, at all its pairs. Needs two pairs."""
        pairs = (*self.pairs, *self.fresh)
        made = (look for look in self.looks if look < len(self.pairs))  # an early verdict whose fresh pairs had no time is no verdict
        return self._replace(looks=(*made, len(pairs)), pairs=pairs, fresh=())

    def progress(self) -> Progress:
        """Return the verdict and the interval, or that more pairs are needed."""
        interval = self._interval() if len(self.pairs) > 1 else None
        if self._too_noisy():
            total = self.dropped + len(self.pairs) + len(self.fresh)
            gain = stats.anytime_interval(self.pairs)
            return Progress("unclear", interval, gain, f"{self.dropped} of {total} pairs were disturbed")
        verdict = self._verdict()
        if verdict is None or (self.is_early() and len(self.fresh) < self.fresh_pairs()):
            return Progress(None, interval)
        if not self.is_early():
            return Progress(verdict, interval, interval)
        gain = stats.interval(self.fresh, TOTAL_LEVEL)
        if (gain.mean > 0) != (verdict == "faster"):
            return Progress("unclear", interval, gain, f"{verdict} in the first {len(self.pairs)} pairs, the opposite in the further ones")
        return Progress(verdict, interval, gain)

    def pairs_needed(self) -> int | None:
        """Estimate how many pairs decide between a difference and none; None before three pairs."""
        return stats.pairs_needed(self.pairs, self.margin) if len(self.pairs) >= MIN_FORECAST_PAIRS else None

    def more_pairs(self) -> int:
        """Estimate how many more pairs decide; before three pairs, how many the first look asks for."""
        return max(1, (self.pairs_needed() or LOOKS[0]) - len(self.pairs))

    def fresh_pairs(self) -> int:
        """Return how many fresh pairs an early verdict asks for: half as many as it took, and at least five."""
        return _fresh_pairs(len(self.pairs))

    def decided(self) -> bool:
        """Whether the latest look gave a verdict."""
        return self._verdict() is not None

    def is_early(self) -> bool:
        """Whether a look before the last one found a difference, which fresh pairs are to show."""
        return self._verdict() in ("faster", "slower") and len(self.pairs) < self.looks[-1]

    def p_value(self) -> float | None:
        """Return the p-value of no difference: of the fresh pairs where there are enough, which stopping does not bias.

        A study that went to its end was looked at on the way: its p-value is raised by as much as its level is lower than 5 %.
        """
        if len(self.fresh) >= MIN_FRESH_PAIRS:
            return stats.p_value(self.fresh)
        ended = len(self.pairs) >= max(2, self.looks[-1])
        return min(1.0, stats.p_value(self.pairs) * TOTAL_LEVEL / self.level) if ended else None

    def next_look(self) -> int:
        """Return after how many pairs the study may stop."""
        return next((look for look in self.looks if look > len(self.pairs)), self.looks[-1])

    def _verdict(self) -> Verdict | None:
        """Return the verdict of the latest look; None while there is none."""
        if len(self.pairs) not in self.looks:
            return None
        verdict = stats.verdict(self._interval(), self.margin)
        return None if verdict == "unclear" and len(self.pairs) < self.looks[-1] else verdict

    def _interval(self) -> Interval:
        return stats.interval(self.pairs, self.level, self.spread)

    def _too_noisy(self) -> bool:
        total = self.dropped + len(self.pairs) + len(self.fresh)
        return total >= self.looks[0] and self.dropped > MAX_DROPPED_SHARE * total


def _fresh_pairs(pairs: int) -> int:
    return max(MIN_FRESH_PAIRS, -(-pairs // 2))
