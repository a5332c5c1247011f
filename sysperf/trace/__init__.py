"""What profilers saw, as facts: pure functions of stacks and traces.

`read` turns a trace into a `Timeline`, `account` a timeline into facts:

    from sysperf.trace import account, read
    facts = account(read("step.json.gz"))
    print(facts.verdict, facts.figures.dataloader_exposed_pct)
"""

from __future__ import annotations

from typing import Any

__all__ = ["account", "read"]


def __getattr__(name: str) -> Any:
    """The readers and the accounting are imported when they are asked for: `sysperf stacks` needs neither."""
    if name == "read":
        from sysperf.trace.readers import read  # noqa: PLC0415 - see above

        return read
    if name == "account":
        from sysperf.trace.accounting import account  # noqa: PLC0415 - see above

        return account
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
