"""Every cell can be read: in each theme, under the cursor, with sixteen colours and with none."""

from __future__ import annotations

import asyncio

import pytest
from rich.color import Color
from textual import constants
from textual.theme import BUILTIN_THEMES

from sysperf.tui.widgets import ink
from tests.tui.conftest import dashboard, settled, unreadable
from tests.tui.machines import MACHINES

THEMES = [name for name, theme in BUILTIN_THEMES.items() if not theme.ansi] + ["sysperf-cb"]
USUAL = ["textual-dark", "textual-light", "sysperf-cb"]


@pytest.mark.parametrize(
    ("system", "themes"),
    [
        ("truecolor", USUAL),
        pytest.param("truecolor", THEMES, marks=pytest.mark.slow),
        pytest.param("256", USUAL, marks=pytest.mark.slow),
        ("standard", USUAL[:2]),
    ],
)
def test_every_cell_has_contrast(system: str, themes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """At least 4.5 to 1 between what is written and what lies under it, in each theme, also as the nearest of few colours."""
    monkeypatch.setattr(constants, "COLOR_SYSTEM", system)
    assert asyncio.run(_all_screens(themes)) == {}


def test_without_colours_every_cell_has_contrast(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR makes nothing darker: what is worse is bold or reversed."""
    monkeypatch.setenv("NO_COLOR", "1")
    assert asyncio.run(_all_screens(["textual-dark", "textual-light"])) == {}


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (200, 60), (300, 100)], ids=str)
@pytest.mark.parametrize("name", MACHINES)
def test_every_cell_of_every_machine_has_contrast(name: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each recorded machine shows other values, and each size other parts of them."""
    monkeypatch.setattr(constants, "COLOR_SYSTEM", "truecolor")
    assert asyncio.run(_all_screens(USUAL, name, size)) == {}


async def _all_screens(
    themes: list[str], name: str = "server", size: tuple[int, int] = (120, 40)
) -> dict[tuple[str, str], set[tuple[float, str, str, str]]]:
    below = {}
    app = dashboard(MACHINES[name](), remembers=True)
    async with app.run_test(size=size) as pilot:
        for keys in ("1", "2", "3", "j", "4", "m", "5", "6", "7", "?"):
            await pilot.press(*keys)
            await settled(pilot)
            for theme in themes:
                app.theme = theme
                await pilot.pause()
                if found := unreadable(app):
                    below[keys, theme] = found
    return below


@pytest.mark.parametrize("system", ["truecolor", "256", "standard"])
def test_any_colour_becomes_readable_on_any_other(system: str) -> None:
    """Also as the nearest of few colours."""
    shades = [Color.from_rgb(red, green, blue) for red in (0, 90, 255) for green in (0, 128, 255) for blue in (0, 160, 255)]
    for under in shades:
        for color in shades:
            shown, below = ink.shown(ink.readable(color, under, system), system), ink.shown(under, system)
            assert ink.contrast(shown, below) >= ink.CONTRAST


def test_contrast_is_that_of_the_guideline() -> None:
    """Black on white is 21; #767676 on white is the well-known grey that just passes."""
    white = Color.parse("#ffffff").get_truecolor()
    assert ink.contrast(Color.parse("#000000").get_truecolor(), white) == pytest.approx(21)
    assert ink.contrast(white, Color.parse("#767676").get_truecolor()) == pytest.approx(4.54, abs=0.01)
