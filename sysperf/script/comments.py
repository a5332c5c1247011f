"""Comments that accept what a rule says: `# sysperf: ignore`, `# sysperf: ignore[sync.per-step]`, `# sysperf: ignore-file[…]`."""

from __future__ import annotations

from typing import NamedTuple

from sysperf.script.source import Source
from sysperf.startup import lazy

_COMMENT = lazy(r"#\s*sysperf:\s*ignore(-file)?\s*(?:\[([^\]\n]*)\])?")


class Accepted(NamedTuple):
    """What comments accept: rules by line (0: the whole file); an empty set stands for all rules."""

    lines: dict[int, frozenset[str]]

    def covers(self, rule: str, first: int, last: int) -> bool:
        """Whether a comment on the file, or on the first or last line of a place, accepts this rule."""
        names = {rule, rule.partition(".")[2]}
        return any((accepted := self.lines.get(line)) is not None and (not accepted or accepted & names) for line in (0, first, last))


def accepted(source: Source) -> Accepted:
    """The comments of a file."""
    by_line: dict[int, frozenset[str]] = {}
    if "sysperf:" in source.text:
        for match in _COMMENT.finditer(source.text):
            line = 0 if match[1] else source.place(match.start())[0]
            names = frozenset(part.strip() for part in (match[2] or "").split(",") if part.strip())
            earlier = by_line.get(line, names)
            by_line[line] = names | earlier if names and earlier else frozenset()
    return Accepted(by_line)
