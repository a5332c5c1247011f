"""What tests of the dashboard share: a dashboard on a recorded machine, and the text of its terminal, cell by cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sysperf.tui.actions import Actions
from sysperf.tui.app import Dashboard
from sysperf.verify.trials import Trials
from tests.fix.kernel import Machine
from tests.tui.machines import Still, news, rule


def dashboard(report: Any, *, actions: Actions | None = None, **more: Any) -> Dashboard:
    """A dashboard on a recorded machine."""
    return Dashboard(actions or Actions(Still(news(report), **more), rule, trials=Trials))


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
def sandbox(tmp_path: Path) -> Machine:
    """A machine made of files, whose settings can be changed."""
    return Machine.make(tmp_path / "machine")
