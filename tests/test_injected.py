"""What `wrap --traceable` has a program load: one that ends while it is traced waits, and no other does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysperf import injected
from tests.plugins.programs import sockets

TORCH = "import sys, types; sys.modules['torch'] = types.ModuleType('torch')\n"
"""A program that has imported torch, as far as the module can see."""


@pytest.fixture
def folder() -> Iterator[str]:
    with sockets() as path:
        yield path


def program(folder: str, code: str, *options: str, **env: str) -> subprocess.Popen[str]:
    path = injected.python_path(env)
    given = {**os.environ, "KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": folder, **env, "PYTHONPATH": path}
    return subprocess.Popen(
        (sys.executable, *options, "-c", code), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env=given
    )


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def says(running: subprocess.Popen[str], text: str) -> None:
    assert running.stdout is not None
    assert running.stdout.readline().strip() == text


ENDS_WHEN_TOLD = "print('ready', flush=True); input(); print('done')"


@pytest.mark.timeout(60)
def test_a_program_that_ends_while_it_is_traced_waits(folder: str) -> None:
    """Until whoever traces it lets go of the mark; what it had printed is out before, and it says why it waits."""
    with program(folder, TORCH + ENDS_WHEN_TOLD) as running:
        says(running, "ready")
        with locked(f"{folder}/traced-{running.pid}"):
            assert running.stdin is not None
            assert running.stderr is not None
            running.stdin.write("\n")
            running.stdin.flush()
            says(running, "done")
            assert "ends once its trace is written" in running.stderr.readline()
            assert running.poll() is None
        assert running.wait(30) == 0


def test_a_mark_whose_maker_was_killed_holds_nobody(folder: str) -> None:
    """The lock went with it."""
    with program(folder, TORCH + ENDS_WHEN_TOLD) as running:
        says(running, "ready")
        Path(folder, f"traced-{running.pid}").touch()
        out, err = running.communicate("\n", timeout=30)
    assert (out, err, running.returncode) == ("done\n", "", 0)


def test_a_link_or_a_pipe_in_place_of_the_mark_holds_nobody(folder: str, tmp_path: Path) -> None:
    """The folder may be one that others write in; a file that somebody holds locked may be any."""
    for make in (lambda mark: mark.symlink_to(tmp_path / "other"), os.mkfifo):
        with locked(str(tmp_path / "other")), program(folder, TORCH + ENDS_WHEN_TOLD) as running:
            says(running, "ready")
            make(Path(folder, f"traced-{running.pid}"))
            assert running.communicate("\n", timeout=30) == ("done\n", "")


def test_a_trace_that_nobody_waits_for_any_more_is_waited_for(folder: str, tmp_path: Path) -> None:
    """Kineto goes on with it, and holds its file open until it is whole."""
    scratch = tmp_path / ".sysperf-trace-x"
    scratch.mkdir()
    writing = f"""import threading, time
file = open("{scratch}/trace_1.json.tmp", "w")
def write():
    time.sleep(2); file.close(); open("{tmp_path}/written", "w").close()
threading.Thread(target=write, daemon=True).start()
"""
    with program(folder, TORCH + writing) as running:
        _, err = running.communicate(timeout=30)
    assert "ends once its trace is written" in err
    assert (tmp_path / "written").exists()


def test_a_file_that_was_forgotten_is_not_waited_for(folder: str, tmp_path: Path) -> None:
    """Kineto keeps the file of a trace that it has dropped open for good."""
    scratch = tmp_path / ".sysperf-trace-x"
    scratch.mkdir()
    forgotten = f'file = open("{scratch}/trace_1.json.tmp", "w")\nimport os, time\nos.utime(file.name, (time.time() - 100,) * 2)\n'
    with program(folder, TORCH + forgotten) as running:
        assert running.communicate(timeout=30) == ("", "")


def test_ctrl_c_ends_the_wait(folder: str) -> None:
    """At once, without a traceback, and with the program's own exit code."""
    with program(folder, TORCH + ENDS_WHEN_TOLD + "; raise SystemExit(3)") as running:
        says(running, "ready")
        with locked(f"{folder}/traced-{running.pid}"):
            assert running.stdin is not None
            assert running.stderr is not None
            running.stdin.write("\n")
            running.stdin.flush()
            assert "Ctrl-C" in running.stderr.readline()
            running.send_signal(2)
            assert running.wait(30) == 3
            assert running.stderr.read() == ""


def test_only_who_has_kinetos_thread_waits(folder: str, tmp_path: Path) -> None:
    """A child that was forked after torch was imported has none, and a program without torch has nothing to trace."""
    scratch = tmp_path / ".sysperf-trace-x"
    scratch.mkdir()
    held = f'import os, sys; file = open("{scratch}/trace_1.json.tmp", "w")\n'
    child = "pid = os.fork()\nif pid: os.waitpid(pid, 0); print('child done', flush=True); os._exit(0)\n"
    began = time.monotonic()
    with program(folder, TORCH + held + child) as forked, program(folder, held) as without:
        assert forked.communicate(timeout=60) == ("child done\n", "")
        assert without.communicate(timeout=60) == ("", "")
    assert time.monotonic() - began < 60


def test_a_child_that_was_forked_before_torch_waits(folder: str) -> None:
    """As a daemon does it."""
    daemon = "import os, sys\nif os.fork(): os._exit(0)\n" + TORCH + "print(os.getpid(), flush=True); input(); print('done', flush=True)"
    with program(folder, daemon) as running:
        assert running.stdout is not None
        pid = int(running.stdout.readline())
        with locked(f"{folder}/traced-{pid}"):
            assert running.stdin is not None
            assert running.stderr is not None
            running.stdin.write("\n")
            running.stdin.flush()
            assert "ends once its trace is written" in running.stderr.readline()


def test_the_sitecustomize_of_the_user_is_loaded_too(folder: str, tmp_path: Path) -> None:
    """It lies behind ours on PYTHONPATH, where its modules are found; ours leaves the path, and an error of it is the user's."""
    (tmp_path / "sitecustomize.py").write_text("import mine; print('theirs')")
    (tmp_path / "mine.py").write_text("")
    with program(folder, "import sys; print(sys.modules['sitecustomize'].__file__); print(sys.path)", PYTHONPATH=str(tmp_path)) as running:
        out, err = running.communicate(timeout=30)
    assert out.splitlines()[:2] == ["theirs", str(tmp_path / "sitecustomize.py")]
    assert injected.FOLDER not in out
    assert err == ""


def test_the_path_is_the_users_with_one_folder_in_front() -> None:
    """Once, however often a program is wrapped."""
    ours = injected.FOLDER
    assert injected.python_path({}) == injected.python_path({"PYTHONPATH": ""}) == ours
    assert injected.python_path({"PYTHONPATH": "/a::/b"}) == f"{ours}:/a::/b"
    assert injected.python_path({"PYTHONPATH": f"/a:{ours}"}) == f"/a:{ours}"
