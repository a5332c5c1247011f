"""How a stack and the source around its lines are read: by all that tells what a program does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from sysperf.model.profile import Frame
from sysperf.startup import lazy

ReadLine = Callable[[Frame], str]
"""Gives the text of a line of the program; empty where it cannot be read."""
LoopOf = Callable[[Frame], range]
"""Gives the lines of the innermost loop or comprehension around a line of the program; none where it is in none, or nobody knows."""

DEFINITION = lazy(r"(?:async )?def |class |@")
"""A line with which another function begins."""


class Rules(NamedTuple):
    """How a stack is read: which phase it belongs to, and which of its frames is the user's own."""

    phase: Callable[[Sequence[Frame]], str]
    user_frame: Callable[[Iterable[Frame]], Frame | None]


def at_line(frame: Frame, line: int) -> Frame:
    """Return another line of the same file and function."""
    return msgspec.structs.replace(frame, line=line)


def below_user(frames: Sequence[Frame], rules: Rules) -> list[Frame]:
    """The calls that the user's innermost line made."""
    return list(itertools.takewhile(lambda frame: rules.user_frame([frame]) is None, frames))
