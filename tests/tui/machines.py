"""Recorded machines to look at: a GPU server, a two-socket CPU box, a laptop, and a machine whose GPU is dying."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from sysperf.collect import collect
from sysperf.collect.machine_facts import MachineFacts
from sysperf.collect.process.workers import Workers
from sysperf.model.finding import Finding, Report, Subject
from sysperf.model.record import plain
from sysperf.model.rule import Rule
from sysperf.model.snapshot import Snapshot
from sysperf.tui import decode
from sysperf.tui.now import meters_of
from sysperf.tui.source import Changed, Facts, History, Load, Mark, Meters, Neighbour, Past, Publish, SourceUpdate
from tests import gpus
from tests.conftest import make_machine
from tests.report import reports

NEIGHBOURS = (Neighbour(800, 1, "rsync", 6.2, 0), Neighbour(801, 1, "dcgm", 0.9, 0), Neighbour(4260, 4242, "python", 0.5, 4999))
START = 1_800_000_000.0
GIB = 1 << 30


class Still:
    """A source that tells what it was given, and nothing else."""

    name = "a recorded machine"
    live = True

    def __init__(self, news: Sequence[SourceUpdate], *, local: bool = True, remembers: bool = False) -> None:
        self.news, self.local, self.remembers = news, local, remembers
        self.looked = 0
        self.watched: list[bool] = []
        self.readings: list[Workers] = []
        self.publish: Publish = lambda _: None

    def start(self, publish: Publish) -> None:
        self.publish = publish
        for new in self.news:
            publish(new)

    def close(self) -> None:
        """Nothing is open."""

    def look_again(self) -> None:
        self.looked += 1

    def watch_cpus(self, *, on: bool) -> None:
        self.watched.append(on)

    def workers(self, pid: int) -> Workers | None:  # noqa: ARG002 - as real sources
        return self.readings.pop(0) if self.readings else None

    def series(self) -> list[tuple[str, str]]:
        return [("cpu.busy", "share of all CPUs' time that was used"), ("memory.dirty_bytes", "file data"), ("process.1.cpu", "CPUs")]

    def history(self, names: Sequence[str], span_s: float, points: int) -> History:  # noqa: ARG002 - as real sources
        every = span_s / 100
        curve = [(START - span_s + every * index, index / 100, 0.0, 1.0) for index in range(100)]
        marks = [Mark(START - span_s / 2, "change", "fixed memory.swappiness-high"), Mark(START - span_s / 4, "finding", "too hot")]
        return History(dict.fromkeys(names, curve), marks, START - span_s, START)


PARTS = ("torch", "loaded", "memory", "affinity", "threads", "job", "workers")


def process(pid: int, **more: Any) -> dict[str, Any]:
    """The facts of a PyTorch program, as an agent tells them."""
    loaded = {
        "allocator": "glibc", "openmp": [{"name": "libgomp", "path": "/opt/venv/lib/libgomp.so.1", "version": "1"}],
        "libraries": [{"name": "libcudnn", "path": "/opt/venv/lib/libcudnn.so.9", "version": "9"}],
    }  # fmt: skip
    memory = {"rss_bytes": 9 * GIB, "peak_bytes": 10 * GIB, "nodes": [{"node": 0, "bytes": 6 * GIB}, {"node": 1, "bytes": 3 * GIB}]}
    facts: dict[str, Any] = {
        "pid": pid, "ppid": 1, "name": "python", "command": "/opt/venv/bin/python train.py --epochs 90", "age_s": 3_600.0, "user": 4999, "nice": 0,
        "torch": {"version": "2.13.0+cu130", "prefix": "/opt/venv"}, "loaded": loaded, "memory": memory, "affinity": {"now": "0-47"},
        "threads": {"count": 24, "computing": 8, "names": ["pt_data_pin"]}, "job": {"rank": -1, "world_size": 1},
        "workers": {"count": 4, "start": "fork", "cpus": "0-7"}, "env": {"OMP_NUM_THREADS": "8", "NCCL_DEBUG": "WARN"},
    }  # fmt: skip
    parts = {name: {**facts[name], **value} for name, value in more.items() if name in PARTS}
    return {**facts, **more, **parts}


def cores(count: int, threads: int, first: int = 0) -> list[str]:
    """The threads of each core, numbered as x86 firmware does: siblings behind all cores."""
    return [",".join(str(first + core + thread * count) for thread in range(threads)) for core in range(count)]


def snapshot(**areas: Any) -> Snapshot:
    """A machine as an agent tells it; with the facts of `reports` where nothing else is said."""
    facts = plain_snapshot(**areas)
    decoded = {name: decode.area(name, plain(area)) for name, area in facts.areas.items()}
    assert [area.problem for name, area in decoded.items() if area.problem != facts.areas[name].problem] == []
    return Snapshot(taken_at=facts.taken_at, areas=decoded)


def plain_snapshot(**areas: Any) -> Snapshot:
    """The same as plain facts, completed by those that every agent tells."""
    facts = {**reports.FACTS, **areas}
    for area, complete in (("pcie", _pcie), ("torch", _torch)):
        if isinstance(facts[area], dict):
            facts[area] = complete(facts[area])
    return reports.snapshot(**facts)


def _pcie(facts: dict[str, Any]) -> dict[str, Any]:
    devices = facts.get("devices") or ()
    return {"functions": len(devices), **facts, "devices": devices}


def _torch(facts: dict[str, Any]) -> dict[str, Any]:
    return {**facts, "installs": [{"site_packages": "", "manager": "other", **install} for install in facts["installs"]]}


@functools.cache
def server() -> Report:
    """Eight H100, the third held by its power limit, the sixth slowed by heat; four ranks; two sockets."""
    hot = {**gpus.H100, "DeviceGetCurrentClocksEventReasons": 0x44, "DeviceGetClockInfo,1": 1_200, "DeviceGetTemperature,0": 86}
    idle = {
        **gpus.H100,
        "DeviceGetCurrentClocksEventReasons": 0x1,
        "DeviceGetUtilizationRates": {"gpu": 0, "memory": 0},
        "DeviceGetPowerUsage": 71_000,
    }
    cards = [gpus.H100, gpus.H100, gpus.H100, gpus.H100, gpus.H100, hot, idle, idle]
    files, links = gpus.files(8)
    snapshot_areas = collect(make_machine(files, links, gpus.calls(*cards)), ["pcie", "driver", "gpu"])
    facts = {
        "cpu": {
            "model_name": "Intel(R) Xeon(R) Platinum 8480C", "packages": 2, "cores": 96, "online": "0-95", "allowed": "0-95",
            "core_cpus": [str(cpu) for cpu in range(96)], "package_cpus": ["0-47", "48-95"], "l3_domains": ["0-47", "48-95"],
        },
        "numa": {
            "nodes_with_cpus": 2, "balancing": 1, "nodes": [
                {"id": 0, "cpus": "0-47", "mem_total_bytes": 1_000 * GIB, "mem_free_bytes": 700 * GIB},
                {"id": 1, "cpus": "48-95", "mem_total_bytes": 1_007 * GIB, "mem_free_bytes": 900 * GIB},
            ],
        },
        "network": {"interfaces": [{"name": "eth0", "pci_address": "0000:01:00.0", "numa_node": 0}],
                    "rdma": [{"name": "mlx5_0", "port": 1, "numa_node": 0}, {"name": "mlx5_1", "port": 1, "numa_node": 1}]},
        "storage": {"disks": [{"name": "nvme0n1", "pci_address": "0000:02:00.0", "numa_node": 1}]},
        "memory": {"total_bytes": 2_007 * GIB, "available_bytes": 1_605 * GIB, "swap_total_bytes": 0, "swap_free_bytes": 0},
        "process": {
            "processes": [
                process(4242 + rank, job={"rank": rank, "world_size": 4}, gpu_bus_ids=[gpus.bus_id(rank)], cuda_used=True, command=f"python train.py --rank {rank}")
                for rank in range(4)
            ],
            "scanned": 612, "unreadable": 0,
        },
    }  # fmt: skip
    machine = snapshot(**facts)
    machine = Snapshot(taken_at="2027-01-15T08:00:00Z", areas={**machine.areas, **snapshot_areas})
    wrong = (
        reports.narrow_link(5),
        reports.balancing(),
        few_workers(4243),
        reports.brief("memory.thp-never", "info", "Huge pages are never used."),
    )
    return reports.report(*wrong, *reports.UNKNOWNS, machine=machine)


def few_workers(pid: int) -> Finding:
    """A finding about one program."""
    return Finding(
        "dataloader.workers-few", "finding", "warning", "process", "Few DataLoader workers", Subject("process", "python", pid=pid),
        message="4 workers for 48 CPUs beside its GPU.", why="The GPU waits for data.", key=f"dataloader.workers-few@{pid}",
    )  # fmt: skip


@functools.cache
def box() -> Report:
    """Two sockets with hyper-threads, two offline CPUs, a memory-only node, no GPU, one program on remote memory."""
    machine = snapshot(
        cpu={
            "model_name": "AMD EPYC 7543 32-Core Processor", "packages": 2, "cores": 32, "online": "0-61", "offline": "62-63", "allowed": "0-47",
            "core_cpus": [f"{core},{core + 32}" if core < 30 else str(core) for core in range(32)],
            "package_cpus": ["0-15,32-47", "16-31,48-61"], "l3_domains": ["0-7,32-39", "8-15,40-47", "16-23,48-55", "24-31,56-61"],
        },
        numa={
            "nodes_with_cpus": 2, "nodes": [
                {"id": 0, "cpus": "0-15,32-47", "mem_total_bytes": 128 * GIB, "mem_free_bytes": 3 * GIB},
                {"id": 1, "cpus": "16-31,48-61", "mem_total_bytes": 128 * GIB, "mem_free_bytes": 100 * GIB},
                {"id": 2, "cpus": "", "mem_total_bytes": 256 * GIB, "mem_free_bytes": 256 * GIB},
            ],
        },
        gpu={"devices": []}, pcie={"nvidia_gpus": 0, "devices": []}, driver={"nvidia_version": ""},
        network={"interfaces": [{"name": "eno1", "pci_address": "0000:01:00.0", "numa_node": -1}]},
        memory={"total_bytes": 512 * GIB, "available_bytes": 350 * GIB, "swap_total_bytes": 8 * GIB, "swap_free_bytes": 7 * GIB},
        process={"processes": [process(77, affinity={"now": "0-15"}, torch={"version": "2.13.0+cpu"})], "scanned": 301, "unreadable": 2},
        torch={"installs": [{"prefix": "/opt/venv", "version": "2.13.0+cpu", "release": "2.13.0", "cuda": "", "hip": "", "active": True}]},
    )  # fmt: skip
    wrong = (reports.balancing(), reports.brief("omp.threads-default", "hint", "OMP_NUM_THREADS is not set."))
    return reports.report(*wrong, machine=_at_start(machine))


@functools.cache
def laptop() -> Report:
    """A small machine without GPU, PyTorch program or pressure files."""
    machine = snapshot(
        cpu={"model_name": "Intel(R) Core(TM) i7-8650U", "packages": 1, "cores": 4, "online": "0-7", "allowed": "0-7", "core_cpus": cores(4, 2),
             "package_cpus": ["0-7"], "l3_domains": ["0-7"]},
        numa={"nodes_with_cpus": 1, "nodes": [{"id": 0, "cpus": "0-7", "mem_total_bytes": 16 * GIB, "mem_free_bytes": 2 * GIB}]},
        gpu={"devices": []}, pcie={"nvidia_gpus": 0, "devices": []}, driver={"nvidia_version": ""},
        memory={"total_bytes": 16 * GIB, "available_bytes": 9 * GIB}, process={"processes": [], "scanned": 240, "unreadable": 0},
        torch={"installs": []},
    )  # fmt: skip
    return reports.report(machine=_at_start(machine), passed=74)


@functools.cache
def dying() -> Report:
    """Two RTX 4090: one was lost, the other is slowed by hardware and has half of its lanes."""
    sick = {**gpus.RTX, "DeviceGetCurrentClocksThrottleReasons": 0x48, "DeviceGetUtilizationRates": {"gpu": 99, "memory": 10},
            "DeviceGetCurrPcieLinkWidth": 8, "DeviceGetTemperature,0": 91}  # fmt: skip
    own = {"DeviceGetUUID", "DeviceGetMinorNumber", "DeviceGetPciInfo"}
    lost: dict[str, Any] = {name: gpus.LOST for name in gpus.RTX if name not in own}
    files, links = gpus.files(2)
    snapshot_areas = collect(make_machine(files, links, gpus.calls(sick, lost)), ["pcie", "driver", "gpu"])
    machine = _at_start(
        snapshot(numa={"nodes_with_cpus": 1, "nodes": [{"id": 0, "cpus": "0-383"}]}, process={"processes": [], "scanned": 9})
    )
    machine = Snapshot(taken_at=machine.taken_at, areas={**machine.areas, **snapshot_areas})
    gone = Finding(
        "gpu.lost", "finding", "error", "gpu", "A GPU fell off the bus", Subject("gpu", index=1), message="GPU 1 does not answer any more.",
        why="Only a reset or a restart brings it back.", key="gpu.lost@GPU 1",
    )  # fmt: skip
    return reports.report(gone, machine=machine)


def _at_start(machine: Snapshot) -> Snapshot:
    return Snapshot(taken_at="2027-01-15T08:00:00Z", areas=machine.areas)


def meters(report: Report) -> dict[str, float]:
    """A sample that fits the facts."""
    values = {
        **meters_of(report.snapshot),
        "cpu.busy": 0.42, "cpu.iowait": 0.06, "cpu.steal": 0.0, "cpu.frequency_mhz": 3_050.0, "pressure.cpu.some_avg10": 0.12,
        "pressure.memory.some_avg10": 0.0, "pressure.io.some_avg10": 0.31, "network.received_bytes_per_s": 1.2e9, "network.sent_bytes_per_s": 4e8,
        "disk.read_bytes_per_s": 2.1e9, "disk.written_bytes_per_s": 3e6, "disk.busy": 0.88,
    }  # fmt: skip
    for index in range(5):
        if f"gpu.{index}.utilization" in values:
            values |= {f"gpu.{index}.sm_active": 0.61, f"gpu.{index}.tensor_active": 0.42, f"gpu.{index}.pcie_received_bytes_per_s": 1.5e9,
                      f"gpu.{index}.pcie_sent_bytes_per_s": 2e8}  # fmt: skip
    for number, program in enumerate(MachineFacts(report.snapshot.areas).programs):
        prefix = f"process.{program.pid}."
        values |= {prefix + "cpu": 3.5 + number, prefix + "main_run": 0.97 - 0.4 * (number % 2), prefix + "main_wait": 0.02, prefix + "data_wait": 0.01 + 0.4 * (number % 2), prefix + "threads": 24, prefix + "workers": 4,
                  prefix + "workers_cpu": 2.5, prefix + "rss_bytes": float(9 * GIB), prefix + "gpu_memory_bytes": float(9 * GIB)}  # fmt: skip
    return values


def news(report: Report) -> list[SourceUpdate]:
    """What a live source tells of a machine."""
    known = meters(report)
    past = {
        name: [value * (0.5 + (step * 7 % 10) / 20) for step in range(60)]
        for name, value in known.items()
        if not name.startswith("process.")
    }
    cpu = MachineFacts(report.snapshot.areas).cpu
    load = Load({cpu: 0.1 + 0.9 * (cpu * 7 % 11) / 11 for cpu in (cpu and cpu.online) or ()}, NEIGHBOURS)
    return [
        load,
        Past(past),
        Facts(report, {finding.key: START - 7_260 for finding in report.findings()}),
        Meters(START, known),
        Changed(()),
    ]


def rule(name: str) -> Rule:
    """A rule to explain."""
    return Rule(
        id=name, title="The title", scope="host", severity="info", message="seen", when="numa.balancing == 1", explain="Why it matters."
    )


MACHINES: dict[str, Callable[[], Report]] = {"server": server, "box": box, "laptop": laptop, "dying": dying}
