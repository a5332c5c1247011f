"""Which files to read: those that are named, and those below named folders that belong to the user."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from sysperf.model.errors import UsageError

MAX_FILES = 200_000
SUFFIXES = (".py", ".ipynb")
EXCLUDED = frozenset(("node_modules", "__pycache__", "site-packages", "dist-packages", "build", "dist", "venv", "env", "__pypackages__"))
"""Folders below a named one in which nobody's own code lies; hidden ones and virtual environments (pyvenv.cfg) besides."""


def files(paths: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """(path, whether it was named itself) of each file once. Raises UsageError for a name that is neither file nor folder."""
    seen: set[tuple[int, int]] = set()
    for path in paths:
        if os.path.isdir(path):
            for file in _below(path):
                if _is_new(file, seen):
                    yield file, False
        elif not os.path.lexists(path):
            raise UsageError(f"{path}: no such file or folder", "name scripts, or folders of them")
        elif _is_new(path, seen):
            yield path, True


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


def _below(folder: str) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):  # links to folders are not followed: no loops
        folders[:] = sorted(name for name in folders if not _is_excluded(parent, name))
        yield from (os.path.join(parent, name) for name in sorted(names) if name.endswith(SUFFIXES) and not name.startswith("."))


def _is_excluded(parent: str, name: str) -> bool:
    place = os.path.join(parent, name)
    return name.startswith(".") or name in EXCLUDED or name.endswith(".egg-info") or os.path.exists(os.path.join(place, "pyvenv.cfg"))
