"""What a run survives: kills, full disks, damaged files, little memory, and machines that lack something."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.conftest import LIMIT_S, Train, environment, needs_torch, program

pytestmark = [pytest.mark.torch, needs_torch]
FOREVER = "1000000"


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until something is true. Fails when the process ends before."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_ctrl_c_keeps_the_record_and_a_checkpoint(data: Path, tmp_path: Path) -> None:
    """The step is finished; the run goes on from there, with workers of the loader or without."""
    record, kept = tmp_path / "record.json", tmp_path / "checkpoints"
    argv = program(
        "--workload", "text", "--rungs", "loader-workers", "--max-steps", FOREVER, "--json", record, "--checkpoints", kept, data=data
    )
    with subprocess.Popen(
        argv, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        assert run.stdout is not None
        assert "step 10" in run.stdout.readline()
        os.killpg(run.pid, signal.SIGINT)
        _, err = run.communicate(timeout=LIMIT_S)

    found = json.loads(record.read_text())
    assert (run.returncode, err) == (130, "")
    assert found["interrupted"]
    assert found["steps"] == len(found["losses"]) >= 10
    assert [path.name for path in kept.iterdir()] == [f"step-{found['steps']:08}"]


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_last_whole_checkpoint(train: Train, data: Path, tmp_path: Path) -> None:
    """Also where the newest checkpoint is damaged; where all are, it refuses to begin anew."""
    kept = tmp_path / "checkpoints"
    argv = program("--workload", "text", "--max-steps", FOREVER, "--checkpoints", kept, "--checkpoint-every", "2", data=data)
    with subprocess.Popen(argv, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        wait_for(lambda: len(list(kept.glob("step-*"))) == 2, run)
        run.kill()
    older, newer = sorted(kept.glob("step-*"))[-2:]
    with (newer / "state.pt").open("r+b") as file:
        file.seek(5000)
        file.write(b"\xff\x00\xff")
    step = int(older.name.removeprefix("step-"))
    again = train("text", "--max-steps", str(step + 2), "--resume", "--checkpoints", str(kept))
    whole = train("text", "--max-steps", str(step + 2))

    assert again.code == 0, again.err
    assert "state.pt is damaged; trying the one before" in again.err
    assert again.record["first_step"] == step
    assert again.losses == whole.losses[step:]
    for path in kept.glob("step-*"):
        (path / "checksums.json").write_text("{")
    refused = train("text", "--max-steps", "1", "--resume", "--checkpoints", str(kept))
    assert refused.code == 1
    assert "no checkpoint" in refused.err


@pytest.mark.slow
def test_a_full_disk_costs_the_checkpoint_and_not_the_training(data: Path, tmp_path: Path) -> None:
    """All steps are made, the reason is told, and the exit code is 1."""
    record = tmp_path / "record.json"
    argv = program(
        "--workload", "text", "--max-steps", "4", "--json", record, "--checkpoints", tmp_path / "kept", "--checkpoint-every", "2", data=data
    )
    small_files = ("sh", "-c", 'ulimit -f 100 && exec "$@"', "sh")
    full = subprocess.run((*small_files, *argv), env=environment(), capture_output=True, text=True, check=False, timeout=LIMIT_S)

    assert full.returncode == 1
    assert "could not be written" in full.stderr
    assert "Traceback" not in full.stderr
    found = json.loads(record.read_text())
    assert (found["steps"], found["checkpoints"]) == (4, 0)
    assert found["checkpoint_error"]
    assert list((tmp_path / "kept").iterdir()) == []


@pytest.mark.slow
def test_damaged_images_are_left_out_and_counted(train: Train, data: Path, tmp_path: Path) -> None:
    """One that is cut off, one that is no image; where all are, the run ends with the reason."""
    assert train("vision", "--max-steps", "1").code == 0
    images = tmp_path / "images"
    shutil.copytree(next(data.glob("images-*")), images / "images-24-10")
    names = sorted((images / "images-24-10").glob("*.jpg"))
    names[0].write_bytes(names[0].read_bytes()[:2000])
    names[1].write_bytes(b"no image at all")
    run = train("vision", "--max-steps", "6", "--cache", str(images))
    for name in names:
        name.write_bytes(b"")
    nothing = train("vision", "--max-steps", "6", "--cache", str(images))

    assert run.code == 0, run.err
    assert run.record["damaged_samples"] == 2
    assert nothing.code == 1
    assert "could be read" in nothing.err
    assert "Traceback" not in nothing.err


@pytest.mark.slow
def test_too_little_memory_splits_the_batch(data: Path, tmp_path: Path) -> None:
    """With the losses of the whole batch; the record says in how many parts it passed."""
    record = tmp_path / "record.json"
    argv = program("--workload", "text", "--batch", "2048", "--max-steps", "1", "--json", record, data=data)
    whole = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=True, timeout=LIMIT_S)
    expected = json.loads(record.read_text())
    limit = f"import resource, sys, runpy; sys.argv = sys.argv[1:]; import torch; used = int(open('/proc/self/statm').read().split()[0]) * 4096; resource.setrlimit(resource.RLIMIT_AS, (used + {900 << 20},) * 2); runpy.run_path(sys.argv[0], run_name='__main__')"
    split = subprocess.run(
        (argv[0], "-c", limit, *argv[1:]), env=environment(), capture_output=True, text=True, check=False, timeout=LIMIT_S
    )

    found = json.loads(record.read_text())
    assert split.returncode == 0, split.stderr
    assert "out of memory: each batch now passes in" in split.stderr
    assert found["parts"] > expected["parts"] == 1
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-4)
    assert "out of memory" not in whole.stderr


@pytest.mark.slow
def test_a_machine_without_shared_memory_has_no_workers(data: Path) -> None:
    """The rung says why, and all others are had."""
    argv = program("--workload", "text", "--max-steps", "2", "--rungs", data=data)
    hidden = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm && exec "$@"', "sh")
    if subprocess.run((*hidden, "true"), check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces: they are what hides /dev/shm")
    refused = subprocess.run(
        (*hidden, *argv, "loader-workers"), env=environment(), capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    fine = subprocess.run(
        (*hidden, *argv, "all", "--without", "compile"), env=environment(), capture_output=True, text=True, check=False, timeout=LIMIT_S
    )

    assert refused.returncode == 3
    assert "/dev/shm, which cannot be written to" in refused.stderr
    assert fine.returncode == 0, fine.stderr


@pytest.mark.slow
def test_a_machine_without_a_compiler_does_not_compile(train: Train, tmp_path: Path) -> None:
    """The rung says what to install."""
    run = train("text", "--max-steps", "1", rungs="compile", PATH=str(tmp_path), CXX="")

    assert run.code == 3
    assert "apt-get install g++" in run.err


@pytest.mark.slow
def test_a_home_that_cannot_be_written_to_is_no_obstacle(data: Path, tmp_path: Path) -> None:
    """Data then lies among the temporary files of the user."""
    home, scratch = tmp_path / "home", tmp_path / "scratch"
    home.write_text("not a folder")
    scratch.mkdir()
    argv = [word for word in program("--workload", "text", "--max-steps", "1", data=data) if word not in ("--cache", str(data))]
    variables = environment(HOME=str(home), XDG_CACHE_HOME="", TMPDIR=str(scratch))
    run = subprocess.run(argv, env=variables, capture_output=True, text=True, check=False, timeout=LIMIT_S)

    assert run.returncode == 0, run.stderr
    assert list(scratch.glob("sysperf-trainer-*/text-*/tokens.bin"))


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_job(data: Path) -> None:
    """The others do not wait for it for ever."""
    import sysperf_trainer

    more = program("--max-steps", FOREVER, data=data)[2:]
    start = sysperf_trainer.start(program(data=data)[0], "text", (), more, ranks=2)
    with subprocess.Popen(
        start.argv, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        assert job.stdout is not None
        assert "step 10" in job.stdout.readline()
        ranks = [int(pid) for pid in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]
        os.kill(ranks[-1], signal.SIGKILL)
        job.communicate(timeout=LIMIT_S)

    assert job.returncode not in (0, None)
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)
