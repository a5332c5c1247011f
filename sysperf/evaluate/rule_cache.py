"""The decoded rules of the last run, so that a start reads no TOML."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from sysperf import __version__, paths
from sysperf.evaluate.rule_files import read_file
from sysperf.model.path import StrPath
from sysperf.model.record import from_json, to_json
from sysperf.model.rule import RuleFile

MAX_PLACE = 150
MAX_CACHES = 8
"""Caches of one kind that stay: installations of one user beside each other. Each is 0.7 MB at most."""


def cache_path(kind: str, rule_file: str) -> str:
    """Return where one installation of this version keeps its decoded rules: two checkouts or versions do not evict each other's."""
    place = os.path.dirname(os.path.abspath(rule_file)).replace("/", "-")[-MAX_PLACE:]
    return f"{paths.cache_folder()}/{kind}-{__version__}{place}.json"


class Decoded(NamedTuple):
    """Rule files with the rules of some scopes, and the ids of the other rules."""

    files: list[RuleFile]
    others: frozenset[str]


def read_cached(rule_files: Sequence[StrPath], cache: StrPath | None, scopes: Collection[str] = ()) -> Decoded:
    """Return the decoded rules of these scopes (none: of all): from the cache when it fits the files, else read and cached."""
    stored = _cached(rule_files, cache) if cache else None
    if stored is None:
        decoded = of_scopes([_without_tests(read_file(path)) for path in rule_files], scopes)
        if cache:
            _store(rule_files, cache, decoded)
        return decoded
    return Decoded(stored.files, frozenset(stored.others))


def of_scopes(files: Sequence[RuleFile], scopes: Collection[str]) -> Decoded:
    """Return the files with the rules of these scopes only, and of what changes rules that which changes these; none: all of it."""
    if not scopes:
        return Decoded(list(files), frozenset())
    kept = [msgspec.structs.replace(file, rule=tuple(rule for rule in file.rule if rule.scope in scopes)) for file in files]
    ids = {rule.id for file in kept for rule in file.rule}
    return Decoded(kept, frozenset(rule.id for file in files for rule in file.rule) - ids)


def _without_tests(file: RuleFile) -> RuleFile:
    """`sysperf rules test` reads the file itself; everybody else would only carry them about."""
    return msgspec.structs.replace(file, rule=tuple(msgspec.structs.replace(rule, test=()) for rule in file.rule))


class _Cache(msgspec.Struct):
    key: list[tuple[str, int, int]]
    version: str
    files: list[RuleFile]
    others: list[str]


def _key(rule_files: Sequence[StrPath]) -> list[tuple[str, int, int]]:
    stats = [(os.fspath(path), os.stat(path)) for path in rule_files]
    return [(name, status.st_mtime_ns, status.st_size) for name, status in stats]


def _cached(rule_files: Sequence[StrPath], cache: StrPath) -> _Cache | None:
    """The decoded rules as the last run left them; None when they changed or somebody else could have written them."""
    try:
        with open(cache, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
            stored: _Cache = from_json(file.read(), _Cache)
        return stored if stored.key == _key(rule_files) and stored.version == __version__ else None
    except (OSError, ValueError):
        return None


def _store(rule_files: Sequence[StrPath], cache: StrPath, decoded: Decoded) -> None:
    """Keep the decoded rules for the next run. A folder that cannot be written costs only time; no home is made (HOME=/nonexistent)."""
    from sysperf.host.files import write_whole  # noqa: PLC0415 - once after an installation

    content = to_json(_Cache(_key(rule_files), __version__, decoded.files, sorted(decoded.others)))
    home = os.path.dirname(os.path.dirname(os.path.dirname(cache)))
    if os.path.isdir(home):
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(cache), mode=0o700, exist_ok=True)
            write_whole(os.fspath(cache), lambda file: file.write(content), mode=0o600)
            _prune(os.fspath(cache))


def _prune(cache: str) -> None:
    """Remove the oldest caches of the kind that was written: what upgrades and removed checkouts leave behind. Raises OSError."""
    folder, name = os.path.split(cache)
    kind = name.partition("-")[0]
    names = (name for name in os.listdir(folder) if name == f"{kind}.json" or (name.startswith(f"{kind}-") and name.endswith(".json")))
    caches = [f"{folder}/{name}" for name in names]
    for path in sorted(caches, key=os.path.getmtime)[:-MAX_CACHES]:
        os.unlink(path)
