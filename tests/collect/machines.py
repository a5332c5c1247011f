"""The captured machines and what is expected of each, as parameters of a test."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import fixture_folder

WHY = "no captured machines: set SYSPERF_FIXTURES to the folder that holds `machines` and `machines-lscpu`"


def expectations() -> list[tuple[str, dict[str, Any]]]:
    """(kind of capture, what is expected of it) of every machine."""
    folders = [(kind, fixture_folder(kind)) for kind in ("machines", "machines-lscpu")]
    return [(kind, json.loads(path.read_text())) for kind, folder in folders if folder for path in sorted(folder.glob("*.expected.json"))]


def every_machine() -> list[Any]:
    """(kind of capture, name) of every machine, as parameters; a skipped one where there are no captures."""
    return [pytest.param(kind, one["name"], id=one["name"]) for kind, one in expectations()] or [_skipped("", "")]


def expected(*fields: str) -> list[Any]:
    """(kind of capture, name, field, value) of every field that is not open (null), as parameters."""
    found = [(kind, one["name"], field, one[field]) for kind, one in expectations() for field in fields if one[field] is not None]
    return [pytest.param(*one, id=f"{one[1]}-{one[2]}") for one in found] or [_skipped("", "", "", None)]


def _skipped(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.skip(reason=WHY))
