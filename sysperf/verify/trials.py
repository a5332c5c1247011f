"""The results of measurements on this machine: one JSON object a line, in the folder that also holds the journal of changes.

The file may be torn, huge, or of another version: what is no result is skipped and counted, and nothing is raised.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sysperf.host.files import make_folder
from sysperf.model.record import Json, convert, from_json, to_json
from sysperf.model.trial import Trial

FILE = "trials.jsonl"
MAX_BYTES = 4 << 20
"""The end of a larger file is read: the newest results stand there."""
MAX_TRIALS = 2_000
MAX_LINE_BYTES = 64 << 10
_FIELDS = frozenset(Trial.__struct_fields__)


class Trials(NamedTuple):
    """What was measured, oldest first."""

    results: Sequence[Trial] = ()
    skipped: int = 0
    """Lines that are no result that this version can show."""
    problem: str = ""
    """Why a file that is there could not be read."""
    fingerprint: str = ""
    """Of the machine as it is now; empty where that is not known."""

    def by_weight(self) -> list[Trial]:
        """Return the results so that a later one of a rule counts more: of a user's own program more than of the reference trainer."""
        return sorted(self.results, key=lambda trial: trial.experiment != "ladder")

    def is_stale(self, trial: Trial) -> bool:
        """Whether the machine has changed since, so that the result may not hold any more."""
        return bool(trial.fingerprint and self.fingerprint) and trial.fingerprint != self.fingerprint


def read(paths: Iterable[str]) -> Trials:
    """All results of these files, those that do not exist left out."""
    results: list[Trial] = []
    skipped, problems = 0, []
    for path in paths:
        try:
            raw = _tail(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"{path}: {error.strerror or error}")
            continue
        some, bad = parse(raw)
        results += some
        skipped += bad
    return Trials(sorted(results, key=lambda trial: trial.at)[-MAX_TRIALS:], skipped, "; ".join(problems))


def parse(raw: bytes) -> tuple[list[Trial], int]:
    """(the results in these lines, how many lines are none)."""
    lines = [line for line in raw.split(b"\n") if line.strip()]
    trials = [_trial(line) for line in lines[-MAX_TRIALS:]]
    results = [trial for trial in trials if trial is not None]
    return results, len(trials) - len(results)


def _trial(line: bytes) -> Trial | None:
    """Fields of a later version are left out; everything else must fit."""
    if len(line) > MAX_LINE_BYTES:
        return None
    try:
        raw: Json = from_json(line, Json)
        if not isinstance(raw, dict):
            return None
        trial: Trial = convert({name: value for name, value in raw.items() if name in _FIELDS}, Trial)
    except ValueError:
        return None
    return trial if trial.is_sound() else None


def _tail(path: str) -> bytes:
    """The file, or as much of its end as is read. Raises OSError; what is no plain file is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with open(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(0, "not a plain file")
        if state.st_size <= MAX_BYTES:
            return file.read(MAX_BYTES)
        file.seek(-MAX_BYTES, os.SEEK_END)
        return file.read(MAX_BYTES).partition(b"\n")[2]


def append(path: str, trial: Trial) -> None:
    """Add a result to the file, in one write, so that two commands never mix their lines. Raises OSError, also for half a line."""
    make_folder(os.path.dirname(path))
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        end = os.fstat(descriptor).st_size
        is_torn = end > 0 and os.pread(descriptor, 1, end - 1) != b"\n"
        line = (b"\n" if is_torn else b"") + to_json(trial) + b"\n"
        if os.write(descriptor, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
