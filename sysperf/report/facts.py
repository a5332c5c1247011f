"""What is known about a machine, fact by fact, under the names that rules use."""

from __future__ import annotations

from collections.abc import Iterator

from sysperf.model.record import plain
from sysperf.model.snapshot import Area, Snapshot
from sysperf.model.text import neutral
from sysperf.report.terminal import Ink, Page, cells, pad, wrap
from sysperf.report.words import count, value

MAX_FAILURES = 5
ABSENT = "No such file or directory"
MAX_NAME_WIDTH = 44


def render(snapshot: Snapshot, *, color: bool = False, width: int = 100, verbose: bool = False) -> str:
    """All areas; `verbose` lists every file that could not be read."""
    page = Page(Ink(color), width)
    for name, area in snapshot.areas.items():
        page.line()
        page.line(f"{page.ink('strong', neutral(name))}  {page.ink('dim', f'{area.took_ms:.1f} ms')}")
        _facts(page, name, area)
        _failures(page, area, verbose)
    return str(page)


def _facts(page: Page, name: str, area: Area) -> None:
    if area.facts is None:
        page.paragraph(f"unknown: {neutral(area.problem or 'no reason was recorded')}", "unknown", indent="  ")
        return
    rows = [*_flat(neutral(name), plain(area.facts))]
    column = min(max((cells(fact) for fact, _ in rows), default=0), MAX_NAME_WIDTH)
    for fact, data in rows:
        text, style = value(data, fact), "unknown" if data is None else "plain"
        before = f"  {pad(fact, column)}  "
        for part in wrap(text, max(page.width - cells(before), 24)):
            page.line(before + page.ink(style, part))
            before = " " * (column + 4)


def _flat(path: str, data: object) -> Iterator[tuple[str, object]]:
    """Scalars and plain lists with their full names: ``numa.nodes[0].cpus``."""
    if isinstance(data, dict) and data:
        for name, inner in data.items():
            yield from _flat(f"{path}.{neutral(str(name))}", inner)
    elif isinstance(data, list | tuple) and any(isinstance(item, dict | list | tuple) for item in data):
        for index, inner in enumerate(data):
            yield from _flat(f"{path}[{index}]", inner)
    else:
        yield path, data if data != {} else ()


def _failures(page: Page, area: Area, verbose: bool) -> None:
    """What could not be read. A file that does not exist is an answer, and told only when asked for."""
    failures = [failure for failure in area.failures if verbose or failure.error != ABSENT]
    listed = failures if verbose else failures[:MAX_FAILURES]
    for failure in listed:
        page.paragraph(f"could not read {neutral(failure.path)}: {neutral(failure.error or 'no reason given')}", "dim", indent="  ")
    if len(listed) < len(failures):
        page.paragraph(f"and {count(len(failures) - len(listed), 'other file')}; --verbose lists them", "dim", indent="  ")
