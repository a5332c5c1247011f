"""Benchmarks say what they measure when they are asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import ROOT

PROGRAMS = [path for path in sorted((ROOT / "benchmarks").glob("*.py")) if f"python benchmarks/{path.name}" in path.read_text()]


def test_every_benchmark_is_known() -> None:
    """The others are modules of them."""
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {path.stem for path in PROGRAMS} == {"agent_scenes", "companion"}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_help_is_answered(program: Path) -> None:
    """With its options; nothing is measured."""
    done = subprocess.run([sys.executable, program, "--help"], capture_output=True, text=True, check=True, timeout=300)

    assert done.stdout.startswith(f"usage: {program.name} ")
