"""Another program that runs beside what is measured."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def companion(code: str) -> Iterator[None]:
    """Run Python code in a process of its own, until the end."""
    with subprocess.Popen((sys.executable, "-c", code)) as other:
        try:
            yield
        finally:
            other.kill()
