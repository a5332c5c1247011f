"""The agent's paths, asked over a real socket; the description of them, checked against what they answer."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.agent import api
from sysperf.agent.events import QUEUE, Events, Message, encode
from sysperf.agent.status import Status
from sysperf.agent.store import Event, Store
from sysperf.collect.process import workers
from sysperf.collect.process.workers import Worker, Workers
from sysperf.host import Host
from sysperf.live.tracked_finding import TrackedFinding
from sysperf.model.record import convert, to_json
from tests.agent.states import PID, START, Running, Table, connect, eventually, read_until, serving
from tests.report import reports


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> object:
    """A server with a minute of history."""
    with serving(tmp_path_factory.mktemp("api")) as server:
        for second in range(60):
            server.call(server.table.store.append, START + second, {"cpu.busy": second / 100, "odd.name": 1.0})
        server.call(server.table.store.flush)
        yield server


def ask(running: Running, target: str, *headers: str) -> Any:
    """What a path answers."""
    reply = running.get(target, *headers)
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"] == "application/json"
    return json.loads(reply.body)


def test_workers_are_read_when_somebody_asks(running: Running) -> None:
    """Of one program, of all, and of none that the agent does not watch."""
    assert [program["pid"] for program in ask(running, "/v1/workers")["programs"]] == [PID]
    assert [program["pid"] for program in ask(running, f"/v1/workers?pid={PID}")["programs"]] == [PID]
    assert running.get("/v1/workers?pid=1").status == 404
    assert running.get("/v1/workers?pid=x").status == 400


def test_many_who_scrape_cost_one_reading_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of a program that has some are in /metrics; one that hangs is left out, and holds nothing up for long."""
    reads, hang = [], threading.Event()

    def read(_: Host, pid: int) -> Workers:
        reads.append(pid)
        hang.wait(20 if len(reads) > 1 else 0)
        return Workers(pid, 1.0, (Worker(50, "R", 2.5),))

    monkeypatch.setattr(workers, "read", read)
    line = b'worker="0"} 2.5'
    with serving(tmp_path) as running:
        assert all(line in running.get("/metrics").body for _ in range(5))
        assert reads == [PID]

        monkeypatch.setattr(api, "WORKERS_S", 0.0)
        monkeypatch.setattr(api, "WORKERS_WAIT_S", 0.2)
        answer = running.get("/metrics")
        assert (answer.status, line in answer.body, b"sysperf_process_cpus" in answer.body) == (200, False, True)
        running.table.figures = {}  # nobody has workers any more
        hang.set()
        assert eventually(lambda: line not in running.get("/metrics").body)
        assert len(reads) == 2


def test_the_index_lists_every_path(running: Running) -> None:
    """And every path it lists answers."""
    routes = ask(running, "/")["routes"]

    assert "/v1/openapi.json" in routes
    assert all(running.get(path).status == 200 for path in routes if path != "/v1/events")


def test_records_come_back_as_they_were(running: Running) -> None:
    """What is sent reads back as the same records."""
    table = running.table
    (first, second) = ask(running, "/v1/findings")["findings"]

    assert (convert(first, TrackedFinding), convert(second, TrackedFinding)) == table.held
    assert convert(ask(running, "/v1/status"), Status) == table.status()
    assert ask(running, "/v1/snapshot") == json.loads(to_json(table.shown))
    table.unknown = lambda: {"gpu.0.sm_active": "its driver has no such file"}
    assert ask(running, "/v1/meters") == {"at": START + 60, "meters": table.figures, "unknown": table.unknown()}
    assert ask(running, "/v1/processes")["processes"][0]["process"]["pid"] == 4242
    assert ask(running, "/v1/changes")["changes"][0]["steps"][0]["change"]["knob"] == "vm.swappiness"


def test_before_the_first_snapshot_there_is_none(tmp_path: Path) -> None:
    """503 with the reason, not an empty machine."""
    table = Table()
    table.shown = None
    with serving(tmp_path, table) as running:
        reply = running.get("/v1/snapshot")

    assert reply.status == 503
    assert json.loads(reply.body)["detail"] == "the first snapshot is not taken yet"


def test_a_new_snapshot_is_shown(tmp_path: Path) -> None:
    """What was encoded for the last one is not shown again."""
    with serving(tmp_path) as running:
        before = ask(running, "/v1/snapshot")
        running.table.shown = reports.snapshot(kernel={"release": "7.0"})
        assert ask(running, "/v1/snapshot") != before


def test_text_that_is_no_utf_8_is_shown(tmp_path: Path) -> None:
    """A lone surrogate in a fact does not make the machine unreadable."""
    table = Table()
    table.shown = reports.snapshot(kernel={"release": "6.1\udcff"})
    with serving(tmp_path, table) as running:
        assert "6.1" in ask(running, "/v1/snapshot")["areas"]["kernel"]["facts"]["release"]


def test_history_of_several_series(running: Running) -> None:
    """Each with its points as [at, mean, low, high]; one that nobody knows is empty."""
    answer = ask(running, f"/v1/history?series=cpu.busy,nobody&since={START}&until={START + 59}&points=60")

    assert answer["history"]["nobody"] == []
    assert [point[0] - START for point in answer["history"]["cpu.busy"]] == list(range(60))
    assert answer["history"]["cpu.busy"][7][1:] == pytest.approx([0.07] * 3)


def test_history_counts_back_from_now(running: Running) -> None:
    """A negative `since` is an age; without one it is an hour."""
    assert ask(running, "/v1/history?series=cpu.busy&since=-30")["since"] == START + 30
    assert ask(running, "/v1/history?series=cpu.busy")["since"] == START + 60 - 3_600
    assert len(ask(running, "/v1/history?series=cpu.busy&points=3&since=-60")["history"]["cpu.busy"]) == 3


def test_history_lists_its_series(running: Running) -> None:
    """With what each says."""
    series = {entry["name"]: entry["doc"] for entry in ask(running, "/v1/history")["series"]}

    assert "share" in series["cpu.busy"]
    assert series["odd.name"] == ""


@pytest.mark.parametrize("query", ["since=x", "until=nan", "since=inf", "points=many", "since=2&until=1", "until=1&since=1", "since=1e999"])
def test_a_wrong_question_is_told_so(running: Running, query: str) -> None:
    """400 with the parameter."""
    reply = running.get(f"/v1/history?series=a&{query}")

    assert reply.status == 400
    assert reply.headers["content-type"] == "application/problem+json"
    assert json.loads(reply.body)["detail"]


def test_too_many_series_are_refused(running: Running) -> None:
    """A question has a limit."""
    assert running.get("/v1/history?series=" + ",".join(f"s{number}" for number in range(101))).status == 400


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"), max_size=60))
@settings(max_examples=25)
def test_any_question_has_an_answer(running: Running, query: str) -> None:
    """Whatever is asked: an answer, or a reason."""
    assert running.get(f"/v1/history?{query}").status in (200, 400)


# ---------------------------------------------------------------------- the description


def registry(description: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of the description as one that stands alone."""
    return {**schema, "components": description["components"]}


def test_every_answer_is_as_described(running: Running) -> None:
    """Each path of the server is in the description, and what it answers satisfies its schema."""
    description = ask(running, "/v1/openapi.json")
    routes = ask(running, "/")["routes"]

    assert set(description["paths"]) == set(routes)
    for path in routes:
        (media,) = description["paths"][path]["get"]["responses"]["200"]["content"].items()
        if media[0] != "application/json":
            continue
        for target in (path, f"{path}?series=cpu.busy"):
            jsonschema.Draft202012Validator(registry(description, media[1]["schema"])).validate(ask(running, target))


def test_problems_are_as_described(running: Running) -> None:
    """The answer to what cannot be answered, too."""
    description = ask(running, "/v1/openapi.json")
    schema = description["paths"]["/v1/history"]["get"]["responses"]["default"]["content"]["application/problem+json"]["schema"]

    jsonschema.Draft202012Validator(registry(description, schema)).validate(json.loads(running.get("/nope").body))


def test_a_wrong_answer_would_be_noticed(running: Running) -> None:
    """The schemas say something: an answer without a field fails."""
    description = ask(running, "/v1/openapi.json")
    schema = description["paths"]["/v1/status"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    answer = ask(running, "/v1/status")
    del answer["started_at"]

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(registry(description, schema)).validate(answer)


def test_the_description_is_openapi(running: Running) -> None:
    """What OpenAPI 3.1 asks of a document: version, unique operations, responses, parameters with a place, references that lead somewhere."""
    description = ask(running, "/v1/openapi.json")
    operations = [path["get"] for path in description["paths"].values()]

    assert description["openapi"].startswith("3.1.")
    assert {"title", "version"} <= set(description["info"])
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all(operation["responses"]["200"]["description"] for operation in operations)
    assert all(parameter["in"] in ("query", "header") for operation in operations for parameter in operation["parameters"])
    for reference in references(description):
        assert reference.removeprefix("#/components/schemas/") in description["components"]["schemas"]
    for schema in description["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_a_validator_accepts_the_description(running: Running) -> None:
    """The one of the OpenAPI community, with the whole grammar."""
    validator = pytest.importorskip("openapi_spec_validator", reason="no openapi-spec-validator: install the dev dependencies")

    validator.validate(ask(running, "/v1/openapi.json"))


def references(node: Any) -> list[str]:
    """All references of a document."""
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [reference for value in node.values() for reference in references(value)]
    return [reference for value in node for reference in references(value)] if isinstance(node, list) else []


# ---------------------------------------------------------------------- events


def listen(running: Running, target: str = "/v1/events", *headers: str) -> Any:
    """A client that listens, past the head."""
    client = connect(running.path)
    client.sendall("\r\n".join([f"GET {target} HTTP/1.0", *headers, "", ""]).encode())
    read_until(client, b"retry: 3000\n\n")
    return client


def test_what_happens_is_heard(tmp_path: Path) -> None:
    """By all who listen, with the number under which it is kept."""
    with serving(tmp_path) as running, listen(running) as everything, listen(running, "/v1/events?kinds=finding") as findings:
        number = running.call(running.table.store.event, START, "finding", "GPU 0", "came")
        running.call(running.events.publish, "sample", {"cpu.busy": 0.5})
        running.call(running.events.publish, "finding", Event(number, START, "finding", "GPU 0", "came"), number)
        heard = read_until(everything, b"came").decode()

        assert heard.startswith('event: sample\ndata: {"cpu.busy":0.5}\n\nid: 1\nevent: finding\ndata: {"id":1,')
        assert read_until(findings, b"came").startswith(b"id: 1\nevent: finding\n")


@pytest.mark.parametrize("how", ["header", "query"])
def test_who_comes_back_hears_what_was_missed(tmp_path: Path, how: str) -> None:
    """After the last number it knows, in order, once, and then what is new."""
    with serving(tmp_path) as running:
        for text in ("one", "two", "three"):
            running.call(running.table.store.event, START, "finding", "", text)
        asked = ("/v1/events", "Last-Event-ID: 1") if how == "header" else ("/v1/events?since=1",)
        with connect(running.path) as client:
            client.sendall("\r\n".join([f"GET {asked[0]} HTTP/1.0", *asked[1:], "", ""]).encode())
            heard = read_until(client, b"three")
            running.call(running.events.publish, "finding", Event(3, START, "finding", "", "three"), 3)
            number = running.call(running.table.store.event, START, "finding", "", "four")
            running.call(running.events.publish, "finding", Event(number, START, "finding", "", "four"), number)
            heard = read_until(client, b"four", heard)

        assert [line for line in heard.decode().splitlines() if line.startswith("id:")] == ["id: 2", "id: 3", "id: 4"]


def test_a_number_from_another_life_is_no_hindrance(tmp_path: Path) -> None:
    """The history was lost and counts anew: who knows a higher number hears what is new."""
    with serving(tmp_path) as running, listen(running, "/v1/events", "Last-Event-ID: 999999") as client:
        number = running.call(running.table.store.event, START, "finding", "", "new")
        running.call(running.events.publish, "finding", Event(number, START, "finding", "", "new"), number)
        assert b"id: 1" in read_until(client, b"new")


@pytest.mark.parametrize("number", ["x", "-1", "1.5", "9" * 30, "%D9%A1"])
def test_a_number_that_is_none_is_refused(running: Running, number: str) -> None:
    """400, not a stream from the beginning."""
    assert running.get(f"/v1/events?since={number}").status == 400


def test_a_listener_that_is_too_slow_is_told_what_it_lost(tmp_path: Path) -> None:
    """The oldest go; it hears how many, then what is newest."""
    with serving(tmp_path) as running, listen(running) as client:
        padding = "x" * 4_000

        def burst() -> None:
            for number in range(QUEUE * 3):
                running.events.publish("sample", {"number": number, "padding": padding})

        running.call(burst)
        heard = read_until(client, f'"number":{QUEUE * 3 - 1},'.encode()).decode()

        assert 'event: lost\ndata: {"messages":512}\n\n' in heard
        assert heard.count("event: sample") == QUEUE


def test_nobody_listens_costs_nothing() -> None:
    """A payload is not even encoded."""
    Events().publish("sample", object())


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=40), max_size=4))
@settings(max_examples=25)
def test_no_text_breaks_the_stream(payload: dict[str, str]) -> None:
    """Newlines in data never end an event early."""
    raw = encode(Message("sample", 3, json.dumps(payload).encode()))

    assert raw.count(b"\n\n") == 1
    assert raw.endswith(b"\n\n")
    assert json.loads(raw.split(b"data: ", 1)[1]) == payload


def test_events_survive_in_the_store(tmp_path: Path) -> None:
    """A restart: the client that comes back hears what happened while it was away."""
    store = Store.open(str(tmp_path / "history.db"))
    store.event(START, "finding", "", "before")
    store.close()
    with serving(tmp_path, Table(Store.open(str(tmp_path / "history.db")))) as running, connect(running.path) as client:
        client.sendall(b"GET /v1/events?since=0 HTTP/1.0\r\n\r\n")
        assert b"before" in read_until(client, b"}\n\n")
