"""What a site says about the agent: the `[agent]` table of a configuration file."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from sysperf.model.record import Record, fact

Mode = Literal["observe", "advise", "apply"]
MODES: tuple[Mode, ...] = ("observe", "advise", "apply")

INTERVAL_S = 1.0
LEASE_S = 300.0


class Settings(Record):
    """`[agent]` in a configuration file."""

    mode: Annotated[
        Mode, fact("observe: findings only; advise: log each new one with its fix; apply: make the changes listed in `apply`")
    ] = "observe"
    apply: Annotated[tuple[str, ...], fact("ids of the rules whose fixes the mode `apply` may make")] = ()
    history: Annotated[str, fact("file of the history; 'none' keeps it in memory; empty: in $STATE_DIRECTORY where there is one")] = ""
    interval_s: Annotated[float, msgspec.Meta(ge=0.2, le=60)] = INTERVAL_S
    """Seconds between two samples while PyTorch runs."""
    lease_s: Annotated[float, msgspec.Meta(ge=30, le=86_400)] = LEASE_S
    """A change is undone so long after the agent was last alive."""
