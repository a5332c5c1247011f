"""Asking the agent over its socket: what the command line and the terminal interface use."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import TypeVar
from urllib.parse import urlencode

import h11

from sysperf.agent.answers import read
from sysperf.model.errors import SysperfError
from sysperf.model.record import Json, from_json
from sysperf.model.text import neutral

T = TypeVar("T")

TIMEOUT_S = 10.0
WHOLE = 3
"""So many times as long as the agent may be silent, it may take for a whole answer: one that drips does not hold up who asked."""
QUIET_S = 40.0
"""The agent writes at least a comment into a stream each 15 s."""
MAX_BYTES = 64 << 20
SLICE = 64 << 10
OK = 200
UNKNOWN_SHAPE = "of a shape that this version does not know"
RESTART = "after an update of sysperf restart the agent (`systemctl restart sysperf-agent`); `sysperf --version` shows this version"
LOG = "`journalctl -u sysperf-agent` shows its log; `systemctl restart sysperf-agent` starts it anew"


class NoAgent(SysperfError):
    """Error: no agent answers."""


class Client:
    """Asks one agent. Raises NoAgent when there is none, and SysperfError when it cannot answer."""

    def __init__(self, path: str, timeout_s: float = TIMEOUT_S) -> None:
        self.path = path
        self._timeout_s = timeout_s

    def ask(self, path: str, as_type: type[T], **query: str | float) -> T:
        """The answer to GET as a record. Raises SysperfError when it is of another shape."""
        answer = read(self.get(path, **query), as_type)
        if answer is None:
            raise self._unknown_shape(path)
        return answer

    def get(self, path: str, **query: str | float) -> Json:
        """The answer to GET as plain data."""
        try:
            return from_json(self.get_text(path, **query), Json)
        except ValueError as error:
            raise self._broke(error) from None

    def get_text(self, path: str, **query: str | float) -> bytes:
        """The answer to GET as it came."""
        try:
            with contextlib.closing(_Conversation(self.path, self._timeout_s)) as talk:
                self._ask(talk, path, query)
                return talk.body()
        except (OSError, h11.ProtocolError) as error:
            raise self._broke(error) from None

    def events(self, **query: str | float) -> Iterator[tuple[str, Json]]:
        """(kind, data) of each event as it comes, until the agent ends. Comments keep it from waiting forever."""
        try:
            with contextlib.closing(_Conversation(self.path, self._timeout_s)) as talk:
                if not self._ask(talk, "/v1/events", query).startswith("text/event-stream"):
                    raise self._unknown_shape("/v1/events")
                talk.wait(QUIET_S)
                kind = ""
                for text in talk.lines():
                    name, _, value = text.partition(": ")
                    if name == "event":
                        kind = value
                    elif name == "data":
                        yield kind, from_json(value, Json)
        except (OSError, h11.ProtocolError, ValueError) as error:
            raise self._broke(error) from None

    def _unknown_shape(self, path: str) -> SysperfError:
        return SysperfError(f"{self.path}: the answer to {path} is {UNKNOWN_SHAPE}", RESTART)

    def _ask(self, talk: _Conversation, path: str, query: dict[str, str | float]) -> str:
        """What kind of content answers; its body comes next."""
        status, kind = talk.ask(f"{path}?{urlencode(query)}" if query else path)
        if status != OK:
            raise SysperfError(f"the agent answers {status} to {path}: {neutral(talk.beginning(2000).decode('utf-8', 'replace'))}", LOG)
        return kind

    def _broke(self, error: Exception) -> SysperfError:
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            return NoAgent(f"no agent answers at {self.path}", "start one with `sysperf agent`, or name its socket with --socket")
        if isinstance(error, PermissionError):
            return NoAgent(f"{self.path}: you may not talk to this agent", "ask to be added to the group `sysperf`")
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return SysperfError(f"{self.path}: {neutral(said)}", LOG)


class _Conversation:
    """One question over a unix socket. Who answers may be silent for a time, and talk for another."""

    def __init__(self, path: str, silent_s: float) -> None:
        self._http = h11.Connection(h11.CLIENT)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._path = path
        self.wait(silent_s, WHOLE * silent_s)

    def close(self) -> None:
        self._socket.close()

    def wait(self, silent_s: float, whole_s: float = float("inf")) -> None:
        """Count both from now on."""
        self._silent_s, self._end = silent_s, time.monotonic() + whole_s

    def ask(self, target: str) -> tuple[int, str]:
        """(status, kind of content). Raises OSError, ProtocolError."""
        self._socket.settimeout(self._silent_s)
        self._socket.connect(self._path)
        request = h11.Request(method="GET", target=target, headers=[("host", "localhost"), ("connection", "close")])
        self._socket.sendall((self._http.send(request) or b"") + (self._http.send(h11.EndOfMessage()) or b""))
        while isinstance(answer := self._event(whole=False), h11.InformationalResponse):
            continue
        if not isinstance(answer, h11.Response):
            raise h11.RemoteProtocolError("the connection ended without an answer")
        return answer.status_code, dict(answer.headers).get(b"content-type", b"").decode("ascii", "replace")

    def body(self) -> bytes:
        """The whole answer. Raises OSError, ProtocolError."""
        body = bytearray()
        for piece in self._pieces():
            body += piece
            if len(body) > MAX_BYTES:
                raise h11.RemoteProtocolError(f"the answer is larger than {MAX_BYTES >> 20} MiB")
        return bytes(body)

    def beginning(self, size: int) -> bytes:
        """So many bytes of the answer, or what there is before its end. Raises OSError, ProtocolError."""
        body = bytearray()
        for piece in self._pieces(whole=False):
            body += piece
            if len(body) >= size:
                break
        return bytes(body[:size])

    def lines(self) -> Iterator[str]:
        """The answer line by line, as it comes, until whoever answers ends, wherever that is. Raises OSError, ProtocolError."""
        line = bytearray()
        for piece in self._pieces(whole=False):
            more, *begun = piece.split(b"\n")
            line += more
            for start in begun:
                yield line.decode("utf-8", "replace").rstrip("\r")
                line = bytearray(start)
            if len(line) > MAX_BYTES:
                raise h11.RemoteProtocolError(f"a line is longer than {MAX_BYTES >> 20} MiB")

    def _pieces(self, *, whole: bool = True) -> Iterator[bytes]:
        while isinstance(event := self._event(whole=whole), h11.Data):
            yield bytes(event.data)

    def _event(self, *, whole: bool = True) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            received = self._received()
            if not received and not whole:
                return h11.ConnectionClosed()
            self._http.receive_data(received)
        return event

    def _received(self) -> bytes:
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer does not end")
        self._socket.settimeout(min(self._silent_s, left_s))
        return self._socket.recv(SLICE)
