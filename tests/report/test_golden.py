"""What reports look like; the files under golden/ are there to be read."""

from __future__ import annotations

import pytest

from sysperf.report import FORMATS, render
from tests.golden import ROOT, Golden
from tests.report import reports

FOLDER = ROOT / "tests/report/golden"

ENDINGS = {
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
    golden(FOLDER / f"{machine}.{ENDINGS[format]}", render(reports.MACHINES[machine](), format))


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
