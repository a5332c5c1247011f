"""Traces with known answers: a small machine with a host, a loader and streams, that writes what Kineto would."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MS = 1_000.0
"""Kineto's unit is the microsecond."""
CAPTURED = "captured_gemm"
"""The kernel that graphs consist of."""


class Machine:
    """Runs a made-up program on one device, and keeps the events. Times are µs."""

    def __init__(self, *, device: int = 0, capability: tuple[int, int] = (8, 0), start: float = 1e9) -> None:
        self.events: list[dict[str, Any]] = []
        self.now = start
        self.device = device
        self.free: dict[int, float] = {}
        self.capability = capability
        self._correlation = 0

    def event(self, cat: str, name: str, ts: float, dur: float, *, tid: int = 1, pid: int = 1, **args: Any) -> None:
        """Add any event."""
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": round(ts, 3), "dur": round(dur, 3), "args": args}
        )

    def think(self, us: float) -> None:
        """The host does something that the trace does not show."""
        self.now += us

    def log(self, us: float) -> None:
        """The host writes a log, in a range of its own."""
        start = self.now
        self.think(us)
        self.range("write_log", start)

    def kernel(
        self, us: float, name: str = "ampere_bf16_s16816gemm", *, stream: int = 7, cost: float = 5, latency: float = 5, **args: Any
    ) -> float:
        """Launch a kernel; returns when it ends."""
        return self._operation("kernel", name, us, "cudaLaunchKernel", stream, cost, latency, args)

    def graph(self, us: float) -> float:
        """Launch a CUDA graph of one kernel; returns when it ends."""
        return self._operation("kernel", CAPTURED, us, "cudaGraphLaunch", 7, 10, 5, {"graph node id": 1})

    def copy(
        self, us: float, name: str = "Memcpy HtoD (Pinned -> Device)", *, blocking: bool = False, stream: int = 7, **args: Any
    ) -> float:
        """Copy; a blocking one returns when it is done."""
        start = self.now
        end = self._operation("gpu_memcpy", name, us, "cudaMemcpyAsync", stream, 5, 5, args)
        if blocking:
            self.now = max(self.now, end + 3)
            self.events[-2]["dur"] = round(self.now - start, 3)
        return end

    def _operation(
        self, cat: str, name: str, us: float, call: str, stream: int, cost: float, latency: float, args: dict[str, Any]
    ) -> float:
        self._correlation += 1
        begin = max(self.now + latency, self.free.get(stream, 0.0))
        self.event("cuda_runtime", call, self.now, cost, correlation=self._correlation)
        self.event(
            cat, name, begin, us, tid=stream, pid=self.device, device=self.device, stream=stream, correlation=self._correlation, **args
        )
        self.now += cost
        self.free[stream] = begin + us
        return begin + us

    def synchronize(self, call: str = "cudaDeviceSynchronize") -> float:
        """Wait for all that was launched; returns when that was done."""
        end = max(self.now + 2, *(free + 3 for free in self.free.values())) if self.free else self.now + 2
        return self.call(call, end - self.now)

    def call(self, name: str, us: float) -> float:
        """Any other call of the host; returns when it ended."""
        self._correlation += 1
        self.event("cuda_runtime", name, self.now, us, correlation=self._correlation)
        self.now += us
        return self.now

    def work(self, kernels: int) -> None:
        """Launch so many kernels of 100 us, and wait for them."""
        for _ in range(kernels):
            self.kernel(100)
        self.synchronize()

    def load(self, us: float, *, workers: bool = False) -> float:
        """Ask the loader for a batch; returns when it is there."""
        kind = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
        self.event("user_annotation", f"enumerate(DataLoader)#{kind}.__next__", self.now, us)
        self.now += us
        return self.now

    def range(self, name: str, start: float, cat: str = "user_annotation") -> None:
        """Name the time from `start` until now."""
        self.event(cat, name, start, self.now - start)

    def trace(self, **more: Any) -> dict[str, Any]:
        """The whole file."""
        major, minor = self.capability
        device = {
            "id": self.device,
            "name": "NVIDIA A100-SXM4-80GB",
            "computeMajor": major,
            "computeMinor": minor,
            "totalGlobalMem": 85_000_000_000,
        }
        return {"schemaVersion": 1, "deviceProperties": [device], **more, "traceEvents": self.events}


def steps(machine: Machine, count: int, body: Any) -> Machine:
    """Run a body in so many marked steps."""
    for number in range(count):
        start = machine.now
        body(machine)
        machine.range(f"ProfilerStep#{number}", start)
    return machine


def written(folder: Path, trace: Any, name: str = "trace.json") -> str:
    """The path of a file with this trace."""
    path = folder / name
    path.write_text(trace if isinstance(trace, str) else json.dumps(trace))
    return str(path)


_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, streamId, correlationId, globalPid, shortName",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, streamId, correlationId, globalPid, copyKind, srcKind, dstKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start, end, deviceId, streamId, correlationId, globalPid",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, globalTid, correlationId, nameId",
    "NVTX_EVENTS": "start, end, eventType, globalTid, text",
    "StringIds": "id, value",
}
_KINDS = {"Device": 2, "Pinned": 1, "Pageable": 0}


def exported(folder: Path, *machines: Machine, changes: Sequence[str] = ()) -> str:
    """The path of an export of Nsight Systems that holds these machines, each a process with a device of its own, after these changes."""
    path, texts = folder / "export.sqlite", dict[str, int]()
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    for table, columns in _TABLES.items():
        connection.execute(f"CREATE TABLE {table} ({columns})")
    for process, machine in enumerate(machines, 4_000):
        for event in machine.events:
            table, values = _row(event, process << 24, texts)
            start = round(event["ts"] * 1_000)
            row = (start, start + round(event["dur"] * 1_000), *values)
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - our own tables
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(number, text) for text, number in texts.items()])
    for change in changes:
        connection.execute(change)
    connection.commit()
    connection.close()
    return str(path)


def _row(event: dict[str, Any], process: int, texts: dict[str, int]) -> tuple[str, tuple[Any, ...]]:
    """(the table of an event, the columns behind its times)."""
    args, name, thread = event["args"], event["name"], process | process >> 24
    operation = (args.get("device"), args.get("stream"), args.get("correlation"), process)
    match event["cat"]:
        case "kernel":
            return "CUPTI_ACTIVITY_KIND_KERNEL", (*operation, texts.setdefault(name, len(texts) + 1))
        case "gpu_memcpy":
            source, target = name.partition("(")[2].rstrip(")").split(" -> ")
            kind = {"HtoD": 1, "DtoH": 2}[name.split()[1]]
            return "CUPTI_ACTIVITY_KIND_MEMCPY", (*operation, kind, _KINDS[source], _KINDS[target])
        case "gpu_memset":
            return "CUPTI_ACTIVITY_KIND_MEMSET", operation
        case "cuda_runtime":
            return "CUPTI_ACTIVITY_KIND_RUNTIME", (thread, args["correlation"], texts.setdefault(name, len(texts) + 1))
    return "NVTX_EVENTS", (59, thread, name)
