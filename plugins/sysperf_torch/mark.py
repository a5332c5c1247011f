"""The mark by which a program knows that it is traced: at its end it waits until the mark is gone, so that it does not crash."""

from __future__ import annotations

import contextlib
import fcntl
import os

from sysperf_torch.target import Target


class Mark:
    """A file beside the sockets, named after the process and locked; the lock ends with us, however we end.

    A program that was started by `sysperf wrap --traceable` looks for it. Where it cannot be made, the trace is taken all the same.
    """

    def __init__(self, target: Target) -> None:
        self._path = f"{target.folder}/traced-{target.pid}" if target.folder else ""
        self._file: int | None = None

    def set(self) -> None:
        """Lock the file, once."""
        if not self._path or self._file is not None:
            return
        with contextlib.suppress(OSError):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Remove the file, and let go of it."""
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(self._file)
        self._file = None
