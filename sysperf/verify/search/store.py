"""A search on the disk: one SQLite file a study, each run committed when it is done, so that kill -9 costs one run."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from typing import TypeVar

from sysperf.host.files import make_folder
from sysperf.model.errors import SysperfError
from sysperf.model.record import from_json, to_json
from sysperf.model.tuning import TuneRun

VERSION = 1
BUSY_S = 5.0
_T = TypeVar("_T")
_TABLES = """
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS runs (number INTEGER PRIMARY KEY, record BLOB NOT NULL);
"""


class Store:
    """The file. Every method raises sqlite3.Error where the disk or the file fails."""

    def __init__(self, path: str, *, anew: bool) -> None:
        if anew:
            for suffix in ("", "-wal", "-shm", "-journal"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{path}{suffix}")
        make_folder(os.path.dirname(path))
        self._database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        try:
            if self._database.execute("PRAGMA user_version").fetchone()[0] not in (0, VERSION):
                raise sqlite3.DatabaseError("it was written by another version of sysperf")
            self._database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA user_version={VERSION}; {_TABLES}")
        except sqlite3.Error:
            self._database.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def keep(self, name: str, record: object) -> None:
        """Keep a record under a name."""
        self._database.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, to_json(record)))

    def kept(self, name: str, kind: type[_T]) -> _T | None:
        """Return the record of this name; None where there is none. Raises ValueError for one that does not fit."""
        row = self._database.execute("SELECT record FROM notes WHERE name = ?", (name,)).fetchone()
        return None if row is None else from_json(row[0], kind)

    def add(self, run: TuneRun) -> None:
        """Keep a run."""
        self._database.execute("INSERT OR REPLACE INTO runs VALUES (?, ?)", (run.number, to_json(run)))

    def runs(self) -> list[TuneRun]:
        """Return all runs in their order. Raises ValueError for one that does not fit."""
        rows = self._database.execute("SELECT record FROM runs ORDER BY number")
        return [from_json(row[0], TuneRun) for row in rows]


@contextlib.contextmanager
def opened(path: str, *, resume: bool) -> Iterator[Store]:
    """Open the file of a study, anew or as it was left. Raises SysperfError."""
    hint = "run it without --resume, or make room on that disk"
    try:
        store = Store(path, anew=not resume)
    except (sqlite3.Error, OSError) as error:
        raise SysperfError(f"{path}: {error}", hint) from None
    try:
        yield store
    except (sqlite3.Error, ValueError) as error:
        raise SysperfError(f"{path}: {error}", hint) from None
    finally:
        store.close()
