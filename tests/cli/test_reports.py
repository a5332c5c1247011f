"""What commands print: several reports at once, findings alone, counts, saved reports, the configuration, and the help."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sysperf import cli
from sysperf.cli import _options
from tests import invoking

RULE = """
[[rule]]
id       = "site.{severity}"
title    = "There are CPUs"
scope    = "host"
severity = "{severity}"
when     = "cpu.cores > 0"
message  = "{{cpu.cores}} CPUs."
explain  = "There always are."
refs     = ["https://www.kernel.org/doc/html/latest/"]
test     = [
  {{ name = "two", expect = "fire", given = {{ cpu = {{ cores = 2 }} }} }},
  {{ name = "none", expect = "pass", given = {{ cpu = {{ cores = 0 }} }} }},
]
"""


def sysperf(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return invoking.sysperf(*words, cwd=cwd, env=dict(os.environ))


@pytest.fixture
def audit(tmp_path: Path) -> tuple[str, ...]:
    """An audit that finds one warning and one hint, whatever the machine."""
    rules = tmp_path / "site.toml"
    rules.write_text("".join(RULE.format(severity=severity) for severity in ("warning", "hint")))
    return "audit", "--rules", str(rules), "--select", "site.*,memory.psi"


def test_each_report_goes_to_its_file(audit: tuple[str, ...], tmp_path: Path) -> None:
    """A --format goes with the --output beside it, in either order; one may go to stdout."""
    first = sysperf(*audit, "--json", "--output", "a.json", "--output", "b.html", "--format", "html", "--format", "concise", cwd=tmp_path)

    assert first.returncode == 1
    assert len(json.loads((tmp_path / "a.json").read_text())["outcomes"]) >= 2
    assert (tmp_path / "b.html").read_text().startswith("<!doctype html>")
    assert [line.split(":")[:2] for line in first.stdout.splitlines()] == [["warning", " site.warning"], ["hint", " site.hint"]]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("audit", "--json", "--format", "html"), "two reports go to stdout"),
        (("audit", "--json", "--output", "a", "--format", "html", "--output", "a"), "two reports go to a"),
        (("facts", "--json", "--output", "a", "--format", "text", "--output", "b"), "this command writes one report"),
    ],
)
def test_no_report_is_dropped_silently(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    """Two that would go to one place, or to a command that writes one, are refused before anything is read."""
    done = sysperf(*words, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert not list(tmp_path.iterdir())


def test_quiet_has_findings_alone(audit: tuple[str, ...]) -> None:
    """No machine, no counts; smaller ones can be left out; the exit code is the same."""
    done = sysperf(*audit, "--quiet", "--min-severity", "warning")
    nothing = sysperf(*audit, "--quiet", "--min-severity", "error", "--fail-on", "error")

    assert done.returncode == 1
    assert done.stdout.startswith("Warnings (1)")
    assert "site.hint" not in done.stdout
    assert "rules in" not in done.stdout
    assert (nothing.returncode, nothing.stdout) == (0, "")


def test_a_severity_and_all_can_be_selected(audit: tuple[str, ...]) -> None:
    """As areas and patterns can."""
    rules = audit[1:3]
    warnings = json.loads(sysperf("rules", "list", *rules, "--select", "warning", "--json").stdout)
    every = json.loads(sysperf("rules", "list", *rules, "--select", "ALL", "--ignore", "hint", "--json").stdout)

    assert {rule["severity"] for rule in warnings} == {"warning"}
    assert {rule["severity"] for rule in every} == {"error", "warning", "info"}
    assert all(rule["message"] and rule["refs"] for rule in warnings if not rule["witness"])


def test_statistics_count_findings_by_rule(audit: tuple[str, ...]) -> None:
    """As text and as JSON."""
    text = sysperf(*audit, "--statistics")
    told = json.loads(sysperf(*audit, "--statistics", "--json").stdout)

    assert [line.split(None, 3) for line in text.stdout.splitlines()] == [
        ["1", "warning", "site.warning", "There are CPUs"],
        ["1", "hint", "site.hint", "There are CPUs"],
    ]
    assert [(one["count"], one["rule"]) for one in told] == [(1, "site.warning"), (1, "site.hint")]
    assert sysperf(*audit, "--statistics", "--format", "html").returncode == 2


def test_passed_rules_are_named(audit: tuple[str, ...], tmp_path: Path) -> None:
    """With --verbose, in JSON, and as cases of JUnit that pass: all of one audit, since another one finds another load."""
    forms = ("text", "json", "junit")
    outputs = (word for form in forms for word in ("--format", form, "--output", str(tmp_path / form)))
    done = sysperf(*audit[:3], "--select", "site.*,kernel,memory", "--fail-on", "error", "--verbose", *outputs)
    assert done.returncode == 0, done.stderr
    verbose, told, cased = ((tmp_path / form).read_text() for form in forms)
    passed = json.loads(told)["passed"]
    suites = ElementTree.fromstring(cased)  # noqa: S314 - ours

    assert passed
    assert f"Passed ({len(passed)})" in verbose
    cases = {case.get("name"): case for case in suites.iter("testcase")}
    assert all(len(cases[rule]) == 0 for rule in passed)
    assert int(suites.get("tests", 0)) == len(cases)


@pytest.mark.parametrize(("fail_on", "failures"), [("warning", ["site.warning"]), ("hint", ["site.warning", "site.hint"]), ("error", [])])
def test_junit_fails_where_the_audit_does(audit: tuple[str, ...], fail_on: str, failures: list[str]) -> None:
    """What is below --fail-on is skipped, with its message."""
    done = sysperf(*audit, "--format", "junit", "--fail-on", fail_on)
    suites = ElementTree.fromstring(done.stdout)  # noqa: S314 - ours
    failed = [case.get("name") for case in suites.iter("testcase") if case.find("failure") is not None]

    assert failed == failures
    assert suites.get("failures") == str(len(failures))
    assert done.returncode == bool(failures)


def test_a_saved_report_keeps_its_evidence_and_its_time(audit: tuple[str, ...], tmp_path: Path) -> None:
    """Judged anew later, it says where its facts were read, when, and how long that took."""
    saved = tmp_path / "saved.json"
    sysperf(*audit, "--json", "--output", str(saved))
    before, after = json.loads(saved.read_text()), json.loads(sysperf(*audit, "--json", "--from", str(saved)).stdout)

    assert after["took_ms"] == before["took_ms"] > 0
    assert after["snapshot"]["taken_at"] == before["snapshot"]["taken_at"]
    assert [one["evidence"] for one in after["outcomes"]] == [one["evidence"] for one in before["outcomes"]]


def test_a_capture_has_its_own_time(tmp_path: Path) -> None:
    """An audit of it says when it was captured, not when it is read."""
    capture = tmp_path / "machine.tar.gz"
    holds = json.loads(sysperf("capture", "--json", str(capture)).stdout)
    captured = time.time()
    time.sleep(1.1)
    words = ("audit", "--root", str(capture), "--json", "--fail-on", "never")
    first, second = (json.loads(sysperf(*words).stdout)["snapshot"]["taken_at"] for _ in range(2))

    assert holds["holds"]["files"] > 10
    assert first == second
    assert abs(time.mktime(time.strptime(first, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone - captured) < 60


def test_the_configuration_says_where_each_value_stands(tmp_path: Path) -> None:
    """The files' values and the defaults; a file that is wrong is named."""
    (tmp_path / ".sysperf.toml").write_text(
        'fail_on = "error"\n[[waive]]\nrule = "memory.psi"\nreason = "known"\n[agent]\ninterval_s = 2\n'
    )
    settings = json.loads(sysperf("config", "show", "--json", cwd=tmp_path).stdout)["settings"]
    by_name = {one["name"]: (one["value"], one["file"]) for one in settings}
    text = sysperf("config", "show", cwd=tmp_path).stdout

    assert by_name["fail_on"] == ("error", ".sysperf.toml")
    assert by_name["agent.interval_s"] == (2, ".sysperf.toml")
    assert by_name["agent.mode"][1] == by_name["reference"][1] == ""
    assert by_name["waive"][0]["rule"] == "memory.psi"
    assert ["fail_on", ".sysperf.toml", "error"] in [line.split() for line in text.splitlines()]
    (tmp_path / ".sysperf.toml").write_text("fail_on = 3\n")
    assert sysperf("config", "show", cwd=tmp_path).returncode == 2


def test_help_is_grouped_and_knows_commands_and_pages() -> None:
    """Each command is in one group; `help COMMAND` is its help; `help docs/…` prints the page that a message names."""
    text = sysperf("--help").stdout
    named = [name for names in cli.GROUPS.values() for name in names]

    assert len(named) == len(set(named))
    assert set(named) <= set(cli.commands())
    assert text.index("is it sick:") < text.index("why:") < text.index("cure:") < text.index("prove:") < text.index("administer:")
    assert sysperf("help", "audit").stdout == sysperf("audit", "--help").stdout
    assert sysperf("help", "docs/configuration.md").stdout.startswith("# ")
    assert "docs/configuration.md" in sysperf("help", "docs/../README.md").stderr
    assert sysperf("version").stdout == sysperf("--version").stdout


def test_a_table_in_a_pipe_is_not_cut() -> None:
    """What grep or a log takes is whole; a terminal's width cuts it."""
    longest = max(map(len, sysperf("rules", "list").stdout.splitlines()))

    assert longest > 100


def test_a_line_of_source_in_a_pipe_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with tables; the text around it has the width of a page."""
    monkeypatch.delenv("COLUMNS", raising=False)
    line = f"    total += loss.item()  # {'and so on, ' * 12}to the end"
    (tmp_path / "train.py").write_text(
        f"total = 0.0\nfor x, y in loader:\n    loss = f(model(x.cuda()), y)\n    loss.backward()\n    optimizer.step()\n{line}\n"
    )
    shown = sysperf("lint", str(tmp_path / "train.py")).stdout.splitlines()

    assert line in shown
    assert max(len(other) for other in shown if other != line) <= 120


WITHOUT_REPORT = {"completion", "helper", "mcp", "tui", "wrap"}
"""What they print is code for a shell, a protocol, a screen, or another program's output."""


def leaves(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, set[str]]]:
    """Each command that can be typed, with its options."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield name, set(parser._option_string_actions)
    for action in below:
        for word, choice in action.choices.items():
            yield from leaves(choice, f"{name} {word}")


@pytest.mark.parametrize("command", sorted(set(cli.commands()) - WITHOUT_REPORT))
def test_every_report_can_be_json_in_a_file_and_colourless(command: str) -> None:
    """One habit for all commands and their actions."""
    found = dict(leaves(_options.parser(command)[0], command))

    assert found
    assert not {name: lacks for name, options in found.items() if (lacks := {"--json", "--output", "--color"} - options)}


REPORTS: tuple[tuple[str, ...], ...] = (
    ("baseline", "--select", "memory.psi"),
    ("capture", "machine.tar"),
    ("check", "--as", "nagios", "--no-agent", "--budget", "20s"),
    ("kernel", "install", "fast", "--prefix", ".", "--python", sys.executable),
    ("rules", "show", "numa.gpu-remote"),
    ("service", "install", "--prefix", "units"),
    ("service", "install", "--prefix", "units", "--print"),
)


@pytest.mark.parametrize("words", REPORTS, ids=" ".join)
def test_a_report_goes_whole_into_its_file(words: tuple[str, ...], tmp_path: Path) -> None:
    """As JSON and as text: then stdout has nothing, and what cannot be written is said before anything is done."""
    refused = sysperf(*words, "--output", "no/such/folder/file", cwd=tmp_path)
    left = sorted(tmp_path.iterdir())
    as_json = sysperf(*words, "--json", "--output", "a.json", cwd=tmp_path)
    shutil.rmtree(tmp_path / "units", ignore_errors=True)
    (tmp_path / "machine.tar").unlink(missing_ok=True)
    as_text = sysperf(*words, "--color", "never", "--output", "a.txt", cwd=tmp_path)

    assert refused.returncode == 2
    assert "no/such/folder/file" in refused.stderr
    assert left == []
    assert (as_json.stdout, as_text.stdout) == ("", "")
    assert isinstance(json.loads((tmp_path / "a.json").read_text()), dict)
    assert (tmp_path / "a.txt").read_text().strip()


def test_a_check_as_json_has_the_hosts_lines_and_its_code() -> None:
    """The code is the host's, as without --json; what was found stands beside the lines."""
    done = sysperf("check", "--as", "nagios", "--no-agent", "--budget", "20s", "--json")
    told = json.loads(done.stdout)

    assert told["code"] == done.returncode
    assert told["lines"][0].startswith("SYSPERF ")
    assert told["checked"]["source"] == "audit"
