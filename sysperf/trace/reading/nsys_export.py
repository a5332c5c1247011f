"""The tables of an Nsight Systems export: which there are, and their rows as columns.

SQLite itself tells numbers from what is none: a value of another type, or one that is too large, is -1, and a row without times
is counted and left out. A column that is absent is unknown. Columns come as JSON of many rows each, in half the time that rows take.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec

from sysperf.model.record import Json
from sysperf.trace.reading.part import MAX_UNMARKED_ROWS, WHOLE_ROWS
from sysperf.trace.timeline import MAX_NAME, NUMBER_BITS, Damage

MAX_ROWS = 1_000_000
"""Of one table. Times that do not tell apart what is early and late keep no more either."""
ROWS_AT_ONCE = 20_000
SAMPLED_ROWS = 500

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
SETS = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
RANGES = "NVTX_EVENTS"
SYSTEM_CALLS = "OSRT_API"
DIAGNOSTICS = "DIAGNOSTIC_EVENT"
OWN_TABLES = (
    KERNELS, COPIES, SETS, GRAPHS, CALLS, RANGES, SYSTEM_CALLS, DIAGNOSTICS, "PROFILER_OVERHEAD", "ANALYSIS_DETAILS", "COMPOSITE_EVENTS",
    "SCHED_EVENTS", "GPU_METRICS", "CUPTI_ACTIVITY_KIND_OVERHEAD",
)  # fmt: skip
"""Of tables of Nsight Systems that exports without CUDA have, enough to know one by."""


class Export:
    """The tables of one file."""

    def __init__(self, connection: sqlite3.Connection, damage: Damage) -> None:
        self.connection, self._damage = connection, damage
        self.columns = {
            table: {row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')}
            for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if '"' not in table
        }
        self.strings: dict[Json, Json] = dict(self.rows("StringIds", ("id", "value")))
        self.cut: int | None = None
        """The time in ns after which rows are not read."""

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table has these columns."""
        return self.columns.get(table, set()).issuperset(columns)

    def is_timed(self, table: str) -> bool:
        """Whether the rows of a table have times."""
        return self.has(table, "start", "end")

    def first_part(self) -> int | None:
        """Return the time until which the first rows of a large export start, by a sample of them; None: all of it is examined."""
        tables = [table for table in (KERNELS, COPIES, SETS, GRAPHS, CALLS, RANGES, SYSTEM_CALLS) if "start" in self.columns.get(table, ())]
        counts = {table: self._rowid(table, "max") or 0 for table in tables}
        if sum(counts.values()) <= WHOLE_ROWS:
            return None
        starts = list[tuple[int, float]]()
        for table, count in counts.items():
            places = {1 + place * (count - 1) // SAMPLED_ROWS for place in range(SAMPLED_ROWS + 1)}
            asked = f"{_is_whole('start')} AND rowid IN ({', '.join(map(str, places))})"
            times = [start for (start,) in self.connection.execute(f'SELECT "start" FROM "{table}" WHERE {asked}')]  # noqa: S608 - our own names
            starts += [(start, count / len(times)) for start in times]
        return _until(starts, MAX_UNMARKED_ROWS)

    def rows(self, table: str, columns: Sequence[str], where: str = "") -> Iterator[tuple[Json, ...]]:
        """The rows of a small table; a column that is absent is NULL, and so is what is neither number nor text."""
        known = self.columns.get(table)
        if known is None:
            return iter(())
        listed = ", ".join(_number_or_text(column) if column in known else "NULL" for column in columns)
        return self.connection.execute(f'SELECT {listed} FROM "{table}" {where} LIMIT {MAX_ROWS}')  # noqa: S608 - our own names

    def batches(self, table: str, columns: Sequence[str], where: str = "") -> Iterator[list[list[Json]]]:
        """Start, end and these expressions as columns, many rows at once, of the rows that have times."""
        if not self.is_timed(table):
            return
        timed = f"{_is_whole('start')} AND {_is_whole('end')}{where}"
        if self.cut is not None:
            timed += f' AND "start" <= {self.cut}'
        asked = ", ".join(f"json_group_array({column})" for column in ('"start"', '"end"', *columns))
        count, numbers, last = 0, ROWS_AT_ONCE, -1
        while count < MAX_ROWS and (first := self._rowid(table, "min", last)) is not None:
            last = first - 1 + numbers
            part = f"rowid BETWEEN {first} AND {last} AND {timed}"
            texts = next(self.connection.execute(f'SELECT {asked} FROM "{table}" WHERE {part}'))  # noqa: S608 - our own words
            rows = [msgspec.json.decode(text) for text in texts]
            if rows[0]:
                yield rows
            count += len(rows[0])
            numbers = ROWS_AT_ONCE if len(rows[0]) > ROWS_AT_ONCE // 2 else 2 * numbers  # most numbers are of no row that is wanted
        if table not in (RANGES, SYSTEM_CALLS):  # marks of a moment have no end
            self._damage.no_duration += self._untimed(table, count)
        if count >= MAX_ROWS:
            self._damage.truncated = f"more than {MAX_ROWS:,} rows of {table} start at one time"

    def _rowid(self, table: str, function: str, after: int = 0) -> int | None:
        """The least or largest number of a row behind this one; None: there is none."""
        number: int | None = next(self.connection.execute(f'SELECT {function}(rowid) FROM "{table}" WHERE rowid > {after}'))[0]  # noqa: S608 - our own words
        return number

    def _untimed(self, table: str, timed: int) -> int:
        """Rows without usable times, where so many were read that have them."""
        all_were_read = self.cut is None and timed < MAX_ROWS
        return self.count(table) - timed if all_were_read else self.count(table, f"NOT ({_is_whole('start')} AND {_is_whole('end')})")

    def count(self, table: str, where: str = "TRUE") -> int:
        """How many rows of a table are so."""
        count: int = next(self.connection.execute(f'SELECT count(*) FROM "{table}" WHERE {where}'))[0]  # noqa: S608 - a table of this file
        return count

    def text(self, number: Json) -> str:
        """The text with this number."""
        text = self.strings.get(number)
        if text is None and len(self.strings) == MAX_ROWS and isinstance(number, int):
            asked = f"SELECT {beginning('value')} FROM StringIds WHERE id = ?"  # noqa: S608 - our own names
            text = next(self.connection.execute(asked, (number,)), (None,))[0]
        return str(text) if text is not None else "(unnamed)"

    # ------------------------------------------------------------------ SQL of columns

    def whole(self, table: str, column: str, otherwise: int = -1, bits: int = 30) -> str:
        """SQL for a column's whole number below 2**bits; `otherwise` where it is none, or there is no such column."""
        return f'CASE WHEN {_is_whole(column, bits)} THEN "{column}" ELSE {otherwise} END' if self.has(table, column) else str(otherwise)

    def owner(self, table: str, column: str) -> str:
        """SQL for the process in a globalPid; without that column, the only process whose calls are in the file; 0: unknown."""
        return f"({self.whole(table, column, 0, 62)} >> 24) & 16777215" if self.has(table, column) else str(self._only_process)

    @cached_property
    def _only_process(self) -> int:
        """The process of all calls; 0 where they are of several, or the file does not tell."""
        if not self.has(CALLS, "globalTid"):
            return 0
        owner = f"({self.thread_number(CALLS)} >> 24) & 16777215"
        owners = self.connection.execute(f'SELECT DISTINCT {owner} FROM "{CALLS}" LIMIT 2').fetchall()  # noqa: S608 - our own words
        return owners[0][0] if len(owners) == 1 else 0

    def correlation(self, table: str) -> str:
        """SQL for the number that a call and its operation have in common."""
        return self.whole(table, "correlationId", bits=NUMBER_BITS)

    def name(self, table: str, column: str) -> str:
        """SQL for a text or the number of one."""
        if not self.has(table, column):
            return "NULL"
        return f"CASE typeof(\"{column}\") WHEN 'integer' THEN \"{column}\" WHEN 'text' THEN {beginning(column)} END"

    def bytes(self, table: str) -> str:
        """SQL for a size; -1 where there is none."""
        return f"CASE WHEN {_is_whole('bytes')} AND bytes >= 0 THEN bytes ELSE -1 END" if self.has(table, "bytes") else "-1"

    def thread_number(self, table: str) -> str:
        """SQL for a thread's number; 0 where there is none."""
        return self.whole(table, "globalTid", 0, 62)


def _until(starts: list[tuple[int, float]], rows: int) -> int | None:
    """The time before which so many rows start, of (start, how many rows it stands for)."""
    seen = 0.0
    for start, weight in sorted(starts):
        seen += weight
        if seen >= rows:
            return start
    return None


def beginning(column: str) -> str:
    """SQL for the beginning of a text, as much as names have."""
    return f'substr("{column}", 1, {MAX_NAME})'


def _number_or_text(column: str) -> str:
    """SQL for the value of a column, if it is one of these."""
    return f"CASE typeof(\"{column}\") WHEN 'text' THEN {beginning(column)} WHEN 'blob' THEN NULL ELSE \"{column}\" END"


def _is_whole(column: str, bits: int = 62) -> str:
    """SQL that says whether a column holds a whole number below 2**bits. SQLite's columns hold values of any type."""
    return f'typeof("{column}") = \'integer\' AND "{column}" BETWEEN {1 - (1 << bits)} AND {(1 << bits) - 1}'
