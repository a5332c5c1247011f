"""Edits of a source at positions: everything outside of them stays byte for byte."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable
from typing import NamedTuple

from sysperf.script.file import File
from sysperf.script.source import Source, Unreadable
from sysperf.script.syntax import parse
from sysperf.startup import lazy

_BEHIND_COMMENT = lazy(r"(,[ \t]*#[^\r\n]*)\s*")
"""The last argument of a call that has a line, a comma and a comment of its own."""


class Edit(NamedTuple):
    """A part of the text and what stands there instead; `rule` is why."""

    start: int
    end: int
    text: str
    rule: str


class Change(NamedTuple):
    """The edits of one remedy, which are made together or not at all."""

    rule: str
    line: int
    edits: tuple[Edit, ...]


def change_of(call: ast.Call, rule: str, *edits: Edit | None) -> Change | None:
    """A change of these edits; None where one of them could not be made."""
    kept = tuple(edit for edit in edits if edit is not None)
    return Change(rule, call.lineno, kept) if len(kept) == len(edits) else None


def apply(source: Source, changes: Iterable[Change]) -> tuple[str, list[Change]]:
    """(the new text, the changes that are in it); a change that overlaps an earlier one is left out.

    Raises Unreadable where the result would not parse, cannot be written in the file's encoding, or would lose a comment.
    """
    applied: list[Change] = []
    edits: list[Edit] = []
    for change in changes:
        if not any(_overlaps(edit, other) for edit in change.edits for other in edits):
            edits += [edit for edit in change.edits if edit[:3] not in [other[:3] for other in edits]]
            applied.append(change)
    text = source.text
    for edit in reversed(sorted(edits, key=lambda edit: edit.start)):  # noqa: C413 - at one place, the first comes first
        text = text[: edit.start] + edit.text + text[edit.end :]
    if applied:
        _check(source, text)
    return text, applied


def _overlaps(edit: Edit, other: Edit) -> bool:
    """Whether two edits are about the same text. The same edit, wanted by two changes, is one; insertions at one place are both made."""
    if edit[:3] == other[:3] or edit.start == edit.end == other.start == other.end:
        return False
    return (edit.start < other.end and other.start < edit.end) or edit.start == other.start


def _check(source: Source, text: str) -> None:
    parse(text)
    try:
        source.encode(text)
    except UnicodeEncodeError:
        raise Unreadable("the change cannot be written in the file's encoding") from None
    if comments(text) != comments(source.text):
        raise Unreadable("the change would touch a comment")


def comments(text: str) -> list[str]:
    """All comments of a text."""
    tokens = tokenize.generate_tokens(io.StringIO(text, newline=None).readline)
    try:
        return [token.string for token in tokens if token.type == tokenize.COMMENT]
    except (tokenize.TokenError, SyntaxError):  # `ast` has accepted it: only its lines end otherwise than tokenize thinks
        return []


def span(file: File, node: ast.expr | ast.stmt) -> tuple[int, int]:
    """The offsets where a node begins and ends."""
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return file.source.offset(node.lineno, node.col_offset), file.source.offset(end_line, end_column)


def text_of(file: File, node: ast.expr | ast.stmt) -> str:
    """The source of a node."""
    start, end = span(file, node)
    return file.source.text[start:end]


def add_keyword(file: File, call: ast.Call, keyword: str, rule: str) -> Edit | None:
    """An edit that adds ``name=value`` behind the last argument of a call; None where a call has none, or ends in a comment.

    Where each argument has a line of its own, the new one gets one too.
    """
    arguments: list[ast.expr] = [*call.args, *(given.value for given in call.keywords)]
    if not arguments or any(given.arg is None for given in call.keywords) or any(isinstance(given, ast.Starred) for given in call.args):
        return None
    last = max(arguments, key=lambda given: (given.end_lineno or 0, given.end_col_offset or 0))
    _, end = span(file, last)
    _, close = span(file, call)
    tail = file.source.text[end : close - 1]
    rest = tail.lstrip(")").lstrip()  # parentheses around the last argument itself
    if behind := _BEHIND_COMMENT.fullmatch(tail):
        place, before = end + behind.end(1), _separator(file, call, last)
        return Edit(place, place, f"{before}{keyword},", rule) if before != " " else None  # on the same line, it would be in the comment
    if rest.strip() not in ("", ","):
        return None
    place = end + len(tail) - len(tail.lstrip(") \t"))
    between = file.source.text[end:place]
    place = end + len(between.rstrip(" \t"))
    if rest.startswith(","):
        comma = file.source.text.index(",", end) + 1
        return Edit(comma, comma, f"{_separator(file, call, last)}{keyword},", rule)
    return Edit(place, place, f", {keyword}", rule)


def _separator(file: File, call: ast.Call, last: ast.expr) -> str:
    """What stands before an argument: a line of its own where the last one has that."""
    line = file.source.line(last.lineno)
    indent = line[: len(line) - len(line.lstrip())]
    begins = file.source.offset(last.lineno, last.col_offset) - file.source.starts[last.lineno - 1]
    named = next((given for given in call.keywords if given.value is last), None)
    start = begins - len(f"{named.arg}=") if named is not None else begins
    return newline(file.source) + indent if line[:start].strip() == "" and last.lineno != call.lineno else " "


def newline(source: Source) -> str:
    """How lines of a file end: as its first line does."""
    end = source.starts[1] if len(source.starts) > 1 else 0
    return "\r\n" if source.text[:end].endswith("\r\n") else "\r" if source.text[:end].endswith("\r") else "\n"
