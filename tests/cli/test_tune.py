"""`sysperf tune` as a user runs it: a search that finds what helps, nothing where nothing does, kill -9 and --resume."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.invoking import sysperf

PROGRAM = """
import os, random
speed = 100.0 * random.gauss(1, 0.003)
if os.environ.get("GOMP_SPINCOUNT"):
    speed *= {brief}
if os.environ.get("ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
    raise SystemExit("cannot run so")
print("speed:", speed)
"""
SEARCHED = ("threads", "allocator", "huge pages", "MKL's own choice of threads", "binding", "CUDA allocator")
FAST = ("--max-runs", "24", "--minutes", "20", "--keep-disturbed", "--metric", "speed: ([0-9.]+)", "--higher-is-better", "--seed", "4")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a program, and a torch of which only the files are there that say which it is."""
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.13.0'\ncuda = None\n")
    (tmp_path / "torch" / "lib" / "libgomp.so.1").touch()
    (tmp_path / "train.py").write_text(PROGRAM.format(brief=1.2))
    return tmp_path


def command(*options: str) -> tuple[str, ...]:
    without = [word for name in SEARCHED for word in ("--without", name)]
    return (sys.executable, "-m", "sysperf", "tune", *FAST, *without, *options, "--", sys.executable, "train.py")


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MALLOC_", "GOMP_"))}
    path = f"{home}:{os.environ.get('PYTHONPATH', '')}"
    return {**kept, "STATE_DIRECTORY": str(home / "state"), "PYTHONPATH": path, "COLUMNS": "100", "NO_COLOR": "1"}


def tune(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return sysperf(*command(*options)[3:], env=environment(home), cwd=home, timeout=300)


def kill_in_run(number: int, home: Path) -> None:
    """Start it, and kill it when it says that it begins this run."""
    with subprocess.Popen(
        command(), env=environment(home), cwd=home, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as search:
        assert search.stderr
        next(line for line in search.stderr if f"run {number} of" in line)
        search.kill()


@pytest.mark.slow
def test_what_helps_is_found_after_a_kill_too_and_written_as_a_profile(home: Path) -> None:
    """Killed in the middle, gone on with; a setting that `wrap` never makes by itself gains 20 % here, and one that fails is told."""
    kill_in_run(5, home)
    done = tune(home, "--resume", "--json")
    tuning = json.loads(done.stdout)["tuning"]
    (trial,) = map(json.loads, (home / "state" / "trials.jsonl").read_text().splitlines())
    profile = (home / "train.profile.toml").read_text()
    started = sysperf("wrap", "--profile", "train.profile.toml", "--", "printenv", "GOMP_SPINCOUNT", env=environment(home), cwd=home)

    assert done.returncode == 0, done.stderr
    assert "run 5 of" not in done.stderr
    assert "run 7 of" in done.stderr
    assert tuning["state"] == "confirmed"
    assert tuning["comparison"]["ratio"] == pytest.approx(1.2, abs=0.02)
    assert tuning["effects"][0]["name"] == "OpenMP waiting"
    assert tuning["effects"][0]["importance"] > 0.9
    assert any("cannot run so" in run.get("failed", "") or "exit code 1" in run.get("failed", "") for run in tuning["runs"])
    assert (trial["experiment"], trial["verdict"]) == ("tune", "faster")
    assert "found by sysperf tune for train.py" in profile
    assert started.stdout == "10000\n", (started.stderr, profile)


@pytest.mark.slow
def test_one_factor_is_searched_for_a_rule(home: Path) -> None:
    """Each number of loader workers that Little's law says; what is confirmed is the gain of the rule's finding, too."""
    (home / "train.py").write_text("import os\nprint('speed:', 10 * int(os.environ.get('SYSPERF_SET_LOADER_WORKERS') or 1))\n")
    done = tune(home, "--max-runs", "15", "--json", "--fix", "dataloader.program-waits")
    tuning = json.loads(done.stdout)["tuning"]
    (trial,) = map(json.loads, (home / "state" / "trials.jsonl").read_text().splitlines())

    assert (done.returncode, tuning["state"]) == (0, "confirmed"), done.stderr
    assert [factor["name"] for factor in tuning["factors"]] == ["loader workers"]
    assert any(note.startswith("Little's law") for note in tuning["notes"])
    assert "loader_workers = " in (home / "train.profile.toml").read_text()
    assert (trial["rule"], trial["experiment"], trial["verdict"]) == ("dataloader.program-waits", "tune", "faster")


def test_where_nothing_helps_no_profile_is_written(home: Path) -> None:
    """The text says so, and the page is a page."""
    (home / "train.py").write_text(PROGRAM.format(brief=0.8))
    done = tune(home, "--format", "html", "--output", "page.html")
    page = (home / "page.html").read_text()

    assert done.returncode == 0, done.stderr
    assert "nothing helps here" in page
    assert "Content-Security-Policy" in page
    assert page.count("<circle") > 18
    assert not (home / "train.profile.toml").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--without", "luck"), "--without luck: no such factor"),
        (("--only", "luck"), "--only luck: no such factor"),
        (("--only", "threads"), "nothing to tune: threads: --without"),
        (("--only", "loader-workers", "--fix", "threads.one-busy"), "both say what is searched"),
        (("--fix", "numa.balancing-on"), "sysperf verify --fix numa.balancing-on"),
        (("--fix", "luck.none"), "no rule"),
        (("--max-runs", "3"), "needs 18 runs"),
        (("--instances", "1"), "numbers from 2 to 64"),
        (("--resume",), "no interrupted search"),
        (("--profile", "train.py"), "did not write it"),
        (("--profile", "pipe"), "is no file"),
        (("--minutes", "0.0001"), "there is time for"),
        (("--metric", "x([0-9]+)"), "matches"),
        (("--without", "OpenMP waiting,inter-op threads,oneDNN cache"), "nothing to tune"),
    ],
)
def test_what_cannot_be_searched_is_an_error_with_the_next_step(home: Path, options: tuple[str, ...], message: str) -> None:
    """Exit code 2, a line of what, a line of what to do."""
    os.mkfifo(home / "pipe")
    done = tune(home, *options)

    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_says_what_is_known_so_far(home: Path) -> None:
    """Nothing is confirmed, no profile, exit code 3."""
    with subprocess.Popen(command(), env=environment(home), cwd=home, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stopped:
        assert stopped.stderr
        assert stopped.stdout
        next(line for line in stopped.stderr if "run 7 of" in line)
        stopped.send_signal(signal.SIGINT)
        printed = stopped.stdout.read()

    assert stopped.returncode == 3
    assert "interrupted" in printed
    assert "What mattered" in printed
    assert not (home / "train.profile.toml").exists()


def test_two_studies_run_one_after_the_other(home: Path) -> None:
    """The second one says for whom it waits, and gets the lock when the first is killed."""
    with subprocess.Popen(command(), env=environment(home), cwd=home, stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr
        next(line for line in first.stderr if "run 1 of" in line)
        verify = (sys.executable, "-m", "sysperf", "verify", "--max-pairs", "2", "--a", "true", "--b", "true")
        with subprocess.Popen(
            verify, env=environment(home), cwd=home, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        ) as second:
            assert second.stderr
            waits = second.stderr.readline()
            first.send_signal(signal.SIGKILL)
            second.stderr.read()

    assert waits == f"sysperf: waiting for the study of process {first.pid}: two at once would measure each other\n"
    assert second.returncode in {0, 3}


@pytest.mark.root(mounts=True)
def test_a_full_disk_ends_a_search_with_the_next_step(home: Path, full: Path) -> None:
    """What cannot be kept is not searched for hours: it ends at once, and no program and no profile is left."""
    done = subprocess.run(
        command(),
        env={**environment(home), "STATE_DIRECTORY": str(full)},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 2
    assert "full" in done.stderr
    assert "make room on that disk" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (home / "train.profile.toml").exists()


def test_a_search_is_not_gone_on_with_on_another_machine(home: Path) -> None:
    """A new kernel, say: what it found before does not hold."""
    kill_in_run(1, home)
    (path,) = (home / "state" / "tune").glob("*.sqlite")
    with contextlib.closing(sqlite3.connect(path)) as study:
        (machine,) = study.execute("SELECT record FROM notes WHERE name = 'machine'").fetchone()
        changed = json.dumps({**json.loads(machine), "kernel.release": "2.6.32"}).encode()
        study.execute("UPDATE notes SET record = ? WHERE name = 'machine'", (changed,))
        study.commit()
    done = tune(home, "--resume")

    assert done.returncode == 2
    assert "kernel.release was 2.6.32" in done.stderr
