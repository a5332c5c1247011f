"""The folder of made data: tokens and images, made once and used by every run."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import tempfile
from collections.abc import Callable

from sysperf_trainer.errors import TrainerError

COMPLETE = "complete"
"""A file that stands in a folder once all of it is on the disk."""


def root(asked: str) -> str:
    """Return the folder of all made data: the one that was asked for, the user's cache, or a temporary one where that cannot be written."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    temporary = f"{tempfile.gettempdir()}/sysperf-trainer-{os.getuid()}."  # with what follows it, nobody can have taken all
    candidates = (asked,) if asked else (f"{home}/sysperf/trainer", *sorted(glob.glob(f"{glob.escape(temporary)}*")))
    for folder in candidates:
        try:
            if not asked and _is_led(folder):
                continue
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK) and os.stat(folder).st_uid == os.getuid():
            return folder
    with contextlib.suppress(OSError):
        if not asked:
            return tempfile.mkdtemp(prefix=os.path.basename(temporary))
    raise TrainerError(f"no folder for data: {' and '.join(candidates)} cannot be written; --cache names another one")


def _is_led(path: str) -> bool:
    """Whether another user could lead a path elsewhere: along a link in /tmp, or in the home that `sudo` has kept."""
    ours = (0, os.getuid(), os.stat("/").st_uid)  # in a user namespace the machine's root has another number
    while path != os.path.dirname(path):
        if os.path.lexists(path) and os.lstat(path).st_uid not in ours:
            return True
        path = os.path.dirname(path)
    return False


def made(folder: str, make: Callable[[str], None]) -> str:
    """Return a folder that `make` filled, now or in an earlier run. Raises TrainerError where the disk is full.

    It is filled under another name and renamed when it is complete: a run that was killed leaves nothing that looks done, and two
    runs at once both have what they need.
    """
    if os.path.exists(f"{folder}/{COMPLETE}"):
        return folder
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    unfinished = tempfile.mkdtemp(prefix=f"{os.path.basename(folder)}.", dir=os.path.dirname(folder))
    try:
        make(unfinished)
        with open(f"{unfinished}/{COMPLETE}", "w", encoding="ascii"):
            pass
        _put_in_place(unfinished, folder)
    except OSError as error:
        raise TrainerError(f"{folder}: {error.strerror}; --cache names another folder") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _put_in_place(unfinished: str, folder: str) -> None:
    if os.path.isdir(folder) and not os.path.exists(f"{folder}/{COMPLETE}"):
        shutil.rmtree(folder)
    try:
        os.rename(unfinished, folder)
    except OSError:
        if not os.path.exists(f"{folder}/{COMPLETE}"):  # another run was faster, and made the same
            raise
