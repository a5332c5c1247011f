"""The web page in a real browser."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sysperf.report import render
from tests.report import reports

CHROMIUM = shutil.which("chromium")
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=2000",
]


@pytest.mark.skipif(CHROMIUM is None, reason="needs the package chromium")
@pytest.mark.parametrize("machine", ["sick", "hostile"])
def test_a_browser_shows_the_findings_and_runs_its_own_script_only(machine: str, tmp_path: Path) -> None:
    """Chromium shows every finding's rule; markup in a finding stays text; commands have a button; a screenshot is not blank."""
    report = reports.MACHINES[machine]()
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(render(report, "html"), encoding="utf-8")
    chromium = [str(CHROMIUM), *QUIET, f"--user-data-dir={tmp_path / 'profile'}"]

    dom = subprocess.run([*chromium, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=300, check=True).stdout
    subprocess.run(
        [*chromium, f"--screenshot={picture}", "--window-size=900,900", page.as_uri()], capture_output=True, timeout=300, check=True
    )

    for outcome in report.findings():
        assert outcome.rule in dom or machine == "hostile"
    assert dom.lower().count("<script") == 1
    assert ">copy</button>" in dom
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000
