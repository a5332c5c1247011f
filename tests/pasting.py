"""A newcomer's shell: `sysperf` and `python` are on the PATH, and commands are pasted as they were printed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")
"""An interpreter with torch."""


def shell(folder: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Return a function that pastes a command in this folder, and waits for its end."""
    programs = {
        "python": f'exec {shlex.quote(PYTHON)} "$@"',
        "torchrun": f'exec {shlex.quote(PYTHON)} -m torch.distributed.run "$@"',
        "sysperf": f'PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -m sysperf "$@"',
    }
    (folder / "bin").mkdir()
    for name, line in programs.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / "bin" / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "STATE_DIRECTORY": str(folder / "state"), "COLUMNS": "200"}
    env.pop("PYTHONPATH", None)

    def paste(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(("sh", "-c", command), cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300)

    return paste
