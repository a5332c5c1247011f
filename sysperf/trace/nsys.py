"""Nsight Systems exports: SQLite files of any schema, with whatever tables and columns they have.

Reads   CUPTI_ACTIVITY_KIND_{KERNEL,MEMCPY,MEMSET,RUNTIME}  NVTX_EVENTS  StringIds  OSRT_API  SCHED_EVENTS  TARGET_INFO_GPU …
Format  https://docs.nvidia.com/nsight-systems/UserGuide/index.html#sqlite-schema-reference

A table that is absent is unknown, never empty. The file is opened read-only and immutable: a lock of its writer, or a
journal beside it, changes nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sysperf.model.errors import TraceError
from sysperf.trace.timeline import ANNOTATION, COPY, KERNEL, OPERATOR, SET, Device, Timeline

REPORT = ".nsys-rep"
_SQLITE = b"SQLite format 3\0"
MAX_ROWS = 20_000_000
EXPORT_LIMIT_S = 600
_OPERATOR = re.compile(r"(\w+::\w+|\w+Backward\d+)(?=,|$)")
"""What torch.autograd.profiler.emit_nvtx writes: ``aten::mm, seq = 12, op_id = 345``."""
_SUFFIX = re.compile(r"_v\d+$")
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device", 6: "Managed"}
"""ENUM_CUDA_MEMCPY_OPER and ENUM_CUDA_MEM_KIND of the exports."""

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
_SETS = "CUPTI_ACTIVITY_KIND_MEMSET"
_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
_RANGE_KINDS = (59, 60, 70, 71)  # NvtxPushPopRange, NvtxStartEndRange and their forms by thread and process

Progress = Callable[[int], None]


def recognises(path: str, first: bytes) -> bool:
    """Whether this is an SQLite file, or a report that nsys can export."""
    return first.startswith(_SQLITE) or path.endswith(REPORT)


def read(path: str, progress: Progress = lambda _: None) -> Timeline:
    """Read an export, or a report by way of one. Raises TraceError where it is neither, or is damaged."""
    if path.endswith(REPORT):
        return read_report(path, progress)
    address = f"file:{urllib.parse.quote(os.path.abspath(path))}?mode=ro&immutable=1"
    try:
        with open(path, "rb"):
            pass
        connection = sqlite3.connect(address, uri=True)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            return _Reader(connection, path, progress).read()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise TraceError(f"{path}: {error}", "export it again: nsys export --type sqlite REPORT.nsys-rep") from None
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None


def read_report(path: str, progress: Progress = lambda _: None) -> Timeline:
    """Read an ``.nsys-rep`` by way of `nsys export`. Raises TraceError with the command to run where nsys is not installed."""
    nsys = shutil.which("nsys")
    command = f"nsys export --type sqlite --output {path.removesuffix(REPORT)}.sqlite {path}"
    if nsys is None:
        raise TraceError(f"{path}: only nsys itself can read this", f"where Nsight Systems is installed, run: {command}")
    with tempfile.TemporaryDirectory() as folder:
        output = f"{folder}/export.sqlite"
        try:
            done = subprocess.run(
                [nsys, "export", "--type", "sqlite", "--output", output, os.path.abspath(path)],
                capture_output=True,
                timeout=EXPORT_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TraceError(f"{path}: nsys export: {error}", f"run it yourself: {command}") from None
        if done.returncode or not os.path.exists(output):
            raise TraceError(
                f"{path}: nsys export failed: {done.stderr.decode('utf-8', 'replace').strip()[-200:]}", f"run it yourself: {command}"
            )
        timeline = read(output, progress)
        timeline.file = path
        return timeline


class _Reader:
    """Reads the tables that there are into one timeline."""

    def __init__(self, connection: sqlite3.Connection, path: str, progress: Progress) -> None:
        self._connection = connection
        self._timeline = Timeline(path, "nsys")
        self._progress = progress
        self._columns: dict[str, set[str]] = {}

    def read(self) -> Timeline:
        self._columns = {
            table: {row[1] for row in self._connection.execute(f'PRAGMA table_info("{table}")')}
            for (table,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if '"' not in table
        }
        if not any(table in self._columns for table in (_KERNELS, _COPIES, _CALLS, "NVTX_EVENTS")):
            raise TraceError(f"{self._timeline.file}: none of the tables of Nsight Systems", "is it an export (nsys export --type sqlite)?")
        self._strings = dict(self._rows("StringIds", ("id", "value")))
        self._numbers: dict[int, int] = {}
        for step in (self._kernels, self._copies, self._sets, self._calls, self._ranges, self._devices, self._rest):
            step()
            self._progress(0)
        return self._timeline

    def _rows(self, table: str, columns: Sequence[str], where: str = "") -> Iterator[tuple[Any, ...]]:
        """The rows of a table; a column that is absent is NULL."""
        known = self._columns.get(table)
        if known is None:
            self._timeline.absent.add(table)
            return iter(())
        listed = ", ".join(f'"{column}"' if column in known else "NULL" for column in columns)
        return self._connection.execute(f'SELECT {listed} FROM "{table}" {where} LIMIT {MAX_ROWS}')  # noqa: S608 - our own names

    def _name(self, number: Any) -> int:
        """The number in the timeline of a text by its number in the file."""
        found = self._numbers.get(number)
        if found is None:
            text = self._strings.get(number)
            found = self._numbers[number] = self._timeline.names.number(str(text) if text is not None else "(unnamed)")
        return found

    def _operation(self, kind: int, start: Any, end: Any, device: Any, stream: Any, correlation: Any, process: Any) -> bool:
        rows = self._timeline.operations
        if not isinstance(start, int) or not isinstance(end, int) or abs(start) >= 1 << 62 or abs(end) >= 1 << 62:
            self._timeline.damage.no_duration += 1
            return False
        owner = _process(process)
        rows.start.append(start)
        rows.end.append(end)
        rows.kind.append(kind)
        where = device if isinstance(device, int) and abs(device) < 1 << 30 else -1
        rows.device.append(where)
        self._timeline.device_processes.setdefault(where, set()).add(owner)
        # Streams of two processes are two streams, whatever their numbers.
        rows.stream.append((owner << 32) | (stream & 0xFFFFFFFF) if isinstance(stream, int) else -1)
        rows.correlation.append((owner << 40) | correlation if isinstance(correlation, int) and 0 < correlation < 1 << 38 else -1)
        rows.detail.append(-1)
        return True

    def _kernels(self) -> None:
        rows = self._timeline.operations
        columns = (
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "shortName",
            "graphNodeId",
            "gridX",
            "gridY",
            "gridZ",
        )
        for *span, name, graph, x, y, z in self._rows(_KERNELS, columns):
            if self._operation(KERNEL, *span):
                rows.name.append(self._name(name))
                rows.bytes.append(-1)
                rows.graph.append(1 if graph else 0)
                rows.blocks.append(float(min(x * y * z, 1 << 40)) if all(isinstance(one, int) for one in (x, y, z)) else -1.0)

    def _copies(self) -> None:
        rows, names = self._timeline.operations, self._timeline.names
        columns = (
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "bytes",
            "copyKind",
            "srcKind",
            "dstKind",
            "graphNodeId",
        )
        for *span, size, kind, source, target, graph in self._rows(_COPIES, columns):
            if self._operation(COPY, *span):
                words = (_COPY_KINDS.get(kind, "?"), _MEMORY_KINDS.get(source, "?"), _MEMORY_KINDS.get(target, "?"))
                rows.name.append(names.number("Memcpy {} ({} -> {})".format(*words)))
                rows.bytes.append(size if isinstance(size, int) and 0 <= size < 1 << 62 else -1)
                rows.graph.append(1 if graph else 0)
                rows.blocks.append(-1.0)

    def _sets(self) -> None:
        rows, names = self._timeline.operations, self._timeline.names
        columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "graphNodeId")
        for *span, size, graph in self._rows(_SETS, columns):
            if self._operation(SET, *span):
                rows.name.append(names.number("Memset (Device)"))
                rows.bytes.append(size if isinstance(size, int) and 0 <= size < 1 << 62 else -1)
                rows.graph.append(1 if graph else 0)
                rows.blocks.append(-1.0)

    def _calls(self) -> None:
        timeline, rows = self._timeline, self._timeline.calls
        stripped: dict[Any, int] = {}
        for start, end, thread, correlation, name, stack in self._rows(
            _CALLS, ("start", "end", "globalTid", "correlationId", "nameId", "callchainId")
        ):
            if not isinstance(start, int) or not isinstance(end, int):
                timeline.damage.no_duration += 1
                continue
            owner = _process(thread)
            if name not in stripped:
                stripped[name] = timeline.names.number(without_suffix(str(self._strings.get(name, "(unnamed)"))))
            rows.start.append(start)
            rows.end.append(end)
            rows.name.append(stripped[name])
            rows.thread.append(self._thread(thread))
            rows.correlation.append((owner << 40) | correlation if isinstance(correlation, int) and 0 < correlation < 1 << 38 else -1)
            rows.stack.append(stack if isinstance(stack, int) and 0 < stack < 1 << 30 else -1)

    def _ranges(self) -> None:
        timeline, rows = self._timeline, self._timeline.ranges
        known = self._columns.get("NVTX_EVENTS", set())
        where = f"WHERE eventType IN {_RANGE_KINDS}" if "eventType" in known else ""
        for start, end, text, number, thread in self._rows("NVTX_EVENTS", ("start", "end", "text", "textId", "globalTid"), where):
            if not isinstance(start, int) or not isinstance(end, int):
                continue
            rows.start.append(start)
            rows.end.append(end)
            name = str(text if isinstance(text, str) else self._strings.get(number, "(unnamed)"))
            operator = _OPERATOR.match(name)
            rows.name.append(timeline.names.number(operator[1] if operator else name))
            rows.thread.append(self._thread(thread))
            rows.kind.append(OPERATOR if operator else ANNOTATION)
            rows.detail.append(-1)
            rows.stack.append(-1)

    def _devices(self) -> None:
        columns = ("id", "name", "totalMemory", "computeMajor", "computeMinor", "smCount")
        cuda = {gpu: device for gpu, device in self._rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId")) if isinstance(device, int)}
        for number, name, memory, major, minor, processors in self._rows("TARGET_INFO_GPU", columns):
            if isinstance(number, int):
                capability = major + (minor or 0) / 10 if isinstance(major, int) and major > 0 else None
                self._timeline.devices[cuda.get(number, number)] = Device(name, memory, capability, processors)

    def _rest(self) -> None:
        """Profiler overhead, the operating system's waits, scheduling, unified memory and the GPU's own counters."""
        timeline = self._timeline
        for table in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"):
            timeline.overhead += [
                (start, end) for start, end in self._rows(table, ("start", "end")) if isinstance(start, int) and isinstance(end, int)
            ]
        timeline.waits = [
            (start, end) for start, end in self._rows("OSRT_API", ("start", "end")) if isinstance(start, int) and isinstance(end, int)
        ]
        self._scheduling()
        faults = [table for table in self._columns if table.startswith("CUDA_UM_") and table.endswith("PAGE_FAULT_EVENTS")]
        if faults:
            timeline.page_faults = sum(self._count(table) for table in faults)
        if "GPU_METRICS" in self._columns and "TARGET_INFO_GPU_METRICS" in self._columns:
            found = self._connection.execute(
                "SELECT i.metricName, avg(m.value) FROM GPU_METRICS m JOIN TARGET_INFO_GPU_METRICS i USING (typeId, metricId) GROUP BY 1"
            )
            timeline.metrics = {str(name): float(value) for name, value in found if value is not None}

    def _count(self, table: str) -> int:
        found: int = next(self._connection.execute(f'SELECT count(*) FROM "{table}"'))[0]  # noqa: S608 - a table of this file
        return found

    def _scheduling(self) -> None:
        """Time between a thread's getting off a CPU while it could run and its getting on one again."""
        known = self._columns.get("SCHED_EVENTS", set())
        if not {"start", "isSchedIn", "globalTid", "threadState"} <= known:
            return
        off: dict[int, int] = {}
        for start, on, thread, state in self._rows("SCHED_EVENTS", ("start", "isSchedIn", "globalTid", "threadState"), "ORDER BY start"):
            if on and thread in off:
                number = self._thread(thread)
                self._timeline.scheduling[number] = self._timeline.scheduling.get(number, 0) + start - off.pop(thread)
            elif not on and state == 0:  # it was running and could have gone on
                off[thread] = start

    def _thread(self, number: Any) -> int:
        value = number if isinstance(number, int) else 0
        return self._timeline.thread(_process(value), value & 0xFFFFFF)


def without_suffix(name: str) -> str:
    """The name of a call without the version that exports add (`_v7000`), however often."""
    while (shorter := _SUFFIX.sub("", name)) != name:
        name = shorter
    return name


def _process(number: Any) -> int:
    return (number >> 24) & 0xFFFFFF if isinstance(number, int) else 0
