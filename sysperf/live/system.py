"""What the machine does right now: cheap numbers out of files that stay open.

Reads   /proc/{stat,meminfo,vmstat,diskstats,uptime}  /proc/net/dev  /proc/pressure/{cpu,memory,io}
        /sys/class/net/*/device  /sys/block/*/device  /sys/devices/system/cpu/cpufreq/policy*/scaling_cur_freq
        <group>/cpu.stat of the groups in which PyTorch runs
Kernel  https://docs.kernel.org/filesystems/proc.html  https://docs.kernel.org/accounting/psi.html
        https://docs.kernel.org/admin-guide/iostats.html

A number that cannot be read is left out, and `problems` says why. Shares are from 0 to 1.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from sysperf.live.metric import BYTES, BYTES_PER_S, COUNT, MHZ, PER_S, SHARE, Metric
from sysperf.live.open_file import OpenFile
from sysperf.procfs import cpu_ticks, diskstats, net_dev, psi, vmstat
from sysperf.procfs.cpu_ticks import CpuTicks
from sysperf.procfs.numbers import after

METRICS = (
    Metric("cpu", "busy", SHARE, "share of all CPUs' time that was used; waiting for disks is not use"),
    Metric("cpu", "user", SHARE, "share of all CPUs' time spent in programs"),
    Metric("cpu", "system", SHARE, "share of all CPUs' time spent in the kernel"),
    Metric("cpu", "iowait", SHARE, "share of all CPUs' time idle while a program of that CPU waited for a disk"),
    Metric("cpu", "irq", SHARE, "share of all CPUs' time spent in interrupts"),
    Metric("cpu", "steal", SHARE, "share of all CPUs' time that the hypervisor gave to others"),
    Metric("cpu", "frequency_mhz", MHZ, "mean clock of up to 8 CPUs"),
    Metric("cpu", "runnable", COUNT, "tasks that run or wait for a CPU"),
    Metric("memory", "available_bytes", BYTES, "memory that programs can get without swapping"),
    Metric("memory", "dirty_bytes", BYTES, "file data that waits to be written"),
    Metric("memory", "swap_used_bytes", BYTES, "swap in use"),
    Metric("memory", "major_faults_per_s", PER_S, "page faults that had to read from a disk, each second"),
    Metric("memory", "swap_in_bytes_per_s", BYTES_PER_S, "memory read back from swap each second"),
    Metric("memory", "swap_out_bytes_per_s", BYTES_PER_S, "memory written to swap each second"),
    Metric(
        "memory", "oom_kills", COUNT, "programs that the kernel killed for memory since it started", prometheus="memory_oom_kills_total"
    ),
    Metric("numa", "misses_per_s", PER_S, "pages that were wanted on another node than they were given on, each second"),
    Metric("numa", "hint_faults_per_s", PER_S, "page faults that automatic NUMA balancing caused, each second"),
    Metric("numa", "migrated_pages_per_s", PER_S, "pages that automatic NUMA balancing moved, each second"),
    Metric("pressure", "cpu.some_avg10", SHARE, "share of the last 10 s in which some task waited for a CPU"),
    Metric("pressure", "memory.some_avg10", SHARE, "share of the last 10 s in which some task waited for memory"),
    Metric("pressure", "memory.full_avg10", SHARE, "share of the last 10 s in which all tasks waited for memory"),
    Metric("pressure", "io.some_avg10", SHARE, "share of the last 10 s in which some task waited for I/O"),
    Metric("pressure", "io.full_avg10", SHARE, "share of the last 10 s in which all tasks waited for I/O"),
    Metric("network", "received_bytes_per_s", BYTES_PER_S, "bytes received each second by network cards"),
    Metric("network", "sent_bytes_per_s", BYTES_PER_S, "bytes sent each second by network cards"),
    Metric("disk", "read_bytes_per_s", BYTES_PER_S, "bytes read from disks each second"),
    Metric("disk", "written_bytes_per_s", BYTES_PER_S, "bytes written to disks each second"),
    Metric("disk", "busy", SHARE, "share of the time in which the busiest disk had work"),
    Metric("cgroup", "throttled_cpus", COUNT, "CPUs' worth of time that quotas took from the groups in which PyTorch runs"),
)

SLOW_S = 10.0
"""What seldom changes, or costs an interrupt on each CPU, is read this often."""
FEW_CPUS = 8
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_PAGE_RATES = {
    # meter: the counter of /proc/vmstat, and what one of it is
    "memory.major_faults_per_s": ("pgmajfault", 1),
    "memory.swap_in_bytes_per_s": ("pswpin", PAGE_BYTES),
    "memory.swap_out_bytes_per_s": ("pswpout", PAGE_BYTES),
    "numa.misses_per_s": ("numa_miss", 1),
    "numa.hint_faults_per_s": ("numa_hint_faults", 1),
    "numa.migrated_pages_per_s": ("numa_pages_migrated", 1),
}
_PAGE_COUNTERS = (*(counter for counter, _ in _PAGE_RATES.values()), "oom_kill")


class Rates:
    """Counters turned into changes per second. The first reading, and one that ran backwards, gives none."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def per_s(self, name: str, at: float, count: float) -> float | None:
        last = self._last.get(name)
        self._last[name] = (at, count)
        if last is None or at <= last[0] or count < last[1]:
            return None
        return (count - last[1]) / (at - last[0])

    def keep(self, names: Iterable[str]) -> None:
        """Forget all others."""
        self._last = {name: self._last[name] for name in names if name in self._last}


class System:
    """Meters of the machine as a whole."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, root: str = "") -> None:
        self._clock = clock
        self._root = root
        self._rates = Rates()
        self._kept: dict[str, OpenFile] = {}
        self._cpu_last: CpuTicks | None = None
        self._cpus_last: dict[int, CpuTicks] = {}
        self._slow_at = -SLOW_S
        self._cards: frozenset[str] | None = None
        self._disks: frozenset[str] | None = None
        self._groups: tuple[str, ...] = ()
        self._policies: list[str] | None = None

    @property
    def problems(self) -> dict[str, str]:
        """Files that cannot be read, with the reason."""
        return {path: kept.problem for path, kept in self._kept.items() if kept.problem}

    def sample(self) -> dict[str, float]:
        """All meters that can be read now."""
        out: dict[str, float] = {}
        at = self._clock()
        slow = at - self._slow_at >= SLOW_S
        if slow:
            self._slow_at = at
            self._hardware()
        for path, parse in (
            ("/proc/stat", self._stat),
            ("/proc/meminfo", self._meminfo),
            ("/proc/vmstat", self._vmstat),
            ("/proc/net/dev", self._network),
            ("/proc/diskstats", self._disk),
        ):
            data = self._file(path).read_if_cheap()
            if data is not None:
                _guarded(self._file(path), parse, data, out)
        self._pressure(out)
        self._throttled(out)
        if slow:
            self._frequency(out)
        return out

    def per_cpu(self) -> dict[int, float]:
        """The busy share of each CPU since the last call; empty on the first. For a view that is open only."""
        busy: dict[int, float] = {}
        before, self._cpus_last = self._cpus_last, cpu_ticks.of_each(self._file("/proc/stat").read())
        for cpu, now in self._cpus_last.items():
            if cpu in before and (total := sum(now) - sum(before[cpu])) > 0:
                busy[cpu] = min(1.0, max(0.0, 1 - (now.unused - before[cpu].unused) / total))
        return busy

    def watch_groups(self, files: Iterable[str]) -> None:
        """The cpu.stat files of the groups in which PyTorch runs and whose quota can stop it."""
        groups = tuple(sorted(set(files)))[:64]
        for path in set(self._groups) - set(groups):
            self._kept.pop(path).close() if path in self._kept else None
        self._groups = groups

    def close(self) -> None:
        for kept in self._kept.values():
            kept.close()
        self._kept.clear()

    # ------------------------------------------------------------------ inside

    def _file(self, path: str) -> OpenFile:
        kept = self._kept.get(path)
        if kept is None:
            kept = self._kept[path] = OpenFile(self._root + path, self._clock)
        return kept

    def _rate(self, out: dict[str, float], name: str, count: float, scale: float = 1.0) -> None:
        rate = self._rates.per_s(name, self._clock(), count)
        if rate is not None:
            out[name] = rate * scale

    def _stat(self, data: bytes, out: dict[str, float]) -> None:
        now, before = cpu_ticks.of_all(data), self._cpu_last
        if now is None:
            raise ValueError("no times of all CPUs")
        self._cpu_last = now
        if before is not None and sum(now) > sum(before):
            spent = CpuTicks(*(ticks - earlier for ticks, earlier in zip(now, before, strict=True)))
            total = sum(spent)
            for name, part in (
                ("busy", total - spent.unused),
                ("user", spent.user + spent.nice),
                ("system", spent.system),
                ("iowait", spent.iowait),
                ("irq", spent.irq + spent.softirq),
                ("steal", spent.steal),
            ):
                out[f"cpu.{name}"] = min(1.0, max(0.0, part / total))
        running = cpu_ticks.running(data)
        if running is not None:
            out["cpu.runnable"] = running

    def _meminfo(self, data: bytes, out: dict[str, float]) -> None:
        for name, field in (("available", b"MemAvailable:"), ("dirty", b"Dirty:")):
            kib = after(data, field)
            if kib is not None:
                out[f"memory.{name}_bytes"] = kib << 10
        total, free = after(data, b"SwapTotal:"), after(data, b"SwapFree:")
        if total is not None and free is not None:
            out["memory.swap_used_bytes"] = max(0, total - free) << 10

    def _vmstat(self, data: bytes, out: dict[str, float]) -> None:
        counts = vmstat.counts(data, _PAGE_COUNTERS)
        for name, (counter, scale) in _PAGE_RATES.items():
            if (count := counts[counter]) is not None:
                self._rate(out, name, count, scale)
        if (kills := counts["oom_kill"]) is not None:
            out["memory.oom_kills"] = kills

    def _network(self, data: bytes, out: dict[str, float]) -> None:
        cards = net_dev.parse(data)
        counted = [card for name, card in cards.items() if (name in self._cards if self._cards else name != "lo")]
        received, sent = sum(card.received_bytes for card in counted), sum(card.sent_bytes for card in counted)
        self._rate(out, "network.received_bytes_per_s", received)
        self._rate(out, "network.sent_bytes_per_s", sent)

    def _disk(self, data: bytes, out: dict[str, float]) -> None:
        disks = diskstats.parse(data, self._disks or ())
        read, written = sum(disk.sectors_read for disk in disks.values()), sum(disk.sectors_written for disk in disks.values())
        shares = [self._rates.per_s(f"busy {name}", self._clock(), disk.busy_ms / 1000) for name, disk in disks.items()]
        busiest = max((share for share in shares if share is not None), default=None)
        if self._disks:
            self._rate(out, "disk.read_bytes_per_s", read, diskstats.SECTOR_BYTES)
            self._rate(out, "disk.written_bytes_per_s", written, diskstats.SECTOR_BYTES)
        if busiest is not None:
            out["disk.busy"] = min(1.0, busiest)

    def _pressure(self, out: dict[str, float]) -> None:
        for resource, kinds in (("cpu", ("some",)), ("memory", ("some", "full")), ("io", ("some", "full"))):
            stalls = psi.parse(self._file(f"/proc/pressure/{resource}").read())
            for kind in kinds:
                if (stall := getattr(stalls, kind)) is not None and stall.avg10 is not None:
                    out[f"pressure.{resource}.{kind}_avg10"] = stall.avg10

    def _throttled(self, out: dict[str, float]) -> None:
        taken: list[float] = []
        for path in self._groups:
            data = self._file(path).read() or b""
            spent_us = after(data, b"throttled_usec ")
            spent_ns = after(data, b"throttled_time ") if spent_us is None else None
            seconds = spent_us / 1e6 if spent_us is not None else spent_ns / 1e9 if spent_ns is not None else None
            if seconds is not None and (rate := self._rates.per_s(path, self._clock(), seconds)) is not None:
                taken.append(rate)
        if taken:
            out["cgroup.throttled_cpus"] = sum(taken)

    def _frequency(self, out: dict[str, float]) -> None:
        clocks = [int(data) for path in self._policies or () if (data := self._file(path).read()) is not None and data.strip().isdigit()]
        if clocks:
            out["cpu.frequency_mhz"] = sum(clocks) / len(clocks) / 1000

    def _hardware(self) -> None:
        """Which names are hardware: a bridge, a bond or a partition would count the same bytes twice."""
        self._cards = self._with_device("/sys/class/net")
        self._disks = self._with_device("/sys/block")
        if self._policies is None:
            names = sorted(name for name in self._names("/sys/devices/system/cpu/cpufreq") if name.startswith("policy"))
            step = max(1, -(-len(names) // FEW_CPUS))
            self._policies = [f"/sys/devices/system/cpu/cpufreq/{name}/scaling_cur_freq" for name in names[::step]]

    def _with_device(self, folder: str) -> frozenset[str]:
        return frozenset(name for name in self._names(folder) if os.access(f"{self._root}{folder}/{name}/device", os.F_OK))

    def _names(self, folder: str) -> list[str]:
        try:
            return os.listdir(self._root + folder)[:4096]
        except OSError:
            return []


def _guarded(kept: OpenFile, parse: Callable[[bytes, dict[str, float]], None], data: bytes, out: dict[str, float]) -> None:
    """A file of another shape than the kernel documents is a problem of that file, not of the agent."""
    try:
        parse(data, out)
    except (ValueError, IndexError, OverflowError) as error:
        kept.problem = f"not as documented: {error}"[:200]
