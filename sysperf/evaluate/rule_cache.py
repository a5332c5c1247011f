"""The decoded rules of the last run, so that a start reads no TOML."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence

import msgspec

from sysperf import __version__
from sysperf.evaluate.rule_files import read_file
from sysperf.host.files import write_whole
from sysperf.model.path import StrPath
from sysperf.model.record import from_json, to_json
from sysperf.model.rule import RuleFile


def read_cached(paths: Sequence[StrPath], cache: StrPath | None) -> list[RuleFile]:
    """The decoded rule files: from the cache when it fits them, else read and cached."""
    files = _cached(paths, cache) if cache else None
    if files is None:
        files = [_without_tests(read_file(path)) for path in paths]
        if cache:
            _store(paths, cache, files)
    return files


def _without_tests(file: RuleFile) -> RuleFile:
    """`sysperf rules test` reads the file itself; everybody else would only carry them about."""
    return msgspec.structs.replace(file, rule=tuple(msgspec.structs.replace(rule, test=()) for rule in file.rule))


class _Cache(msgspec.Struct):
    key: list[tuple[str, int, int]]
    version: str
    files: list[RuleFile]


def _key(paths: Sequence[StrPath]) -> list[tuple[str, int, int]]:
    stats = [(os.fspath(path), os.stat(path)) for path in paths]
    return [(name, status.st_mtime_ns, status.st_size) for name, status in stats]


def _cached(paths: Sequence[StrPath], cache: StrPath) -> list[RuleFile] | None:
    """The decoded rules as the last run left them; None when they changed or somebody else could have written them."""
    try:
        with open(cache, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
            stored: _Cache = from_json(file.read(), _Cache)
        return stored.files if stored.key == _key(paths) and stored.version == __version__ else None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _store(paths: Sequence[StrPath], cache: StrPath, files: list[RuleFile]) -> None:
    """Keep the decoded rules for the next run. A folder that cannot be written costs only time; no home is made (HOME=/nonexistent)."""
    content = to_json(_Cache(_key(paths), __version__, files))
    home = os.path.dirname(os.path.dirname(os.path.dirname(cache)))
    if os.path.isdir(home):
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(cache), mode=0o700, exist_ok=True)
            write_whole(os.fspath(cache), lambda file: file.write(content), mode=0o600)
