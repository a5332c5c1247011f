"""Asking the agent over its socket: what the command line and the terminal interface use."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

from sysperf.agent.answers import read
from sysperf.model.errors import SysperfError
from sysperf.model.record import Json, from_json
from sysperf.model.text import neutral

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")

TIMEOUT_S = 10.0
WHOLE = 3
"""So many times as long as the agent may be silent, it may take for a whole answer: one that drips does not hold up who asked."""
QUIET_S = 40.0
"""The agent writes at least a comment into a stream each 15 s."""
MAX_BYTES = 64 << 20
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
        connection = self._connection(self._timeout_s)
        try:
            response = self._asked(connection, path, query)
            return response.read(MAX_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._broke(error) from None
        finally:
            connection.close()

    def events(self, **query: str | float) -> Iterator[tuple[str, Json]]:
        """(kind, data) of each event as it comes, until the agent ends. Comments keep it from waiting forever."""
        connection = self._connection(self._timeout_s)
        try:
            response = self._asked(connection, "/v1/events", query)
            connection.stream.begin(QUIET_S)
            if not response.getheader("content-type", "").startswith("text/event-stream"):
                raise self._unknown_shape("/v1/events")
            kind = ""
            while line := response.readline(MAX_BYTES):
                name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, from_json(value, Json)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._broke(error) from None
        finally:
            connection.close()

    def _unknown_shape(self, path: str) -> SysperfError:
        return SysperfError(f"{self.path}: the answer to {path} is {UNKNOWN_SHAPE}", RESTART)

    def _connection(self, timeout_s: float) -> _OnSocket:
        return _OnSocket(self.path, timeout_s)

    def _asked(self, connection: http.client.HTTPConnection, path: str, query: Mapping[str, str | float]) -> http.client.HTTPResponse:
        connection.request("GET", f"{path}?{urlencode(query)}" if query else path)
        response = connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            answer = neutral(response.read(2000).decode("utf-8", "replace"))
            raise SysperfError(f"the agent answers {response.status} to {path}: {answer}", LOG)
        return response

    def _broke(self, error: Exception) -> SysperfError:
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            return NoAgent(f"no agent answers at {self.path}", "start one with `sysperf agent`, or name its socket with --socket")
        if isinstance(error, PermissionError):
            return NoAgent(f"{self.path}: you may not talk to this agent", "ask to be added to the group `sysperf`")
        return SysperfError(f"{self.path}: {getattr(error, 'strerror', None) or error or type(error).__name__}", LOG)


class _OnSocket(http.client.HTTPConnection):
    """HTTP on a unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path, self._timeout_s = path, timeout_s

    def connect(self) -> None:
        self.stream = self.sock = _Socket(
            socket.AF_UNIX, socket.SOCK_STREAM
        )  # `sock` is forgotten when the connection ends with the answer
        self.stream.begin(self._timeout_s, WHOLE * self._timeout_s)
        self.stream.connect(self._path)


class _Socket(socket.socket):
    """A socket whose other side may be silent for a time, and talk for another."""

    def begin(self, silent_s: float, whole_s: float = float("inf")) -> None:
        """Count both from now on."""
        self._silent_s, self._end = silent_s, time.monotonic() + whole_s
        self.settimeout(silent_s)

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        """What came, for http.client. Raises TimeoutError."""
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer does not end")
        self.settimeout(min(self._silent_s, left_s))
        return super().recv_into(buffer, nbytes, flags)
