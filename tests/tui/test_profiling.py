"""The keys of the Processes screen that look into a program: its stacks, and a trace of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.profile import Frame, Stacks, Thread, Trace
from sysperf.plugin import ReportProgress
from sysperf.tui.actions import READ_ONLY, Actions, Profilers
from sysperf.tui.app import Dashboard
from sysperf.tui.profilers import here
from sysperf.tui.screens.dialogs import Question, Reading
from sysperf.tui.screens.processes import Processes
from sysperf.tui.screens.profiling import Progress
from tests.tui.conftest import screen_text, settled
from tests.tui.machines import Still, news, rule, server
from tests.tui.test_keys import drive, notices, press

DONE = Trace(4242, "/home/me/t.json", 157_884, 551, 5, 9.5)
STACKS = Stacks(4242, (Thread(4242, "MainThread", True, tuple(Frame(f"call_{n}", "/home/me/evil\x1b[31m.py", n) for n in range(1, 90))),))


def stacks(_: int) -> Stacks:
    return STACKS


def traceable(_: int) -> str:
    return "/home/me"


def trace(_: int, tell: ReportProgress) -> Trace:
    tell("the program traces itself")
    return DONE


def at_processes(profilers: Profilers | None, refusal: str = "", **more: Any) -> Dashboard:
    """The dashboard on a server with four ranks."""
    return Dashboard(Actions(Still(news(server()), **more), rule, refusal=refusal, profilers=profilers), first="processes")


def fails(message: str, hint: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise UsageError(message, hint)

    return refuse


def test_stacks_are_shown_and_scroll() -> None:
    """All of them, harmless, in a window; the plain text can be copied."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "c")
        assert isinstance(app.screen, Reading)
        screen = screen_text(app)
        assert "Process 4242: 1 Python thread" in screen
        assert "call_1 " in screen
        assert "call_89" not in screen
        assert "\x1b" not in screen
        await press(pilot, "end")
        assert "call_89" in screen_text(app)
        await press(pilot, "y", "escape")
        assert "call_89" in app.clipboard
        assert isinstance(app.screen, Processes)

    drive(at_processes(Profilers(stacks, traceable, trace)), do)


def test_a_trace_is_asked_for_taken_and_told() -> None:
    """Nothing happens before a yes; the file is told at the end, and its path can be copied."""
    taken: list[int] = []

    def take(pid: int, tell: ReportProgress) -> Trace:
        taken.append(pid)
        return trace(pid, tell)

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "x")
        assert isinstance(app.screen, Question)
        assert "in /home/me" in screen_text(app)
        await press(pilot, "enter")
        assert not taken
        await press(pilot, "x", "y")
        assert taken == [4242]
        assert "/home/me/t.json" in screen_text(app)
        assert "551 events, 5 optimizer steps" in screen_text(app)
        await press(pilot, "y", "escape")
        assert app.clipboard == "/home/me/t.json"
        assert not app.screen.query(Progress)

    drive(at_processes(Profilers(stacks, traceable, take)), do)


LABELLED = Path(__file__).parent.parent / "traces" / "kineto_resnet50_nw0.json.gz"


def analyzing(path: str) -> Profilers:
    """Profilers that write this file, and read it as the dashboard of this machine does."""
    return here()._replace(traceable=traceable, trace=lambda *_: msgspec.structs.replace(DONE, path=path))


def test_a_trace_opens_its_analysis() -> None:
    """What the time was lost to stands first, the file below it; the path can be copied."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "x", "y")
        screen = screen_text(app)
        assert "Input-bound: the device waits for the loader 33 % of the time." in screen
        assert "dataloader.inline" in screen
        await press(pilot, "end")
        assert "551 events, 5 optimizer steps" in screen_text(app)
        await press(pilot, "y", "escape")
        assert app.clipboard == str(LABELLED)
        assert not app.screen.query(Progress)

    drive(at_processes(analyzing(str(LABELLED))), do)


def test_a_trace_that_cannot_be_read_is_still_told(tmp_path: Path) -> None:
    """The file was written; why it was not analyzed stands below it."""
    broken = tmp_path / "t.json"
    broken.write_text("no trace")

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "x", "y")
        screen = screen_text(app)
        assert "551 events, 5 optimizer steps" in screen
        assert "It was not analyzed" in screen

    drive(at_processes(analyzing(str(broken))), do)


def test_progress_is_shown_meanwhile_and_only_one_is_taken() -> None:
    """The dashboard goes on while the program traces itself."""
    go = threading.Event()

    def take(_: int, tell: ReportProgress) -> Trace:
        tell("waiting until it asks\x1b[31m")
        assert go.wait(20)
        return DONE

    async def do(app: Dashboard, pilot: Any) -> None:
        try:
            await pilot.press("x")
            await settled(pilot)
            await pilot.press("y")
            for _ in range(40):
                await pilot.pause(0.1)
                if "Trace: waiting until it asks\\x1b" in screen_text(app):
                    break
            assert "Trace: waiting until it asks\\x1b" in screen_text(app)
            await pilot.press("j")
            await pilot.press("x")
            await pilot.pause()
            assert "being taken already" in notices(app)
        finally:
            go.set()
        await settled(pilot)
        assert isinstance(app.screen, Reading)

    drive(at_processes(Profilers(stacks, traceable, take)), do)


def test_leaving_ends_the_trace() -> None:
    """What takes a trace is told to stop, and cleans up before the dashboard is gone."""
    begun, cleaned = threading.Event(), threading.Event()

    def take(_: int, tell: ReportProgress) -> Trace:
        try:
            end = time.monotonic() + 20
            while time.monotonic() < end:
                tell("tracing")
                begun.set()
                time.sleep(0.02)
        finally:
            cleaned.set()
        return DONE

    async def run() -> None:
        app = at_processes(Profilers(stacks, traceable, take))
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(pilot)
            await press(pilot, "x")
            await pilot.press("y")
            for _ in range(100):
                await pilot.pause(0.05)
                if begun.is_set():
                    break
            assert begun.is_set()
            await pilot.press("q")

    asyncio.run(run())
    assert cleaned.is_set()


@pytest.mark.parametrize("key", ["c", "x"])
def test_why_not_is_said(key: str) -> None:
    """Another machine, a read-only dashboard, and what the profiler itself refuses, with the next step."""

    def check(app: Dashboard, *expected: str) -> None:
        async def do(app: Dashboard, pilot: Any) -> None:
            await press(pilot, key)
            assert isinstance(app.screen, Processes)
            assert all(notice in notices(app) for notice in expected), notices(app)

        drive(app, do)

    refuse = fails("no permission", "sudo sysperf")
    check(at_processes(None, local=False), "another machine", "on it")
    check(at_processes(Profilers(stacks, traceable, trace), READ_ONLY), "read-only", "4242 in a terminal")
    check(at_processes(Profilers(refuse, refuse, trace)), "no permission", "sudo sysperf")


def test_a_trace_that_fails_is_told() -> None:
    """The line goes, the reason stays for a while, and the next one can be taken."""

    def take(_: int, tell: ReportProgress) -> Trace:
        raise SysperfError("process 4242 ended before its trace was written")

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "x", "y")
        assert "ended before" in notices(app)
        assert not app.screen.query(Progress)

    drive(at_processes(Profilers(stacks, traceable, take)), do)
