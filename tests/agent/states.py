"""A state with something of everything, a server that answers from it, and clients that speak bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sysperf import __version__
from sysperf.agent.api import Api
from sysperf.agent.async_store import AsyncStore
from sysperf.agent.events import Events
from sysperf.agent.server import Handler, Limits, Server
from sysperf.agent.sockets import Listener, bind
from sysperf.agent.state import AgentState, Program
from sysperf.agent.status import Cost, Status
from sysperf.agent.store import Store
from sysperf.collect.process.parts import LoadedTorch
from sysperf.collect.process.records import Process
from sysperf.live.hysteresis import FindingTracker
from sysperf.live.metrics import METERS
from sysperf.live.tracked_finding import TrackedFinding
from sysperf.model.change import Change, Step, Transaction
from sysperf.model.snapshot import Snapshot
from tests.report import reports

START = 1_800_000_000.0
PID = 4242
ORDINARY = Limits()
NAME = 'python "train"\\x\n\x1b[31m'


class Table(AgentState):
    """A state of fixed records."""

    def __init__(self, store: Store | None = None) -> None:
        super().__init__(AsyncStore(store or Store.open(None)), FindingTracker(), "observe", START)
        self.shown: Snapshot | None = reports.snapshot(
            memory={"total_bytes": 1 << 40},
            gpu={"devices": [{"index": 0, "bus_id": "0000:65:00.0", "name": "NVIDIA H100", "memory_total_bytes": 80 << 30}]},
        )
        self.figures: dict[str, float] = every_meter()
        self.held: tuple[TrackedFinding, ...] = (
            TrackedFinding(reports.balancing(), START, START + 60, "active", 7),
            TrackedFinding(reports.narrow_link(0), START, START + 30, "gone"),
        )
        self.programs: tuple[Any, ...] = (Program(Process(pid=PID, ppid=1, name=NAME, torch=LoadedTorch(version="2.13.0")), {"cpu": 1.5}),)
        self.problem = ""

    def snapshot(self) -> Snapshot | None:
        return self.shown

    def findings(self) -> tuple[TrackedFinding, ...]:
        return self.held

    def processes(self) -> tuple[Any, ...]:
        return self.programs

    def meters(self) -> Mapping[str, float]:
        return self.figures

    def changes(self) -> tuple[Any, ...]:
        return (Transaction(number=1, state="applied", steps=(Step(Change("vm.swappiness", "", "/proc/sys/vm/swappiness", "60", "1")),)),)

    def status(self) -> Status:
        return Status(
            version=__version__,
            mode="observe",
            started_at=START,
            samples=61,
            cost=Cost(1.25, 26 << 20),
            clients=2,
            store_problem=self.problem,
        )


def every_meter() -> dict[str, float]:
    """A value for each documented meter: of GPU 0 and of process 4242 where a number belongs in its name."""
    numbers = {"gpu": "0", "process": str(PID)}
    return {name.replace("*", numbers.get(name.partition(".")[0], "")): 0.25 + place for place, name in enumerate(METERS)}


class Running(NamedTuple):
    """A server in a thread of its own."""

    path: str
    table: Table
    events: Events
    server: Server
    loop: asyncio.AbstractEventLoop

    def call(self, work: Any, *arguments: Any) -> Any:
        """Do this in the server's thread."""
        done: Any = asyncio.run_coroutine_threadsafe(_called(work, arguments), self.loop)
        return done.result(10)

    def get(self, target: str, *headers: str) -> Reply:
        """Ask once."""
        return get(self.path, target, *headers)


async def _called(work: Any, arguments: tuple[Any, ...]) -> Any:
    return work(*arguments)


class Reply(NamedTuple):
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes


@contextlib.contextmanager
def serving(
    folder: Path, table: Table | None = None, limits: Limits = ORDINARY, more: Mapping[str, Handler] | None = None
) -> Iterator[Running]:
    """A real server on a real socket."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    path = str(folder / "agent.sock")
    served, news = table or Table(), Events()
    server = Server({**Api(served, news, lambda: START + 60).routes(), **(more or {})}, limits)
    asyncio.run_coroutine_threadsafe(server.start(Listener(bind(path), path)), loop).result(10)
    try:
        yield Running(path, served, news, server, loop)
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def connect(path: str, timeout: float = 20) -> socket.socket:
    """A client."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(timeout)
    client.connect(path)
    return client


def send(path: str, data: bytes, *, close: bool = True) -> bytes:
    """What the server says to these bytes until it closes; `close` closes our sending side first."""
    with connect(path) as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(data)
            if close:
                client.shutdown(socket.SHUT_WR)
        return rest(client)


def rest(client: socket.socket) -> bytes:
    """All that comes until the end."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while data := client.recv(65_536):
            parts.append(data)
    return b"".join(parts)


def get(path: str, target: str, *headers: str) -> Reply:
    """One GET on a connection of its own."""
    return parsed(send(path, "\r\n".join([f"GET {target} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]).encode()))


def parsed(raw: bytes) -> Reply:
    """The first answer in these bytes."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    named = dict(line.lower().split(": ", 1) for line in lines)
    return Reply(int(first.split()[1]), named, body)


def read_until(client: socket.socket, wanted: bytes, so_far: bytes = b"") -> bytes:
    """What comes, up to and with these bytes."""
    while wanted not in so_far:
        data = client.recv(65_536)
        assert data, f"ended before {wanted!r}: {so_far[-300:]!r}"
        so_far += data
    return so_far


def eventually(condition: Any, within_s: float = 60) -> bool:
    """Whether this becomes true soon."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())
