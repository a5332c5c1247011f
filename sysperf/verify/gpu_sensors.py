"""What the GPUs of a program met during a run: clocks, temperature, slow-downs, and others that computed on them.

NVML    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
        https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html

That the power limit holds the clocks down is normal under load, and so no slow-down here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple, Protocol

from sysperf.host import Host
from sysperf.host.namespaces import counts_processes_as_the_kernel
from sysperf.model.record import Json
from sysperf.model.text import neutral

DRIVER = "/proc/driver/nvidia/version"
AMD = "/dev/kfd"
MAX_GPUS = 16
IDLE = 0x1
SLOWED = 0x8 | 0x20 | 0x40 | 0x80
"""Clock event reasons: hardware, heat as the driver and as the hardware limit it, a power brake."""
_SM_CLOCK, _CORE_TEMPERATURE = 1, 0
_MPS = "nvidia-cuda-mps"
NOTHING_RAN = "Not Found"
"""How NVML says that no kernel ran since it was last asked."""
NOT_OURS = "which processes compute on a GPU (the driver counts processes otherwise than this container): all busy GPUs are watched"


class NvmlSession(Protocol):
    """What `sysperf.host.nvml.Nvml` answers."""

    def ask_all(self, questions: Sequence[tuple[str, tuple[int | str, ...]]]) -> list[Json]: ...


class GpuConditions(NamedTuple):
    """What the program's GPUs met, of the worst one; None: unknown, or it used none."""

    gpus: tuple[int, ...] = ()
    """Those that it used, by NVML's number."""
    mhz: float | None = None
    """Mean clock of the streaming multiprocessors while it was busy."""
    celsius: float | None = None
    slowed: float | None = None
    """Share of the busy samples in which heat, a power brake or the hardware held the clocks down."""
    others: float | None = None
    """Share of the time in which the kernels of other programs ran."""


class _Gpu:
    """The samples of one GPU while the program used it."""

    def __init__(self) -> None:
        self.mhz: list[int] = []
        self.celsius: list[int] = []
        self.slowed: list[bool] = []
        self.others: list[float] = []
        self.seen_us: int | None = None
        self.used = False


class GpuSensors:
    """Takes samples; `own` returns the processes of the program now. Never raises."""

    def __init__(self, session: NvmlSession, own: Callable[[], set[int]], host: Host) -> None:
        self._session, self._own, self._host = session, own, host
        (count,) = session.ask_all([("DeviceGetCount", ())])
        self._gpus = [_Gpu() for _ in range(min(count, MAX_GPUS))] if isinstance(count, int) else []
        self.problems: list[str] = [] if isinstance(count, int) else [f"GPUs ({neutral(str(count), 200)})"]
        self._reasons = "DeviceGetCurrentClocksEventReasons"
        self._numbers_are_ours = counts_processes_as_the_kernel(host)

    def sample(self) -> None:
        """Take a sample of the GPUs that the program uses now."""
        own = self._own()
        listed = self._session.ask_all([("DeviceGetComputeRunningProcesses_v3", (index,)) for index in range(len(self._gpus))])
        running = [_pids(answer) for answer in listed]
        known = self._numbers_are_ours or any(pids & own for pids in running if pids)
        if not known and any(running):
            self._say(NOT_OURS)
        for index, (gpu, pids) in enumerate(zip(self._gpus, running, strict=True)):
            if pids is None:
                self._say(f"GPU {index} ({neutral(str(listed[index]), 200)})")
            elif pids & own if known else pids:
                self._take(index, gpu, own if known else None)

    def conditions(self) -> GpuConditions:
        """Return what all samples say."""
        used = [index for index, gpu in enumerate(self._gpus) if gpu.used]
        gpus = [self._gpus[index] for index in used]
        return GpuConditions(
            tuple(used),
            min((fmean(gpu.mhz) for gpu in gpus if gpu.mhz), default=None),
            max((fmean(gpu.celsius) for gpu in gpus if gpu.celsius), default=None),
            max((fmean(gpu.slowed) for gpu in gpus if gpu.slowed), default=None),
            max((fmean(gpu.others) for gpu in gpus if gpu.others), default=None),
        )

    def _take(self, index: int, gpu: _Gpu, own: set[int] | None) -> None:
        gpu.used = True
        reasons, mhz, celsius, used = self._session.ask_all([
            (self._reasons, (index,)), ("DeviceGetClockInfo", (index, _SM_CLOCK)), ("DeviceGetTemperature", (index, _CORE_TEMPERATURE)),
            ("DeviceGetProcessUtilization", (index, gpu.seen_us or 0)),
        ])  # fmt: skip
        if isinstance(reasons, OSError) and "Event" in self._reasons:  # a driver before 535 knows the earlier name only
            self._reasons = "DeviceGetCurrentClocksThrottleReasons"
            (reasons,) = self._session.ask_all([(self._reasons, (index,))])
        for name, answer in (("throttling", reasons), ("clock", mhz), ("temperature", celsius)):
            if not isinstance(answer, int):
                self._say(f"{name} of GPU {index} ({neutral(str(answer), 200)})")
        if isinstance(celsius, int):
            gpu.celsius.append(celsius)
        if isinstance(reasons, int) and not reasons & IDLE:
            gpu.slowed.append(bool(reasons & SLOWED))
            gpu.mhz += [mhz] if isinstance(mhz, int) else []
        if own is not None:
            self._take_others(index, gpu, own, used)

    def _take_others(self, index: int, gpu: _Gpu, own: set[int], used: Json) -> None:
        """Count kernels of other processes since the last sample. The first one is left out: it holds what ran before the run."""
        if str(used) == NOTHING_RAN:
            used = []
        if not isinstance(used, list):
            self._say(f"others on GPU {index} ({neutral(str(used), 200)})")
            return
        is_first, gpu.seen_us = gpu.seen_us is None, gpu.seen_us or 0
        entries = [entry for entry in used if isinstance(entry, dict) and isinstance(entry.get("smUtil"), int)]
        others = {entry["pid"] for entry in entries if entry.get("pid") not in own}
        if any((self._host.text(f"/proc/{pid}/comm") or "").startswith(_MPS) for pid in others):
            self._say(f"others on GPU {index} (programs share it through MPS)")
            return
        percents = [[entry["smUtil"] for entry in entries if entry["pid"] == pid] for pid in others]
        gpu.others += [] if is_first else [min(1.0, sum(fmean(values) for values in percents) / 100)]
        gpu.seen_us = max([gpu.seen_us, *(entry["timeStamp"] for entry in entries if isinstance(entry.get("timeStamp"), int))])

    def _say(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def unknown(host: Host) -> list[str]:
    """Say which GPUs of this machine are not watched at all."""
    return ["GPUs of AMD (only those of NVIDIA are watched)"] if host.exists(AMD) else []


def _pids(answer: Json) -> set[int] | None:
    """The processes that compute on a GPU; None where it does not say."""
    if not isinstance(answer, list):
        return None
    return {process["pid"] for process in answer if isinstance(process, dict) and isinstance(process.get("pid"), int)}
