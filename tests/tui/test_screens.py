"""Every screen on every recorded machine at three sizes, as golden text."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from textual.geometry import Region
from textual.strip import Strip

from sysperf.tui.actions import Actions
from sysperf.tui.screens.view import TABS
from sysperf.tui.widgets.pane import Pane
from sysperf.verify import trials
from tests.golden import ROOT, Golden
from tests.tui.conftest import dashboard, screen_text, settled
from tests.tui.machines import MACHINES, Still, news, rule, server

FOLDER = ROOT / "tests/tui/golden"

MEASURED = Path(__file__).parent / "data/trials.jsonl"
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
    screens = []
    async with app.run_test(size=size) as pilot:
        for number, screen in enumerate(TABS, 1):
            await pilot.press(str(number))
            await settled(pilot)
            if screen == "processes":
                await pilot.press("enter")
                await settled(pilot)
            screens.append(f"{screen}\n{screen_text(app)}")
            assert not [pane.failure for pane in app.screen.query(Pane) if pane.failure]
    golden(FOLDER / f"{name}-{size[0]}x{size[1]}.txt", ("\n" + "=" * size[0] + "\n").join(screens))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_results_are_drawn_as_bars(size: tuple[int, int], golden: Golden) -> None:
    """The ladder from the ground up, then what was verified and tuned, on one scale; and the gain of a finding that was tried."""
    asyncio.run(_measured(size, golden))


async def _measured(size: tuple[int, int], golden: Golden) -> None:
    actions = Actions(Still(news(server())), rule, trials=lambda: trials.read([str(MEASURED)]))
    app = dashboard(server(), actions=actions)
    async with app.run_test(size=size) as pilot:
        await pilot.press("7")
        await settled(pilot)
        await pilot.press("G")
        await settled(pilot)
        golden(FOLDER / f"bench-{size[0]}x{size[1]}.txt", screen_text(app))
        await pilot.press("2", "j")
        await settled(pilot)
        detail = " ".join(line.text for line in app.screen.query_one("#detail", Pane).lines)
        assert "unclear here, more runs" in detail
        assert not [pane.failure for pane in app.screen.query(Pane) if pane.failure]


def test_goldens_are_all_used() -> None:
    """No golden file is left over from a machine or size that is gone."""
    folder = os.path.join(os.path.dirname(__file__), "golden")
    assert sorted(os.listdir(folder)) == sorted(f"{name}-{width}x{height}.txt" for name in (*MACHINES, "bench") for width, height in SIZES)


def test_panes_draw_what_textual_would_draw() -> None:
    """A pane without a border leaves out Textual's way around each line: every cell and every style is the same."""
    asyncio.run(_both_ways())


async def _both_ways() -> None:
    app = dashboard(server())
    async with app.run_test(size=(100, 30)) as pilot:
        compared = 0
        for key in "1234":
            await pilot.press(key)
            await settled(pilot)
            for pane in app.screen.query(Pane):
                crop = pane.size.region
                if pane.styles.gutter or not crop:
                    continue
                ours, theirs = pane.render_lines(crop), pane._styles_cache.render_widget(pane, crop)
                assert [_cells(strip) for strip in ours] == [_cells(strip) for strip in theirs]
                part = Region(3, 0, 20, crop.height)
                assert [strip.text for strip in pane.render_lines(part)] == [strip.text[3:23] for strip in theirs]
                compared += 1
        assert compared >= 5


def _cells(strip: Strip) -> list[tuple[str, str]]:
    """Each character with its colours."""
    return [(char, str(segment.style)) for segment in strip for char in segment.text]
