"""Comments that accept what a rule says: `# sysperf: ignore`, `# sysperf: ignore[sync.per-step]`, `# sysperf: ignore-file[…]`."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from sysperf.script.source import Source
from sysperf.startup import lazy

_COMMENT = lazy(r"#\s*sysperf:\s*ignore(-file)?\s*(?:\[([^\]\n]*)\])?")


class Acceptance(NamedTuple):
    """One comment: its line (`whole`: it is about the file), and the rules that it names; none stands for all."""

    line: int
    whole: bool
    names: frozenset[str]

    def covers(self, rule: str, lines: Collection[int]) -> bool:
        """Whether it accepts what a rule says of a place with these first and last lines."""
        return (self.whole or self.line in lines) and (not self.names or bool(self.names & short_names(rule)))


def short_names(rule: str) -> set[str]:
    """How a comment may name a rule: by its id, or the id without its area."""
    return {rule, rule.partition(".")[2]}


def accepted(source: Source) -> list[Acceptance]:
    """The comments of a file."""
    if "sysperf:" not in source.text:
        return []
    found = [(line, match) for line, text in _comments(source) for match in _COMMENT.finditer(text)]
    return [
        Acceptance(line, bool(match[1]), frozenset(part.strip() for part in (match[2] or "").split(",") if part.strip()))
        for line, match in found
    ]


def _comments(source: Source) -> Iterator[tuple[int, str]]:
    """(line, text) of each comment. What `tokenize` cannot read, `ast` may: then each line counts as one."""
    try:
        tokens = [*tokenize.generate_tokens(io.StringIO(source.text, newline=None).readline)]
    except (tokenize.TokenError, SyntaxError):
        yield from enumerate(source.text.splitlines(), 1)
        return
    yield from ((token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT)


def idle(comments: Iterable[Acceptance], used: Iterable[tuple[str, Collection[int]]], known: Collection[str]) -> Iterator[tuple[int, str]]:
    """(line, sentence) of each comment that names no rule of `known`, or accepts nothing of `used`: what rules said, with its lines."""
    places = list(used)
    for comment in comments:
        for name in sorted(comment.names) or [""]:
            one = comment._replace(names=frozenset((name,)) if name else frozenset())
            if name and name not in known:
                yield comment.line, f"`{name}` is no rule"
            elif not any(one.covers(rule, lines) for rule, lines in places):
                yield comment.line, f"`{name}` is said of nothing here" if name else "it accepts nothing"
