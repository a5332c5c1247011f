"""Moments as records and journals write them: UTC, to the second, ``2027-01-15T08:00:00Z``."""

from __future__ import annotations

import datetime


def read(text: str) -> datetime.datetime | None:
    """The moment that a text names; None where it names none, as a saved report may."""
    try:
        return datetime.datetime.fromisoformat(f"{text[:19]}+00:00")
    except ValueError:
        return None


def seconds(text: str) -> float | None:
    """The same in Unix time."""
    moment = read(text)
    return None if moment is None else moment.timestamp()
