"""What a scheduler or a monitor is told of a machine: faults, and what did not answer in time."""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.model.record import Record, fact
from sysperf.model.rule import Severity


class Fault(Record):
    """One finding, with whose it is."""

    of: Annotated[Literal["node", "site", "user"], fact("node: the machine is bad; site: its settings; user: a program of somebody's")]
    rule: str
    severity: Severity
    subject: str = ""
    message: str = ""
    impossible: Annotated[bool, fact("a job cannot run there")] = False
    leftover: Annotated[bool, fact("a job left it behind")] = False

    @property
    def is_sick(self) -> bool:
        """Whether the machine itself is clearly broken."""
        return self.of == "node" and self.severity == "error"


class Checked(Record, kw_only=True):
    """What could be said within the time."""

    faults: tuple[Fault, ...] = ()
    hung: Annotated[tuple[str, ...], fact("what did not answer, such as an area")] = ()
    passed: Annotated[tuple[str, ...], fact("rules about the machine itself that could be checked whole, and found nothing")] = ()
    skipped: Annotated[tuple[str, ...], fact("areas that were not reached")] = ()
    source: Annotated[Literal["audit", "agent", "none"], fact("the agent's last judgement, or an audit of its own")] = "none"
    problem: Annotated[str, fact("why nothing is known; empty where something is")] = ""

    @property
    def is_unknown(self) -> bool:
        """Whether something could not be looked at."""
        return bool(self.problem or self.hung or self.skipped)
