"""The store behind a thread: the event loop hands over what is to be kept, and never waits for a disk.

A file system that hangs (a lost mount, a dying disk) costs history; samples, findings and answers go on, and the watchdog
stays fed. What waits is bounded: the newest samples and events are kept.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from sysperf.agent.store import MAX_PENDING, Event, Point, Store
from sysperf.live.worker import Worker

OPEN_S = 10.0
CLOSE_S = 10.0
HANGING_S = 30.0
MAX_EVENTS_WAITING = 1_000

T = TypeVar("T")


class Hanging(Exception):
    """The history cannot be asked: its disk does not answer."""


class _Waiting(NamedTuple):
    """What was not handed over yet."""

    samples: collections.deque[tuple[float, Mapping[str, float]]]
    events: collections.deque[tuple[float, str, str, str, object]]
    seen: dict[str, float]


class AsyncStore:
    """A `Store` for the event loop. Made by `AsyncStore.open`; all calls belong to the loop's thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._worker = Worker("sysperf-store")
        self._waiting = _nothing()
        self._last_event = store.last_event()
        self._size_bytes = store.size_bytes()
        self._flushing: asyncio.Future[None] | None = None
        self._flush_started = 0.0
        self._telling: asyncio.Future[None] | None = None
        self._hung = ""

    @classmethod
    async def open(cls, path: str | None, opened: Callable[[str | None], Store] = Store.open) -> AsyncStore:
        """The history in this file. Where its disk does not answer, a history in memory that says so."""
        opener = Worker("sysperf-open")
        try:
            return cls(await asyncio.wait_for(opener.run(lambda: opened(path)), OPEN_S))
        except asyncio.TimeoutError:
            store = cls(Store.open(None))
            store._hung = f"{path}: its disk does not answer; the history is kept in memory until the agent starts again"
            return store
        finally:
            opener.close()

    @property
    def problem(self) -> str:
        """What is wrong with the history; empty when nothing is."""
        if self._hangs():
            return f"{self._store.path}: its disk does not answer; only the newest samples are kept"
        return self._hung or self._store.problem

    @property
    def size_bytes(self) -> int:
        """What the history took when it was written last, on disk or in memory."""
        return self._size_bytes

    @property
    def last_event(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._last_event

    def append(self, at: float, values: Mapping[str, float]) -> None:
        """Take one sample of many series. It is written by the next `flush`."""
        self._waiting.samples.append((at, values))

    def event(self, at: float, kind: str, subject: str, text: str, data: object = None) -> int:
        """Keep an event; returns its number."""
        self._waiting.events.append((at, kind, subject, text, data))
        self._last_event += 1
        if self._telling is None or self._telling.done():
            self._telling = asyncio.ensure_future(self._hand_over())
        return self._last_event

    def remember(self, fingerprint: str, at: float) -> None:
        """A finding holds now. The first time it does stays known over restarts."""
        self._waiting.seen[fingerprint] = at

    def first_seen(self, fingerprint: str) -> float | None:
        """Return when this finding held first; None when it never did."""
        return self._store.first_seen(fingerprint)

    def last_seen(self, fingerprint: str) -> float | None:
        """Return when this finding held last; None when it never did."""
        return self._store.last_seen(fingerprint)

    def flush(self) -> asyncio.Future[None]:
        """Begin to write what was taken; one writing at a time. Call it about every 10 s; nobody has to wait for it."""
        if self._flushing is None or self._flushing.done():
            self._flush_started = time.monotonic()
            self._flushing = asyncio.ensure_future(self._run(self._store.flush))
        return self._flushing

    # The rest raises Hanging.

    async def events(self, since_id: int = 0, limit: int = 500) -> tuple[Event, ...]:
        """Events after `since_id`, oldest first. More than `limit`: ask again from the last of them."""
        return await self._run(lambda: self._store.events(since_id, limit))

    async def series(self) -> tuple[str, ...]:
        """The names of which there is a history."""
        return await self._run(self._store.series)

    async def history(self, names: tuple[str, ...], since: float, until: float, points: int = 600) -> dict[str, tuple[Point, ...]]:
        """Return at most `points` points of each series between two times, oldest first; empty where nothing is known."""
        return await self._run(lambda: {name: self._store.history(name, since, until, points) for name in names})

    async def close(self) -> None:
        """Write what is there, and let go of the file; a disk that hangs is left behind."""
        with contextlib.suppress(asyncio.TimeoutError, Hanging):
            await asyncio.wait_for(self._run(self._store.close), CLOSE_S)
        self._worker.close()

    # ------------------------------------------------------------------ inside

    async def _hand_over(self) -> None:
        """Events are few, and kept at once."""
        with contextlib.suppress(Hanging):
            while self._waiting.events:
                await self._run(lambda: None)

    def _hangs(self) -> bool:
        writing = self._flushing is not None and not self._flushing.done()
        return writing and time.monotonic() - self._flush_started > HANGING_S

    async def _run(self, work: Callable[[], T]) -> T:
        """Hand over what waits, then do this; everything in the order in which it was asked for."""
        if self._hangs():
            raise Hanging(self.problem)  # more would only pile up behind it
        taken, self._waiting = self._waiting, _nothing()

        def in_thread() -> tuple[T, int, int]:
            _put(self._store, taken)
            result = work()
            return result, self._store.size_bytes(), self._store.last_event()

        result, self._size_bytes, last = await self._worker.run(in_thread)
        self._last_event = max(self._last_event, last + len(self._waiting.events))
        return result


def _nothing() -> _Waiting:
    return _Waiting(collections.deque(maxlen=MAX_PENDING), collections.deque(maxlen=MAX_EVENTS_WAITING), {})


def _put(store: Store, taken: _Waiting) -> None:
    for at, values in taken.samples:
        store.append(at, values)
    for event in taken.events:
        store.event(*event)
    for fingerprint, at in taken.seen.items():
        store.remember(fingerprint, at)
