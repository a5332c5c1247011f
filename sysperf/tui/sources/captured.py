"""A captured machine: judged once, and still."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from sysperf.collect.process import workers
from sysperf.collect.process.workers import Workers
from sysperf.engine.audit import audit
from sysperf.engine.judging import Terms
from sysperf.host import Host
from sysperf.model.errors import SysperfError
from sysperf.model.text import neutral
from sysperf.tui.now import meters_of
from sysperf.tui.source import Facts, History, Meters, Problem, Publish


class Captured:
    """Reads a capture in a thread, so that the screen is there first."""

    local = False
    live = False
    remembers = False

    def __init__(self, host: Host, load: Callable[[], Terms]) -> None:
        self.name = f"captured machine {neutral(host.root, 200)}"
        self._host = host
        self._load = load

    def start(self, publish: Publish) -> None:
        threading.Thread(target=self._read, args=(publish,), name="sysperf-capture", daemon=True).start()

    def _read(self, publish: Publish) -> None:
        try:
            terms = self._load()
            report = audit(self._host, terms)
        except SysperfError as error:
            publish(Problem(f"{error}. {error.hint}"))
            return
        publish(Facts(report))
        publish(Meters(0.0, meters_of(report.snapshot)))

    def close(self) -> None:
        """Close nothing: nothing is open."""

    def look_again(self) -> None:
        """A capture never changes."""

    def watch_cpus(self, *, on: bool) -> None:
        """A capture has no load."""

    def workers(self, pid: int) -> Workers | None:
        return workers.read(self._host, pid)

    def series(self) -> list[tuple[str, str]]:
        return []

    def history(self, names: Sequence[str], span_s: float, points: int) -> History:  # noqa: ARG002 - as the others
        return History({})
