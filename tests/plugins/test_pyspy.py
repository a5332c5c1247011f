"""`sysperf stacks`: what py-spy prints, why it refuses, and real programs under a real py-spy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import sysperf_pyspy
from hypothesis import given, settings
from hypothesis import strategies as st
from sysperf_pyspy import reading
from sysperf_pyspy.refusal import YAMA, explained

from sysperf.diagnosis import phases
from sysperf.host import Host
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.profile import Frame
from sysperf.report.profiling import profile
from tests.conftest import Files, make_machine
from tests.plugins.programs import command, started, training

WAITING = """
import threading, time
def rest(): time.sleep(60)
threading.Thread(target=rest, name="evil\\x1b[31m", daemon=True).start()
print("ready", flush=True)
rest()
"""
DENIED = "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'"


# ---------------------------------------------------------------------- what py-spy prints


def test_a_dump_becomes_threads_innermost_call_first() -> None:
    """The main thread leads; a line 0 is no line."""
    frames = [{"name": "f", "filename": "/a.py", "line": 3, "module": None}, {"name": "<module>", "filename": "/a.py", "line": 0}]
    threads = [{"thread_name": "other", "os_thread_id": 1, "active": False, "frames": []},
               {"thread_name": "MainThread", "os_thread_id": 9, "active": True, "frames": frames}]  # fmt: skip

    stacks = reading.stacks(json.dumps(threads).encode(), 9)

    assert [thread.name for thread in stacks.threads] == ["MainThread", "other"]
    assert stacks.threads[0].frames == (Frame("f", "/a.py", 3), Frame("<module>", "/a.py", None))


def test_a_dump_without_a_stack_is_tried_again() -> None:
    """py-spy tells threads without frames when the program changed them meanwhile."""
    with pytest.raises(reading.Torn):
        reading.stacks(b'[{"frames": []}]', 1)


@given(st.one_of(st.binary(max_size=200), st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["frames", "name", "filename", "line", "os_thread_id", "thread_name"]), inner), max_leaves=20).map(msgspec.json.encode)))  # fmt: skip
@settings(max_examples=50)
def test_any_dump_is_stacks_or_a_plain_error(printed: bytes) -> None:
    """No text of another program gets further than this."""
    try:
        stacks = reading.stacks(printed, 1)
    except (ValueError, reading.Torn):
        return
    assert any(thread.frames for thread in stacks.threads)
    assert all(char.isprintable() or char == "\n" for char in profile.stacks(stacks))


def test_a_raw_line_becomes_a_sample() -> None:
    """Innermost call first; a name may hold blanks and parentheses, and a path a colon."""
    line = "thread (77): Main Thread;<module> (/t:1/train.py:11);f (x) (/t.py:5);native 3"
    (sample,) = reading.samples(f"py-spy> Sampling process\n{line}\n\npy-spy> Wrote 1\n".encode())

    assert (sample.tid, sample.thread, sample.count) == (77, "Main Thread", 3)
    assert sample.frames == (Frame("native", ""), Frame("f (x)", "/t.py", 5), Frame("<module>", "/t:1/train.py", 11))


@given(st.one_of(st.binary(max_size=300), st.from_regex(r"thread \(\w*\): .{0,10};.{0,20} [0-9]{0,12}", fullmatch=True).map(str.encode)))
@settings(max_examples=80)
def test_any_raw_text_is_samples(printed: bytes) -> None:
    """Whatever is no sample is left out, and none has a count of 0."""
    for sample in reading.samples(printed):
        assert sample.count > 0
        assert len(sample.frames) <= reading.MAX_FRAMES
        phases.phase(sample.frames)


def test_a_sequence_is_the_main_threads_in_the_order_of_time() -> None:
    """The innermost call first; places of frames that are not there are left out."""
    frames = [{"name": "<module>", "file": "/t.py", "line": 9}, {"name": "native", "file": None, "line": 0}]
    profiles = [
        {"name": 'Thread 8 "other"', "samples": [[0]]},
        {"name": 'Thread 7 "MainThread"', "samples": [[0, 1], [0], [], [0, 7, -1]]},
    ]
    printed = json.dumps({"profiles": profiles, "shared": {"frames": frames}}).encode()

    outer = Frame("<module>", "/t.py", 9)
    assert reading.sequence(b"py-spy> Sampling\n" + printed + b"\npy-spy> Wrote") == (
        (Frame("native", "", None), outer),
        (outer,),
        (),
        (outer,),
    )


@given(st.one_of(st.binary(max_size=200), st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["profiles", "shared", "frames", "name", "samples", "file", "line"]), inner), max_leaves=20).map(msgspec.json.encode)))  # fmt: skip
@settings(max_examples=50)
def test_any_sequence_is_stacks_or_a_plain_error(printed: bytes) -> None:
    try:
        stacks = reading.sequence(printed)
    except ValueError:
        return
    assert all(isinstance(frame, Frame) for stack in stacks for frame in stack)


# ---------------------------------------------------------------------- why not


def refused(complaint: str = DENIED, me: int = 1000, files: Files | None = None) -> SysperfError:
    machine: Files = {"/proc/7/status": "State:\tS (sleeping)\nUid:\t1000\t1000\t1000\t1000\n", **(files or {})}
    return explained(make_machine(machine), 7, complaint, me=me)


def test_anothers_program_needs_root() -> None:
    """The error names the owner and the command."""
    error = refused(me=1001)

    assert "belongs to user 1000" in str(error)
    assert error.hint == "sudo sysperf stacks 7"


def test_yama_is_named() -> None:
    """One's own program, and a machine that lets nobody but root look."""
    assert "ptrace_scope = 1" in str(refused(files={YAMA: "1\n"}))
    assert "until it is started again" in str(refused(me=0, files={YAMA: "3\n"}))


def test_a_container_without_ptrace_is_named() -> None:
    """Root in a container is told the option that its start lacked."""
    error = refused(me=0, files={YAMA: "0\n", "/proc/self/status": "CapEff:\t00000000a80425fb\n"})

    assert "CAP_SYS_PTRACE" in str(error)
    assert "--cap-add=SYS_PTRACE" in error.hint


def test_other_complaints_are_told() -> None:
    """No Python, an end, and what we have not seen before."""
    assert "no Python program" in str(refused("Error: Failed to find python version from target process"))
    assert "has ended" in str(explained(make_machine({}), 7, "x"))
    assert "no reason given" in str(refused("\x1b[31mboom"))
    assert "Odd" in str(refused("Error: Odd\nStack backtrace:"))


def test_without_py_spy_the_next_step_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither beside our interpreter nor on PATH."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="py-spy") as raised:
        sysperf_pyspy.dump(Host(), os.getpid())
    assert raised.value.hint.endswith(" -m pip install py-spy")


# ---------------------------------------------------------------------- real programs


def test_a_real_program_shows_its_threads() -> None:
    """All threads with their names, of which none reaches the terminal as it is; as text and as JSON."""
    with started(sys.executable, WAITING) as program:
        text = command("stacks", str(program.pid))
        data = json.loads(command("stacks", str(program.pid), "--json").stdout)

    assert text.returncode == 0, text.stderr
    assert "MainThread" in text.stdout
    assert "rest" in text.stdout
    assert "\x1b" not in text.stdout
    assert [thread["frames"][0]["function"] for thread in data["threads"]] == ["rest", "rest"]
    assert data["pid"] == program.pid


def test_no_python_and_no_process_are_errors() -> None:
    """Exit code 2, and one line why."""
    with subprocess.Popen(("sleep", "60")) as other:
        done = command("stacks", str(other.pid))
        other.kill()
    assert done.returncode == 2
    assert "no Python program" in done.stderr
    assert "there is no process" in command("stacks", "4194999").stderr


@pytest.mark.root(users=True)
def test_anothers_real_program_is_refused() -> None:
    """A user may not look into a program of root's."""
    script = f"""
import os, sys
sys.path[:0] = {sys.path!r}
import sysperf_pyspy, sysperf.host, shutil
host = sysperf.host.Host()
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    sysperf_pyspy.dump(host, int(sys.argv[1]))
except Exception as error:
    print(error, "|", getattr(error, "hint", ""))
"""
    with started(sys.executable, WAITING) as program:
        done = subprocess.run((sys.executable, "-c", script, str(program.pid)), capture_output=True, text=True, check=False, timeout=300)
    if "not installed" in done.stdout:
        pytest.skip("py-spy lies where another user cannot run it")
    assert "belongs to user 0, and only root may look into it | sudo sysperf stacks" in done.stdout, done.stderr


def test_ctrl_c_leaves_no_py_spy() -> None:
    """Sampling that is interrupted ends at once, py-spy with it, also in the moment in which py-spy starts."""
    with started(sys.executable, WAITING) as program:
        argv = (sys.executable, "-m", "sysperf", "stacks", str(program.pid), "--seconds", "60")
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as sampling:
            end = time.monotonic() + 30
            while not (children := _children(sampling.pid)) and time.monotonic() < end:
                pass  # the first moment is the one that matters
            assert children
            sampling.send_signal(signal.SIGINT)
            assert sampling.wait(10) == 130
        assert not any(_runs(child) for child in children)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.torch
def test_loading_in_the_main_thread_is_seen(tmp_path: Path) -> None:
    """A dataset that sleeps 48 ms a batch, without workers: the main thread makes the data itself, and its line is named."""
    with training(tmp_path, 0) as pid:
        data = json.loads(command("stacks", str(pid), "--seconds", "3", "--json").stdout)

    shares = {phase["name"]: phase["share"] for phase in data["phases"]}
    assert data["samples"] >= 30
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["inline fetch"] > 0.5
    assert shares["loader wait"] < 0.1
    fetch = next(phase for phase in data["phases"] if phase["name"] == "inline fetch")
    assert fetch["frame"]["file"] == str(tmp_path / "train.py")
    assert fetch["frame"]["function"].endswith("__getitem__")


@pytest.mark.torch
def test_waiting_for_workers_is_seen(tmp_path: Path) -> None:
    """The same dataset in one worker: the main thread waits for it."""
    with training(tmp_path, 1) as pid:
        data = json.loads(command("stacks", str(pid), "--seconds", "3", "--json").stdout)
        text = command("stacks", str(pid), "--seconds", "1").stdout

    shares = {phase["name"]: phase["share"] for phase in data["phases"]}
    assert shares["loader wait"] > 0.4
    assert shares["inline fetch"] < 0.1
    assert "loader wait" in text
