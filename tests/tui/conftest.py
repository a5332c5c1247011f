"""Golden screens: the text of the terminal, cell by cell, kept to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sysperf.tui.app import Dashboard
from sysperf.tui.doors import Doors
from sysperf.verify.trials import Trials
from tests.fix.kernel import Machine
from tests.tui.machines import Still, news, rule

Golden = Callable[[str, str], None]
FOLDER = Path(__file__).parent / "golden"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a screen with the golden file of this name, or write it with ``--update``."""

    def check(name: str, text: str) -> None:
        path = FOLDER / f"{name}.txt"
        if request.config.getoption("--update"):
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{name} changed: look at it, then run pytest with --update"

    return check


def dashboard(report: Any, *, doors: Doors | None = None, **more: Any) -> Dashboard:
    """A dashboard on a recorded machine."""
    return Dashboard(doors or Doors(Still(news(report), **more), rule, trials=Trials))


def screen_text(app: Dashboard) -> str:
    """What the terminal shows, without blanks at the ends."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"


async def settled(pilot: Any) -> None:
    """Until messages, threads and layouts are done."""
    await pilot.pause()
    if any(not worker.is_finished for worker in pilot.app.workers):
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()


@pytest.fixture
def made(tmp_path: Path) -> Machine:
    """A machine made of files, whose settings can be changed."""
    return Machine.make(tmp_path / "machine")
