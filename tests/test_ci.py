"""What the gate makes of tests that fail: `.ci/tests.py` with a real make and a real pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import ROOT

TESTS = """
import pathlib, pytest

@pytest.mark.parametrize("number", range({unsteady}))
def test_unsteady(number):
    once = pathlib.Path(f"once{{number}}")
    seen = once.exists()
    once.touch()
    assert seen

@pytest.mark.parametrize("number", range({wrong}))
def test_wrong(number):
    assert number < 0

def test_right():
    {right}
"""


def gate(folder: Path, unsteady: int, wrong: int, right: str = "pass") -> tuple[int, str]:
    """The exit code of the gate for tests of which some fail once, and some always, and what it printed."""
    (folder / "test_it.py").write_text(TESTS.format(unsteady=unsteady, wrong=wrong, right=right))
    (folder / "Makefile").write_text(f"test:\n\t{sys.executable} -m pytest $(TESTS)\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MAKE"))}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}  # others take half a second of each run
    done = subprocess.run(
        (sys.executable, ROOT / ".ci/tests.py", "test"),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=120,
    )
    return done.returncode, done.stdout


def test_a_test_that_passes_alone_is_named(tmp_path: Path) -> None:
    """The gate is green then; what passed at first is not run again."""
    code, printed = gate(tmp_path, 2, 0)

    assert code == 0
    assert "== unsteady: test_it.py::test_unsteady[0]\n== unsteady: test_it.py::test_unsteady[1]\n" in printed
    assert "2 passed" in printed.split("once more, alone")[1]


@pytest.mark.slow
@pytest.mark.parametrize(("unsteady", "wrong", "right"), [(0, 1, "pass"), (2, 1, "pass"), (4, 0, "pass"), (1, 0, "import os; os._exit(1)")])
def test_all_else_fails(tmp_path: Path, unsteady: int, wrong: int, right: str) -> None:
    """A test that fails alone, too many of them, and a run that came to no end."""
    code, printed = gate(tmp_path, unsteady, wrong, right)

    assert code != 0
    assert "== unsteady" not in printed
    assert ("once more, alone" in printed) == (unsteady < 4 and right == "pass")


def test_nothing_is_run_again_where_all_passed(tmp_path: Path) -> None:
    code, printed = gate(tmp_path, 0, 0)

    assert code == 0
    assert "once more" not in printed


def test_tests_that_cannot_be_read_fail(tmp_path: Path) -> None:
    code, printed = gate(tmp_path, 0, 0, "pass\nimport nothing_of_this_name")

    assert code != 0
    assert "once more" not in printed
