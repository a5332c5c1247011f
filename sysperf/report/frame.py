"""The frame of every web page: one style sheet, light, dark and on paper, and a policy that forbids everything but what is in the page."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Iterator
from pathlib import Path

from sysperf.model.text import neutral, quoted
from sysperf.report import words

CSS = Path(__file__).with_name("page.css")
COPY = Path(__file__).with_name("copy.js")
MADE = "<!--made-->"
"""Where `stamped` writes who made the page, when and how."""


def framed(title: str, lines: Iterable[str], *, script: str = "") -> str:
    """A page around what it shows. It needs nothing else and asks nobody; foreign text in it is text only."""
    style = CSS.read_text(encoding="utf-8")
    body = "\n".join(lines)
    scripts = [each for each in (script, COPY.read_text(encoding="utf-8") if "<pre" in body else "") if each]
    allowed = f"; script-src {' '.join(map(_hash, scripts))}" if scripts else ""
    policy = f"default-src 'none'; style-src {_hash(style)}; base-uri 'none'; form-action 'none'{allowed}"
    head = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">',
        f"<title>{text(title)}</title><style>{style}</style></head><body>{MADE}",
    ]
    return "\n".join([*head, body, *(f"<script>{each}</script>" for each in scripts), "</body></html>", ""])


def stamped(page: str, facts: Iterable[tuple[str, str]]) -> str:
    """The page with a line above it: on which machine it was made, when, in which time, by which command."""
    line = "".join(f"<span>{text(name)} <b>{text(value)}</b></span>" for name, value in facts if value)
    return page.replace(MADE, f'<p class="made">{line}</p>', 1)


def text(foreign: str, limit: int = words.MAX_COMMAND) -> str:
    """A text as it stands in a page."""
    return html.escape(neutral(foreign, limit))


def paragraphs(*texts: str) -> Iterator[str]:
    """A paragraph each; empty ones are left out."""
    yield from (f"<p>{text(each)}</p>" for each in texts if each)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Texts in a table, which scrolls in a box of its own where it is wider than the page."""
    return table_of(head, ((text(cell) for cell in row) for row in rows))


def table_of(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Pieces of a page in a table, as `table` has texts."""
    names = "".join(f"<th>{text(name)}</th>" for name in head)
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{names}</tr>{cells}</table></div>'


def behind(summary: str, picture: str, *tables: str) -> str:
    """A picture with its figures as a table that is folded away: for screen readers, mail and those who want the numbers."""
    return f'<figure>{picture}<details class="behind"><summary>{text(summary)}</summary>{"".join(tables)}</details></figure>'


def command(lines: str) -> str:
    """Commands as a block, whole, with a button that copies them."""
    shown = "\n".join(text(line) for line in words.command(lines))
    return f"<pre>{shown}</pre>" if shown else ""


def explained(rule: str) -> str:
    """The command that tells all of a rule or a cause, to copy."""
    page = words.page_of(rule)
    link = f'<p><a href="{html.escape(page)}">{text(rule)} in the catalogue</a></p>' if page else ""
    return f"<h3>All about it</h3>{command(f'sysperf explain {quoted(rule)}')}{link}"


def sections(tables: Iterable[tuple[str, Iterable[str], Iterable[Iterable[str]]]]) -> Iterator[str]:
    """A section each for tables with a title, a head and rows."""
    yield from (f"<section><h2>{text(title)}</h2>{table(head, rows)}</section>" for title, head, rows in tables)


def bar(shares: Iterable[tuple[str, float]]) -> Iterator[str]:
    """Shares of a whole in one bar, each with the class that colours it."""
    known = [(name, share) for name, share in shares if share > 0]
    total, start = sum(share for _, share in known), 0.0
    if not known:
        return
    yield '<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">'
    for name, share in known:
        width = 100 * share / total
        yield f'<rect class="{name}" x="{start:.3f}" y="0" width="{width:.3f}" height="1"/>'
        start += width
    yield "</svg>"


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
