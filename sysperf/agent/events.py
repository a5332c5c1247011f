"""Events for clients that listen, as server-sent events.

Format  https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from sysperf.model.record import to_json

QUEUE = 256
"""Messages that wait for one listener; beyond, the oldest are dropped, and it gets their number."""
QUIET_S = 15.0
"""A comment this often keeps a quiet stream open, and finds out who is gone."""


class Message(NamedTuple):
    """One event, encoded once for all listeners. Those with a number are in the store, and can be asked for again."""

    kind: str
    number: int
    data: bytes


class Subscription:
    """One listener's queue."""

    def __init__(self, kinds: frozenset[str] = frozenset(), most: int = QUEUE) -> None:
        self._kinds = kinds
        self._most = most
        self._waiting: deque[Message] = deque()
        self._lost = 0
        self._ready = asyncio.Event()

    def put(self, message: Message) -> None:
        """Add without waiting."""
        if self._kinds and message.kind not in self._kinds:
            return
        if len(self._waiting) >= self._most:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(message)
        self._ready.set()

    async def next(self, wait_s: float = QUIET_S) -> Message | None:
        """The next message; None when there is none for so long. Says first what was lost."""
        if not self._waiting:
            self._ready.clear()
            timer = asyncio.get_running_loop().call_later(wait_s, self._ready.set)
            try:
                await self._ready.wait()
            finally:
                timer.cancel()
        if self._lost:
            lost, self._lost = self._lost, 0
            return Message("lost", 0, to_json({"messages": lost}))
        return self._waiting.popleft() if self._waiting else None


class Events:
    """Passes messages on to listeners. Call it from the event loop's thread."""

    def __init__(self) -> None:
        self._listeners: set[Subscription] = set()

    @property
    def listeners(self) -> int:
        """How many listen now. With none, there is no need to make a message."""
        return len(self._listeners)

    def publish(self, kind: str, payload: object, number: int = 0) -> None:
        """Tell everybody. `number` is that of the event in the store, for those who come back later."""
        if not self._listeners:
            return
        message = Message(kind, number, to_json(payload))
        for listener in self._listeners:
            listener.put(message)

    @contextlib.contextmanager
    def subscribe(self, kinds: frozenset[str] = frozenset()) -> Iterator[Subscription]:
        """Listen to these kinds, or to all."""
        subscription = Subscription(kinds)
        self._listeners.add(subscription)
        try:
            yield subscription
        finally:
            self._listeners.discard(subscription)


def encode(message: Message) -> bytes:
    """The message on the wire. JSON has no newlines, so the data is one line."""
    number = f"id: {message.number}\n" if message.number else ""
    return f"{number}event: {message.kind}\ndata: ".encode() + message.data + b"\n\n"


async def stream(subscription: Subscription, after: int = 0) -> AsyncIterator[bytes]:
    """Messages newer than number `after` for as long as somebody listens, with a comment when it is quiet."""
    while True:
        message = await subscription.next()
        if message is None:
            yield b":\n\n"
        elif not message.number or message.number > after:
            yield encode(message)
