"""Runs the trainer: as `python -m sysperf_trainer`, or by the path of this file or folder where it is not installed."""

from __future__ import annotations

import importlib.util
import os
import sys


def find_own_modules() -> None:
    """Make `sysperf_trainer` importable from this folder, and from nowhere else.

    Its parent folder is not put on the path: that may be the site-packages of another interpreter, which would hide those of this one.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.util.spec_from_file_location("sysperf_trainer", f"{here}/__init__.py", submodule_search_locations=[here])
    if spec is None or spec.loader is None:
        raise ImportError(here)
    sys.modules["sysperf_trainer"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


if not __package__:  # also in workers that import this file anew
    find_own_modules()

if __name__ == "__main__":
    from sysperf_trainer.program import main

    sys.exit(main())
