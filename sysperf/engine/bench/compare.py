"""Two records of ceilings beside each other: "this node is 12 % slow" with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, variance

from sysperf.model.ceiling import Ceilings, Compared
from sysperf.verify import stats

LEVEL = 0.05


def compared(before: Ceilings, now: Ceilings) -> tuple[Compared, ...]:
    """Return each figure that both records have, now as a multiple of before."""
    earlier = {ceiling.metric: ceiling for ceiling in before.ceilings if ceiling.values}
    pairs = [(earlier[ceiling.metric], ceiling) for ceiling in now.ceilings if ceiling.values and ceiling.metric in earlier]
    return tuple(
        Compared(
            metric=new.metric, what=new.what, unit=new.unit, before=median(old.values), now=median(new.values),
            **dict(zip(("ratio", "low", "high"), _ratio(old.values, new.values), strict=True)),
        )
        for old, new in pairs
        if old.unit == new.unit
    )  # fmt: skip


def _ratio(old: Sequence[float], new: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """(ratio of means, its interval) by Welch's t of the logarithms: runs of two machines are no pairs."""
    if min(len(old), len(new)) < 2 or min(*old, *new) <= 0:
        return None, None, None
    logs = [[math.log(value) for value in values] for values in (old, new)]
    errors = [variance(values) / len(values) for values in logs]
    apart, error = fmean(logs[1]) - fmean(logs[0]), math.sqrt(sum(errors))
    if error == 0:
        return math.exp(apart), math.exp(apart), math.exp(apart)
    freedom = sum(errors) ** 2 / sum(part**2 / (len(values) - 1) for part, values in zip(errors, logs, strict=True))
    half = stats.t_quantile(1 - LEVEL / 2, max(1, math.floor(freedom))) * error
    return math.exp(apart), math.exp(apart - half), math.exp(apart + half)
