"""`sysperf diagnose` for real: on a program that trains, and where there is nothing to say."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sysperf.cli import diagnose
from sysperf.diagnosis.verdict import Verdict
from tests.agent.machines import FAKE_TORCH
from tests.plugins.programs import command, training


def test_the_command_wants_a_program_that_is_there() -> None:
    """Each mistake says what to do next."""
    for arguments, message in (
        ((), "no program was named"), (("4194304",), "there is no process"), (("1", "--seconds", "0"), "not between"),
    ):  # fmt: skip
        done = command("diagnose", *arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert "hint:" in done.stderr or message == "not between"


def test_a_program_without_pytorch_is_told() -> None:
    """It may just not have loaded it yet."""
    with subprocess.Popen((sys.executable, "-c", "import time; time.sleep(60)")) as program:
        try:
            done = command("diagnose", str(program.pid), "--passive", "--seconds", "1")
        finally:
            program.kill()

    assert done.returncode == 2
    assert "runs PyTorch" in done.stderr


def test_a_command_that_ends_at_once_is_told() -> None:
    """With its exit code."""
    done = command("diagnose", "--", sys.executable, "-c", "raise SystemExit(7)")

    assert done.returncode == 2
    assert "ended with exit code 7" in done.stderr


@pytest.mark.parametrize(
    ("program", "hint"),
    [(("true",), "let it run for longer"), (("false",), "what stands above"), (("/nothing/there",), "what stands above")],
)
def test_only_a_program_that_ended_well_is_to_run_for_longer(program: tuple[str, ...], hint: str) -> None:
    """Why another one could not start, or failed, was said by itself or by what starts it."""
    done = command("diagnose", "--", *program)

    assert done.returncode == 2
    assert hint in done.stderr
    assert "no such file" in done.stderr or program[0] != "/nothing/there"


def test_what_is_to_be_run_next_does_not_name_a_program_that_was_ended(tmp_path: Path) -> None:
    """From outside alone it cannot be told; the program ends with the answer, so the next command starts it again."""
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(b"\0" * 8192)
    program = ("env", f"LIBRARY={library}", sys.executable, "-c", FAKE_TORCH)
    done = command("diagnose", "--passive", "--json", "--warm-up", "1", "--seconds", "1", "--", *program)
    verdict = json.loads(done.stdout)

    assert verdict["verdict"] in ("cannot-tell", "slowed"), verdict["sentence"]  # others may take the CPUs
    if verdict["verdict"] == "cannot-tell":
        assert shlex.split(verdict["next"]) == ["sysperf", "diagnose", "--warm-up", "30", "--", *program]


@pytest.mark.parametrize(
    ("then", "again"),
    [
        ("sysperf diagnose 4242", "sysperf diagnose --warm-up 60 -- python 'a b.py'"),
        ("pip install py-spy && sudo sysperf diagnose 4242", "pip install py-spy && sudo sysperf diagnose --warm-up 60 -- python 'a b.py'"),
        ("sysperf stacks 4242", "python 'a b.py' & sleep 60; sysperf stacks $!"),
        ("sysperf diagnose -- python 'a b.py'", "sysperf diagnose -- python 'a b.py'"),
        ("", ""),
    ],
)
def test_the_next_command_starts_the_program_again(then: str, again: str) -> None:
    """Where it is kept running, its number stays right."""
    verdict = Verdict(sysperf="", pid=4242, verdict="cannot-tell", sentence="", next=then)
    args = argparse.Namespace(keep_running=False, target=["python", "a b.py"], warm_up=20.0)

    assert diagnose._started_again(verdict, args).next == again
    assert diagnose._started_again(verdict, argparse.Namespace(**{**vars(args), "keep_running": True})).next == then


def test_a_program_has_a_folder_of_its_own_for_traces(tmp_path: Path) -> None:
    """It is gone with the program, and nobody could know its name before."""
    show = "import os; f = os.environ['KINETO_IPC_SOCKET_DIR']; print(f, oct(os.stat(f).st_mode), flush=True)"
    seen = [command("diagnose", "--", sys.executable, "-c", show).stderr.split("\n")[0].split() for _ in range(2)]

    assert [mode for _, mode in seen] == ["0o40700"] * 2
    assert len({folder for folder, _ in seen}) == 2
    assert not [folder for folder, _ in seen if os.path.exists(folder)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A program that trains and makes its own batches; its process number."""
    with training(tmp_path_factory.mktemp("training"), workers=0) as pid:
        yield pid


@pytest.mark.torch
def test_a_program_that_makes_its_own_batches_is_named(trained: int) -> None:
    """Its loader has no workers; the data set's line is named, and the program goes on."""
    done = command("diagnose", str(trained), "--format", "json", "--no-trace", "--seconds", "4")
    os.kill(trained, 0)  # it is still there
    verdict = json.loads(done.stdout)

    assert done.returncode == 1
    named = {cause["rule"]: cause for cause in verdict["causes"]}
    assert named["dataloader.inline"]["state"] == "confirmed"
    assert named["dataloader.inline"]["places"][0]["code"].startswith("def __getitem__(self, index): time.sleep(0.025)")


@pytest.mark.torch
def test_a_suspended_program_is_no_trouble(trained: int) -> None:
    """Nothing is sent to it, and there is an answer."""
    os.kill(trained, signal.SIGSTOP)
    try:
        done = command("diagnose", str(trained), "--passive", "--seconds", "1", "--format", "json")
    finally:
        os.kill(trained, signal.SIGCONT)

    assert done.returncode in (0, 3)
    assert json.loads(done.stdout)["verdict"] in ("idle", "cannot-tell")


def test_modules_in_the_current_folder_are_none_of_ours(tmp_path: Path) -> None:
    """A user may have a file of that name beside the program."""
    (tmp_path / "msgspec.py").write_text("raise SystemExit('shadowed')")
    sysperf = Path(sys.executable).with_name("sysperf")
    argv = (sysperf, "diagnose", "--", sys.executable, "-c", "raise SystemExit(7)")
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300)

    assert "ended with exit code 7" in done.stderr


RANKS = """
import os, signal, subprocess, sys, time
rank = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (2, 15)]; print('ready', flush=True); time.sleep(600)"
below = subprocess.Popen([sys.executable, "-c", rank], start_new_session=True, stdout=subprocess.PIPE)
below.stdout.readline()
open(sys.argv[1], "w").write(f"{below.pid}\\n")
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_leaves_nothing_of_the_started_program(tmp_path: Path, number: signal.Signals) -> None:
    """Ranks in sessions of their own, as torchrun starts them, that ignore SIGTERM, end too."""
    pids = tmp_path / "pids"
    argv = (sys.executable, "-m", "sysperf", "diagnose", "--", sys.executable, "-c", RANKS, str(pids))
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as program:
        wait_for(lambda: pids.exists() and pids.read_text().endswith("\n"))
        rank = int(pids.read_text())
        program.send_signal(number)
        program.wait(30)
    try:
        assert not Path(f"/proc/{rank}").exists()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rank, signal.SIGKILL)


@pytest.mark.torch
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_no_sampler_and_no_file(trained: int, tmp_path: Path, number: signal.Signals) -> None:
    """py-spy and perf are in sessions of their own; the program goes on."""
    files = tmp_path / "files"
    files.mkdir()
    argv = (sys.executable, "-m", "sysperf", "diagnose", str(trained), "--seconds", "1")
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(files)}) as program:
        wait_for(lambda: bool(sampling(trained)))
        program.send_signal(number)
        program.wait(60)
    assert not sampling(trained)
    assert not list(files.iterdir())
    os.kill(trained, 0)


def sampling(pid: int) -> list[str]:
    """The samplers of a process."""
    processes = subprocess.run(("ps", "-ewwo", "args"), capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in processes if " record " in line and f"{pid}" in line.split() and "diagnose" not in line]


def test_a_number_that_is_none_is_told() -> None:
    """A digit of another script, and a number that no process has."""
    assert command("diagnose", "99999999999999999999999").returncode == 2
    assert "Traceback" not in command("diagnose", "\u00b2").stderr
    assert "--warm-up" in command("diagnose", "--warm-up", "inf", "--", "true").stderr


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
