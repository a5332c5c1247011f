"""What was measured on this machine: nothing yet, and that is said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from sysperf.tui.screens.view import View
from sysperf.tui.widgets.line import BLANK, Lines, line, paragraph, span
from sysperf.tui.widgets.pane import Pane

NOTHING = (
    "Nothing was measured on this machine. This version of sysperf finds and explains; it does not measure yet. "
    "Until then, gains stand as unmeasured beside their findings, and no figure of others is shown as one of this machine."
)


class Bench(View):
    """Results of measurements."""

    NAME = "bench"
    BINDINGS: ClassVar[list[BindingType]] = []
    HELP_TEXT = "Results of measurements on this machine. There are none in this version."

    def body(self) -> Iterable[Widget]:
        yield Pane(_draw)


def _draw(width: int, _: int) -> Lines:
    return [line(span("Measured here", "title")), BLANK, *paragraph(NOTHING, width)]
