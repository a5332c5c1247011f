"""Facts about the lists of causes in docs/causes.md and docs/lint.md."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest

from sysperf.cli import main
from sysperf.evaluate.rule_files import read_causes
from sysperf.model.cause import Cause, CauseFile, Witness
from sysperf.model.rule import Rule
from sysperf.script.changes.codemods import CODEMODS
from tests.golden import Golden
from tests.shipped import FILES

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
SHOWS = {
    "host": "machine",
    "gpu": "GPU",
    "python": "Python",
    "process": "outside",
    "launch": "launch",
    "script": "source",
    "trace": "trace",
    "diagnosis": "running",
}
BEGIN, END = "<!-- causes: written by `make generated` -->\n", "<!-- end of causes -->"


def words(record: type, name: str) -> str:
    """What a field's description says."""
    hint = get_type_hints(record, include_extras=True)[name]
    return next((part.description for part in getattr(hint, "__metadata__", ()) if isinstance(part, msgspec.Meta) and part.description), "")


@cache
def written() -> tuple[CauseFile, ...]:
    """Our rule files as they are written."""
    return tuple(map(read_causes, FILES))


def causes() -> list[Cause]:
    return sorted((cause for file in written() for cause in file.cause), key=lambda cause: cause.id)


def with_table(name: str, table: str, what: str = "causes") -> str:
    """A page with the generated part written anew."""
    begin, end = (text.replace("causes", what) for text in (BEGIN, END))
    head, _, rest = (DOCS / name).read_text().partition(begin)
    return f"{head}{begin}{table}{end}{rest.partition(end)[2]}"


def entries() -> list[tuple[str, str, str, tuple[str, ...]]]:
    """(id, title, where it shows, statements) of each cause, and of each rule that stands alone."""
    alone = [rule for file in written() for rule in file.rule]
    of_causes = [(cause.id, cause.title, ", ".join(dict.fromkeys(each.from_ for each in cause.witness)), cause.seeds) for cause in causes()]
    return sorted([*of_causes, *((rule.id, rule.title, SHOWS[rule.scope], rule.seeds) for rule in alone)])


def test_every_cause_and_rule_is_in_the_catalogue(golden: Golden) -> None:
    """By area, with where it shows and the articles' statements that it covers."""
    table = ""
    for area, group in groupby(entries(), key=lambda entry: entry[0].partition(".")[0]):
        table += f"\n## {area}\n\n| cause or rule | what it is | shows in | articles |\n|---|---|---|---|\n"
        for name, title, shows, seeds in group:
            table += f'| <a id="{name}"></a>`{name}` | {title} | {shows} | {", ".join(seeds)} |\n'
    golden(DOCS / "causes.md", with_table("causes.md", f"{table}\n"))


def test_each_thing_is_said_once() -> None:
    """No two rules or causes have one title or one explanation, and a witness does not repeat its cause's."""
    written = [(read.rule, read.cause) for read in map(read_causes, FILES)]
    entries = [entry for rules, some in written for entry in (*rules, *some)]
    for field in ("title", "explain"):
        texts = Counter(getattr(entry, field).strip().lower() for entry in entries)
        assert [text for text, count in texts.items() if count > 1] == []
    own = [(cause, witness.explain) for cause in causes() for witness in cause.witness]
    assert [cause.id for cause, text in own if text and text.strip() == cause.explain.strip()] == []


def test_a_fix_of_some_witnesses_names_those_of_its_cause() -> None:
    """Else nothing would offer it."""
    for cause in causes():
        assert {name for fix in cause.fix for name in fix.from_} <= {witness.from_ for witness in cause.witness}, cause.id


def test_every_cause_that_source_shows_is_in_the_page_of_lint(golden: Golden) -> None:
    """With its title, and whether --fix may change it."""
    table = "| rule | what may be slow | `--fix` |\n|---|---|---|\n"
    for cause in causes():
        if any(witness.from_ == "source" for witness in cause.witness):
            table += f"| `{cause.id}` | {cause.title} | {'yes' if cause.id in CODEMODS else ''} |\n"
    golden(DOCS / "lint.md", with_table("lint.md", table))


def test_every_field_is_in_the_page_of_rules(golden: Golden) -> None:
    """With where it stands, and what it says; none is without words."""
    places: dict[str, dict[str, str]] = {}
    for record, place in ((Rule, "rule"), (Cause, "cause"), (Witness, "witness")):
        for field in msgspec.structs.fields(record):
            places.setdefault(field.encode_name, {})[place] = words(record, field.name)
    places["witness"]["cause"] = "the places where it shows"
    del places["file"], places["witness"]["rule"]
    table = "| field | stands in | what it says |\n|---|---|---|\n"
    for name, found in places.items():
        told = next(filter(None, found.values()), "")
        assert told, name
        table += f"| `{name}` | {', '.join(found)} | {told.replace('|', chr(92) + '|')} |\n"
    golden(DOCS / "rules.md", with_table("rules.md", table, "fields"))


def test_a_cause_is_shown_as_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """With its witnesses; a rule with its tests."""
    assert main(["rules", "show", "dataloader.inline"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert main(["rules", "show", "numa.balancing-on"]) == 0

    assert {witness["from"] for witness in shown["witness"]} == {"source", "running", "trace"}
    assert json.loads(capsys.readouterr().out)["test"]
