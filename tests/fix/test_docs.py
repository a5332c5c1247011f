"""docs/changes.md says what the program does."""

from __future__ import annotations

import re
from pathlib import Path

from sysperf import paths
from sysperf.fix import journal_lines
from sysperf.model.knob import KNOBS, PERSISTED
from tests.golden import Golden

DOC = Path(__file__).resolve().parents[2] / "docs" / "changes.md"
BEGIN, END = "<!-- settings: written by `make generated` -->\n", "<!-- end of settings -->\n"


def table() -> str:
    """The table of settings, as it must stand in the document."""
    lines = ["| setting | takes | where | documented | |", "|---|---|---|---|---|"]
    for knob in KNOBS.values():
        name = f"`{knob.name}{'@…' if knob.item else ''}`"
        lines.append(f"| {name} | {knob.range()} | `{knob.path}` | [source]({knob.source}) |{f' {knob.note}' if knob.note else ''} |")
    return "".join(f"{line}\n" for line in lines)


def test_the_table_is_the_allow_list(golden: Golden) -> None:
    """Each setting with its range, place and source, in this order, and no other."""
    head, _, rest = DOC.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    golden(DOC, f"{head}{BEGIN}{table()}{END}{tail}")


def test_the_lines_of_the_journal_are_all_described() -> None:
    """Each kind of line, by its name."""
    tags = {kind.__struct_config__.tag for kind in journal_lines.Line.__args__}
    assert tags == set(re.findall(r"^\| `\"([a-z-]+)\"` \|", DOC.read_text(), re.MULTILINE))


def test_files_and_limits_are_those_of_the_program() -> None:
    """Paths and the version."""
    text = DOC.read_text()
    assert paths.SYSTEM_STATE in text
    assert f"version {journal_lines.VERSION}" in text
    for knob in PERSISTED.values():
        assert knob.path.replace("{item}", "NNNNNN") in text
