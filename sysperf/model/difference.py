"""What differs between machines."""

from typing import Annotated

from sysperf.model.record import Record, fact

UNKNOWN = "?"
ABSENT = "–"
NOT_SET = "none"
READ_WHOLE = ".{}"
"""Behind the name of a mapping that was read: a key that it does not have is known not to be set."""


class Difference(Record):
    """One fact that is not the same everywhere and matters for speed."""

    area: str
    fact: str
    values: Annotated[tuple[str, ...], fact("one a machine; '?' is unknown, '–' is not there")]
    matters: Annotated[str, fact("why it matters for speed")]
    rank: Annotated[int, fact("0 matters most")]


class Drift(Record):
    """Differences of this machine to a reference machine (`audit --reference`)."""

    reference: Annotated[str, fact("the reference; empty when none was given")] = ""
    differences: Annotated[tuple[str, ...], fact("facts that differ and matter for speed: fact: reference → here")] = ()
