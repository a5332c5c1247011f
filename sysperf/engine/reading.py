"""Reading a machine: this one, a capture of one, or a report that was saved."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Sequence

import msgspec

from sysperf.collect import AREAS, collect, record_types
from sysperf.host import Host
from sysperf.host.plain_files import open_named, read_named
from sysperf.model.difference import Drift
from sysperf.model.errors import CaptureError, how_to_read
from sysperf.model.finding import Evidence
from sysperf.model.path import StrPath
from sysperf.model.record import JsonObject, Record, convert, from_json
from sysperf.model.snapshot import Snapshot, Source
from sysperf.model.text import neutral

MAX_REPORT_BYTES = 64 << 20
MAX_TIME = 40
"""Characters of a time."""


def records() -> dict[str, type]:
    """The record of each area that a rule may name."""
    return {
        **record_types(),
        "drift": Drift,
        "launch": launch_record(),
        "trace": trace_record(),
        "script": script_record(),
        "diagnosis": diagnosis_record(),
    }


def launch_record() -> type:
    """The record of what `sysperf wrap` knows of a launch."""
    from sysperf.launch.facts import Launch  # noqa: PLC0415 - `wrap` has these facts, audits do not

    return Launch


def trace_record() -> type:
    """The record of what traces tell."""
    from sysperf.trace.facts import Trace  # noqa: PLC0415 - `analyze` has these facts, audits do not

    return Trace


def script_record() -> type:
    """The record of what the source of a script says."""
    from sysperf.script.facts import Script  # noqa: PLC0415 - `lint` has these facts, audits do not

    return Script


def diagnosis_record() -> type:
    """The record of what a running job shows."""
    from sysperf.diagnosis.facts import Diagnosis  # noqa: PLC0415 - `diagnose` has these facts, audits do not

    return Diagnosis


def now() -> str:
    """The time, as reports write it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def snapshot(host: Host, areas: Sequence[str] = AREAS) -> Snapshot:
    """Read these areas of a machine. A capture has the time when it was taken; empty where it does not say."""
    taken_at = now() if host.live else neutral(host.taken_at or "", MAX_TIME)
    return Snapshot(taken_at=taken_at, root=host.root, deep=host.deep, areas=collect(host, areas))


def read_machine(path: StrPath) -> Snapshot:
    """A machine from a saved report, saved facts, or a capture. Raises CaptureError."""
    return read_saved(path).snapshot if is_json(path) else snapshot(Host(path))


def is_json(path: StrPath) -> bool:
    """Whether this is a saved report rather than a capture."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # what is read of a pipe (`diff <(…) b.json`) is gone: captures are files or folders
            return not os.path.isdir(path)
        with open(open_named(path), "rb") as file:
            return file.read(64).lstrip()[:1] == b"{"
    except OSError:
        return False


class Saved(Record):
    """What a saved report holds of a machine; what the rules said of it then is judged anew."""

    snapshot: Snapshot
    sources: tuple[Source, ...] = ()
    """Where the evidence of its findings was read."""
    took_ms: float = 0.0


class _Judged(msgspec.Struct):
    """What else than the machine is read of a saved report."""

    outcomes: tuple[_Outcome, ...] = ()
    took_ms: float = 0.0


class _Outcome(msgspec.Struct):
    evidence: tuple[Evidence, ...] = ()


def read_saved(path: StrPath) -> Saved:
    """The machine in a saved report (`audit --format json`) or in saved facts (`facts --format json`)."""
    hint = "save one with `sysperf audit --format json --output FILE`"
    try:
        raw = from_json(read_named(path, MAX_REPORT_BYTES), JsonObject)
        judged: _Judged = convert(raw, _Judged)
        read = dict.fromkeys(evidence.source for outcome in judged.outcomes for evidence in outcome.evidence)
        return Saved(_typed(raw.get("snapshot", raw)), tuple(map(Source, filter(None, read))), judged.took_ms)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise CaptureError(f"{path}: larger than {MAX_REPORT_BYTES >> 20} MiB", hint) from None
        raise CaptureError(f"{path}: {error.strerror or error}", how_to_read(error, hint)) from None
    except (ValueError, AttributeError) as error:
        raise CaptureError(f"{path}: not a report of this version of sysperf: {error}", hint) from None


def _typed(raw: JsonObject) -> Snapshot:
    """A snapshot whose areas hold their records again. Areas this version does not know are left out."""
    snapshot: Snapshot = convert(raw, Snapshot)
    known = records()
    areas = {
        name: msgspec.structs.replace(area, facts=None if area.facts is None else convert(area.facts, known[name]))
        for name, area in snapshot.areas.items()
        if name in known
    }
    return msgspec.structs.replace(snapshot, areas=areas)
