"""The worked examples of CONTRIBUTING.md, followed to the letter in a copy of the tree."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.trace.synthetic import Machine, steps, written

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
BLOCK = r"\n\n```\w+\n(?P<text>.*?)^```"
NEW = re.compile(rf"^A new file `(?P<path>[^`]+)`:{BLOCK}", re.MULTILINE | re.DOTALL)
ABOVE = re.compile(rf"^In `(?P<path>[^`]+)`, above `(?P<anchor>[^`]+)`:{BLOCK}", re.MULTILINE | re.DOTALL)
AT_END = re.compile(rf"^At the end of `(?P<path>[^`]+)`:{BLOCK}", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    """One worked example: its heading, how many files it says it touches, and its text."""

    heading: str
    files: int
    text: str


def examples() -> list[Example]:
    """The examples that touch files of this tree."""
    sections = re.findall(r"^### ([^\n]+): (\d+) files?\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return [Example(heading, int(files), text) for heading, files, text in sections]


def follow(example: Example, tree: Path) -> set[str]:
    """Do what the example says, and return the files that it touched."""
    touched = set()
    for match in NEW.finditer(example.text):
        (tree / match["path"]).write_text(match["text"])
        touched.add(match["path"])
    for match in AT_END.finditer(example.text):
        with (tree / match["path"]).open("a") as file:
            file.write("\n" + match["text"])
        touched.add(match["path"])
    for match in ABOVE.finditer(example.text):
        path = tree / match["path"]
        lines = path.read_text().splitlines(keepends=True)
        (index,) = [number for number, line in enumerate(lines) if line.startswith(match["anchor"])]
        path.write_text("".join([*lines[:index], match["text"], *lines[index:]]))
        touched.add(match["path"])
    return touched


def run(command: str, tree: Path, home: Path) -> str:
    """What a command of the example prints, on both streams."""
    _, *arguments = command.split()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tree), "HOME": str(home), "COLUMNS": "120"}
    done = subprocess.run(
        (sys.executable, "-m", "sysperf", *arguments), cwd=tree, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("example", examples(), ids=lambda example: example.heading)
def test_a_worked_example_works(example: Example, tmp_path: Path) -> None:
    """It touches as many files as it says, and its commands print what it shows."""
    tree = tmp_path / "tree"
    for folder in ("sysperf", "rules"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))

    assert len(follow(example, tree)) == example.files
    (console,) = CONSOLE.findall(example.text)
    steps = re.findall(r"^\$ ([^\n]+)\n((?:[^$\n][^\n]*\n)*)", console, re.MULTILINE)
    assert steps
    for command, expected in steps:
        printed = run(command, tree, tmp_path)
        assert all(line in printed for line in expected.splitlines()), (command, printed)


@pytest.mark.parametrize(
    "example", [example for example in examples() if "[cause.example]" in example.text], ids=lambda example: example.heading
)
def test_the_source_of_a_worked_example_shows_its_cause(example: Example, tmp_path: Path) -> None:
    """As tests/rules/test_examples.py wants it; and --fix, where the example adds one, makes the better source of the slow one."""
    tree = tmp_path / "tree"
    for folder in ("sysperf", "rules"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    follow(example, tree)
    name = re.findall(r'^id +=? ?"([^"]+)"', example.text, re.MULTILINE)[0]
    slow, better = (re.findall(rf"^{half} = '''\n(.*?)^'''", example.text, re.MULTILINE | re.DOTALL)[0] for half in ("bad", "good"))
    (tree / "slow.py").write_text(slow)
    (tree / "better.py").write_text(better)

    assert name in run("sysperf lint slow.py", tree, tmp_path)
    assert name not in run("sysperf lint better.py", tree, tmp_path)
    if "codemods.py" in example.text:
        run(f"sysperf lint slow.py --select {name} --fix --yes", tree, tmp_path)
        assert (tree / "slow.py").read_text() == better


@pytest.mark.parametrize("example", [example for example in examples() if "any_of(" in example.text], ids=lambda example: example.heading)
def test_the_kernels_of_a_worked_example_show_its_cause_with_a_gain(example: Example, tmp_path: Path) -> None:
    """Half of each step is spent in them; what stays of them bounds what the replay promises."""
    tree = tmp_path / "tree"
    for folder in ("sysperf", "rules"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    follow(example, tree)
    name = re.findall(r'^id +=? ?"([^"]+)"', example.text, re.MULTILINE)[0]
    (word,) = re.findall(r'any_of\("([^"]+)"\)', example.text)
    low, high = (50 * (1 - float(left)) for left in re.findall(r"left=\(([\d.]+), ([\d.]+)\)", example.text)[0])
    kernels = ("ampere_bf16_s16816gemm", f"void at::native::{word}_kernel<float>(float*)")
    machine = steps(
        Machine(), 6, lambda machine: ([machine.kernel(100, kernel) for _ in range(40) for kernel in kernels], machine.synchronize())
    )
    printed = run(f"sysperf analyze {written(tmp_path, machine.trace())} --json", tree, tmp_path)
    (finding,) = [finding for finding in json.loads(printed)["findings"] if finding["rule"] == name]

    assert finding["work_pct"] == pytest.approx(50, abs=1)
    assert (finding["gain"]["low"], finding["gain"]["high"]) == (pytest.approx(low, abs=1), pytest.approx(high, abs=1))


def test_each_drill_has_an_example() -> None:
    """What people add most often."""
    headings = re.findall(r"^### (Add a [a-z]+)", PAGE, re.MULTILINE)

    assert headings == [
        "Add a rule",
        "Add a cause",
        "Add a kind",
        "Add a lint",
        "Add a setting",
        "Add a command",
        "Add a report",
        "Add a meter",
        "Add a profiler",
    ]
