"""The web page in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sysperf.cli import main
from sysperf.model.comparison import Comparison, Metric, Run, Variant
from sysperf.report.experiments import comparison_page
from sysperf.report.formats import render
from tests.report import reports
from tests.trace.labelled import HERE

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
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs the package chromium")


def dumped(address: str, profile: Path, *options: str) -> str:
    """What a browser made of a page."""
    command = [str(CHROMIUM), *QUIET, f"--user-data-dir={profile}", *options, "--dump-dom", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


@needs_chromium
@pytest.mark.parametrize("machine", ["sick", "hostile"])
def test_a_browser_shows_the_findings_and_runs_its_own_script_only(machine: str, tmp_path: Path) -> None:
    """Chromium shows every finding's rule; markup in a finding stays text; commands have a button; a screenshot is not blank."""
    report = reports.MACHINES[machine]()
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(render(report, "html"), encoding="utf-8")
    chromium = [str(CHROMIUM), *QUIET, f"--user-data-dir={tmp_path / 'profile'}"]

    dom = dumped(page.as_uri(), tmp_path / "profile")
    subprocess.run(
        [*chromium, f"--screenshot={picture}", "--window-size=900,900", page.as_uri()], capture_output=True, timeout=300, check=True
    )

    for outcome in report.findings():
        assert outcome.rule in dom or machine == "hostile"
    assert dom.lower().count("<script") == 1
    assert ">copy</button>" in dom
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000


MEASURED = """
<script>
addEventListener("load", () => {
  const meets = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const covered = [...document.querySelectorAll(".command")].filter((one) => {
    const range = document.createRange();
    range.selectNodeContents(one.querySelector("pre"));
    return [...range.getClientRects()].some((line) => meets(line, one.querySelector("button").getBoundingClientRect()));
  });
  const cut = [...document.querySelectorAll("svg")].filter((one) => one.getBoundingClientRect().right > innerWidth);
  const small = [...document.querySelectorAll("svg text")].filter((one) => one.textContent && one.getBoundingClientRect().height < 11);
  document.title = `covered ${covered.length} cut ${cut.length} small ${small.length} wide ${document.body.scrollWidth > innerWidth}`;
});
</script>
"""


@needs_chromium
def test_on_a_phone_nothing_is_cut_covered_or_too_small(tmp_path: Path) -> None:
    """The interval is the result, and a button must not hide the end of a command."""
    argv = ("python", "train.py", "--a-long-option", "of a command that fills a line of a phone and more", "--epochs=90")
    runs = tuple(Run(pair, arm, 10.0 + pair / 9 + 2 * (arm == "b"), 1.0, 1.0) for pair in range(7) for arm in ("a", "b"))
    compared = Comparison(
        a=Variant("A", argv),
        b=Variant("B", argv),
        metric=Metric("speed", "steps/s", True),
        verdict="faster",
        ratio=1.2,
        low=1.15,
        high=1.25,
        median_a=10.0,
        median_b=12.0,
        pairs=6,
        runs=runs,
    )
    html = re.sub(r"<meta http-equiv[^>]*>", "", comparison_page.page(compared))
    (tmp_path / "page.html").write_text(html.replace("</head>", f"{MEASURED}</head>"))

    dom = dumped((tmp_path / "page.html").as_uri(), tmp_path / "profile", "--window-size=500,900")

    assert re.findall("<title>(.*?)</title>", dom)[0] == "covered 0 cut 0 small 0 wide false"


@pytest.mark.slow
@needs_chromium
def test_an_address_shows_its_place_on_the_timeline(tmp_path: Path) -> None:
    """Lines stand at 1, 2 or 5 times a power of ten, in one unit; what is no place shows everything."""
    page = tmp_path / "trace.html"
    main(["analyze", str(HERE / "kineto_resnet50_nw0.json.gz"), "--format", "html", "--output", str(page)])

    def seen(place: str) -> str:
        dom = dumped(page.as_uri() + place, tmp_path / "profile", "--window-size=1280,900")
        label = re.search(r'<canvas[^>]*aria-label="timeline of the window, ([^"]*)"', dom)
        return label[1] if label else ""

    assert seen("#time=200-300") == "100 ms to 400 ms in view, a line each 50 ms"
    assert seen("#time=0.1-0.104") == "96 µs to 108 µs in view, a line each 2 µs"
    assert seen("#time=5000-9000") == seen("#time=x-9") == "0 ms to 873 ms in view, a line each 100 ms"
