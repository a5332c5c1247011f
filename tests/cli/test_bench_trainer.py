"""`sysperf bench trainer` as a user runs it, with a trainer of a third party: a ladder that is climbed, ended at any time, and gone on with."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sysperf.model.ladder import Ladder, RungResult
from sysperf.model.record import from_json, to_json
from tests.golden import ROOT
from tests.stand_ins import write_torch

USER = 65_531

PLUGIN = """
import os
from typing import NamedTuple

class Rung(NamedTuple):
    id: str
    role: str = "ladder"
    requires: tuple = ()
    instead_of: str = ""
    title: str = "a rung"
    rules: tuple = ()
    seeds: tuple = ()
    loss_bound: float = 0.0
    signs: tuple = (("cpu.operators_per_step", "falls", "cpu"),)
    predicted_by: str = "launch"

class Start(NamedTuple):
    argv: tuple
    environment: dict

def rungs(workload=""):
    return (
        Rung("fast", rules=("dataloader.inline",), seeds=("S0.3a",)), Rung("broken"), Rung("absent"), Rung("other-mathematics"),
        Rung("after-broken", requires=("broken",)), Rung("doubtful", "doubtful"),
    )

def start(python, workload, rungs=(), arguments=(), *, ranks=1, sysperf=()):
    program = os.path.join(os.path.dirname(__file__), "toy_program.py")
    return Start((python, program, "--rungs", ",".join(rungs), *arguments), {"TOY": workload})
"""
PROGRAM = """
import argparse, json, os, shutil, sys, time
parser = argparse.ArgumentParser()
for name in ("--rungs", "--json", "--seed", "--max-steps", "--trace", "--trace-steps", "--ranges"):
    parser.add_argument(name, default="")
for name in ("--list", "--no-progress"):
    parser.add_argument(name, action="store_true")
args = parser.parse_args()
if args.list:
    json.dump([{"id": "absent", "lacks": "this machine has none"}, {"id": "fast", "lacks": ""}], sys.stdout)
    sys.exit()
rungs = args.rungs.split(",")
if "broken" in rungs:
    sys.exit("out of memory")
from torch.optim import optimizer
for _ in range(int(args.max_steps)):
    time.sleep(0.002 if "fast" in rungs else 0.02)
    optimizer.step()
if args.trace:
    shutil.copy(os.environ["TOY_TRACE"], args.trace)
if args.json:
    losses = [2.0, 1.5 if "other-mathematics" in rungs else 1.0]
    record = {"device": "cpu", "torch": "0", "unit": "tokens", "size": "toy", "batch": 2, "ranks": 1, "units_per_sample": 3,
              "flop_per_sample": 5.0, "losses": losses}
    with open(args.json, "w") as file:
        json.dump(record, file)
"""
NSYS = """#!/bin/sh
for word; do case "$word" in --output=*) out="${word#--output=}" ;; esac; done
case "$1" in
profile) while [ "${1#/}" = "$1" ]; do shift; done; "$@" && : > "$out.nsys-rep" ;;
export) cp "$TOY_NSYS" "$out" ;;
esac
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a trainer that is installed as any third party's, a torch as far as the probe needs it, and state of its own."""
    site = tmp_path / "site"
    site.mkdir()
    write_torch(site)
    (site / "toy_trainer.py").write_text(PLUGIN)
    (site / "toy_program.py").write_text(PROGRAM)
    installed = site / "toy_trainer-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-trainer\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[sysperf.trainers]\ntoy = toy_trainer\n")
    return tmp_path


def command(*argv: str) -> tuple[str, ...]:
    return (
        sys.executable,
        "-m",
        "sysperf",
        "bench",
        "trainer",
        "--with",
        "toy",
        "--python",
        sys.executable,
        "--steps",
        "14",
        "--json",
        *argv,
    )


def environment(home: Path) -> dict[str, str]:
    trace = ROOT / "tests" / "traces"
    return {
        "PATH": f"{home}/bin:/usr/bin:/bin", "HOME": str(home), "STATE_DIRECTORY": str(home / "state"), "PYTHONPATH": str(home / "site"),
        "COLUMNS": "100", "TOY_TRACE": str(trace / "hta_cpu_only.json.gz"), "TOY_NSYS": str(trace / "nsysai_mock.sqlite"),
    }  # fmt: skip


def programs_without(name: str, home: Path) -> str:
    """A folder for PATH with the machine's programs, of which one is missing."""
    folder = home / "programs"
    folder.mkdir()
    for program in os.scandir("/usr/bin"):
        if program.name != name:
            (folder / program.name).symlink_to(program.path)
    return str(folder)


def climbed(home: Path, *argv: str, path: str = "") -> Ladder:
    """The record of a climb; on a crowded machine it may have one round, which is exit code 3."""
    env = environment(home) | ({"PATH": path} if path else {})
    done = subprocess.run(command(*argv), env=env, capture_output=True, text=True, check=False, timeout=140)
    assert done.returncode in (0, 3), done.stderr
    return from_json(done.stdout, Ladder)


def rung(record: Ladder, name: str) -> RungResult:
    return next(one for one in record.rungs if one.id == name)


@pytest.mark.slow
def test_a_ladder_is_climbed(home: Path) -> None:
    """Each rung with its outcome; those that cannot be had, or do not run, with the reason; what follows stays out with them."""
    record = climbed(home, "--minutes", "0.4")
    fast, other = rung(record, "fast"), rung(record, "other-mathematics")
    added = fast.trial("added")

    assert record.total
    assert record.rounds >= 2
    assert added
    assert added.ratio
    assert added.ratio > 1
    assert (fast.parity is not None and fast.parity.equal, fast.mechanism) == (True, "not seen")
    assert (other.outcome, other.parity is not None and other.parity.holds) == ("losses differ", False)
    assert rung(record, "absent").skipped == "this machine has none"
    assert "out of memory" in rung(record, "broken").skipped
    assert "it needs broken" in rung(record, "after-broken").skipped
    assert rung(record, "doubtful").trial("at the bottom")
    assert "not measured" in " ".join(record.notes), "the torch of this test multiplies nothing"
    assert Path(fast.trace).exists()


@pytest.mark.slow
def test_what_was_measured_is_in_the_bench_and_a_findings_gain(home: Path) -> None:
    """A line for each rule of a rung; losses that differ are no result, and doubtful advice is no rule's."""
    climbed(home, "--minutes", "0.3", "--traces-with", "none")
    kept = {trial["what"]: trial for trial in map(json.loads, (home / "state" / "trials.jsonl").read_text().splitlines())}

    assert set(kept) == {"text: fast", "text: doubtful"}
    assert (kept["text: fast"]["experiment"], kept["text: fast"]["rule"], kept["text: fast"]["rung"]) == ("ladder", "dataloader.inline", 1)
    assert kept["text: doubtful"]["rule"] == ""
    assert "reference trainer, text" in kept["text: fast"]["metric"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_ladder_goes_on_where_it_ended(home: Path, number: signal.Signals) -> None:
    """Ctrl-C shows what is there; after kill -9 the runs are in the file; --resume does the rest."""
    options = ("--minutes", "0.3", "--traces-with", "none")
    with subprocess.Popen(command(*options), env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        seen = next((line for line in process.stderr if "round 2 of the climb, 2 of" in line), "")
        process.send_signal(number)
        printed, said = process.communicate(timeout=100)
    (file,) = (home / "state" / "bench").glob("*.json")
    before = json.loads(file.read_text())
    record = climbed(home, *options, "--resume")

    assert seen
    assert "Traceback" not in said
    if number != signal.SIGKILL:
        assert (json.loads(printed)["interrupted"], process.returncode) == ("interrupted", 3)
    after = json.loads(file.read_text())
    assert after["shots"][: len(before["shots"])] == before["shots"]
    assert len(after["shots"]) > len(before["shots"])
    assert (record.interrupted, record.total is not None) == ("", True)


@pytest.mark.slow
def test_a_machine_that_has_changed_is_not_gone_on_with(home: Path) -> None:
    """Runs of before and after are no pairs."""
    climbed(home, "--minutes", "0.1", "--traces-with", "none")
    (file,) = (home / "state" / "bench").glob("*.json")
    state = json.loads(file.read_text())
    file.write_text(json.dumps({**state, "machine": {**state["machine"], "kernel.release": "2.6.32"}}))
    options = ("--minutes", "0.1", "--traces-with", "none", "--resume")
    done = subprocess.run(command(*options), env=environment(home), capture_output=True, text=True, check=False, timeout=100)

    assert (done.returncode, "kernel.release was 2.6.32" in done.stderr) == (2, True)


@pytest.mark.slow
def test_two_machines_are_compared_and_the_page_links_the_timelines(home: Path) -> None:
    """The record of one is beside that of the other; the page asks nobody and leads to a timeline of each trace."""
    (home / "there.json").write_bytes(to_json(climbed(home, "--minutes", "0.2")))
    options = (
        "--minutes",
        "0.2",
        "--compare",
        str(home / "there.json"),
        "--resume",
        "--format",
        "html",
        "--output",
        str(home / "page.html"),
    )
    argv = [word for word in command(*options) if word != "--json"]
    done = subprocess.run(argv, env=environment(home), capture_output=True, text=True, check=False, timeout=140)
    page = (home / "page.html").read_text()
    link = page.partition('<a href="')[2].partition('"')[0]

    assert done.returncode in (0, 3), done.stderr
    assert "Beside the other record" in page
    assert "default-src 'none'" in page
    assert "<svg" in page
    assert link.endswith(".html")
    assert "timeline" in (home / link).read_text()


@pytest.mark.slow
def test_nsys_takes_the_traces_or_is_missing(home: Path) -> None:
    """Without it each trace says so, and the rest is measured; with it its exports are read."""
    (home / "bin").mkdir()
    without = climbed(home, "--minutes", "0.2", "--traces-with", "nsys", path=programs_without("nsys", home))
    (home / "bin" / "nsys").write_text(NSYS)
    (home / "bin" / "nsys").chmod(0o755)
    shutil.rmtree(home / "state")
    with_nsys = climbed(home, "--minutes", "0.2", "--traces-with", "nsys")

    assert any("nsys is not installed" in note for note in without.notes)
    assert without.total
    assert rung(with_nsys, "fast").trace.endswith(".sqlite")


def test_progress_and_the_time_that_is_left_are_told(home: Path) -> None:
    """On stderr; stdout is the record."""
    started = time.monotonic()
    done = subprocess.run(
        command("--minutes", "0.1", "--traces-with", "none"),
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert "round 1 of the climb" in done.stderr
    assert "min left" in done.stderr
    assert json.loads(done.stdout)["took_s"] <= time.monotonic() - started


@pytest.mark.root(users=True)
def test_traces_lie_in_no_folder_where_another_user_may_put_links(home: Path, tmp_path: Path) -> None:
    """Their names can be guessed: root would have written along a link."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, USER, USER)
    done = subprocess.run(command("--traces", str(theirs)), env=environment(home), capture_output=True, text=True, check=False, timeout=140)

    assert done.returncode == 2
    assert "another user may exchange what lies there" in done.stderr
    assert "with --traces" in done.stderr
    assert not list(theirs.iterdir())
