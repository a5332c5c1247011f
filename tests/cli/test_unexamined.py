"""Programs of other users that an unprivileged reader may not examine are in the verdict and in the exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

NOBODY = 65534
LARGE_BYTES = 400 << 20


@pytest.fixture
def program_of_another_user() -> Iterator[int]:
    """A process with the credentials of `nobody`, as large as one that runs PyTorch."""
    script = f"import mmap,os,signal; m = mmap.mmap(-1, {LARGE_BYTES}); os.setgid({NOBODY}); os.setuid({NOBODY}); signal.pause()"
    process = subprocess.Popen([sys.executable, "-c", script])
    try:
        until_it_belongs_to(process.pid, NOBODY)
        yield process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def until_it_belongs_to(pid: int, user: int) -> None:
    end = time.monotonic() + 60
    while f"\nUid:\t{user}\t" not in open(f"/proc/{pid}/status").read():  # noqa: SIM115 - closed at once
        assert time.monotonic() < end
        time.sleep(0.02)


def audit(*options: str) -> subprocess.CompletedProcess[str]:
    """An audit without capabilities: it may examine what its own user runs, and nobody else's."""
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-m", "sysperf", "audit", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.root(users=True)
def test_a_program_of_another_user_is_in_the_verdict_and_counts_for_strict(program_of_another_user: int) -> None:
    """The reader may not see what it maps: that is said, never called healthy, and ends a strict audit with 3."""
    plain, strict = (audit("--select", "process", *options) for options in ((), ("--strict",)))

    for done in (plain, strict):
        assert "of other users could not be examined; root can." in " ".join(done.stdout.split())
        assert "Healthy" not in done.stdout
        assert " unknown" not in done.stdout.splitlines()[-1], "every check was made: only the programs were not examined"
    assert (plain.returncode, strict.returncode) == (0, 3), (program_of_another_user, strict.stderr)
