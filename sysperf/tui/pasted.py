"""Pasted text is no keys: Textual takes what stands behind an ESC in the middle of a bracketed paste for keys that somebody pressed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.message import Message


class Pastes:
    """What a terminal sends, without the ESCs of pasted text."""

    def __init__(self) -> None:
        self._inside = False
        self._rest = ""
        """Outside of a paste, the last characters; inside, what may be the beginning of its end, and is held back."""

    def cleaned(self, data: str) -> str:
        """The next piece of it; pieces end anywhere."""
        out = ""
        while data:
            known, self._rest = self._rest, ""
            if self._inside:
                text, end, data = (known + data).partition(BRACKETED_PASTE_END)
                if not end:
                    self._rest = next((text[-size:] for size in range(5, 0, -1) if BRACKETED_PASTE_END.startswith(text[-size:])), "")
                    text = text.removesuffix(self._rest)
                out += text.replace("\x1b", "") + end
                self._inside = not end
            else:
                before, start, data = (known + data).partition(BRACKETED_PASTE_START)
                out += (before + start)[len(known) :]
                self._inside, self._rest = bool(start), "" if start else before[-5:]
        return out


class Parser(XTermParser):
    """Textual's parser of what a terminal sends, behind `Pastes`."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._pastes = Pastes()

    def feed(self, data: str) -> Iterable[Message]:
        """Parse a piece; an empty one is the end."""
        cleaned = self._pastes.cleaned(data)
        return () if data and not cleaned else super().feed(cleaned)


def guard(driver: type[Any]) -> type[Any]:  # any: drivers differ by platform
    """The driver, which takes this parser: it finds it by name in its module."""
    module = sys.modules[driver.__module__]
    if hasattr(module, "XTermParser"):
        module.XTermParser = Parser  # type: ignore[attr-defined]
    return driver
