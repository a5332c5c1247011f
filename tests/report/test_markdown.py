"""Markdown, as a CommonMark parser with tables reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hypothesis import given, settings
from markdown_it import MarkdownIt
from markdown_it.token import Token

from sysperf.model.finding import Place
from sysperf.model.text import neutral
from sysperf.report.formats import render
from sysperf.report.formats.as_markdown import code, escape
from tests.report import reports
from tests.report.hostile import texts

BLOCKS = {"heading_open", "heading_close", "paragraph_open", "paragraph_close", "inline", "html_block", "fence"}
LISTS = {"bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"}
TABLES = {f"{part}_{end}" for part in ("table", "thead", "tbody", "tr", "th", "td") for end in ("open", "close")}
INLINE = {"text", "code_inline", "strong_open", "strong_close", "html_inline", "softbreak", "text_special"}
OUR_HTML = re.compile(r"</details>\n?|<details><summary>[^<>]*(<b>[^<>]*</b>)?[^<>]*</summary>\n?")


def tokens(page: str) -> list[Token]:
    """The blocks of a page."""
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(page)


def inline(parsed: list[Token]) -> Iterator[Token]:
    """What is inside the blocks."""
    for token in parsed:
        yield from token.children or ()


def text_of(page: str) -> str:
    """What a reader of one line sees."""
    return "".join(token.content for token in inline(tokens(page)) if token.type != "html_inline")


def test_findings_are_a_table_with_details() -> None:
    """One row a finding, five columns, then a folded block each."""
    parsed = tokens(render(reports.sick(), "markdown"))

    assert sum(token.type == "tr_open" for token in parsed) == 1 + 5 + 1 + 7
    assert sum(token.content.startswith("<details>") for token in parsed if token.type == "html_block") == 7 + 2
    assert next(token.content for token in parsed if token.type == "fence") == "sudo lspci -vvs 0000:60:00.0\nnvidia-smi topo -m\n"


def test_references_are_links() -> None:
    """A web address can be followed."""
    links = [
        token.attrs["href"]
        for token in inline(tokens(render(reports.report(reports.balancing()), "markdown")))
        if token.type == "link_open"
    ]

    assert links == [reports.KERNEL_DOC]


@given(text=texts)
@settings(max_examples=25)
def test_foreign_text_is_no_markup(text: str) -> None:
    """No link, picture, emphasis, list, code block or HTML comes from the text of a finding; its `refs` are the rule's, and may be links."""
    parsed = tokens(render(reports.hostile(text, refs=("no link",)), "markdown"))

    assert {token.type for token in parsed} <= BLOCKS | LISTS | TABLES
    assert {token.type for token in inline(parsed)} <= INLINE
    assert all(token.content in ("<!-- -->", "<sub>", "</sub>") for token in inline(parsed) if token.type == "html_inline")
    assert all(OUR_HTML.fullmatch(token.content) for token in parsed if token.type == "html_block")


@given(text=texts)
@settings(max_examples=25)
def test_escaped_text_reads_as_it_was(text: str) -> None:
    """A reader sees every character; a mention is split by an invisible comment."""
    assert text_of(f"x {escape(text)}").removeprefix("x").strip() == neutral(text, 4_000).strip()
    assert text_of(f"x {code(text)}").removeprefix("x").strip() == neutral(text).strip()


@given(text=texts)
@settings(max_examples=25)
def test_a_cell_stays_one_cell(text: str) -> None:
    """A bar in a name adds no column, in code or outside."""
    parsed = tokens(f"| a | b |\n|---|---|\n| {code(text, cell=True)} | {escape(text)} |\n")

    cells = [token.content for token in parsed if token.type == "inline"][2:]
    assert len(cells) == 2


def test_places_in_the_source_are_named() -> None:
    """As code: a path is foreign text."""
    text = render(reports.report(reports.balancing(places=(Place("train`.py", 42, "step"),))), "markdown")

    assert "- in ``train`.py:42 (step)``" in text
