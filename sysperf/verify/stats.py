"""The statistics of paired comparisons: intervals that stay right although they are looked at while they grow.

The unit is one launch of the program; the figure of a pair is the logarithm of its ratio of speeds, so that 0 means no
difference. Group-sequential looks follow Pocock, Biometrika 64 (1977): the same level at each look, and 5 % in total. The
e-process for a symmetric null is the mixture of ∏(1 + tanh(λd)) over λ, after Ramdas et al., arXiv 2210.01948 §5.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist, fmean
from typing import Literal, NamedTuple

Verdict = Literal["faster", "slower", "same", "unclear"]

LOOKS = (6, 9, 13, 19, 28, 40)
"""Pairs after which a study may stop."""
LOOK_LEVEL = 0.0155
"""Two-sided level of each look. A program is called different from itself in at most 5 % of the studies, by simulation
(tests/verify/test_stats.py): the fresh pairs after an early stop, which must agree, make up for what six to ten looks add."""
LOOK_GROWTH = 1.45
MAX_LOOKS_AT_LEVEL = 10
"""With more looks than these the level of each is lower."""
TOTAL_LEVEL = 0.05
POWER_ONE_SIDED, POWER_TWO_SIDED = 0.84, 1.28
"""Standard errors by which a mean misses the true one to one side, or to either, in one of five studies."""
MAX_LOG_RATIO = 700.0
MAX_FORECAST_PAIRS = 1_000_000
E_VALUE_LIMIT = 1 / TOTAL_LEVEL
MIN_ANYTIME_PAIRS = 6
"""Of fewer pairs the e-process excludes nothing: five that agree are as likely as 6 % by chance."""
LAMBDAS = tuple(sign * 3 * 2**power for power in range(11) for sign in (1, -1))
"""Bets of the e-process, per unit of log ratio: from differences of 30 % to some of 0.03 %."""


class Interval(NamedTuple):
    """An interval of a log ratio, with its mean."""

    low: float
    mean: float
    high: float
    level: float
    """How often an interval made this way misses the true value."""

    def ratios(self) -> tuple[float, float, float]:
        """Return low, mean and high as ratios of speeds: 1 is no difference. None is beyond what a float can hold."""
        low, mean, high = (math.exp(max(-MAX_LOG_RATIO, min(MAX_LOG_RATIO, value))) for value in (self.low, self.mean, self.high))
        return low, mean, high


def looks(max_pairs: int) -> tuple[int, ...]:
    """Return after how many pairs a study of at most so many may stop; beyond 40 each look has 1.45 times the pairs of the one before."""
    planned = list(LOOKS)
    while planned[-1] < max_pairs:
        planned.append(round(LOOK_GROWTH * planned[-1]))
    return (*(look for look in planned if look < max_pairs), max_pairs)


def look_level(count: int) -> float:
    """Return the level of each of so many looks."""
    return LOOK_LEVEL * min(1.0, MAX_LOOKS_AT_LEVEL / count)


class Spread(NamedTuple):
    """What many comparisons of a few pairs tell of the spread of one: a variance, and how many degrees of freedom it is worth."""

    variance: float
    freedom: float


def interval(log_ratios: Sequence[float], level: float, spread: Spread | None = None) -> Interval:
    """Return Student's interval of the mean, of at least two values.

    With the spread of other comparisons their degrees of freedom count too. The variance is then never below their own: an outlier, which
    few values hide, must not look like a gain.
    """
    mean, variance, freedom = fmean(log_ratios), _variance(log_ratios), len(log_ratios) - 1
    if spread is not None:
        joined = (spread.freedom * spread.variance + freedom * variance) / (spread.freedom + freedom)
        variance, freedom = max(variance, joined), freedom + int(spread.freedom)
    half = t_quantile(1 - level / 2, freedom) * math.sqrt(variance / len(log_ratios))
    return Interval(mean - half, mean, mean + half, level)


def _variance(values: Sequence[float]) -> float:
    """Return the sample variance of at least two values; `statistics.variance` adds fractions, which takes forty times as long."""
    above = [value - values[0] for value in values]  # so that equal ones have none
    mean = fmean(above)
    return math.fsum((part - mean) ** 2 for part in above) / (len(values) - 1)


MIN_SETS = 4
"""Comparisons below which nothing is said of the spread of another one."""
MAX_FREEDOM = 200.0


def spread_of(sets: Iterable[Sequence[float]]) -> Spread | None:
    """Estimate from comparisons of a few values each what the spread of one is, by the empirical Bayes method of limma.

    The fewer differences there are between their variances, the more degrees of freedom it is worth. None of fewer than four sets.
    Smyth, Statist. Appl. Genet. Mol. Biol. 3 (2004) article 3, section 6.2: moments of the logarithms of variances.
    """
    known = [(len(values) - 1, variance) for values in sets if len(values) > 1 and (variance := _variance(values)) > 0]
    if len(known) < MIN_SETS:
        return None
    logs = [math.log(variance) - _digamma(freedom / 2) + math.log(freedom / 2) for freedom, variance in known]
    centre = fmean(logs)
    left = _variance(logs) - fmean(_trigamma(freedom / 2) for freedom, _ in known)
    freedom = min(MAX_FREEDOM, 2 * _inverse_trigamma(left)) if left > 0 else MAX_FREEDOM
    return Spread(math.exp(centre + _digamma(freedom / 2) - math.log(freedom / 2)), freedom)


def _digamma(value: float) -> float:
    """Return the derivative of log gamma: the series at 8 and above, the recurrence below (Abramowitz and Stegun 6.3.5 and 6.3.18)."""
    below = 0.0
    while value < 8:
        below, value = below - 1 / value, value + 1
    square = 1 / value**2
    return below + math.log(value) - 0.5 / value - square * (1 / 12 - square * (1 / 120 - square / 252))


def _trigamma(value: float) -> float:
    """Return the second derivative of log gamma, likewise (6.4.6 and 6.4.12)."""
    below = 0.0
    while value < 8:
        below, value = below + 1 / value**2, value + 1
    square = 1 / value**2
    return below + 1 / value + square / 2 + square / value * (1 / 6 - square * (1 / 30 - square / 42))


def _inverse_trigamma(wanted: float) -> float:
    """Return where the trigamma function, which falls, has a value above 0, by bisection of the logarithm."""
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _trigamma(math.exp(middle)) > wanted else (low, middle)
    return math.exp(low)


def verdict(interval: Interval, margin: float) -> Verdict:
    """Judge an interval: `same` lies within ±margin (a log ratio), `faster` and `slower` exclude 0."""
    if -margin <= interval.low and interval.high <= margin:
        return "same"
    if interval.low > 0:
        return "faster"
    return "slower" if interval.high < 0 else "unclear"


def pairs_needed(log_ratios: Sequence[float], margin: float) -> int:
    """Estimate after how many pairs a study decides with a probability of 80 %, were the mean so far the true one.

    It decides when the interval excludes 0, or lies within ±margin. Both are hardest for a gain of half the margin. More pairs have more
    looks, each at a lower level, and a verdict comes at a look.
    """
    mean, spread = abs(fmean(log_ratios)), math.sqrt(_variance(log_ratios))
    needed = LOOKS[0]
    for _ in range(3):  # the level depends on the number of looks, and that on the pairs
        quantile = NormalDist().inv_cdf(1 - look_level(len(looks(needed))) / 2)
        different = (quantile + POWER_ONE_SIDED) * spread / mean if mean else math.inf
        same = (quantile + POWER_TWO_SIDED) * spread / (margin - mean) if mean < margin else math.inf
        needed = max(LOOKS[0], math.ceil(min(different, same, math.sqrt(MAX_FORECAST_PAIRS)) ** 2))
    return next(look for look in looks(2 * MAX_FORECAST_PAIRS) if look >= needed)


def p_value(log_ratios: Sequence[float]) -> float:
    """Return the two-sided p-value of Student's test that the mean is 0."""
    spread = math.sqrt(_variance(log_ratios))
    if spread == 0:
        return 1.0 if fmean(log_ratios) == 0 else 0.0
    statistic = fmean(log_ratios) / (spread / math.sqrt(len(log_ratios)))
    return 2 * (1 - t_cdf(abs(statistic), len(log_ratios) - 1))


def holm(p_values: Sequence[float], level: float = TOTAL_LEVEL) -> list[bool]:
    """Return which hypotheses are rejected by Holm's procedure (Scand. J. Statist. 6, 1979), in the order given."""
    rejected = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        if p_values[index] > level / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


# ---------------------------------------------------------------------- looks at any time


def e_value(log_ratios: Sequence[float], shift: float = 0.0) -> float:
    """Return the evidence against a median difference of `shift`: 20 or more happens by chance at most once in 20 studies.

    It may be looked at after each pair. It asks only that a pair's difference is symmetric around `shift`, which the random
    order within pairs makes true.
    """
    deviations = [value - shift for value in log_ratios]
    products = (sum(_log_payoff(bet * deviation) for deviation in deviations) for bet in LAMBDAS)
    return fmean(math.exp(min(product, 700.0)) for product in products)


def _log_payoff(stake: float) -> float:
    """Return log(1 + tanh(stake)), also where that is too small for 1 + tanh."""
    return math.log(2) - (math.log1p(math.exp(-2 * stake)) if stake > -300 else -2 * stake)


def anytime_interval(log_ratios: Sequence[float]) -> Interval | None:
    """Return the differences that the e-process does not exclude: valid after each pair, and after Ctrl-C. None of fewer than six pairs."""
    if len(log_ratios) < MIN_ANYTIME_PAIRS:
        return None
    mean = fmean(log_ratios)
    reach = max(map(abs, log_ratios)) + 1.0
    return Interval(_edge(log_ratios, mean, mean - reach), mean, _edge(log_ratios, mean, mean + reach), TOTAL_LEVEL)


def _edge(log_ratios: Sequence[float], inside: float, outside: float) -> float:
    """Return the border between `inside` and `outside` by bisection; `inside` where even the mean is excluded."""
    if e_value(log_ratios, outside) < E_VALUE_LIMIT:
        return outside
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if e_value(log_ratios, middle) < E_VALUE_LIMIT else (inside, middle)
    return outside


# ---------------------------------------------------------------------- Student's distribution


@functools.lru_cache(maxsize=256)
def t_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's distribution for a probability of at least 0.5, by bisection: 1e-10 absolute."""
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < probability:
        high *= 2
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, freedom) < probability else (low, middle)
    return high


def t_cdf(value: float, freedom: int) -> float:
    """Return the distribution function of Student's distribution (Abramowitz and Stegun 26.7.3 and 26.7.4: finite sums)."""
    angle = math.atan(value / math.sqrt(freedom))
    cosine = math.cos(angle)
    term = total = cosine if freedom % 2 else 1.0
    for step in range(3 if freedom % 2 else 2, freedom - 1, 2):
        term *= cosine * cosine * (step - 1) / step
        total += term
    if freedom % 2:
        return 0.5 + (angle + (math.sin(angle) * total if freedom > 1 else 0.0)) / math.pi
    return 0.5 + math.sin(angle) * total / 2
