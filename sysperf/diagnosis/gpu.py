"""GPUs over the window: how busy they were, how evenly, and what held them back. A thread samples them, since a driver may block."""

from __future__ import annotations

import bisect
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence

import msgspec

from sysperf.diagnosis.facts import Gpu
from sysperf.model.record import Record

EVERY_S = 0.1
MIN_SAMPLES = 10
MIN_SCORE = 0.5
IDLE, MIN_VALLEY = 0.1, 5
"""Utilisation below which a GPU is in a valley, and samples of valleys of which fewer say nothing."""
_BY_PROCESS = ".gpu_utilization"
_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""PCI Express by generation, one way, without what its encoding takes: https://en.wikipedia.org/wiki/PCI_Express"""
_NAMES = ("utilization", "sm_active", "tensor_active", "dram_active", "pcie_received_bytes_per_s")


class Card(Record):
    """What is known of a GPU beside its meters."""

    index: int
    bus_id: str | None
    computing: frozenset[int] | None
    """The processes that compute on it; None where it does not tell."""
    link_bytes_per_s: float | None = None


def link_bytes_per_s(generation: int | None, lanes: int | None) -> float | None:
    """What a PCI Express link can carry one way."""
    lane = _LANE_BYTES_PER_S.get(generation or 0)
    return lane * lanes if lane and lanes else None


class Sampler:
    """Takes the meters of all GPUs ten times a second, between `start` and `stop`."""

    def __init__(self, sample: Callable[[], dict[str, float]]) -> None:
        self._sample = sample
        self._taken: list[tuple[float, dict[str, float]]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        while not self._end.wait(EVERY_S):
            meters = self._sample()
            if not meters:
                return
            self._taken.append((time.monotonic(), meters))

    def facts(self, devices: Sequence[Card], own: Container[int], every: Sequence[Card] = ()) -> Gpu | None:
        """What these GPUs, of all that there are, did for the processes of a job and for others; None of too few samples."""
        return of_job([meters for _, meters in self._taken], devices, own, every)

    def valleys(self, devices: Sequence[Card], timeline: Sequence[tuple[float, str]]) -> str | None:
        """What a main thread did while these GPUs did next to nothing."""
        return in_valleys(list(self._taken), [device.index for device in devices], timeline)


def used_by(bus_ids: Sequence[str] | None, devices: Iterable[Card]) -> tuple[Card, ...]:
    """The GPUs on which a program has a context; a machine's only GPU where that is unknown; else none."""
    by_address = {gpu.bus_id.lower(): gpu for gpu in devices if gpu.bus_id}
    if bus_ids is None:
        return tuple(by_address.values()) if len(by_address) == 1 else ()
    return tuple(by_address[bus_id.lower()] for bus_id in bus_ids if bus_id.lower() in by_address)


def of_job(taken: Sequence[dict[str, float]], devices: Sequence[Card], own: Container[int], every: Sequence[Card] = ()) -> Gpu | None:
    """The meters of GPUs, and how much of their time was the job's: utilisation counts the kernels of all programs."""
    meters = describe(taken, [device.index for device in devices])
    if meters is None:
        return None
    here = _computing(devices)
    if here is None or not any(pid in own for pid in here):  # a container's numbers are not those that the driver has
        return msgspec.structs.replace(meters, link_used=_link_used(taken, devices))
    elsewhere = _computing([device for device in every if device not in devices])
    mine, others = ({pid for pid in here if (pid in own) is is_own} for is_own in (True, False))
    return msgspec.structs.replace(
        meters,
        others=len(others),
        others_used=_used(taken, others, elsewhere, len(devices)),
        own_used=_used(taken, mine, elsewhere, len(devices)),
        link_used=_link_used(taken, devices),
    )


def _computing(devices: Iterable[Card]) -> set[int] | None:
    """The processes that compute on GPUs; None where one of these does not tell."""
    pids: set[int] = set()
    for device in devices:
        if device.computing is None:
            return None
        pids |= device.computing
    return pids


def _used(taken: Sequence[dict[str, float]], pids: set[int], elsewhere: set[int] | None, gpus: int) -> float | None:
    """The mean share of these GPUs' time in which kernels of these processes ran, over the samples that tell it of any process.

    Meters of a process are summed over all GPUs: of one that computes on others, too, nobody knows how much was here.
    """
    if pids and (elsewhere is None or pids & elsewhere):
        return None
    sums = []
    for meters in taken:
        shares = {name.split(".")[1]: value for name, value in meters.items() if name.startswith("process.") and name.endswith(_BY_PROCESS)}
        if shares:
            sums.append(min(1.0, sum(value for pid, value in shares.items() if int(pid) in pids) / gpus))
    return sum(sums) / len(sums) if sums else None


def _link_used(taken: Sequence[dict[str, float]], devices: Sequence[Card]) -> float | None:
    """Return the use of the GPU's link that is used most; None where one does not tell."""
    found = []
    for device in devices:
        gpu = describe(taken, [device.index])
        if device.link_bytes_per_s is None or gpu is None or gpu.received_bytes_per_s is None:
            return None
        found.append(gpu.received_bytes_per_s / device.link_bytes_per_s)
    return max(found, default=None)


def describe(taken: Sequence[dict[str, float]], numbers: Sequence[int]) -> Gpu | None:
    """The same of any samples, whose names are ``gpu.N.METER``: what others do on other GPUs is not the program's."""
    mine = tuple(f"gpu.{number}." for number in numbers)
    taken = [{name: value for name, value in meters.items() if name.startswith(mine)} for meters in taken]
    if len(taken) < MIN_SAMPLES or not any(taken):
        return None
    means = {name: _mean(taken, name) for name in _NAMES}
    busy = sorted(value for meters in taken if (value := _over_gpus(meters, "utilization")) is not None)
    series = [_over_gpus(meters, "utilization") or 0.0 for meters in taken]
    slowing = [max(values) for meters in taken if (values := _known(meters, "power_capped", "slowed"))]
    return Gpu(
        utilization=means["utilization"], sm_active=means["sm_active"], tensor_active=means["tensor_active"],
        dram_active=means["dram_active"], received_bytes_per_s=means["pcie_received_bytes_per_s"],
        lowest=busy[len(busy) // 20] if busy else None, highest=busy[-1 - len(busy) // 20] if busy else None,
        period_s=period_s(series, EVERY_S), throttled=sum(value > 0 for value in slowing) / len(slowing) if slowing else None,
    )  # fmt: skip


def in_valleys(
    taken: Sequence[tuple[float, dict[str, float]]], numbers: Sequence[int], timeline: Sequence[tuple[float, str]]
) -> str | None:
    """``waits for a pipe or socket 70 %, runs 30 %``: a thread's looks nearest to the samples of idle GPUs; None of too few."""
    mine = tuple(f"gpu.{number}." for number in numbers)
    moments = [at for at, _ in timeline]
    described: Counter[str] = Counter()
    for at, meters in taken:
        used = _over_gpus({name: value for name, value in meters.items() if name.startswith(mine)}, "utilization")
        place = bisect.bisect_left(moments, at)
        near = min((sample for sample in timeline[max(0, place - 1) : place + 1]), key=lambda sample: abs(sample[0] - at), default=None)
        if used is not None and used < IDLE and near is not None and abs(near[0] - at) <= EVERY_S:
            described[near[1]] += 1
    total = sum(described.values())
    return ", ".join(f"{what} {count / total:.0%}" for what, count in described.most_common(3)) if total >= MIN_VALLEY else None


def period_s(series: Sequence[float], every_s: float) -> float | None:
    """The period of ups and downs, by the highest peak of the autocorrelation behind its first valley; None where they have none."""
    mean = sum(series) / len(series)
    around = [value - mean for value in series]
    power = sum(value * value for value in around)
    if power < 1e-6 * len(series):
        return None
    scores = [_score(around, lag, power) for lag in range(len(series) // 2)]
    down = next((lag for lag, score in enumerate(scores) if score < 0), None)  # the next peak is behind the first valley
    if down is None:
        return None
    peak = max(range(down, len(scores)), key=scores.__getitem__)
    return peak * every_s if scores[peak] > MIN_SCORE else None


def _score(around: Sequence[float], lag: int, power: float) -> float:
    """The autocorrelation at a lag, as if all pairs were there."""
    pairs = sum(value * other for value, other in zip(around, around[lag:], strict=False))
    return pairs / power * len(around) / (len(around) - lag)


def _over_gpus(meters: dict[str, float], name: str) -> float | None:
    values = [value for key, value in meters.items() if key.startswith("gpu.") and key.endswith(f".{name}")]
    return max(values) if values else None


def _known(meters: dict[str, float], *names: str) -> list[float]:
    return [value for name in names if (value := _over_gpus(meters, name)) is not None]


def _mean(taken: Sequence[dict[str, float]], name: str) -> float | None:
    values = [value for meters in taken if (value := _over_gpus(meters, name)) is not None]
    return sum(values) / len(values) if values else None
