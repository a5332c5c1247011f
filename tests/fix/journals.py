"""Journals as somebody else would write them: other words, another boot, lines that are missing."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sysperf.fix.journal import Journal

Words = dict[str, Any]


def lines(journal: Journal, number: int = 1) -> list[Words]:
    """The lines of a transaction, without their checksums."""
    return [json.loads(line[9:]) for line in Path(journal.path(number)).read_bytes().splitlines()]


def write(journal: Journal, words: list[Words], number: int = 1) -> None:
    """Lines with their checksums."""
    bodies = [json.dumps(line).encode() for line in words]
    Path(journal.path(number)).write_bytes(b"".join(b"%08x %s\n" % (zlib.crc32(body), body) for body in bodies))


def edit(journal: Journal, change: Callable[[Words], Words | None], number: int = 1) -> None:
    """Change each line; None leaves it out."""
    write(journal, [changed for line in lines(journal, number) if (changed := change(line)) is not None], number)


def another_boot(journal: Journal) -> None:
    """All transactions, as they were written before the machine was started again."""

    def change(line: Words) -> Words:
        if "boot" in line:
            line["boot"] = "another-boot"
        if "lease" in line:
            line["lease"]["boot"] = "another-boot"
        return line

    for number in journal.numbers():
        edit(journal, change, number)
