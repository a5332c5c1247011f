"""Signals that end a command: through its clean-up, as Ctrl-C does, and not where whoever started it ignores them (nohup)."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)


def exit_through_cleanup() -> None:
    """Have an ending signal raise SystemExit with the shell's code for it."""
    _call(_exit)


def act_as_interrupt() -> None:
    """Have an ending signal do what Ctrl-C does."""
    _call(_interrupt)


def _call(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _exit(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
