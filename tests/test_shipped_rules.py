"""The rules that sysperf ships: right, tested, sourced, quiet on healthy machines, never a traceback on strange ones."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path

import pytest

from sysperf.engine import judging
from sysperf.engine.audit import audit
from sysperf.evaluate.selftest import run_tests
from sysperf.host import Host
from sysperf.host.archive import Archive
from sysperf.host.variables import keeps
from sysperf.report.formats import as_json
from tests.golden import ROOT

from .conftest import fixture_folder
from .shipped import FILES, rule_files, rules, ruleset

RULES = rules()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_tests_inside_each_file_pass(path: Path) -> None:
    """Every rule fires, stays quiet and is unknown where its own tests say so."""
    count, failures = run_tests(ruleset(), judging.schema(), list(rule_files()[path].rule))

    assert not failures
    assert count >= 3 * len(rule_files()[path].rule)


def test_every_rule_is_completely_right() -> None:
    """Conditions, guards, messages and fixes of all rules fit the facts."""
    ruleset().check()


def test_files_are_toml_1_0() -> None:
    """The standard library's strict parser reads them too."""
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    for path in FILES:
        assert tomllib.loads(path.read_text()), path


def test_what_ages_has_the_day_on_which_it_was_read() -> None:
    """Tables of releases, and those of other files that follow a vendor's document. Which day it is, messages say."""
    files = rule_files()
    ageing = {
        (path.stem, name): table
        for path in FILES
        for name, table in files[path].table.items()
        if path.stem == "releases" or name in ("xid_action", "nvlink5", "recovery_advice", "torch_needs_python")
    }

    assert len(ageing) >= 18
    for place, table in ageing.items():
        day = datetime.date.fromisoformat(str(table.get("as_of")))
        assert datetime.date(2026, 11, 1) <= day <= datetime.datetime.now(tz=datetime.timezone.utc).date() + datetime.timedelta(1), place


def test_there_are_enough_and_ids_are_unique() -> None:
    """At least ninety rules; an id is a rule's or a cause's, and a witness's key stands once over all files."""
    assert len(RULES) >= 90
    assert len({rule.key for rule in RULES}) == len(RULES)
    assert not {rule.id for rule in RULES if rule.witness} & {rule.id for rule in RULES if not rule.witness}


def test_a_rule_says_who_says_so_and_why() -> None:
    """A source, an explanation, a message with what was observed, and something to do about more than a remark."""
    for rule in RULES:
        assert rule.refs, rule.key
        assert len(rule.explain.split()) >= 12, rule.key
        assert "{" in rule.message or re.search(r"=[01A-Z]| is o(n|ff)", rule.message), rule.key
        assert rule.fix or rule.severity in ("info", "hint"), rule.key
        assert not rule.message.strip().endswith("!"), rule.key
        for reference in rule.refs:
            assert re.match(r"https?://\S+$|\S+ \S+", reference), (rule.key, reference)


def test_a_rule_asks_only_for_variables_that_are_gathered() -> None:
    """Of a variable that nobody keeps a rule would always be told that it is not set."""
    text = "".join(path.read_text() for path in FILES)
    asked = set(re.findall(r"\b(?:proc|q)\.env\.([A-Z][A-Z0-9_]+)", text))

    assert [name for name in sorted(asked) if not keeps(name)] == []


# The statements of the two articles (docs/seeds.md); S1.14 names workloads, S1.18 is a promise that no rule makes.
SEEDS = [
    *(f"S0.{number}{letter}" for number, letters in enumerate(("abcd", "ab", "abc", "abc", "a", "abc", "abcd", "ab", "abc"), 1) for letter in letters),
    *(f"S1.{n}" for n in range(1, 18) if n != 14),
]  # fmt: skip


def test_every_statement_has_a_rule() -> None:
    """The articles stay covered, the wrong statements by a rule that says why."""
    assert set(SEEDS) - {seed for rule in RULES for seed in rule.seeds} == set()


def test_the_table_of_statements_names_each_and_rules_that_are_there() -> None:
    """docs/seeds.md is read by who wants to know what became of a statement."""
    rows = [row.split("|")[1:5] for row in (ROOT / "docs/seeds.md").read_text().splitlines() if re.match(r"\| S\d", row)]
    named = {seed for row in rows for part in row[0].split(",") for seed in _statements(part.strip())}
    rules = {name for row in rows for name in re.findall(r"`([a-z0-9]+\.[a-z0-9-]+)`", row[2] + row[3])}

    assert named == {*SEEDS, "S1.14", "S1.18"}
    assert rules <= {rule.id for rule in RULES}


def _statements(text: str) -> list[str]:
    """The statements from the first to the last of a row that names a span of them."""
    first, dash, last = text.partition("–")
    if not dash:
        return [first]
    if last.isalpha():
        return [first[:-1] + chr(letter) for letter in range(ord(first[-1]), ord(last) + 1)]
    begin, end = (int(re.sub(r"S\d\.", "", word)) for word in (first, last))
    return [f"S1.{number}" for number in range(begin, end + 1)]


def archives() -> list[Path]:
    return [path for kind in ("hwloc", "lscpu") for path in sorted(fixture_folder(kind).glob("*.tar.*"))]


@pytest.mark.parametrize("archive", archives(), ids=lambda path: path.name.partition(".tar")[0])
def test_a_captured_machine_is_judged_without_a_collector_breaking(archive: Path) -> None:
    """What was not gathered is unknown with a reason; nothing breaks, and the report fits its schema."""
    report = audit(Host(archive, tree=Archive(archive)), judging.Terms(ruleset()))

    for name, area in report.snapshot.areas.items():
        assert "broke" not in (area.problem or ""), name
    for outcome in report.outcomes:
        assert outcome.state != "unknown" or all(gap.reason for gap in outcome.unknown), outcome.rule
    json.loads(as_json.render(report))


def test_a_rule_stands_in_the_file_that_its_id_begins_with() -> None:
    """`memory.psi` stands in memory.toml: who reads an id knows where the rule is."""
    assert {(path.stem, rule.id) for path in FILES for rule in rule_files()[path].rule if rule.id.partition(".")[0] != path.stem} == set()


def test_a_cause_shows_from_outside_once() -> None:
    """The agent follows a finding by its cause and its process: two of them would be taken for one."""
    outside = [rule.id for rule in RULES if rule.scope == "process"]

    assert len(outside) == len(set(outside))
