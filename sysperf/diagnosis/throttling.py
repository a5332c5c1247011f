"""How often a group was stopped for its CPU quota, between two readings of `cpu.stat`."""

from __future__ import annotations

from sysperf.model.snapshot import Facts


def share(before: Facts, after: Facts) -> float | None:
    """Return the share of the quota's periods in between in which the group was stopped; `Cgroup` records of the same group."""
    if before is None or after is None or before.path != after.path:
        return None
    if None in (before.nr_periods, after.nr_periods, before.nr_throttled, after.nr_throttled):
        return None
    periods = after.nr_periods - before.nr_periods
    if periods > 0:
        return float((after.nr_throttled - before.nr_throttled) / periods)
    return 0.0 if after.cpu_quota == 0 else None  # of no period, only a group without a quota is known not to be stopped
