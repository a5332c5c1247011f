"""The longest that a CPU may take to wake up: a request that holds only while its file is open.

Kernel  https://docs.kernel.org/admin-guide/pm/pm_qos_interface.html
"""

from __future__ import annotations

import errno
import os
import struct

from sysperf.fix.target import Target
from sysperf.host import Host
from sysperf.model.knob import Knob

_LIMIT = struct.Struct("=i")
_HELD: dict[str, int] = {}
"""The files that this process keeps open, by path: they are the requests."""


class Latency(Target):
    """The effective limit in microseconds: the smallest that anybody requests."""

    def __init__(self, host: Host, knob: Knob) -> None:
        self.host, self.knob, self.path = host, knob, knob.path

    def read(self) -> str:
        """The limit in force."""
        with open(self.host.settings.hold(self.path, os.O_RDONLY), "rb", buffering=0) as file:
            raw = file.read(_LIMIT.size)
        if len(raw) != _LIMIT.size:
            raise OSError(errno.EIO, "it gives no number")
        return str(_LIMIT.unpack(raw)[0])

    def write(self, value: str) -> None:
        """Request it, until `release` or the end of this process."""
        release()
        descriptor = self.host.settings.hold(self.path, os.O_WRONLY)
        _HELD[self.path] = descriptor
        os.write(descriptor, _LIMIT.pack(int(value)))

    def problem(self) -> str:
        """Why it can not be set here."""
        return self.host.settings.refusal(self.path)


def held() -> list[int]:
    """The files that keep the request."""
    return [*_HELD.values()]


def release() -> None:
    """Withdraw the request."""
    for path in [*_HELD]:
        os.close(_HELD.pop(path))
