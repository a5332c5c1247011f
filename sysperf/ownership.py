"""The users who decide what lies at a path: the owners of its folders and links, and whoever may write in one of them."""

from __future__ import annotations

import os
import stat

EVERYBODY = -1
_MAX_STEPS = 200


def trusted() -> set[int]:
    """Return whose files are believed: root's and this user's. In a user namespace the machine's root is who owns its root folder."""
    return {0, os.geteuid(), os.stat("/").st_uid}


def stranger(path: str) -> int | None:
    """A user, neither root nor this one, who may make this absolute path lead elsewhere, or EVERYBODY; None: there is none.

    What is not there yet is its folder's owner's to make.
    """
    ours = trusted()
    here, todo = "", path.split("/")[::-1]
    for _ in range(_MAX_STEPS):
        if not todo:
            return None
        part = todo.pop()
        if part in ("", "."):
            continue
        here = os.path.dirname(here).rstrip("/") if part == ".." else f"{here}/{part}"
        try:
            status = os.lstat(here or "/")
        except OSError:
            return None  # it is not there: nobody has it yet; or it cannot be looked at, and so not used either
        if status.st_uid not in ours:
            return status.st_uid
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(here)
            here = "" if target.startswith("/") else os.path.dirname(here).rstrip("/")
            todo += target.split("/")[::-1]
        elif stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            return EVERYBODY
    return EVERYBODY
