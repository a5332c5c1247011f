"""What profilers saw, as facts: pure functions of stacks and traces.

`read` turns a trace into a `Timeline`, `account` a timeline into facts:

    from sysperf.trace import account, read
    facts = account(read("step.json.gz"))
    print(facts.verdict, facts.figures.dataloader_exposed_pct)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sysperf.trace.facts import Rank
    from sysperf.trace.timeline import Timeline

__all__ = ["account", "read"]


def read(path: str) -> Timeline:
    """Read a trace of any known form into columns. Raises TraceError."""
    from sysperf.trace.reading import readers  # noqa: PLC0415 - `sysperf stacks` uses this package and reads no traces

    return readers.read(path)


def account(timeline: Timeline) -> Rank:
    """All facts of one trace: figures, causes, predictions and a verdict."""
    from sysperf.trace.accounting import account  # noqa: PLC0415 - as above

    return account.account(timeline)
