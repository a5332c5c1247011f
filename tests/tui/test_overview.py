"""The overview: what costs most first, a row a rule, and a use for every row."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.model.finding import Evidence, Finding, Gain, Report, Subject
from sysperf.model.rule import Impact
from sysperf.tui.app import Dashboard
from sysperf.tui.cure import Cure
from sysperf.tui.now import HOLD_S, Now
from sysperf.tui.screens import history
from sysperf.tui.screens.findings import Findings
from sysperf.tui.screens.processes import Processes
from sysperf.tui.source import Changed, Facts, History, Load, Mark, Neighbour
from sysperf.tui.sources.load import Busiest
from sysperf.tui.widgets import causes, chart, curves, gpus, overview, system, users, verdict
from sysperf.tui.widgets.line import width_of
from sysperf.tui.widgets.pane import Pane
from tests.report import reports
from tests.tui.conftest import dashboard, screen_text, settled
from tests.tui.machines import MACHINES, box, few_workers, news, process, server, snapshot
from tests.tui.test_keys import drive, notices, press


def now_of(report: Report) -> Now:
    now = Now()
    for update in news(report):
        now.take(update)
    return now


def crowd() -> Report:
    """Five hundred ranks, all of which have too few workers."""
    machine = snapshot(
        process={"processes": [process(1_000 + rank, job={"rank": rank, "world_size": 500}) for rank in range(500)], "scanned": 900},
        gpu={"devices": []}, pcie={"nvidia_gpus": 0, "devices": []},
    )  # fmt: skip
    return reports.report(*(few_workers(1_000 + rank) for rank in range(500)), reports.balancing(), machine=machine)


def three() -> Report:
    """A machine without GPUs and three programs."""
    machine = snapshot(
        process={"processes": [process(pid) for pid in (7, 8, 9)]}, gpu={"devices": []}, pcie={"nvidia_gpus": 0, "devices": []}
    )
    return reports.report(few_workers(7), few_workers(8), machine=machine)


REPORTS = {**MACHINES, "crowd": crowd, "three": three}


@pytest.mark.parametrize(("size", "most"), [((120, 40), 3), ((200, 60), 6)], ids=str)
@pytest.mark.parametrize("name", REPORTS)
def test_every_row_has_something_to_say(name: str, size: tuple[int, int], most: int) -> None:
    """A row that is blank, also inside a frame, is a row that a finding or a curve could have."""

    async def do() -> list[str]:
        app = dashboard(REPORTS[name]())
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            return screen_text(app).split("\n")[: size[1]]

    rows = asyncio.run(do())
    assert sum(not row.strip(" │╭╮╰╯─") for row in rows if not set(row) & set("╭╰")) <= most
    assert rows[-1].startswith("⏎ Open")


@pytest.mark.parametrize("name", REPORTS)
def test_it_fits_any_width(name: str) -> None:
    """No line is wider than the screen, whatever its size."""
    now = now_of(REPORTS[name]())
    for width in (20, 40, 79, 99, 100, 101, 140, 161, 300):
        for height in (5, 22, 29, 30, 45, 90):
            assert max(width_of(line.spans) for line in overview.draw(now, width, height)) <= width


def found(rule: str, severity: Any = "warning", **more: Any) -> Finding:
    return Finding(rule, "finding", severity, "host", rule, key=rule, **more)


def test_what_costs_most_comes_first() -> None:
    """Errors, then what was measured here, predicted here, said elsewhere; in each the larger figure first."""
    wanted = [
        found("broken", "error"),
        found("measured-much", gain=Gain("measured", "+31 % steps per second")),
        found("measured-little", "info", gain=Gain("measured", "+3 %", 2.0, 3.0, 4.0)),
        found("predicted", gain=Gain("samples", "", 40.0, 50.0, 60.0)),
        found("costs", cost_pct=12.0),
        found("elsewhere", impact=Impact("step time", "documented", "up to 20 % of the time")),
        found("nobody-knows"),
    ]
    assert [cause.first.rule for cause in causes.causes(wanted[::-1])] == [finding.rule for finding in wanted]
    assert [causes.loss(finding) for finding in wanted] == [
        ("", ""), ("+31 %", "measured"), ("2 to 4 %", "measured"), ("40 to 60 %", "predicted"), ("12 %", "predicted"), ("20 %", "elsewhere"), ("", ""),
    ]  # fmt: skip


def test_a_rule_has_one_row_for_all_its_programs() -> None:
    """The headline counts causes too, and says how many places they have."""
    now = now_of(crowd())
    text = "\n".join(line.text for line in overview.draw(now, 120, 38))
    assert text.count("Few DataLoader workers") == 1
    assert "500 programs: Few DataLoader workers ▸" in text
    assert "! 2 warnings (501 places)" in text


def test_history_begins_with_what_was_found() -> None:
    """Series, GPUs and programs that findings are about, then their areas; of many programs the first few only."""
    hot = reports.narrow_link(5)
    few = few_workers(4242)
    many = [few_workers(pid) for pid in range(5_000, 5_010)]
    pressure = reports.balancing(rule="cpu.psi-contended", evidence=(Evidence("cpu.pressure_some", 0.9),))
    names = ["cpu.busy", "cpu.pressure_some", "gpu.0.power", "gpu.5.power", "memory.used_bytes", "process.4242.cpu", "process.5009.cpu"]
    found = history._mentioned([hot, few, pressure, *many])

    assert sorted(names, key=lambda name: history._about(name, found)) == [
        "gpu.5.power", "process.4242.cpu", "cpu.pressure_some", "gpu.0.power", "cpu.busy", "memory.used_bytes", "process.5009.cpu"
    ]  # fmt: skip


def test_an_event_is_a_line_through_the_curve() -> None:
    """In the column of its mark, from the top of the curve to the axis."""
    past = History({"cpu.busy": [(float(at), 0.5, 0.0, 1.0) for at in range(100)]}, [Mark(50.0, "change", "fixed")], 0.0, 100.0)
    drawn = [row.text for row in chart.draw(past, [("cpu.busy", "cpu.busy")], 112, 30)]
    column = next(row.index("◆") for row in drawn if "◆" in row)

    assert {row[column] for row in drawn[: next(at for at, row in enumerate(drawn) if "◆" in row)]} == {"│"}


def multiples(cursor: float | None = None, height: int = 40, marks: Sequence[Mark] = ()) -> list[str]:
    """Three series of a minute and a half, each of another size."""
    names = ["cpu.busy", "disk.busy", "gpu.5.celsius"]
    series = {name: [(float(at), top * at / 100, 0.0, top) for at in range(100)] for name, top in zip(names, (1.0, 0.5, 90.0), strict=True)}
    drawn = chart.draw(History(series, marks, 0.0, 100.0), [(name, name) for name in names], 112, height, cursor)
    return [row.text for row in drawn]


def test_series_of_one_time_have_one_axis() -> None:
    """The chosen curve is the largest; the others have a line with their figures; where there is no room, they are left out."""
    drawn = multiples()

    assert sum("└" in row for row in drawn) == 1
    assert any(row.startswith("gpu.5.celsius") and "89.1 °C  min 0 °C  mean 44.55 °C  max 90 °C" in row for row in drawn)
    assert [height for height in (8, 12, 20, 40, 60) if len(multiples(height=height)) > height] == []
    assert not any("celsius" in row for row in multiples(height=10))


def test_the_cursor_is_in_one_column_of_all_curves() -> None:
    """Each says its value there; of a moment that was not sampled it says so."""
    drawn = multiples(25.0)
    columns = {row.index("┃") for row in drawn if "┃" in row}

    assert len(columns) == 1
    assert sum("┃" in row for row in drawn) > 16
    assert drawn[next(at for at, row in enumerate(drawn) if "└" in row)][columns.pop()] == "┸"
    assert any(row.startswith("disk.busy") and " 12 %  min" in row for row in drawn)
    past = History({"cpu.busy": [(1.0, 0.5, 0.5, 0.5), (2.0, 0.5, 0.5, 0.5)]}, (), 0.0, 100.0)
    assert chart.figures(past, "cpu.busy", 100.0 + 90)[0].text == "not sampled then"


def test_a_finding_that_went_is_one_line() -> None:
    """With how long it was there; what has no beginning in this time stands alone."""
    marks = [
        Mark(10.0, "finding", "low priority", "a@1"),
        Mark(50.0, "gone", "low priority: gone", "a@1"),
        Mark(60.0, "gone", "other", "b@1"),
    ]
    told = [row for row in multiples(marks=marks) if "priority" in row or "other" in row]

    assert len(told) == 2
    assert told[0].startswith("✓ ")
    assert told[1].startswith("✗ ")
    assert told[1].endswith("low priority  ✓ gone after 40 s")


def test_green_is_what_could_be_checked_only() -> None:
    """An older agent tells no counts, so nothing found is no claim of health; nor is it one where many checks could not be made."""
    quiet = reports.report(passed=74)

    def styles(facts: Facts) -> set[str]:
        now = Now()
        now.take(facts)
        return {part.style for row in verdict.draw(now, 120) for part in row.spans if part.text.strip()}

    assert "good" in styles(Facts(quiet))
    assert "good" not in styles(Facts(quiet, counted=False))
    assert "good" not in styles(Facts(reports.report(*reports.UNKNOWNS, passed=5)))


def test_a_finding_about_a_living_program_stays_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader starts new workers each epoch: what was found of the old ones is not gone, and says when it was seen."""
    clock = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    now, sick, well = Now(), three(), msgspec.structs.replace(three(), outcomes=())
    gone = msgspec.structs.replace(well, snapshot=snapshot(process={"processes": []}))
    now.take(Facts(sick))
    clock += 20
    now.take(Facts(well))
    assert [finding.subject.pid for finding in now.findings()] == [7, 8]
    assert causes.seen_ago(now, now.findings()[0]) == ", seen 20 s ago"
    now.take(Facts(sick))
    assert not now.faded
    clock += HOLD_S + 1
    now.take(Facts(well))
    assert not now.findings()
    now.take(Facts(sick))
    now.take(Facts(gone))
    assert not now.findings()
    now.take(Facts(sick))
    now.take(Changed(()))  # somebody changed something: what goes now was cured
    now.take(Facts(well))
    assert not now.findings()


def test_a_finding_about_the_machine_is_gone_when_it_is() -> None:
    """Settings do not come and go with epochs."""
    now = Now()
    now.take(Facts(reports.report(reports.balancing())))
    now.take(Facts(reports.report()))
    assert not now.findings()


def test_others_are_not_called_pytorch() -> None:
    """Who else uses the CPUs is told by name and owner; a program's helpers are the program's."""
    now = now_of(server())
    assert [neighbour.name for neighbour in users.outside(now)] == ["rsync", "dcgm"]
    text = " ".join(line.text for line in system.cpus(now, 120))
    assert "PyTorch 30.0 CPUs, others 10.3 of 96: rsync 6.2 (root), dcgm 0.9 (root)" in text
    now.take(Load(now.per_cpu, [Neighbour(pid, 1, name, 0.5, 0) for pid, name in ((800, "python"), (801, "rsync"), (802, "python"))]))
    text = " ".join(line.text for line in system.cpus(now, 120))
    assert "2 python 1.0 (root), rsync 0.5 (root)" in text


def test_the_legend_of_gpus_names_what_they_tell() -> None:
    """AMD's, Intel's and NVIDIA's before Hopper tell how busy they are, and not what of it computes: a full bar is no tensor cores."""
    now = now_of(server())
    assert "of it SM ▓ tensor █" in (told := "\n".join(line.text for line in gpus.draw(now, 120)))
    assert "█" in told

    now.meters = {name: value for name, value in now.meters.items() if not name.endswith(("sm_active", "tensor_active"))}
    head, *rows = (line.text for line in gpus.draw(now, 120))
    assert "busy" in head
    assert "SM" not in head
    assert "tensor" not in head
    assert "█" in rows[0]
    assert "▒" not in rows[0]


def test_the_busiest_processes_are_counted() -> None:
    """A process that spins is first, with about a CPU, and its owner."""
    busiest = Busiest()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        try:
            assert busiest.read() is None
            end, spinner = time.monotonic() + 60, None
            while spinner is None and time.monotonic() < end:  # on a loaded machine it gets its turn later
                busiest._due = 0
                time.sleep(0.5)
                spinner = next((neighbour for neighbour in busiest.read() or () if neighbour.pid == spinning.pid), None)
        finally:
            spinning.kill()
    assert spinner is not None
    assert (spinner.parent, spinner.user) == (os.getpid(), os.getuid())
    assert spinner.cpus > 0


def test_enter_opens_a_finding_or_a_program() -> None:
    """Each row leads to what is known of it."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "enter")
        assert isinstance(app.screen, Findings)
        await press(pilot, "1", "G", "enter")
        await settled(pilot)
        assert isinstance(app.screen, Processes)
        assert app.screen._chosen().pid == 4245
        assert "process    4245" in screen_text(app)

    drive(dashboard(server()), do)


def selected(app: Dashboard) -> int | None:
    """The program of the selected finding."""
    assert isinstance(app.screen, Findings)
    return app.screen.chosen.subject.pid if app.screen.chosen is not None else None


def test_a_row_for_several_is_unfolded_before_anything_is_done() -> None:
    """Space shows the programs of a row; what acts on one of them asks which; y copies the commands of all."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "2")
        rows = app.screen.query_one("#list", Pane)
        assert len(rows.lines) == 1
        await press(pilot, "space")
        assert [line.text.strip()[:22] for line in rows.lines[1:]] == ["! python (7): 4 worker", "! python (8): 4 worker"]
        await press(pilot, "space")
        assert len(rows.lines) == 1
        await press(pilot, "p")
        assert len(rows.lines) == 3
        assert "Choose one of the 2" in notices(app)
        await press(pilot, "j", "j")
        assert selected(app) == 8
        await press(pilot, "G", "1", "enter")
        assert selected(app) == 7

    drive(dashboard(three()), do)


def test_the_footer_says_what_cannot_be_done() -> None:
    """A key that can do nothing is there, with the reason in a word."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "2")
        assert "a Apply (elsewhere)" in screen_text(app)

    drive(dashboard(three()), do)


def test_what_a_change_did_is_counted() -> None:
    """Before and since, the meters of the very program; what was not sampled before is not claimed."""
    meters = {"process.7.main_wait": 0.94, "process.7.cpu": 0.1, "process.8.main_wait": 0.5}
    cure = Cure(3, few_workers(7), meters)
    for share in (0.9, 0.6, 0.43):
        cure.take({"process.7.main_wait": share, "process.7.cpu": 0.6})
    assert [moved.name for moved in cure.moved] == ["process.7.main_wait", "process.7.cpu"]
    assert cure.moved[0].since == [0.9, 0.6, 0.43]
    assert cure.summary() == "CPUs 0.1 → 0.6, waits for a CPU 94 % → 64 %"


def test_loads_arrive_for_the_map() -> None:
    """A reading without neighbours keeps those of the one before."""
    now = now_of(box())
    now.take(Load({0: 0.5}))
    assert now.per_cpu == {0: 0.5}
    assert now.neighbours


@given(st.lists(st.floats(0, 1e6), max_size=60), st.integers(1, 20), st.integers(1, 6), st.floats(1, 1e6))
def test_a_curve_fills_its_rows(values: list[float], wide: int, high: int, top: float) -> None:
    """Each row has its width, and a column is never filled above a gap."""
    shown = values[-2 * wide :]
    rows = curves.braille(shown, wide, high, top)
    assert [len(row) for row in rows] == [wide] * high
    for column in zip(*rows, strict=True):
        filled = [cell != " " for cell in column]
        assert filled == sorted(filled)
    assert (rows[-1].strip() == "") == (not shown)


def test_a_subject_is_told_from_others() -> None:
    """By number, by script and by the end of a path."""
    assert causes.subject(found("r", subject=Subject("gpu", "H100", 3))) == "GPU 3"
    assert causes.subject(found("r", subject=Subject("process", "python", pid=7, program="python -u /a/b/train.py"))) == "train.py (7)"
    assert causes.subject(found("r", subject=Subject("item", "/opt/venv"))) == "venv"
