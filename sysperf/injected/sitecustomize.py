"""Loads what sysperf asks for inside of this program: Python imports this at start, because its folder is on PYTHONPATH.

It sees only the standard library, and first runs the sitecustomize that it hides.
"""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
COUNTING = ("SYSPERF_PROBE_FOLDER", "SYSPERF_SET_INTEROP_THREADS", "SYSPERF_SET_LOADER_WORKERS", "SYSPERF_SET_LOADER_PREFETCH")


def run_hidden_sitecustomize() -> None:
    """Import the sitecustomize of the environment or the distribution, which ours hides."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None:
        run(spec)


def run(spec: importlib.machinery.ModuleSpec) -> None:
    if spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)


def load(name: str) -> None:
    """Run a module of this folder, which is no longer on the path."""
    spec = importlib.util.spec_from_file_location(f"sysperf_{name}", f"{HERE}/{name}.py")
    if spec is not None:
        run(spec)


run_hidden_sitecustomize()
if any(map(os.environ.get, COUNTING)):
    load("counting")
if os.environ.get("KINETO_USE_DAEMON", "0") not in ("", "0"):
    load("traced_exit")
