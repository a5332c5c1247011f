"""The load of each CPU, read while somebody looks at the map."""

from __future__ import annotations

import threading

from sysperf.live.system import System
from sysperf.tui.source import Load, Publish

INTERVAL_S = 1.0


class CpuLoad:
    """A thread while it is on."""

    def __init__(self) -> None:
        self._stop: threading.Event | None = None

    def watch(self, publish: Publish, *, on: bool) -> None:
        """Begin or end."""
        if on and self._stop is None:
            self._stop = threading.Event()
            threading.Thread(target=_read, args=(publish, self._stop), name="sysperf-load", daemon=True).start()
        elif not on and self._stop is not None:
            self._stop.set()
            self._stop = None


def _read(publish: Publish, stop: threading.Event) -> None:
    system = System()
    while not stop.is_set():
        busy = system.per_cpu()
        if busy:
            publish(Load(busy))
        stop.wait(INTERVAL_S)
    system.close()
