"""The agent's paths: what it knows as JSON, as metrics, and as a stream of events. ``/v1/openapi.json`` describes them.

A path keeps its meaning as long as the number in it: fields are added, none is renamed or taken away.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from sysperf import __version__
from sysperf.agent import events, metrics
from sysperf.agent.answers import AllSeries, AllWorkers, Changes, Event, Findings, History, Index, Meters, Programs, Series
from sysperf.agent.async_store import Hanging
from sysperf.agent.server import EVENT_STREAM, JSON, PROBLEM, Answer, Handler, Problem, Refused, Request
from sysperf.agent.state import AgentState
from sysperf.agent.status import Status
from sysperf.collect.process import workers
from sysperf.host import Host
from sysperf.live.metrics import describe
from sysperf.live.worker import Worker
from sysperf.model.record import JsonObject, json_schemas, to_json
from sysperf.model.snapshot import Snapshot

DEFAULT_SPAN_S = 3_600.0
MAX_SERIES = 100
MAX_POINTS = 10_000
REPLAY = 500
WORKERS_S = 5.0
"""How old the figures of single workers may be that /metrics tells."""
WORKERS_WAIT_S = 2.0
_KINDS = "sample, finding, gone, flapping, process, change, agent, lost"

T = TypeVar("T")


class Parameter(NamedTuple):
    """What a path can be asked with."""

    name: str
    doc: str
    kind: str = "string"
    where: str = "query"


class Route(NamedTuple):
    """A path, what it answers, and who answers."""

    path: str
    doc: str
    handler: Handler
    replies: tuple[type, ...] = ()
    content_type: str = JSON
    parameters: tuple[Parameter, ...] = ()


_HISTORY_PARAMETERS = (
    Parameter("series", f"names of at most {MAX_SERIES} series, separated by commas; without it, all names are listed"),
    Parameter("since", "Unix time; negative: so many seconds before `until`; an hour when it is left out", "number"),
    Parameter("until", "Unix time; now when it is left out", "number"),
    Parameter("points", f"at most so many points of each series, up to {MAX_POINTS}", "integer"),
)
_WORKERS_PARAMETERS = (Parameter("pid", "only those of this program", "integer"),)
_EVENT_PARAMETERS = (
    Parameter("kinds", f"only these kinds, separated by commas: {_KINDS}"),
    Parameter("since", "number of the last event that is known already; later ones that are kept come first", "integer"),
    Parameter("follow", "0: end after those that are kept, instead of waiting for more", "integer"),
    Parameter("Last-Event-ID", "the same, as browsers send it when they connect again", "integer", "header"),
)


class Api:
    """Answers from the state."""

    def __init__(self, state: AgentState, news: events.Events, now: Callable[[], float] = time.time) -> None:
        self._state = state
        self._news = news
        self._now = now
        self._snapshot: tuple[Snapshot | None, bytes] = (None, b"")
        self._reader = Worker("sysperf-ask")
        self._workers_task: asyncio.Task[tuple[workers.Workers, ...]] | None = None
        self._workers_read_at = 0.0
        self.table = (
            Route("/", "what there is to ask", self._index, (Index,)),
            Route("/v1/status", "how the agent is doing", lambda _: _json(state.status()), (Status,)),
            Route("/v1/snapshot", "the facts of the machine, by area", self._last_snapshot, (Snapshot,)),
            Route("/v1/findings", "what rules found, with since when it holds, and what could not be judged", self._findings, (Findings,)),
            Route("/v1/processes", "the running PyTorch programs", lambda _: _json(Programs(state.processes())), (Programs,)),
            Route(
                "/v1/workers",
                "the DataLoader workers of programs, read now",
                self._workers,
                (AllWorkers,),
                parameters=_WORKERS_PARAMETERS,
            ),
            Route(
                "/v1/meters",
                "the latest value of each series",
                lambda _: _json(Meters(now(), dict(state.meters()), state.unknown())),
                (Meters,),
            ),
            Route("/v1/history", "the past of series", self._history, (History, AllSeries), parameters=_HISTORY_PARAMETERS),
            Route("/v1/changes", "what was changed on this machine", lambda _: _json(Changes(state.changes())), (Changes,)),
            Route("/v1/events", f"what happens, as it happens ({_KINDS})", self._events, (Event,), EVENT_STREAM, _EVENT_PARAMETERS),
            Route("/v1/openapi.json", "this description", lambda _: _json(openapi(self.table))),
            Route("/metrics", "everything as Prometheus metrics", self._metrics, content_type=metrics.CONTENT_TYPE),
        )

    def routes(self) -> Mapping[str, Handler]:
        """All paths, for the agent's socket."""
        return {route.path: route.handler for route in self.table}

    def metrics_only(self) -> Mapping[str, Handler]:
        """Paths for a socket that others may reach: figures, and no command lines."""
        return {"/metrics": self._metrics}

    def _index(self, _: Request) -> Answer:
        return _json(Index(__version__, {route.path: route.doc for route in self.table}))

    def _last_snapshot(self, _: Request) -> Answer:
        snapshot = self._state.snapshot()
        if snapshot is None:
            raise Refused(503, "the first snapshot is not taken yet")
        if self._snapshot[0] is not snapshot:
            self._snapshot = (snapshot, to_json(snapshot))
        return 200, JSON, self._snapshot[1]

    def _findings(self, _: Request) -> Answer:
        checks = self._state.checks
        return _json(Findings(self._state.findings(), checks.tally(), checks.unknown()))

    async def _workers(self, request: Request) -> Answer:
        """Read when somebody asks, in a thread: nobody pays for what nobody looks at."""
        known = self._pids()
        wanted = _number(request.query, "pid", -1)
        if request.query.get("pid") and wanted not in known:
            raise Refused(404, "`pid` is not the number of a PyTorch program that runs")
        pids = known if wanted < 0 else [int(wanted)]
        return _json(AllWorkers(await self._read(pids)))

    async def _history(self, request: Request) -> Answer:
        store, query = self._state.store, request.query
        names = tuple(dict.fromkeys(name for name in query.get("series", "").split(",") if name))
        if not names:
            return _json(AllSeries(tuple(Series(name, describe(name)) for name in await _from_history(store.series()))))
        if len(names) > MAX_SERIES:
            raise Refused(400, f"more than {MAX_SERIES} series")
        until = _number(query, "until", self._now())
        since = _number(query, "since", -DEFAULT_SPAN_S)
        since = until + since if since < 0 else since
        if since >= until:
            raise Refused(400, "`since` is not before `until`")
        points = int(min(max(_number(query, "points", 600), 1), MAX_POINTS))
        return _json(History(since, until, await _from_history(store.history(names, since, until, points))))

    def _events(self, request: Request) -> Answer:
        after = request.headers.get("last-event-id", "") or request.query.get("since", "")
        if after and not (after.isascii() and after.isdecimal() and len(after) < 19):
            raise Refused(400, "the number of an event is a whole number")
        kinds = frozenset(kind for kind in request.query.get("kinds", "").split(",") if kind)
        return self._stream(int(after) if after else None, kinds, follow=request.query.get("follow") != "0")

    async def _stream(self, after: int | None, kinds: frozenset[str], *, follow: bool = True) -> AsyncIterator[bytes]:
        """First what was missed, then what happens."""
        with self._news.subscribe(kinds) as subscription:
            yield b"retry: 3000\n\n"
            last = self._state.store.last_event
            last = last if after is None else min(after, last)
            while missed := await self._missed(last) if after is not None else ():
                last = missed[-1].id
                for event in missed:
                    if not kinds or event.kind in kinds:
                        yield events.encode(events.Message(event.kind, event.id, to_json(event)))
            if not follow:
                return
            async for piece in events.stream(subscription, last):
                yield piece

    async def _missed(self, last: int) -> tuple[Event, ...]:
        """Events that are kept; none where the disk does not answer: what happens from now on comes all the same."""
        try:
            return await self._state.store.events(last, REPLAY)
        except Hanging:
            return ()

    async def _metrics(self, _: Request) -> Answer:
        return 200, metrics.CONTENT_TYPE, metrics.render(self._state, await self._all_workers()).encode("utf-8", "replace")

    async def _all_workers(self) -> tuple[workers.Workers, ...]:
        """The workers of all programs that have some, however many scrape at once; none where reading them takes too long."""
        if self._workers_task is None or (self._workers_task.done() and time.monotonic() - self._workers_read_at >= WORKERS_S):
            pids = [pid for pid in self._pids() if self._state.meters().get(f"process.{pid}.workers")]
            self._workers_task, self._workers_read_at = asyncio.ensure_future(self._read(pids)), time.monotonic()
        await asyncio.wait((self._workers_task,), timeout=WORKERS_WAIT_S)
        return self._workers_task.result() if self._workers_task.done() and not self._workers_task.exception() else ()

    def _pids(self) -> list[int]:
        return [program.process.pid for program in self._state.processes()]

    async def _read(self, pids: Sequence[int]) -> tuple[workers.Workers, ...]:
        return await self._reader.run(lambda: tuple(workers.read(Host(), pid) for pid in pids))


async def _from_history(asked: Awaitable[T]) -> T:
    """What the history holds. Raises Refused where its disk does not answer."""
    try:
        return await asked
    except Hanging as error:
        raise Refused(503, str(error)) from None


def _json(value: object) -> Answer:
    return 200, JSON, to_json(value)


def _number(query: Mapping[str, str], name: str, otherwise: float) -> float:
    try:
        value = float(query.get(name) or otherwise)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Refused(400, f"`{name}` is not a number")
    return value


def openapi(table: Iterable[Route]) -> JsonObject:
    """All paths as OpenAPI 3.1, with the schemas of the records that answer."""
    table = tuple(table)
    types = (*dict.fromkeys(reply for route in table for reply in route.replies), Problem)
    references, components = json_schemas(types, "#/components/schemas/{name}")
    schema = dict(zip(types, references, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {"title": "sysperf agent", "version": __version__, "summary": "What makes a PyTorch machine slow, live"},
        "servers": [{"url": "http://localhost", "description": "HTTP/1.1 on the agent's unix socket"}],
        "paths": {route.path: {"get": _operation(route, schema)} for route in table},
        "components": {"schemas": components},
    }


def _operation(route: Route, schema: Mapping[type, JsonObject]) -> JsonObject:
    wrong = {"description": "why there is no answer", "content": {PROBLEM: {"schema": schema[Problem]}}}
    return {
        "operationId": route.path.removeprefix("/v1").strip("/").replace(".", "_") or "index",
        "summary": route.doc,
        "parameters": [
            {"name": parameter.name, "in": parameter.where, "description": parameter.doc, "schema": {"type": parameter.kind}}
            for parameter in route.parameters
        ],
        "responses": {
            "200": {"description": route.doc, "content": {route.content_type.partition(";")[0]: {"schema": _reply(route, schema)}}},
            "default": wrong,
        },
    }


def _reply(route: Route, schema: Mapping[type, JsonObject]) -> JsonObject:
    if route.content_type == EVENT_STREAM:
        return {"type": "string", "description": "server-sent events; the data of those with an id is an Event as JSON"}
    schemas = [schema[reply] for reply in route.replies]
    if len(schemas) > 1:
        return {"anyOf": schemas}
    return schemas[0] if schemas else {"type": "object" if route.content_type == JSON else "string"}
