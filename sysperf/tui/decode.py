"""An agent's answers as the dashboard shows them."""

from __future__ import annotations

from typing import Any

import msgspec

from sysperf.agent.answers import read
from sysperf.model.outcome import Outcome
from sysperf.model.snapshot import Snapshot


def outcome(raw: Any) -> Outcome | None:
    """One finding; None when it is of no shape that this version can show."""
    found = read(raw, Outcome)
    if found is not None and not found.key:  # an older agent's: its subjects are unique, its fingerprints are not
        return msgspec.structs.replace(found, key=f"{found.rule}@{found.subject}")
    return found


def snapshot(raw: Any) -> Snapshot | None:
    """The facts. Those of the areas stay plain data, which reports can show too."""
    if not isinstance(raw, dict) or not isinstance(raw.get("areas"), dict):
        return None
    return read(raw, Snapshot)
