"""Settings of a GPU through NVML.

NVML  https://docs.nvidia.com/deploy/nvml-api/ nvmlDeviceSetPersistenceMode
"""

from __future__ import annotations

import errno
import os

from sysperf.fix.target import Target
from sysperf.host import Host
from sysperf.model.knob import Knob


class Persistence(Target):
    """Persistence mode: the driver stays loaded while no program uses the GPU."""

    def __init__(self, host: Host, knob: Knob, bus_id: str) -> None:
        self.host, self.knob, self.bus_id = host, knob, bus_id.lower()
        self.path = f"persistence mode of GPU {self.bus_id}"
        self._index = self._find()

    def read(self) -> str:
        """0 or 1."""
        answer = self.host.nvml("DeviceGetPersistenceMode", self._index)
        if answer is None:
            raise OSError(self.host.sources[-1].error or "NVML does not say")
        return str(answer)

    def write(self, value: str) -> None:
        """Set it."""
        self.host.settings.nvml_set("DeviceSetPersistenceMode", self._index, int(value))

    def problem(self) -> str:
        """Why it can not be set here."""
        return "" if os.geteuid() == 0 else "only root may set it"

    def _find(self) -> int:
        """NVML's number of the GPU at this address; it writes the domain with eight digits, sysfs with four."""
        count = self.host.nvml("DeviceGetCount")
        if count is None:
            raise OSError(self.host.sources[-1].error or "NVML does not answer")
        for index in range(int(count)):
            info = self.host.nvml("DeviceGetPciInfo", index)
            if isinstance(info, dict) and _short(str(info.get("busId", ""))) == _short(self.bus_id):
                return index
        raise OSError(errno.ENODEV, f"NVML knows no GPU at {self.bus_id}")


def _short(bus_id: str) -> str:
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain.lstrip('0') or '0'}:{rest}"
