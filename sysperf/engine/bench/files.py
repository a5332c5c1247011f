"""Files that `bench` writes: in a folder of their own, removed when it ends, and never more than there is room for."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator

from sysperf.model.errors import UsageError
from sysperf.ownership import stranger

NEEDED_BYTES = 192 << 20
ROOM_FACTOR = 4
PREFIX = ".sysperf-bench-"


def refuse_shared(folder: str, option: str) -> None:
    """Raise UsageError where another user could put a link into a folder, along which root would write."""
    if stranger(os.path.realpath(folder)) is not None:
        raise UsageError(
            f"{folder}: another user may exchange what lies there", f"run it as that user, or name a folder of your own with {option}"
        )


@contextlib.contextmanager
def bench_folder(folder: str) -> Iterator[str]:
    """A folder inside `folder` that is removed with all that is in it, also after Ctrl-C.

    Raises UsageError where there is no room, or where another user could put a link in its place, along which root would write.
    """
    refuse_shared(folder, "--folder")
    try:
        room = os.statvfs(folder)
        free = room.f_bavail * room.f_frsize
        if free < ROOM_FACTOR * NEEDED_BYTES:
            raise UsageError(
                f"{folder}: {free >> 20} MiB are free, and reading is measured with {NEEDED_BYTES >> 20} MiB",
                f"name a folder with {ROOM_FACTOR * NEEDED_BYTES >> 20} MiB to spare with --folder, or leave storage out with --only",
            )
        path = tempfile.mkdtemp(prefix=PREFIX, dir=os.path.abspath(folder))
    except OSError as error:
        raise UsageError(
            f"{folder}: {error.strerror or error}", "name a folder that can be written with --folder, or leave storage out with --only"
        ) from None
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
