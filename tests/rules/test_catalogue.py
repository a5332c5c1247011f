"""Facts about the lists of causes in docs/causes.md and docs/lint.md."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from sysperf.evaluate.rule_files import read_causes
from sysperf.model.cause import Cause
from sysperf.script.codemods import CODEMODS
from tests.golden import Golden
from tests.shipped import FILES

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
BEGIN, END = "<!-- causes: written by `make generated` -->\n", "<!-- end of causes -->"


def causes() -> list[Cause]:
    return sorted((cause for path in FILES for cause in read_causes(path).cause), key=lambda cause: cause.id)


def with_table(name: str, table: str) -> str:
    """A page with the generated part written anew."""
    head, _, rest = (DOCS / name).read_text().partition(BEGIN)
    return f"{head}{BEGIN}{table}{END}{rest.partition(END)[2]}"


def test_every_cause_is_in_the_catalogue(golden: Golden) -> None:
    """By area, with where it shows and the articles' statements that it covers."""
    table = ""
    for area, group in groupby(causes(), key=lambda cause: cause.id.partition(".")[0]):
        table += f"\n## {area}\n\n| cause | what it is | shows in | articles |\n|---|---|---|---|\n"
        for cause in group:
            sources = ", ".join(dict.fromkeys(witness.from_ for witness in cause.witness))
            table += f'| <a id="{cause.id}"></a>`{cause.id}` | {cause.title} | {sources} | {", ".join(cause.seeds)} |\n'
    golden(DOCS / "causes.md", with_table("causes.md", f"{table}\n"))


def test_every_cause_that_source_shows_is_in_the_page_of_lint(golden: Golden) -> None:
    """With what it is called there, and whether --fix may change it."""
    table = "| rule | what the source shows | `--fix` |\n|---|---|---|\n"
    for cause in causes():
        for witness in cause.witness:
            if witness.from_ == "source":
                table += f"| `{cause.id}` | {witness.title or cause.title} | {'yes' if cause.id in CODEMODS else ''} |\n"
    golden(DOCS / "lint.md", with_table("lint.md", table))
