"""Names, commands and answers of others are text: never markup, never escape codes, and no shape of them ends the dashboard."""

from __future__ import annotations

import asyncio
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.model.change import Change, Step, Transaction
from sysperf.model.record import to_json
from sysperf.model.snapshot import Area, Snapshot
from sysperf.report.terminal import cells
from sysperf.tui.app import Dashboard
from sysperf.tui.decode import SnapshotDecoder
from sysperf.tui.now import Now
from sysperf.tui.source import Changed, Facts, Meters, Problem
from sysperf.tui.widgets import findings, gpus, identity, overview, programs, system, topology, transactions
from sysperf.tui.widgets.line import Line, fitted, folded, line, span
from sysperf.tui.widgets.pane import Pane
from tests.report import reports
from tests.report.reports import HOSTILE
from tests.tui.conftest import dashboard, screen_text, settled
from tests.tui.machines import process, snapshot

WORST = (HOSTILE, "[bold]x[/] [@click=app.quit]x[/] [/] \\[ \x1b]52;c;QUJD\a \x1b[2J a\nb \u202e\u2066", "漢字" * 60)
ODD: tuple[Any, ...] = (None, 0, -1, 1e308, float("nan"), "text", [], {}, [None], True, [{"x": 1}], "0-3", HOSTILE)


def machine(text: str) -> Any:
    """A machine whose every name is this text."""
    return reports.report(
        *(outcome for outcome in reports.hostile(text).outcomes),
        machine=snapshot(
            cpu={"model_name": text, "online": "0-3", "allowed": "0-3", "package_cpus": ["0-3"], "core_cpus": ["0", "1"]},
            numa={"nodes_with_cpus": 1, "nodes": [{"id": 0, "cpus": "0-3", "mem_total_bytes": 1 << 30}]},
            network={"interfaces": [{"name": text, "pci_address": text, "numa_node": 0}]},
            gpu={"devices": [{"index": 0, "name": text, "bus_id": text}]},
            process={"processes": [process(7, name=text, command=text, torch={"version": text, "prefix": text}, env={text: text},
                                           threads={"names": [text]}, loaded={"allocator": text, "libraries": [{"name": text, "path": text, "version": text}]})]},
        ),
    )  # fmt: skip


@pytest.mark.parametrize("text", WORST, ids=range(len(WORST)))
def test_no_control_character_reaches_the_terminal(text: str) -> None:
    """On every screen, in dialogs and in notices: what others wrote is spelled out, and brackets are brackets."""

    async def run() -> None:
        app = dashboard(machine(text))
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            app.take(Problem(text))
            step = Step(Change(knob=text, item=text, target=text, before=text, after=text))
            app.take(Changed([Transaction(number=1, state="applied", why=text, taken_at=text, steps=(step,))]))
            for keys in ("1", "2", "y", "a", "3", "enter", "4", "m", "5", "6", "7"):
                await pilot.press(keys)
                await settled(pilot)
                look_at(app)

    asyncio.run(run())


def look_at(app: Dashboard) -> None:
    text = screen_text(app)
    assert not [char for char in text if char != "\n" and unicodedata.category(char)[0] == "C"], repr(text)
    assert not [pane.failure for pane in app.screen.query(Pane) if pane.failure]
    assert app._exception is None


def everything(now: Now, width: int) -> list[Line]:
    """All that widgets draw."""
    out = [*overview.draw(now, width, 40), *identity.draw(now.snapshot, width), *system.draw(now, width), *gpus.draw(now, width)]
    out += [*topology.draw(now, width, next(iter(now.processes()), None)), *programs.draw(now, now.processes(), width)]
    out += findings.draw(now, findings.chosen(now, "", "cost"), width)
    for finding in now.findings():
        out += findings.detail(now, finding, width)
    return [*out, *transactions.elsewhere(now.changes, width)]


@settings(max_examples=25)
@given(st.text(max_size=60), st.integers(40, 210))
def test_widgets_fit_their_width_whatever_names_are(text: str, width: int) -> None:
    """No line is wider than the terminal, and none holds a character that a terminal acts on."""
    now = Now()
    now.take(Facts(machine(text)))
    now.take(Meters(1.0, {"cpu.busy": 0.5}))
    for drawn in everything(now, width):
        assert cells(drawn.text) <= width + 2, drawn.text
        assert not [char for char in drawn.text if unicodedata.category(char)[0] == "C"]


@settings(max_examples=30)
@given(st.data())
def test_facts_of_any_shape_do_not_end_the_dashboard(data: st.DataObject) -> None:
    """An agent of another version may send what nobody expected: the pane says so, and goes on."""
    odd = st.sampled_from(ODD)
    areas = {name: {field: data.draw(odd) for field in fields} for name, fields in FIELDS.items()}
    known: dict[str, dict[str, Any]] = {name: {**facts, **areas.get(name, {})} for name, facts in {**areas, **reports.FACTS}.items()}
    sent = Snapshot(taken_at="2026-11-21T03:10:12Z", areas={name: Area(facts) for name, facts in known.items()})
    decoded = SnapshotDecoder().decode(to_json(sent))
    assert decoded is not None
    now = Now()
    now.take(Facts(reports.report(machine=decoded)))
    pane = Pane(lambda width, _: everything(now, width))
    assert pane._content(100, 40)


FIELDS = {
    "cpu": ("online", "allowed", "offline", "package_cpus", "core_cpus", "l3_domains", "model_name", "cores"),
    "numa": ("nodes", "nodes_with_cpus"),
    "memory": ("total_bytes", "available_bytes"),
    "gpu": ("devices",),
    "process": ("processes",),
    "torch": ("installs",),
    "network": ("interfaces", "rdma"),
}


@given(st.lists(st.text(max_size=30), max_size=5), st.integers(0, 60))
def test_lines_are_cut_or_folded_to_width(texts: list[str], width: int) -> None:
    """Cut, a line is at most as wide as asked; folded, nothing of it is lost."""
    drawn = line(*(span(text, "dim") for text in texts))
    assert cells(fitted(drawn, width).text) <= width
    parts = folded(drawn, width)
    assert "".join(part.text for part in parts) == drawn.text
    if width >= 2:
        assert all(cells(part.text) <= width for part in parts)
