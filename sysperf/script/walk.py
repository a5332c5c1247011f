"""Which files to read: those that are named, and those below named folders that belong to the user."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from sysperf.model.errors import UsageError
from sysperf.startup import lazy

MAX_FILES = 200_000
SUFFIXES = (".py", ".ipynb")
FOREIGN = frozenset(("node_modules", "__pycache__", "site-packages", "dist-packages", "__pypackages__"))
BUILT = frozenset(("build", "dist", "venv", "env"))
"""Folders below a named one in which nobody's own code lies; those in BUILT unless they are packages (`__init__.py`).

Hidden ones and virtual environments (pyvenv.cfg) besides.
"""
_TEST_FILE = lazy(r"test_.+\.py|.+_tests?\.py|conftest\.py|_?test(ing)?_(utils?|helpers?)\.py")
_TEST_FOLDERS = frozenset(("tests", "test", "testing", "test_utils", "testing_utils"))


class Skipped:
    """What a walk left out, by why."""

    def __init__(self) -> None:
        self.folders = 0
        self.tests = 0
        self.excluded = 0


def files(paths: Iterable[str], exclude: Sequence[str] = (), skipped: Skipped | None = None) -> Iterator[tuple[str, bool]]:
    """(path, whether it was named itself) of each file once. Raises UsageError for a name that is neither file nor folder.

    `exclude` are patterns of paths, as of `--exclude`; tests are left out below a named folder, unless that is one of tests.
    """
    seen: set[tuple[int, int]] = set()
    skipped = skipped or Skipped()
    for path in paths:
        if os.path.isdir(path):
            for file in _below(path, exclude, skipped):
                if _is_new(file, seen):
                    yield file, False
        elif not os.path.lexists(path):
            raise UsageError(f"{path}: no such file or folder", "name scripts, or folders of them")
        elif _is_new(path, seen):
            yield path, True


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern names a path: the whole of it, its last part, or a folder above it (`legacy`, `tests/*`, `*_old.py`)."""
    plain = os.path.normpath(path)
    parts = plain.split(os.sep)
    above = [os.sep.join(parts[: number + 1]) for number in range(len(parts))]
    tails = [os.sep.join(parts[number:]) for number in range(len(parts))]
    for pattern in patterns:
        bare = os.path.normpath(pattern)
        if any(fnmatchcase(name, bare) for name in (*parts, *above, *tails)):
            return True
    return False


def is_named_as_test(path: str) -> bool:
    """Whether a file has the name of a test, or lies beside tests."""
    folder, _, name = os.path.normpath(path).rpartition(os.sep)
    return bool(_TEST_FILE.fullmatch(name)) or os.path.basename(folder) in _TEST_FOLDERS


def _is_new(path: str, seen: set[tuple[int, int]]) -> bool:
    """Whether no other name has led to this file. One that cannot be asked is new: who reads it tells why not."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return True
    if (identity := (status.st_dev, status.st_ino)) in seen or len(seen) >= MAX_FILES:
        return False
    seen.add(identity)
    return True


def _below(folder: str, exclude: Sequence[str], skipped: Skipped) -> Iterator[str]:
    tests = os.path.basename(os.path.abspath(folder)) in _TEST_FOLDERS
    for parent, folders, names in os.walk(folder):  # links to folders are not followed: no loops
        folders[:] = sorted(name for name in folders if not _is_left_out(parent, name, exclude, skipped))
        within = set(os.path.relpath(parent, folder).split(os.sep))
        for name in sorted(names):
            path = os.path.join(parent, name)
            if not name.endswith(SUFFIXES) or name.startswith("."):
                continue
            if not tests and (within & _TEST_FOLDERS or _TEST_FILE.fullmatch(name)):
                skipped.tests += 1
            elif exclude and matches(path, exclude):
                skipped.excluded += 1
            else:
                yield path


def _is_left_out(parent: str, name: str, exclude: Sequence[str], skipped: Skipped) -> bool:
    place = os.path.join(parent, name)
    if name.startswith(".") or name == "__pycache__":
        return True
    left_out = name in FOREIGN or name.endswith(".egg-info") or os.path.exists(os.path.join(place, "pyvenv.cfg"))
    left_out = left_out or (name in BUILT and not os.path.exists(os.path.join(place, "__init__.py")))
    excluded = bool(exclude) and not left_out and matches(place, exclude)
    skipped.folders += left_out
    skipped.excluded += excluded
    return left_out or excluded
