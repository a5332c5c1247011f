"""The agent of another machine: ssh forwards its socket to one of ours. ssh asks for passwords, checks keys and knows names."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from sysperf.model.errors import UsageError
from sysperf.model.text import neutral
from sysperf.paths import AGENT_SOCKET, temporary_home
from sysperf.startup import lazy

WAIT_S = 60.0
_HOST = lazy(r"(?:[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}@)?[A-Za-z0-9_.:\[\]][A-Za-z0-9_.:\[\]-]{0,252}")


def parse(address: str) -> tuple[str, str, str]:
    """(host, port, socket there) of ``ssh://user@host:22/run/sysperf/agent.sock``. Raises UsageError."""
    hint = "such as ssh://gpu-7 or ssh://me@gpu-7:2222/run/user/1000/sysperf/agent.sock"
    try:
        parts = urlsplit(address)
        port = str(parts.port or "")
    except ValueError as error:  # of a port that is no number, a bracket that is not closed
        raise UsageError(f"--connect {address}: {error}", hint) from None
    host = f"{parts.username}@{parts.hostname}" if parts.username else parts.hostname or ""
    if parts.scheme != "ssh" or not _HOST.fullmatch(host) or parts.password or parts.query or parts.fragment:
        raise UsageError(f"--connect {address}: not an address of ssh", hint)
    path = parts.path if len(parts.path) > 1 else AGENT_SOCKET
    if ":" in path:
        raise UsageError(f"--connect {address}: ssh cannot forward a socket whose path holds a colon", hint)
    return host, port, path


class Forward(NamedTuple):
    """A forwarded socket."""

    path: str
    ended: Callable[[], str]
    """Why nothing comes through any more; empty while ssh runs."""


@contextlib.contextmanager
def forwarded(address: str) -> Iterator[Forward]:
    """Our end of the other machine's socket, while ssh runs. Raises UsageError."""
    host, port, path = parse(address)
    program = shutil.which("ssh")
    if program is None:
        raise UsageError("there is no ssh here", "install openssh-client")
    folder = tempfile.mkdtemp(prefix="sysperf-", dir=temporary_home())  # 0700: nobody else meets the socket
    mine = f"{folder}/agent.sock"
    options = ["-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=15", *(["-p", port] if port else [])]
    ssh = subprocess.Popen([program, "-N", "-T", *options, "-L", f"{mine}:{path}", "--", host])
    try:
        _wait(ssh, mine, host)
        yield Forward(mine, lambda: _ended(ssh, host))
    finally:
        ssh.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            ssh.wait(5)
        shutil.rmtree(folder, ignore_errors=True)


def _ended(ssh: subprocess.Popen[bytes], host: str) -> str:
    """ssh may ask for a password, which it cannot do below a dashboard: so it is not started again."""
    if ssh.poll() is None:
        return ""
    return f"the connection to {neutral(host, 80)} has ended (ssh: code {ssh.returncode}); start the dashboard again"


def _wait(ssh: subprocess.Popen[bytes], mine: str, host: str) -> None:
    """Wait until ssh listens: it may ask for a password first."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if ssh.poll() is not None:
            raise UsageError(f"ssh to {neutral(host, 80)} ended with code {ssh.returncode}", "what it printed above says why")
        if os.path.exists(mine) and _answers(mine):
            return
        time.sleep(0.05)
    raise UsageError(f"ssh to {neutral(host, 80)} did not forward the socket within {WAIT_S:.0f} s", f"try `ssh {host} true`")


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True
