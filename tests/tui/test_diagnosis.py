"""`d` on a program: a window that fills in as signals arrive."""

from __future__ import annotations

import threading
from typing import Any

from sysperf.diagnosis.verdict import Verdict
from sysperf.model.errors import SysperfError
from sysperf.model.finding import Finding, Gain, Signal
from sysperf.tui.actions import Actions
from sysperf.tui.app import Dashboard
from sysperf.tui.screens.diagnosis import Diagnosing
from tests.tui.conftest import screen_text
from tests.tui.machines import Still, news, rule, server
from tests.tui.test_keys import drive, notices, press

EVIL = "\x1b[31mevil"
CAUSE = Finding(
    "dataloader.inline", "confirmed", "warning", "diagnosis", f"The main thread makes the batches {EVIL}", message="62 %",
    gain=Gain("samples", low=30.0, middle=40.0, high=50.0), signals=(Signal(source="stacks", text="62 %"),), verify="sysperf verify -- python train.py",
)  # fmt: skip
EARLY = Verdict(sysperf="1", pid=4242, verdict="cannot-tell", sentence="Cannot tell yet.")
LATE = Verdict(sysperf="1", pid=4242, verdict="slowed", sentence="Confirmed: the loader.", causes=(CAUSE,))


def at_processes(diagnose: Any, refusal: str = "") -> Dashboard:
    return Dashboard(Actions(Still(news(server())), rule, refusal=refusal, diagnose=diagnose), first="processes")


def test_the_window_fills_in_as_signals_arrive() -> None:
    """First what is looked at, then a verdict so far, then the last one; it can be copied."""
    go = threading.Event()

    def diagnose(pid: int, tell: Any) -> Verdict:
        tell("samples", EARLY)
        go.wait(20)
        return LATE

    async def do(app: Dashboard, pilot: Any) -> None:
        await pilot.press("d")  # `press` would wait until its work is done
        for _ in range(50):
            await pilot.pause(0.05)
            if "Cannot tell yet." in screen_text(app):
                break
        assert "looking at samples" in screen_text(app)
        go.set()
        for _ in range(50):
            await pilot.pause(0.05)
            if "Confirmed: the loader." in screen_text(app):
                break
        screen = screen_text(app)
        assert "saves about 40 % of the step (30 to 50)" in screen
        assert "looking at" not in screen
        assert "\x1b" not in screen
        await press(pilot, "y", "escape")
        assert "sysperf verify" in app.clipboard

    drive(at_processes(diagnose), do)


def test_an_error_stays_in_the_window() -> None:
    """With what to do next."""

    def refuse(*_: Any) -> Verdict:
        raise SysperfError("process 4242 ended", "look at another one")

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "d")
        for _ in range(50):
            await pilot.pause(0.05)
            if "ended" in screen_text(app):
                break
        assert "look at another one" in screen_text(app)

    drive(at_processes(refuse), do)


def test_a_full_disk_is_told() -> None:
    """The window does not look at a program for ever."""

    def fail(*_: Any) -> Verdict:
        raise OSError(28, "No space left on device")

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "d")
        for _ in range(50):
            await pilot.pause(0.05)
            if "No space" in screen_text(app):
                break
        assert "No space left" in screen_text(app)
        assert "looking at" not in screen_text(app)

    drive(at_processes(fail), do)


def test_elsewhere_and_read_only_are_said() -> None:
    """There is no window."""

    async def do(app: Dashboard, pilot: Any) -> None:
        await press(pilot, "d")
        assert not isinstance(app.screen, Diagnosing)
        assert "sysperf diagnose" in notices(app)

    drive(at_processes(None), do)
    drive(at_processes(lambda *_: LATE, "read-only"), do)
