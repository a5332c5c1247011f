"""Opening the history file: checked at start, set aside when it cannot be used, in memory where there is no disk."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time

from sysperf.agent import history
from sysperf.model.text import neutral
from sysperf.ownership import stranger

SCHEMA = 1
CHECK_S = 2.0
"""A longer integrity check ends unfinished: the file counts as sound until a read says otherwise."""
ASIDE_KEPT = 2
_BUSY_MS = 200
_STEPS = 20_000  # virtual machine instructions between two looks at the clock

TABLES = (
    history.TABLES
    + """
CREATE TABLE event(id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL,
                   text TEXT NOT NULL, data TEXT);
CREATE TABLE seen(fingerprint TEXT PRIMARY KEY, first REAL NOT NULL, last REAL NOT NULL) WITHOUT ROWID;
"""
)
EXPECTED = {"series", "layout", "event", "seen", *history.ROW_TABLES}


class Unusable(Exception):
    """The file is no history of ours: `kind` names what it is set aside as."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def in_memory() -> sqlite3.Connection:
    """An empty history that ends with the process."""
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _create(database)
    return database


def open_file(path: str, check_s: float = CHECK_S) -> tuple[sqlite3.Connection, str]:
    """The history in this file, and what was wrong with the one before. Raises sqlite3.Error and OSError."""
    folder = os.path.dirname(path) or "."
    if stranger(os.path.abspath(path)) is not None:
        raise OSError(errno.EPERM, "another user could put another file in the history's place", path)
    os.makedirs(folder, mode=0o750, exist_ok=True)
    try:
        return _open(path, check_s), ""
    except Unusable as error:
        aside = set_aside(path, error.kind)
        return _open(path, check_s), f"{path}: {neutral(str(error), 200)}; kept as {os.path.basename(aside)}, a new history was begun"


def _open(path: str, check_s: float) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640))
    database = sqlite3.connect(path, timeout=_BUSY_MS / 1e3, isolation_level=None, check_same_thread=False)
    try:
        _prepare(database, check_s)
    except sqlite3.OperationalError as error:  # busy, full, read-only: the file may be sound
        database.close()
        if "malformed" in str(error):
            raise Unusable("corrupt", str(error)) from None
        raise
    except sqlite3.DatabaseError as error:
        database.close()
        raise Unusable("corrupt", str(error)) from None
    except Unusable:
        database.close()
        raise
    return database


def _prepare(database: sqlite3.Connection, check_s: float) -> None:
    ((version,),) = database.execute("PRAGMA user_version")
    if version > SCHEMA:
        raise Unusable("newer", f"written by a newer sysperf (schema {version}, this one knows {SCHEMA})")
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")}
    if not tables and version == 0:
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
    for setting in (
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "cache_size = -128",
        "wal_autocheckpoint = 256",
        "journal_size_limit = 1048576",
    ):
        database.execute(f"PRAGMA {setting}").fetchall()
    if not tables and version == 0:
        _create(database)
        return
    if not tables >= EXPECTED:
        raise Unusable("corrupt", "not a history of sysperf")
    _check(database, check_s)
    database.execute("BEGIN IMMEDIATE")  # a read-only file fails here, not at the first flush
    database.execute("ROLLBACK")


def _create(database: sqlite3.Connection) -> None:
    database.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")


def _check(database: sqlite3.Connection, check_s: float) -> None:
    """Look for damage, for at most `check_s` seconds."""
    deadline = time.monotonic() + check_s
    database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        answers = [text for (text,) in database.execute("PRAGMA quick_check(1)")]
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        answers = ["ok"]
    finally:
        database.set_progress_handler(None, 0)
    if answers != ["ok"]:
        raise Unusable("corrupt", " ".join(answers))


def set_aside(path: str, kind: str) -> str:
    """Rename the file to ``NAME.KIND-N``, of which the newest are kept; its journals go with it."""
    folder, name = os.path.split(path)
    prefix = f"{name}.{kind}-"
    numbers = sorted(
        int(name[len(prefix) :]) for name in os.listdir(folder or ".") if name.startswith(prefix) and name[len(prefix) :].isdecimal()
    )
    for number in numbers[: len(numbers) - ASIDE_KEPT + 1]:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, f"{prefix}{number}"))
    aside = os.path.join(folder, f"{prefix}{(numbers[-1] if numbers else 0) + 1}")
    os.rename(path, aside)
    for journal in ("-wal", "-shm"):  # a journal of another file would damage the new one
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + journal)
    return aside
