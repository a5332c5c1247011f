"""What a forked process asks of the kernel, on real processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

ORPHAN = """
import os, signal, sys, time
from sysperf.host.forked import ending_with_parent
end_with_parent = ending_with_parent(signal.SIGKILL)
if os.fork() == 0:
    end_with_parent()
    os.write(1, b"ready\\n")
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""
ADOPTING = """
import os
from sysperf.host.forked import adopt_orphans
adopt_orphans()
if os.fork() == 0:
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent: pass
        os._exit(7)
    os._exit(0)
print(sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2)))
"""
CLOSING = """
import os, sys
from sysperf.host.forked import close_all_but
kept, other = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[1], os.O_RDONLY)
answer = os.dup(1)
close_all_but({0, kept, answer})
names = {int(name): os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}
os.write(answer, repr({number: name for number, name in names.items() if number not in (answer, kept)}).encode())
os.write(answer, f" {names[kept]}".encode())
"""


def test_a_child_ends_with_its_parent() -> None:
    """However that is killed; nobody can clean up after kill -9."""
    with subprocess.Popen((sys.executable, "-c", ORPHAN), stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == b"ready\n"
        parent.send_signal(signal.SIGKILL)
        ended, _, _ = select.select([parent.stdout], [], [], 20)

        assert ended, "the child still holds the pipe"
        assert parent.stdout.read() == b""


def test_who_adopts_orphans_can_wait_for_them() -> None:
    """A grandchild whose parent has ended is a child by then."""
    done = subprocess.run((sys.executable, "-c", ADOPTING), capture_output=True, text=True, timeout=300, check=False)

    assert done.stdout == "[0, 7]\n", done.stderr


def test_all_files_but_those_that_are_kept_are_closed(tmp_path: Path) -> None:
    """A standard stream that is kept stays what it was, the others lead nowhere."""
    file, stdin = tmp_path / "file", tmp_path / "stdin"
    file.touch()
    stdin.touch()
    with stdin.open() as source:
        done = subprocess.run(
            (sys.executable, "-c", CLOSING, str(file)), stdin=source, capture_output=True, text=True, timeout=300, check=False
        )

    assert done.stdout == f"{ {0: str(stdin), 1: os.devnull, 2: os.devnull} } {file}", done.stderr
