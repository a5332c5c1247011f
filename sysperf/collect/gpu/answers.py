"""Answers of NVML about one GPU, each as the type that it should have, or unknown.

Reads   NVML (libnvidia-ml.so.1)

A GPU that lacks a feature answers "Not Supported". That is knowledge: no ECC, no MIG, no NVLink. Every other failure
leaves the fact unknown, with the reason.
"""

from sysperf.host import Host
from sysperf.model.record import Json
from sysperf.model.text import neutral
from sysperf.procfs import pci

NOT_SUPPORTED = "Not Supported"
LOST = "GPU is lost"


class Answers:
    """One GPU's answers. What it lacks answers `absent`; what could not be asked is None."""

    def __init__(self, host: Host, index: int) -> None:
        self.host = host
        self.index = index
        self.lost = False

    def ask(self, name: str, *args: int, absent: Json = None) -> Json:
        answer = self.host.nvml(name, self.index, *args)
        if answer is None:
            reason = self.host.sources[-1].error
            self.lost = self.lost or reason == LOST
            return absent if reason == NOT_SUPPORTED else None
        return answer

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

    def numbers(self, name: str, *args: int, count: int = 2) -> list[int | None]:
        """A list of `count` numbers, each unknown where it is none."""
        answer = self.ask(name, *args)
        values = [number(item) for item in answer[:count]] if isinstance(answer, list | tuple) else []
        return values + [None] * (count - len(values))


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
