"""What a project says about lint, and the options of the same names; how often; from the standard input; again and again."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.golden import ROOT
from tests.report.test_sarif import validator
from tests.script.scripts import TRAINING
from tests.script.test_lint_cli import COMMAND, document, folder, lint

__all__ = ["folder"]


def project(folder: Path, text: str) -> None:
    """A pyproject.toml with this table."""
    (folder / "pyproject.toml").write_text("[tool.sysperf.lint]\n" + text)


def rules(folder: Path, *arguments: str) -> set[str]:
    """The rules that say something."""
    return {hypothesis["rule"] for hypothesis in document(folder, *arguments)["hypotheses"]}


def test_a_project_selects_and_ignores(folder: Path) -> None:
    """In the nearest pyproject.toml above; options come first, and --config leaves it out."""
    project(folder, 'select = ["sync", "dataloader.*"]\nignore = ["workers-made-again"]\nfail-on = "info"\n')
    (folder / "deep").mkdir()
    (folder / "deep/pyproject.toml").write_text("[project]\nname = 'x'\n")
    (folder / "deep/train.py").write_text(TRAINING)
    (folder / "empty.toml").write_text("")

    assert rules(folder, "train.py", "--fail-on", "never") == {"sync.per-step", "dataloader.pin-memory-off"}
    assert "sync.per-step" in lint(folder / "deep", "train.py", code=1)
    assert rules(folder, "train.py", "--select", "compile", "--fail-on", "never") == {"compile.not-compiled"}
    assert "dataloader.workers-made-again" in rules(folder, "train.py", "--config", "empty.toml")


def test_a_project_leaves_files_out(folder: Path) -> None:
    """By pattern of a folder or a file, in the project or with --exclude; what is named itself is read; the foot counts them."""
    (folder / "legacy").mkdir()
    for name in ("legacy/a.py", "b_old.py"):
        (folder / name).write_text(TRAINING)
    project(folder, 'exclude = ["legacy"]\n')

    files = {hypothesis["places"][0]["file"] for hypothesis in document(folder, ".", "--exclude", "*_old.py")["hypotheses"]}
    assert files == {"./train.py"}
    assert "2 excluded" in lint(folder, ".", "--exclude", "*_old.py")
    assert document(folder, "legacy/a.py")["hypotheses"]


def test_a_project_ignores_rules_in_some_files(folder: Path) -> None:
    """By pattern; the others are asked as ever."""
    (folder / "tools").mkdir()
    (folder / "tools/train.py").write_text(TRAINING)
    project(folder, 'per-file-ignores = { "tools/*" = ["sync.per-step", "not-compiled", "dataloader"] }\n')

    assert not rules(folder, "tools/train.py") & {"sync.per-step", "compile.not-compiled", "dataloader.pin-memory-off"}
    assert "sync.per-step" in rules(folder, "train.py")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("colour = 1\n", "colour"),
        ("select = 1\n", "select"),
        ('per-file-ignores = { "a" = ["nothing"] }\n', "no rule matches `nothing`"),
        ('fail-on = "sometimes"\n', "fail-on (error, warning, info, hint, never)"),
        ('confidence = "sure"\n', "confidence (high, medium, low)"),
        ("select = [\n", "pyproject.toml"),
    ],
)
def test_a_mistake_of_the_project_is_named(table: str, message: str, folder: Path) -> None:
    """With the file."""
    project(folder, table)
    assert message in lint(folder, "train.py", code=2)


def test_a_diff_needs_no_answer(folder: Path) -> None:
    """It exits 1 where there is one, and writes nothing."""
    assert "+        total += loss.detach().double()" in lint(folder, "train.py", "--diff", code=1)
    assert (folder / "train.py").read_text() == TRAINING
    assert "Nothing to change" in lint(folder, "train.py", "--diff", "--select", "compile")


def test_statistics_count(folder: Path) -> None:
    """As text or JSON, the most frequent first."""
    assert "    1 info     sync.per-step" in lint(folder, "train.py", "--statistics")
    counted = json.loads(lint(folder, "train.py", "--statistics", "--json"))
    assert {"rule": "sync.per-step", "count": 1} in [{name: each[name] for name in ("rule", "count")} for each in counted]


def test_several_reports_at_once(folder: Path) -> None:
    """A format goes with its output."""
    text = lint(
        folder, "train.py", "--format", "sarif", "--output", "a.sarif", "--format", "json", "--output", "a.json", "--format", "concise"
    )

    assert "info: sync.per-step: train.py:15:18: " in text
    assert json.loads((folder / "a.json").read_text())["files"] == 1
    validator().validate(json.loads((folder / "a.sarif").read_text()))


def with_stdin(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, given this text."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([*COMMAND, *arguments], cwd=folder, env=environment, input=text, capture_output=True, text=True, check=False)


def test_the_standard_input_is_a_file(folder: Path) -> None:
    """With the name that it is given; --fix prints what it becomes, and writes nowhere."""
    shown = with_stdin(folder, TRAINING, "-", "--stdin-filename", "mine.py", "--format", "concise")
    assert "mine.py:15:18" in shown.stdout
    fixed = with_stdin(folder, TRAINING, "-", "--fix").stdout

    assert "loss.detach().double()" in fixed
    assert fixed.startswith(TRAINING[:40])
    assert with_stdin(folder, "x = 1\n", "-", "--fix").stdout == "x = 1\n"
    assert with_stdin(folder, TRAINING, "-", "--diff").returncode == 1
    assert with_stdin(folder, "def (", "-", "--strict").returncode == 3


@pytest.mark.parametrize(
    ("comment", "note"),
    [
        ("# sysperf: ignore[sync.per-step]", ""),
        ("# sysperf: ignore[per-stepp]", "`per-stepp` is no rule"),
        ("# sysperf: ignore[per-step, rebuilt]", "`rebuilt` is said of nothing here"),
        ("# sysperf: ignore", ""),
    ],
)
def test_a_comment_that_does_nothing_is_named(comment: str, note: str, folder: Path) -> None:
    """With its line; not where its rule is not asked, nor in a text that only shows one."""
    (folder / "train.py").write_text(f'"""{comment}"""\n' + TRAINING.replace("loss.item()", f"loss.item()  {comment}"))
    notes = document(folder, "train.py")["notes"]

    assert [each["text"] for each in notes] == ([note] if note else [])
    assert [each["line"] for each in notes] == ([16] if note else [])
    assert not document(folder, "train.py", "--select", "compile")["notes"] or "no rule" in note


def test_an_idle_comment_about_a_line_is_named(folder: Path) -> None:
    """One without a rule, on a line of which nothing is said."""
    (folder / "train.py").write_text(TRAINING.replace("import torch\n", "import torch  # sysperf: ignore\n", 1))
    assert "train.py:1: it accepts nothing" in lint(folder, "train.py")


def test_sarif_has_the_changes(folder: Path) -> None:
    """The regions of each edit, and the message without the place, which stands beside it."""
    log = json.loads(lint(folder, "train.py", "--format", "sarif", "--select", "sync.per-step"))
    validator().validate(log)
    (result,) = log["runs"][0]["results"]
    (change,) = result["fixes"]
    (file,) = change["artifactChanges"]
    lines = TRAINING.splitlines(keepends=True)
    for replacement in reversed(file["replacements"]):
        region = replacement["deletedRegion"]
        assert region["startLine"] == region["endLine"]
        line = lines[region["startLine"] - 1]
        lines[region["startLine"] - 1] = (
            line[: region["startColumn"] - 1] + replacement["insertedContent"]["text"] + line[region["endColumn"] - 1 :]
        )

    assert "train.py:15" not in result["message"]["text"]
    assert "total += loss.detach().double()" in "".join(lines)
    assert "".join(lines) == with_stdin(folder, TRAINING, "-", "--fix", "--select", "sync.per-step").stdout


def test_github_leaves_hints_to_the_count(folder: Path) -> None:
    """Ten annotations are shown: those that cost most."""
    text = lint(folder, "train.py", "--format", "github")

    assert "compile.not-compiled" not in text
    assert "places to look at (" in text
    assert "unmeasured" not in text


def test_a_clean_file_is_clean(folder: Path) -> None:
    """It is not called unchecked."""
    (folder / "train.py").write_text("import torch\n")

    assert "Nothing to look at" in lint(folder, "train.py", "--format", "github")
    assert "Nothing to look at" in lint(folder, "train.py", "--format", "sarif")


def test_a_watch_looks_again_when_a_file_changes(folder: Path) -> None:
    """Until it is ended."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    command = [*COMMAND, "train.py", "--watch", "--select", "sync", "--format", "concise"]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as watching:
        assert watching.stdout is not None
        assert ":15:18:" in watching.stdout.readline()
        time.sleep(0.6)
        (folder / "train.py").write_text("# above\n" + TRAINING)
        assert ":16:18:" in watching.stdout.readline()
        watching.terminate()


def test_a_place_that_is_left_alone_is_named(folder: Path) -> None:
    """Where no change can be made, those that have one by their rule."""
    (folder / "train.py").write_text(TRAINING.replace("total = 0.0", "total = start()"))

    assert "train.py:15:18: sync.per-step" in lint(folder, "train.py", "--diff", "--select", "sync")


def test_a_folder_that_is_gone_is_no_clean_one(tmp_path: Path) -> None:
    """It is said, and the exit code is that of a wrong command line."""
    (tmp_path / "gone").mkdir()
    command = ["sh", "-c", f"cd gone && rmdir ../gone && {' '.join(COMMAND)} ."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert (done.returncode, "is gone" in done.stderr) == (2, True)


def test_what_is_less_sure_is_asked_for(folder: Path) -> None:
    """By an option, the project, or by name; what is left out is counted, also in a comment that accepts it."""
    assert "compile.not-compiled" not in rules(folder, "train.py")
    assert "less sure (--confidence low shows them)" in " ".join(lint(folder, "train.py").split())
    assert document(folder, "train.py")["unsure"] > 0
    assert "compile.not-compiled" in rules(folder, "train.py", "--confidence", "low")
    assert rules(folder, "train.py", "--select", "not-compiled") == {"compile.not-compiled"}
    assert rules(folder, "train.py", "--select", "not-compiled", "--confidence", "medium") == set()

    project(folder, 'confidence = "low"\n')
    assert "compile.not-compiled" in rules(folder, "train.py")
    assert "compile.not-compiled" not in rules(folder, "train.py", "--confidence", "high")
    assert document(folder, "train.py")["unsure"] == 0


def test_a_comment_about_what_is_less_sure_is_no_idle_one(folder: Path) -> None:
    """It accepts what --confidence low shows."""
    (folder / "train.py").write_text("# sysperf: ignore-file[not-compiled]\n" + TRAINING)
    assert document(folder, "train.py")["notes"] == []
    assert "compile.not-compiled" not in rules(folder, "train.py", "--confidence", "low")


def test_helpers_of_tests_are_tests(folder: Path) -> None:
    """By the name of the file or of its folder."""
    (folder / "train.py").unlink()
    (folder / "test_utils").mkdir()
    for name in ("test_utils/steps.py", "_test_utils.py", "testing_helpers.py", "latest_utils.py"):
        (folder / name).write_text(TRAINING)
    result = document(folder, ".")
    assert {hypothesis["places"][0]["file"] for hypothesis in result["hypotheses"]} == {"./latest_utils.py"}
    assert result["skipped"] == 3
