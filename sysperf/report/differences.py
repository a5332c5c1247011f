"""What differs between machines: one table for two or three of them, values with their machines for more."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from sysperf.model.difference import Difference
from sysperf.model.text import neutral
from sysperf.report.formats.as_markdown import code, escape
from sysperf.report.terminal import Ink, Page, cells, pad, wrap
from sysperf.report.words import count, some

MAX_COLUMNS = 3
MAX_NAMES = 6


def render(
    differences: Sequence[Difference],
    machines: Sequence[str],
    format: str = "text",  # noqa: A002 - the option's name
    *,
    color: bool = False,
    width: int = 100,
) -> str:
    """The differences as given, what matters most first, as ``text`` or ``markdown``."""
    names = _names(machines)
    return _markdown(differences, names) if format == "markdown" else _text(differences, names, Page(Ink(color), width))


def _names(machines: Sequence[str]) -> list[str]:
    """What to call each machine: the file's name where that tells them apart."""
    short = [posixpath.basename(name.rstrip("/")).partition(".")[0] or name for name in machines]
    names = [neutral("this machine" if name == "." else part, 60) for name, part in zip(machines, short, strict=True)]
    return names if len(set(names)) == len(names) else [neutral(name) for name in machines]


def _verdict(differences: Sequence[Difference], names: Sequence[str]) -> str:
    if not differences:
        return f"No difference between {some(names, MAX_NAMES)} that matters for speed."
    return f"{count(len(differences), 'difference')} between {some(names, MAX_NAMES)}, what matters most first:"


def _text(differences: Sequence[Difference], names: Sequence[str], page: Page) -> str:
    page.paragraph(_verdict(differences, names), "strong" if differences else "good")
    page.line()
    columns = _columns(differences, names)
    if differences and len(names) <= MAX_COLUMNS and sum(columns) + 2 * len(names) <= page.width:
        _beside(page, differences, names, columns)
    else:
        _below(page, differences, names)
    return str(page)


def _columns(differences: Sequence[Difference], names: Sequence[str]) -> list[int]:
    rows = [("", *names), *(_row(difference) for difference in differences)]
    return [max(cells(row[column]) for row in rows) for column in range(len(names) + 1)]


def _row(difference: Difference) -> list[str]:
    return [neutral(difference.fact), *(neutral(value) for value in difference.values)]


def _beside(page: Page, differences: Sequence[Difference], names: Sequence[str], columns: list[int]) -> None:
    heads = "  ".join(pad(name, width) for name, width in zip(("fact", *names), columns, strict=True))
    page.line(page.ink("dim", heads.rstrip()))
    for difference in differences:
        fact, *values = (pad(text, width) for text, width in zip(_row(difference), columns, strict=True))
        page.line("  ".join([page.ink("strong", fact), *values]).rstrip())
        page.paragraph(neutral(difference.matters), "dim", indent="    ")


def _below(page: Page, differences: Sequence[Difference], names: Sequence[str]) -> None:
    for difference in differences:
        page.line(page.ink("strong", neutral(difference.fact)))
        for value, holders in _holders(difference, names):
            before = f"    {value}  "
            for part in wrap(some(holders, MAX_NAMES), max(page.width - cells(before), 20)):
                page.line(before + page.ink("dim", part))
                before = " " * cells(before)
        page.paragraph(neutral(difference.matters), "dim", indent="    ")
        page.line()


def _holders(difference: Difference, names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Each value with the machines that have it, the rarest last: that is the odd one out."""
    holders: dict[str, list[str]] = {}
    for name, value in zip(names, difference.values, strict=True):
        holders.setdefault(neutral(value), []).append(name)
    return sorted(holders.items(), key=lambda item: -len(item[1]))


def _markdown(differences: Sequence[Difference], names: Sequence[str]) -> str:
    lines = [f"## {escape(_verdict(differences, names))}"]
    if differences:
        lines += ["", f"| Fact | {' | '.join(map(escape, names))} | Why it matters |", "|---" * (len(names) + 2) + "|"]
    for difference in differences:
        values = " | ".join(code(value, cell=True) for value in difference.values)
        lines.append(f"| {code(difference.fact, cell=True)} | {values} | {escape(difference.matters)} |")
    return "\n".join([*lines, ""])
