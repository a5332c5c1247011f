"""What a meter is: a record of its area, its name, its unit and what it says; the names of its series follow from it."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Unit(NamedTuple):
    """A unit: how names of series end that have it, how names of metrics in Prometheus do, and how people write it."""

    ending: str = ""
    prometheus: str = ""
    symbol: str = ""
    factor: float = 1.0
    """A value times this is one in the unit of Prometheus."""


SHARE = Unit("", "_ratio", " %")
"""From 0 to 1."""
BYTES = Unit("_bytes", "_bytes")
BYTES_PER_S = Unit("_bytes_per_s", "_bytes_per_second")
PER_S = Unit("_per_s", "_per_second", "/s")
MHZ = Unit("_mhz", "_hertz", " MHz", 1e6)
WATTS = Unit("_watts", "_watts", " W")
CELSIUS = Unit("_celsius", "_celsius", " °C")
SECONDS = Unit("_s", "_seconds", " s")
COUNT = Unit()


class Metric(NamedTuple):
    """One meter, or one for each GPU or process."""

    area: str
    name: str
    unit: Unit
    help: str
    per_item: bool = False
    """There is a series for each GPU or process, whose number stands behind the area."""
    prometheus: str = ""
    """Its name there, where that is not made of area, name and unit."""

    @property
    def pattern(self) -> str:
        """The name of its series, with a star for the number: ``gpu.*.power_watts``."""
        return f"{self.area}.*.{self.name}" if self.per_item else f"{self.area}.{self.name}"

    @property
    def prometheus_name(self) -> str:
        """Return its name in Prometheus, which ends with the unit."""
        words = f"{self.area}_{self.name}".replace(".", "_")
        return self.prometheus or f"{words.removesuffix(self.unit.ending)}{self.unit.prometheus}"

    @property
    def kind(self) -> Literal["gauge", "counter"]:
        """What Prometheus calls it."""
        return "counter" if self.prometheus_name.endswith("_total") else "gauge"


def process_of(series: str) -> str:
    """The number of the process that a series is about; empty for other series."""
    area, _, rest = series.partition(".")
    return rest.partition(".")[0] if area == "process" else ""
