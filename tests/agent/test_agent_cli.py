"""Facts about the command `sysperf agent`."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysperf.agent.client import Client, NoAgent
from sysperf.agent.store import Store
from sysperf.cli import agent as command
from sysperf.engine.configuration import read_config
from sysperf.model.errors import ConfigError, SysperfError
from sysperf.paths import default_socket, find_socket
from tests import invoking
from tests.agent.machines import ROOT, Running, agent, until


def sysperf(*args: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command, for real."""
    return invoking.sysperf("agent", *args, env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}, cwd=cwd or ROOT)


def test_status_and_events(tmp_path: Path) -> None:
    """For people in lines, for programs as JSON; events end when nobody asked to follow."""
    with agent(tmp_path, "--history", "none") as running:
        until(lambda: running.get("/v1/findings") is not None)
        text = sysperf("status", "--socket", running.socket)
        data = json.loads(sysperf("status", "--json", "--socket", running.socket).stdout)
        events = sysperf("events", "--socket", running.socket)
        lines = sysperf("events", "--json", "--socket", running.socket).stdout.splitlines()

    assert text.returncode == 0, text.stderr
    assert "mode observe" in text.stdout
    assert data["status"]["mode"] == "observe"
    assert "agent started, mode observe" in events.stdout
    assert json.loads(lines[0])["kind"] == "agent"


def test_events_are_followed_to_the_end(tmp_path: Path) -> None:
    """What happens later is printed when it happens; the agent's end ends it."""
    with agent(tmp_path, "--history", "none") as running:
        command = (sys.executable, "-m", "sysperf", "agent", "events", "--follow", "--socket", running.socket)
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT
        ) as follower:
            assert follower.stdout is not None
            assert "started" in follower.stdout.readline()
            running.process.send_signal(1)
            until(lambda: follower.stdout is not None and "reloaded" in follower.stdout.readline())
            running.stop()
            follower.stdout.read()
            assert follower.wait(20) == 0


def test_no_agent_is_said(tmp_path: Path) -> None:
    """Exit code 2, and what to do."""
    done = sysperf("status", "--socket", str(tmp_path / "none.sock"))

    assert done.returncode == 2
    assert "no agent answers" in done.stderr
    assert "sysperf agent" in done.stderr


def test_apply_without_a_helper_refuses_to_start(tmp_path: Path) -> None:
    """It would change nothing, and must not pretend."""
    if os.path.exists("/run/sysperf/helper.sock"):
        pytest.skip("a helper runs on this machine: stop it for this test")
    config = tmp_path / "c.toml"
    config.write_text('[agent]\nmode = "apply"\napply = ["numa.balancing-on"]\n')

    done = sysperf("--config", str(config), "--socket", str(tmp_path / "a.sock"), "--history", "none")

    assert done.returncode == 2
    assert "needs the helper" in done.stderr


def test_no_home_is_no_hindrance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose state folder cannot be made, as in a container: the history says so, and is in memory."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() or 1_000)
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/home")
    path = command._history("")

    assert path == "/dev/null/home/sysperf/history.db"
    assert "the history goes on in memory" in Store.open(path).problem


def test_apply_names_rules(tmp_path: Path) -> None:
    """No list, and a rule that is none: refused with the reason."""
    config = tmp_path / "c.toml"
    config.write_text('[agent]\napply = ["numa.balancing-onn"]\n')
    arguments = ("--config", str(config), "--mode", "apply", "--socket", str(tmp_path / "a.sock"), "--history", "none")
    assert "no rule `numa.balancing-onn`" in sysperf(*arguments).stderr
    config.write_text("[agent]\n")
    assert "without a list of rules" in sysperf(*arguments).stderr


def test_configuration(tmp_path: Path) -> None:
    """[agent] is read strictly; other commands read over it."""
    config = tmp_path / "c.toml"
    config.write_text('[agent]\nmode = "advise"\ninterval_s = 2.5\nhistory = "none"\n')
    assert read_config(config).agent.interval_s == 2.5
    for wrong in ("interval_s = 0.01", 'mode = "wild"', "speed = 3", 'apply = "x"'):
        config.write_text(f"[agent]\n{wrong}\n")
        with pytest.raises(ConfigError, match="agent"):
            read_config(config)


def test_the_command_line_wins_over_the_configuration(tmp_path: Path) -> None:
    """--mode and --interval; an interval out of range is refused."""
    config = tmp_path / "c.toml"
    config.write_text('[agent]\nmode = "advise"\nhistory = "none"\n')
    with agent(tmp_path, "--config", str(config), "--mode", "observe") as running:
        assert running.get("/v1/status")["mode"] == "observe"
    assert "not between" in sysperf("--interval", "0.001").stderr


def test_where_it_listens() -> None:
    """systemd's folder, else the system's for root and the user's for others."""
    assert default_socket({"RUNTIME_DIRECTORY": "/run/sysperf:/run/x"}) == "/run/sysperf/agent.sock"
    if os.geteuid() == 0:
        assert default_socket({}) == "/run/sysperf/agent.sock"
    else:
        assert default_socket({"XDG_RUNTIME_DIR": "/run/user/7"}) == "/run/user/7/sysperf/agent.sock"
    assert find_socket("/a/b") == "/a/b"


def test_a_socket_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """A path that is too long, and one below a file."""
    (tmp_path / "file").write_text("")
    for path in (str(tmp_path / ("x" * 120)), str(tmp_path / "file/a.sock")):
        running = Running(tmp_path, "--history", "none")
        running.process.kill()
        done = sysperf("--socket", path, "--history", "none")
        assert done.returncode == 2
        assert "hint:" in done.stderr


def test_the_client_knows_errors(tmp_path: Path) -> None:
    """Nobody there, a path that the agent does not know, and an agent that answers something else."""
    with pytest.raises(NoAgent):
        Client(str(tmp_path / "nobody")).get("/v1/status")
    with agent(tmp_path, "--history", "none") as running, pytest.raises(SysperfError, match="404"):
        Client(running.socket).get("/v9/nothing")


@pytest.mark.parametrize(
    "drops",
    [
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
    ],
    ids=["headers", "content", "chunks", "continue", "until the end"],
)
def test_an_answer_that_drips_is_given_up(tmp_path: Path, drops: tuple[bytes, bytes]) -> None:
    """Each byte comes in time, and the answer never ends: whoever asked waits three times as long as for silence."""
    path, dripped = str(tmp_path / "a.sock"), list[int]()

    def drip() -> None:
        connection = listener.accept()[0]
        with contextlib.suppress(OSError), connection:
            connection.recv(65_536)
            connection.sendall(drops[0])
            while True:
                time.sleep(0.05)
                dripped.append(connection.send(drops[1]))

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        threading.Thread(target=drip, daemon=True).start()
        with pytest.raises(SysperfError, match=r"timed out|does not end|more than 100 headers"):
            Client(path, timeout_s=0.5).get("/v1/status")
    assert len(dripped) > 3


def test_other_commands_do_not_pay() -> None:
    """asyncio, sqlite and h11 are for the agent only."""
    script = (
        "import sys\nfrom sysperf.cli import _options\n_options.parser('audit')\n"
        "from sysperf.engine.configuration import read_config\nread_config()\n"
        "print(sorted({'asyncio', 'sqlite3', 'h11', 'http.client', 'ssl'} & set(sys.modules)))"
    )
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.strip() == "[]"


def test_the_agent_loads_no_ssl() -> None:
    """OpenSSL would cost 5 MB for a socket that needs none, and as much behind hashlib, which is `_hashlib` there."""
    script = (
        "import sys\nfrom sysperf.cli import agent\nagent._imported()\n"
        "print(*[name in sys.modules for name in ('asyncio', 'ssl', '_hashlib', 'email')])"
    )
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.split() == ["True", "False", "False", "False"]


@pytest.mark.parametrize("body", [b"{}", b"[]", b"7", b'{"findings": 3, "meters": {"a": "b"}}', b'{"version": "\\u001b[31m", "mode": 3}'])
@pytest.mark.parametrize("command", [("agent", "status"), ("agent", "events"), ("top", "--once")])
def test_answers_of_another_shape_are_an_error(tmp_path: Path, body: bytes, command: tuple[str, ...]) -> None:
    """Whoever answers at the socket: a sentence and an exit code, never a traceback."""
    path = str(tmp_path / "agent.sock")
    with impostor(path, body):
        where = ("--connect", path) if command[0] == "top" else ("--socket", path)
        done = invoking.sysperf(*command, *where, cwd=ROOT)

    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    if command != ("agent", "events"):
        assert done.returncode == 2
        assert "shape" in done.stderr


@contextlib.contextmanager
def impostor(path: str, body: bytes) -> Iterator[None]:
    """A server that gives the same answer to everything."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen(16)
        server.settimeout(0.1)
        done = threading.Event()

        def serve() -> None:
            while not done.is_set():
                with contextlib.suppress(TimeoutError):
                    client, _ = server.accept()
                    with client, contextlib.suppress(OSError):
                        client.settimeout(5)
                        client.recv(65_536)
                        client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
