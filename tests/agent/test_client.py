"""The client, with the agents nobody wants."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sysperf.agent.client import MAX_BYTES, Client
from sysperf.model.errors import SysperfError

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
EVENTS = b"content-type: text/event-stream\r\n"
PIECE = b"x" * (1 << 20)
Answer = Callable[[socket.socket], object]


@contextlib.contextmanager
def answering(folder: Path, answer: Answer) -> Iterator[str]:
    """A socket whose first client gets this, whatever it asked."""
    path = str(folder / "agent.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen()

        def run() -> None:
            with contextlib.suppress(OSError), server.accept()[0] as client:
                client.recv(1 << 16)
                answer(client)

        thread = threading.Thread(target=run)
        thread.start()
        yield path
        thread.join()


def saying(*parts: bytes) -> Answer:
    """All of it, and then nothing more."""
    return lambda client: client.sendall(b"".join(parts))


def test_an_answer_that_is_too_large_is_given_up(tmp_path: Path) -> None:
    """However it is announced; one that is just not too large is read."""
    number = MAX_BYTES // len(PIECE)
    for head in (b"", b"content-length: %d\r\n" % (MAX_BYTES + len(PIECE))):
        folder = tmp_path / str(len(head))
        folder.mkdir()
        with (
            answering(folder, saying(OK, head, b"\r\n", *[PIECE] * (number + 1))) as path,
            pytest.raises(SysperfError, match="the answer is larger than 64 MiB"),
        ):
            Client(path).get_text("/")
    with answering(tmp_path, saying(OK, b"\r\n", *[PIECE] * number)) as path:
        assert len(Client(path).get_text("/")) == MAX_BYTES


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "the connection ended without an answer"),
        (b"HTTP/1.1 200 OK\r\nconte", "the connection ended without an answer"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "the connection ended without an answer"),
        (b"\x00\xff\x16\r\n\r\n", "illegal status line"),
        (b"HTTP/1.1 200 OK\r\na: " + b"\x1b" * 70_000, "Receive buffer too long"),
        (OK + b"\x1b" * 20_000 + b"\r\n\r\n", "illegal header line"),
        (OK + b"content-length: 20\r\n\r\nok", "without sending complete message body"),
        (OK + b"content-length: -1\r\n\r\nok", "bad Content-Length"),
        (OK + CHUNKED + b"2\r\nok\r\n", "without sending complete message body"),
        (OK + CHUNKED + b"zz\r\nok\r\n", "illegal chunk header"),
        (b"HTTP/1.1 503 No\r\n\r\nbusy\x1b[31m", r"answers 503 to /: busy\\x1b"),
    ],
)
def test_half_an_answer_is_no_answer(tmp_path: Path, raw: bytes, said: str) -> None:
    """What went wrong is said in a line that a terminal can show, with what to do about it."""
    with answering(tmp_path, saying(raw)) as path, pytest.raises(SysperfError, match=said) as raised:
        Client(path).get_text("/")
    assert len(str(raised.value)) < 600
    assert str(raised.value).isprintable()
    assert "journalctl" in raised.value.hint


@pytest.mark.parametrize("raw", [OK + CHUNKED + b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n", OK + b"content-length: 2\r\n\r\nok", OK + b"\r\nok"])
def test_an_answer_may_come_in_any_frame(tmp_path: Path, raw: bytes) -> None:
    """In pieces, with a length, or until the end; after a preliminary answer."""
    with answering(tmp_path, saying(b"HTTP/1.1 100 Continue\r\n\r\n", raw)) as path:
        assert Client(path).get_text("/") == b"ok"


def test_an_error_that_does_not_end_is_told(tmp_path: Path) -> None:
    """Its beginning is enough, also where the rest never comes."""

    def answer(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 500 No\r\n\r\n" + b"x" * 3000)
        client.recv(1)

    with answering(tmp_path, answer) as path, pytest.raises(SysperfError, match="the agent answers 500 to /: xxx"):
        Client(path, timeout_s=5).get_text("/")


def test_a_silent_agent_is_given_up(tmp_path: Path) -> None:
    """Before its answer, and in the middle of it."""
    over = threading.Event()
    for name, raw in (("none", b""), ("some", OK + b"content-length: 9\r\n\r\nok")):
        folder = tmp_path / name
        folder.mkdir()

        def answer(client: socket.socket, raw: bytes = raw) -> None:
            client.sendall(raw)
            over.wait()

        with answering(folder, answer) as path:
            begun = time.monotonic()
            with pytest.raises(SysperfError, match="timed out"):
                Client(path, timeout_s=0.2).get_text("/")
            assert time.monotonic() - begun < 5
            over.set()
        over.clear()


def test_a_line_of_events_that_never_ends_costs_no_more_than_its_length(tmp_path: Path) -> None:
    """It is given up when it is too long; each piece is looked at once."""
    with answering(tmp_path, saying(OK, EVENTS, b"\r\n", *[PIECE] * (1 + MAX_BYTES // len(PIECE)))) as path:
        begun = time.thread_time()
        with pytest.raises(SysperfError, match="a line is longer than 64 MiB"):
            list(Client(path).events())
        assert time.thread_time() - begun < 8, "copying the line anew with each piece takes half a minute"


@pytest.mark.parametrize(
    "raw",
    [
        EVENTS + b'\r\n: hello\nevent: a\r\ndata: [1,"\xc3\xa4"]\r\n\nevent: b\nda',
        EVENTS + CHUNKED + b'9\r\nevent: a\n\r\nb\r\ndata: [1,"\xc3\r\n4\r\n\xa4"]\n\r\n',
    ],
)  # fmt: skip
def test_events_are_those_that_were_complete(tmp_path: Path, raw: bytes) -> None:
    """A letter may be cut between two pieces; an agent that stops in the middle of a line has ended."""
    with answering(tmp_path, saying(OK, raw)) as path:
        assert list(Client(path).events()) == [("a", [1, "ä"])]


@pytest.mark.parametrize(
    ("raw", "said"),
    [(EVENTS + b"\r\nevent: a\ndata: {x\n\n", "malformed"), (b"\r\nevent: a\ndata: 1\n\n", "of a shape that this version does not know")],
)
def test_what_are_no_events_is_said(tmp_path: Path, raw: bytes, said: str) -> None:
    """Data that is no JSON, and an answer of another kind."""
    with answering(tmp_path, saying(OK, raw)) as path, pytest.raises(SysperfError, match=said):
        list(Client(path).events())


def test_waiting_for_an_event_ends_with_control_c(tmp_path: Path) -> None:
    """At once, and the agent sees its client go."""
    seen = list[bytes]()

    def answer(client: socket.socket) -> None:
        client.sendall(OK + EVENTS + b"\r\nevent: a\ndata: 1\n\n")
        client.settimeout(30)
        seen.append(client.recv(1))

    code = "import sys; from sysperf.agent.client import Client; [print(one, flush=True) for one in Client(sys.argv[1]).events()]"
    with answering(tmp_path, answer) as path:
        program = subprocess.Popen(
            [sys.executable, "-c", code, path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": "."}
        )
        assert program.stdout is not None
        program.stdout.readline()
        begun = time.monotonic()
        program.send_signal(signal.SIGINT)
        program.wait(30)
        assert time.monotonic() - begun < 5
        program.stdout.close()
    assert seen == [b""]
