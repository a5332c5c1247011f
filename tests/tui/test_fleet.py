"""`tui --fleet`: many machines on a terminal, from records as nodes print them."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sysperf.engine import judging
from sysperf.engine.fleet import gather
from sysperf.model.errors import SysperfError
from sysperf.model.fleet import Fleet
from sysperf.model.node import Asked
from sysperf.tui.fleet import FleetDashboard
from sysperf.tui.widgets.pane import Pane
from tests.fleet.machines import node, planted, write
from tests.invoking import sysperf
from tests.tui.conftest import screen_text, unreadable
from tests.tui.test_same_name import press, until
from tests.tui.test_terminal import Terminal, is_clean, terminal

__all__ = ["terminal"]


rules = functools.cache(judging.load_rules)


def drive(folder: Path, do: Callable[[FleetDashboard, Any], Awaitable[None]], hosts: tuple[str, ...] = (), problems: Any = ()) -> None:
    """Show what lies in a folder; `problems` are raised by the second and further questions."""
    left = [None, *problems]

    def ask(say: Callable[[int, int], object]) -> Fleet:
        if (problem := left.pop(0) if left else None) is not None:
            raise problem
        return gather.fleet("folder", Asked(where=str(folder), hosts=hosts), rules(), say=say)[0]

    async def run() -> None:
        app = FleetDashboard(ask, lambda name: ("false", name), every_s=3_600)
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await until(pilot, lambda: "asked at" in screen_text(app))
            await do(app, pilot)

    asyncio.run(run())


def test_the_worst_nodes_of_each_class_come_first(tmp_path: Path) -> None:
    """A row says what is wrong with a node, or in what it is unlike its class; the pane below says all of it."""

    async def do(app: FleetDashboard, pilot: Any) -> None:
        shown = screen_text(app)
        assert "60 of 60 nodes, 2 classes" in shown
        rows = [line.split()[:2] for line in shown.splitlines() if line[:2] in ("✗ ", "! ")]
        assert rows[:2] == [["✗", "n9"], ["!", "n1"]]
        assert "gpu.devices.count 7, not 8" in shown
        assert "GPU 3 had 2 uncorrected errors" in shown, "of the first row"
        await press(pilot, "j", "j")
        await until(pilot, lambda: "580.1; expected is 590.2" in screen_text(app))
        assert app.chosen == "n2"
        assert unreadable(app) == set()

    drive(write(tmp_path / "records", planted(60)), do)


def test_who_is_silent_stands_first_and_comes_back(tmp_path: Path) -> None:
    """Nothing is known of it, and no sentence calls it fine; `r` asks again."""
    folder = write(tmp_path / "records", [node("n1"), node("n2"), node("n3")])

    async def do(app: FleetDashboard, pilot: Any) -> None:
        shown = screen_text(app)
        assert "1 silent node" in shown
        assert shown.index("? n4") < shown.index("class 1, 3 nodes")
        assert "Nothing is known of it." in shown
        write(folder, [node("n4")])
        await press(pilot, "r")
        await until(pilot, lambda: "4 of 4 nodes" in screen_text(app))
        assert "silent" not in screen_text(app)

    drive(folder, do, hosts=("n1", "n2", "n3", "n4"))


@pytest.mark.parametrize(
    ("problem", "said"), [(SysperfError("no such folder", "make it"), "no such folder"), (KeyError("x"), "internal error")]
)
def test_a_question_that_fails_leaves_what_was_known(tmp_path: Path, problem: Exception, said: str) -> None:
    """The reason stands above the rows, which are those of before."""

    async def do(app: FleetDashboard, pilot: Any) -> None:
        await press(pilot, "r")
        await until(pilot, lambda: said in screen_text(app))
        assert "3 of 3 nodes" in screen_text(app)
        await press(pilot, "r")
        await until(pilot, lambda: "asked at" in screen_text(app))

    drive(write(tmp_path / "records", [node("n1"), node("n2"), node("n3")]), do, problems=[problem])


def test_what_nodes_say_reaches_no_terminal(tmp_path: Path) -> None:
    """Escapes in values, messages, areas and hardware are printed as text."""
    evil = "\x1b[2J\x07[red]x[/]"
    finding = {"rule": "gpu.xid", "severity": "error", "message": evil}
    some = [node(f"n{number}", {"driver.nvidia_version": "1"}, {"gpu": evil}) for number in range(3)]
    some.append(node("n3", {"driver.nvidia_version": evil}, {"gpu": evil}, findings=[finding], unknown=[{"area": evil, "why": evil}]))

    async def do(app: FleetDashboard, pilot: Any) -> None:
        assert "\x1b" not in screen_text(app)
        assert "[red]" in screen_text(app)
        assert not any(pane.failure for pane in app.query(Pane))

    drive(write(tmp_path / "records", some), do)


def test_a_browser_gets_one_machine(tmp_path: Path) -> None:
    """`--serve` starts a dashboard a window, and none of them may ask a fleet."""
    done = sysperf("tui", "--serve", "--fleet", str(tmp_path))
    assert (done.returncode, "leave --fleet out" in done.stderr) == (2, True)


def test_in_a_real_terminal(terminal: Terminal, tmp_path: Path) -> None:
    """Enter shows the node's own dashboard, or why there is none; then the fleet is back, and `q` leaves the terminal clean."""
    folder = write(tmp_path / "records", planted(20))
    (tmp_path / "ssh").write_text("#!/bin/sh\necho no such host >&2\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    terminal.type(f"PATH={tmp_path}:$PATH {sys.executable} -m sysperf tui --fleet {folder}; echo ended $?", "Enter")
    terminal.waits_for("20 of 20 nodes")
    terminal.type("", "Enter")
    terminal.waits_for("Enter goes back to the fleet")
    assert "no such host" in terminal.shown()
    terminal.type("", "Enter")
    terminal.waits_for("20 of 20 nodes")
    terminal.type("q")
    is_clean(terminal, "ended 0")


def test_who_asks_nobody_is_told(terminal: Terminal) -> None:
    """No nodes, or records from the dashboard's own keyboard."""
    for options, said in (("--fleet", "no nodes are named"), ("--fleet -", "keyboard")):
        terminal.type(f"clear; {sys.executable} -m sysperf tui {options}; echo ended $?", "Enter")
        terminal.waits_for(said)
        terminal.waits_for("ended 2")


def test_without_a_terminal_the_next_step_is_the_fleets(tmp_path: Path) -> None:
    """What prints one machine would not answer."""
    done = sysperf("tui", "--fleet", str(tmp_path))
    assert (done.returncode, "`sysperf fleet audit` prints the same once" in done.stderr) == (2, True)
