"""The meters of a GPU, whoever made it, and what each backend gives: a sample, and why a meter is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Protocol

from sysperf.collect.gpu.state import CLOCK_EVENTS
from sysperf.live.metric import BYTES, BYTES_PER_S, CELSIUS, COUNT, MHZ, SHARE, WATTS, Metric

_metric = partial(Metric, "gpu", per_item=True)
METRICS = (
    _metric("utilization", SHARE, "share of the time in which any kernel ran: no measure of how well"),
    _metric("memory_utilization", SHARE, "share of the time in which its memory was read or written"),
    _metric("memory_used_bytes", BYTES, "GPU memory in use"),
    _metric("power_watts", WATTS, "power drawn"),
    _metric("sm_clock_mhz", MHZ, "clock of the units that compute"),
    _metric("celsius", CELSIUS, "temperature", prometheus="gpu_temperature_celsius"),
    _metric("clock_events", COUNT, "why the clocks are not at their highest, as the bits that NVML has for it"),
    _metric("power_capped", COUNT, "1 while the power limit holds the clocks down"),
    _metric("slowed", COUNT, "1 while heat, a power brake or hardware holds the clocks down"),
    _metric("pcie_received_bytes_per_s", BYTES_PER_S, "bytes each second over PCIe to the GPU"),
    _metric("pcie_sent_bytes_per_s", BYTES_PER_S, "bytes each second over PCIe from the GPU"),
    _metric("sm_active", SHARE, "share of the streaming multiprocessors' time with work (Hopper and newer)"),
    _metric("sm_occupancy", SHARE, "warps in flight as a share of the most possible (Hopper and newer)"),
    _metric("tensor_active", SHARE, "share of the time in which tensor cores worked (Hopper and newer)"),
    _metric("dram_active", SHARE, "share of the memory bandwidth in use (Hopper and newer)"),
)

CAPPED = 0x4
SLOWED = 0x8 | 0x20 | 0x40 | 0x80
BITS = {name: bit for bit, name in CLOCK_EVENTS.items()}

Values = dict[str, float]
"""Values of series by their names; what is unknown is left out."""
Reasons = dict[str, str]
"""Why meters are unknown, by the names of their series; ``process.*.gpu_utilization`` is of all programs."""


class Backend(Protocol):
    """The GPUs of one vendor. Neither call raises."""

    problem: str

    def sample(self, out: Values) -> None:
        """Add the meters of its GPUs, and of the processes on them."""

    def unknown(self) -> Reasons:
        """Why meters are not there, as far as their driver does not offer them or may not be asked."""


def series(index: int, name: str) -> str:
    return f"gpu.{index}.{name}"


def put(out: Values, index: int, name: str, value: float | None) -> None:
    if value is not None:
        out[series(index, name)] = float(value)


def put_events(out: Values, index: int, bits: int | None) -> None:
    """Why the clocks are low, and the two questions that are asked most."""
    if bits is not None:
        for name, value in (("clock_events", bits), ("power_capped", bool(bits & CAPPED)), ("slowed", bool(bits & SLOWED))):
            put(out, index, name, value)


def bits_of(events: Iterable[str] | None) -> int | None:
    """The bits of `gpu.clocks.events`."""
    return None if events is None else sum(BITS.get(event, 0) for event in set(events))
