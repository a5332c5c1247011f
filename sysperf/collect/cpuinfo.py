"""/proc/cpuinfo, which every architecture writes in its own words.

Reads   /proc/cpuinfo
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

import re

from sysperf.host import Host
from sysperf.model.cpuset import LARGEST, CpuSet

CPUINFO = "/proc/cpuinfo"
MAX_BYTES = 32 << 20
"""Two thousand CPUs times the 4 KiB that a CPU with all flags takes, four times over."""

_PROCESSOR = re.compile(r"^processor[ \t]*:?[ \t]*(\d{1,5})[ \t]*(?::|$)", re.MULTILINE)
_FEATURES = ("flags", "Features", "features", "isa", "cpucaps")
_DESIGN = ("CPU implementer", "CPU part", "mvendorid", "marchid", "uarch")


class Cpuinfo:
    """What the file says of the machine (its first CPU) and of the design of each CPU's core."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.first = _fields(text.lstrip("\n").split("\n\n", 2)[:2])

    def get(self, *names: str) -> str:
        """The first CPU's value under the first of these names that is there; empty when none is."""
        return next((self.first[name] for name in names if self.first.get(name)), "")

    @property
    def flags(self) -> frozenset[str] | None:
        """The features of the first CPU as the kernel names them; None where the file lists none."""
        listed = self.get(*_FEATURES)
        return frozenset(re.split(r"[\s,]+", listed)) if listed else None

    def designs(self) -> dict[int, str]:
        """The design of each CPU's core, where the file tells designs apart (ARM, RISC-V)."""
        if "CPU part" not in self._text and "marchid" not in self._text:
            return {}
        found = {}
        for block in self._text.split("\n\n"):
            fields = _fields([block])
            number = fields.get("processor", "")
            if number.isdigit() and any(name in fields for name in _DESIGN[1:]):
                found[int(number[:9])] = " ".join(fields.get(name, "") for name in _DESIGN)
        return found


def cpuinfo(host: Host) -> Cpuinfo | None:
    """Read the file; None when it cannot be read."""
    text = host.text(CPUINFO, MAX_BYTES)
    return None if text is None else Cpuinfo(text)


def processors(host: Host) -> CpuSet | None:
    """The numbers of the CPUs that the file lists, which are those online; None when it lists none."""
    text = host.text(CPUINFO, MAX_BYTES)
    found = [int(number) for number in _PROCESSOR.findall(text or "")]
    return CpuSet(cpu for cpu in found if cpu <= LARGEST) or None


def _fields(blocks: list[str]) -> dict[str, str]:
    """``name : value`` lines; what comes first wins."""
    found: dict[str, str] = {}
    for block in blocks:
        for line in block.splitlines():
            name, colon, value = line.partition(":")
            if colon:
                found.setdefault(name.strip(), value.strip())
    return found
