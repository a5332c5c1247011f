"""A diagnosis ends in time, whatever keeps one of its looks waiting."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from sysperf import plugin
from sysperf.diagnosis.facts import Diagnosis, MainThread, Program, Threads
from sysperf.engine import diagnose, judging
from sysperf.engine.diagnose import Options, inside
from sysperf.engine.diagnose.parallel_looks import ParallelLooks
from sysperf.host import commands
from sysperf.host.commands import output
from sysperf.model.errors import SysperfError
from sysperf.model.profile import Frame, Sample, Samples


def test_a_look_that_never_ends_is_given_up() -> None:
    """As one at a file system that does not answer; the others' findings are kept."""
    never = threading.Event()
    looks: ParallelLooks[str, int] = ParallelLooks()
    looks.start("program.stuck", lambda: never.wait() and 1)
    looks.start("quick", lambda: 2)

    assert looks.results(0.2) == {"quick": 2}
    assert looks.pending == ["program.stuck"]
    never.set()


def test_a_look_that_never_ends_keeps_no_process() -> None:
    """Its thread ends with the command."""
    code = """
import threading
from sysperf.engine.diagnose.parallel_looks import ParallelLooks
looks = ParallelLooks()
looks.start("program.stuck", threading.Event().wait)
print(looks.results(0.1))
"""
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, timeout=300, check=False)

    assert (done.returncode, done.stdout) == (0, "{}\n"), done.stderr


def test_a_sampler_that_takes_too_long_is_killed() -> None:
    """Nothing of it runs on."""
    looks: ParallelLooks[str, bytes] = ParallelLooks()
    looks.start("sleeps", lambda: _answer_of(("/bin/sleep", "60")))
    while not commands._running:
        time.sleep(0.01)

    assert looks.results(0.1) == {"sleeps": b"killed"}
    assert not commands._running


def test_an_interruption_before_the_results_are_asked_for_kills_samplers_too() -> None:
    """A signal may come while the next one is started."""
    with pytest.raises(KeyboardInterrupt):
        _interrupted()

    assert not commands._running


def _interrupted() -> None:
    looks: ParallelLooks[str, bytes] = ParallelLooks()
    with looks:
        looks.start("sleeps", lambda: _answer_of(("/bin/sleep", "60")))
        while not commands._running:
            time.sleep(0.01)
        raise KeyboardInterrupt


class _Late(threading.Thread):
    """A thread of which the one that starts it is interrupted before it has begun."""

    starts: threading.Thread

    def start(self) -> None:
        """Begin behind the interruption."""
        type(self).starts = threading.Timer(0.3, super().start)
        self.starts.start()
        raise KeyboardInterrupt


class _Never(threading.Thread):
    """A thread of which the one that starts it is interrupted at once."""

    def start(self) -> None:
        """Begin nothing."""
        raise KeyboardInterrupt


@pytest.mark.parametrize("thread", [_Late, _Never])
def test_an_interruption_while_a_look_is_started_leaves_no_sampler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, thread: type[threading.Thread]
) -> None:
    """Neither the one that runs already, nor one whose thread begins later."""
    looks: ParallelLooks[str, bytes] = ParallelLooks()
    late = tmp_path / "late"

    def interrupted() -> None:
        with looks:
            looks.start("sleeps", lambda: _answer_of(("/bin/sleep", "60")))
            while not commands._running:
                time.sleep(0.01)
            monkeypatch.setattr(threading, "Thread", thread)
            looks.start("late", lambda: _answer_of(("/usr/bin/touch", str(late))))

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert not commands._running
    if thread is _Late:
        _Late.starts.join()
        time.sleep(0.3)
    assert not late.exists()


def _answer_of(argv: tuple[str, ...]) -> bytes:
    try:
        return output(argv, "sleep", 60)
    except OSError:
        return b"killed"


def test_a_defect_in_a_look_is_not_swallowed() -> None:
    """It is raised where the result is asked for."""
    looks: ParallelLooks[str, int] = ParallelLooks()
    looks.start("broken", lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        looks.results(5)


def diagnoser(options: Options) -> diagnose._Diagnoser:
    return diagnose._Diagnoser(os.getpid(), SimpleNamespace(ruleset=judging.load_rules()), options, lambda *_: None, None)  # type: ignore[arg-type]


def test_a_longer_window_leaves_as_much_time_for_the_rest() -> None:
    """`--seconds 60` is asked for: stacks are sampled all the same."""
    short, long = diagnoser(Options()), diagnoser(Options(seconds=60.0))
    short._start = time.monotonic() - 5.0
    long._start = time.monotonic() - 60.0

    assert short._left_s() == pytest.approx(long._left_s(), abs=0.5)
    assert long._left_s() > 20


def test_samples_that_do_not_come_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict is made from what there is."""
    never = threading.Event()
    monkeypatch.setattr(plugin, "stack_taker", lambda _: SimpleNamespace(sample=lambda *_: never.wait()))
    monkeypatch.setattr(diagnose, "LIMIT_S", 4.5)
    asked = diagnoser(Options())
    asked._window.run(0.1)
    sampled = asked._sample(Diagnosis(programs=(Program(pid=os.getpid()),)))

    assert sampled.programs[0].stacks is None
    assert [note for note in asked._notes if "took too long" in note]
    never.set()


def test_a_trace_for_which_no_time_is_left_is_said() -> None:
    """Samples take half a minute on a machine that is busy enough: the program could be traced all the same."""
    asked = diagnoser(Options())
    asked._start = time.monotonic() - 25.0
    busy = Program(pid=os.getpid(), role="computes", threads=Threads(used_cpus=1.0))
    facts = asked._trace(Diagnosis(programs=(busy,)))

    assert facts.programs == (busy,)
    assert [note for note in asked._notes if "no time is left" in note]


def test_a_trace_that_is_too_large_is_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, and the diagnosis goes on without it."""
    never = threading.Event()
    monkeypatch.setattr(inside, "_facts", lambda *_: never.wait())

    with pytest.raises(SysperfError, match="too large"):
        inside._read_in_time("trace.json", judging.load_rules(), 0.2)
    never.set()


def test_a_job_that_hangs_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ranks use no CPU, and their stacks are in a collective all the time."""
    waits = Frame("all_reduce", "/site-packages/torch/distributed/distributed_c10d.py", 9)
    samples = Samples(os.getpid(), 6, 50, (Sample(os.getpid(), "MainThread", (waits, Frame("main", "/home/me/train.py", 3)), 300),))
    monkeypatch.setattr(plugin, "stack_taker", lambda _: SimpleNamespace(sample=lambda *_: samples))
    hung = Program(pid=os.getpid(), rank=0, world_size=2, role="idle", threads=Threads(used_cpus=0.0), main=MainThread(ran=0.0, waited=0.0))
    asked = diagnoser(Options())
    asked._window.run(0.1)
    monkeypatch.setattr(asked, "_look_from_outside", lambda: Diagnosis(programs=(hung,)))
    found = asked.run()

    assert found.verdict == "slowed"
    assert [cause.rule for cause in found.causes] == ["program.stuck"]
