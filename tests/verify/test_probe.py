"""Facts about counting steps in an unmodified program, and about where its warm-up ends."""

from __future__ import annotations

import importlib.util
import math
import os
import random
import shutil
import struct
import subprocess
import sys
from array import array
from pathlib import Path
from types import ModuleType

import pytest

from sysperf.injected import FOLDER
from sysperf.verify import probe
from sysperf.verify.changepoint import change_points, steady_start
from tests.stand_ins import NO_COMPILER, write_torch

TORCH_PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")

TRAIN = """
import sys
from torch.optim.optimizer import SGD
one, other = SGD(), SGD()
for _ in range(30):
    one.step(); other.step()
print("end")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program with a torch that has nothing but the hook, so that the probe is tested without 200 MB of torch."""
    write_torch(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path / "train.py"


@pytest.fixture
def injected(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that Python loads in a measured program, where there is nothing to measure."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "sitecustomize", ModuleType("sitecustomize"))
    monkeypatch.delenv("SYSPERF_PROBE_FOLDER", raising=False)
    spec = importlib.util.spec_from_file_location("injected", f"{FOLDER}/counting.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(program: Path, *argv: str, max_steps: int = 0, **more: str) -> tuple[subprocess.CompletedProcess[str], probe.Steps]:
    """Run it with the probe, and return what it printed and what was counted."""
    folder = program.parent / "steps"
    folder.mkdir(exist_ok=True)
    env = {**os.environ, **more}
    done = subprocess.run(
        argv or (sys.executable, str(program)), env={**env, **probe.environment(str(folder), env, max_steps)},
        cwd=program.parent, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    counted = probe.read(str(folder))
    return done, counted[0] if counted else probe.Steps(())


def test_steps_are_counted_and_the_program_notices_nothing(program: Path) -> None:
    """A program with two optimizers makes one step with both; nothing is printed."""
    done, steps = run(program)

    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
    assert len(steps.times) == 30
    assert list(steps.times) == sorted(steps.times)


OF_TWO_THREADS = (
    "from threading import Thread\none, two = SGD(), SGD()\none.step()\ndef train():\n    for _ in range(20): two.step()\n"
    "other = Thread(target=train); other.start(); other.join(); one.step()"
)


@pytest.mark.parametrize(
    ("training", "steps"),
    [
        ("for phase in range(4):\n    optimizer = SGD()\n    for _ in range(15): optimizer.step()\n    kept.append(optimizer)", 60),
        ("SGD().step()\nmain = SGD()\nfor _ in range(20): main.step()", (20, 21)),
        ("critic, generator = SGD(), SGD()\nfor _ in range(20):\n    for _ in range(5): critic.step()\n    generator.step()", 100),
        ("generator, critic = SGD(), SGD()\nfor _ in range(20):\n    generator.step()\n    for _ in range(5): critic.step()", 101),
        ("three = [SGD() for _ in range(3)]\nfor _ in range(20):\n    for optimizer in three: optimizer.step()", 20),
        ("one, two, three = SGD(), SGD(), SGD()\none.step()\nfor _ in range(20): two.step(); three.step()", 21),
        ("for _ in range(20): SGD().step()", 20),
        (OF_TWO_THREADS, 2),
    ],
    ids=["phases", "trial step", "critic first", "generator first", "three", "the first is silent", "one a step", "another thread's"],
)
def test_an_optimizer_that_takes_over_is_counted(program: Path, training: str, steps: int | tuple[int, ...]) -> None:
    """A new optimizer each phase, one that steps once before the training, and two or three that take turns."""
    program.write_text(f"from torch.optim.optimizer import SGD\nkept = []\n{training}\n")
    done, counted = run(program)

    assert done.returncode == 0, done.stderr
    assert len(counted.times) in (steps if isinstance(steps, tuple) else (steps,))
    assert list(counted.times) == sorted(counted.times)


def test_a_run_ends_after_its_steps_of_several_optimizers(program: Path) -> None:
    """The tenth step may be that of an optimizer that takes over."""
    program.write_text(
        "from torch.optim.optimizer import SGD\nfor _ in range(9):\n    optimizer = SGD()\n    kept = [optimizer]\nfor _ in range(9): optimizer.step()\n"
        "other = SGD()\nfor _ in range(9): other.step()\n"
    )

    assert len(run(program, max_steps=10)[1].times) == 10


def test_a_run_ends_after_its_steps(program: Path) -> None:
    """Cleanly, with exit code 0 and its atexit handlers."""
    program.write_text("import atexit; atexit.register(print, 'tidied')\n" + TRAIN)
    done, steps = run(program, max_steps=7)

    assert (done.returncode, done.stdout) == (0, "tidied\n")
    assert len(steps.times) == 7


RANKS = """
import os, sys, time
from multiprocessing import Barrier, Process
from torch.optim.optimizer import SGD
def rank(step, number):
    one = SGD()
    while True:
        time.sleep(0.001 * number)
        step.wait(60)
        one.step()
if __name__ == "__main__":
    step = Barrier(2)
    ranks = [Process(target=rank, args=(step, number)) for number in range(2)]
    for one in ranks: one.start()
    for one in ranks: one.join()
    sys.exit(max(one.exitcode for one in ranks))
"""


def test_a_run_of_a_given_length_ends_all_ranks_after_the_same_step(program: Path) -> None:
    """Ranks wait for each other in each step: one that made a step less would leave the others waiting for ever."""
    program.write_text(RANKS)
    done, _ = run(program, SYSPERF_PROBE_RUN_S="0.5")
    counted = probe.read(str(program.parent / "steps"), 2)

    assert done.returncode == 0, done.stderr
    assert [len(steps.times) for steps in counted] == [probe.agreed_steps(str(program.parent / "steps"))] * 2


def test_a_run_that_ends_by_itself_agrees_on_nothing(program: Path) -> None:
    """A program of 30 steps that was given an hour makes its 30 steps."""
    done, steps = run(program, SYSPERF_PROBE_RUN_S="3600")

    assert (done.returncode, len(steps.times)) == (0, 30)
    assert probe.agreed_steps(str(program.parent / "steps")) == 0


def test_a_sitecustomize_that_it_hides_still_runs(program: Path) -> None:
    """The environment's own one is imported first, whether PYTHONPATH named it or a package folder."""
    other = program.parent / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("print('site')\n")
    done, steps = run(program, PYTHONPATH=str(other))

    assert done.stdout == "site\nend\n"
    assert len(steps.times) == 30


def test_a_forked_and_a_spawned_child_count_for_themselves(program: Path) -> None:
    """The process with most steps is the one that is read."""
    program.write_text(
        TRAIN + "import multiprocessing, os\ndef more():\n    for _ in range(50): one.step()\n"
        "if __name__ == '__main__':\n    for kind in ('fork', 'spawn'):\n"
        "        child = multiprocessing.get_context(kind).Process(target=more); child.start(); child.join()\n"
    )
    done, steps = run(program)
    counts = [len(process.times) for process in probe.read(str(program.parent / "steps"), 9)]

    assert done.returncode == 0, done.stderr
    assert counts == [80, 50, 30], "the parent's, the forked child's, the spawned child's, which ran the module again"
    assert len(steps.times) == 80


@pytest.mark.parametrize(
    ("end", "code"), [("os._exit(0)", 0), ("os.kill(os.getpid(), 9)", -9), ("os.execv('/bin/true', ['true'])", 0), ("os.abort()", -6)]
)
def test_no_step_is_lost_however_a_process_ends(program: Path, end: str, code: int) -> None:
    """Servers kill the processes that hold their models, and children of a raw fork leave by os._exit. Steps of before an exec are kept."""
    program.write_text(f"{TRAIN}import os\nfor _ in range(20_000): one.step()\n{end}")
    done, steps = run(program)

    assert done.returncode == code
    assert len(steps.times) == 20_030
    assert list(steps.times) == sorted(steps.times)


def test_a_program_that_executes_itself_goes_on_counting(program: Path) -> None:
    """With the same process number, so in the same file."""
    program.write_text(TRAIN + "import os\nif not sys.argv[1:]: os.execv(sys.executable, [sys.executable, __file__, 'again'])\n")

    assert len(run(program)[1].times) == 60


def test_a_disk_without_room_loses_steps_alone(program: Path) -> None:
    """The program ends as ever, and prints nothing else."""
    program.write_text("import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n" + TRAIN)
    done, steps = run(program)

    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
    assert len(steps.times) == 0


def test_times_that_are_not_mapped_are_read_alike(tmp_path: Path, injected: ModuleType) -> None:
    """On file systems that do not overwrite in place each step is written; a program that executed itself has steps before."""
    path = str(tmp_path / "7.steps")
    for start in (1.0, 3.0):
        times = injected.WrittenTimes(path)
        times[0], times[1] = start, start + 1

    assert [list(steps.times) for steps in probe.read(str(tmp_path))] == [[1.0, 2.0, 3.0, 4.0]]


def test_a_step_that_finds_no_room_ends_nothing(tmp_path: Path, injected: ModuleType) -> None:
    """A folder that is gone, as a disk that is full."""
    (tmp_path / "run").mkdir()
    times = injected.WrittenTimes(str(tmp_path / "run" / "7.steps"))
    shutil.rmtree(tmp_path / "run")
    times[0] = 1.0

    assert not (tmp_path / "run").exists()


def test_only_what_is_overwritten_in_place_is_mapped(injected: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a full btrfs a mapped page that was reserved ends the program by SIGBUS (Linux 6.18), and on overlays nobody knows what is below."""
    assert injected.is_overwritten_in_place("/dev/shm")
    assert not injected.is_overwritten_in_place("/proc")
    monkeypatch.setattr(injected, "IN_PLACE", frozenset[bytes]())
    assert isinstance(injected.room_for_times(str(tmp_path / "7.steps")), injected.WrittenTimes)


@pytest.mark.slow
@pytest.mark.skipif(not TORCH_PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch")
def test_calls_are_counted_after_one_that_raised_and_in_each_thread(tmp_path: Path) -> None:
    """As where a batch is too large for the memory, a request is refused, and two threads serve at once. A model may return nothing."""
    script = (
        f"{NO_COMPILER}\nimport threading\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self): super().__init__(); self.inner = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(20)])\n"
        "    def forward(self, x):\n        self.inner(x)\n        if len(x) > 9: raise RuntimeError('too large')\n"
        "model, good, bad = Model(), torch.ones(2, 4), torch.ones(10, 5)\n"
        "def serve():\n"
        "    for _ in range(30):\n"
        "        for batch in (bad, torch.ones(10, 4)):\n"
        "            try: model(batch)\n            except RuntimeError: pass\n"
        "        model(good)\n"
        "threads = [threading.Thread(target=serve) for _ in range(2)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
    )
    environment = {**os.environ, **probe.environment(str(tmp_path), os.environ, 0, "forward")}
    subprocess.run((TORCH_PYTHON, "-c", script), env=environment, check=True, timeout=300)
    times = probe.read(str(tmp_path))[0].times

    assert len(times) == 60
    assert list(times) == sorted(times)


@pytest.mark.parametrize("how", ["-I", "-m"])
def test_ways_to_start_python(program: Path, how: str) -> None:
    """`python -m` is counted; `python -I` reads no PYTHONPATH, and then there is no step rather than a wrong one."""
    _, steps = run(program, sys.executable, *(("-m", "train") if how == "-m" else ("-I", str(program))))

    assert len(steps.times) == (30 if how == "-m" else 0)


@pytest.mark.skipif(not TORCH_PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch")
@pytest.mark.parametrize("counts", ["optimizer", pytest.param("forward", marks=pytest.mark.slow)])
def test_a_real_torch_program_is_counted(tmp_path: Path, counts: probe.Counts) -> None:
    """20 steps of training: 20 optimizer steps, and 20 calls of the outermost module, however many lie inside."""
    script = (
        f"{'import torch' if counts == 'optimizer' else NO_COMPILER}\nmodel = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(20):\n    model(torch.ones(2, 4)).sum().backward(); optimizer.step()\n"
    )
    subprocess.run(
        (TORCH_PYTHON, "-c", script), env={**os.environ, **probe.environment(str(tmp_path), os.environ, 0, counts)}, check=True, timeout=300
    )

    assert len(probe.read(str(tmp_path))[0].times) == 20


@pytest.mark.parametrize(("passes", "most_touched", "mean"), [(10, 10, 4.5), (9_000, 250, 7_500.0)])
def test_few_losses_are_touched_and_the_last_ones_count(program: Path, passes: int, most_touched: int, mean: float) -> None:
    """Asking a tensor costs more than counting a step: of many losses a sample is kept, and the mean is that of its end."""
    (program.parent / "torch" / "_tensor.py").write_text(
        "touched = 0\nclass Tensor(float):\n"
        "    def numel(self):\n        global touched\n        touched += 1\n        return 1\n"
        "    def detach(self): return self\n    def backward(self): pass\n"
    )
    program.write_text(f"import torch._tensor as t\nfor number in range({passes}): t.Tensor(number).backward()\nprint(t.touched)\n")
    done, _ = run(program)

    assert 10 <= int(done.stdout) <= most_touched
    assert probe.read_loss(str(program.parent / "steps")) == pytest.approx(mean, rel=0.1)


def test_a_program_that_catches_the_end_is_ended_at_its_next_step(program: Path) -> None:
    """A bare `except:` around each step; what is counted is what was asked for."""
    program.write_text(TRAIN.replace("    one.step(); other.step()", "    try: one.step()\n    except: print('caught')"))
    done, steps = run(program, max_steps=8)

    assert (done.returncode, done.stdout) == (0, "caught\n")
    assert len(steps.times) == 8


def test_a_torn_file_and_foreign_files_are_left_out(tmp_path: Path) -> None:
    """Half a number at the end, room without times, a link, another name."""
    (tmp_path / "1.steps").write_bytes(struct.pack("=4d", 1.5, 2.5, 0.0, 3.5) + b"\1\1\1")
    (tmp_path / "3.steps").write_bytes(b"\0" * 800)
    (tmp_path / "2.steps").symlink_to("/etc/passwd")
    (tmp_path / "notes").write_bytes(b"\0" * 800)

    assert probe.read(str(tmp_path), 9) == [probe.Steps(array("d", [1.5, 2.5, 3.5]), 1)]


# ---------------------------------------------------------------------- warm-up


def test_the_warm_up_ends_where_the_mean_changes() -> None:
    """50 slow steps, then 250 fast ones; both variants leave out the longer warm-up and a tenth."""
    rng = random.Random(1)
    slow, fast = [0.3 * math.exp(rng.gauss(0, 0.05)) for _ in range(50)], [0.1 * math.exp(rng.gauss(0, 0.05)) for _ in range(250)]

    assert steady_start([*slow, *fast]) == 50
    assert steady_start([*fast, *slow, *fast, *slow]) is None, "no steady state: the last stretch is short"
    assert steady_start(fast) == 0
    a, b = (probe.Steps([sum(part[:count]) for count in range(len(part) + 1)]) for part in ([*slow, *fast], [*fast, *slow, *fast][:300]))
    assert probe.warm_up_steps(a, b) == 55


def test_the_losses_of_a_forked_child_are_read(program: Path) -> None:
    """One that multiprocessing starts leaves by os._exit, and runs no atexit handler."""
    (program.parent / "torch" / "_tensor.py").write_text(
        "class Tensor(float):\n    def numel(self): return 1\n    def detach(self): return self\n    def backward(self): pass\n"
    )
    program.write_text(
        "import torch._tensor as t, multiprocessing\ndef train():\n    for number in range(5): t.Tensor(number).backward()\n"
        "child = multiprocessing.get_context('fork').Process(target=train); child.start(); child.join()\n"
    )
    done, _ = run(program)

    assert done.returncode == 0, done.stderr
    assert probe.read_loss(str(program.parent / "steps")) == 2.0


def test_steady_noise_has_no_change_points() -> None:
    """Of 40 runs of noise with outliers, hardly any is cut."""
    rng = random.Random(2)
    cut = 0
    for _ in range(40):
        values = [rng.gauss(0, 0.1) + (0.5 if rng.random() < 0.02 else 0.0) for _ in range(200)]
        cut += change_points(values) != [0]

    assert cut <= 6


def test_too_few_steps_have_no_rate() -> None:
    """Fewer than five steps after the warm-up: unknown, and not infinite."""
    assert probe.steps_per_s(probe.Steps((0.0, 0.5, 1.0)), 0) is None
    assert probe.steps_per_s(probe.Steps((0.0, 1.0, 1.5, 2.0, 2.5, 3.0)), 1) == pytest.approx(2.0)


def test_a_run_ends_from_another_thread_too(program: Path) -> None:
    """An optimizer that steps in a thread: SystemExit would end that thread alone, and the program would wait on."""
    program.write_text(
        "import threading, time\nfrom torch.optim.optimizer import SGD\n"
        "def train():\n    one = SGD()\n    while True: one.step()\n"
        "threading.Thread(target=train).start()\nprint('started', flush=True)\ntime.sleep(50)\n"
    )
    done, steps = run(program, max_steps=12)

    assert done.returncode == 0
    assert len(steps.times) == 12


def test_what_no_variable_of_torch_sets_is_set_at_its_import(tmp_path: Path) -> None:
    """Inter-op threads; workers and prefetch of a loader that has workers. One without stays without."""
    package = tmp_path / "torch" / "utils" / "data"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()
    (tmp_path / "torch" / "__init__.py").write_text(
        "threads = 8\ndef set_num_interop_threads(number):\n    global threads\n    threads = number\n"
    )
    (package / "dataloader.py").write_text(
        "class DataLoader:\n    def __init__(self, dataset, batch_size=1, num_workers=0, *, prefetch_factor=None):\n"
        "        self.seen = (num_workers, prefetch_factor)\n"
    )
    program = tmp_path / "main.py"
    program.write_text(
        "import torch\nfrom torch.utils.data.dataloader import DataLoader\n"
        "print(torch.threads, DataLoader([], 1, 3).seen, DataLoader([], num_workers=2).seen, DataLoader([]).seen)\n"
    )
    wanted = probe.settings({}, interop_threads=2, loader_workers=5, loader_prefetch=4)
    done = subprocess.run(
        (sys.executable, str(program)), env={**os.environ, **wanted}, capture_output=True, text=True, check=True, timeout=300
    )

    assert done.stdout == "2 (5, 4) (5, 4) (0, None)\n"
    assert probe.settings({"PYTHONPATH": "/a"}) == {}
    assert probe.settings({"PYTHONPATH": "/a"}, loader_workers=1)["PYTHONPATH"] == f"{FOLDER}:/a"
