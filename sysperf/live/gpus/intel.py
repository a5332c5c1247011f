"""Live meters of Intel's GPUs, from files of xe and i915, and from what these count for each program.

Reads   /sys/class/drm/card*/device/tile0/gt0/freq0/{act_freq,throttle/*}
        /sys/class/drm/card*/gt/gt0/{rps_act_freq_mhz,throttle_reason_*} of the older driver
        …/device/hwmon/hwmon*/{energy*_input,temp*_input}  /proc/[pid]/fd  /proc/[pid]/fdinfo/[fd] of files below /dev/dri
        …/device/tile*/gt*/gtidle/idle_residency_ms  …/gt/gt*/rc6_residency_ms of the older driver
Kernel  https://docs.kernel.org/gpu/xe/xe_gt_freq.html  https://docs.kernel.org/gpu/drm-usage-stats.html
        https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon
"""

from __future__ import annotations

from collections.abc import Callable

from sysperf.collect.gpu import intel
from sysperf.collect.gpu.drm import Card, labels
from sysperf.collect.gpu.intel_use import idle_files
from sysperf.host import Host
from sysperf.host.namespaces import counts_processes_as_the_kernel
from sysperf.live.gpus.drm_clients import Clients, Used
from sysperf.live.gpus.files import FileGpu, Place
from sysperf.live.gpus.meters import Reasons, Values, bits_of, put, put_events
from sysperf.live.system import Rates

NOT_COUNTED = "its driver does not count this for each program"
_EVENTS = ("clock_events", "power_capped", "slowed")


class IntelGpus:
    """Meters of all GPUs of Intel that are for computing."""

    def __init__(self, host: Host, cards: list[Card], first: int, clock: Callable[[], float], root: str) -> None:
        found = intel.computing(cards)
        self.count = len(found)
        self.problem = ""
        self._gpus = [_Gpu(host, card, first + place, clock, root) for place, card in enumerate(found)]
        self._clients = Clients(clock, root, sees_all=counts_processes_as_the_kernel(host))

    def sample(self, out: Values) -> None:
        used = self._clients.sample({gpu.bus_id for gpu in self._gpus})
        for gpu in self._gpus:
            if gpu.sample(out):
                gpu.take([program for program in used if program.bus_id == gpu.bus_id], self._clients.unseen, out)

    def unknown(self) -> Reasons:
        return {name: reason for gpu in self._gpus for name, reason in gpu.unknown().items()}


class _Gpu(FileGpu):
    """One GPU. Its driver keeps no file of use and memory: they are sums over the programs."""

    def __init__(self, host: Host, card: Card, index: int, clock: Callable[[], float], root: str) -> None:
        super().__init__(host, card.folder, index, clock, root)
        self.bus_id = card.bus_id
        at = self.sensors or f"{card.folder}/hwmon/none"
        newer, older = f"{card.folder}/tile0/gt0/freq0", f"{card.folder.rpartition('/')[0]}/gt/gt0"
        package = labels(host, at).get("pkg")
        self.keep(host, {
            "sm_clock_mhz": Place((f"{newer}/act_freq", f"{older}/rps_act_freq_mhz")),
            "celsius": Place((f"{at}/temp{package}_input",) if package else (), 1e-3),
        })  # fmt: skip
        energy = next((path for name in ("energy1_input", "energy2_input") if host.exists(path := f"{at}/{name}")), None)
        self._energy = self.open(energy) if energy else None
        start, status = (f"{newer}/throttle/reason_", f"{newer}/throttle/status")
        if not host.exists(newer):
            start, status = (f"{older}/throttle_reason_", f"{older}/throttle_reason_status")
        self._status_of_clocks = self.open(status) if host.exists(status) else None
        reasons = [(event, f"{start}{name}") for name, event in intel.REASONS.items()]
        self._held_by = [(event, self.open(path)) for event, path in reasons if host.exists(path)]
        self._idle = [self.open(path) for path in idle_files(host, card.folder)]
        self._rates = Rates()

    def sample(self, out: Values) -> bool:
        awake = super().sample(out)
        if awake and self._energy is not None and (data := self._energy.read()) is not None:
            self.reasons.pop("power_watts", None)
            joules = int(data) / 1e6 if data.strip().isdigit() else None
            put(out, self.index, "power_watts", self._rates.per_s("energy", self.clock(), joules) if joules is not None else None)
        if awake and self._held_by:
            self._throttled(out)
        return awake

    def take(self, used: list[Used], unseen: str, out: Values) -> None:
        """Add what programs do on it. That none does is known only where all programs are seen."""
        for program in used:
            _add(out, f"process.{program.pid}.gpu_memory_bytes", program.held_bytes)
            if program.counts and program.engines is not None:
                _add(out, f"process.{program.pid}.gpu_utilization", min(1.0, max(program.engines.values(), default=0.0)))
        held, busy = [program.held_bytes for program in used], [program.engines for program in used]
        uncounted = "" if all(program.counts for program in used) else NOT_COUNTED
        reason = unseen or uncounted
        share = self._awake() if reason else None
        self._put_sum("utilization", _busiest(busy) if share is None else share, reason if share is None else "", out)
        self._put_sum("memory_used_bytes", sum(filter(None, held)), unseen or (NOT_COUNTED if None in held else ""), out)

    def _awake(self) -> float | None:
        """How long its busiest part was awake, for whoever does not see all programs: a little longer than it computed."""
        read = [file.read() for file in self._idle]
        slept = [int(data) / 1000 for data in read if data is not None and data.strip().isdigit()]
        rates = [self._rates.per_s(f"idle {part}", self.clock(), seconds) for part, seconds in enumerate(slept)]
        known = [rate for rate in rates if rate is not None]
        return 1 - min(1.0, *known) if known and len(known) == len(self._idle) else None

    def _put_sum(self, name: str, value: float | None, reason: str, out: Values) -> None:
        if reason:
            self.reasons[name] = reason
        else:
            self.reasons.pop(name, None)
            put(out, self.index, name, value)

    def _throttled(self, out: Values) -> None:
        """Ask for the reasons only where there is one."""
        status = self._status_of_clocks.read() if self._status_of_clocks is not None else None
        calm = status is not None and status.strip() == b"0"
        said = [] if calm else [(event, file.read()) for event, file in self._held_by]
        if not calm and all(data is None for _, data in said):
            return
        put_events(out, self.index, bits_of(event for event, data in said if data and data.strip() != b"0"))
        self.reasons = {name: reason for name, reason in self.reasons.items() if name not in _EVENTS}


def _busiest(programs: list[dict[str, float] | None]) -> float | None:
    """The share of the engine that most of the time has work; None where the share of a program is known with the next sample only."""
    known = [engines for engines in programs if engines is not None]
    names = {name for engines in known for name in engines}
    busiest = max((sum(engines.get(name, 0.0) for engines in known) for name in names), default=0.0)
    return min(1.0, busiest) if len(known) == len(programs) else None


def _add(out: Values, name: str, value: float | None) -> None:
    if value is not None:
        out[name] = out.get(name, 0.0) + value
