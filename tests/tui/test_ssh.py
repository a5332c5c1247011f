"""Another machine's agent through a real sshd on this one: its own configuration, keys and port, and nothing of this user's ssh."""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sysperf.model.errors import UsageError
from sysperf.tui.sources import ssh
from sysperf.tui.sources.agent import Agent
from tests import openssh
from tests.agent.states import START, eventually, serving
from tests.tui.test_sources import Ear

pytestmark = openssh.needed

FORWARDING = "ListenAddress 127.0.0.1\nAllowStreamLocalForwarding yes\n"


class Server(NamedTuple):
    """A running sshd."""

    address: str
    pid: int
    folder: Path

    def sessions(self) -> list[int]:
        """The processes that serve a connection."""
        return _below(self.pid)


def _below(pid: int) -> list[int]:
    """Its children and theirs: where sshd does not run as root, a session has two processes."""
    with contextlib.suppress(OSError):
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [*children, *(further for child in children for further in _below(child))]
    return []


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """sshd on a port of its own, and an ssh on PATH that reads our configuration instead of the user's."""
    port = openssh.free_port()
    host_key = openssh.key(tmp_path / "host_key")
    (tmp_path / "authorized_keys").write_text(openssh.key(tmp_path / "key"))
    openssh.key(tmp_path / "strange_key")
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    (tmp_path / "bin").mkdir()
    client(tmp_path, "key")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    configuration = openssh.SERVER.format(port=port, folder=tmp_path, key="host_key") + FORWARDING
    daemon = openssh.started(tmp_path, "sshd_config", configuration, "127.0.0.1", port)
    try:
        yield Server(f"ssh://{getpass.getuser()}@127.0.0.1:{port}", daemon.pid, tmp_path)
    finally:
        daemon.terminate()
        daemon.wait(10)


def client(folder: Path, key: str) -> None:
    """The ssh that is found on PATH uses this key, and never asks."""
    openssh.client(folder / "bin", openssh.CLIENT.format(folder=folder, key=key) + "  BatchMode yes\n")


def test_an_agent_through_sshd(server: Server, tmp_path: Path) -> None:
    """Facts, meters and samples come as from a socket of this machine; a connection that breaks is told, with what was known."""
    ear = Ear()
    with serving(tmp_path) as running, ssh.forwarded(f"{server.address}{running.path}") as forward:
        source = Agent(forward.path, name="there", local=False, ended=forward.ended)
        source.start(ear)
        assert eventually(lambda: ear.now.report is not None and "cpu.busy" in ear.now.meters)
        assert [finding.rule for finding in ear.now.findings()] == ["numa.balancing-on"]
        assert eventually(lambda: running.events.listeners)
        running.call(running.events.publish, "sample", {"at": START + 90, "meters": {"cpu.busy": 0.75}})
        assert eventually(lambda: ear.now.meters.get("cpu.busy") == 0.75)
        assert source.history(["cpu.busy"], 600, 10) is not None
        for process in server.sessions():
            os.kill(process, signal.SIGKILL)
        assert eventually(lambda: "has ended (ssh: code 255); start the dashboard again" in ear.now.problem)
        assert ear.now.findings()
        source.close()
    assert not os.path.exists(forward.path)


def test_no_agent_there(server: Server, tmp_path: Path) -> None:
    """ssh connects, and nobody listens at the other end: a problem on the screen, not an end."""
    ear = Ear()
    with ssh.forwarded(f"{server.address}{tmp_path}/nobody.sock") as forward:
        source = Agent(forward.path, local=False, ended=forward.ended)
        source.start(ear)
        assert eventually(lambda: bool(ear.now.problem))
        assert ear.now.report is None
        source.close()


def test_ssh_ends_with_the_dashboard(server: Server, tmp_path: Path) -> None:
    """Neither our ssh nor its session over there outlives the connection."""
    with serving(tmp_path) as running, ssh.forwarded(f"{server.address}{running.path}"):
        assert server.sessions()
    end = time.monotonic() + 10
    while server.sessions() and time.monotonic() < end:
        time.sleep(0.05)
    assert not server.sessions()


def test_a_key_that_is_not_accepted(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """ssh says why, and we say that it ended."""
    client(server.folder, "strange_key")
    with pytest.raises(UsageError, match="ended with code 255"), ssh.forwarded(server.address):
        pass
    assert "Permission denied" in capfd.readouterr().err


def test_a_host_that_is_not_known(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """Keys of hosts are checked as always: no option of ours turns that off."""
    (server.folder / "known_hosts").write_text("")
    with pytest.raises(UsageError, match="ended with code 255"), ssh.forwarded(server.address):
        pass
    assert "Host key verification failed" in capfd.readouterr().err
