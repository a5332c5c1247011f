"""The size of /dev/shm: a real tmpfs, in mounts of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.root(mounts=True)
MIB = 1 << 20


def run(options: str, script: str) -> Any:
    """What `script` prints as JSON, with a tmpfs of these options at /dev/shm that nobody else sees."""
    prelude = f"""
    import json, os, subprocess, tempfile
    subprocess.run(["mount", "-t", "tmpfs", "-o", {options!r}, "shm", "/dev/shm"], check=True)
    from sysperf.fix import plan, recovery, transaction
    from sysperf.fix.journal import Journal
    from sysperf.host import Host
    from sysperf.model.change import Setting
    from tests.fix.kernel import asked
    host, journal = Host(), Journal(tempfile.mkdtemp())
    def size(): return (lambda stat: stat.f_blocks * stat.f_frsize)(os.statvfs("/dev/shm"))
    def options(): return next(line.split()[5] for line in reversed(list(open("/proc/self/mountinfo"))) if line.split()[4] == "/dev/shm")
    def planned(value): return plan.plan(host, [Setting("shm.size_bytes", str(value))])
    def apply(value): return transaction.apply(host, journal, planned(value), asked())
    """
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def test_larger_and_as_before(tmp_path: Path) -> None:
    """Its mount options stay: noexec, nosuid, nodev."""
    script = f"""
    flags = options()
    done = apply({128 * MIB})
    larger = size(), options() == flags
    undone = recovery.undo(host, journal, 1)
    print(json.dumps([done.state, larger, undone[0].step.state, size(), options() == flags]))
    """
    assert run("size=64m,noexec,nosuid,nodev,noatime", script) == ["applied", [128 * MIB, True], "undone", 64 * MIB, True]


def test_a_size_that_is_no_whole_page(tmp_path: Path) -> None:
    """The kernel rounds up: that is what was asked for."""
    assert run("size=64m", f"print(json.dumps([apply({128 * MIB + 1}).state, size()]))") == [
        "applied",
        128 * MIB + os.sysconf("SC_PAGESIZE"),
    ]


def test_what_is_in_it_can_not_be_taken_away(tmp_path: Path) -> None:
    """It has grown beyond the old size meanwhile: undoing says why it can not, and does so later."""
    script = f"""
    apply({128 * MIB})
    with open("/dev/shm/big", "wb") as file: os.posix_fallocate(file.fileno(), 0, {80 * MIB})
    first = recovery.undo(host, journal, 1)[0]
    os.unlink("/dev/shm/big")
    second = recovery.undo(host, journal, 1)[0]
    print(json.dumps([first.step.state, first.message, second.step.state, size()]))
    """
    assert run("size=64m", script) == ["applied", f"{80 * MIB} bytes are in use there", "undone", 64 * MIB]


def test_one_without_a_limit_is_left_alone(tmp_path: Path) -> None:
    """The kernel gives no limit to a tmpfs of size=0, and there is nothing to gain."""
    assert run("size=0", f"print(json.dumps([planned({64 * MIB}).skipped[0].reason, size()]))") == [
        "it has no limit, and the kernel gives none to one that has none", 0,
    ]  # fmt: skip


def test_a_folder_that_is_no_tmpfs_is_left_alone() -> None:
    """In a container /dev/shm may be something else."""
    script = """
    os.mkdir("/dev/shm/part")
    subprocess.run(["mount", "--bind", "/dev/shm/part", "/dev/shm"], check=True)
    part = planned(1 << 30).skipped[0].reason
    subprocess.run(["mount", "--bind", "/usr", "/dev/shm"], check=True)
    print(json.dumps([part, planned(1 << 30).skipped[0].reason]))
    """
    assert run("size=64m", script) == ["/dev/shm is no tmpfs of its own"] * 2
