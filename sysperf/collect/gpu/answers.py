"""Answers of NVML about one GPU, each as the type that it should have, or unknown.

Reads   NVML (libnvidia-ml.so.1)

A GPU that lacks a feature answers "Not Supported". That is knowledge: no ECC, no MIG, no NVLink. Every other failure
leaves the fact unknown, with the reason.
"""

from sysperf.host import NOT_CAPTURED, Host
from sysperf.model.record import Json
from sysperf.model.text import neutral
from sysperf.procfs import pci

NOT_SUPPORTED = "Not Supported"
LOST = "GPU is lost"
LACKING = (NOT_SUPPORTED, "Function Not Found")
"""In the reasons of failed calls: the GPU, or its driver, does not have such a setting."""
HARMLESS = (
    *LACKING,
    "Not Found",
    "deprecated",
    "Invalid Argument",
    "ermission",
    "operating system",
    NOT_CAPTURED,
    "nvml",
)
"""In the reasons of failed calls that say nothing about the GPU's health: what it, the driver, our rights or the capture lack."""


class Answers:
    """One GPU's answers. What it lacks answers `absent`; what could not be asked is None."""

    def __init__(self, host: Host, index: int) -> None:
        self.host = host
        self.index = index
        self.failed: dict[str, str] = {}

    def ask(self, name: str, *args: int | str, absent: Json = None) -> Json:
        answer = self.host.nvml(name, self.index, *args)
        if answer is None:
            reason = self.host.sources[-1].error or ""
            self.failed[name] = reason
            return absent if reason == NOT_SUPPORTED else None
        return answer

    def ask_newer(self, name: str, absent: Json) -> Json:
        """Ask what an older driver has no function for: where it has none, nobody can have set it."""
        answer = self.ask(name, absent=absent)
        return absent if answer is None and self.failed[name] in LACKING else answer

    def number(self, name: str, *args: int, absent: int | None = None) -> int | None:
        return number(self.ask(name, *args, absent=absent))

    def watts(self, name: str) -> float | None:
        milliwatts = self.number(name)
        return None if milliwatts is None else milliwatts / 1000

    def truth(self, name: str, *args: int, absent: bool | None = None) -> bool | None:
        answer = self.ask(name, *args, absent=absent)
        return bool(answer) if isinstance(answer, bool | int) else None

    def text(self, name: str) -> str | None:
        answer = self.ask(name)
        return neutral(answer, 120) if isinstance(answer, str) and answer else None

    def one_of(self, names: dict[int, str], name: str, absent: str | None = None) -> str | None:
        answer = self.ask(name, absent=absent)
        return answer if answer is not None and answer == absent else names.get(answer) if isinstance(answer, int) else None

    def numbers(self, name: str, *args: int, count: int = 2, absent: Json = None) -> list[int | None]:
        """A list of `count` numbers, each unknown where it is none."""
        answer = self.ask(name, *args, absent=absent)
        values = [number(item) for item in answer[:count]] if isinstance(answer, list | tuple) else []
        return values + [None] * (count - len(values))

    def troubles(self) -> tuple[str, ...]:
        """What single answers say of an ill GPU: its own memory or its power in any call, no value at all of a sensor, no name."""
        values = (*_SENSORS, *_MEMORY, _NAME)
        grave = ((name, reason) for name, reason in self.failed.items() if reason in _ILL or (name in values and reason in _NO_VALUE))
        return tuple(f"{name.removeprefix('Device').removeprefix('Get')}: {reason}" for name, reason in grave)

    def problem(self) -> str | None:
        """Return why the GPU does not answer: '' when it does, None when that cannot be told.

        Where NVML has no handle of a GPU, every call fails with the same words; a GPU whose firmware hangs still has its name.
        """
        if LOST in self.failed.values():
            return LOST
        reasons = {self.failed[name] for name in _IDENTITY if name in self.failed}
        grave = sorted(reason for reason in reasons if not any(word in reason for word in HARMLESS))
        if len(_IDENTITY & self.failed.keys()) == len(_IDENTITY):
            return neutral(grave[0], 200) if grave else None
        silent = [self.failed[name] for name in _VITAL if name in self.failed]
        grave = [reason for reason in silent if not any(word in reason for word in HARMLESS)]
        return neutral(grave[0], 200) if len(grave) == len(_VITAL) else ""


_IDENTITY = frozenset(("DeviceGetPciInfo", "DeviceGetUUID", "DeviceGetName"))
_ILL = ("Insufficient External Power", "Interrupt Request Issue", "Corrupted infoROM", "GPU requires restart")
_SENSORS = ("DeviceGetUtilizationRates", "DeviceGetTemperature", "DeviceGetClockInfo", "DeviceGetPowerUsage", "DeviceGetFanSpeed")
_NAME = "DeviceGetName"
"""A driver that is older than a GPU has no name for it."""
_MEMORY = ("DeviceGetMemoryInfo", "DeviceGetRemappedRows", "DeviceGetTotalEccErrors")
_NO_VALUE = ("Unknown Error", "Timeout")
_VITAL = ("DeviceGetUtilizationRates", "DeviceGetTemperature", "DeviceGetClockInfo")


def bus_id_in(info: Json) -> str | None:
    """The PCI address as sysfs writes it."""
    return pci.bus_id(str(info.get("busId", ""))) if isinstance(info, dict) else None


def truth(value: int | None) -> bool | None:
    """A number as true or false; unknown stays unknown."""
    return None if value is None else bool(value)


def number(value: object) -> int | None:
    """The answer as a whole number that fits 64 bits; unknown when it is anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def percent(value: int | None) -> int | None:
    """A number from 0 to 100; unknown when it is anything else."""
    return value if value in range(101) else None


def key(answer: Json, name: str, otherwise: Json = None) -> Json:
    """The number of this name in a dict of answers."""
    value = number(answer.get(name)) if isinstance(answer, dict) else None
    return otherwise if value is None else value
