"""Whether this kernel tells in which system call a process waits, of which some tests are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def _why_not() -> str:
    """Why the call of a child of ours can not be read here; "" where it can."""
    with subprocess.Popen(("sleep", "600")) as child:
        try:
            told = Path(f"/proc/{child.pid}/syscall").read_text(encoding="ascii")
        except OSError as error:
            return f"{error.strerror}"
        finally:
            child.kill()
    return "" if told else "it is empty"


WHY_NOT = _why_not()
needs_system_calls = pytest.mark.skipif(
    bool(WHY_NOT),
    reason=f"/proc/PID/syscall tells nothing of a child ({WHY_NOT}): run on Linux itself, with kernel.yama.ptrace_scope below 2",
)
