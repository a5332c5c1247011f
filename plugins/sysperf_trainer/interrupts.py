"""Ctrl-C and SIGTERM: the step is finished, a checkpoint and the record are written, and then the program ends."""

from __future__ import annotations

import signal
from types import FrameType
from typing import TYPE_CHECKING, Any

from sysperf_trainer.ranks import Ranks

if TYPE_CHECKING:
    from typing_extensions import Self  # in `typing` from Python 3.11 on

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While it is entered, the first signal asks for an end after the step; a second one ends at once.

    Of several ranks each is ended at once: they would not stop after the same step, and wait for each other.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.asked = False
        self._handlers: list[Any] = []  # any: functions, numbers or None, as signal has them
        self._is_alone = ranks.size == 1

    def __enter__(self) -> Self:
        if self._is_alone:
            self._handlers = [signal.signal(number, self._ask) for number in SIGNALS]
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in zip(SIGNALS, self._handlers, strict=False):
            signal.signal(number, handler)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
