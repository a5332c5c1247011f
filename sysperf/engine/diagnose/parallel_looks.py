"""Samplers of several programs at the same time: a thread for each, and one time at which all of them end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from sysperf.host import commands

Key = TypeVar("Key")
Found = TypeVar("Found")
UNWIND_S = 2.0
"""At most, until the looks whose samplers were killed have taken their files away."""


class ParallelLooks(Generic[Key, Found]):
    """What looks found, by the key that they were started with. A context: however it is left, no sampler stays.

    A look may wait for what the program's user keeps from answering, such as a file system of his own: it is given up then, and
    its thread ends with this process.
    """

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._ended: dict[Key, threading.Event] = {}
        """Of each look. A thread itself does not tell while it begins: a signal may come before it has."""
        self._found: dict[Key, Found] = {}
        self._failed: list[BaseException] = []

    def __enter__(self) -> ParallelLooks[Key, Found]:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def start(self, key: Key, look: Callable[[], Found]) -> None:
        """Begin a look."""
        thread = threading.Thread(target=self._run, args=(key, look), daemon=True)
        self._threads.append(thread)
        self._ended[key] = threading.Event()
        thread.start()

    def _run(self, key: Key, look: Callable[[], Found]) -> None:
        try:
            self._found[key] = look()
        except BaseException as error:  # noqa: BLE001 - it belongs to who waits
            self._failed.append(error)
        finally:
            self._ended[key].set()

    def results(self, seconds: float) -> dict[Key, Found]:
        """What was found within so many seconds; samplers that still run are killed then. Raises what a look raised."""
        try:
            self._join(seconds)
        finally:
            self._end()
        if self._failed:
            raise self._failed[0]
        return dict(self._found)

    @property
    def pending(self) -> list[Key]:
        """The looks that have not ended."""
        return [key for key, ended in self._ended.items() if not ended.is_set()]

    def _end(self) -> None:
        """Kill samplers, and wait until no look runs."""
        end = time.monotonic() + UNWIND_S
        while self.pending and time.monotonic() < end:
            commands.stop(self._threads)
            self._join(0.05)

    def _join(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for ended in self._ended.values():
            ended.wait(max(0.0, end - time.monotonic()))
