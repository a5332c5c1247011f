"""What runs inside of a program that sysperf starts: a folder for its PYTHONPATH, whose sitecustomize loads what variables ask for.

It does not run where Python ignores PYTHONPATH (-I, -E, -S).
"""

import os
from collections.abc import Mapping

FOLDER = os.path.dirname(os.path.abspath(__file__))


def python_path(env: Mapping[str, str]) -> str:
    """Return a program's PYTHONPATH with our folder in front, once. It stays as it is where the path of our folder would be read as two."""
    given = env.get("PYTHONPATH", "")
    return given if ":" in FOLDER or FOLDER in given.split(":") else f"{FOLDER}:{given}" if given else FOLDER
