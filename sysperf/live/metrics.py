"""All meters, by the names of their series: each is declared beside the code that samples it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from sysperf.live import programs, system
from sysperf.live.gpus import meters
from sysperf.live.metric import BYTES, SECONDS, SHARE, Metric

AGENT = (
    Metric("agent", "cpu", SHARE, "share of one CPU that the agent itself used"),
    Metric("agent", "rss_bytes", BYTES, "resident memory of the agent itself", prometheus="agent_resident_memory_bytes"),
    Metric("agent", "late_s", SECONDS, "how late the last sample was"),
)
METERS: Mapping[str, Metric] = {metric.pattern: metric for metric in (*system.METRICS, *programs.METRICS, *meters.METRICS, *AGENT)}
_WITH_ITEMS = frozenset(metric.area for metric in METERS.values() if metric.per_item)


class Series(NamedTuple):
    """What the name of a series says."""

    metric: Metric | None
    """None for one that this version does not know."""
    area: str
    item: str = ""
    """The number of the GPU or process; empty for the machine."""


@lru_cache(4_096)
def find(series: str) -> Series:
    """The meter of a series, and what it is about: ``gpu.0.celsius`` is ``gpu.*.celsius`` of 0."""
    area, _, rest = series.partition(".")
    item, _, name = rest.partition(".")
    if area in _WITH_ITEMS and name:
        return Series(METERS.get(f"{area}.*.{name}"), area, item)
    return Series(METERS.get(series), area)


def describe(series: str) -> str:
    """What a series says; empty for one that nobody documented."""
    metric = find(series).metric
    return metric.help if metric is not None else ""
