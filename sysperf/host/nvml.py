"""NVML by call name and arguments: one GPU library, opened once, answers as plain data.

Reads   libnvidia-ml.so.1 through nvidia-ml-py
NVML    https://docs.nvidia.com/deploy/nvml-api/

The calls run in a thread of their own. A dying GPU can make one hang inside the driver; then this one and all later
calls are refused with that reason, and the audit goes on.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

from sysperf.model.record import Json

SECONDS = 30.0
"""How long a call may take. Without a persistence daemon the first one starts every GPU: 1 to 3 s each."""

NOT_SUPPORTED = "Not Supported"
LOST = "GPU is lost"
MISMATCH = "Driver/library version mismatch"

_READS = ("DeviceGet", "SystemGet", "GpmQuery", "GpmMetrics", "DeviceValidateInforom", "DeviceWorkloadPowerProfileGet")
_SETS = ("DeviceSetPersistenceMode",)
_PRIVATE = ("DeviceGetSerial", "DeviceGetBoardPartNumber", "DeviceGetPlatformInfo", "DeviceGetHostname")
_OF_TWO = ("DeviceGetP2PStatus", "DeviceGetTopologyCommonAncestor")
_TEXTS = {18: MISMATCH, 22: NOT_SUPPORTED}  # as nvidia-smi says it; 22 is "vGPU ECC not supported"

_FILLED = {
    # calls that fill a structure which the caller makes: its name in pynvml
    "DeviceGetGpuFabricInfoV": "c_nvmlGpuFabricInfoV_t",
    "DeviceGetSramEccErrorStatus": "c_nvmlEccSramErrorStatus_v1_t",
    "DeviceGetNvlinkBwMode": "c_nvmlNvlinkGetBwMode_v1_t",
    "DeviceWorkloadPowerProfileGetCurrentProfiles": "c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t",
}
HANDLE = "DeviceGetMigDeviceHandleByIndex"
"""Answers the name of a part of a partitioned GPU, or that it is there: the handle that it gives is for NVML alone."""
_NOT_AVAILABLE = (1 << 64) - 1

Native = Any  # any: what nvidia-ml-py, which has no types, gives and takes: its module, handles and structures
Arguments = tuple[int | str, ...]
Questions = Sequence[tuple[str, Arguments]]


class Nvml:
    """Reads from NVML. Every failure is an OSError that says what is absent."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._tasks: SimpleQueue[Questions | None] = SimpleQueue()
        self._answers: SimpleQueue[Json] = SimpleQueue()
        self._problem: str | None = None
        self._turn = threading.Lock()
        self._lost: set[int | str] = set()
        threading.Thread(target=_serve, args=(self._tasks, self._answers), name="sysperf-nvml", daemon=True).start()
        try:
            self._problem = self._wait("nvmlInit")
        except OSError as error:
            self._problem = str(error)

    def ask(self, name: str, args: Arguments) -> Json:
        """Call ``nvml<name>`` and return JSON-like data."""
        (answer,) = self.ask_all([(name, args)])
        if isinstance(answer, OSError):
            raise answer
        return answer

    def ask_all(self, questions: Questions) -> list[Json]:
        """The answers of several calls, an OSError for each that failed. They wait for the other thread only once."""
        refused = [self._refused(name, args) for name, args in questions]
        asked = [question for question, refusal in zip(questions, refused, strict=True) if refusal is None]
        answers = iter(self._answered(asked) if asked else ())
        return [next(answers) if refusal is None else refusal for refusal in refused]

    def set(self, name: str, args: Arguments) -> None:
        """Change a setting of a GPU. Raises OSError."""
        if name not in _SETS:
            raise OSError(f"sysperf does not call nvml{name}")
        if self._problem:
            raise OSError(self._problem)
        (answer,) = self._answered([(name, args)])
        if isinstance(answer, OSError):
            raise answer

    def _refused(self, name: str, args: Arguments) -> OSError | None:
        """Why we do not call this, if so."""
        if self._problem:
            return OSError(self._problem)
        if not name.startswith(_READS) or name.startswith(_PRIVATE):
            return OSError(f"sysperf does not call nvml{name}")
        return OSError(LOST) if args and args[0] in self._lost else None

    def _answered(self, questions: Questions) -> list[Json]:
        with self._turn:
            self._tasks.put(questions)
            try:
                answers: list[Json] = self._wait(f"nvml{questions[0][0]}")
            except OSError as error:
                return [error] * len(questions)
        for (_, args), answer in zip(questions, answers, strict=True):
            if args and isinstance(answer, OSError) and str(answer) == LOST:
                self._lost.add(args[0])  # the other calls would each wait for a GPU that is not there
        return answers

    def close(self) -> None:
        """Let go of the GPUs: an open handle keeps a driver from being unloaded and a GPU from being reset."""
        self._problem = self._problem or "NVML was closed"
        self._tasks.put(None)

    def _wait(self, what: str) -> Json:
        try:
            return self._answers.get(timeout=self._seconds)
        except Empty:
            self._problem = f"{what} did not answer within {self._seconds:g} s: the driver hangs"
            raise OSError(self._problem) from None


def _serve(tasks: SimpleQueue[Questions | None], answers: SimpleQueue[Json]) -> None:
    """Open NVML, answer what is asked, close it. The first answer is what is wrong with NVML, or None."""
    library, problem = _opened()
    answers.put(problem)
    handles: dict[object, Native] = {}
    while not problem and (questions := tasks.get()) is not None:
        answers.put([_answer(library, handles, *question) for question in questions])
    if not problem:
        with contextlib.suppress(library.NVMLError):
            library.nvmlShutdown()


def _answer(library: Native, handles: dict[object, Native], name: str, args: Arguments) -> Json:
    """The answer, or the reason why there is none as an OSError."""
    try:
        return _call(library, handles, name, args)
    except library.NVMLError as error:
        return OSError(_said(error))
    except (TypeError, ValueError, ctypes.ArgumentError, AttributeError, IndexError) as error:
        return OSError(f"{type(error).__name__}: {error}"[:200])


def _opened() -> tuple[Native, str | None]:
    try:
        import pynvml  # noqa: PLC0415 - costs 20 ms; only machines with a driver pay
    except ImportError:
        return None, "nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return pynvml, _said(error)
    return pynvml, None


def _call(library: Native, handles: dict[object, Native], name: str, args: Arguments) -> Json:
    if name == "GpmMetrics":
        return _gpm(library, handles, int(args[0]), [int(metric) for metric in args[1:]])
    function = getattr(library, f"nvml{name}", None)
    if function is None:
        raise ValueError(f"this nvidia-ml-py has no nvml{name}")
    if name.startswith("System") or not args:
        return plain(function(*args))
    devices = 2 if name in _OF_TWO else 1
    first, rest = [_handle(library, handles, int(index)) for index in args[:devices]], args[devices:]
    if name == "DeviceGetFieldValues":
        return field_values(function(*first, [_field(field) for field in rest]), rest)
    if name in _FILLED:
        filled = getattr(library, _FILLED[name])()
        function(*first, ctypes.byref(filled))
        return plain(filled)
    answer = function(*first, *rest)
    if name == "DeviceValidateInforom":  # gives nothing where all is well
        return answer is None
    return _part(library, answer) if name == HANDLE else plain(answer)


def _part(library: Native, handle: Native) -> str | bool:
    """The name of a part of a GPU, as CUDA_VISIBLE_DEVICES takes it; whether it is there, where NVML tells no name."""
    try:
        name = plain(library.nvmlDeviceGetUUID(handle)) if handle is not None else ""
    except library.NVMLError:
        name = ""
    return name or handle is not None


def _gpm(library: Native, handles: dict[object, Native], index: int, metrics: list[int]) -> dict[str, float | None]:
    """Activity of a GPU since the last time this was asked; nothing the first time. Takes no lock from other profilers."""
    key, device = ("gpm", index), _handle(library, handles, index)
    before, after = handles.pop(key, None) or (None, library.nvmlGpmSampleAlloc())
    if before is None:
        handles[key] = (library.nvmlGpmSampleGet(device, after), None)
        return {}
    after = after or library.nvmlGpmSampleAlloc()
    library.nvmlGpmSampleGet(device, after)
    handles[key] = (after, before)  # the older one is filled anew next time
    asked = library.c_nvmlGpmMetricsGet_t(
        version=library.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(metrics), sample1=before, sample2=after
    )
    for place, metric in enumerate(metrics):
        asked.metrics[place].metricId = metric
    library.nvmlGpmMetricsGet(asked)
    return {str(result.metricId): result.value if result.nvmlReturn == 0 else None for result in asked.metrics[: len(metrics)]}


def _handle(library: Native, handles: dict[object, Native], index: int) -> Native:
    if index not in handles:
        handles[index] = library.nvmlDeviceGetHandleByIndex(index)
    return handles[index]


def _said(error: Exception) -> str:
    return _TEXTS.get(getattr(error, "value", 0)) or str(error)


def plain(value: Native) -> Json:
    """NVML's structures, objects, arrays and bytes as dicts, lists and text; its "not available" as None."""
    if value is None or isinstance(value, bool | int | float | str):
        return None if value == _NOT_AVAILABLE else value
    if isinstance(value, bytes):
        return value.split(b"\0")[0].decode("utf-8", "replace")
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, ctypes.Array | list | tuple):
        return [plain(item) for item in value]
    return plain(value.value) if hasattr(value, "value") else {name: plain(inner) for name, inner in vars(value).items()}


_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The member of the union that each NVML_VALUE_TYPE_* means."""


def _field(field: int | str) -> int | tuple[int, int]:
    """``230``, or ``215:3`` for the field of link 3."""
    number, _, scope = str(field).partition(":")
    return (int(number), int(scope)) if scope else int(number)


def field_values(values: Native, asked: Arguments) -> dict[str, int | float | None]:
    """The answers of DeviceGetFieldValues by what was asked, in its order; None for a field that this GPU does not have."""
    answers: dict[str, int | float | None] = {}
    for name, value in zip(asked, values, strict=False):
        known = value.nvmlReturn == 0 and value.valueType < len(_MEMBERS)
        answers[str(name)] = plain(getattr(value.value, _MEMBERS[value.valueType])) if known else None
    return answers
