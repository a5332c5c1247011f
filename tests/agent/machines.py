"""Made-up answers and real agents for the tests of the agent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sysperf.host.nvml import Questions
from sysperf.live.scan import Scanner

ROOT = Path(__file__).resolve().parent.parent.parent

FAKE_TORCH = """
import mmap, os, time
library = mmap.mmap(os.open(os.environ["LIBRARY"], os.O_RDONLY), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
address_space = mmap.mmap(-1, 512 << 20)  # not before the library: a large process without it is looked at again once it has grown
print("ready", flush=True)
end = time.monotonic() + 120
while time.monotonic() < end:
    sum(range(20000))
    time.sleep(0.01)
"""
SLEEPERS = """
import os, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(120)
        os._exit(0)
print("ready", flush=True)
time.sleep(120)
"""


class Clock:
    """A clock that goes when told to."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Only(Scanner):
    """Sees no process but these and what they started: others come and go on this machine."""

    def __init__(self, clock: Callable[[], float], started: Iterable[subprocess.Popen[bytes]]) -> None:
        super().__init__(clock)
        self._sessions = {program.pid for program in started}

    def _pids(self) -> set[int]:
        return {pid for pid in super()._pids() or () if self._session(pid) in self._sessions}

    @staticmethod
    def _session(pid: int) -> int:
        try:
            return os.getsid(pid)
        except ProcessLookupError:
            return 0


class RecordedNvml:
    """Recorded NVML answers, as `Host.nvml` records them."""

    def __init__(self, calls: dict[str, Any]) -> None:
        self.calls = calls
        self.asked: list[str] = []
        self.closed = False

    def ask_all(self, questions: Questions) -> list[Any]:
        keys = [f"nvml:{name}({','.join(map(str, args))})" for name, args in questions]
        self.asked += keys
        return [self.calls.get(key, OSError("Not Supported")) for key in keys]

    def close(self) -> None:
        self.closed = True


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The first true answer. Fails when there is none in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := condition():
            return answer
        time.sleep(0.05)
    raise AssertionError("not within the time")


class Manager:
    """A service manager's notification socket."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.socket.settimeout(0.1)
        self.address = address
        self._waiting: list[str] = []

    def take(self) -> list[str]:
        """What arrived since the last time, one text a message."""
        taken, self._waiting = self._waiting, []
        try:
            while True:
                taken.append(self.socket.recv(4096).decode())
        except TimeoutError:
            return taken

    def wait(self, text: str, seconds: float = 20.0) -> str:
        """The next message that holds this; what came before it is dropped."""
        return str(until(lambda: self._next(text), seconds))

    def _next(self, text: str) -> str:
        taken = self.take()
        for index, message in enumerate(taken):
            if text in message:
                self._waiting = taken[index + 1 :]
                return message
        return ""


class Running:
    """An agent that runs for real."""

    def __init__(self, folder: Path, *args: str, env: dict[str, str] | None = None, prefix: tuple[str, ...] = ()) -> None:
        """`prefix` is a command that starts the agent, such as one that takes its privileges away."""
        self.socket = str(folder / "a.sock")
        self.errors = folder / "stderr"
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environ = {
            **os.environ,
            "PYTHONPATH": path,
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        environ = {name: value for name, value in environ.items() if name not in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")}
        command = (*prefix, sys.executable, "-m", "sysperf", "agent", "--socket", self.socket, *args)
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(command, stderr=errors, cwd=folder, env={**environ, **(env or {})})

    def get(self, path: str) -> Any:
        """The agent's answer as data; None while it does not answer."""
        import http.client

        connection = http.client.HTTPConnection("localhost", timeout=5)
        try:
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.settimeout(5)
            connection.sock.connect(self.socket)
            connection.request("GET", path)
            answer = connection.getresponse()
            return json.loads(answer.read()) if answer.status == 200 else None
        except OSError:
            return None
        finally:
            connection.close()

    def ready(self) -> Running:
        """Wait until it has looked at the machine once."""
        until(lambda: self.process.poll() is not None or self.get("/v1/snapshot"))
        assert self.process.poll() is None, self.said()
        return self

    def said(self) -> str:
        return self.errors.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(20)


@contextmanager
def agent(folder: Path, *args: str, env: dict[str, str] | None = None, prefix: tuple[str, ...] = ()) -> Iterator[Running]:
    """An agent that answers, killed at the end."""
    running = Running(folder, *args, env=env, prefix=prefix)
    try:
        yield running.ready()
    finally:
        running.process.kill()
        running.process.wait()


@contextmanager
def programs(script: str, *args: str, count: int = 1, env: dict[str, str] | None = None) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Programs that said that they are ready, with all that they started gone at the end."""
    started = [
        subprocess.Popen(
            (sys.executable, "-c", script, *args), stdout=subprocess.PIPE, start_new_session=True, env={**os.environ, **(env or {})}
        )
        for _ in range(count)
    ]
    try:
        for program in started:
            assert program.stdout is not None
            assert program.stdout.readline().strip() == b"ready"
        yield started
    finally:
        for program in started:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            assert program.stdout is not None
            program.stdout.close()
