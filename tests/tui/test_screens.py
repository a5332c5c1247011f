"""Every screen on every recorded machine at three sizes, as golden text."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from sysperf.tui.screens.view import TABS
from sysperf.tui.widgets.pane import Pane
from tests.tui.conftest import Golden, dashboard, screen_text, settled
from tests.tui.machines import MACHINES

SIZES = ((80, 24), (120, 40), (200, 60))


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times on the axis are local; here local is UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", MACHINES)
def test_screens_are_as_they_were(name: str, size: tuple[int, int], golden: Golden) -> None:
    """The text of each screen, the cell where it stands, and nothing that could not be drawn."""
    asyncio.run(_all_screens(name, size, golden))


async def _all_screens(name: str, size: tuple[int, int], golden: Golden) -> None:
    app = dashboard(MACHINES[name](), remembers=name == "server")
    found = []
    async with app.run_test(size=size) as pilot:
        for number, screen in enumerate(TABS, 1):
            await pilot.press(str(number))
            await settled(pilot)
            if screen == "processes":
                await pilot.press("enter")
                await settled(pilot)
            found.append(f"{screen}\n{screen_text(app)}")
            assert not [pane.failure for pane in app.screen.query(Pane) if pane.failure]
    golden(f"{name}-{size[0]}x{size[1]}", ("\n" + "=" * size[0] + "\n").join(found))


def test_goldens_are_all_used() -> None:
    """No golden file is left over from a machine or size that is gone."""
    folder = os.path.join(os.path.dirname(__file__), "golden")
    assert sorted(os.listdir(folder)) == sorted(f"{name}-{width}x{height}.txt" for name in MACHINES for width, height in SIZES)
