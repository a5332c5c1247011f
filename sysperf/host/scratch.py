"""A folder of a process for its own temporary files. What a process that was killed left is removed by the next one of its user.

Kernel  https://man7.org/linux/man-pages/man2/flock.2.html
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time

NEW_S = 60.0
"""A folder that was changed this long ago may be one that its owner has made and not locked yet."""


class Scratch(tempfile.TemporaryDirectory[str]):
    """A new folder `sysperf-KIND-…`, locked while it is in use, so that nobody takes it for one that was left behind."""

    def __init__(self, kind: str, place: str) -> None:
        """Make it in `place`. Raises OSError."""
        sweep(kind, place)
        super().__init__(prefix=_prefix(kind), dir=place, ignore_cleanup_errors=True)
        self._lock = os.open(self.name, _FOLDER)
        _locked(self._lock)

    def cleanup(self) -> None:
        """Remove it, and let the lock go."""
        super().cleanup()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def sweep(kind: str, place: str) -> None:
    """Remove this user's folders of a kind that nobody has locked. A lock ends with its process, in whichever container that is."""
    with contextlib.suppress(OSError):
        for name in os.listdir(place):
            if name.startswith(_prefix(kind)):
                with contextlib.suppress(OSError):
                    _remove(f"{place}/{name}")


def _remove(path: str) -> None:
    """Remove a folder that is ours, old enough and not locked. Raises OSError."""
    folder = os.open(path, _FOLDER)
    try:
        found = os.fstat(folder)
        is_ours = found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == stat.S_IRWXU
        if is_ours and time.time() - found.st_mtime > NEW_S and _locked(folder):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(folder)


def _locked(folder: int) -> bool:
    """Lock a folder until it is closed; False where another process has it, or the file system knows no locks."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _prefix(kind: str) -> str:
    return f"sysperf-{kind}-"
