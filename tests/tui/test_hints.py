"""The footer: it names the keys that matter on every width, and costs nothing when screens change."""

from __future__ import annotations

from typing import Any

from textual.widget import Widget

from sysperf.tui.actions import Actions
from sysperf.tui.app import Dashboard
from sysperf.tui.screens.findings import Findings
from sysperf.tui.screens.hints import Hint, fitting
from tests.tui.conftest import dashboard, screen_text, settled
from tests.tui.machines import Still, box, news, rule, server
from tests.tui.test_keys import drive, notices, press, started


def footer(app: Dashboard) -> str:
    return screen_text(app).rstrip("\n").rsplit("\n", 1)[-1]


def test_help_and_quit_stand_last_on_any_width() -> None:
    """What does not fit is left out from the right, but never how to get help and how to leave."""
    here, everywhere = [Hint(key, key, "does much") for key in "abcdef"], [Hint("?", "?", "Help"), Hint("q", "q", "Quit")]
    for width in range(200):
        hints = fitting(here, everywhere, width)
        assert hints[-2:] == everywhere
        assert width < sum(hint.width for hint in everywhere) or sum(hint.width for hint in hints) <= width + 1
    assert [hint.key for hint in fitting(here, everywhere, 40)] == ["a", "b", "?", "q"]


def test_a_narrow_screen_still_says_how_to_leave() -> None:
    """In forty columns, too."""

    async def do(app: Dashboard, pilot: Any) -> None:
        for key in "1234567":
            await press(pilot, key)
            assert footer(app).endswith("? Help q Quit"), key

    drive(dashboard(server()), do, (40, 15))


def test_enter_is_named_where_it_opens_something_and_each_action_once() -> None:
    """The key that a program or a finding opens with; two keys of one action are one hint."""

    async def do(app: Dashboard, pilot: Any) -> None:
        assert footer(app).startswith("⏎ Open d Diagnose ")
        await press(pilot, "3")
        assert footer(app).startswith("⏎ Details ")
        await press(pilot, "5")
        assert footer(app).startswith("[ Shorter ] Longer ← → Cursor / Filter ")

    drive(dashboard(server(), actions=Actions(Still(news(server()), remembers=True), rule)), do, (80, 24))


def test_without_a_history_nothing_is_offered_for_it() -> None:
    """No filter and no span for a machine that nobody remembers."""

    async def do(app: Dashboard, pilot: Any) -> None:
        assert "Filter" not in footer(app)
        await press(pilot, "slash")
        assert not app.screen.query_one("#filter").display

    drive(started(box(), "history"), do)


def test_screens_are_shown_again_without_new_widgets() -> None:
    """Widgets that are made at each change of screens are garbage, and to collect it holds keys up."""

    async def do(app: Dashboard, pilot: Any) -> None:
        def footers() -> list[Widget]:
            return list(app.screen.walk_children(Widget))

        before = footers()
        await press(pilot, "7", "1")
        assert [id(hint) for hint in footers()] == [id(hint) for hint in before]

    drive(dashboard(server()), do)


def test_a_click_on_a_hint_presses_its_key() -> None:
    """The footer can be used with the mouse; the mouse over it tells more."""

    async def do(app: Dashboard, pilot: Any) -> None:
        assert isinstance(app.screen, Findings)
        await pilot.hover("Hints", offset=(0, 0))
        assert "the rule behind it" in str(app.screen.query_one("Hints").tooltip)
        await pilot.click("Hints", offset=(footer(app).index("Preview"), 0))
        await settled(pilot)
        assert "another machine" in notices(app)

    drive(started(server(), "findings"), do)
