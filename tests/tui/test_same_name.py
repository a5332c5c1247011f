"""Two programs of one name: what is done goes to the one under the cursor, and to no other."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sysperf.engine import judging
from sysperf.engine.change import Changer
from sysperf.fix.journal import Journal
from sysperf.host import Host
from sysperf.live.auditor import Auditor
from sysperf.live.gpus import Gpus
from sysperf.live.scan import Scanner
from sysperf.tui import waive
from sysperf.tui.actions import Actions
from sysperf.tui.app import Dashboard
from sysperf.tui.screens.findings import Findings
from sysperf.tui.sources.here import Here
from sysperf.tui.widgets.pane import Pane
from tests.agent.machines import FAKE_TORCH, programs
from tests.privileges import real_root
from tests.tui.conftest import screen_text, settled
from tests.tui.machines import rule

RULE = "process.nice-or-batch"
NICE = 15
WITHIN_S = 60.0
only_root = real_root("nobody else may lower a nice value")
Do = Callable[[Dashboard, Any, list[int]], Awaitable[None]]


@pytest.fixture
def niced(tmp_path: Path) -> Iterator[list[int]]:
    """Two real programs with the same name and command line, both at low priority, that map a PyTorch library."""
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(b"\0" * 8192)
    with programs(FAKE_TORCH, count=2, env={"LIBRARY": str(library)}) as started:
        for program in started:
            os.setpriority(os.PRIO_PROCESS, program.pid, NICE)
        yield sorted(program.pid for program in started)


def nice(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


def drive(tmp_path: Path, pids: list[int], do: Do) -> None:
    """The dashboard that samples here, with the one rule, on its findings; both programs are in its list."""

    def make(terms: judging.Terms) -> Auditor:
        scanner = Scanner()
        scanner.scan()
        scanner.torch.intersection_update(pids)  # other tests have programs, too
        return Auditor(terms, scanner, Gpus())

    def load() -> judging.Terms:
        rules = judging.load_rules()
        rules.select([RULE], [])
        return judging.Terms(rules)

    source = Here(load, auditor=make)
    journal = str(tmp_path / "state")
    actions = Actions(source, rule, lambda: Changer(Host(), journal), waive=waive.write)

    async def run() -> None:
        app = Dashboard(actions, first="findings")
        async with app.run_test(size=(160, 50), notifications=True) as pilot:
            await until(pilot, lambda: len(app.now.findings()) == 2)
            await do(app, pilot, pids)

    asyncio.run(run())


async def until(pilot: Any, condition: Callable[[], bool]) -> None:
    """Wait for what other threads do."""
    end = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
        await settled(pilot)


async def press(pilot: Any, *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settled(pilot)


async def choose(app: Dashboard, pilot: Any, pid: int) -> None:
    """Move the cursor to the finding about this program, and see its number in the detail."""
    rows = app.screen.query_one("#list", Pane)
    await press(pilot, "g")
    if not any(f"({pid})" in line.text for line in rows.lines):
        await press(pilot, "space")
    assert isinstance(app.screen, Findings)
    (row,) = (number for number, line in enumerate(rows.lines) if f"({pid})" in line.text)
    await press(pilot, *["j"] * row)
    assert app.screen.chosen is not None
    assert app.screen.chosen.about.endswith(f"(pid {pid})")
    assert f"(pid {pid})" in "".join(line.text for line in app.screen.query_one("#detail", Pane).lines)


@only_root
def test_a_fix_goes_to_the_program_under_the_cursor(tmp_path: Path, niced: list[int]) -> None:
    """Preview, question, change and mark are all about the second of two; the first keeps its priority and gets no mark."""

    async def do(app: Dashboard, pilot: Any, pids: list[int]) -> None:
        first, second = pids
        await choose(app, pilot, second)
        await press(pilot, "p")
        assert f"process {second}" in screen_text(app)
        await press(pilot, "escape", "a")
        assert f"(pid {second})" in screen_text(app)
        await press(pilot, "y")
        assert (nice(first), nice(second)) == (NICE, 0)
        await press(pilot, "escape")
        assert len(app.now.fixed) <= 1
        assert not any("✓" in line.text and f"({first})" in line.text for line in app.screen.query_one("#list", Pane).lines)

    drive(tmp_path, niced, do)


@only_root
def test_undo_takes_back_what_was_done_for_this_program(tmp_path: Path, niced: list[int]) -> None:
    """A change of the other program is none of this one's, although the same rule asked for it."""

    async def do(app: Dashboard, pilot: Any, pids: list[int]) -> None:
        first, second = pids
        await choose(app, pilot, second)
        await press(pilot, "a", "y", "escape")
        assert (nice(first), nice(second)) == (NICE, 0)
        await choose(app, pilot, first)
        await press(pilot, "u")
        assert isinstance(app.screen, Findings)
        assert "Nothing in force was applied" in " ".join(notice.message for notice in app._notifications)
        await press(pilot, "a", "y", "escape")
        assert (nice(first), nice(second)) == (0, 0)
        journal = Journal(str(tmp_path / "state"))
        assert {step.change.item for transaction in journal.transactions() for step in transaction.steps} == {str(first), str(second)}

    drive(tmp_path, niced, do)


@only_root
def test_a_copied_command_names_the_program(tmp_path: Path, niced: list[int]) -> None:
    """What is pasted elsewhere changes this program only: the rule's name would change every program of the list."""

    async def do(app: Dashboard, pilot: Any, pids: list[int]) -> None:
        await choose(app, pilot, pids[1])
        await press(pilot, "y")
        assert str(pids[1]) in app.clipboard
        assert str(pids[0]) not in app.clipboard

    drive(tmp_path, niced, do)


def test_a_number_that_was_given_away_is_not_touched(tmp_path: Path, niced: list[int]) -> None:
    """The program ends while the question is open, and another gets its number: the plan was for the one that was seen."""
    changer = Changer(Host(), str(tmp_path / "state"))
    assert changer.plan([_setting(niced[0], _start_time(niced[0]))]).changes
    planned = changer.plan([_setting(niced[0], _start_time(niced[0]) + 1)])
    assert not planned.changes
    assert "another one has its number" in planned.skipped[0].reason


def _setting(pid: int, start_time: int) -> Any:
    from sysperf.model.change import Setting

    return Setting("process.io_class", "idle", str(pid), RULE, start_time)


def _start_time(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def test_a_picture_never_goes_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who laid links with the names of the next pictures into a shared folder gets none of his victims overwritten."""
    monkeypatch.chdir(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    now = time.time()
    for second in range(60):
        name = time.strftime("sysperf-%Y%m%d-%H%M%S.svg", time.localtime(now + second))
        with suppress(FileExistsError):
            os.symlink(victim, tmp_path / name)

    async def do() -> None:
        app = Dashboard(Actions(Here(lambda: judging.Terms(judging.load_rules())), rule))
        async with app.run_test(notifications=True) as pilot:
            await press(pilot, "s")
            assert "File exists" in " ".join(notice.message for notice in app._notifications)

    asyncio.run(do())
    assert victim.read_text() == "precious"
    assert subprocess.run(("ls",), cwd=tmp_path, capture_output=True, check=True, text=True).stdout.count(".svg") == 60
