"""The command: what it prints, in each format, and what it does to files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sysperf.engine import lint as engine
from sysperf.script.file import File
from sysperf.script.source import Source
from tests.golden import ROOT
from tests.invoking import sysperf
from tests.report.test_sarif import validator
from tests.script.scripts import TRAINING, shipped
from tests.script.test_codemods import CURABLE

COMMAND = (sys.executable, "-m", "sysperf", "lint")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a script that trains."""
    (tmp_path / "train.py").write_text(TRAINING)
    return tmp_path


def lint(folder: Path, *arguments: str, code: int = 0) -> str:
    """What the command prints, in this folder."""
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = sysperf("lint", *arguments, cwd=folder, env=environment)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def document(folder: Path, *arguments: str) -> dict[str, Any]:
    """The JSON that it prints."""
    published: dict[str, Any] = json.loads(lint(folder, *arguments, "--json"))
    return published


def test_what_was_not_read_is_not_called_clean(folder: Path) -> None:
    """Where no file is, or none is text."""
    (folder / "empty").mkdir()
    (folder / "weights.py").write_bytes(bytes(100))

    assert "No Python file or notebook to read" in lint(folder, "empty")
    assert "Nothing is known: " in lint(folder, "weights.py", code=3)


def test_a_file_that_was_named_and_not_examined_is_no_success(folder: Path) -> None:
    """As with every linter: a job that lints one file must notice; in a folder with others, `--strict` asks for it."""
    (folder / "broken.py").write_text("import torch\ndef f(:\n")
    (folder / "odd.ipynb").write_text("{")

    text = lint(folder, "broken.py", code=3)
    assert "broken.py:2: not Python" in text
    assert "Next: mend them, or run sysperf with the Python that they are for" in text
    for arguments in (["train.py", "broken.py"], ["odd.ipynb"], ["./broken.py"], ["broken.py", "--diff"], ["broken.py", "--json"]):
        lint(folder, *arguments, code=3)
    lint(folder, ".", code=0)
    lint(folder, ".", "--strict", code=3)
    lint(folder, "train.py", "broken.py", "--fail-on", "info", code=1)


def test_a_folder_of_which_nothing_could_be_examined_is_no_success(folder: Path) -> None:
    """Clean is said of what was read only."""
    (folder / "old").mkdir()
    (folder / "old/train.py").write_text("import torch\nprint 'epoch'\n")

    lint(folder, "old", code=3)


@pytest.mark.parametrize(
    ("text", "said"), [("", "0 lines"), ("import os", "1 line "), ("import os\n", "1 line "), ("import os\n\n", "2 lines")]
)
def test_lines_are_counted_as_an_editor_does(folder: Path, text: str, said: str) -> None:
    """Behind the end of the last line there is none."""
    (folder / "one.py").write_text(text)

    assert f"1 file of {said}" in lint(folder, "one.py")


def test_hits_are_hypotheses_with_line_and_column(folder: Path) -> None:
    """The exit code is 0 unless it is asked for otherwise, and nothing is worse than info."""
    text = lint(folder, "train.py")

    assert "train.py:15:18: sync.per-step" in text
    assert "These are hypotheses" in text
    assert {hypothesis["severity"] for hypothesis in document(folder, "train.py")["hypotheses"]} <= {"info", "hint"}
    lint(folder, "train.py", "--fail-on", "info", code=1)
    lint(folder, "train.py", "--fail-on", "warning")


def test_a_waiver_of_the_configuration_accepts_places(folder: Path) -> None:
    """By rule and place, as the audit's; it is counted, and an audit does not call it stale."""
    (folder / "sysperf.toml").write_text('[[waive]]\nrule = "*"\nsubject = "train.py:*"\nreason = "reviewed"\n')
    result = document(folder, "train.py", "--config", "sysperf.toml", "--confidence", "low")

    assert result["hypotheses"] == []
    assert result["ignored"] > 3
    other = '[[waive]]\nrule = "sync.per-step"\nsubject = "other.py:*"\nreason = "reviewed"\n'
    (folder / "sysperf.toml").write_text(other)
    assert "sync.per-step" in lint(folder, "train.py", "--config", "sysperf.toml", "--fail-on", "info", code=1)


def test_a_baseline_accepts_what_was_there_and_shows_what_is_new(folder: Path) -> None:
    """It only shrinks; lines above a place may change."""
    assert "accepted, 0 dropped" in lint(folder, "train.py", "--write-baseline")
    path = folder / "train.py"
    path.write_text("# a line above\n" + TRAINING)
    lint(folder, "train.py", "--fail-on", "hint")
    path.write_text(TRAINING.replace("loss.backward()", "loss.backward()\n        print(loss.item())"))
    new = document(folder, "train.py")

    assert {hypothesis["rule"] for hypothesis in new["hypotheses"]} == {"sync.per-step"}
    assert "not added: sync.per-step" in lint(folder, "train.py", "--write-baseline", code=1)


def test_json_fits_its_published_schema(folder: Path) -> None:
    """What --schema prints, --format json follows."""
    published = json.loads(lint(folder, "--schema"))
    jsonschema.Draft202012Validator.check_schema(published)
    jsonschema.Draft202012Validator(published).validate(document(folder, "."))


def test_a_hypothesis_says_what_would_confirm_it(folder: Path) -> None:
    """Its cause, or one that it explains, in a trace or a running program; and the function that a stack would name."""
    (hypothesis,) = [each for each in document(folder, "train.py")["hypotheses"] if each["rule"] == "sync.per-step"]

    (place,) = hypothesis["places"]
    assert (place["function"], hypothesis["witness"], hypothesis["explains"]) == ("train", "source", ["transfer.back-pageable"])
    assert place["code"] == "total += loss.item()"


def test_sarif_has_regions(folder: Path) -> None:
    """The standard's schema accepts it, and a result is where the source has it."""
    log = json.loads(lint(folder, "train.py", "--format", "sarif", "--select", "sync.per-step"))
    validator().validate(log)
    (result,) = log["runs"][0]["results"]

    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "train.py"},
        "region": {"startLine": 15, "startColumn": 18, "endLine": 15, "endColumn": 29},
    }
    assert result["level"] == "note"


def test_github_annotates_the_line(folder: Path) -> None:
    """A notice beside the place."""
    text = lint(folder, "train.py", "--format", "github", "--select", "sync.per-step")

    assert text.startswith("::notice file=train.py,line=15,col=18,endLine=15,endColumn=29,title=sync.per-step")


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        ("# sysperf: ignore", 0),
        ("# sysperf: ignore[per-step]", 0),
        ("# sysperf: ignore[sync.per-step, inline]", 0),
        ("# sysperf: ignore[inline]  # sysperf: ignore[per-step]", 0),
        ("# sysperf: ignore[not-compiled]", 1),
        ("# sysperf ignore", 1),
    ],
)
def test_a_comment_accepts_a_place(comment: str, left: int) -> None:
    """By the rule's id, or the id without its area; another rule's name accepts nothing."""
    file = File(Source("train.py", TRAINING.replace("loss.item()", f"loss.item()  {comment}").encode()))
    examined = engine.judged(file, shipped())

    assert [hypothesis.rule for hypothesis in examined.hypotheses].count("sync.per-step") == left
    assert bool(examined.ignored) == (not left)


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github"])
def test_no_report_shows_a_password_of_the_source(form: str, folder: Path) -> None:
    """Its line is shown, since something else in it may be slow, and reports are passed on."""
    script = TRAINING.replace("loss.item()", 'send(loss.item(), password="hunter2")')
    assert "hunter2" in script
    (folder / "train.py").write_text(script)
    output = lint(folder, "train.py", "--format", form)

    assert "hunter2" not in output
    assert "train.py" in output


def test_a_comment_accepts_a_file(folder: Path) -> None:
    """Anywhere in it."""
    (folder / "train.py").write_text(TRAINING + "# sysperf: ignore-file[sync.per-step]\n")
    assert document(folder, "train.py", "--select", "sync.per-step")["hypotheses"] == []


def test_folders_are_walked_without_what_is_not_the_users(folder: Path) -> None:
    """Hidden folders, environments and build are left out; a file is read once, whatever names it has; loops of links end."""
    for place in (".git", "node_modules", "build", "own"):
        (folder / place).mkdir()
        (folder / place / "train.py").write_text(TRAINING)
    (folder / "surroundings").mkdir()
    (folder / "surroundings/pyvenv.cfg").touch()
    (folder / "surroundings/train.py").write_text(TRAINING)
    (folder / "own/loop").symlink_to(folder)
    (folder / "own/again.py").symlink_to(folder / "train.py")

    files = {hypothesis["places"][0]["file"] for hypothesis in document(folder, ".")["hypotheses"]}
    assert files in ({"./train.py", "./own/train.py"}, {"./own/again.py", "./own/train.py"})


def test_notebooks_have_cells(folder: Path) -> None:
    """A place is a line of a cell; lines of the shell are no Python; nothing of it is fixable."""
    head, _, rest = TRAINING.partition("\ndef train")
    cells = [
        {"cell_type": "markdown", "source": ["# Title"]},
        {"cell_type": "code", "source": ["!pip install torch\n", *head.splitlines(keepends=True)]},
        {"cell_type": "code", "source": f"%matplotlib inline\ndef train{rest}"},
    ]
    (folder / "book.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    (hypothesis,) = document(folder, "book.ipynb", "--select", "sync.per-step")["hypotheses"]

    (place,) = hypothesis["places"]
    assert (place["cell"], place["line"], place["code"]) == (3, 10, "total += loss.item()")
    assert not any(fix["source"] for fix in hypothesis["fixes"])
    assert "sync.per-step (notebooks are left as they are)" in lint(folder, "book.ipynb", "--diff", "--select", "sync.per-step")


def test_fix_shows_a_diff_and_asks(folder: Path) -> None:
    """Without a terminal and without --yes nothing is written."""
    text = lint(folder, "train.py", "--fix", code=2)

    assert "+        total += loss.detach().double()" in text
    assert "it was not confirmed" in text
    assert (folder / "train.py").read_text() == TRAINING


def test_what_was_not_examined_is_named_beside_a_fix(folder: Path) -> None:
    """Whether it could be changed is unknown, which is not fine."""
    (folder / "broken.py").write_text("x = (\n")
    text = lint(folder, "broken.py", "--fix", "--strict", code=3)

    assert "Nothing to change" in text
    assert "broken.py:1 was not examined" in text


def test_fix_and_undo_restore_every_byte(folder: Path) -> None:
    """Content and mode; a second undo has nothing to do."""
    before = CURABLE.replace("\n", "\r\n").encode()
    (folder / "train.py").write_bytes(before)
    (folder / "train.py").chmod(0o640)
    lint(folder, "train.py", "--fix", "--yes")
    assert (folder / "train.py").read_bytes() != before
    assert "restored" in lint(folder, "--undo")

    assert (folder / "train.py").read_bytes() == before
    assert (folder / "train.py").stat().st_mode & 0o777 == 0o640
    assert "Nothing to take back" in lint(folder, "--undo")


def test_undo_leaves_alone_what_was_changed_since(folder: Path) -> None:
    """Somebody's work is worth more than ours."""
    lint(folder, "train.py", "--fix", "--yes")
    (folder / "train.py").write_text("mine\n")

    assert "changed" in lint(folder, "--undo", code=3)
    assert (folder / "train.py").read_text() == "mine\n"


def test_a_file_with_several_names_is_left_alone(folder: Path) -> None:
    """A rename would part them."""
    (folder / "other.py").hardlink_to(folder / "train.py")
    assert "several names" in lint(folder, "train.py", "--fix", "--yes", code=3)
    assert (folder / "train.py").read_text() == TRAINING


def test_a_fix_that_changed_nothing_offers_no_undo(folder: Path) -> None:
    """Nothing to take back is neither offered nor kept; beside a file that was changed, it is."""
    (folder / "other.py").hardlink_to(folder / "train.py")
    assert "--undo" not in lint(folder, "train.py", "--fix", "--yes", code=3)
    assert "Nothing to take back" in lint(folder, "--undo")

    (folder / "third.py").write_text(TRAINING)
    assert "Changed 1 file. `sysperf lint --undo 1`" in lint(folder, "train.py", "third.py", "--fix", "--yes", code=3)
    assert "restored" in lint(folder, "--undo", "1")


@pytest.mark.slow
def test_a_kill_leaves_the_old_file_or_the_new_one(folder: Path) -> None:
    """At any system call of the writing: each file is whole, and undo still works."""
    for number in range(3):
        (folder / f"train{number}.py").write_text(TRAINING)
    script = f"""
import os, sys, signal
sys.argv = ["sysperf", "lint", *{[f"train{number}.py" for number in range(3)]!r}, "--fix", "--yes"]
limit, calls = int(os.environ["KILL_AT"]), 0
def count(event, arguments):
    global calls
    if event in ("os.rename", "open", "os.mkdir", "os.chmod", "os.remove"):
        if event == "open" and not str(arguments[0]).startswith(({str(folder)!r}, ".sysperf-")):
            return
        calls += 1
        if calls == limit:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
from sysperf.cli import main
main(sys.argv[1:])
"""
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT)}
    killed = 0
    for limit in range(1, 25, 4):
        for number in range(3):
            (folder / f"train{number}.py").write_text(TRAINING)
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=folder, env={**environment, "KILL_AT": str(limit)}, capture_output=True, check=False
        )
        killed += done.returncode == -signal.SIGKILL
        contents = [(folder / f"train{number}.py").read_text() for number in range(3)]
        assert all(content == TRAINING or "loss.detach().double()" in content for content in contents), limit
        if any(content != TRAINING for content in contents):
            lint(folder, "--undo")
            assert [(folder / f"train{number}.py").read_text() for number in range(3)] == [TRAINING] * 3
    assert killed >= 3


def test_neither_audit_nor_wrap_imports_it() -> None:
    """The reader of scripts is for this command alone."""
    script = "import sys; from sysperf.cli import audit, wrap; from sysperf.engine import judging; judging.load_rules(); print([name for name in sys.modules if 'script' in name or name in ('difflib', 'libcst')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


PINNABLE = '''
import torch
from torch.utils.data import DataLoader, TensorDataset
def main():
    device = torch.device("cuda")
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, num_workers=4)
    setup = """
  sudo true"""
    for (x,) in loader:
        x = x.to(device)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
main()
'''


def test_a_diff_is_a_patch_to_the_byte(folder: Path) -> None:
    """Where root has no sudo, too: what a program says of it is the program's."""
    (folder / "train.py").write_text(PINNABLE)
    without_sudo = {**os.environ, "PATH": os.path.dirname(sys.executable), "PYTHONPATH": str(ROOT)}
    diff = sysperf("lint", "train.py", "--diff", cwd=folder, env=without_sudo).stdout
    before = {line[1:] for line in diff.splitlines() if line[:1] in " -" and not line.startswith("---")}

    assert '  sudo true"""' in before
    assert before <= set((folder / "train.py").read_text().splitlines())
