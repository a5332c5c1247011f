"""A thread for what may take long or hang: the event loop only waits for its answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Task = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Worker:
    """Runs one function after the other. A daemon thread: one that hangs in a driver never keeps the agent from ending."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`; what it raises is raised here."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._tasks.put((work, loop, answer))
        return await answer

    def close(self) -> None:
        """Let the thread end when it has done what it was given."""
        self._tasks.put(None)
        self._thread = None

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            work, loop, answer = task
            try:
                result, error = work(), None
            except BaseException as raised:  # noqa: BLE001 - whoever waits shall have it
                result, error = None, raised
            try:
                loop.call_soon_threadsafe(_deliver, answer, result, error)
            except RuntimeError:  # the loop ended meanwhile
                return
            del task, work, answer, result, error


def _deliver(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.cancelled():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
