"""Live meters of NVIDIA's GPUs, through NVML.

NVML    https://docs.nvidia.com/deploy/nvml-api/  (GPM, from Hopper on, tells what the units of a GPU do)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Protocol

from sysperf.collect.gpu.answers import NOT_SUPPORTED
from sysperf.host.nvml import Questions
from sysperf.live.gpus.meters import Reasons, Values, put, put_events, series
from sysperf.live.system import Rates
from sysperf.model.record import Json

MAX_GPUS = 16
PCIE_FIELDS = (197, 198)  # NVML_FI_DEV_PCIE_COUNT_TX_BYTES and RX_BYTES
GPM = {2: "sm_active", 3: "sm_occupancy", 5: "tensor_active", 10: "dram_active"}
MEMORY_V2 = 0x2000028
ABSENT = (NOT_SUPPORTED, "Function Not Found", "Insufficient Permissions", "Invalid Argument", "Argument version mismatch")
"""Answers that will be the same next time."""
METERS = {
    "DeviceGetUtilizationRates": ("utilization", "memory_utilization"),
    "DeviceGetMemoryInfo": ("memory_used_bytes",),
    "DeviceGetPowerUsage": ("power_watts",),
    "DeviceGetClockInfo": ("sm_clock_mhz",),
    "DeviceGetTemperature": ("celsius",),
    "DeviceGetCurrentClocksEventReasons": ("clock_events", "power_capped", "slowed"),
    "DeviceGetFieldValues": ("pcie_received_bytes_per_s", "pcie_sent_bytes_per_s"),
    "GpmMetrics": tuple(GPM.values()),
}
"""The meters that each call gives."""


class NvmlSession(Protocol):
    """What `sysperf.host.nvml.Nvml` answers."""

    def ask_all(self, questions: Questions) -> list[Json]: ...

    def close(self) -> None: ...


class NvidiaGpus:
    """Meters of all GPUs that NVML lists."""

    def __init__(self, session: NvmlSession, clock: Callable[[], float]) -> None:
        self._session = session
        (count,) = session.ask_all([("DeviceGetCount", ())])
        self.count: int | None = count if isinstance(count, int) else None
        self.problem = str(count) if isinstance(count, OSError) else ""
        self._gpus = [_Gpu(index, clock) for index in range(min(self.count or 0, MAX_GPUS))]

    def sample(self, out: Values) -> None:
        """Add the meters of its GPUs, and of the processes on them."""
        if self._gpus:
            asked = [(gpu, name) for gpu in self._gpus for name in gpu.questions()]
            answers = self._session.ask_all([(name, (gpu.index, *args)) for gpu, (name, args) in asked])
            for (gpu, (name, _)), answer in zip(asked, answers, strict=True):
                gpu.take(name, answer, out)
            failed = [str(answer) for answer in answers if isinstance(answer, OSError) and str(answer) not in ABSENT]
            self.problem = failed[0] if len(failed) == len(answers) else ""

    def unknown(self) -> Reasons:
        """What NVML answered to the questions that it does not answer."""
        return {series(gpu.index, meter): f"NVML: {reason}" for gpu in self._gpus for meter, reason in gpu.unknown()}


class _Gpu:
    """One GPU: which calls it answers, and what they said last."""

    def __init__(self, index: int, clock: Callable[[], float]) -> None:
        self.index = index
        self._clock = clock
        self._rates = Rates()
        self._seen_us = 0
        self._absent: dict[str, str] = {}

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

    def take(self, name: str, answer: Json, out: Values) -> None:
        """Turn one answer into meters. An answer of another shape than documented says nothing."""
        if isinstance(answer, OSError):
            if str(answer) in ABSENT:
                self._absent["v2" if name == "DeviceGetMemoryInfo" and "v2" not in self._absent else name] = str(answer)
            return
        try:
            self._takes[name](self, answer, out)
        except (KeyError, TypeError, ValueError, AttributeError):
            self._absent[name] = "an answer of another shape than documented"

    def unknown(self) -> Iterator[tuple[str, str]]:
        """(meter, reason) of the questions that it does not answer."""
        older = "DeviceGetCurrentClocksThrottleReasons"
        for name, reason in self._absent.items():
            if name != "DeviceGetCurrentClocksEventReasons" or older in self._absent:
                yield from ((meter, reason) for meter in METERS.get(name, ()))

    def _utilization(self, answer: Json, out: Values) -> None:
        put(out, self.index, "utilization", answer["gpu"] / 100)
        put(out, self.index, "memory_utilization", answer["memory"] / 100)

    def _memory(self, answer: Json, out: Values) -> None:
        put(out, self.index, "memory_used_bytes", answer["used"])

    def _power(self, answer: Json, out: Values) -> None:
        put(out, self.index, "power_watts", answer / 1000)

    def _clock_mhz(self, answer: Json, out: Values) -> None:
        put(out, self.index, "sm_clock_mhz", answer)

    def _celsius(self, answer: Json, out: Values) -> None:
        put(out, self.index, "celsius", answer)

    def _events(self, answer: Json, out: Values) -> None:
        put_events(out, self.index, answer)

    def _pcie(self, answer: Json, out: Values) -> None:
        for field, name in zip(PCIE_FIELDS, ("pcie_sent_bytes_per_s", "pcie_received_bytes_per_s"), strict=True):
            count = answer[str(field)]
            if count is not None:
                put(out, self.index, name, self._rates.per_s(name, self._clock(), count))

    def _gpm(self, answer: Json, out: Values) -> None:
        for metric, name in GPM.items():
            percent = answer.get(str(metric))
            if percent is not None and 0 <= percent <= 100:
                put(out, self.index, name, percent / 100)

    def _memory_of_programs(self, answer: Json, out: Values) -> None:
        for process in answer:
            if process["pid"] and process["usedGpuMemory"] is not None:
                name = f"process.{process['pid']}.gpu_memory_bytes"
                out[name] = out.get(name, 0) + process["usedGpuMemory"]

    def _utilization_of_programs(self, answer: Json, out: Values) -> None:
        busy: dict[int, list[int]] = {}
        for process in answer:
            if process["pid"] and 0 <= process["smUtil"] <= 100:
                busy.setdefault(process["pid"], []).append(process["smUtil"])
                self._seen_us = max(self._seen_us, process["timeStamp"])
        for pid, percents in busy.items():
            name = f"process.{pid}.gpu_utilization"
            out[name] = out.get(name, 0.0) + sum(percents) / len(percents) / 100

    _takes: ClassVar[dict[str, Callable[[_Gpu, Json, Values], None]]] = {
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
