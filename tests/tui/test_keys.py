"""What keys and clicks do, on recorded machines and on a machine made of files that can be changed."""

from __future__ import annotations

import asyncio
import base64
import datetime
import re
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli
from textual.widgets import Input

from sysperf import paths
from sysperf.collect.process.workers import Worker, Workers
from sysperf.engine.change import Changer
from sysperf.fix.keepers import alive
from sysperf.host import Host
from sysperf.model.change import Setting
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import SysperfError
from sysperf.model.finding import Finding, Remedy, Report, Rewrap, Subject
from sysperf.tui import acting as changes_of
from sysperf.tui import decode, waive
from sysperf.tui.actions import Actions
from sysperf.tui.app import Dashboard
from sysperf.tui.now import Now
from sysperf.tui.screens import processes as screens
from sysperf.tui.screens.dialogs import Question, Reading, Waiving
from sysperf.tui.screens.findings import Findings
from sysperf.tui.screens.overview import Overview
from sysperf.tui.screens.processes import Processes
from sysperf.tui.screens.topology import Topology
from sysperf.tui.screens.view import TABS
from sysperf.tui.source import Facts, Meters, Problem
from sysperf.tui.widgets import one_program, program
from sysperf.tui.widgets.pane import Pane
from tests.fix.kernel import LATENCY, RELAXED_US, SWAPPINESS, Kernel, Machine
from tests.report import reports
from tests.tui.conftest import dashboard, screen_text, settled
from tests.tui.machines import START, Still, box, few_workers, laptop, news, process, rule, server

Do = Callable[[Dashboard, Any], Awaitable[None]]


def drive(app: Dashboard, do: Do, size: tuple[int, int] = (120, 40)) -> None:
    """Run the dashboard, do this with it, and end it."""

    async def run() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await settled(pilot)
            await do(app, pilot)

    asyncio.run(run())


async def press(pilot: Any, *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settled(pilot)


def notices(app: Dashboard) -> str:
    """What was said in notices."""
    return " ".join(notification.message for notification in app._notifications)


def pane(app: Dashboard, name: str) -> Pane:
    return app.screen.query_one(f"#{name}", Pane)


# ---------------------------------------------------------------------- moving around


def test_screens_by_key_click_and_palette() -> None:
    """Numbers, a click on a tab, and the command palette lead to the same screens."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "2")
        assert isinstance(app.screen, Findings)
        await pilot.click("Tabs", offset=(31, 0))
        await settled(pilot)
        assert isinstance(app.screen, Processes)
        await press(pilot, "ctrl+p", *"show topology", "enter", "enter")
        assert isinstance(app.screen, Topology)
        await press(pilot, "1")
        assert isinstance(app.screen, Overview)

    drive(dashboard(server()), do)


def test_a_finding_opens_from_the_meter_that_shows_it() -> None:
    """Enter on the overview's selected line shows that finding in full."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "j", "enter")
        assert isinstance(app.screen, Findings)
        assert app.screen.chosen is not None
        assert app.screen.chosen.rule == "numa.balancing-on"

    drive(dashboard(server()), do)


def test_the_list_moves_by_arrows_and_by_vim_keys() -> None:
    """j, k, g, G, arrows and the mouse select, and the detail follows."""

    async def do(app: Dashboard, pilot: Any) -> None:
        screen = app.screen
        assert isinstance(screen, Findings)
        rules = []
        for key in ("j", "down", "k", "up", "G", "g"):
            await press(pilot, key)
            assert screen.chosen is not None
            rules.append(screen.chosen.rule)
        assert rules == [
            "numa.balancing-on", "dataloader.workers-few", "numa.balancing-on", "gpu.link-narrow", "memory.thp-never", "gpu.link-narrow",
        ]  # fmt: skip
        await pilot.click("#list", offset=(4, 2))
        await settled(pilot)
        assert "4 workers for 48 CPUs" in "\n".join(line.text for line in pane(app, "detail").lines)

    drive(started(server(), "findings"), do)


def started(report: Any, first: str, actions: Actions | None = None) -> Dashboard:
    app = dashboard(report, actions=actions)
    app._first = first
    return app


def test_filter_order_and_unknowns() -> None:
    """`/` narrows while it is typed, Esc shows all again; `o` changes the order, `x` adds what could not be checked."""

    async def do(app: Dashboard, pilot: Any) -> None:
        def rows() -> list[str]:
            return [str(line.key) for line in pane(app, "list").lines]

        everything = rows()
        await press(pilot, "slash", *"numa")
        assert rows() == ["0f3c9a44d1e2b7a6"] or len(rows()) == 1
        await press(pilot, "enter")
        assert app.screen.focused is pane(app, "list")
        await press(pilot, "escape")
        assert rows() == everything
        await press(pilot, "o")
        assert rows() != everything
        assert sorted(rows()) == sorted(everything)
        await press(pilot, "x")
        assert len(rows()) == len(everything) + 3
        await press(pilot, "G")
        assert "only read with --deep" in screen_text(app) or "Permission denied" in screen_text(app)

    drive(started(server(), "findings"), do)


def test_help_lists_the_keys_of_its_screen() -> None:
    """`?` opens the help, Esc closes it; `q` closes a dialog before it ends the dashboard."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "question_mark", "enter")
        assert isinstance(app.screen, Findings)
        await press(pilot, "question_mark")
        assert isinstance(app.screen, Reading)
        assert "make the change, after a question" in screen_text(app)
        await press(pilot, "q")
        assert isinstance(app.screen, Findings)
        await press(pilot, "q")
        assert app._exit

    drive(started(server(), "findings"), do)


def test_the_key_that_opens_the_help_closes_it() -> None:
    """`?` twice is where one was."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "question_mark")
        assert isinstance(app.screen, Reading)
        await press(pilot, "question_mark")
        assert isinstance(app.screen, Overview)

    drive(dashboard(server()), do)


def test_control_c_quits() -> None:
    """As every other monitor does."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "ctrl+c")
        assert not app.is_running or app._exit

    drive(dashboard(server()), do)


def test_resizing_draws_anew() -> None:
    """From one column to two and back, with nothing lost."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        narrow = screen_text(app)
        assert max(map(len, narrow.splitlines())) <= 80
        await pilot.resize_terminal(160, 50)
        await settled(pilot)
        assert "4 of 16 lanes" in screen_text(app)
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        assert screen_text(app) == narrow
        await pilot.resize_terminal(20, 5)
        await settled(pilot)
        assert app._exception is None

    drive(started(server(), "findings"), do)


def test_a_picture_is_saved_and_themes_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`s` writes an SVG in the working directory; another theme draws the same text."""
    monkeypatch.chdir(tmp_path)

    async def do(app: Dashboard, pilot: Any) -> None:
        before = screen_text(app)
        await press(pilot, "s")
        (picture,) = tmp_path.glob("sysperf-*.svg")  # noqa: ASYNC240 - a test may wait
        assert picture.read_text().startswith("<svg")
        assert "url(http" not in picture.read_text()  # whoever opens it tells nobody
        for theme in ("textual-light", "ansi-dark", "nord"):
            if theme in app.available_themes:
                app.theme = theme
                await settled(pilot)
        app.clear_notifications()
        await settled(pilot)
        assert screen_text(app) == before

    drive(dashboard(server()), do)


def test_no_color_shows_severity_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR nothing is coloured, and marks still tell severities apart."""
    monkeypatch.setenv("NO_COLOR", "1")

    async def do(app: Dashboard, pilot: Any) -> None:
        styles = [segment.style for strip in app.screen._compositor.render_strips() for segment in strip if segment.style]
        colours = {colour.triplet for style in styles for colour in (style.color, style.bgcolor) if colour and colour.triplet}
        assert colours
        assert all(max(colour) - min(colour) <= 2 for colour in colours)
        assert "✗ GPU 5: The GPU's PCIe link" in screen_text(app)

    drive(started(server(), "findings"), do)


# ---------------------------------------------------------------------- acting


def swappiness(number: int = 60) -> Finding:
    """A finding that sysperf can fix."""
    fix = Remedy(
        "sysctl", "set vm.swappiness to 10", "safe", command="sudo sysctl -w vm.swappiness=10", undo=f"sudo sysctl -w vm.swappiness={number}",
        setting=Setting("vm.swappiness", "10"),
    )  # fmt: skip
    return Finding(
        "memory.swappiness-high", "finding", "warning", "host", "Swappiness is high", message=f"vm.swappiness is {number}.", why="It swaps early.",
        fixes=(fix,), key="swappiness",
    )  # fmt: skip


def acting(sandbox: Machine, source: Still, **more: Any) -> Actions:
    return Actions(source, rule, lambda: Changer(sandbox.host, str(sandbox.folder / "state")), **more)


def test_preview_apply_and_undo_change_a_machine_and_put_it_back(sandbox: Machine) -> None:
    """p shows the diff and changes nothing; a asks, Enter is a no, y applies and it is read back; u takes it back after a question."""
    report = reports.report(swappiness())
    source = Still(news(report))

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "p")
        assert isinstance(app.screen, Reading)
        assert "- 60" in screen_text(app)
        assert "+ 10" in screen_text(app)
        assert value(sandbox) == "60"
        await press(pilot, "escape", "a")
        assert isinstance(app.screen, Question)
        await press(pilot, "enter")
        assert isinstance(app.screen, Findings)
        assert value(sandbox) == "60"
        await press(pilot, "a", "y")
        assert value(sandbox) == "10"
        assert "1 setting changed and read back" in screen_text(app)
        assert source.looked == 1
        await press(pilot, "escape")
        assert pane(app, "list").lines[0].text.startswith("✓ Swappiness is high")
        await press(pilot, "6")
        assert "#1    in force" in screen_text(app)
        assert "holds" in screen_text(app)
        await press(pilot, "2", "u")
        assert isinstance(app.screen, Question)
        await press(pilot, "y")
        assert value(sandbox) == "60"
        assert "back to 60" in screen_text(app)
        await press(pilot, "escape", "6")
        assert "#1    undone" in screen_text(app)
        await press(pilot, "u")
        assert "nothing to take back" in notices(app)

    drive(started(report, "findings", acting(sandbox, source)), do)


def value(sandbox: Machine) -> str:
    return (sandbox.folder / f"root{SWAPPINESS}").read_text().strip()


def test_undo_from_the_list_of_changes(sandbox: Machine) -> None:
    """The changes screen undoes the selected transaction."""
    changer = Changer(sandbox.host, str(sandbox.folder / "state"))
    from sysperf.engine import change

    changer.apply(changer.plan([Setting("vm.swappiness", "10", "", "memory.swappiness-high")]), change.request("test"))
    source = Still(news(laptop()))

    async def do(app: Dashboard, pilot: Any) -> None:
        assert "60 → 10" in screen_text(app)
        await press(pilot, "u", "n")
        assert value(sandbox) == "10"
        await press(pilot, "u", "y")
        assert value(sandbox) == "60"

    drive(started(laptop(), "changes", acting(sandbox, source)), do)


def slow_wakeups() -> Finding:
    """A finding whose fix holds only while a process keeps it."""
    fix = Remedy("setting", "forbid the slow states", "caution", setting=Setting("cpu.dma_latency_us", "100"))
    return Finding("power.deep-idle", "finding", "hint", "host", "Deep idle states", message="It sleeps deeply.", fixes=(fix,), key="deep")


def test_a_setting_that_a_process_keeps_is_applied_by_lease(sandbox: Machine) -> None:
    """A process of ours stays behind and keeps it; it leaves when the change is undone, and would leave when the lease ends."""
    report = reports.report(slow_wakeups())
    (sandbox.folder / f"root{LATENCY}").write_bytes(struct.pack("=i", RELAXED_US))

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "a")
        assert "holds only while a process keeps it" in screen_text(app)
        assert "after 8 h" in screen_text(app)
        await press(pilot, "y")
        assert "1 setting changed and read back" in screen_text(app)
        (transaction,) = sandbox.journal.transactions()
        assert transaction.lease is not None
        assert transaction.keeper is not None
        assert alive(transaction.keeper)
        await press(pilot, "escape", "u", "y")
        assert sandbox.journal.transactions()[0].state == "undone"
        for _ in range(1_200):  # a minute, on a machine that is busy
            if not alive(transaction.keeper):
                break
            await asyncio.sleep(0.05)
        assert not alive(transaction.keeper)

    drive(started(report, "findings", acting(sandbox, Still(news(report)))), do)


def test_a_change_for_a_time_goes_back_by_itself(sandbox: Machine) -> None:
    """A asks for how long; what is no time is told, and what is one ends the change."""
    report = reports.report(swappiness())

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "A", *"soon", "enter")
        assert "no time span" in notices(app)
        await press(pilot, "A", *"1s", "enter")
        assert "taken back by itself after 1 s" in screen_text(app)
        await press(pilot, "y")
        (step,) = sandbox.journal.transactions()[0].steps
        assert (step.change.before, step.change.after, step.read) == ("60", "10", "10")
        for _ in range(1_200):  # a minute, on a machine that is busy
            if value(sandbox) == "60":
                break
            await asyncio.sleep(0.05)
        assert value(sandbox) == "60"

    drive(started(report, "findings", acting(sandbox, Still(news(report)))), do)


def test_a_refused_change_is_told_and_rolled_back(sandbox: Machine) -> None:
    """What the kernel refuses is said in the dialog, and the finding is not marked as fixed."""
    import errno

    tree = sandbox.host._tree
    assert isinstance(tree, Kernel)
    tree.refusing[SWAPPINESS] = errno.EPERM

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "a", "y")
        assert "was rolled back" in screen_text(app)
        assert not app.now.fixed

    report = reports.report(swappiness())
    drive(started(report, "findings", acting(sandbox, Still(news(report)))), do)


def test_nothing_is_changed_on_another_machine() -> None:
    """A captured or remote machine: apply, undo and waive say so, and copying still works."""

    async def do(app: Dashboard, pilot: Any) -> None:
        for key in ("a", "p", "u"):
            await press(pilot, key)
            assert isinstance(app.screen, Findings)
            assert "another machine" in notices(app)
            app.clear_notifications()
        await press(pilot, "w")
        assert "a waiver is written in the configuration" in notices(app)
        await press(pilot, "y")
        assert app.clipboard == paths.pasteable("sudo sysctl -w vm.swappiness=10")  # root of a container has no sudo

    drive(started(reports.report(swappiness()), "findings"), do)


def test_a_read_only_dashboard_previews_and_changes_nothing(sandbox: Machine) -> None:
    """The plan and the journal are shown; apply, undo and waive are refused, in the code that changes as well as on the screen."""
    report = reports.report(swappiness())
    actions = acting(sandbox, Still(news(report)), waive=waive.write, refusal="This dashboard is read-only: no")

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "p")
        assert "+ 10" in screen_text(app)
        await press(pilot, "escape")
        for key in ("a", "u", "w"):
            app.clear_notifications()
            await press(pilot, key)
            assert isinstance(app.screen, Findings)
            assert "read-only" in notices(app)
        await press(pilot, "6", "u")
        assert "read-only" in notices(app)

    drive(started(report, "findings", actions), do)
    with pytest.raises(SysperfError, match="read-only"):
        changes_of.apply(actions, swappiness(), changes_of.propose(actions, swappiness()).plan)
    assert value(sandbox) == "60"


def test_copying_goes_through_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command reaches the clipboard by OSC 52, which works over ssh and in tmux."""
    written: list[str] = []

    async def do(app: Dashboard, pilot: Any) -> None:
        assert app._driver is not None
        monkeypatch.setattr(app._driver, "write", written.append)
        await press(pilot, "y")

    drive(started(reports.report(swappiness()), "findings"), do)
    copied = paths.pasteable("sudo sysctl -w vm.swappiness=10")  # root of a container has no sudo
    assert f"\x1b]52;c;{base64.b64encode(copied.encode()).decode()}\a" in written


def test_explain_shows_the_rule() -> None:
    """e opens the rule's own text; a rule that nobody knows is an error that does not end anything."""

    def absent(name: str) -> Any:
        raise SysperfError(f"no rule {name}", "look again")

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "e")
        assert "Why it matters." in screen_text(app)
        await press(pilot, "escape")
        app.actions = app.screen.actions = Actions(app.actions.source, absent)  # type: ignore[attr-defined]
        await press(pilot, "e")
        assert "look again" in notices(app)

    drive(started(server(), "findings"), do)


def test_a_dashboard_that_was_replaced_on_the_disk_says_so() -> None:
    """What a key needs may be imported by its first press: where an update has taken it away, nothing ends, and nothing is silent."""

    def gone(_: str) -> Any:
        raise ImportError("cannot import name 'find' from 'sysperf.engine.judging'")

    async def do(app: Dashboard, pilot: Any) -> None:
        app.actions = app.screen.actions = Actions(app.actions.source, gone)  # type: ignore[attr-defined]
        await press(pilot, "e")
        assert "start it anew" in notices(app)
        await press(pilot, "1")
        assert app.is_running

    drive(started(server(), "findings"), do)


def test_waiving_writes_the_project_file_and_takes_it_back(tmp_path: Path, sandbox: Machine) -> None:
    """w asks for a reason and an end, writes the waiver behind what is there; W removes it, and the file is as it was."""
    file = tmp_path / ".sysperf.toml"
    file.write_text('fail_on = "error"')
    file.chmod(0o640)
    report = reports.report(swappiness(), reports.brief("omp.threads", "hint", "Too many threads."))
    actions = acting(sandbox, Still(news(report)), waive=lambda finding, reason, expires: waive.write(finding, reason, expires, file))

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "w")
        assert isinstance(app.screen, Waiving)
        assert "Accepts this machine" in screen_text(app)
        await press(pilot, *"ok", "enter")
        assert "say why" in notices(app)
        app.screen.query_one("#reason", Input).value = 'it is "shared"\\'
        await press(pilot, "enter")
        app.screen.query_one("#expires", Input).value = "yesterday"
        await press(pilot, "enter")
        assert "no end of a waiver" in notices(app)
        app.screen.query_one("#expires", Input).value = "2099-03-31"
        await press(pilot, "enter")
        app.clear_notifications()
        await settled(pilot)
        assert "1 finding" in screen_text(app)
        assert "Too many threads" in "".join(line.text for line in pane(app, "detail").lines)
        expected = {"rule": "memory.swappiness-high", "reason": 'it is "shared"\\', "expires": datetime.date(2099, 3, 31)}
        assert tomli.loads(file.read_text()) == {"fail_on": "error", "waive": [expected]}
        assert file.stat().st_mode & 0o777 == 0o640
        await press(pilot, "w", "escape")
        await press(pilot, "W")
        assert "2099-03-31" in screen_text(app)
        await press(pilot, "y")
        assert len(app.now.findings()) == 2
        assert file.read_text().strip() == 'fail_on = "error"'
        await press(pilot, "W")
        assert "No waiver was written from here" in notices(app)

    drive(started(report, "findings", actions), do)
    assert [path.name for path in tmp_path.glob(".sysperf*")] == [".sysperf.toml"]


def test_a_waiver_of_a_program_says_whom_it_reaches(tmp_path: Path, sandbox: Machine) -> None:
    """All programs of the name, and no other: the question says so, and so does the file."""
    file = tmp_path / ".sysperf.toml"
    other = msgspec.structs.replace(few_workers(7), subject=Subject("process", "serve", pid=7))
    report = reports.report(few_workers(4243), other)
    actions = acting(sandbox, Still(news(report)), waive=lambda finding, reason, expires: waive.write(finding, reason, expires, file))

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "w")
        assert "every subject python (pid *), those that start later too" in screen_text(app)
        await press(pilot, *"shared", "enter", "enter")
        assert [finding.about for finding in app.now.findings()] == ["serve (pid 7)"]

    drive(started(report, "findings", actions), do)
    (waiver,) = tomli.loads(file.read_text())["waive"]
    assert waiver["subject"] == "python (pid *)"
    assert waiver["expires"] > datetime.datetime.now(tz=datetime.timezone.utc).date()


def test_a_waiver_of_a_program_is_for_it_and_its_owner(tmp_path: Path) -> None:
    """Another team's program with the same fault and the same interpreter is not accepted along with it."""
    subject = Subject("process", "python", pid=7, program="python train.py", user=1000)
    mine = msgspec.structs.replace(few_workers(7), subject=subject)

    def another(**changes: object) -> Finding:
        return msgspec.structs.replace(mine, subject=msgspec.structs.replace(subject, **changes))

    written = waive.write(mine, "shared", None, tmp_path / ".sysperf.toml")

    assert "program python train.py of user 1000" in waive.reach(mine)
    assert written.covers(another(pid=8))
    assert not written.covers(another(program="python serve.py"))
    assert not written.covers(another(user=1001))


def test_a_waiver_that_somebody_removed_is_not_removed_again(tmp_path: Path) -> None:
    """Taking back finds its own entry only, and leaves the file alone when that is gone."""
    file = tmp_path / ".sysperf.toml"
    written = waive.write(swappiness(), "shared", None, file)
    file.write_text("# mine\n")

    with pytest.raises(SysperfError, match="not there any more"):
        waive.take_back(written)
    assert file.read_text() == "# mine\n"


# ---------------------------------------------------------------------- other screens


def test_a_program_opens_with_the_wrap_that_would_have_been_right() -> None:
    """Enter on a program shows its environment, threads and libraries; y copies the command; Esc closes."""
    again = Rewrap(77, "sysperf wrap -- python train.py", ("OMP_NUM_THREADS=16",), ("omp.threads",))
    actions = Actions(Still(news(box())), rule, rewrap=lambda _, pid: again if pid == 77 else None)

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "enter")
        text = "\n".join(line.text for line in pane(app, "detail").lines)
        assert "wrap would have set OMP_NUM_THREADS=16" in text
        assert "NCCL_DEBUG=WARN" in text
        assert "libcudnn" in text
        await press(pilot, "y")
        assert app.clipboard == "sysperf wrap -- python train.py"
        await press(pilot, "escape")
        assert not pane(app, "detail").display

    drive(started(box(), "processes", actions), do)


def test_a_wrap_command_is_copied_without_opening() -> None:
    """One key: what is not known yet is looked up for it."""
    again = Rewrap(77, "sysperf wrap -- python train.py", ("OMP_NUM_THREADS=16",), ("omp.threads",))

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "y")
        assert app.clipboard == "sysperf wrap -- python train.py"

    drive(started(box(), "processes", Actions(Still(news(box())), rule, rewrap=lambda *_: again)), do)


def readings(at: float, *cpu_s: float) -> Workers:
    """Workers that used so many CPU seconds."""
    workers = [Worker(900 + n, "SRD"[n % 3], used, n, 1 << 28, CpuSet.parse("0-7"), int(used) << 20) for n, used in enumerate(cpu_s)]
    return Workers(77, at, tuple(workers))


def test_workers_unfold_under_their_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Space, l and → show a row each, with rates from the second reading on; space, h and ← hide them; the mouse does both."""
    monkeypatch.setattr(screens, "WORKERS_S", 3_600.0)  # read when the test says
    source = Still(news(box()))
    source.readings = [readings(1, 1, 2, 3), readings(2, 1.25, 3, 3), readings(3, 1.25, 3, 3)]

    async def do(app: Dashboard, pilot: Any) -> None:
        screen, rows = app.screen, pane(app, "rows")
        assert isinstance(screen, Processes)
        assert rows.lines[0].text.startswith("▸")
        await press(pilot, "l")
        assert [line.key for line in rows.lines] == [77, (77, 900), (77, 901), (77, 902)]
        assert "?" in rows.lines[1].text
        assert "├     900     ? CPUs   256 MiB  waits             CPU 0 of 0-7" in rows.lines[1].text
        screen._read_workers()
        await settled(pilot)
        assert "├     901   1.0 CPUs   256 MiB  runs              CPU 1 of 0-7  reads 1 MiB/s" in rows.lines[2].text
        assert rows.lines[0].text.startswith("▾")
        await press(pilot, "j", "enter")
        assert pane(app, "detail").display, "a worker opens its program"
        await press(pilot, "escape", "h")
        assert [line.key for line in rows.lines] == [77]
        assert rows.key == 77
        await pilot.click("#rows", offset=(0, 0))
        await settled(pilot)
        assert len(rows.lines) == 4
        assert not pane(app, "detail").display
        await press(pilot, "left", "right", "space")
        assert len(rows.lines) == 1
        await press(pilot, "space")
        assert "this source does not tell" in rows.lines[1].text

    drive(started(box(), "processes", Actions(source, rule)), do)


def test_workers_of_an_ended_program_are_forgotten() -> None:
    """Nothing is asked of a program that is no longer there."""
    source = Still(news(box()))
    source.readings = [readings(1, 1)]

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "space")
        app.take(Facts(laptop()))
        screen = app.screen
        assert isinstance(screen, Processes)
        screen._read_workers()
        assert not screen._readings

    drive(started(box(), "processes", Actions(source, rule)), do)


def test_a_click_on_a_column_sorts_by_it() -> None:
    """The name stands out; the largest value is first, and what is unknown is last."""

    async def do(app: Dashboard, pilot: Any) -> None:
        head = pane(app, "head")
        await pilot.click("#head", offset=(head.lines[1].text.index("data") + 1, 1))
        await settled(pilot)
        assert "by data" in head.lines[0].text
        assert [line.key for line in pane(app, "rows").lines] == [4243, 4245, 4242, 4244]
        assert "≤41%" in pane(app, "rows").lines[0].text
        await pilot.click("#head", offset=(head.lines[1].text.index("pid") + 1, 1))
        await settled(pilot)
        assert [line.key for line in pane(app, "rows").lines] == [4242, 4243, 4244, 4245]

    drive(started(server(), "processes"), do)


def test_wait_for_data_is_a_bound_or_unknown() -> None:
    """No workers: nobody can tell from outside. Workers and no meter yet: unknown so far."""
    now = Now()
    report = box()
    now.take(Facts(report))
    process = now.processes()[0]
    assert one_program.data_wait(now, process) == "?"
    now.take(Meters(START, {"process.77.workers": 4, "process.77.data_wait": 0.43}))
    assert one_program.data_wait(now, process) == 0.43
    assert "at most 43 %" in "\n".join(line.text for line in program.detail(now, process, None, 120))
    now.take(Meters(START + 1, {"process.77.workers": 0}))
    assert one_program.data_wait(now, process) == "-"
    assert "sysperf stacks PID" in "\n".join(line.text for line in program.detail(now, process, None, 200))


def test_a_program_that_ends_leaves_the_list() -> None:
    """The row goes, the selection moves on, and open details say that it ended."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "enter")
        app.take(Facts(laptop()))
        await settled(pilot)
        assert "No PyTorch program is running" in screen_text(app)
        assert "has ended" in screen_text(app)

    drive(started(box(), "processes"), do)


def test_programs_are_filtered_and_ordered() -> None:
    """By words of the command, and by what they use."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "o")
        assert [line.key for line in pane(app, "rows").lines] == [4245, 4244, 4243, 4242]
        await press(pilot, "slash", *"4244", "enter")
        assert [line.key for line in pane(app, "rows").lines] == [4244]

    drive(started(server(), "processes"), do)


def test_the_map_marks_a_program() -> None:
    """m marks its CPUs and tells its memory at each node; the source is asked for the load only while the map or the overview is open."""
    source = Still(news(box()))

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "m")
        assert "program 6 GiB (67 %)" in screen_text(app)
        await press(pilot, "m")
        assert "program 6 GiB" not in screen_text(app)
        await press(pilot, "1")
        assert source.watched[-1]
        await press(pilot, "2")
        assert not source.watched[-1]

    drive(started(box(), "topology", Actions(source, rule)), do)


def test_a_program_is_shown_on_the_map() -> None:
    """m on a program's row opens the map with it marked."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "m")
        assert isinstance(app.screen, Topology)
        assert "marked: 77" in screen_text(app)
        assert "program 6 GiB (67 %)" in screen_text(app)

    drive(started(box(), "processes"), do)


def test_the_palette_has_the_keys_of_the_screen() -> None:
    """What a key does here is found by name, too."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "ctrl+p", *"findings explain", "enter")
        assert isinstance(app.screen, Reading)
        assert "Why it matters." in screen_text(app)

    drive(started(server(), "findings"), do)


def test_history_changes_its_span_and_series() -> None:
    """] and [ change the time, the list the series."""

    async def do(app: Dashboard, pilot: Any) -> None:
        names = app.screen.query_one("#names", Pane)
        await press(pilot, "k", "k")
        first = names.key
        assert f"{first}  1 h" in screen_text(app)
        await press(pilot, "right_square_bracket", "j")
        assert names.key != first
        assert f"{names.key}  6 h" in screen_text(app)
        await press(pilot, "minus", "minus")
        assert f"{names.key}  10 min" in screen_text(app)
        assert " at " not in screen_text(app)
        await press(pilot, "left", "left")
        assert len({row.index("┃") for row in screen_text(app).splitlines() if "┃" in row}) == 1
        assert re.search(r"10 min   at \w+ \d\d:\d\d:\d\d", screen_text(app))
        await press(pilot, "escape")
        assert "┃" not in screen_text(app)
        await pilot.click("#chart", offset=(40, 12))
        assert "┃" in screen_text(app)
        await press(pilot, "slash", *"cpus", "enter")
        assert "memory.dirty" not in screen_text(app)

    drive(started(server(), "history", Actions(Still(news(server()), remembers=True), rule)), do)


def test_a_problem_of_the_source_is_shown_and_goes() -> None:
    """An agent that does not answer is told beside what is still known."""

    async def do(app: Dashboard, pilot: Any) -> None:
        app.take(Problem("no agent answers; trying again"))
        await settled(pilot)
        assert "! no agent answers" in screen_text(app)
        app.take(Problem(""))
        await settled(pilot)
        assert "no agent answers" not in screen_text(app)

    drive(dashboard(laptop()), do)


def test_only_lines_that_changed_are_drawn() -> None:
    """A sample in which one meter moved draws its line and the curves, not the screen."""

    async def do(app: Dashboard, pilot: Any) -> None:
        view = app.screen.query_one(Pane)
        app.now.past.clear()
        app.take(Meters(START + 1, {"cpu.busy": 0.42}))
        await settled(pilot)
        before = view.drawn
        app.take(Meters(START + 2, {"cpu.busy": 0.99}))
        await settled(pilot)
        curves = sum("┊" in line.text or "⣿" in line.text or "-1 min" in line.text for line in view.lines)
        assert view.drawn - before <= 3 + curves

    drive(dashboard(laptop()), do)


def test_a_reader_of_captures_needs_no_machine(tmp_path: Path) -> None:
    """A folder that holds nothing is shown, too: everything is unknown, and nothing is an error."""
    from sysperf.engine import judging
    from sysperf.engine.judging import Terms
    from sysperf.tui.sources.captured import Captured

    (tmp_path / "proc").mkdir()
    ruleset = judging.load_rules()

    async def do(app: Dashboard, pilot: Any) -> None:
        for _ in range(100):
            if app.now.report is not None:
                break
            await asyncio.sleep(0.05)
        for key in "1234567":
            await press(pilot, key)
            assert not [widget.failure for widget in app.screen.query(Pane) if widget.failure]
        await press(pilot, "1")
        assert "Cannot tell yet: " in screen_text(app)

    source = Captured(Host(tmp_path), lambda: Terms(ruleset))
    drive(Dashboard(Actions(source, rule)), do)


def test_a_row_is_written_when_it_comes_into_sight() -> None:
    """Rows of many programs out of sight cost nothing, can be gone to all the same, and are there once they are scrolled to."""

    async def do(app: Dashboard, pilot: Any) -> None:
        rows = pane(app, "rows")
        assert [bool(line.spans) for line in rows.lines] == [number in rows.in_sight for number in range(60)]
        assert not rows.lines[59].spans
        await press(pilot, "G")
        assert rows.key == 1059
        assert "1059" in screen_text(app)
        assert [bool(line.spans) for line in rows.lines] == [number in rows.in_sight for number in range(60)]
        assert not rows.lines[0].spans

    drive(started(crowd(60), "processes"), do)


def crowd(number: int) -> Report:
    """A machine that runs so many programs."""
    report = box()
    facts = {"processes": [process(1000 + index) for index in range(number)], "scanned": number, "unreadable": 0}
    areas = {**report.snapshot.areas, "process": decode.area("process", {"facts": facts})}
    return msgspec.structs.replace(report, snapshot=msgspec.structs.replace(report.snapshot, areas=areas))


@pytest.mark.parametrize("name", TABS)
def test_it_ends_while_a_screen_is_made(name: str) -> None:
    """A signal may come then: the exit code says which, and no internal error."""
    app = dashboard(laptop())

    async def run() -> None:
        async with app.run_test(size=(120, 40)):
            app.exit(None, 143)
            app.push_screen(name)

    asyncio.run(run())
    assert app.return_code == 143
