"""What a measured program prints: its end, and the last match of a metric's pattern; the rest is forgotten."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time
from collections.abc import Iterator

from sysperf.model.record import Record

MAX_TAIL_BYTES = 16 << 10
MAX_LINE_BYTES = 16 << 10
"""Of a longer line the end is searched."""
MAX_MATCH_CHARS = 200
MAX_SEARCH_CPU_S = 2.0
"""So long may the search of what one read brings take, 64 KiB: meanwhile nothing else is seen, neither the limit of the run nor our end."""
DRAIN_S = 0.2
MAX_SHOW_S = 1.0
FAILED_TO_START = b"\0sysperf-exec-failed\0"
"""What the process says that could not become the program."""
LINE_END = re.compile(rb"[\r\n]")
"""Progress bars end their lines with a carriage return."""
GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:[,_]\d{3})+(?:\.\d*)?")
"""A number with its thousands set apart; `0,125` is none, nor `1,25`: there the comma is a decimal one."""


class Match(Record):
    """The last match of the pattern."""

    text: str
    """Its last group, or all of it where there is none; the line that took too long to search."""
    value: float | None = None
    """The number that it is; None where it is none."""
    took_too_long: bool = False


class SearchTookTooLong(Exception):
    """The pattern backtracks, for ever perhaps."""


class Output:
    """Reads what a program prints into a pipe. With a pattern it takes the timer of this process's CPU time for itself."""

    def __init__(self, descriptor: int, pattern: str, shown: int | None = None) -> None:
        self.descriptor = descriptor
        self._shown = shown
        """Where it is shown, too."""
        os.set_blocking(descriptor, False)
        self.match: Match | None = None
        self.failed_to_start = False
        self._pattern = re.compile(pattern) if pattern else None
        self._tail = self._line = b""
        self._is_cut = False
        if pattern:
            signal.signal(signal.SIGVTALRM, _give_up)

    def read(self) -> bool:
        """Take what is there; return False at its end."""
        try:
            data = os.read(self.descriptor, 65_536)
        except BlockingIOError:
            return True
        self._tail = (self._tail + data)[-MAX_TAIL_BYTES:]
        self.failed_to_start = self.failed_to_start or FAILED_TO_START in data
        if self._shown is not None:
            self._show(data)
        if self._pattern:
            *lines, self._line = LINE_END.split(self._line + data)
            self._search(lines)
            self._is_cut = self._is_cut or len(self._line) > MAX_LINE_BYTES
            self._line = self._line[-MAX_LINE_BYTES:]
        return bool(data)

    def _show(self, data: bytes) -> None:
        """Pass on what was printed, until nobody reads it any more: a reader that stands still must not hold the run up."""
        data = data.replace(FAILED_TO_START, b"")
        try:
            while data and self._shown is not None:
                writable = select.select([], [self._shown], [], MAX_SHOW_S)[1]
                data = data[os.write(self._shown, data[: select.PIPE_BUF]) :] if writable else b""
                self._shown = self._shown if writable else None
        except OSError:
            self._shown = None

    def drain(self) -> None:
        """Take what was printed last; a descendant that still holds the pipe is not waited for."""
        end = time.monotonic() + DRAIN_S
        while time.monotonic() < end and select.select([self.descriptor], [], [], 0)[0] and self.read():
            pass
        self._search([self._line])

    def tail(self) -> str:
        """Return the end of the output as text."""
        return self._tail.replace(FAILED_TO_START, b"").decode("utf-8", "replace")

    def search_took_too_long(self) -> bool:
        """Whether the pattern was given up; nothing that is printed from then on is searched."""
        return self.match is not None and self.match.took_too_long

    def _search(self, lines: list[bytes]) -> None:
        """Search complete lines, of which the first may have lost its beginning."""
        line = ""
        try:
            with _time_limit():
                for raw in lines:
                    line = raw[-MAX_LINE_BYTES:].decode("utf-8", "replace")
                    self._search_line(line, is_cut=self._is_cut or len(raw) > MAX_LINE_BYTES)
                    self._is_cut = False
        except SearchTookTooLong:
            self.match = Match(line[:MAX_MATCH_CHARS], took_too_long=True)
            self._pattern = None

    def _search_line(self, line: str, *, is_cut: bool) -> None:
        """Keep the last match; what begins where the line was cut may be the end of a longer number."""
        last = None
        for match in self._pattern.finditer(line) if self._pattern else ():
            last = match if match.start() or not is_cut else last
        if last is not None:
            text = last[last.lastindex or 0]
            self.match = Match(text[:MAX_MATCH_CHARS], number(text))


def number(text: str) -> float | None:
    """Return the number that a program printed, thousands set apart or not; None where it is none.

    >>> number("1,234.5"), number("1e3"), number("1,5"), number("1.234,5")
    (1234.5, 1000.0, None, None)
    """
    text = text.strip().rstrip(",")
    if GROUPED.fullmatch(text):
        text = text.replace(",", "").replace("_", "")
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    """Raise SearchTookTooLong in this block when it has taken so much CPU time; a search looks for signals now and then."""
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SEARCH_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _give_up(_number: int, _frame: object) -> None:
    raise SearchTookTooLong
