"""Live meters of AMD's GPUs, from files of amdgpu and of its compute driver.

Reads   /sys/class/drm/card*/device/{gpu_busy_percent,mem_busy_percent,mem_info_vram_used,pp_dpm_sclk,gpu_metrics}
        …/hwmon/hwmon*/{power1_average,power1_input,freq1_input,temp*_input}  /sys/class/kfd/kfd/proc/*/vram_*
Kernel  https://docs.kernel.org/gpu/amdgpu/thermal.html  https://docs.kernel.org/gpu/amdgpu/driver-misc.html

Left out: `pcie_bw`, which counts for a second while it is read, and `cu_occupancy`, which tells of one moment and not of a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from sysperf.collect.gpu import amd
from sysperf.collect.gpu.drm import Card, labels
from sysperf.collect.readers import kfd
from sysperf.host import Host
from sysperf.host.namespaces import counts_processes_as_the_kernel
from sysperf.live.gpus.files import PERCENT, FileGpu, Place
from sysperf.live.gpus.meters import Reasons, Values, bits_of, put, put_events
from sysperf.live.open_file import OpenFile
from sysperf.procfs.gpu_metrics import Held, held, throttled_between, throttled_by
from sysperf.procfs.numbers import whole
from sysperf.startup import lazy

LIST_S = 5.0
"""Time between two lists of the programs that compute; their memory is read each time."""
PCIE = "amdgpu counts bytes over PCIe for a second while it is asked"
SHARED = "the kernel does not count work of ROCm by program"
NOT_OURS = "the driver counts processes as the host does, not as this container does"
_EVENTS = ("clock_events", "power_capped", "slowed")
_CURRENT = lazy(rb"([0-9]{1,5})[mM]hz \*")


class AmdGpus:
    """Meters of all GPUs of AMD that are for computing."""

    def __init__(self, host: Host, cards: list[Card], first: int, clock: Callable[[], float], root: str) -> None:
        found = amd.computing(host, cards, kfd.nodes(host))
        self.count = len(found)
        self.problem = ""
        self._gpus = [_Gpu(host, card.folder, first + place, clock, root) for place, (card, _) in enumerate(found)]
        ids = {node.gpu_id for _, nodes in found for node in nodes if node.gpu_id is not None}
        self._programs = _Programs(ids, clock, root) if counts_processes_as_the_kernel(host) else None

    def sample(self, out: Values) -> None:
        for gpu in self._gpus:
            gpu.sample(out)
        if self._programs is not None:
            self._programs.sample(out)

    def unknown(self) -> Reasons:
        reasons = {name: reason for gpu in self._gpus for name, reason in gpu.unknown().items()}
        reasons["process.*.gpu_utilization"] = SHARED
        return reasons if self._programs is not None else reasons | {"process.*.gpu_memory_bytes": NOT_OURS}


class _Gpu(FileGpu):
    """One GPU, and what its firmware counted last."""

    def __init__(self, host: Host, folder: str, index: int, clock: Callable[[], float], root: str) -> None:
        super().__init__(host, folder, index, clock, root)
        at = self.sensors or f"{folder}/hwmon/none"
        self.keep(host, {
            "utilization": Place((f"{folder}/gpu_busy_percent",), PERCENT),
            "memory_utilization": Place((f"{folder}/mem_busy_percent",), PERCENT),
            "memory_used_bytes": Place((f"{folder}/mem_info_vram_used",)),
            "power_watts": Place((f"{at}/power1_average", f"{at}/power1_input"), 1e-6),
            "sm_clock_mhz": Place((f"{at}/freq1_input",), 1e-6),
            "celsius": Place((f"{at}/temp{amd.hottest(labels(host, at))}_input",), 1e-3),
        })  # fmt: skip
        self.reasons |= {"pcie_received_bytes_per_s": PCIE, "pcie_sent_bytes_per_s": PCIE}
        levels = f"{folder}/pp_dpm_sclk"
        self._levels = self.open(levels) if "sm_clock_mhz" in self.reasons and host.exists(levels) else None
        self._metrics = self.open(f"{folder}/gpu_metrics") if host.exists(f"{folder}/gpu_metrics") else None
        self._held: Held | None = None

    def sample(self, out: Values) -> bool:
        awake = super().sample(out)
        if awake and self._levels is not None and (current := _CURRENT.search(self._levels.read() or b"")):
            self.reasons.pop("sm_clock_mhz", None)
            put(out, self.index, "sm_clock_mhz", int(current[1]))
        if awake and self._metrics is not None:
            self._throttled(self._metrics, out)
        return awake

    def _throttled(self, file: OpenFile, out: Values) -> None:
        """Why the clocks are low: as a state, or counted since the last sample on MI300 and newer."""
        raw = file.read() or b""
        before, self._held = self._held, held(raw)
        events = throttled_by(raw)
        if self._held is not None:
            events = throttled_between(before, self._held) if before is not None else None
        if events is not None or self._held is not None:
            self.reasons = {name: reason for name, reason in self.reasons.items() if name not in _EVENTS}
        else:
            self.reasons |= dict.fromkeys(_EVENTS, file.problem or "gpu_metrics of this GPU does not tell")
        put_events(out, self.index, bits_of(events))


class _Programs:
    """The memory of each program that computes, over all GPUs. The compute driver lists those of all users."""

    def __init__(self, gpu_ids: set[int], clock: Callable[[], float], root: str) -> None:
        self._clock = clock
        self._folder = f"{root}{kfd.KFD_PROCESSES}"
        self._names = [f"vram_{gpu_id}" for gpu_id in sorted(gpu_ids)]
        self._listed_at = -LIST_S
        self._files: dict[int, list[OpenFile]] = {}

    def sample(self, out: Values) -> None:
        if self._clock() - self._listed_at >= LIST_S:
            self._listed_at = self._clock()
            self._list()
        for pid, files in self._files.items():
            held_bytes = [amount for file in files if (amount := whole((file.read() or b"").strip())) is not None]
            if held_bytes:
                out[f"process.{pid}.gpu_memory_bytes"] = sum(held_bytes)

    def _list(self) -> None:
        try:
            pids = [pid for name in os.listdir(self._folder) if (pid := whole(name))][: kfd.MAX_PROCESSES]
        except OSError:
            pids = []
        known, self._files = self._files, {}
        for pid in pids:
            folder = f"{self._folder}/{pid}"
            self._files[pid] = known.get(pid) or [OpenFile(f"{folder}/{name}", self._clock) for name in self._names]
