"""An agent's socket: what it knows, and what happens as it happens. Also a socket that ssh forwards from another machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from sysperf.agent import answers
from sysperf.agent.client import RESTART, UNKNOWN_SHAPE, Client, NoAgent
from sysperf.collect.process.workers import Workers
from sysperf.model.errors import SysperfError
from sysperf.model.finding import Report, Tally
from sysperf.model.text import neutral
from sysperf.tui import decode
from sysperf.tui.now import KEPT, meters_of
from sysperf.tui.source import Changed, Facts, History, Mark, Meters, Past, Problem, Publish
from sysperf.tui.sources.load import CpuLoad
from sysperf.tui.widgets.curves import SERIES

RETRY_S = 2.0
REFRESH_S = 30.0
"""Facts change without an event."""
AT_MOST_EVERY_S = 1.0
MARKED = ("finding", "gone", "change")


class Agent:
    """Follows one agent, and finds it again when it was restarted."""

    live = True
    remembers = True

    def __init__(self, path: str, *, name: str = "", local: bool = True, ended: Callable[[], str] = str) -> None:
        """`ended` says why the way to the agent is closed for good; empty while it is open."""
        self.name = name or f"agent at {neutral(path, 60)}"
        self.local = local
        self._ended = ended
        self._client = Client(path)
        self._snapshots = decode.SnapshotDecoder()
        self._stop = threading.Event()
        self._stale = threading.Event()
        self._load_of_cpus = CpuLoad()
        self._publish: Publish = lambda _: None

    def start(self, publish: Publish) -> None:
        self._publish = publish
        threading.Thread(target=self._follow, args=(publish,), name="sysperf-agent", daemon=True).start()

    def close(self) -> None:
        self._stop.set()
        self.watch_cpus(on=False)

    def look_again(self) -> None:
        self._stale.set()

    def watch_cpus(self, *, on: bool) -> None:
        """The agent does not sample each CPU: on its machine, we can."""
        if self.local:
            self._load_of_cpus.watch(self._publish, on=on)

    def workers(self, pid: int) -> Workers | None:
        return next(iter(self._client.ask("/v1/workers", answers.AllWorkers, pid=pid).programs), None)

    def series(self) -> list[tuple[str, str]]:
        listed = self._client.ask("/v1/history", answers.AllSeries).series
        return [(neutral(series.name, 200), neutral(series.doc, 200)) for series in listed]

    def history(self, names: Sequence[str], span_s: float, points: int) -> History:
        past = self._client.ask("/v1/history", answers.History, series=",".join(names), since=-span_s, points=points)
        marks = [mark for mark in self._marks() if mark.at >= past.since]
        series = {name: [(point.at, point.mean, point.low, point.high) for point in kept] for name, kept in past.history.items()}
        return History(series, marks, past.since, past.until)

    def _marks(self) -> Iterator[Mark]:
        for kind, event in self._client.events(since=0, follow=0, kinds=",".join(MARKED)):
            if kind in MARKED and isinstance(event, dict):
                subject, text, data = (event.get(name) for name in ("subject", "text", "data"))
                named = f"{subject}: {text}" if subject and kind != "change" else str(text or "")
                key = str(data.get("key", "")) if isinstance(data, dict) else ""
                yield Mark(float(event.get("at") or 0), kind, neutral(named, 200), key)

    # ------------------------------------------------------------------ following

    def _follow(self, publish: Publish) -> None:
        first = True
        while not self._stop.is_set():
            try:
                self._refresh(publish)
                if first:
                    self._curves(publish)
                first = False
                publish(Problem(""))
                self._events(publish)
            except SysperfError as error:
                ended = self._ended()
                publish(Problem(ended) if ended else _problem(error))
            except (KeyError, TypeError, ValueError, AttributeError):
                publish(Problem(f"the agent's answers are {UNKNOWN_SHAPE}: {RESTART}"))
            self._stop.wait(RETRY_S)

    def _events(self, publish: Publish) -> None:
        refreshed = time.monotonic()
        self._stale.set()  # what happened between the last question and this connection
        for kind, data in self._client.events():
            if self._stop.is_set():
                return
            if kind == "sample":
                publish(Meters(float(data["at"]), data["meters"]))
            else:
                self._stale.set()
            age = time.monotonic() - refreshed
            if age > REFRESH_S or (self._stale.is_set() and age > AT_MOST_EVERY_S):
                self._refresh(publish)
                refreshed = time.monotonic()

    def _refresh(self, publish: Publish) -> None:
        self._stale.clear()
        facts = self._snapshots.decode(self._client.get_text("/v1/snapshot"))
        if facts is None:
            raise ValueError("not a snapshot")
        told = self._client.get("/v1/findings")
        active = [finding for finding in told["findings"] if finding["state"] == "active"]
        found = [(finding["first_seen"], outcome) for finding in active if (outcome := decode.outcome(finding["outcome"])) is not None]
        since = {outcome.key: float(first) for first, outcome in found}
        tally = answers.read(told.get("tally"), Tally)  # None: of an older agent
        unknown = filter(None, map(decode.outcome, told.get("unknown", ())))
        version = neutral(self._client.ask("/v1/status", answers.Status).version, 40)
        report = Report(
            sysperf=version,
            snapshot=facts,
            outcomes=(*(outcome for _, outcome in found), *unknown),
            tally=msgspec.structs.replace(tally or Tally(), findings=len(found)),
        )
        publish(Facts(report, since, counted=tally is not None))
        publish(Changed(decode.changes(self._client.get("/v1/changes"))))
        latest = self._client.ask("/v1/meters", answers.Meters)
        publish(Meters(latest.at, {**meters_of(facts), **latest.meters}, latest.unknown))

    def _curves(self, publish: Publish) -> None:
        past = self._client.ask("/v1/history", answers.History, series=",".join(SERIES), since=-KEPT, points=KEPT)
        publish(Past({name: [point.mean for point in points] for name, points in past.history.items() if points}))


def _problem(error: SysperfError) -> Problem:
    if isinstance(error, NoAgent):
        return Problem(str(error), again=True)
    return Problem(f"{error}" + (f". {error.hint}" if error.hint else ""))
