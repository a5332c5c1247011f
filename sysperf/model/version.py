"""Version numbers of drivers, toolkits and wheels: compared by their numbers, printed as they were written."""

from __future__ import annotations

import functools
import re

from sysperf.startup import lazy

_RELEASE = lazy(r"\s*[vV]?([0-9]{1,9}(?:\.[0-9]{1,9}){0,7})")
_STAGE = lazy(r"[-_.]?(dev|alpha|a|beta|b|preview|pre|rc|c|post)[-_.]?([0-9]{0,9})(?![A-Za-z])", re.IGNORECASE)
_MAX_LENGTH = 200
_RANKS = {"dev": -4, "alpha": -3, "a": -3, "beta": -2, "b": -2, "preview": -1, "pre": -1, "rc": -1, "c": -1, "post": 1}


@functools.total_ordering
class Version:
    """``2.13.0+cpu``, ``580.65.06``, ``9.20.0.48``, ``2.14.0a0+git1``: whatever starts with numbers and dots.

    Missing numbers count as zero (``13`` equals ``13.0``); ``dev < a < b < rc < release < post``, as PEP 440 has it;
    what follows (``+cpu``, ``-31-generic``) does not count in comparisons.
    """

    __slots__ = ("_key", "numbers", "text")

    def __init__(self, text: str) -> None:
        release = _RELEASE.match(text)
        if not release or len(text) > _MAX_LENGTH:
            raise ValueError(f"not a version: {text[:40]!r}")
        self.text = text.strip()
        self.numbers = tuple(int(number) for number in release[1].split("."))
        stage = _STAGE.match(text, release.end())
        self._key = (
            (*self.numbers, *[0] * (8 - len(self.numbers))),
            (_RANKS[stage[1].lower()], int(stage[2] or 0)) if stage else (0, 0),
        )

    @property
    def major(self) -> str:
        """The first number, as text: ``"13"``."""
        return str(self.numbers[0])

    @property
    def minor(self) -> str:
        """The first two numbers, as text: ``"2.13"``."""
        return ".".join(str(number) for number in (*self.numbers, 0)[:2])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key == other._key

    def __lt__(self, other: Version) -> bool:
        return self._key < other._key if isinstance(other, Version) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Version({self.text!r})"
