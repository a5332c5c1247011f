"""What each level of each factor does to speed: main effects beside a slow drift, robust against outliers.

Log speeds are fitted by Huber's M-estimator (k = 1.345; Huber and Ronchetti, Robust Statistics, 2009, §7) with a normal prior on
each effect and on each bend of the drift, which makes it ridge regression. The posterior covariance gives standard errors, and
draws for Thompson sampling (Russo et al., arXiv 1707.02038).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from sysperf.model.tuning import Choice

PRIOR_EFFECT = 0.15
"""Standard deviation of an effect, a log ratio, before anything is measured."""
PRIOR_ONE = 3.0
"""The same where there is one factor: each level was run beside plain, and nothing needs to be believed."""
PRIOR_START = 0.05
"""The same of what `sysperf wrap` costs by itself. It gains nothing: what it sets are the levels."""
NO_START = 1e-6
PRIOR_OWN = 0.03
"""The same of what a choice does beside the sum of its effects."""
PRIOR_DRIFT = 0.02
"""Standard deviation of the drift's change from knot to knot, a log ratio."""
KNOT_RUNS = 10
HUBER_K = 1.345
ITERATIONS = 8
MIN_NOISE = 1e-4
_Matrix = list[list[float]]


class Observation(NamedTuple):
    """One run that counts."""

    choice: Choice
    at: int
    """Its place among all runs: drift goes by it."""
    log_speed: float


class Effects(NamedTuple):
    """The fitted model."""

    sizes: tuple[int, ...]
    """Levels of each factor."""
    means: list[float]
    """Effects of the levels 1, 2, … of each factor, one after the other; level 0 has 0. The last one is that of any start but plain's."""
    lower: _Matrix
    """Cholesky factor of their precision, in units of the noise."""
    noise: float
    drift: list[float]
    """Log speed of the plain program at each knot."""
    own: Mapping[Choice, float] = {}
    """What some choices do beside the sum of their effects; `sysperf wrap` without a profile, whose levels are negative, has this alone."""

    def effect(self, factor: int, level: int) -> float:
        """Return a level's log ratio to level 0."""
        return self.means[_column(self.sizes, factor, level)] if level else 0.0

    def error(self, factor: int, level: int) -> float:
        """Return its standard error."""
        return self._error(_column(self.sizes, factor, level)) if level else 0.0

    def start(self) -> float:
        """Return the log ratio of a program that `sysperf wrap` starts as it is, 0 or less: what that costs, where the metric counts it."""
        return self.means[-1]

    def start_error(self) -> float:
        """Return its standard error."""
        return self._error(len(self.means) - 1)

    def _error(self, column: int) -> float:
        unit = [0.0] * len(self.means)
        unit[column] = 1.0
        solved = _forward(self.lower, unit)
        return self.noise * math.sqrt(sum(value * value for value in solved))

    def predicted(self, choice: Choice) -> float:
        """Return a choice's log ratio to plain."""
        of_levels = sum(self.effect(factor, level) for factor, level in enumerate(choice) if level > 0)
        return self.start() * any(choice) + of_levels + self.own.get(choice, 0.0)

    def draw(self, rng: random.Random) -> list[float]:
        """Return effects drawn from what is believed of them."""
        wobble = _backward(self.lower, [rng.gauss(0, 1) for _ in self.means])
        return [mean + self.noise * step for mean, step in zip(self.means, wobble, strict=True)]

    def best(self, means: Sequence[float] | None = None) -> Choice:
        """Return the best level of each factor, by the means or by a draw."""
        used = self.means if means is None else means

        def level_of(factor: int) -> int:
            return max(range(self.sizes[factor]), key=lambda level: used[_column(self.sizes, factor, level)] if level else 0.0)

        return tuple(level_of(factor) for factor in range(len(self.sizes)))

    def sparing(self) -> Choice:
        """Return the best level of each factor where it is better than `as it is` by more than its standard error.

        Plain, where all of them together gain less than what `wrap` costs.
        """
        choice = tuple(level if self.effect(factor, level) > self.error(factor, level) else 0 for factor, level in enumerate(self.best()))
        return choice if self.predicted(choice) > 0 else (0,) * len(choice)

    def without_drift(self, observation: Observation) -> float:
        """Return a run's log ratio to the plain program at its time."""
        left, right, share = _between_knots(observation.at, len(self.drift))
        return observation.log_speed - (1 - share) * self.drift[left] - share * self.drift[right]


def fit(
    sizes: Sequence[int], observations: Sequence[Observation], prior_start: float = PRIOR_START, apart: Sequence[Choice] = ()
) -> Effects:
    """Fit the model to at least one observation. Of the choices `apart` it says, too, what they do beside the sum of their effects."""
    sizes = tuple(sizes)
    knots = max(observation.at for observation in observations) // KNOT_RUNS + 2
    rows = [_row(sizes, knots, apart, observation) for observation in observations]
    values = [observation.log_speed for observation in observations]
    centre = median(values)
    weights = [1.0] * len(rows)
    noise = max(MIN_NOISE, _spread([value - centre for value in values]))
    solution: list[float] = []
    lower: _Matrix = []
    for _ in range(ITERATIONS):
        lower, solution = _solve(rows, [value - centre for value in values], weights, _priors(sizes, knots, apart, noise, prior_start))
        residuals = [value - centre - sum(share * solution[at] for at, share in row) for row, value in zip(rows, values, strict=True)]
        noise = max(MIN_NOISE, _spread(residuals))
        weights = [min(1.0, HUBER_K * noise / max(abs(residual), 1e-12)) for residual in residuals]
    if solution[-1] > 0 and prior_start > NO_START:
        return fit(sizes, observations, NO_START, apart)
    first = knots + len(apart)
    own = dict(zip(apart, solution[knots:first], strict=True))
    drift = [centre + value for value in solution[:knots]]
    return Effects(sizes, solution[first:], _schur(lower, len(solution) - first), noise, drift, own)


def importance(effects: Effects, observations: Sequence[Observation]) -> list[float]:
    """Return each factor's share of the variance of predicted log speed, were all measured levels equally likely.

    Zeros where nothing matters. A level that never ran is known by its prior alone, whose width would hide what the others do.
    """
    variances = []
    for factor in range(len(effects.sizes)):
        levels = {0} | {seen.choice[factor] for seen in observations}
        values = [effects.effect(factor, level) for level in levels]
        errors = sum(effects.error(factor, level) ** 2 for level in levels) / len(levels)
        mean = sum(values) / len(levels)
        variances.append(max(0.0, sum((value - mean) ** 2 for value in values) / len(levels) - errors))
    total = sum(variances)
    return [variance / total if total else 0.0 for variance in variances]


# ---------------------------------------------------------------------- the design matrix: sparse rows of (column, value)

_Row = list[tuple[int, float]]


def _column(sizes: Sequence[int], factor: int, level: int) -> int:
    return sum(sizes[:factor]) - factor + level - 1


def _row(sizes: Sequence[int], knots: int, apart: Sequence[Choice], observation: Observation) -> _Row:
    choice, first = observation.choice, knots + len(apart)
    left, right, share = _between_knots(observation.at, knots)
    row = [(left, 1 - share), (right, share)]
    row += [(knots + apart.index(choice), 1.0)] if choice in apart else []
    row += [(first + _column(sizes, factor, level), 1.0) for factor, level in enumerate(choice) if level > 0]
    row += [(first + sum(sizes) - len(sizes), float(any(choice)))]
    return [entry for entry in row if entry[1]]


def _between_knots(at: int, knots: int) -> tuple[int, int, float]:
    left = min(at // KNOT_RUNS, knots - 2)
    return left, left + 1, min(1.0, at / KNOT_RUNS - left)


def _priors(sizes: Sequence[int], knots: int, apart: Sequence[Choice], noise: float, prior_start: float) -> _Matrix:
    """The precision of what is believed before, in units of the noise: a random walk of the drift, and each effect around 0."""
    first = knots + len(apart)
    start = first + sum(sizes) - len(sizes)
    size = start + 1
    precision = [[0.0] * size for _ in range(size)]
    precision[0][0] = (noise / 1.0) ** 2
    step = (noise / PRIOR_DRIFT) ** 2
    for knot in range(knots - 1):
        precision[knot][knot] += step
        precision[knot + 1][knot + 1] += step
        precision[knot][knot + 1] -= step
        precision[knot + 1][knot] -= step
    for column, choice in enumerate(apart, knots):
        precision[column][column] += (noise / (PRIOR_EFFECT if min(choice) < 0 else PRIOR_OWN)) ** 2
    for column in range(first, start):
        precision[column][column] += (noise / (PRIOR_EFFECT if len(sizes) > 1 else PRIOR_ONE)) ** 2
    precision[start][start] += (noise / prior_start) ** 2
    return precision


# ---------------------------------------------------------------------- linear algebra of some 30 unknowns


def _solve(rows: Sequence[_Row], values: Sequence[float], weights: Sequence[float], precision: _Matrix) -> tuple[_Matrix, list[float]]:
    """Return the Cholesky factor of the normal equations and their solution."""
    right = [0.0] * len(precision)
    for row, value, weight in zip(rows, values, weights, strict=True):
        for column, share in row:
            right[column] += weight * share * value
            for other, part in row:
                precision[column][other] += weight * share * part
    lower = _cholesky(precision)
    return lower, _backward(lower, _forward(lower, right))


def _cholesky(matrix: _Matrix) -> _Matrix:
    size = len(matrix)
    lower = [[0.0] * size for _ in range(size)]
    for row in range(size):
        for column in range(row + 1):
            rest = matrix[row][column] - sum(lower[row][at] * lower[column][at] for at in range(column))
            lower[row][column] = math.sqrt(max(rest, 1e-12)) if row == column else rest / lower[column][column]
    return lower


def _forward(lower: _Matrix, right: Sequence[float]) -> list[float]:
    solved: list[float] = []
    for row, value in enumerate(right):
        solved.append((value - sum(lower[row][at] * solved[at] for at in range(row))) / lower[row][row])
    return solved


def _backward(lower: _Matrix, right: Sequence[float]) -> list[float]:
    solved = [0.0] * len(right)
    for row in reversed(range(len(right))):
        rest = right[row] - sum(lower[below][row] * solved[below] for below in range(row + 1, len(right)))
        solved[row] = rest / lower[row][row]
    return solved


def _schur(lower: _Matrix, size: int) -> _Matrix:
    """The factor of the last unknowns' precision, the first ones summed out: the lower right corner of the whole factor."""
    return [row[len(lower) - size :] for row in lower[len(lower) - size :]]


def _spread(residuals: Sequence[float]) -> float:
    return median(abs(residual) for residual in residuals) / 0.6745
