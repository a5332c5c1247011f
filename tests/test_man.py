"""Manual pages: one for each command, of the same text as its help, installed with the wheel."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sysperf import cli
from sysperf.cli import _options
from sysperf.report.reference import man
from tests.golden import Golden

ROOT = Path(__file__).resolve().parent.parent


def test_the_pages_are_those_of_the_help(golden: Golden) -> None:
    """No command is without one, and no page is of a command that is gone."""
    pages = man.pages({name: _options.parser(name)[0] for name in cli.commands()}, cli.described())
    for name, text in pages.items():
        golden(ROOT / "man" / name, text)

    assert (
        {path.name for path in (ROOT / "man").iterdir()} == set(pages) == {"sysperf.1", *(f"sysperf-{name}.1" for name in cli.commands())}
    )


@pytest.mark.skipif(not shutil.which("man"), reason="no man: apt-get install man-db")
def test_man_has_nothing_to_complain_about() -> None:
    """Each page is set without a warning, in one run of what man runs for a page; and man shows one."""
    pages = sorted((ROOT / "man").iterdir())
    (page, *_) = pages
    shown = subprocess.run(("man", "--warnings", "-l", str(page)), capture_output=True, text=True, check=False, timeout=60)
    typeset = ("groff", "-man", "-t", "-Kutf8", "-Tutf8", "-wmac", "-z", *map(str, pages))

    assert (shown.returncode, shown.stderr) == (0, "")
    assert "NAME" in shown.stdout
    done = subprocess.run(typeset, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
