"""What is shown is true: no number where nobody knows it, no age that is hidden, nothing cut that tells things apart."""

from __future__ import annotations

import calendar
import re
import time
from typing import Any

import msgspec
import pytest

from sysperf.model.profile import Frame, Stacks, Thread
from sysperf.report.profiling import profile
from sysperf.report.terminal import cells, tail
from sysperf.tui.actions import Actions
from sysperf.tui.app import Dashboard
from sysperf.tui.now import Now
from sysperf.tui.screens.history import STILL
from sysperf.tui.source import Facts, Meters, Past, Problem
from sysperf.tui.widgets import gpus, identity, one_program, program, programs, system, topology
from tests.report import reports
from tests.tui.conftest import dashboard, screen_text, settled
from tests.tui.machines import GIB, START, Still, box, laptop, news, process, rule, server, snapshot
from tests.tui.test_keys import drive, press, started


def now_of(**areas: Any) -> Now:
    now = Now()
    now.take(Facts(reports.report(machine=snapshot(**areas))))
    return now


def test_a_program_does_not_get_younger() -> None:
    """An agent reads each program in its turn: a report may tell of one what was true ten seconds before it was taken."""
    now = Now()
    shown = []
    for taken_at, at, age_s in (("2026-11-21T06:00:00Z", 0, 42.0), ("2026-11-21T06:00:10Z", 10, 42.0), ("2026-11-21T06:00:20Z", 20, 62.0)):
        machine = msgspec.structs.replace(snapshot(process={"processes": [process(7, age_s=age_s, start_time=5)]}), taken_at=taken_at)
        now.take(Facts(reports.report(machine=machine)))
        now.take(Meters(calendar.timegm((2026, 11, 21, 6, 0, at)), {"process.7.cpu": 0.5}))
        shown.append(now.age_s(now.processes()[0]))
    assert shown == [42.0, 52.0, 62.0]

    another = msgspec.structs.replace(
        snapshot(process={"processes": [process(7, age_s=1.0, start_time=9)]}), taken_at="2026-11-21T06:00:20Z"
    )
    now.take(Facts(reports.report(machine=another)))
    assert now.age_s(now.processes()[0]) == 1.0


def test_nothing_is_counted_before_it_is_known() -> None:
    """Before the first look, and where processes could not be read, there is no ``0``."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "2")
        assert "findings  by cost" in screen_text(app)
        assert re.search(r"\w+ findings  by", screen_text(app)) is None
        await press(pilot, "3")
        assert re.search(r"\w+ PyTorch programs  by", screen_text(app)) is None
        app.take(Facts(reports.report(machine=snapshot(process="/proc lists no process"))))
        await settled(pilot)
        assert "PyTorch programs are unknown" in screen_text(app)
        assert "0 PyTorch" not in screen_text(app)
        app.take(Facts(laptop()))
        await settled(pilot)
        assert "0 PyTorch programs" in screen_text(app)

    drive(dashboard(laptop(), actions=Actions(Still([]), rule)), do)


def test_a_filter_says_how_many_of_how_many() -> None:
    """Programs that a filter hides are still counted."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "slash", *"4244", "enter")
        assert "1 of 4 PyTorch programs" in screen_text(app)

    drive(started(server(), "processes"), do)


@pytest.mark.parametrize(("more", "expected"), [({"gpu_bus_ids": ["0000:01:00.0"], "cuda_used": True}, "?"), ({"cuda_used": False}, "-")])
def test_use_of_a_gpu_is_unknown_or_does_not_apply(more: dict[str, Any], expected: str) -> None:
    """A program on a GPU that does not tell is no program without one, and neither is blank."""
    now = now_of(gpu={"devices": [{"index": 0, "bus_id": "0000:01:00.0"}]}, process={"processes": [process(7, **more)]})
    row = programs.draw(now, now.processes(), 200)[0].text
    cut: list[str] = []
    heads = programs.columns(now, 200)
    for _, wide in heads:
        cut, row = [*cut, row[:wide].strip()], row[wide + 1 :]
    cells_of = dict(zip((name for name, _ in heads), cut, strict=True))
    assert (cells_of["GPU %"], cells_of["GPU mem"]) == (expected, expected)


def test_the_curve_of_pressure_is_that_of_its_bar() -> None:
    """The bar shows the worst of three, so the curve is not another's."""
    now = now_of()
    now.take(Past({"pressure.cpu.some_avg10": [0.99] * 12, "pressure.io.some_avg10": [0.0] * 12}))
    now.take(Meters(START, {"pressure.cpu.some_avg10": 0.99, "pressure.memory.some_avg10": 0.0, "pressure.io.some_avg10": 0.0}))
    row = next(line.text for line in system.draw(now, 90) if line.text.startswith("pressure"))
    assert "cpu 99 %" in row
    assert row.endswith("█████")


def test_a_silent_source_says_how_old_its_meters_are() -> None:
    """An agent that hangs sends no problem: the age of what is shown tells, and goes with the next sample."""

    async def do(app: Dashboard, pilot: Any) -> None:
        app._check()
        assert "!" not in screen_text(app).splitlines()[3]
        app.now._heard -= 600
        app._check()
        await settled(pilot)
        assert "! the meters are 10 min old" in screen_text(app)
        app.take(Problem("no agent answers"))
        assert app.now.notice().startswith("no agent answers; the meters are ")
        app.take(Meters(START + 95, {"cpu.busy": 0.5}))
        assert app.now.notice() == "no agent answers"

    drive(dashboard(laptop()), do)


def test_a_slow_agent_and_a_capture_are_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that samples once a minute is on time for minutes; a capture stands still."""
    now, clock = Now(), 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    now.take(Meters(0.0, {}))
    clock += 500
    assert not now.quiet_s()
    for _ in range(3):
        clock += 60
        now.take(Meters(clock, {}))
    clock += 100
    assert not now.quiet_s()
    clock += 100
    assert now.quiet_s() == 200


def test_the_screen_says_which_machine_it_shows() -> None:
    """In eighty columns there is no room beside the tabs: another machine is named with the facts, this one need not be."""
    now = now_of()
    assert identity.draw(now.snapshot, 80, "me@gpu-7")[0].text.startswith("source me@gpu-7")
    assert "source" not in identity.draw(now.snapshot, 80, "sampled here")[0].text


def test_tabs_fit_and_the_shown_one_is_named() -> None:
    """The narrowest ones are numbers, so that the last screen's name is still on the screen."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "7")
        assert screen_text(app).splitlines()[0] == " 1  2  3  4  5  6  7 Bench …ded machine"
        await pilot.click("Tabs", offset=(7, 0))
        await settled(pilot)
        assert screen_text(app).splitlines()[0] == " 1  2  3 Processes  4  5  6  7"

    drive(dashboard(laptop()), do, (40, 15))


def test_a_long_origin_keeps_its_end() -> None:
    """Of a path, the file tells most."""
    source = Still(news(laptop()))
    source.name = "captured machine /a/folder/with/a/very/long/name/indeed/node-17.tar.zst"

    async def do(app: Dashboard, _: Any) -> None:
        assert screen_text(app).splitlines()[0].endswith("/node-17.tar.zst")

    drive(dashboard(laptop(), actions=Actions(source, rule)), do, (120, 40))


@pytest.mark.parametrize("text", ["short", "漢字" * 30, "a" * 50, "é" * 30], ids=range(4))
def test_the_end_of_a_text_fits(text: str) -> None:
    """At any width, and it is an end."""
    for width in range(60):
        end = tail(text, width)
        assert cells(end) <= width
        assert text.endswith(end.removeprefix("…"))


def test_ten_gpus_stand_in_one_column() -> None:
    """The meter of GPU 10 begins where that of GPU 9 does."""
    now = now_of(gpu={"devices": [{"index": index} for index in range(11)]})
    rows = [line.text for line in gpus.draw(now, 80)][1:]
    assert {row.index("··") for row in rows} == {3}


def test_that_there_is_no_gpu_is_said_only_where_it_is_known() -> None:
    """A card of AMD's without driver is on the bus; cards that cannot be told are unknown; a processor's graphics are none."""

    def said(devices: object, **more: object) -> str:
        device = {"address": "0000:83:00.0", "kind": "gpu", "vendor_id": "1002", "driver": "", **more}
        pcie = {"nvidia_gpus": 0, "amd_gpus": 1, "intel_gpus": 0, "devices": [device]}
        return gpus.none(now_of(gpu={"devices": devices}, pcie=pcie)).text.removeprefix("GPU").strip()

    assert said([], integrated=False) == "1 on the bus, and no driver answers"
    assert said(None, integrated=False, driver="amdgpu") == "unknown"
    assert said([], integrated=True) == said([], integrated=False, driver="vfio-pci") == "none"


def test_a_question_mark_of_a_gpu_has_its_reason_below() -> None:
    """One line a reason; none for what is known, and none for a GPU that is lost."""
    now = now_of(
        gpu={"devices": [{"index": 0, "vendor": "intel"}, {"index": 1, "vendor": "amd"}, {"index": 2, "lost": True}]},
        process={"processes": [process(7, cuda_used=True)]},
    )
    unseen, uncounted = "programs of others may use it: only root sees all", "the kernel does not count work of ROCm by program"
    reasons = {f"gpu.{index}.{name}": unseen for index in (0, 2) for name in ("utilization", "memory_used_bytes", "power_watts")}
    now.take(Meters(1.0, {"gpu.0.power_watts": 90.0}, {**reasons, "process.*.gpu_utilization": uncounted}))

    below = [line.text.rstrip() for line in gpus.draw(now, 120)][4:]

    assert below == [f"? memory and busy: {unseen}", f"? GPU % of programs: {uncounted}"]
    now.take(Meters(2.0, {}))
    assert len(gpus.draw(now, 120)) == 6, "a sample without reasons leaves them as they were"
    now.take(Meters(3.0, {}, {}))
    assert len(gpus.draw(now, 120)) == 4


def test_all_devices_of_a_node_are_on_the_map() -> None:
    """What does not fit beside a node goes on below it."""
    rdma = [{"name": f"mlx5_{number}", "port": 1, "numa_node": 0} for number in range(24)]
    now = now_of(
        numa={"nodes_with_cpus": 1, "nodes": [{"id": 0, "cpus": "0-3", "mem_total_bytes": GIB}]},
        cpu={"online": "0-3", "allowed": "0-3"},
        network={"rdma": rdma, "interfaces": []},
        gpu={"devices": []},
    )
    lines = topology.draw(now, 60)
    words = " ".join(line.text for line in lines).split()
    assert [name for name in words if name.startswith("mlx5_")] == [str(port["name"]) for port in rdma]
    assert all(cells(line.text) <= 60 for line in lines)


def test_the_cpus_of_a_node_are_drawn_in_their_sockets() -> None:
    """A machine without NUMA has one node over two sockets: neither of them is empty."""
    now = now_of(
        numa={"nodes_with_cpus": 1, "nodes": [{"id": 0, "cpus": "0-3", "mem_total_bytes": GIB, "mem_free_bytes": GIB // 2}]},
        cpu={"online": "0-3", "allowed": "0-3", "package_cpus": ["0-1", "2-3"]},
        gpu={"devices": []},
    )
    text = [line.text for line in topology.draw(now, 80)]
    assert [row.split()[0] for row in text if "■" in row and ";" not in row] == ["0", "2"]
    assert sum("512 MiB of 1 GiB" in row for row in text) == 1
    paired = [line.text for line in topology.draw(now, 200)]
    assert paired[0].index("socket 1") > 90


def test_programs_are_told_apart_where_room_is_scarce() -> None:
    """Their folders are cut before their names."""
    commands = ("/opt/venv/bin/python /home/somebody/projects/llm/train.py --lr 1", "python /home/somebody/projects/llm/data.py")
    now = now_of(
        gpu={"devices": []}, process={"processes": [process(7 + number, command=command) for number, command in enumerate(commands)]}
    )
    narrow = [line.text for line in programs.draw(now, now.processes(), 84)]
    assert ("train.py" in narrow[0], "data.py" in narrow[1]) == (True, True)
    assert "/home/somebody/projects/llm/train.py --lr 1" in programs.draw(now, now.processes(), 240)[0].text


def test_workers_are_unknown_until_a_sample_looked_at_the_children() -> None:
    """Its facts are of a time before the loader started: no row says that it has none. A capture has its facts alone."""
    now = now_of(gpu={"devices": []}, process={"processes": [process(7, workers={"count": 0, "cpus": ""})]})
    first = now.processes()[0]

    def shown() -> tuple[int | None, float | str, str]:
        text = "\n".join(line.text for line in program.detail(now, first, None, 120))
        return one_program.number_of_workers(now, first), one_program.data_wait(now, first), next(iter(re.findall(r"workers +(.*)", text)))

    assert shown() == (0, "-", "none")
    now.take(Meters(START, {"process.7.threads": 2.0}))
    assert shown() == (None, "?", "unknown so far")
    before = programs.draw(now, [first], 200)[0].text
    now.take(Meters(START + 1, {"process.7.threads": 2.0, "process.7.workers": 3.0}))
    assert shown() == (3, "?", "3, which started after its facts were read")
    assert before.split() != programs.draw(now, [first], 200)[0].text.split()
    now.take(Meters(START + 2, {"process.7.threads": 2.0, "process.7.workers": 0.0}))
    assert shown() == (0, "-", "none")


def test_stacks_keep_the_file_in_a_narrow_window() -> None:
    """A path that is too wide loses its beginning; whole ones are for pipes and the clipboard."""
    stacks_shown = Stacks(7, (Thread(7, "main", True, (Frame("f" * 30, "/a/very/long/folder/" * 5 + "connection.py", 395),)),))
    lines = profile.stacks(stacks_shown, width=70, cut=True).splitlines()
    assert max(map(cells, lines)) <= 70
    assert lines[-1].endswith("/connection.py:395")
    assert "/a/very/long/folder/" * 5 in profile.stacks(stacks_shown, width=70)


def test_a_capture_has_no_history_to_wait_for() -> None:
    """An agent would be no help for a machine that stands still."""
    source = Still(news(laptop()))
    source.live = False

    async def do(app: Dashboard, _: Any) -> None:
        assert STILL in screen_text(app)
        assert "sysperf agent" not in screen_text(app)

    drive(started(laptop(), "history", Actions(source, rule)), do)


def test_the_mark_of_a_program_is_taken_off() -> None:
    """Esc does at once what m does after the last program."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "m")
        assert "marked: 77" in screen_text(app)
        await press(pilot, "escape")
        assert "marked" not in screen_text(app)

    drive(started(box(), "topology"), do)


@pytest.mark.parametrize(("hidden", "says"), [(True, "it hides those of other users (hidepid)"), (False, ""), (None, "")])
def test_hidden_processes_are_not_called_absent(hidden: bool | None, says: str) -> None:
    """The dashboard says of the same machine what the report says."""
    now = now_of(process={"processes": [], "scanned": 4, "hidden": hidden})
    text = " ".join(line.text for line in programs.draw(now, [], 200))

    assert text.startswith("No PyTorch program is running among 4 processes")
    assert says in text
    assert ("hides" in text) is bool(says)
