"""What the dashboard may do besides showing: looked up, changed, written. The command line makes it, tests make their own."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from sysperf.model.cause import Explained
from sysperf.model.finding import Finding, Rewrap
from sysperf.model.profile import Stacks, Trace
from sysperf.model.rule import Rule
from sysperf.model.snapshot import Snapshot
from sysperf.plugin import ReportProgress
from sysperf.tui.source import Source
from sysperf.tui.waive import Written
from sysperf.verify.trials import Trials

if TYPE_CHECKING:
    from sysperf.diagnosis.verdict import Verdict
    from sysperf.engine.change import Changer
    from sysperf.trace.output.analysis import Analysis


ELSEWHERE = "This is another machine: copy the command with y and run it there."
READ_ONLY = "This dashboard is read-only: copy the command with y and run it in a terminal."


class Profilers(NamedTuple):
    """What looks into the programs of this machine. All of these may block, and raise SysperfError."""

    stacks: Callable[[int], Stacks]
    """Where the threads of a process are."""
    traceable: Callable[[int], str]
    """The folder in which a trace of it would be; raises where none can be taken."""
    trace: Callable[[int, ReportProgress], Trace]
    iterations: int = 5
    """Optimizer steps in such a trace."""
    analysis: Callable[[str, ReportProgress], Analysis] | None = None
    """What the time was lost to in the trace of this path; None: it is not asked."""


Tell = Callable[[str, "Verdict | None"], None]
Diagnose = Callable[[int, Tell], "Verdict"]
"""Says what slows a process down, and tells what is looked at and the verdict so far. It may block, and raises SysperfError."""


class Actions(NamedTuple):
    """All of these may block: screens call them in a thread. They raise SysperfError."""

    source: Source
    rule: Callable[[str], Rule | Explained]
    """A rule by its id, to explain it."""
    changer: Callable[[], Changer] | None = None
    """Plans, changes and the journal of this machine; None where the machine is another one."""
    journals: tuple[str, ...] = ()
    """Other journals of this machine, to show and to undo."""
    waive: Callable[[Finding, str, datetime.date | None], Written] | None = None
    """Accept a finding with a reason, until a day; None: for good."""
    rewrap: Callable[[Snapshot, int], Rewrap | None] | None = None
    """How wrap would have started this process; None where that is unknown."""
    trials: Callable[[], Trials] | None = None
    """What was measured on this machine; None where that is another one."""
    refusal: str = ""
    """Why nothing may be changed from here; empty where it may."""
    profilers: Profilers | None = None
    """Stacks and traces of this machine's programs; None where that is another one."""
    diagnose: Diagnose | None = None
    """A diagnosis of this machine's programs; None where that is another one."""

    def refuses(self) -> str:
        """Why nothing can be changed from here; empty where it can."""
        return self.refusal or (ELSEWHERE if self.changer is None else "")
