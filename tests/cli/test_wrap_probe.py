"""`sysperf wrap --probe` as a person meets it: steps of an unmodified program are counted, and it is started as ever otherwise."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.invoking import sysperf
from tests.stand_ins import NO_COMPILER, write_torch

WRAP = [sys.executable, "-m", "sysperf", "wrap"]
BASE = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MALLOC_", "LD_PRELOAD", "SYSPERF_"))}
TORCH_PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")
TRAIN = """
import sys, time
from torch.optim.optimizer import SGD
optimizer = SGD()
def train(steps=30):
    for _ in range(steps):
        time.sleep(0.002)
        optimizer.step()
train()
print("end", flush=True)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program with a torch that has nothing but the hook; temporary files have a folder of their own."""
    write_torch(tmp_path / "program")
    (tmp_path / "program" / "train.py").write_text(TRAIN)
    for name in ("temporary", "config"):
        (tmp_path / name).mkdir()
    for name, folder in (("TMPDIR", "temporary"), ("XDG_CONFIG_HOME", "config"), ("XDG_CACHE_HOME", "config")):
        monkeypatch.setitem(BASE, name, str(tmp_path / folder))
    return tmp_path / "program" / "train.py"


def wrap(program: Path, *options: str, words: tuple[str, ...] = (), **more: str) -> subprocess.CompletedProcess[str]:
    """`sysperf wrap --probe OPTIONS -- python train.py`, in the program's folder."""
    argv = ("wrap", "--probe", *options, "--", *(words or (sys.executable, "train.py")))
    return sysperf(*argv, env={**BASE, **more}, cwd=program.parent)


def counted(program: Path, *options: str, words: tuple[str, ...] = (), **more: str) -> list[int]:
    """The steps of each process, as its JSON file says."""
    path = program.parent.parent / "steps.json"
    done = wrap(program, *options, "--output", str(path), words=words, **more)
    assert done.returncode == 0, done.stderr
    return [process["steps"] for process in json.loads(path.read_text())["steps"]["processes"]]


def test_steps_of_an_unmodified_program_are_counted(program: Path) -> None:
    """One line at the end says how many and how fast; nothing is left in the temporary folder or beside the program."""
    before = sorted(path for path in program.parent.rglob("*") if "__pycache__" not in path.parts)
    done = wrap(program)
    last = done.stderr.splitlines()[-1]

    assert (done.returncode, done.stdout) == (0, "end\n")
    assert last.startswith("sysperf wrap: probe: 30 optimizer steps, ")
    assert "a second after a warm-up of " in last
    assert sorted(path for path in program.parent.rglob("*") if "__pycache__" not in path.parts) == before
    assert not list((program.parent.parent / "temporary").iterdir())


def test_counts_are_written_as_json(program: Path) -> None:
    """Steps, rate and number of the process, and the program's exit code."""
    program.write_text(TRAIN + "sys.exit(7)\n")
    path = program.parent.parent / "steps.json"
    done = wrap(program, "-q", "--output", str(path))
    counts = json.loads(path.read_text())

    assert (done.returncode, done.stderr) == (7, "")
    assert (counts["schema"], counts["steps"]["counts"], counts["steps"]["exit_code"]) == (1, "optimizer", 7)
    (process,) = counts["steps"]["processes"]
    assert (process["steps"], process["instance"]) == (30, None)
    assert 1 < process["steps_per_s"] < 500
    assert process["pid"] > 1


def test_a_run_may_end_after_some_steps(program: Path) -> None:
    """Cleanly, as `sys.exit()` does."""
    program.write_text("import atexit; atexit.register(print, 'tidied')\n" + TRAIN)

    assert wrap(program, "--max-steps", "7").stdout == "tidied\n"
    assert counted(program, "--max-steps", "7") == [7]


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        ((sys.executable, "-m", "train"), [30]),
        (("sh", "-c", f"{sys.executable} train.py; {sys.executable} train.py"), [30, 30]),
        (("env", "A=b", sys.executable, "train.py"), [30]),
        ((sys.executable, "-I", "train.py"), []),
    ],
)
def test_ways_to_start_a_program(program: Path, words: tuple[str, ...], steps: list[int]) -> None:
    """`python -m`, scripts of the shell, tools in front. A Python that reads no PYTHONPATH counts nothing, and that is said."""
    if not steps:
        program.write_text(f"import sys; sys.path.insert(0, {str(program.parent)!r})\n" + TRAIN)
    assert counted(program, words=words) == steps
    assert ("no optimizer steps were counted" in wrap(program, "-q", words=words).stderr) == (not steps)


def test_forked_and_spawned_children_are_counted(program: Path) -> None:
    """Each process for itself."""
    program.write_text(
        TRAIN + "import multiprocessing\nif __name__ == '__main__':\n    for kind in ('fork', 'spawn'):\n"
        "        child = multiprocessing.get_context(kind).Process(target=train, args=(50,)); child.start(); child.join()\n"
    )
    assert counted(program) == [80, 50, 30]


def test_instances_are_counted_each(program: Path) -> None:
    """With --nproc the counts say whose they are."""
    path = program.parent.parent / "steps.json"
    done = wrap(program, "--nproc", "2", "--output", str(path))

    assert "30 optimizer steps in each of 2 processes" in done.stderr
    assert [process["instance"] for process in json.loads(path.read_text())["steps"]["processes"]] == [0, 1]


def test_an_outer_count_is_left_alone(program: Path) -> None:
    """`verify --steps` counts in the same way, and must find its numbers."""
    folder = program.parent.parent / "outer"
    folder.mkdir()
    done = wrap(program, words=(*WRAP, "-q", "--probe", "--", sys.executable, "train.py"))
    assert "30 optimizer steps" in done.stderr
    assert "counts already" in done.stderr


@pytest.mark.parametrize(
    ("options", "words", "code", "message"),
    [
        (("--print",), ("true",), 2, "nothing runs with --print"),
        (("--max-steps", "-1"), ("true",), 2, "1 or more"),
        ((), ("/nothing/of/this/name",), 127, "no such file"),
        ((), ("sh", "-c", "kill -9 $$"), 137, "no optimizer steps"),
        (
            ("--output", "/nothing/of/this/folder/steps.json"),
            (sys.executable, "train.py"),
            0,
            "/nothing/of/this/folder/steps.json: No such file",
        ),
    ],
)
def test_what_goes_wrong_is_told(program: Path, options: tuple[str, ...], words: tuple[str, ...], code: int, message: str) -> None:
    """Options that do not go together; programs that do not start, and that are killed; a file that cannot be written."""
    done = wrap(program, *options, words=words)

    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_exit_code_is_the_programs_without_its_counts(program: Path) -> None:
    """The program removed the temporary folder; somebody else's files in it do not matter."""
    done = wrap(program, words=("sh", "-c", "rm -r ${SYSPERF_PROBE_FOLDER%/*}; exit 3"))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        3,
        "sysperf wrap: probe: the counts cannot be read: No such file or directory",
    )

    assert wrap(program, words=("sh", "-c", "mkdir ${SYSPERF_PROBE_FOLDER%/*}/x; exit 3")).returncode == 3


def test_what_is_counted_may_be_a_word_of_its_own(program: Path) -> None:
    """Before the two dashes it is the option's value, else the program of that name."""
    done = wrap(program, "forward")
    assert (done.returncode, done.stdout) == (0, "end\n")
    assert "no calls of a model were counted" in done.stderr

    assert subprocess.run([*WRAP, "-q", "--probe", "forward"], env=BASE, check=False, capture_output=True).returncode == 127


def test_what_a_script_starts_in_the_background_ignores_ctrl_c_still(program: Path) -> None:
    """As it does without the probe: whoever ignores SIGINT lets its children inherit that."""
    ignored = f"trap '' INT; exec {' '.join(WRAP)} -q --probe -- grep SigIgn /proc/self/status"
    done = subprocess.run(["sh", "-c", ignored], env=BASE, cwd=program.parent, capture_output=True, text=True, check=True, timeout=300)
    assert int(done.stdout.split()[1], 16) & 1 << signal.SIGINT - 1


def test_the_program_alone_is_held_against_the_plan(program: Path) -> None:
    """`--verify` does not count sysperf, which stays beside the program."""
    done = wrap(program, "--verify", words=("sleep", "1.5"))
    assert "verify: 1 thread in 1 process may run on CPUs" in done.stderr


def test_options_of_counting_need_the_probe(program: Path) -> None:
    """They would silently do nothing."""
    done = subprocess.run([*WRAP, "--max-steps", "5", "--", "true"], env=BASE, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "go with --probe" in done.stderr


def test_no_room_for_counts_keeps_no_program_from_running(program: Path) -> None:
    """It runs, and what is missing is said."""
    done = wrap(program, TMPDIR="/nothing/of/this/name", TEMP="/nothing", TMP="/nothing")
    assert (done.returncode, done.stdout) == (0, "end\n")


WAITS = """
import signal, sys, time
received = []
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, lambda number, _: received.append(signal.Signals(number).name))
print("ready", flush=True)
while not received: time.sleep(0.01)
time.sleep(0.3)
print(received, flush=True)
sys.exit(9)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_passed_on(program: Path, number: signal.Signals) -> None:
    """What a launcher or a service manager sends to us alone; the exit code is the program's."""
    program.write_text(WAITS)
    with subprocess.Popen([*WRAP, "-q", "--probe", "--", sys.executable, "train.py"], env=BASE, cwd=program.parent, stdout=subprocess.PIPE, text=True) as started:  # fmt: skip
        assert started.stdout
        assert started.stdout.readline() == "ready\n"
        started.send_signal(number)
        assert started.stdout.readline() == f"['{number.name}']\n"
    assert started.returncode == 9


def test_ctrl_c_of_a_terminal_comes_once(program: Path) -> None:
    """The terminal sends it to both, and we pass nothing on."""
    program.write_text(WAITS)
    master, slave = pty.openpty()
    with subprocess.Popen(
        ["setsid", "--ctty", *WRAP, "-q", "--probe", "--", sys.executable, "train.py"],
        env=BASE, cwd=program.parent, stdin=slave, stdout=slave, stderr=slave,
    ) as started:  # fmt: skip
        os.close(slave)
        output = b""
        while b"ready" not in output:
            output += os.read(master, 1_000)
        os.write(master, b"\x03")
        with contextlib.suppress(OSError):  # the terminal is gone with its last program
            while part := os.read(master, 1_000):
                output += part
    os.close(master)

    assert b"['SIGINT']" in output
    assert started.returncode == 9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_of_the_whole_group_comes_once(program: Path, number: signal.Signals) -> None:
    """What a shell, `timeout` or a scheduler sends to the process group; then one for us alone is passed on still."""
    program.write_text(
        WAITS.replace("print(received", "received.sort(); print(received").replace("sys.exit", "time.sleep(1.5); print(received); sys.exit")
    )
    with subprocess.Popen([*WRAP, "-q", "--probe", "--", sys.executable, "train.py"], env=BASE, cwd=program.parent, stdout=subprocess.PIPE, text=True, start_new_session=True) as started:  # fmt: skip
        assert started.stdout
        assert started.stdout.readline() == "ready\n"
        os.killpg(started.pid, number)
        first = started.stdout.readline()
        started.send_signal(signal.SIGUSR1)
        both = started.stdout.readline()
    assert first == f"['{number.name}']\n"
    assert both == f"['{number.name}', 'SIGUSR1']\n"
    assert started.returncode == 9


def test_a_signal_of_the_whole_group_comes_once_where_others_have_the_cpus(program: Path) -> None:
    """Who sees that it was sent to all gets no CPU for longer than it is waited for."""
    program.write_text(WAITS)
    with subprocess.Popen([*WRAP, "-q", "--probe", "--", sys.executable, "train.py"], env=BASE, cwd=program.parent, stdout=subprocess.PIPE, text=True, start_new_session=True) as started:  # fmt: skip
        assert started.stdout
        assert started.stdout.readline() == "ready\n"
        children = map(int, Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split())
        own = Path(f"/proc/{started.pid}/cmdline").read_bytes()
        (witness,) = (child for child in children if Path(f"/proc/{child}/cmdline").read_bytes() == own)
        os.kill(witness, signal.SIGSTOP)
        os.killpg(started.pid, signal.SIGUSR1)
        time.sleep(0.2)
        os.kill(witness, signal.SIGCONT)
        received = started.stdout.readline()
    assert received == "['SIGUSR1']\n"
    assert started.returncode == 9


def test_the_program_ends_when_sysperf_is_killed(program: Path) -> None:
    """As a rank does whose launcher kills it: nothing stays behind."""
    program.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(300)\n")
    with subprocess.Popen([*WRAP, "-q", "--probe", "--", sys.executable, "train.py"], env=BASE, cwd=program.parent, stdout=subprocess.PIPE, text=True) as started:  # fmt: skip
        assert started.stdout
        pid = int(started.stdout.readline())
        started.kill()
    end = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.05)

    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
@pytest.mark.skipif(not TORCH_PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch")
@pytest.mark.parametrize("what", ["optimizer", "forward"])
def test_ranks_of_torchrun_are_counted(program: Path, what: str) -> None:
    """A real torch, two ranks of a real torchrun, around which wrap counts."""
    program.write_text(
        f"{NO_COMPILER}\nmodel = torch.nn.Linear(4, 4)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(20):\n    model(torch.ones(2, 4)).sum().backward(); optimizer.step()\n"
    )
    (program.parent / "torch").rename(program.parent / "no-torch")
    torchrun = (TORCH_PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")
    assert counted(program, f"--probe={what}", words=torchrun) == [20, 20]
