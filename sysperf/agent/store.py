"""The agent's memory: samples, events, and since when each finding holds, in SQLite.

No disk ever stops the agent: when the file cannot be written, the session goes on in memory, `problem` says why, and
every few minutes the store tries to go back. Nothing here raises to its caller.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from sysperf.agent import database
from sysperf.agent.answers import Event, Point
from sysperf.agent.history import IN_MEMORY, ON_DISK, Archive
from sysperf.agent.samples import Recent, Row, points
from sysperf.model.record import Json, from_json, to_json
from sysperf.model.text import neutral

__all__ = ["Event", "Point", "Store"]

RETRY_S = 300.0
BUSY_RETRY_S = 10.0
RETRY_CHECK_S = 0.5
MAX_BYTES = 64 << 20
MAX_PENDING = 120
MAX_POINTS = 10_000
MAX_EVENTS = 20_000
MAX_EVENTS_ASKED = 5_000
MAX_SEEN = 10_000
MAX_DATA = 65_536
PRUNE_EVERY = 60
"""Flushes between two prunings: ten minutes or so."""

_INSERT_EVENT = "INSERT OR IGNORE INTO event VALUES (?, ?, ?, ?, ?, ?)"
_BROKEN = (sqlite3.Error, OSError, struct.error, MemoryError, ValueError, LookupError, TypeError, OverflowError)
"""What a full disk, a lost mount and damaged rows raise."""

T = TypeVar("T")


class Store:
    """What the agent remembers. Made by `Store.open`."""

    def __init__(self, path: str | None, now: Callable[[], float]) -> None:
        self.path = path
        self.problem = ""
        self.retry_s = RETRY_S
        self._now = now
        self._recent = Recent()
        self._unwritten: list[Row] = []
        self._seen: dict[str, tuple[float, float]] = {}
        self._seen_new: set[str] = set()
        self._last_event = 0
        self._flushes = 0
        self._retry_at = math.inf
        self._memory = True
        self._archive = Archive(database.in_memory(), IN_MEMORY)

    @classmethod
    def open(cls, path: str | None, *, now: Callable[[], float] = time.time) -> Store:
        """The history in this file, or in memory for None."""
        store = cls(path, now)
        if path is not None:
            store._use_disk(database.CHECK_S)
        return store

    def append(self, at: float, values: Mapping[str, float]) -> None:
        """Take one sample of many series. It is written by the next `flush`."""
        if not math.isfinite(at):
            return
        self._recent.append(at, values)
        if len(self._recent.pending) >= MAX_PENDING:
            self.flush()

    def flush(self) -> None:
        """Write what was appended, in one transaction. Call it about every 10 s."""
        self._unwritten += self._recent.take()
        self._write()
        self._flushes += 1
        if self._flushes % PRUNE_EVERY == 0:
            self.prune()
        if self._memory and time.monotonic() >= self._retry_at:
            self._use_disk(RETRY_CHECK_S)

    def event(self, at: float, kind: str, subject: str, text: str, data: object = None) -> int:
        """Keep an event; returns its number."""
        self._last_event += 1
        row = (self._last_event, at, neutral(kind, 100), neutral(subject, 400), neutral(text, 2_000), _json(data))
        self._safely(lambda: self._archive.database.execute(_INSERT_EVENT, row) and None, None)
        return row[0]

    def events(self, since_id: int = 0, limit: int = 500) -> tuple[Event, ...]:
        """Events after `since_id`, oldest first. More than `limit`: ask again from the last of them."""
        query = "SELECT id, at, kind, subject, text, data FROM event WHERE id > ? ORDER BY id LIMIT ?"
        asked = (min(max(since_id, -1), 1 << 62), min(max(limit, 0), MAX_EVENTS_ASKED))
        return self._safely(lambda: tuple(_event(row) for row in self._archive.database.execute(query, asked)), ())

    def last_event(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._last_event

    def series(self) -> tuple[str, ...]:
        """The names of which there is a history."""
        recent = (name for _, values in self._recent.pending for name in values)
        return tuple(dict.fromkeys((*self._archive.names(), *recent)))

    def history(self, name: str, since: float, until: float, points: int = 600) -> tuple[Point, ...]:
        """Return at most `points` points of a series between two times, oldest first; empty where nothing is known."""
        most = min(max(points, 1), MAX_POINTS)
        if not (math.isfinite(since) and math.isfinite(until) and since < until):
            return ()
        return self._safely(lambda: self._points(name, since, until, most), ())

    def _points(self, name: str, since: float, until: float, most: int) -> tuple[Point, ...]:
        pieces = self._archive.pieces(name, since, until, (until - since) / most, self._recent.chunks())
        return points(pieces, since, until, most)

    def remember(self, fingerprint: str, at: float) -> None:
        """A finding holds now. The first time it does stays known over restarts."""
        first = min(self._seen.pop(fingerprint, (at, at))[0], at)
        self._seen[fingerprint] = (first, at)  # at the end: the others are forgotten before it
        self._seen_new.add(fingerprint)
        if len(self._seen) > MAX_SEEN:
            self._seen_new.discard(oldest := next(iter(self._seen)))
            del self._seen[oldest]

    def first_seen(self, fingerprint: str) -> float | None:
        """Return when this finding held first; None when it never did."""
        return self._seen.get(fingerprint, (None, None))[0]

    def last_seen(self, fingerprint: str) -> float | None:
        """Return when this finding held last; None when it never did."""
        return self._seen.get(fingerprint, (None, None))[1]

    def size_bytes(self) -> int:
        """What the history takes, on disk or in memory."""
        return self._safely(lambda: self._archive.used_bytes(), 0)  # noqa: PLW0108 - another archive after a failure

    def prune(self) -> None:
        """Let go of what is oldest. The store does this by itself, too."""
        self._safely(self._prune, None)

    def close(self) -> None:
        """Write what is there, the unfinished minute too, and let go of the file."""
        self._unwritten += self._recent.take() + self._recent.seal()
        self._write()
        self._retry_at = math.inf
        self._use_memory()

    def _write(self) -> None:
        if self._unwritten or self._seen_new:
            self._safely(self._commit, None)
        del self._unwritten[:-MAX_PENDING]

    def _commit(self) -> None:
        with self._transaction():
            self._archive.write(self._unwritten)
            self._insert_seen(self._archive, self._seen_new)
        self._unwritten.clear()
        self._seen_new.clear()

    def _prune(self) -> None:
        run = self._archive.database.execute
        with self._transaction():
            run("DELETE FROM event WHERE id <= (SELECT max(id) FROM event) - ?", (1_000 if self._memory else MAX_EVENTS,))
            run("DELETE FROM seen WHERE last < (SELECT last FROM seen ORDER BY last DESC LIMIT 1 OFFSET ?)", (MAX_SEEN,))
            self._archive.prune(MAX_BYTES // 8 if self._memory else MAX_BYTES)
        run("PRAGMA incremental_vacuum(4096)").fetchall()

    def _insert_seen(self, archive: Archive, names: Iterable[str]) -> None:
        archive.database.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", [(name, *self._seen[name]) for name in names])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        archive = self._archive
        archive.database.execute("BEGIN IMMEDIATE")
        try:
            yield
            archive.database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                archive.database.execute("ROLLBACK")
                archive.reload()
            raise

    def _safely(self, work: Callable[[], T], otherwise: T) -> T:
        """Do this; when the disk refuses, do it once more in memory."""
        try:
            return work()
        except _BROKEN as error:
            if self._memory:
                self.problem = self.problem or f"{type(error).__name__}: {neutral(str(error), 200)}"
                return otherwise
            self._give_up(error)
        self._use_memory()
        return self._safely(work, otherwise)

    def _give_up(self, error: Exception) -> None:
        """Say why there is no disk, and when to try again."""
        busy = "locked" in str(error) or "busy" in str(error)
        self._retry_at = time.monotonic() + (min(BUSY_RETRY_S, self.retry_s) if busy else self.retry_s)
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        self.problem = f"{self.path}: {neutral(reason, 200)}; the history goes on in memory"

    def _use_memory(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._archive.database.close()
        self._archive = Archive(database.in_memory(), IN_MEMORY)
        self._memory = True

    def _use_disk(self, check_s: float) -> None:
        """Open the file, and move what memory holds there."""
        try:
            file, problem = database.open_file(self.path or "", check_s)
        except _BROKEN as error:
            self._give_up(error)
            return
        try:
            archive = Archive(file, ON_DISK)
            self._move_to(archive)
        except _BROKEN as error:
            self._give_up(error)
            file.close()
            return
        self._archive.database.close()
        self._archive, self._memory, self.problem, self._retry_at = archive, False, problem, math.inf

    def _move_to(self, archive: Archive) -> None:
        run = archive.database.execute
        run("BEGIN IMMEDIATE")
        archive.write(self._archive.rows())
        last = max(run("SELECT seq FROM sqlite_sequence WHERE name = 'event'").fetchone() or (0,))
        events = self._archive.database.execute("SELECT * FROM event ORDER BY id").fetchall()
        shift = max(0, last + 1 - events[0][0]) if events else 0  # numbers that the file has given already
        archive.database.executemany(_INSERT_EVENT, [(number + shift, *rest) for number, *rest in events])
        seen = {name: (first, at) for name, first, at in run("SELECT fingerprint, first, last FROM seen ORDER BY last")}
        for name, (first, at) in self._seen.items():
            seen[name] = (min(first, seen.pop(name, (first, at))[0]), at)
        changed, self._seen = tuple(self._seen), seen
        self._insert_seen(archive, changed)
        run("COMMIT")
        self._last_event = max(last, self._last_event + shift)


def _event(row: tuple[Json, ...]) -> Event:
    number, at, kind, subject, text, data = row
    return Event(number, at, kind, subject, text, None if data is None else from_json(data, Json))


def _json(data: object) -> str | None:
    """Encode as JSON; what has no JSON form or is too large is left out."""
    try:
        text = to_json(data).decode()
    except (TypeError, ValueError, NotImplementedError, RecursionError):
        return None
    return text if len(text) <= MAX_DATA and data is not None else None
