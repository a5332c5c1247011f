"""The dashboard of a machine: it binds keys, routes news and messages, and holds the screens. What is shown is in `screens`."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from functools import partial
from typing import ClassVar

from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen

from sysperf import paths
from sysperf.tui.actions import Actions
from sysperf.tui.now import Now
from sysperf.tui.screens.bench import Bench
from sysperf.tui.screens.changes import Changes
from sysperf.tui.screens.dialogs import Reading
from sysperf.tui.screens.findings import Findings
from sysperf.tui.screens.history import History
from sysperf.tui.screens.overview import Overview
from sysperf.tui.screens.processes import Processes
from sysperf.tui.screens.topology import Topology
from sysperf.tui.screens.view import TABS, Tabs, View
from sysperf.tui.shell import Shell
from sysperf.tui.source import Facts, Problem, SourceUpdate
from sysperf.tui.widgets import helping

CHECK_S = 5.0
BETWEEN_S = 0.1
VIEWS: tuple[type[View], ...] = (Overview, Findings, Processes, Topology, History, Changes, Bench)


class Dashboard(Shell):
    """What is wrong with this machine, next to the meter that shows it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"show({name!r})", name.capitalize(), show=False) for number, name in enumerate(TABS, 1)),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("n", "turn_card(1)", "Next card", show=False),
        Binding("N", "turn_card(-1)", "Card before", show=False),
    ]

    class SourceUpdated(Message):
        """SourceUpdate from a source, in whatever thread it lives."""

        def __init__(self, news: SourceUpdate) -> None:
            super().__init__()
            self.news = news

    def __init__(self, actions: Actions, *, theme: str = "", first: str = "overview", cards: Sequence[str] = ()) -> None:
        """`cards` are sentences for a newcomer, of which one is shown above the footer."""
        super().__init__(theme)
        self.actions = actions
        self.cards, self.card = cards, 0
        self.now = Now()
        self.now.origin, self.now.here = actions.source.name, actions.source.local
        self._first = first

    # ------------------------------------------------------------------ life

    def on_mount(self) -> None:
        for view in VIEWS:
            self.install_screen(view(self.now, self.actions), name=view.NAME)
        self.push_screen(self._first)
        self.end_on_signals()
        self.actions.source.start(self._publish)
        self.set_interval(CHECK_S, self._check)

    def on_unmount(self) -> None:
        self.actions.source.close()

    def _publish(self, news: SourceUpdate) -> None:
        """Publish from any thread."""
        self.post_message(self.SourceUpdated(news))

    # ------------------------------------------------------------------ news

    def on_dashboard_source_updated(self, message: SourceUpdated) -> None:
        self.take(message.news)

    def take(self, news: SourceUpdate) -> None:
        """Keep the news, and tell the screen that is shown."""
        if isinstance(news, Facts) and self.now.report is None and not self.is_headless:
            self.call_after_refresh(self._make_ready)
        self.now.take(news)
        if (view := self.view) is not None:
            view.source_updated(news)

    def _make_ready(self) -> None:
        """Make the other screens one by one while nobody waits for them: the first key that shows one would take 50 to 90 ms."""
        waiting = next((view.NAME for view in VIEWS if not self.get_screen(view.NAME).is_running), None)
        if waiting is not None:
            self._get_screen(waiting)
            self.set_timer(BETWEEN_S, self._make_ready)
        else:
            gc.freeze()  # modules, rules and screens stay: to search them for garbage holds a key up for 80 ms

    def _check(self) -> None:
        """A source that falls silent sends no news of it: what is shown gets older."""
        if self.now.quiet_s() and (view := self.view) is not None:
            view.source_updated(Problem(self.now.problem))

    @property
    def view(self) -> View | None:
        """The screen that is shown, also under a dialog."""
        return next((screen for screen in reversed(self.screen_stack) if isinstance(screen, View)), None)

    # ------------------------------------------------------------------ actions

    def copy_to_clipboard(self, text: str) -> None:
        """Copy a command as it can be pasted here."""
        super().copy_to_clipboard(paths.pasteable(text) if self.now.here else text)

    def action_show(self, name: str) -> None:
        if isinstance(self.screen, View) and name != self.screen.NAME and self.is_screen_installed(name):
            self.switch_screen(name)

    def on_tabs_chosen(self, message: Tabs.Chosen) -> None:
        self.action_show(message.name)

    def action_turn_card(self, step: int) -> None:
        """The next card of the tour; behind the last one there is none."""
        self.card = min(len(self.cards), max(0, self.card + step))
        if (view := self.view) is not None and self.cards:
            view.redraw()

    def action_open_finding(self, key: str) -> None:
        """The findings, this one selected."""
        self.action_show("findings")
        if isinstance(self.view, Findings):
            self.view.select(key)

    def action_apply_finding(self, key: str) -> None:
        """The same, and ask whether its change shall be made."""
        self.action_open_finding(key)
        if isinstance(self.view, Findings):
            self.call_after_refresh(self.view.action_apply)

    def action_open_program(self, pid: int) -> None:
        """The programs, this one opened."""
        self.action_show("processes")
        if isinstance(self.view, Processes):
            self.view.show(pid)

    def action_show_place(self, pid: int) -> None:
        """The map, with the CPUs and the memory of this program marked."""
        self.action_show("topology")
        if isinstance(self.view, Topology):
            self.view.mark(pid)

    def action_look_again(self) -> None:
        self.actions.source.look_again()
        self.notify("asking the agent again" if self.actions.source.remembers else "looking again", timeout=2, markup=False)

    def action_help(self) -> None:
        view = self.view
        if view is not None and isinstance(self.screen, View):
            self.push_screen(Reading("Keys", lambda width, _: helping.draw(view.NAME, view.HELP_TEXT, view.BINDINGS, width)))

    def _own_commands(self) -> Iterable[SystemCommand]:
        """What the keys of the screen that is shown do."""
        view = self.view
        for binding in view.BINDINGS if view is not None else ():
            if view is not None and isinstance(binding, Binding) and binding.description and not binding.action.startswith("app."):
                about = f"{binding.tooltip or binding.description.lower()} (key {helping.key_of(binding)})"
                yield SystemCommand(
                    f"{view.NAME.capitalize()}: {binding.description.lower()}", about, partial(view.run_action, binding.action)
                )

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002 - as Textual asks
        for number, name in enumerate(TABS, 1):
            if self.is_screen_installed(name):
                yield SystemCommand(f"Show {name}", f"key {number}", lambda name=name: self.action_show(name))
        yield from self._own_commands()
        yield SystemCommand("Audit again", "read and judge this machine now", self.action_look_again)
        yield SystemCommand("Save picture", "the screen as SVG in the working directory", self.action_save_picture)
        yield SystemCommand("Theme", "change the colours", self.action_change_theme)
        yield SystemCommand("Keys", "what the keys do here", self.action_help)
        yield SystemCommand("Quit", "leave the dashboard", self.action_quit)
