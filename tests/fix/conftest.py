"""Made machines, and a process whose threads differ."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fix.kernel import Machine, memory

SAMPLE_OR_ALL = pytest.mark.parametrize("every", [pytest.param(False, id="sample"), pytest.param(True, id="all", marks=pytest.mark.slow)])
"""Whether every point is tried, which takes minutes (`make test-machines`), or a sample."""

THREADS = """
import os, threading
gate = threading.Barrier(4)
def stay():
    os.write(1, b"%d\\n" % threading.get_native_id())
    gate.wait()
for _ in range(3):
    threading.Thread(target=stay, daemon=True).start()
os.write(1, b"ready\\n")
input()
"""


class Victim:
    """A process with four threads."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        words = [self.process.stdout.readline().strip() for _ in range(4)]
        self.pid = self.process.pid
        self.tids = [self.pid, *sorted(int(word) for word in words if word.isdigit())]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def sandbox(tmp_path: Path) -> Machine:
    """A machine made of files, whose settings can be changed."""
    return Machine.make(tmp_path / "machine")


@pytest.fixture
def fast() -> Iterator[Path]:
    """A folder in memory."""
    with memory() as folder:
        yield folder


@pytest.fixture
def victim() -> Iterator[Victim]:
    """A process whose settings may be changed."""
    process = Victim()
    yield process
    process.end()
