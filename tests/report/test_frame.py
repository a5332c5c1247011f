"""Every page stands in one frame: one style sheet, and a policy that lets nothing in but what is in the page."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import sysperf.report
from sysperf.report.experiments.intervals import WIDTH, Row, picture
from sysperf.report.formats import as_html
from sysperf.report.frame import bar, command, explained, framed, paragraphs, stamped, table
from tests.report import reports

FOLDER = Path(sysperf.report.__file__).parent


def test_no_other_module_begins_a_page_or_has_a_style_of_its_own() -> None:
    """A page without the policy would let foreign text load and run what it names."""
    for path in FOLDER.rglob("*.py"):
        text = path.read_text()
        assert path.name == "frame.py" or "<!doctype" not in text.lower(), path
        assert path.name == "frame.py" or "<style" not in text, path
        assert not re.search(r"style=[\"{]", text), path


def test_the_policy_names_what_is_in_the_page_by_its_hash() -> None:
    """The style sheet and the script as a browser reads them; nothing else runs or loads."""
    page = framed("title", ["<p>one</p>"], script="go();")
    for kind, element in (("style", "style"), ("script", "script")):
        found = re.search(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        assert found
        digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page
    assert "unsafe" not in page
    assert "script-src" not in framed("title", [])


def test_foreign_text_is_text() -> None:
    """In the title, in paragraphs, in cells."""
    evil = "</title><script>alert(1)</script>\x1b[31m"
    page = framed(evil, [*paragraphs(evil, ""), table([evil], [[evil]])])

    assert "<script" not in page
    assert "\x1b" not in page
    assert page.count("<p>") == 1


def test_a_bar_is_as_wide_as_the_whole() -> None:
    """Shares of any sum; nothing is drawn of nothing."""
    drawn = "".join(bar([("c0", 30.0), ("c1", 0.0), ("c2", 90.0)]))

    assert re.findall(r'class="(c\d)" x="([\d.]+)" y="0" width="([\d.]+)"', drawn) == [
        ("c0", "0.000", "25.000"),
        ("c2", "25.000", "75.000"),
    ]
    assert "".join(bar([("c0", 0.0)])) == ""


def test_a_page_says_where_when_and_how_it_was_made() -> None:
    """In one line above it; text of a command is text."""
    page = stamped(framed("title", ["<p>one</p>"]), [("on", "gpu-7"), ("made", ""), ("by", "sysperf audit '<b>'")])

    assert "<span>on <b>gpu-7</b></span><span>by <b>sysperf audit &#x27;&lt;b&gt;&#x27;</b></span>" in page
    assert "made" not in re.sub(r"<style>.*</style>|class=\"made\"", "", page, flags=re.DOTALL)


def test_commands_are_copied_by_a_script_that_the_policy_names() -> None:
    """Only pages with commands have it."""
    assert "script-src" in framed("title", [command("sysctl -w a=1")])
    assert command("") == ""
    assert "<pre>a &lt;b&gt;\nc</pre>" in command("a <b>\nc")


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=5))
def test_ratios_are_drawn_beside_no_change(values: list[float]) -> None:
    """The line of no change is always there, ticks are few and round, and nothing is drawn beyond the picture."""
    drawn = picture("faster", [Row("a", min(values), values[0], max(values), "says", [(value, "pair", True) for value in values])])

    assert drawn.count('class="none"') == 1
    assert 'aria-label="faster"' in drawn
    assert all(0 <= float(x) <= WIDTH for x in re.findall(r' (?:cx|x1|x2)="([-\d.]+)"', drawn))
    assert 2 <= len(re.findall(r'text-anchor="middle"', drawn)) <= 12


def test_a_rule_s_own_story_can_be_copied() -> None:
    """A name that a report of somebody else made up stays one word of the command."""
    assert "<pre>sysperf explain numa.balancing-on</pre>" in explained("numa.balancing-on")
    assert "<pre>sysperf explain &#x27;x; reboot&#x27;</pre>" in explained("x; reboot")


def test_each_finding_of_a_page_has_its_story() -> None:
    """Each rule once."""
    report = reports.sick()
    page = as_html.render(report)

    assert {outcome.rule for outcome in report.findings()} == set(re.findall(r"<pre>sysperf explain ([^<]*)</pre>", page))
