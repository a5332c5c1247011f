"""The transcript at the front of the README: each of its commands is what sysperf prints, and works as it stands."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.pasting import PYTHON, ROOT, shell

PROGRAM = ROOT / "docs/five_minutes/train.py"


def transcript() -> list[tuple[str, str]]:
    """(command, what it printed) of the section."""
    section = (ROOT / "README.md").read_text().partition("## Five minutes")[2].partition("\n## ")[0]
    block = section.partition("```console\n")[2].partition("```")[0]
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]


def test_each_command_follows_from_the_answer_before() -> None:
    """What the first answer prints as *keep* and *prove* is what is typed next; its line is the program's."""
    (diagnose, said), (keep, _), (change, _), (prove, proved) = transcript()

    assert diagnose == "sysperf diagnose -- python train.py"
    assert f"keep      {keep}\n" in said
    assert f"prove     {prove}\n" in said
    line = int(re.findall(r"train\.py:(\d+): torch", said)[0])
    assert "set_detect_anomaly(True)" in PROGRAM.read_text().splitlines()[line - 1]
    assert "set_detect_anomaly" in change
    assert " % faster than A" in proved


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch")
def test_the_commands_work_as_they_stand(tmp_path: Path) -> None:
    """Each is pasted; only the runs of the proof are shorter. The cause is named with its line, whoever else is at work."""
    (diagnose, _), (keep, _), (change, _), (prove, _) = transcript()
    shutil.copy(PROGRAM, tmp_path / "train.py")
    paste = shell(tmp_path)
    answer = paste(diagnose)
    assert answer.returncode == 1, answer.stderr
    assert "Switches for finding faults are left on" in answer.stdout
    assert f"{tmp_path}/train.py:" in answer.stdout  # line 6, where the machine has a moment to read the source
    printed = dict(re.findall(r"^  (keep|prove) +(.+)$", answer.stdout, flags=re.MULTILINE))
    assert paste(keep).returncode == paste(change).returncode == 0
    assert "set_detect_anomaly" in (tmp_path / "train_before.py").read_text()
    assert "set_detect_anomaly" not in (tmp_path / "train.py").read_text()
    proof = paste(prove.replace("--run-seconds 10 --minutes 10", "--run-seconds 1 --max-pairs 2"))
    assert proof.returncode in (0, 3), proof.stderr
    assert re.search(r"^B .*python train\.py$", proof.stdout, flags=re.MULTILINE)
    assert printed["keep"].endswith("train_before.py")
