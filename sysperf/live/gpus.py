"""What each GPU does right now, through NVML. It is let go when nobody computes: an open handle keeps GPUs awake.

NVML    https://docs.nvidia.com/deploy/nvml-api/  (GPM, from Hopper on, tells what the units of a GPU do)

NVML calls can hang in the driver, so these meters are taken in a thread of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Protocol

from sysperf.collect.gpu.answers import NOT_SUPPORTED
from sysperf.host.nvml import Arguments, Nvml, Questions
from sysperf.live.metric import BYTES, BYTES_PER_S, CELSIUS, COUNT, MHZ, SHARE, WATTS, Metric
from sysperf.live.system import Rates
from sysperf.model.record import Json

_metric = partial(Metric, "gpu", per_item=True)
METRICS = (
    _metric("utilization", SHARE, "share of the time in which any kernel ran: no measure of how well"),
    _metric("memory_utilization", SHARE, "share of the time in which its memory was read or written"),
    _metric("memory_used_bytes", BYTES, "GPU memory in use"),
    _metric("power_watts", WATTS, "power drawn"),
    _metric("sm_clock_mhz", MHZ, "clock of the streaming multiprocessors"),
    _metric("celsius", CELSIUS, "temperature", prometheus="gpu_temperature_celsius"),
    _metric("clock_events", COUNT, "why the clocks are not at their highest, as NVML's bits"),
    _metric("power_capped", COUNT, "1 while the power limit holds the clocks down"),
    _metric("slowed", COUNT, "1 while heat, a power brake or hardware holds the clocks down"),
    _metric("pcie_received_bytes_per_s", BYTES_PER_S, "bytes each second over PCIe to the GPU"),
    _metric("pcie_sent_bytes_per_s", BYTES_PER_S, "bytes each second over PCIe from the GPU"),
    _metric("sm_active", SHARE, "share of the streaming multiprocessors' time with work (Hopper and newer)"),
    _metric("sm_occupancy", SHARE, "warps in flight as a share of the most possible (Hopper and newer)"),
    _metric("tensor_active", SHARE, "share of the time in which tensor cores worked (Hopper and newer)"),
    _metric("dram_active", SHARE, "share of the memory bandwidth in use (Hopper and newer)"),
)

MAX_GPUS = 16
PCIE_FIELDS = (197, 198)  # NVML_FI_DEV_PCIE_COUNT_TX_BYTES and RX_BYTES
GPM = {2: "sm_active", 3: "sm_occupancy", 5: "tensor_active", 10: "dram_active"}
CAPPED = 0x4
SLOWED = 0x8 | 0x20 | 0x40 | 0x80
MEMORY_V2 = 0x2000028
ABSENT = (NOT_SUPPORTED, "Function Not Found", "Insufficient Permissions", "Invalid Argument", "Argument version mismatch")
"""Answers that will be the same next time."""


class NvmlSession(Protocol):
    """What `sysperf.host.nvml.Nvml` answers."""

    def ask_all(self, questions: Questions) -> list[Json]: ...

    def close(self) -> None: ...


class Gpus:
    """Meters of the GPUs. A sample may take seconds; it never raises."""

    def __init__(self, opened: Callable[[], NvmlSession] = Nvml, clock: Callable[[], float] = time.monotonic) -> None:
        self._opened = opened
        self._clock = clock
        self._turn = threading.Lock()
        self._session: NvmlSession | None = None
        self._gpus: list[_Gpu] = []
        self.problem = ""

    def ask(self, name: str, args: Arguments) -> Json:
        """One NVML call, for the collectors: they and the meters share one open NVML. Raises OSError."""
        (answer,) = self._open().ask_all([(name, args)])
        if isinstance(answer, OSError):
            raise answer
        return answer

    def close(self) -> None:
        """Let go of the GPUs."""
        with self._turn:
            if self._session is not None:
                self._session.close()
                self._session, self._gpus = None, []

    def sample(self) -> dict[str, float]:
        """The meters of all GPUs, and of the processes on them."""
        out: dict[str, float] = {}
        session, gpus = self._open(), self._gpus
        if gpus:
            asked = [(gpu, name) for gpu in gpus for name in gpu.questions()]
            answers = session.ask_all([(name, (gpu.index, *args)) for gpu, (name, args) in asked])
            for (gpu, (name, _)), answer in zip(asked, answers, strict=True):
                gpu.take(name, answer, out)
            failed = [str(answer) for answer in answers if isinstance(answer, OSError) and str(answer) not in ABSENT]
            self.problem = failed[0] if len(failed) == len(answers) else ""
        return out

    def _open(self) -> NvmlSession:
        with self._turn:
            if self._session is None:
                self._session = self._opened()
                (count,) = self._session.ask_all([("DeviceGetCount", ())])
                self.problem = str(count) if isinstance(count, OSError) else ""
                self._gpus = [_Gpu(index, self._clock) for index in range(min(count, MAX_GPUS))] if isinstance(count, int) else []
            return self._session


class _Gpu:
    """One GPU: which calls it answers, and what they said last."""

    def __init__(self, index: int, clock: Callable[[], float]) -> None:
        self.index = index
        self._clock = clock
        self._rates = Rates()
        self._seen_us = 0
        self._absent: set[str] = set()

    def questions(self) -> list[tuple[str, tuple[int, ...]]]:
        """The calls of one sample, with their arguments after the GPU's number."""
        asked: list[tuple[str, tuple[int, ...]]] = [
            ("DeviceGetUtilizationRates", ()),
            ("DeviceGetMemoryInfo", (MEMORY_V2,) if "v2" not in self._absent else ()),
            ("DeviceGetPowerUsage", ()),
            ("DeviceGetClockInfo", (1,)),
            ("DeviceGetTemperature", (0,)),
            (f"DeviceGetCurrentClocks{'Throttle' if 'DeviceGetCurrentClocksEventReasons' in self._absent else 'Event'}Reasons", ()),
            ("DeviceGetFieldValues", PCIE_FIELDS),
            ("GpmMetrics", tuple(GPM)),
            ("DeviceGetComputeRunningProcesses_v3", ()),
            ("DeviceGetProcessUtilization", (self._seen_us,)),
        ]
        return [(name, args) for name, args in asked if name not in self._absent]

    def take(self, name: str, answer: Json, out: dict[str, float]) -> None:
        """Turn one answer into meters. An answer of another shape than documented says nothing."""
        if isinstance(answer, OSError):
            if str(answer) in ABSENT:
                self._absent.add("v2" if name == "DeviceGetMemoryInfo" and "v2" not in self._absent else name)
            return
        try:
            self._takes[name](self, answer, out)
        except (KeyError, TypeError, ValueError, AttributeError):
            self._absent.add(name)

    def put(self, out: dict[str, float], name: str, value: float | None) -> None:
        if value is not None:
            out[f"gpu.{self.index}.{name}"] = float(value)

    def _utilization(self, answer: Json, out: dict[str, float]) -> None:
        self.put(out, "utilization", answer["gpu"] / 100)
        self.put(out, "memory_utilization", answer["memory"] / 100)

    def _memory(self, answer: Json, out: dict[str, float]) -> None:
        self.put(out, "memory_used_bytes", answer["used"])

    def _power(self, answer: Json, out: dict[str, float]) -> None:
        self.put(out, "power_watts", answer / 1000)

    def _clock_mhz(self, answer: Json, out: dict[str, float]) -> None:
        self.put(out, "sm_clock_mhz", answer)

    def _celsius(self, answer: Json, out: dict[str, float]) -> None:
        self.put(out, "celsius", answer)

    def _events(self, answer: Json, out: dict[str, float]) -> None:
        self.put(out, "clock_events", answer)
        self.put(out, "power_capped", bool(answer & CAPPED))
        self.put(out, "slowed", bool(answer & SLOWED))

    def _pcie(self, answer: Json, out: dict[str, float]) -> None:
        for field, name in zip(PCIE_FIELDS, ("pcie_sent_bytes_per_s", "pcie_received_bytes_per_s"), strict=True):
            count = answer[str(field)]
            if count is not None:
                self.put(out, name, self._rates.per_s(name, self._clock(), count))

    def _gpm(self, answer: Json, out: dict[str, float]) -> None:
        for metric, name in GPM.items():
            percent = answer.get(str(metric))
            if percent is not None and 0 <= percent <= 100:
                self.put(out, name, percent / 100)

    def _memory_of_programs(self, answer: Json, out: dict[str, float]) -> None:
        for process in answer:
            if process["pid"] and process["usedGpuMemory"] is not None:
                name = f"process.{process['pid']}.gpu_memory_bytes"
                out[name] = out.get(name, 0) + process["usedGpuMemory"]

    def _utilization_of_programs(self, answer: Json, out: dict[str, float]) -> None:
        busy: dict[int, list[int]] = {}
        for process in answer:
            if process["pid"] and 0 <= process["smUtil"] <= 100:
                busy.setdefault(process["pid"], []).append(process["smUtil"])
                self._seen_us = max(self._seen_us, process["timeStamp"])
        for pid, percents in busy.items():
            name = f"process.{pid}.gpu_utilization"
            out[name] = out.get(name, 0.0) + sum(percents) / len(percents) / 100

    _takes: ClassVar[dict[str, Callable[[_Gpu, Json, dict[str, float]], None]]] = {
        "DeviceGetUtilizationRates": _utilization,
        "DeviceGetMemoryInfo": _memory,
        "DeviceGetPowerUsage": _power,
        "DeviceGetClockInfo": _clock_mhz,
        "DeviceGetTemperature": _celsius,
        "DeviceGetCurrentClocksEventReasons": _events,
        "DeviceGetCurrentClocksThrottleReasons": _events,
        "DeviceGetFieldValues": _pcie,
        "GpmMetrics": _gpm,
        "DeviceGetComputeRunningProcesses_v3": _memory_of_programs,
        "DeviceGetProcessUtilization": _utilization_of_programs,
    }
