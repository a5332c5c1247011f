"""What stands in for software that a test does without: torch, of which only its hook is there, its compiler, and NVIDIA's library in C."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

OPTIMIZER = """
hooks = []
def register_optimizer_step_post_hook(hook): hooks.append(hook)
class SGD:
    def step(self):
        for hook in hooks: hook(self, (), {})
step = SGD().step
"""
"""torch.optim.optimizer, as far as the probe needs it."""

NO_COMPILER = """
import sys, torch, types
torch._dynamo = sys.modules["torch._dynamo"] = types.SimpleNamespace(disable=lambda function, *_, **__: function, graph_break=lambda: None)
"""
"""The head of a program with a real torch that compiles nothing: its first optimizer would import the compiler, for 2 s of CPU time."""


def write_torch(folder: Path) -> Path:
    """Write a torch package with the hook into a folder, so that the probe is tested without 200 MB of torch; return the package."""
    package = folder / "torch"
    (package / "optim").mkdir(parents=True)
    for name in ("__init__.py", "optim/__init__.py"):
        (package / name).touch()
    (package / "optim" / "optimizer.py").write_text(OPTIMIZER)
    return package


def build_nvml(folder: Path) -> Path:
    """Build a libnvidia-ml.so.1 in a folder, and return the folder. Skips the test where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: install gcc")
    pytest.importorskip("pynvml")
    source = Path(__file__).resolve().parent / "host" / "fake_nvml.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder
