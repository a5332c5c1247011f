"""/proc/PID/status: what the kernel says of a process, ``Name: value`` a line.

Kernel  https://docs.kernel.org/filesystems/proc.html (table 1-2)
"""

from __future__ import annotations

from sysperf.model.cpuset import CpuSet
from sysperf.model.text import parse_size
from sysperf.procfs import cpulist
from sysperf.procfs.numbers import whole
from sysperf.startup import lazy

CPUS, NODES = "Cpus_allowed_list", "Mems_allowed_list"
CAP_SYS_ADMIN, CAP_SYS_NICE = 21, 23
_MASK = lazy(r"[0-9a-fA-F]{1,16}")


class Status:
    """The fields that we use, each None where the text does not say."""

    __slots__ = ("_fields",)

    def __init__(self, text: str) -> None:
        lines = (line.partition(":") for line in text.splitlines())
        self._fields: dict[str, str] = {}
        for name, colon, value in lines:
            if colon:
                self._fields.setdefault(name, value.strip())

    def get(self, name: str) -> str | None:
        """The text of a field."""
        return self._fields.get(name)

    @property
    def user(self) -> int | None:
        """The real user of four numbers."""
        return whole(self._fields.get("Uid", "").partition("\t")[0])

    @property
    def group(self) -> int | None:
        """The real group of four numbers."""
        return whole(self._fields.get("Gid", "").partition("\t")[0])

    @property
    def ppid(self) -> int | None:
        """The process number of its parent."""
        return whole(self._fields.get("PPid"))

    @property
    def cpus(self) -> CpuSet | None:
        """The CPUs that it may use."""
        return cpulist.parse(self._fields.get(CPUS))

    @property
    def nodes(self) -> CpuSet | None:
        """The memory nodes that it may use."""
        return cpulist.parse(self._fields.get(NODES))

    def has_capability(self, number: int) -> bool | None:
        """Whether a capability is in effect."""
        text = self._fields.get("CapEff", "")
        return bool(int(text, 16) >> number & 1) if _MASK.fullmatch(text) else None

    def size_bytes(self, name: str) -> int | None:
        """A size such as ``VmRSS:	  123456 kB``."""
        try:
            return parse_size(self._fields[name])
        except (KeyError, ValueError):
            return None
