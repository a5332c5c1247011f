"""Why an experiment of `verify` cannot be measured on this machine, as text, as Markdown and as a page."""

from __future__ import annotations

from sysperf.model.comparison import NotHere
from sysperf.model.text import neutral
from sysperf.report import comparison, frame
from sysperf.report.terminal import Ink, Page


def text(result: NotHere, *, color: bool = False, width: int = 100) -> str:
    """Return the reason for a terminal."""
    page = Page(Ink(color), width)
    page.line(page.ink("unknown", _sentence(result)))
    return str(page)


def markdown(result: NotHere) -> str:
    """Return the same for a pull request."""
    return f"**{comparison.cell(_sentence(result))}**\n"


def page(result: NotHere) -> str:
    """Return the same as one self-contained page."""
    return frame.framed(result.experiment, [f"<h1>{frame.text(_sentence(result), 600)}</h1>"])


def _sentence(result: NotHere) -> str:
    return f"{result.experiment}: this cannot be measured here: {neutral(result.cannot, 500)}"
