"""What the dashboards of a machine and of a fleet share: themes, signals, errors, pictures, and the keys for them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.driver import Driver

from sysperf.host import files
from sysperf.model.text import neutral
from sysperf.tui import pasted
from sysperf.tui.widgets import ink


class Shell(App[None]):
    """An app that leaves the terminal clean, whatever ends it."""

    TITLE = "sysperf"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "save_picture", "Picture", show=False),
        Binding("t", "change_theme", "Theme", show=False),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False),
    ]

    def __init__(self, theme: str = "") -> None:
        super().__init__()
        self.register_theme(ink.COLOUR_BLIND)
        self.failure: Exception | None = None
        """The internal error that ended the dashboard, for whoever started it to tell."""
        if theme in self.available_themes:
            self.theme = theme

    def get_driver_class(self) -> type[Driver]:
        """Textual's driver for this terminal, to which pasted text is no keys."""
        return pasted.guard(super().get_driver_class())

    def get_key_display(self, binding: Binding) -> str:
        """A letter is written as it is: Textual would look for a character of that name, which loads all names, 0.7 MB."""
        return binding.key_display or (binding.key if len(binding.key) == 1 else super().get_key_display(binding))

    def get_css_variables(self) -> dict[str, str]:
        """The theme's variables, those of text made readable."""
        variables = super().get_css_variables()
        return {**variables, **ink.sheet(self, variables)}

    def end_on_signals(self) -> None:
        """End on SIGTERM and SIGHUP as on `q`, and so leave the terminal clean."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            if not self.is_headless:
                asyncio.get_running_loop().add_signal_handler(number, self.exit, None, 128 + number)

    def _handle_exception(self, error: Exception) -> None:
        """End on an internal error, and leave telling it to the command line: Textual would show all local variables."""
        if self._exit and isinstance(error, NoMatches):  # while it ends, Textual gives a screen that is being made none of its parts
            self._close_messages_no_wait()
        elif self.is_headless:
            super()._handle_exception(error)
        else:
            self.failure = self.failure or error
            self._return_code = 1
            self._close_messages_no_wait()

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """The screen as SVG, without the fonts that Textual would load from another company's server."""
        return re.sub(r"@font-face\s*\{[^}]*\}", "", super().export_screenshot(title=title, simplify=simplify))

    def action_save_picture(self) -> None:
        """The screen as SVG: a new file in the working directory, or a download where a browser shows the dashboard."""
        name = f"sysperf-{time.strftime('%Y%m%d-%H%M%S')}.svg"
        if self.is_web:
            self.deliver_screenshot(name)  # a file here would be the serving user's, whoever looks
            return
        picture = self.export_screenshot().encode()
        try:
            files.write_new(name, lambda file: file.write(picture))
        except OSError as error:
            self.notify(f"{name}: {error.strerror or error}", severity="error", markup=False)
        else:
            self.notify(f"saved {neutral(os.path.abspath(name))}", timeout=4, markup=False)
