"""`sysperf bench` as a user runs it: figures in each format, records that are compared, an end at any time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sysperf.model.ceiling import Ceiling, Ceilings
from sysperf.model.record import from_json, to_json
from sysperf.report.experiments import ceilings as report
from tests.invoking import sysperf

QUICK = ("--only", "start", "--runs", "2")


def bench(home: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return sysperf("bench", "host", *argv, env={"PATH": "/usr/bin:/bin", "HOME": str(home), "STATE_DIRECTORY": str(home / "state")})


def test_figures_are_a_record_that_can_be_compared(tmp_path: Path) -> None:
    """--json writes it, --compare reads it; stdout is the report and nothing else."""
    first = bench(tmp_path, *QUICK, "--json")
    (tmp_path / "node1.json").write_text(first.stdout)
    second = bench(tmp_path, *QUICK, "--compare", str(tmp_path / "node1.json"))

    kept = from_json(first.stdout, Ceilings)
    assert [ceiling.metric for ceiling in kept.ceilings] == ["start.program", "start.python"]
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "Beside the other record" in second.stdout
    assert "%" in second.stdout


def test_without_torch_the_rest_is_measured(tmp_path: Path) -> None:
    """What lacks is named, with what to do; exit code 3."""
    done = bench(tmp_path, "--only", "memory", "--runs", "1", "--python", sys.executable)

    assert done.returncode == 3, done.stderr
    assert "GB/s" in done.stdout
    assert "not measured: triad" in " ".join(done.stdout.split())
    assert "torch" in done.stdout


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--only", "luck"), "no such group"),
        (("--runs", "0"), "not between 1 and"),
        (("--ranks", "-1"), "--ranks -1"),
        (("--compare", "/nothing"), "No such file"),
        (("--compare", "/dev/null"), "no record of ceilings"),
        (("--only", "storage", "--folder", "/nothing"), "No such file"),
        (("--only", "start", "--runs", "1", "--python", "/nothing/python"), ""),
    ],
)
def test_what_cannot_be_is_said_in_a_line(tmp_path: Path, argv: tuple[str, ...], message: str) -> None:
    """Before anything is measured, and never as a traceback."""
    done = bench(tmp_path, *argv)

    assert done.returncode in ((2,) if message else (0, 3)), done.stdout
    assert message in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_files_are_gone_whatever_ends_it(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C shows what is there; after kill -9 the process that measures removes them, and ends."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "STATE_DIRECTORY": str(tmp_path / "state")}
    data = tmp_path / "data"
    data.mkdir()
    command = (sys.executable, "-m", "sysperf", "bench", "host", "--only", "storage", "--runs", "1000", "--folder", str(data), "--json")
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not list(data.glob(".sysperf-bench-*/*")) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        printed, said = process.communicate(timeout=300)

    assert "Traceback" not in said
    if number != signal.SIGKILL:
        assert json.loads(printed)["interrupted"] is True
        assert process.returncode in (2, 3)
    while list(data.iterdir()):  # the test's own time limit ends this
        time.sleep(0.01)


def test_each_format_escapes_what_a_record_says() -> None:
    """Another machine's record is untrusted text."""
    hostile = "<b>|` \x1b[31m"
    record = Ceilings(
        sysperf="0", taken_at="", runs=1, machine={"cpu.model_name": hostile}, about={hostile: hostile}, notes=(hostile,),
        ceilings=(Ceiling(metric=hostile, group="memory", what=hostile, unit="GB/s", values=(1.0, 2.0), expected=4.0, basis=hostile),),
    )  # fmt: skip

    for text in (report.text(record), report.markdown(record), report.page(record)):
        assert "\x1b" not in text
    assert "<b>" not in report.page(record)
    assert "Content-Security-Policy" in report.page(record)
    assert "1.5 GB/s" in report.text(record)
    assert "38%" in report.text(record).replace("37%", "38%")
    assert from_json(to_json(record), Ceilings) == record


def test_root_is_needed_for_none_of_it() -> None:
    """The help says what it writes."""
    done = sysperf("bench", "host", "--help", env={"PATH": os.environ["PATH"]})

    assert "removed" in done.stdout


# ---------------------------------------------------------------------- bench trainer

TORCH_PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--minutes", "0"), "no finite number above 0"),
        (("--minutes", "nan"), "no finite number above 0"),
        (("--ranks", "0"), "not between 1 and"),
        (("--steps", "3"), "steps or more"),
        (("--rungs", "luck"), "no such rung"),
        (("--with", "luck"), "no trainers plugin `luck`"),
        (("--workload", "luck"), "invalid choice"),
        (("--resume",), "no interrupted ladder"),
        (("--compare", "/nothing"), "No such file"),
        (("--compare", "/dev/null"), "no record of a ladder"),
        (("--python", "/nothing/python"), "does not say what can be had here"),
    ],
)
def test_a_ladder_that_cannot_be_climbed_is_refused(tmp_path: Path, argv: tuple[str, ...], message: str) -> None:
    """In a line, with what to do, before anything is measured."""
    python = () if "--python" in argv else ("--python", sys.executable)
    done = sysperf(
        "bench", "trainer", *python, *argv, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "STATE_DIRECTORY": str(tmp_path / "state")}
    )

    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert "hint" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not TORCH_PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch")
def test_a_ladder_is_climbed_interrupted_and_resumed(tmp_path: Path) -> None:
    """Ctrl-C keeps the runs that are there, --resume makes more, the dashboard's file has the rung, and nothing stays behind."""
    env = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "STATE_DIRECTORY": str(tmp_path / "state"), "OMP_NUM_THREADS": "1",
        "TMPDIR": str(tmp_path / "tmp"),
    }  # fmt: skip
    (tmp_path / "tmp").mkdir()
    command = (sys.executable, "-m", "sysperf", "bench", "trainer", "--python", TORCH_PYTHON, "--rungs", "set-to-none", "--steps", "14")
    options = ("--minutes", "3", "--json", "--traces", str(tmp_path / "traces"))
    trainer = ("--", "--batch", "1", "--cache", str(tmp_path / "cache"))
    with subprocess.Popen((*command, *options, *trainer), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        seen = next((line for line in process.stderr if "round 1 of the climb, 2 of 2" in line), "")
        process.send_signal(signal.SIGINT)
        first = json.loads(process.communicate(timeout=300)[0])
    done = subprocess.run((*command, *options, "--resume", *trainer), env=env, capture_output=True, text=True, check=False, timeout=600)
    record = json.loads(done.stdout)

    assert seen
    assert (first["interrupted"], process.returncode) == ("interrupted", 3)
    assert record["rounds"] >= first["rounds"]
    rung = next(rung for rung in record["rungs"] if rung["id"] == "set-to-none")
    assert rung["parity"]["holds"] is True
    assert rung["trace"].startswith(str(tmp_path / "traces"))
    assert [
        path.name for path in (tmp_path / "tmp").iterdir() if not path.name.startswith("torchinductor_")
    ] == []  # torch's own cache stays
    if rung["trials"] and rung["trials"][0]["comparison"]["ratio"]:
        kept = [json.loads(line) for line in (tmp_path / "state" / "trials.jsonl").read_text().splitlines()]
        assert {"text: set-to-none"} == {trial["what"] for trial in kept}
