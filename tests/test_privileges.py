"""What needs root gets it: tests in a user namespace of their own, told as any other (tests/privileges.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import privileges

ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import os, subprocess, pathlib, pytest

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    yield tmp_path_factory.mktemp("shared")
    print("torn down by", os.geteuid())

def test_before(shared):
    assert os.geteuid() == 1000

@pytest.mark.root(mounts=True)
def test_mounts(shared):
    assert (os.geteuid(), os.getegid()) == (0, 0)
    subprocess.run(["mount", "-t", "tmpfs", "none", shared], check=True)
    (shared / "inside").touch()

def test_is_not_seen_outside(shared):
    assert os.geteuid() == 1000
    assert not list(shared.iterdir())

@pytest.mark.root
def test_fails():
    assert os.geteuid() == "told"

@pytest.mark.root
def test_is_skipped():
    pytest.skip("for a reason")

@pytest.mark.root
def test_dies():
    os.kill(os.getpid(), 9)

def test_after():
    assert os.geteuid() == 1000
"""

pytestmark = pytest.mark.skipif(
    subprocess.run((*privileges.A_USER, *privileges.UNSHARE, "--mount", "true"), check=False, capture_output=True).returncode != 0,
    reason=f"{privileges.AS_ROOT}, or allow user namespaces (sysctl user.max_user_namespaces)",
)


def test_a_users_tests_that_need_root_are_told_as_any_other(tmp_path: Path) -> None:
    """They pass, fail, are skipped and die on their own; what they mount, nobody else sees, and the others are no root."""
    (tmp_path / "test_inner.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  root\n")
    words = (
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.privileges",
        "-p",
        "no:cacheprovider",
        "-rA",
        "--basetemp",
        tmp_path / "base",
        tmp_path,
    )
    done = subprocess.run((*privileges.A_USER, *words), cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)

    outcomes = dict(line.split()[1::-1] for line in done.stdout.splitlines() if line.startswith(("PASSED", "FAILED")))
    assert {name.rpartition("::")[2]: outcome for name, outcome in outcomes.items()} == {
        "test_before": "PASSED", "test_mounts": "PASSED", "test_is_not_seen_outside": "PASSED", "test_after": "PASSED",
        "test_fails": "FAILED", "test_dies": "FAILED",
    }, done.stdout + done.stderr  # fmt: skip
    assert "assert 0 == 'told'" in done.stdout
    assert "the process of this test ended with -9" in done.stdout
    assert ": for a reason" in done.stdout
    assert done.stdout.count("torn down by") == 1
    assert "torn down by 1000" in done.stdout
