"""What tests of the dashboard share: a dashboard on a recorded machine, and the text of its terminal, cell by cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.containers import Vertical
from textual.screen import ModalScreen

from sysperf.tui.actions import Actions
from sysperf.tui.app import Dashboard
from sysperf.tui.shell import Shell
from sysperf.tui.widgets import ink
from sysperf.verify.trials import Trials
from tests.fix.kernel import Machine
from tests.tui.machines import Still, news, rule


def dashboard(report: Any, *, actions: Actions | None = None, theme: str = "", **more: Any) -> Dashboard:
    """A dashboard on a recorded machine."""
    return Dashboard(actions or Actions(Still(news(report), **more), rule, trials=Trials), theme=theme)


def screen_text(app: Shell) -> str:
    """What the terminal shows, without blanks at the ends."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"


def unreadable(app: Shell) -> set[tuple[float, str, str, str]]:
    """(contrast, character, colour, what lies under it) of all cells below what eyes need. The terminal's own colours are unknown."""
    out: set[tuple[float, str, str, str]] = set()
    strips = app.screen._compositor.render_strips()
    if isinstance(app.screen, ModalScreen):  # what lies behind it is darkened, so that nobody reads it
        box = app.screen.query_one(Vertical).region
        strips = [strip.crop(box.x, box.right) for strip in strips[box.y : box.bottom]]
    for strip in strips:
        for segment in strip:
            style = segment.style
            if style is None or style.color is None or style.bgcolor is None or style.color.is_default or style.bgcolor.is_default:
                continue
            color, under = (ink.shown(each, app.console.color_system) for each in (style.color, style.bgcolor))
            ratio = ink.contrast(color, under)
            if ratio < ink.CONTRAST:
                out |= {(round(ratio, 2), char, color.hex, under.hex) for char in segment.text if not char.isspace()}
    return out


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
