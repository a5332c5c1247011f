"""What the ladder says, and which lines a rung changes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from sysperf_trainer.chosen import Chosen
from sysperf_trainer.rung import Rung

HERE = os.path.dirname(os.path.abspath(__file__))
LADDER_FILES = ("rung.py", "rungs.py", "showing.py")


class Place(NamedTuple):
    """A line of the code that asks for a rung, and those that depend on it."""

    file: str
    """Below the package's folder."""
    line: int
    text: str


def places(rung: str) -> list[Place]:
    """Return where the code asks for a rung: one file, beside the ladder itself."""
    asked = re.compile(f'"{re.escape(rung)}" (not )?in ')
    return [place for path in _sources() for place in _in_file(path, asked)]


def show(rung: str) -> str:
    """Return what is said of a rung, and the lines that it changes. Raises UnknownRung."""
    (described,) = Chosen([rung])
    lines = [f"{described.id}: {described.title}", f"  rules: {', '.join(described.rules) or 'none'}"]
    lines += [f"  articles' statements: {', '.join(described.seeds)}"] if described.seeds else []
    lines += [f"  the start of the program: {described.launch}"] if described.launch else []
    for place in places(rung):
        lines += [f"{HERE}/{place.file}:{place.line}", place.text]
    return "\n".join(lines) + "\n"


def listing(rungs: dict[Rung, str], *, as_json: bool) -> str:
    """Return the rungs, each with why this machine cannot have it, or an empty text."""
    if as_json:
        return json.dumps([{**rung._asdict(), "lacks": reason} for rung, reason in rungs.items()], indent=1) + "\n"
    width = max(len(rung.id) for rung in rungs)
    rows = (
        f"{rung.id:{width}}  {rung.title}" + (f"\n{'':{width}}  not here: {reason}" if reason else "") for rung, reason in rungs.items()
    )
    return "\n".join(rows) + "\n"


def _sources() -> Iterator[str]:
    for folder, folders, files in os.walk(HERE):
        folders.sort()
        yield from (f"{folder}/{name}" for name in sorted(files) if name.endswith(".py") and name not in LADDER_FILES)


def _in_file(path: str, wanted: re.Pattern[str]) -> Iterator[Place]:
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for number, line in enumerate(lines):
        if wanted.search(line):
            yield Place(os.path.relpath(path, HERE), number + 1, "\n".join(_block(lines, number)))


def _block(lines: list[str], number: int) -> Iterator[str]:
    """A line, and those after it that are further in."""
    indent = len(lines[number]) - len(lines[number].lstrip())
    yield lines[number]
    for line in lines[number + 1 :]:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            return
        if line.strip():
            yield line
