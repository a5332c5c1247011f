"""The web page."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings

from sysperf.model.text import neutral
from sysperf.report.formats import render
from tests.report import reports
from tests.report.hostile import texts

VOID = {"meta", "input", "rect"}
TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "input",
        "header",
        "p",
        "b",
        "span",
        "h1",
        "svg",
        "rect",
        "nav",
        "label",
        "dl",
        "dt",
        "dd",
    ),
    *("main", "section", "h2", "details", "summary", "i", "code", "h3", "table", "tr", "td", "pre", "a", "ul", "li", "footer", "script"),
}
ATTRIBUTES = {
    *(
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "type",
        "class",
        "id",
        "checked",
        "aria-label",
        "for",
        "viewbox",
        "preserveaspectratio",
    ),
    *("aria-hidden", "x", "y", "width", "height", "open", "href", "rel"),
}


class Page(HTMLParser):
    """The elements, attributes and texts of a page; unbalanced elements are noted."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """It must close the innermost open one."""
        if tag not in VOID and (not self.stack or self.stack.pop() != tag):
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        """Note it."""
        self.texts.append(data)


@pytest.mark.parametrize("machine", reports.MACHINES)
def test_the_page_is_balanced_and_needs_nothing_else(machine: str) -> None:
    """Every element is closed, and nothing is loaded from anywhere."""
    page = Page(render(reports.MACHINES[machine](), "html"))

    assert not page.unbalanced
    assert not page.stack
    assert not {"link", "img", "iframe", "object", "form"} & set(page.tags)
    assert not {"src", "style", "srcset", "action"} & {name for name, _ in page.attributes}


def test_the_policy_allows_its_own_style_sheet_and_script_only() -> None:
    """The hashes in the policy are those of the style sheet and the script that copies commands; a browser refuses all else."""
    page = render(reports.sick(), "html")
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style

    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)
    assert script
    digest, copies = (base64.b64encode(hashlib.sha256(each[1].encode()).digest()).decode() for each in (style, script))

    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; script-src 'sha256-{copies}'"
    assert f'content="{policy}"' in page
    assert page.count("<script") == 1
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_severities_can_be_hidden() -> None:
    """A box for each severity found, its label, and a style that hides its section."""
    page = render(reports.sick(), "html")

    for severity in ("error", "warning", "info", "hint"):
        assert f'id="show-{severity}"' in page
        assert f'for="show-{severity}"' in page
        assert f"#show-{severity}:not(:checked)~main .{severity}" in page


def test_only_references_are_links() -> None:
    """A link goes where the rule says, without telling where from."""
    page = Page(render(reports.sick(), "html"))

    links = [value for name, value in page.attributes if name == "href"]
    assert links == [reports.KERNEL_DOC] * 2  # of the rule's name, and in the list of references
    assert {value for name, value in page.attributes if name == "rel"} == {"noreferrer noopener"}


def test_a_rule_has_one_card_with_the_fix_before_the_evidence() -> None:
    """Three GPUs with the same finding are one card; what to do comes before what was read."""
    page = render(reports.sick(), "html")

    assert page.count("<code>gpu.link-narrow</code>") == 1
    assert "GPU 0 (NVIDIA H100 80GB HBM3) and 2 more" in page
    assert "The same of 2 more" in page
    assert page.index("Reseat the card") < page.index("Why it matters") < page.index("Observed: 3 facts")


@given(text=texts)
@settings(max_examples=25)
def test_foreign_text_makes_no_element(text: str) -> None:
    """Whatever the names hold, elements and attributes are ours, and the text is there to be read."""
    page = Page(render(reports.hostile(text, refs=("no link",)), "html"))

    assert set(page.tags) <= TAGS
    assert {name for name, _ in page.attributes} <= ATTRIBUTES
    assert not page.unbalanced
    assert not [value for name, value in page.attributes if name == "href"]
    assert not text or neutral(text) in page.texts
