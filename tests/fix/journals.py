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


def write_1(journal: Journal, number: int = 1) -> None:
    """The same transaction as version 1 of the format wrote it: without checksums, in its words."""
    tags = {"begin": "open", "step-started": "intend", "step-result": "told", "before-rewritten": "moved"}
    tags |= {"lease-set": "lease", "keeper-started": "keeper", "end": "close"}
    written = []
    for line in lines(journal, number):
        line["line"] = tags[line["line"]]
        if line["line"] == "open":
            line["version"] = 1
            line.pop("leased")
        if line.get("state") == "foreign":
            line["state"] = "kept"
        for name in ("change", "keeper"):
            if "start_time" in line.get(name, {}):
                line[name]["born"] = line[name].pop("start_time")
        written.append(json.dumps(line))
    Path(journal.path(number)).write_text("".join(line + "\n" for line in written))


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
