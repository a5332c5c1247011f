"""What reports look like; the files under golden/ are there to be read."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from sysperf.model.record import plain
from sysperf.model.snapshot import Snapshot
from sysperf.report.formats import FORMATS, render
from tests.golden import ROOT, Golden
from tests.report import reports

FOLDER = ROOT / "tests/report/golden"

ENDINGS = {
    "concise": "concise.txt",
    "text": "txt",
    "json": "json",
    "sarif": "sarif",
    "junit": "xml",
    "github": "github.txt",
    "markdown": "md",
    "html": "html",
    "prometheus": "prom",
}


@pytest.mark.parametrize("machine", ["healthy", "sick"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_report_looks_as_agreed(machine: str, format: str, golden: Golden) -> None:  # noqa: A002 - the option's name
    """Each format of a healthy and of a sick machine is what somebody looked at and liked."""
    report = reports.MACHINES[machine]()
    if format == "json":
        report = msgspec.structs.replace(report, snapshot=only_what_is_said(report.snapshot))
    text = render(report, format)
    golden(FOLDER / f"{machine}.{ENDINGS[format]}", without_style(text) if format == "html" else text)


def without_style(page: str) -> str:
    """A web page without the style sheet and the scripts of all web pages, and without their checksums."""
    return re.sub(r"(?s)(?<=<style>).*?(?=</style>)|(?<=<script>).*?(?=</script>)|(?<=sha256-)[^']+", "", page)


def only_what_is_said(snapshot: Snapshot) -> Snapshot:
    """Without the facts of which the test says nothing: a new fact of an area changes no golden file."""
    areas = {name: msgspec.structs.replace(area, facts=_said(plain(area.facts))) for name, area in snapshot.areas.items()}
    return msgspec.structs.replace(snapshot, areas=areas)


def _said(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _said(value) for name, value in data.items() if value not in (None, {}, [], ())}
    return [_said(item) for item in data] if isinstance(data, list | tuple) else data


@pytest.mark.parametrize("width", [40, 80, 120])
def test_text_follows_the_terminal(width: int, golden: Golden) -> None:
    """The text of the sick machine on narrow, usual and wide terminals."""
    golden(FOLDER / f"sick-{width}.txt", render(reports.sick(), "text", width=width))


def test_verbose_text_says_everything(golden: Golden) -> None:
    """Nothing is folded or cut with --verbose."""
    golden(FOLDER / "sick-verbose.txt", render(reports.sick(), "text", width=100, verbose=True))


@pytest.mark.parametrize("machine", ["perfect", "silent", "hostile"])
def test_other_machines_look_as_agreed(machine: str, golden: Golden) -> None:
    """A machine without fault, one that nobody could read, one whose every text is hostile."""
    golden(FOLDER / f"{machine}.txt", render(reports.MACHINES[machine](), "text", width=80))
