"""One study at a time: two that measure at once would measure each other."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator

from sysperf.host.files import make_folder

FILE = "measuring.lock"


@contextlib.contextmanager
def held(folder: str, waiting: Callable[[str], object]) -> Iterator[None]:
    """Hold the lock of this state folder, which the kernel gives back when we die; `waiting` gets who has it. Raises OSError."""
    make_folder(folder)
    descriptor = os.open(f"{folder}/{FILE}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting(os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):  # a full disk: nobody learns our number
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d" % os.getpid(), 0)
        yield
    finally:
        os.close(descriptor)
