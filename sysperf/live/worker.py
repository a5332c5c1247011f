"""A thread for what may take long or hang: the event loop only waits for its answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """Runs one function after the other. A daemon thread: one that hangs in a driver never keeps the agent from ending."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: SimpleQueue[Callable[[], bool] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`; what it raises is raised here."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._tasks.put(lambda: _run(work, loop, answer))
        return await answer

    def close(self) -> None:
        """Let the thread end when it has done what it was given."""
        self._tasks.put(None)
        self._thread = None

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None and task():
            del task  # what it holds is not kept while this waits for the next


def _run(work: Callable[[], T], loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T]) -> bool:
    """Do one work in this thread and deliver its answer in the loop's. False when the loop ended meanwhile."""
    try:
        deliver = partial(answer.set_result, work())
    except BaseException as error:  # noqa: BLE001 - whoever waits shall have it
        deliver = partial(answer.set_exception, error)
    try:
        loop.call_soon_threadsafe(lambda: None if answer.cancelled() else deliver())
    except RuntimeError:
        return False
    return True
