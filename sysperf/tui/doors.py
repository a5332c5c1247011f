"""What the dashboard may do besides showing: looked up, changed, written. The command line makes it, tests make their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from sysperf.model.outcome import Outcome, Rewrap
from sysperf.model.rule import Rule
from sysperf.model.snapshot import Snapshot
from sysperf.tui.source import Source

if TYPE_CHECKING:
    from sysperf.changing import Changer


ELSEWHERE = "This is another machine: copy the command with y and run it there."
READ_ONLY = "This dashboard is read-only: copy the command with y and run it in a terminal."


class Doors(NamedTuple):
    """All of these may block: screens call them in a thread. They raise SysperfError."""

    source: Source
    rule: Callable[[str], Rule]
    """A rule by its id, to explain it."""
    changer: Callable[[], Changer] | None = None
    """Plans, changes and the journal of this machine; None where the machine is another one."""
    journals: tuple[str, ...] = ()
    """Other journals of this machine, to show and to undo."""
    waive: Callable[[Outcome, str], str] | None = None
    """Accept a finding with a reason; returns the file that says so."""
    rewrap: Callable[[Snapshot, int], Rewrap | None] | None = None
    """How wrap would have started this process; None where that is unknown."""
    refusal: str = ""
    """Why nothing may be changed from here; empty where it may."""

    def refuses(self) -> str:
        """Why nothing can be changed from here; empty where it can."""
        return self.refusal or (ELSEWHERE if self.changer is None else "")
