"""The captured machines and what is expected of each, as parameters of a test."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import fixture_folder


def expectations() -> list[tuple[str, dict[str, Any]]]:
    """(kind of capture, what is expected of it) of every machine."""
    return [
        (kind, json.loads(path.read_text())) for kind in ("hwloc", "lscpu") for path in sorted(fixture_folder(kind).glob("*.expected.json"))
    ]


def every_machine() -> list[Any]:
    """(kind of capture, name) of every machine, as parameters."""
    return [pytest.param(kind, facts["name"], id=facts["name"]) for kind, facts in expectations()]


def expected(*fields: str) -> list[Any]:
    """(kind of capture, name, field, value) of every field that is not open (null), as parameters."""
    known = [(kind, facts["name"], field, facts[field]) for kind, facts in expectations() for field in fields if facts[field] is not None]
    return [pytest.param(*values, id=f"{values[1]}-{values[2]}") for values in known]
