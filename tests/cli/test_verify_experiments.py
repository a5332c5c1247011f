"""`sysperf verify --experiment` as a user runs it: sweeps that are confirmed, and what cannot be told here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sysperf.engine.verify import Plan, obstacles, sweep
from sysperf.model.comparison import Metric, Variant
from sysperf.model.sweep import NotHere, Sweep, SweptLevel
from sysperf.model.tuning import Level
from sysperf.report import sweep as report
from tests.invoking import sysperf

CPUS = len(os.sched_getaffinity(0))
MINE = ("OMP_", "MKL_", "MALLOC_", "GLIBC_", "LD_PRELOAD", "SYSPERF_", "CUDA_")
OPTIONS = ("--metric", "speed: ([0-9.]+)", "--higher-is-better", "--max-pairs", "6", "--seed", "1", "--keep-disturbed")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a program, a torch as far as files tell, and a state folder of its own."""
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.13.0'\ncuda = None\n")
    return tmp_path


def verify(home: Path, *argv: str, script: str = "") -> subprocess.CompletedProcess[str]:
    """Run `sysperf verify`, with a program where there is a script."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(MINE)}
    env = {**kept, "STATE_DIRECTORY": str(home / "state"), "PYTHONPATH": str(home), "COLUMNS": "100", "NO_COLOR": "1"}
    (home / "train.py").write_text(f"import os\n{script}")
    command = ("--", sys.executable, str(home / "train.py")) if script else ()
    return subprocess.run(
        (sys.executable, "-m", "sysperf", "verify", *argv, *command),
        env={**env, "CUDA_VISIBLE_DEVICES": ""}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.mark.skipif(CPUS < 2, reason="one CPU has no numbers of threads to choose from")
def test_the_best_number_of_threads_is_confirmed_by_fresh_pairs(home: Path) -> None:
    """A program that one thread suits: the sweep finds it, plain is compared with it, and the result is the rule's gain."""
    script = "print('speed:', 12 if os.environ.get('OMP_NUM_THREADS') == '1' else 10)\n"
    done = verify(home, *OPTIONS, "--json", "--fix", "threads.one-busy", script=script)
    experiment = json.loads(done.stdout)["experiment"]

    assert done.returncode == 0, done.stderr
    assert (experiment["experiment"], experiment["factor"], experiment["best"]) == ("thread-sweep", "threads", "1")
    assert "threads = 1\n" in experiment["profile"]
    assert "best.toml" in experiment["comparison"]["b"]["argv"]
    assert experiment["levels"][0]["values"] == [10.0] * 3
    assert (experiment["comparison"]["verdict"], round(experiment["comparison"]["ratio"], 3)) == ("faster", 1.2)
    kept = json.loads((home / "state" / "trials.jsonl").read_text())
    assert (kept["rule"], kept["verdict"]) == ("threads.one-busy", "faster")


@pytest.mark.parametrize("experiment", ["numa-bandwidth", "h2d-bandwidth", "pinned-copies"])
def test_the_machine_is_named_before_an_interpreter_that_is_missing(home: Path, experiment: str) -> None:
    """One memory node, or no NVIDIA GPU: the torch that no interpreter has here would not change that."""
    if not obstacles.obstacle(experiment):
        pytest.skip("this machine could measure it")
    done = sysperf("verify", "--experiment", experiment, env={"PATH": "/usr/bin:/bin", "HOME": str(home), "STATE_DIRECTORY": str(home)})

    assert done.returncode == 3, done.stderr
    assert "this cannot be measured here: this machine" in done.stdout


@pytest.mark.skipif(CPUS < 2, reason="one CPU feeds one worker")
def test_workers_are_tried_by_littles_law(home: Path) -> None:
    """Each worker adds to the speed: as many as CPUs, and one less; the text says why these."""
    script = "print('speed:', 10 * int(os.environ.get('SYSPERF_SET_LOADER_WORKERS') or 1))\n"
    done = verify(home, *OPTIONS, "--experiment", "loader-sweep", script=script)

    assert done.returncode == 0, done.stderr
    assert f"{CPUS} workers was the best" in done.stdout
    assert f"with {CPUS} workers the program is {CPUS:.2f} times as fast as with one" in done.stdout
    assert "faster than plain" in done.stdout


def test_where_nothing_helps_no_level_is_called_best(home: Path) -> None:
    """One worker is enough: no fresh pairs are run, and the exit code is 0."""
    done = verify(home, *OPTIONS, "--json", "--experiment", "loader-sweep", script="print('speed: 10')\n")
    experiment = json.loads(done.stdout)["experiment"]

    assert done.returncode == 0, done.stderr
    assert (experiment["best"], experiment["comparison"]) == ("", None)
    assert "1 keeps it fed" in experiment["basis"]


def test_a_level_with_which_the_program_fails_is_kept_with_its_reason(home: Path) -> None:
    """And is not run again."""
    script = "import sys\nif os.environ.get('OMP_NUM_THREADS'): sys.exit('no threads here')\nprint('speed: 10')\n"
    experiment = json.loads(verify(home, *OPTIONS, "--json", "--experiment", "thread-sweep", script=script).stdout)["experiment"]

    assert all("exit code 1" in level["failed"] and not level["values"] for level in experiment["levels"][1:])


@pytest.mark.skipif(CPUS < 2, reason="one CPU has no numbers of threads to choose from")
def test_a_killed_sweep_goes_on_with_the_runs_that_are_there(home: Path) -> None:
    """kill -9 in the second round; --resume runs what is missing, and says no when the machine has changed meanwhile."""
    (home / "train.py").write_text(
        "import os\nspeed = 12 if os.environ.get('OMP_NUM_THREADS') == '1' else 10\n"
        f"open({str(home / 'log')!r}, 'a').write('.')\nprint('speed:', speed)\n"
    )
    command = (sys.executable, "-m", "sysperf", "verify", *OPTIONS, "--experiment", "thread-sweep")
    program = ("--", sys.executable, str(home / "train.py"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(MINE)}
    env = {**kept, "STATE_DIRECTORY": str(home / "state"), "PYTHONPATH": str(home), "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen((*command, *program), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as sysperf:
        assert sysperf.stderr
        said = next(line for line in sysperf.stderr if "round 2" in line)
        sysperf.kill()
    before = len((home / "log").read_text())
    (state,) = (home / "state" / "verify").iterdir()
    left = json.loads(state.read_text())
    state.write_text(json.dumps({**left, "machine": {**left["machine"], "kernel.release": "2.6.32"}}))
    refused = subprocess.run((*command, "--resume", *program), env=env, capture_output=True, text=True, check=False, timeout=300)
    state.write_text(json.dumps(left))
    done = subprocess.run((*command, "--resume", "--json", *program), env=env, capture_output=True, text=True, check=False, timeout=300)
    experiment = json.loads(done.stdout)["experiment"]

    assert "round 2 of 3" in said
    assert (refused.returncode, "kernel.release was 2.6.32" in refused.stderr) == (2, True), refused.stderr
    assert [len(level["values"]) for level in experiment["levels"]] == [3] * len(experiment["levels"])
    assert (experiment["best"], experiment["comparison"]["verdict"]) == ("1", "faster")
    launches = len((home / "log").read_text()) - before
    left_over = 3 * len(experiment["levels"]) - sum(map(len, left["values"].values()))
    assert launches == left_over + len(experiment["comparison"]["runs"]), "nothing is run twice"


@pytest.mark.parametrize("words", [("--experiment", "h2d-bandwidth"), ("--experiment", "pinned-copies"), ("--fix", "gpu.pcie-width-degraded"), ("--fix", "dataloader.pin-memory-off")])  # fmt: skip
def test_what_needs_a_gpu_cannot_be_told_without_one(home: Path, words: tuple[str, ...]) -> None:
    """Exit code 3 and the reason, in each format; nothing is run and nothing is kept."""
    done = verify(home, *words, "--python", sys.executable)
    experiment = json.loads(verify(home, *words, "--python", sys.executable, "--json").stdout)["experiment"]

    assert done.returncode == 3, done.stderr
    assert "cannot be measured here: " in done.stdout
    assert "GPU" in experiment["cannot"]
    assert not (home / "state" / "trials.jsonl").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--experiment", "numa-bandwidth", "--", "true"), "a program of sysperf's own"),
        (("--experiment", "thread-sweep", "--resume", "--", sys.executable, "x.py"), "no interrupted experiment"),
        (("--experiment", "thread-sweep", "--a", "true", "--b", "true"), "says itself what is compared"),
        (("--experiment", "thread-sweep", "--", "/nothing/of/this/name"), "No such file"),
        (("--experiment", "thread-sweep", "--fail-if-slower", "2", "--", "true"), "no comparison of two programs"),
        (("--experiment", "numa-bandwidth", "--minutes", "5"), "fixed number of seconds"),
        (("--experiment", "h2d-bandwidth", "--resume"), "fixed number of seconds"),
        (("--experiment", "luck"), "invalid choice"),
    ],
)
def test_what_does_not_go_together_is_an_error(home: Path, argv: tuple[str, ...], message: str) -> None:
    """Before anything runs, or where the plain program does not."""
    done = verify(home, *argv)

    assert done.returncode in ((2, 3) if "No such" in message else (2,))
    assert message in done.stderr or "no Python program" in done.stdout
    assert "Traceback" not in done.stderr


def test_results_are_told_in_each_format() -> None:
    """Tables; hostile names do nothing."""
    hostile = "node <b>|` \x1b[31m"
    not_here = NotHere("numa-bandwidth", hostile)
    swept = Sweep(
        experiment="thread-sweep", factor="threads", metric=Metric("wall time", "s"), levels=(SweptLevel(hostile, (1.0, 2.0), 1.5),)
    )

    for result in (not_here, swept):
        text, markdown, page = report.text(result), report.markdown(result), report.page(result)
        assert "\x1b" not in text + markdown + page
        assert "<b>" not in page
        assert "\\|'" in markdown
    assert "1.5 s" in report.text(swept)


def best_of(experiment: str, values: dict[str, float], *, higher_is_better: bool = True) -> str | None:
    """The level to confirm, of the medians of all levels."""
    sweeper = sweep._Sweeper.__new__(sweep._Sweeper)
    study = Plan(a=Variant("plain", ("true",)), b=Variant("plain", ("true",)))
    sweeper.plan, sweeper.levels = (
        sweep.SweepPlan(experiment=experiment, study=study),
        [Level(name) for name in ("as it is", "2", "3", "4")],
    )
    sweeper.values = {name: [value] for name, value in values.items()}
    sweeper.metric = Metric("speed", "", higher_is_better=higher_is_better)
    best = sweeper.best()
    return best.name if best else None


@pytest.mark.parametrize(
    ("speeds", "best"),
    [
        ((10.0, 19.8, 20.2, 20.3), "2"),
        ((10.0, 19.5, 20.2, 20.3), "3"),
        ((21.0, 19.8, 20.2, 20.3), None),
        ((20.3, 19.9, 20.0, 20.2), None),
        ((19.8, 20.0, 20.2, 20.3), "2"),
    ],
)
def test_fewer_workers_win_where_more_gain_little(speeds: tuple[float, ...], best: str | None) -> None:
    """A worker more must be worth three per cent, and the level must be faster than the program as it is."""
    assert best_of("loader-sweep", dict(zip(("as it is", "2", "3", "4"), speeds, strict=True))) == best


def test_of_other_settings_the_fastest_level_wins() -> None:
    """By seconds the smallest; one whose runs all failed is no level."""
    seconds = {"as it is": 2.0, "2": 1.01, "4": 1.0}

    assert best_of("thread-sweep", seconds, higher_is_better=False) == "4"
    assert best_of("thread-sweep", seconds) is None
