"""Interpreters that a user names: by a path, by the folder of an environment, or as a shell finds them."""

from __future__ import annotations

import os


def place(given: str) -> str:
    """Return the path of an interpreter or of its environment: what lies here, else what PATH has under a bare name."""
    here = os.path.abspath(os.path.expanduser(given))
    if "/" in given or os.path.exists(here):
        return here
    found = (os.path.join(folder, given) for folder in os.get_exec_path())
    return next((os.path.abspath(path) for path in found if os.path.isfile(path) and os.access(path, os.X_OK)), here)


def program(given: str) -> str:
    """Return the path of the interpreter itself; of an environment, that in its folder."""
    path = place(given)
    return f"{path}/bin/python" if os.path.isdir(path) else path
