"""What accepts a finding, as it is written down: waivers with a reason and an end, and a baseline. `waivers` applies them."""

from __future__ import annotations

import datetime
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec

from sysperf.model.finding import Finding
from sysperf.model.record import Record, fact


class Waiver(Record):
    """`[[waive]]` in a configuration file."""

    rule: Annotated[str, fact("a rule id or a pattern: shm.*")]
    reason: Annotated[str, msgspec.Meta(min_length=3)]
    expires: datetime.date | None = None
    subject: Annotated[str, fact("pattern of the finding's subject")] = "*"
    program: Annotated[str, fact("pattern of what a process runs: python */serve.py")] = "*"
    user: Annotated[str, fact("owner of a process: a name, or a number")] = "*"

    def covers(self, outcome: Finding) -> bool:
        """Whether the subject of a finding is one that it speaks of."""
        program, user = outcome.subject.program, outcome.subject.user
        return (
            fnmatchcase(outcome.about, self.subject)
            and (self.program == "*" or (bool(program) and fnmatchcase(program, self.program)))
            and (self.user == "*" or (user is not None and self.user in (str(user), user_name(user))))
        )

    def reach(self) -> str:
        """Whom it concerns, in words: ``every subject``, ``program python serve.py of user 1000``."""
        given = (("subject", self.subject), ("program", self.program), ("user", self.user))
        named = [f"{what} {pattern}" for what, pattern in given if pattern != "*"]
        return " of ".join(named) or "every subject"


def waiver_for(outcome: Finding, reason: str, expires: datetime.date | None = None) -> Waiver:
    """A waiver of this rule for this subject only: a process by program and owner, since its number does not come again."""
    if not outcome.subject.program:
        return Waiver(outcome.rule, reason, expires, subject=literal(outcome.about) or "*")
    owner = "*" if outcome.subject.user is None else str(outcome.subject.user)
    return Waiver(outcome.rule, reason, expires, program=literal(outcome.subject.program), user=owner)


def literal(text: str) -> str:
    """A pattern that matches this text only."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)


def user_name(user: int) -> str:
    """What this machine calls a user; empty when it has no name for it."""
    import pwd  # noqa: PLC0415 - only for a waiver that names a user

    try:
        return pwd.getpwuid(user).pw_name
    except (KeyError, OverflowError):
        return ""


class Accepted(Record):
    """One finding of a baseline."""

    rule: str
    subject: str
    fingerprint: str
    program: str = ""
    user: int | None = None

    def text(self) -> str:
        """``process.niced python: python train.py``."""
        return f"{self.rule} {self.subject}{f': {self.program}' if self.program else ''}".strip()


class Baseline(Record):
    """The findings that were there when the baseline was written."""

    schema: Annotated[int, fact("1 knows a program by its name only, 2 by program and owner, too")] = 1
    written_at: str = ""
    accepted: tuple[Accepted, ...] = ()
