"""How samples are kept: a short past second by second, a longer one as one-minute means with their lows and highs.

A row holds all series of one flush or one minute, packed, so that a flush dirties one page instead of one for each
series. A row for each value was measured at twice the CPU time (57 instead of 29 µs for each second of 40 series, 185
instead of 82 of 150) and three times the size (11 instead of 4 MB for 24 h of 40 series). Rows are kept by number,
never by age: whatever the clock does, only the oldest rows that were written make room.
Series of processes (``process.PID.…``) come and go, and have tables of their own with a shorter past.

Figures are single-precision floats: 7 digits, enough for gauges. Keep counters as rates.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sysperf.agent.samples import MINUTE_S, PROCESS, Chunk, Minute, Piece, Row, pieces_of

MAX_SERIES = 4_000
"""Names that the store knows; beyond, series of processes that are gone longest lose theirs."""

TABLES = """
CREATE TABLE series(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
CREATE TABLE layout(id INTEGER PRIMARY KEY AUTOINCREMENT, ids BLOB NOT NULL UNIQUE);
CREATE TABLE raw_system(id INTEGER PRIMARY KEY, at REAL NOT NULL, layout INTEGER NOT NULL, times BLOB NOT NULL, data BLOB NOT NULL);
CREATE TABLE raw_process(id INTEGER PRIMARY KEY, at REAL NOT NULL, layout INTEGER NOT NULL, times BLOB NOT NULL, data BLOB NOT NULL);
CREATE TABLE minute_system(id INTEGER PRIMARY KEY, at REAL NOT NULL, layout INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE minute_process(id INTEGER PRIMARY KEY, at REAL NOT NULL, layout INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX raw_system_at ON raw_system(at, layout);
CREATE INDEX raw_process_at ON raw_process(at, layout);
CREATE INDEX minute_system_at ON minute_system(at, layout);
CREATE INDEX minute_process_at ON minute_process(at, layout);
"""
GROUPS = ("system", "process")
ROW_TABLES = ("raw_system", "raw_process", "minute_system", "minute_process")

_FIGURES = struct.Struct("<fffH")  # mean, low, high, number of samples


class Keep(NamedTuple):
    """How many rows of each table are kept. A flush every 10 s makes 7 rows a minute, since none crosses a full minute."""

    raw_system: int = 120 * 7
    raw_process: int = 30 * 7
    minute_system: int = 7 * 24 * 60
    minute_process: int = 24 * 60


ON_DISK = Keep()
IN_MEMORY = Keep(30 * 7, 10 * 7, 24 * 60, 2 * 60)


class Archive:
    """The rows of one database. Every call may raise sqlite3.Error."""

    def __init__(self, database: sqlite3.Connection, keep: Keep) -> None:
        self.database = database
        self.keep = keep
        self._names: dict[str, int] = {}
        self._layouts: dict[tuple[int, ...], int] = {}
        self.reload()

    def reload(self) -> None:
        """Forget what a transaction that failed had in mind."""
        self._names = dict(self.database.execute("SELECT name, id FROM series ORDER BY id"))
        self._layouts.clear()

    def names(self) -> tuple[str, ...]:
        """Series of which anything is kept."""
        return tuple(self._names)

    def write(self, rows: Iterable[Row]) -> None:
        """Add rows, within the caller's transaction."""
        for row in rows:
            for group in GROUPS:
                if isinstance(row, Chunk):
                    self._write_chunk(row, group)
                else:
                    self._write_minute(row, group)

    def _write_chunk(self, chunk: Chunk, group: str) -> None:
        ids = self._ids(chunk.columns, group)
        if ids:
            data = b"".join(_floats(chunk.columns[name]) for name in ids)
            row = (chunk.at, self._layout(tuple(ids.values())), _floats(chunk.times), data)
            self.database.execute(f"INSERT INTO raw_{group}(at, layout, times, data) VALUES (?, ?, ?, ?)", row)  # noqa: S608 - of GROUPS

    def _write_minute(self, minute: Minute, group: str) -> None:
        ids = self._ids(minute.figures, group)
        if ids:
            data = b"".join(_figures(minute.figures[name]) for name in ids)
            row = (minute.at, self._layout(tuple(ids.values())), data)
            self.database.execute(f"INSERT INTO minute_{group}(at, layout, data) VALUES (?, ?, ?)", row)  # noqa: S608 - of GROUPS

    def _ids(self, names: Iterable[str], group: str) -> dict[str, int]:
        mine = [name for name in names if name.startswith(PROCESS) == (group == "process")]
        numbers = {name: self._id(name) for name in mine}
        return {name: number for name, number in numbers.items() if number}

    def _id(self, name: str) -> int:
        """The number of a series; 0 when there are too many."""
        if name not in self._names:
            if len(self._names) >= MAX_SERIES:
                self._forget_some()
            if len(self._names) >= MAX_SERIES:
                return 0
            self._names[name] = self.database.execute("INSERT INTO series(name) VALUES (?)", (name,)).lastrowid or 0
        elif name.startswith(PROCESS):
            self._names[name] = self._names.pop(name)  # seen last, forgotten last
        return self._names[name]

    def _forget_some(self) -> None:
        """Make room: processes that were seen longest ago lose their history."""
        oldest = [name for name in self._names if name.startswith(PROCESS)][: MAX_SERIES // 10]
        self._forget(oldest)

    def _forget(self, names: Sequence[str]) -> None:
        self.database.executemany("DELETE FROM series WHERE id = ?", [(self._names.pop(name),) for name in names])

    def _layout(self, ids: tuple[int, ...]) -> int:
        """The number of this order of series; most rows share one."""
        number = self._layouts.get(ids)
        if number is None:
            packed = struct.pack(f"<{len(ids)}I", *ids)
            self.database.execute("INSERT OR IGNORE INTO layout(ids) VALUES (?)", (packed,))
            ((number,),) = self.database.execute("SELECT id FROM layout WHERE ids = ?", (packed,))
            if len(self._layouts) > 8:
                self._layouts.clear()
            self._layouts[ids] = number
        return number

    def pieces(self, name: str, since: float, until: float, width: float, recent: Iterable[Chunk]) -> Iterator[Piece]:
        """The samples of a series in a time span: single ones for points closer than a minute, else minutes; the other where those lack."""
        group = "process" if name.startswith(PROCESS) else "system"
        number = self._names.get(name)
        places = {} if number is None else self._places(number)
        covered: set[float] = set()
        first, second = (self._raw, self._minutes) if width < MINUTE_S else (self._minutes, self._raw)
        for source in (first, second):
            fresh: set[float] = set()
            for piece in source(group, places, since, until, covered, width):
                fresh.add(piece.at // MINUTE_S)
                yield piece
            covered |= fresh
        for chunk in recent:
            if name in chunk.columns:
                yield from pieces_of(chunk.at, chunk.times, chunk.columns[name])

    def _places(self, number: int) -> dict[int, int]:
        """Find the column of each layout that a series is in."""
        columns: dict[int, int] = {}
        for layout, packed in self.database.execute("SELECT id, ids FROM layout WHERE instr(ids, ?)", (struct.pack("<I", number),)):
            ids = _numbers(packed)
            if number in ids:
                columns[layout] = ids.index(number)
        return columns

    def _raw(self, group: str, places: Mapping[int, int], since: float, until: float, covered: set[float], width: float) -> Iterator[Piece]:
        query = f"SELECT at, layout, times, data FROM raw_{group} WHERE at BETWEEN ? AND ?"  # noqa: S608 - of GROUPS
        for at, layout, times, data in self.database.execute(query, (since - MINUTE_S, until)):
            if layout in places and at // MINUTE_S not in covered:
                start = places[layout] * len(times)
                yield from pieces_of(at, _unpacked(times), _unpacked(data[start : start + len(times)]), width)

    def _minutes(self, group: str, places: Mapping[int, int], since: float, until: float, covered: set[float], _: float) -> Iterator[Piece]:
        query = f"SELECT at, layout, data FROM minute_{group} WHERE at BETWEEN ? AND ?"  # noqa: S608 - of GROUPS
        for at, layout, data in self.database.execute(query, (since - MINUTE_S, until)):
            if layout in places and at // MINUTE_S not in covered:
                mean, low, high, count = _FIGURES.unpack_from(data, places[layout] * _FIGURES.size)
                yield Piece(at + MINUTE_S / 2, count, mean, low, high)

    def rows(self) -> Iterator[Row]:
        """Everything, in the order in which it was written: for moving it to another database."""
        names = {number: name for name, number in self._names.items()}
        layouts = {number: _numbers(ids) for number, ids in self.database.execute("SELECT id, ids FROM layout")}
        for group in GROUPS:
            for at, layout, data in self.database.execute(f"SELECT at, layout, data FROM minute_{group} ORDER BY id"):  # noqa: S608
                figures = zip(layouts[layout], _FIGURES.iter_unpack(data), strict=True)
                yield Minute(at, {names[number]: Piece(at, count, *parts) for number, (*parts, count) in figures if number in names})
            for at, layout, times, data in self.database.execute(f"SELECT at, layout, times, data FROM raw_{group} ORDER BY id"):  # noqa: S608
                columns = [_unpacked(data[start : start + len(times)]) for start in range(0, len(data), len(times))]
                named = zip(layouts[layout], columns, strict=True)
                yield Chunk(at, _unpacked(times), {names[number]: column for number, column in named if number in names})

    def prune(self, max_bytes: int) -> None:
        """Let the oldest rows go, then the layouts and names that no row uses."""
        for table, keep in zip(ROW_TABLES, self.keep, strict=True):
            self._cut(table, keep)
        for _ in range(20):
            if self.used_bytes() <= max_bytes:
                break
            for table in ROW_TABLES:
                ((count,),) = self.database.execute(f"SELECT count(*) FROM {table}")  # noqa: S608 - of ROW_TABLES
                self._cut(table, count - count // 5 - 1)
        self._drop_unused()

    def used_bytes(self) -> int:
        """Size of what is kept, free pages not counted."""
        ((pages,),), ((free,),), ((size,),) = (
            self.database.execute(f"PRAGMA {what}") for what in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def _cut(self, table: str, keep: int) -> None:
        """All but the newest rows; a minute goes as a whole, since a part of its samples would pass for all of them."""
        last = f"SELECT id, at FROM {table} WHERE id <= (SELECT max(id) FROM {table}) - ? ORDER BY id DESC LIMIT 1"  # noqa: S608
        for number, at in self.database.execute(last, (max(keep, 0),)).fetchall():
            start = at // MINUTE_S * MINUTE_S
            gone = "id <= ? OR (id <= ? AND at >= ? AND at < ?)"
            self.database.execute(f"DELETE FROM {table} WHERE {gone}", (number, number + MINUTE_S, start, start + MINUTE_S))  # noqa: S608

    def _drop_unused(self) -> None:
        used = " UNION ".join(f"SELECT layout FROM {table}" for table in ROW_TABLES)  # noqa: S608 - of ROW_TABLES
        self.database.execute(f"DELETE FROM layout WHERE id NOT IN ({used})")  # noqa: S608
        self._layouts.clear()
        alive: set[int] = set()
        for (packed,) in self.database.execute("SELECT ids FROM layout"):
            alive.update(_numbers(packed))
        self._forget([name for name, number in self._names.items() if number not in alive])


def _floats(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def _figures(piece: Piece) -> bytes:
    return _FIGURES.pack(piece.mean, piece.low, piece.high, min(piece.samples, 0xFFFF))


def _unpacked(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)


def _numbers(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)
