"""Every page stands in one frame: one style sheet, and a policy that lets nothing in but what is in the page."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import sysperf.report
from sysperf.report.frame import bar, framed, paragraphs, table

FOLDER = Path(sysperf.report.__file__).parent


def test_no_other_module_begins_a_page_or_has_a_style_of_its_own() -> None:
    """A page without the policy would let foreign text load and run what it names."""
    for path in FOLDER.glob("*.py"):
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
