"""The tables of an Nsight Systems export become columns of a timeline."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from sysperf.model.errors import TraceError
from sysperf.model.record import Json
from sysperf.startup import lazy
from sysperf.trace import timeline as columns
from sysperf.trace.kernels import is_untyped_product
from sysperf.trace.reading import nsys_details
from sysperf.trace.reading.nsys_details import process_of, thread_of
from sysperf.trace.reading.nsys_export import (
    CALLS,
    COPIES,
    GRAPHS,
    KERNELS,
    OWN_TABLES,
    RANGES,
    SETS,
    SYSTEM_CALLS,
    Export,
    beginning,
)
from sysperf.trace.reading.programs import choose_one
from sysperf.trace.timeline import ANNOTATION, COPY, GRAPH, KERNEL, NUMBER_BITS, OPERATOR, SET, Timeline

MAX_UNTYPED_NAMES = 500
"""Kernels' names whose full ones are looked up: those of products that do not tell a type."""
MAX_FULL_NAMES = 5_000
_OPERATOR = lazy(r"(\w+::\w+|\w+Backward\d+)(?=,|$)")
"""What torch.autograd.profiler.emit_nvtx writes: ``aten::mm, seq = 12, op_id = 345``."""
_SEQUENCE, _CALL = ", seq = ", ", op_id = "
"""What torch.autograd.profiler.emit_nvtx writes next behind a name, and differs from call to call."""
_SUFFIX = lazy(r"_v\d+$")
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
               11: "unified HtoD", 12: "unified DtoH", 13: "unified DtoD"}  # fmt: skip
_MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device", 6: "Managed"}
"""ENUM_CUDA_MEMCPY_OPER and ENUM_CUDA_MEM_KIND of the exports."""
_RANGE_KINDS = (59, 60, 70, 71)  # NvtxPushPopRange, NvtxStartEndRange and their forms by thread and process

Progress = Callable[[int], None]


class Reader:
    """Reads the tables that there are into one timeline."""

    def __init__(self, connection: sqlite3.Connection, path: str, progress: Progress) -> None:
        self._timeline = Timeline(path, "nsys")
        self._export = Export(connection, self._timeline.damage)
        self._progress = progress

    def read(self) -> Timeline:
        """Everything that is used. Raises TraceError where no table is one of Nsight Systems."""
        if any(table.startswith("rocpd_") for table in self._export.columns):
            raise TraceError(
                f"{self._timeline.file}: a profile of AMD's rocprof (rocpd tables)", "take a trace with torch.profiler: it records HIP, too"
            )
        if not any(table in self._export.columns for table in OWN_TABLES):
            raise TraceError(f"{self._timeline.file}: none of the tables of Nsight Systems", "is it an export (nsys export --type sqlite)?")
        self._timeline.absent = self._absent()
        self._export.cut = self._timeline.cut = self._export.first_part()
        for step in (
            self._kernels,
            self._copies,
            self._sets,
            self._graphs,
            self._calls,
            self._system_calls,
            self._ranges,
            lambda: nsys_details.read(self._export, self._timeline),
        ):
            step()
            self._progress(0)
        choose_one(self._timeline)
        return self._timeline

    def _absent(self) -> set[str]:
        """What there is no table or column for."""
        tables = {columns.KERNELS: KERNELS, columns.COPIES: COPIES, columns.SETS: SETS, columns.CALLS: CALLS}
        absent = {word for word, table in tables.items() if not self._export.is_timed(table)}
        details = (
            (columns.KERNEL_NAMES, KERNELS, bool(self._export.strings) and self._export.has(KERNELS, "shortName")),
            (columns.CALL_NAMES, CALLS, bool(self._export.strings) and self._export.has(CALLS, "nameId")),
            (columns.DIRECTIONS, COPIES, self._export.has(COPIES, "copyKind")),
            (columns.MEMORY_KINDS, COPIES, self._export.has(COPIES, "srcKind", "dstKind")),
        )
        return absent | {word for word, table, is_there in details if table in self._export.columns and not is_there}

    # ------------------------------------------------------------------ what devices did

    def _operations(self, table: str, kind: int, columns: Sequence[str], where: str = "") -> Iterator[list[list[Json]]]:
        """Add what all operations have; the other columns are left to whoever knows this kind."""
        timeline, rows = self._timeline, self._timeline.operations
        owner = self._export.owner(table, "globalPid")
        stream = self._export.whole(table, "streamId", -(1 << 30))
        asked = (
            owner,
            self._export.whole(table, "deviceId"),
            stream,
            self._export.correlation(table),
            self._export.whole(table, "graphNodeId", 0),
        )
        for start, end, owners, devices, streams, correlations, graphs, *others in self._export.batches(table, (*asked, *columns), where):
            rows.start.extend(array("q", start))
            rows.end.extend(array("q", end))
            rows.kind.extend(array("b", bytes([kind]) * len(start)))
            rows.device.extend(array("i", devices))
            for device, process in set(zip(devices, owners, strict=True)) if any(owners) else ():  # else every call belongs to every device
                timeline.device_processes.setdefault(device, set()).add(process)
            # Streams of two processes are two streams, whatever their numbers.
            rows.stream.extend(
                array(
                    "q",
                    [
                        (process << 32) | (number & 0xFFFFFFFF) if number > -(1 << 30) else -1
                        for process, number in zip(owners, streams, strict=True)
                    ],
                )
            )
            rows.correlation.extend(_correlations(owners, correlations))
            rows.graph.extend(array("b", [node > 0 for node in graphs]))
            rows.detail.extend(array("i", [-1]) * len(start))
            yield others

    def _kernels(self) -> None:
        rows = self._timeline.operations
        named = _Numbers(lambda number: self._timeline.names.number(self._export.text(number)))
        grid = (self._export.whole(KERNELS, column) for column in ("gridX", "gridY", "gridZ"))
        for names, x, y, z in self._operations(KERNELS, KERNEL, (self._export.name(KERNELS, "shortName"), *grid)):
            rows.name.extend(named.of(names))
            rows.bytes.extend(array("q", [-1]) * len(names))
            sizes = zip(x, y, z, strict=True)
            rows.blocks.extend(array("f", [float(min(a * b * c, 1 << 40)) if min(a, b, c) >= 0 else -1.0 for a, b, c in sizes]))

        self._name_fully(named.keys)

    def _name_fully(self, keys: Collection[Json]) -> None:
        """Full names, which have template types, for the products whose short names do not tell any."""
        untyped = {key: name for key in keys if is_untyped_product(name := self._export.text(key).lower())}
        wanted = list(untyped)[:MAX_UNTYPED_NAMES]
        if not wanted or not self._export.has(KERNELS, "demangledName"):
            return
        found = self._export.connection.execute(
            f'SELECT DISTINCT "shortName", "demangledName" FROM "{KERNELS}" WHERE "shortName" IN ({", ".join("?" * len(wanted))})'  # noqa: S608 - our own names
            f" LIMIT {MAX_FULL_NAMES}",
            wanted,
        ).fetchall()
        for short, full in found if len(found) < MAX_FULL_NAMES else ():
            self._timeline.signatures.setdefault(untyped[short], set()).add(self._export.text(full).lower())

    def _copies(self) -> None:
        kinds = (self._export.whole(COPIES, column) for column in ("copyKind", "srcKind", "dstKind"))
        named = _Numbers(lambda words: self._timeline.names.number(_copy_name(*words)))
        for sizes, kind, source, target in self._operations(COPIES, COPY, (self._export.bytes(COPIES), *kinds)):
            self._moved(named.of(zip(kind, source, target, strict=True)), sizes)

    def _sets(self) -> None:
        name = self._timeline.names.number("Memset (Device)") if SETS in self._export.columns else -1
        for (sizes,) in self._operations(SETS, SET, (self._export.bytes(SETS),)):
            self._moved(array("i", [name]) * len(sizes), sizes)

    def _graphs(self) -> None:
        """CUDA graphs that are recorded as one piece each. CUPTI gives those whose times it does not know times of 0."""
        rows, damage = self._timeline.operations, self._timeline.damage
        first, untimed = len(rows), damage.no_duration
        named = _Numbers(lambda graph: self._timeline.names.number(f"CUDA graph {graph}" if graph != -1 else "CUDA graph"))
        for (graphs,) in self._operations(GRAPHS, GRAPH, (self._export.whole(GRAPHS, "graphId"),), ' AND "end" > 0'):
            self._moved(named.of(graphs), [-1] * len(graphs))
        if damage.no_duration > untimed:
            self._timeline.absent.add(columns.GRAPHS)
        if len(rows) > first:
            self._find_devices(first)
            self._leave_out_graphs(first)

    def _find_devices(self, first: int) -> None:
        """Name the device of graphs whose first node runs on the host: that of the process, where there is one only. CUPTI names none."""
        rows = self._timeline.operations
        of_process: dict[int, set[int]] = {}
        for device, process in {(device, number >> NUMBER_BITS) for device, number in zip(rows.device, rows.correlation, strict=True)}:
            if device >= 0:
                of_process.setdefault(process, set()).add(device)
        for index in range(first, len(rows)):
            devices = of_process.get(rows.correlation[index] >> NUMBER_BITS, ())
            if rows.device[index] < 0 and len(devices) == 1:
                (rows.device[index],) = devices
        if -1 not in rows.device:
            self._timeline.device_processes.pop(-1, None)

    def _leave_out_graphs(self, first: int) -> None:
        """Leave out graphs whose kernels are in the file, by the number of the same call, and those that ran nobody knows where."""
        rows, timeline = self._timeline.operations, self._timeline
        recorded = set(rows.correlation[:first]) - {-1}
        graphs = [index for index in range(first, len(rows)) if rows.correlation[index] not in recorded]
        if max(rows.device) >= 0 and any(rows.device[index] < 0 for index in graphs):
            timeline.absent.add(columns.GRAPHS)
            timeline.device_processes.pop(-1, None)
            graphs = [index for index in graphs if rows.device[index] >= 0]
        if len(graphs) < len(rows) - first:
            rows.keep([*range(first), *graphs])

    def _moved(self, names: array[int], sizes: Sequence[int]) -> None:
        rows = self._timeline.operations
        rows.name.extend(names)
        rows.bytes.extend(array("q", sizes))
        rows.blocks.extend(array("f", [-1.0]) * len(sizes))

    # ------------------------------------------------------------------ what the host did

    def _calls(self) -> None:
        rows = self._timeline.calls
        named = _Numbers(lambda number: self._timeline.names.number(without_suffix(self._export.text(number))))
        threads = _Numbers(self._thread)
        columns = (
            self._export.thread_number(CALLS),
            self._export.correlation(CALLS),
            self._export.name(CALLS, "nameId"),
            self._export.whole(CALLS, "callchainId"),
        )
        for start, end, thread, correlations, names, stacks in self._export.batches(CALLS, columns):
            rows.start.extend(array("q", start))
            rows.end.extend(array("q", end))
            rows.name.extend(named.of(names))
            rows.thread.extend(threads.of(thread))
            processes = {number: process_of(number) for number in set(thread)}
            rows.correlation.extend(_correlations(map(processes.__getitem__, thread), correlations))
            rows.stack.extend(array("i", [stack if stack > 0 else -1 for stack in stacks]))

    def _system_calls(self) -> None:
        """Calls of the operating system's libraries; those within others are part of them."""
        rows = self._timeline.system_calls
        named, threads = _Numbers(lambda number: self._timeline.names.number(self._export.text(number))), _Numbers(self._thread)
        columns = (self._export.thread_number(SYSTEM_CALLS), self._export.name(SYSTEM_CALLS, "nameId"))
        outermost = ' AND "nestingLevel" = 0' if self._export.has(SYSTEM_CALLS, "nestingLevel") else ""
        for start, end, thread, names in self._export.batches(SYSTEM_CALLS, columns, outermost):
            rows.start.extend(array("q", start))
            rows.end.extend(array("q", end))
            rows.name.extend(named.of(names))
            rows.thread.extend(threads.of(thread))
            rows.correlation.extend(array("q", [-1]) * len(start))
            rows.stack.extend(array("i", [-1]) * len(start))

    def _ranges(self) -> None:
        rows, kinds = self._timeline.ranges, dict[int, int]()
        threads = _Numbers(self._thread)

        def number(key: Json) -> int:
            name = key if isinstance(key, str) else self._export.text(key)
            operator = _OPERATOR.match(name)
            name_number = self._timeline.names.number(operator[1] if operator else name)
            kinds[name_number] = OPERATOR if operator else ANNOTATION
            return name_number

        named = _Numbers(number)
        where = f' AND "eventType" IN {_RANGE_KINDS}' if self._export.has(RANGES, "eventType") else ""
        for start, end, texts, thread in self._export.batches(RANGES, (self._range_name(), self._export.thread_number(RANGES)), where):
            names = named.of(_without_call_numbers(texts))
            rows.start.extend(array("q", start))
            rows.end.extend(array("q", end))
            rows.name.extend(names)
            rows.thread.extend(threads.of(thread))
            rows.kind.extend(array("b", [kinds[name] for name in names]))
            rows.detail.extend(array("i", [-1]) * len(start))
            rows.stack.extend(array("i", [-1]) * len(start))

    def _range_name(self) -> str:
        """SQL for a range's text; for the number of its text where that is in another table."""
        if not self._export.has(RANGES, "text"):
            return self._export.name(RANGES, "textId")
        return f"CASE WHEN typeof(text) = 'text' THEN {beginning('text')} ELSE {self._export.name(RANGES, 'textId')} END"

    def _thread(self, number: int) -> int:
        return thread_of(self._timeline, number)


def without_suffix(name: str) -> str:
    """The name of a call without the version that exports add (`_v7000`), however often."""
    while (shorter := _SUFFIX.sub("", name)) != name:
        name = shorter
    return name


def _correlations(processes: Iterable[int], numbers: Iterable[int]) -> array[int]:
    """What a call and its operation have in common: two processes do reuse numbers. -1: unknown."""
    pairs = zip(processes, numbers, strict=True)
    return array("q", [(process << NUMBER_BITS) | number if number > 0 else -1 for process, number in pairs])


def _without_call_numbers(names: list[Json]) -> list[Json]:
    """Texts without the numbers of a call, which differ from call to call; everything else as it is."""
    return [name.partition(_SEQUENCE)[0].partition(_CALL)[0] or name if isinstance(name, str) else name for name in names]


class _Numbers:
    """Numbers in the timeline of what a file's rows name, each asked for once."""

    def __init__(self, number: Callable[[Json], int]) -> None:
        self._number = number
        self._known: dict[Json, int] = {}

    @property
    def keys(self) -> Collection[Json]:
        """What was asked for."""
        return self._known.keys()

    def of(self, keys: Iterable[Json]) -> array[int]:
        """The number of each key."""
        keys = list(keys)
        for key in set(keys) - self._known.keys():
            self._known[key] = self._number(key)
        return array("i", map(self._known.__getitem__, keys))


def _copy_name(kind: int, source: int, target: int) -> str:
    words = (_COPY_KINDS.get(kind, "?"), _MEMORY_KINDS.get(source, "?"), _MEMORY_KINDS.get(target, "?"))
    return "Memcpy {} ({} -> {})".format(*words)
