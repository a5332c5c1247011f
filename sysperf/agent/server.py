"""HTTP/1.1 on a socket: GET of a few paths, and streams of server-sent events. h11 reads and writes the protocol.

Everything a client can do is bounded: the length of a request, the time until it is complete, the time in which the
client must take an answer, and how many clients there are. What one client does or leaves undone costs no other one.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import NamedTuple, cast

import h11

from sysperf.agent.pace import Pace
from sysperf.agent.sockets import BACKLOG, Listener, peer
from sysperf.model.record import Record, to_json
from sysperf.model.text import neutral

JSON = "application/json"
PROBLEM = "application/problem+json"
EVENT_STREAM = "text/event-stream"
SLICE = 16_384
"""What a connection holds of an answer or a request at a time: 200 clients that do not read must not cost 13 MB."""
MAX_FIELDS = 32
MAX_UNREAD = 65_536
LINGER_S = 1.0
TURNS_TO_BEGIN = 4
"""asyncio accepts a connection, makes its transport, and starts its conversation, in turns of the loop that follow each other."""

_log = logging.getLogger("sysperf.agent")


class Limits(NamedTuple):
    """What a client may use."""

    clients: int = 200
    header_bytes: int = 8_192
    header_s: float = 10.0
    idle_s: float = 60.0
    write_s: float = 10.0
    handler_s: float = 30.0
    requests_per_s: float = 20.0
    """Of one user, over all of that user's connections: more wait for their turn, so that nobody keeps the agent busy."""
    requests_at_once: int = 100
    """As many may come first without a wait."""


class Request(NamedTuple):
    """What was asked for."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


Answer = tuple[int, str, bytes] | AsyncIterator[bytes]
Handler = Callable[[Request], Answer | Awaitable[Answer]]


class Problem(Record):
    """Why a request failed (RFC 9457)."""

    status: int
    title: str
    detail: str = ""


class Refused(Exception):
    """A request that is not answered with what it asked for."""

    def __init__(self, status: int, detail: str = "") -> None:
        super().__init__(detail)
        self.status = status


def problem(status: int, detail: str = "") -> tuple[int, str, bytes]:
    """The answer to a request that failed."""
    return status, PROBLEM, to_json(Problem(status, http.HTTPStatus(status).phrase, neutral(detail)))


class Server:
    """Answers on one socket with `routes`, a mapping from path to handler."""

    def __init__(self, routes: Mapping[str, Handler], limits: Limits = Limits()) -> None:  # noqa: B008 - immutable
        self.routes = routes
        self.limits = limits
        self.pace = Pace(limits.requests_per_s, limits.requests_at_once)
        self._tasks: dict[asyncio.Task[None], asyncio.WriteTransport] = {}
        self._listener: Listener | None = None
        self._server: asyncio.AbstractServer | None = None
        self._closing = False

    @property
    def clients(self) -> int:
        """Connections that are open."""
        return len(self._tasks)

    async def start(self, listener: Listener) -> None:
        """Begin to answer on this socket."""
        self._listener = listener
        sock, limit = listener.sock, self.limits.header_bytes
        if sock.family != socket.AF_UNIX:  # systemd can pass a port
            self._server = await asyncio.start_server(self._connected, sock=sock, limit=limit, backlog=BACKLOG)
        elif sys.version_info >= (3, 13):  # from then on asyncio would remove the socket's file, which may be systemd's
            self._server = await asyncio.start_unix_server(self._connected, sock=sock, limit=limit, backlog=BACKLOG, cleanup_socket=False)
        else:
            self._server = await asyncio.start_unix_server(self._connected, sock=sock, limit=limit, backlog=BACKLOG)

    async def close(self) -> None:
        """Stop listening, and end all conversations; those of which the connection has only been accepted end before they begin."""
        self._closing = True
        if self._listener is not None and self._server is not None:
            await self._stop_accepting(self._listener)
            self._server.close()
        for task, transport in self._tasks.items():
            task.cancel()
            transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()

    async def _stop_accepting(self, listener: Listener) -> None:
        """Let what was accepted a moment ago begin. Closed before, Python 3.11 leaves such a connection open without an owner
        (https://github.com/python/cpython/issues/109564), and its client waits for an answer."""
        asyncio.get_running_loop().remove_reader(listener.sock)
        for _ in range(TURNS_TO_BEGIN):
            await asyncio.sleep(0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(self, reader, writer)
        task = asyncio.current_task()
        if self._closing:
            writer.transport.abort()
            return
        if task is None or len(self._tasks) >= self.limits.clients:
            client.turn_away()
            return
        self._tasks[task] = writer.transport
        try:
            await client.talk()
        except (OSError, asyncio.CancelledError):  # gone, too slow, or closed by `close`, which alone cancels this
            pass
        except Exception as error:  # noqa: BLE001 - one client's conversation never ends the agent
            _log.error("a client's connection failed: %s: %s", type(error).__name__, neutral(str(error)))
        finally:
            del self._tasks[task]
            writer.transport.abort()


class _Client:
    """One connection."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._limits = server.limits
        self._reader = reader
        self._writer = writer
        self._user = peer(writer.get_extra_info("socket"))[1]
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.header_bytes)
        self._late = False
        self._only_head = False
        # Nothing waits in our memory: `drain` returns when the kernel has taken all.
        writer.transport.set_write_buffer_limits(high=0)

    def turn_away(self) -> None:
        """Say that there are too many, without waiting for anything."""
        status, kind, body = problem(503, "too many clients")
        head = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        self._writer.write(f"{head}retry-after: 10\r\nconnection: close\r\n\r\n".encode() + body)
        self._writer.transport.abort()

    async def talk(self) -> None:
        """Answer one request after the other."""
        wait_s = self._limits.header_s
        while await self._answer_one(wait_s):
            wait_s = self._limits.idle_s
        await self._linger()

    async def _answer_one(self, wait_s: float) -> bool:
        """Answer one request; False when it was the last of this connection."""
        try:
            asked = await self._asked(wait_s)
            await asyncio.sleep(self._server.pace.wait_s(self._user, time.monotonic()))
        except h11.RemoteProtocolError as error:
            await self._send(*problem(error.error_status_hint, str(error)), last=True)
            return False
        except Refused as error:
            await self._send(*problem(error.status, str(error)), last=True)
            return False
        if asked is None:
            return False
        answer = await self._answer(asked)
        if isinstance(answer, tuple):
            await self._send(*answer)
        else:
            await self._stream(answer)
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _asked(self, wait_s: float) -> h11.Request | None:
        """The next request, complete; None when the client closed or sent none in time."""
        if not self._http.trailing_data[0]:
            with self._within(wait_s, self._stop_reading):
                self._http.receive_data(await self._reader.read(SLICE))
        try:
            with self._within(self._limits.header_s, self._stop_reading):
                return await self._complete()
        except h11.RemoteProtocolError:
            if self._late:
                raise Refused(408, f"the request was not complete within {self._limits.header_s:g} s") from None
            raise

    @contextlib.contextmanager
    def _within(self, seconds: float, otherwise: Callable[[], None]) -> Iterator[None]:
        """Do something when this takes longer. Cheaper than `wait_for`, which before Python 3.12 can lose a cancellation."""
        timer = asyncio.get_running_loop().call_later(seconds, otherwise)
        try:
            yield
        finally:
            timer.cancel()

    def _stop_reading(self) -> None:
        """Take what was read so far for all there is."""
        self._late = True
        cast("asyncio.Transport", self._writer.transport).pause_reading()
        self._reader.feed_eof()

    async def _complete(self) -> h11.Request | None:
        request = await self._event()
        if not isinstance(request, h11.Request):
            return None
        self._only_head = request.method == b"HEAD"
        # Beside a length, pieces may be two requests for us, and one for whoever stands between (RFC 9112, 6.3).
        in_pieces = any(name == b"transfer-encoding" for name, _ in request.headers)
        if in_pieces or (self._http.their_state is h11.SEND_BODY and not isinstance(self._http.next_event(), h11.EndOfMessage)):
            raise Refused(405 if request.method != b"GET" else 413, "only GET without a body is understood")
        return request

    async def _event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(SLICE))
        return event

    async def _answer(self, asked: h11.Request) -> Answer:
        try:
            answer = self._handler(asked)
            return await asyncio.wait_for(answer, self._limits.handler_s) if isinstance(answer, Awaitable) else answer
        except Refused as error:
            return problem(error.status, str(error))
        except Exception as error:  # noqa: BLE001 - a handler that fails is a failed request, not a failed agent
            _log.error("GET %s: %s: %s", neutral(asked.target.decode("latin-1"), 200), type(error).__name__, neutral(str(error)))
            return problem(500, "the agent failed to answer; its log says more")

    def _handler(self, asked: h11.Request) -> Answer | Awaitable[Answer]:
        """Ask whoever is responsible for the path. Raises Refused when nobody is."""
        if asked.method != b"GET":
            raise Refused(405, "only GET is understood")
        request = _parsed(asked)
        handler = self._server.routes.get(request.path)
        if handler is None:
            raise Refused(404, f"there is no {request.path}: GET / lists what there is")
        return handler(request)

    async def _send(self, status: int, kind: str, body: bytes, *, last: bool = False) -> None:
        headers = [("content-type", kind), ("content-length", str(len(body))), ("cache-control", "no-store")]
        headers += [("allow", "GET")] if status == 405 else []
        headers += [("connection", "close")] if last else []
        head = self._http.send(h11.Response(status_code=status, headers=headers)) or b""
        body = b"" if self._only_head else body
        first = self._http.send(h11.Data(data=body[:SLICE])) or b""
        await self._write(head + first)
        for start in range(SLICE, len(body), SLICE):
            await self._write(self._http.send(h11.Data(data=body[start : start + SLICE])))
        await self._write(self._http.send(h11.EndOfMessage()))

    async def _write(self, data: bytes | None) -> None:
        """Hand over, waiting no longer than a client that reads would take."""
        if data:
            self._writer.write(data)
            with self._within(self._limits.write_s, self._writer.transport.abort):
                await self._writer.drain()

    async def _stream(self, pieces: AsyncIterator[bytes]) -> None:
        """Send pieces as they come, until they end or the client goes."""
        pump = asyncio.ensure_future(self._pump(pieces))
        watch = asyncio.ensure_future(self._until_gone())
        try:
            await asyncio.wait({pump, watch}, return_when=asyncio.FIRST_COMPLETED)
            if watch.done() and not watch.result():
                await asyncio.wait({pump})
        finally:
            pump.cancel()
            watch.cancel()
            await asyncio.gather(pump, watch, return_exceptions=True)

    async def _pump(self, pieces: AsyncIterator[bytes]) -> None:
        headers = [("content-type", EVENT_STREAM), ("cache-control", "no-store"), ("connection", "close")]
        try:
            await self._write(self._http.send(h11.Response(status_code=200, headers=headers)))
            async for piece in pieces:
                await self._write(self._http.send(h11.Data(data=piece)))
            await self._write(self._http.send(h11.EndOfMessage()))
        finally:
            close = getattr(pieces, "aclose", None)
            if close is not None:
                await close()

    async def _until_gone(self) -> bool:
        """Whether the client is gone, or misbehaves. One that only closed its sending side may still listen."""
        unread = 0
        with contextlib.suppress(OSError):
            while data := await self._reader.read(SLICE):
                unread += len(data)
                if unread > MAX_UNREAD:
                    return True
            if self._http.our_state is h11.SEND_BODY:
                self._writer.write(self._http.send(h11.Data(data=b":\n\n")) or b"")
            return self._writer.transport.is_closing()
        return True

    async def _linger(self) -> None:
        """End in an order in which the last answer arrives: with requests unread, a close would discard it."""
        if not self._late and not self._writer.transport.is_closing():
            self._writer.write_eof()
            with contextlib.suppress(OSError), self._within(LINGER_S, self._writer.transport.abort):
                await self._reader.read(MAX_UNREAD)


def _parsed(asked: h11.Request) -> Request:
    target = asked.target.decode("latin-1")
    if target.startswith(("http://", "https://")):
        target = "/" + target.split("/", 3)[3] if target.count("/") > 2 else "/"
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in asked.headers}
    if "?" not in target and "%" not in target:
        return Request(target, {}, headers)
    from urllib.parse import parse_qsl, unquote  # noqa: PLC0415 - 0.5 MB, which most agents never need

    path, _, query = target.partition("?")
    try:
        fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise Refused(400, f"more than {MAX_FIELDS} parameters") from None
    return Request(unquote(path, errors="replace"), fields, headers)
