"""`sysperf …` for real, in a process of its own that is forked from one that has imported sysperf: a quarter of the CPU time of a start.

Whoever tests the start itself, a signal, a terminal or a limit starts `python -m sysperf`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SBIN = "/usr/sbin:/sbin"
"""Where programs lie that Debian's users have not on their PATH, and may run."""
SERVER = """
import json, os, socket, sys
sys.path[0] = sys.argv[2]
from sysperf import cli
from tests import forked
forked.prepare(without=("agent", "completion", "tui"))
del sys.path[0]

with socket.socket(fileno=int(sys.argv[1])) as client:
    while True:
        request, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
        if not request:
            os._exit(0)
        child = os.fork()
        if not child:
            break
        for stream in streams:
            os.close(stream)
        client.send(b"%d" % child)
        client.send(b"%d" % os.waitpid(child, 0)[1])
words, variables, folder = json.loads(request)
for number, stream in enumerate(streams):
    os.dup2(stream, number)
    os.close(stream)
os.chdir(folder)
os.environ.clear()
os.environ.update(variables)
sys.argv = ["sysperf", *words]
cli.entry()
"""
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "GLIBC_", "MALLOC_")
"""How the names of variables begin that are read when an interpreter starts."""
MAX_BYTES = 60_000
"""What a pipe and a message hold."""
_STARTED_WITH = dict(os.environ)


def with_variable(variable: str) -> list[bytes]:
    """The command lines of all processes that have NAME=VALUE in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append((path / "cmdline").read_bytes())
    return found


def program(name: str) -> str | None:
    """The path of a program, also of one that is meant for root."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}")


@functools.cache
def _server() -> socket.socket:
    """The process that has imported sysperf, one for each process of pytest; it ends with that."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        subprocess.Popen(
            (sys.executable, "-c", SERVER, str(its.fileno()), str(ROOT)),
            pass_fds=(its.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # no terminal, whatever pytest has
            env=_STARTED_WITH,
        )
    return ours


os.register_at_fork(after_in_child=_server.cache_clear)
"""A test in a process of its own (tests/privileges.py) has a server of its own."""


def _starts_alike(variables: Mapping[str, str]) -> bool:
    """Whether an interpreter that starts with these variables is like the one that we fork."""

    def read(variables: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in variables.items() if name.startswith(READ_AT_START) and name != "PYTHONPATH"}

    folders = variables.get("PYTHONPATH", "").split(os.pathsep)
    return read(variables) == read(_STARTED_WITH) and not any(os.path.exists(f"{folder}/sitecustomize.py") for folder in folders)


def sysperf(
    *words: str,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    stdout: int = subprocess.PIPE,
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run `sysperf WORDS` until all that has its output is gone. Raises TimeoutExpired. `env` and `stdout` are as for `subprocess.run`."""
    argv = [sys.executable, "-m", "sysperf", *words]
    variables = dict(os.environ if env is None else env)
    request = json.dumps((words, variables, os.fspath(cwd or os.getcwd()))).encode()
    if not _starts_alike(variables) or len(request) > MAX_BYTES or len(stdin) > MAX_BYTES:
        return subprocess.run(
            argv, cwd=cwd, env=variables, input=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=timeout
        )
    reading, writing = os.pipe()
    os.write(writing, stdin.encode())
    os.close(writing)
    (output, its_output), (errors, its_errors) = os.pipe(), os.pipe()
    server = _server()
    socket.send_fds(server, [request], (reading, its_output if stdout == subprocess.PIPE else stdout, its_errors))
    for descriptor in (reading, its_output, its_errors):
        os.close(descriptor)
    child = int(server.recv(32))
    try:
        printed = _read((output, errors), time.monotonic() + timeout)
        if printed is None:
            os.kill(child, signal.SIGKILL)
            raise subprocess.TimeoutExpired(argv, timeout)
    finally:
        status = int(server.recv(32))
    return subprocess.CompletedProcess(argv, os.waitstatus_to_exitcode(status), *printed)


def _read(pipes: tuple[int, int], end: float) -> tuple[str, str] | None:
    """What was written to both until nobody had them any more, None where that took too long; they are closed then."""
    parts: dict[int, list[bytes]] = {pipe: [] for pipe in pipes}
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < end:
            for key, _ in selector.select(end - time.monotonic()):
                parts[key.fd].append(os.read(key.fd, 1 << 16))
                if not parts[key.fd][-1]:
                    selector.unregister(key.fd)
        late = bool(selector.get_map())
    for pipe in pipes:
        os.close(pipe)
    output, errors = (b"".join(parts[pipe]).decode().replace("\r\n", "\n").replace("\r", "\n") for pipe in pipes)
    return None if late else (output, errors)
