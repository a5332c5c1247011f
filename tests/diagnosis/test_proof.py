"""The commands that prove a fix: each can be pasted as it is printed, has an end, and starts the job as it was started."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sysperf.cli import verify
from sysperf.cli.verify import plan as verify_plan
from sysperf.collect.process.parts import JobPlace
from sysperf.collect.process.records import Process
from sysperf.diagnosis.activities import Stacks
from sysperf.diagnosis.facts import Program
from sysperf.engine.diagnose.proof import Proof, proof, start_of
from sysperf.model.comparison import Metric
from sysperf.model.finding import Place, Remedy, Start

FIX = Remedy(kind="env", title="", safety="manual", start=Start({"OMP_NUM_THREADS": "2"}))
BY_HAND = Remedy(kind="advice", title="less logging", safety="manual")


def job(**facts: object) -> Program:
    return Program(**{"pid": 7, "started": "python train.py", **facts})  # type: ignore[arg-type]


def planned(line: str) -> tuple[Metric, tuple[str, ...], tuple[str, ...]]:
    """What `sysperf verify` makes of a line: the metric, and both commands."""
    import argparse

    words = shlex.split(line.rpartition("&& ")[2])
    assert words[:2] == ["sysperf", "verify"]
    parser = argparse.ArgumentParser()
    verify.add_arguments(parser)
    plan = verify_plan.planned(parser.parse_args(words[2:]))
    assert plan.budget_s == 600
    return plan.metric, plan.a.argv, plan.b.argv


def test_an_environment_fix_is_proven_with_the_programs_own_command() -> None:
    """Each run has an end, whatever a step takes, and so has the whole."""
    metric, a, b = planned(proof((FIX,), job()).verify)

    assert (metric.counts, metric.run_s) == ("optimizer", 10.0)
    assert a == ("python", "train.py")
    assert b == ("env", "OMP_NUM_THREADS=2", "python", "train.py")


def test_a_rank_is_started_by_its_launcher() -> None:
    """Alone it would wait for the others, or has no RANK at all. What cannot be seen has no proof."""
    torchrun = Process(
        pid=5, ppid=1, name="torchrun", command="torchrun --nproc-per-node 2 train.py", job=JobPlace(launcher="torchrun", id=5)
    )
    rank = Process(pid=7, ppid=5, name="python", command="python -u train.py", job=JobPlace(rank=0, world_size=2, id=5))

    assert start_of(rank, [torchrun, rank])[0] == "torchrun --nproc-per-node 2 train.py"
    assert start_of(rank, [rank]) == ("", "")
    assert proof((FIX,), job(started="")) == Proof()


def test_a_launcher_is_started_as_it_was_typed(tmp_path: Path) -> None:
    """The kernel puts the interpreter before a script; it is a launcher all the same, whose script can be copied."""
    torchrun = tmp_path / "bin/torchrun"
    torchrun.parent.mkdir()
    torchrun.write_text("#!/usr/bin/python3\n")
    torchrun.chmod(0o755)
    started = f"/usr/bin/python3 {torchrun} --nproc-per-node 2 train.py"
    launcher = Process(pid=5, ppid=1, name="torchrun", command=started, job=JobPlace(launcher="torchrun", id=5), env={})
    rank = Process(pid=7, ppid=5, name="python", command="python -u train.py", job=JobPlace(rank=0, world_size=2, id=5), env={})
    line = start_of(rank, [launcher, rank])[0]

    assert line.endswith(f"{torchrun} --nproc-per-node 2 train.py")
    assert "python3" not in line
    made = proof((BY_HAND,), job(started=line, folder=str(tmp_path)), place=Place(str(tmp_path / "train.py"), 3))
    assert planned(made.verify)[1][-1] == "train_before.py"


def test_a_program_keeps_the_variables_that_make_it_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell in which the line is pasted has others: without the job's own it would be another program."""
    monkeypatch.setenv("MKL_NUM_THREADS", "4")
    process = Process(pid=os.getpid(), ppid=1, name="python", command="python train.py", env={"OMP_NUM_THREADS": "16", "TMPDIR": "/x"})

    assert start_of(process, [process]) == ("env -u MKL_NUM_THREADS OMP_NUM_THREADS=16 python train.py", "")


@pytest.mark.parametrize(
    "command",
    ["python; rm -rf /", "python $(reboot)", "python train.py '--key=<hidden>' --lr 1", "python train.py 'a long na…", "python it's", ""],
)
def test_a_command_that_cannot_be_pasted_is_none(command: str) -> None:
    """A program may write any title over its command line; of one that is hidden or cut off nothing is compared."""
    process = Process(pid=os.getpid(), ppid=1, name="python", command=command, env={})

    assert start_of(process, [process])[0] == ""


@pytest.mark.parametrize("start", ["python train.py --epochs 3", "torchrun --nproc-per-node 2 train.py", "python src/train.py"])
def test_a_change_of_the_script_is_compared_with_its_copy(tmp_path: Path, start: str) -> None:
    """The copy is made before the change, and is what A runs; both lines work in the job's folder, from anywhere."""
    script = next(word for word in start.split() if word.endswith(".py"))
    (tmp_path / script).parent.mkdir(exist_ok=True)
    (tmp_path / script).write_text("as it was\n")
    made = proof((BY_HAND,), job(started=start, folder=str(tmp_path)), place=Place(str(tmp_path / script), 3))

    subprocess.run(("sh", "-c", made.keep), check=True)
    _, a, b = planned(made.verify)
    copy = next(word for word in a if word.endswith("_before.py"))
    assert (tmp_path / copy).read_text() == "as it was\n"
    assert [word if word != copy else script for word in a] == list(b) == start.split()
    assert made.verify.startswith(f"cd {tmp_path} && ")


def test_a_change_of_another_file_is_compared_with_the_folders_copy(tmp_path: Path) -> None:
    """What the copied script imports is copied beside it; data are not."""
    for name in ("src/train.py", "src/data/load.py", "src/data/images.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    started = job(started="python src/train.py --size 3", folder=str(tmp_path))
    made = proof((BY_HAND,), started, place=Place(str(tmp_path / "src/data/load.py"), 3))

    for _ in range(2):  # a second time it copies no copies
        subprocess.run(("sh", "-c", made.keep), check=True)
    assert planned(made.verify)[1:] == (("python", "before/src/train.py", "--size", "3"), ("python", "src/train.py", "--size", "3"))
    assert sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "before").rglob("*") if path.is_file()) == [
        "before/src/data/load.py", "before/src/train.py",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("start", "place", "before"),
    [
        ("python -m job.train --epochs 3", "job/train.py", "python -m job.train_before --epochs 3"),
        ("python -u -m job", "job/__main__.py", "python -u -m job.__main___before"),
        ("torchrun --nproc-per-node 2 -m job.train", "job/train.py", "torchrun --nproc-per-node 2 -m job.train_before"),
        ("python -m torch.distributed.run -m job.train x.py", "job/train.py", "python -m torch.distributed.run -m job.train_before x.py"),
        ("torchrun run.py -m 3", "run.py", "torchrun run_before.py -m 3"),
        ("python -m job.train", "job/data/load.py", "env PYTHONPATH=before:. python -P -m job.train"),
        ("env OMP_NUM_THREADS=2 python -m job", "job/data/load.py", "env PYTHONPATH=before:. env OMP_NUM_THREADS=2 python -P -m job"),
    ],
)
def test_a_change_of_a_module_is_compared_with_its_copy(tmp_path: Path, start: str, place: str, before: str) -> None:
    """Started by its name, as before; of a package the copy is found before the package itself."""
    for name in ("job/__init__.py", "job/__main__.py", "job/train.py", "job/data/load.py", "run.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("as it was\n")
    made = proof((BY_HAND,), job(started=start, folder=str(tmp_path)), place=Place(str(tmp_path / place), 3))
    subprocess.run(("sh", "-c", made.keep), check=True)

    assert planned(made.verify)[1:] == (tuple(before.split()), tuple(start.split()))
    copies = [path for path in tmp_path.rglob("*.py") if "before" in str(path.relative_to(tmp_path)).replace("-", "_")]
    assert copies
    assert {path.read_text() for path in copies} == {"as it was\n"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="python -P is of Python 3.11")
def test_a_copied_package_is_what_a_module_imports(tmp_path: Path) -> None:
    """Not the one in the folder, which is changed meanwhile."""
    for name, text in (
        ("job/__init__.py", ""),
        ("job/load.py", "HOW = 'old'\n"),
        ("job/train.py", "from job.load import HOW; print(HOW)\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    start = f"{sys.executable} -m job.train"
    made = proof((BY_HAND,), job(started=start, folder=str(tmp_path)), place=Place(str(tmp_path / "job/load.py"), 3))
    subprocess.run(("sh", "-c", made.keep), check=True)
    (tmp_path / "job/load.py").write_text("HOW = 'new'\n")

    said = [subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True).stdout for run in planned(made.verify)[1:]]
    assert said == ["old\n", "new\n"]


@pytest.mark.parametrize("start", ["python -m train", "python -c pass", "/opt/job/train.py"])
def test_a_change_that_has_no_copy_is_left_to_the_user(start: str) -> None:
    """A line that would not compare what it says is not printed."""
    assert proof((BY_HAND,), job(started=start), place=Place("/elsewhere/model.py", 3)) == Proof()


def test_a_program_without_optimizer_is_counted_by_the_calls_of_its_model() -> None:
    """Inference makes no steps."""
    infers = job(stacks=Stacks(samples=300, forward=0.8))

    assert planned(proof((FIX,), infers).verify)[0].counts == "forward"
