"""`sysperf stacks --with perf`: what perf prints, why it refuses, and a real program under a real perf."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sysperf_perf
from hypothesis import given
from hypothesis import strategies as st
from sysperf_perf import reading
from sysperf_perf.refusal import explained

from sysperf.host import Host
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.profile import Frame
from tests.plugins.programs import started
from tests.privileges import AS_ROOT

PRINTED = b"""python   4242      7f5c8a1b2c3d _PyEval_EvalFrameDefault (/usr/bin/python3.11)
python   4242      7f5c8a1b2c3d _PyEval_EvalFrameDefault (/usr/bin/python3.11)
my prog  4243  ffffffff813a2413 clear_page_erms ([kernel.kallsyms])
"""
STACKS = b"""python 4242
\t    7f5c8a1b2c3d py::train:/home/me/train.py (/tmp/perf-4242.map)
\t    55d0aa10beef main (/usr/bin/python3.11)

"""
BUSY = "print('ready', flush=True)\nwhile True: sum(range(1000))"


def test_lines_become_samples_equal_ones_together() -> None:
    """A thread's name may have blanks."""
    samples = reading.samples(PRINTED)

    assert [(sample.tid, sample.thread, sample.count) for sample in samples] == [(4242, "python", 2), (4243, "my prog", 1)]
    assert samples[0].frames == (Frame("_PyEval_EvalFrameDefault", "/usr/bin/python3.11"),)
    assert samples[1].frames[0].file == "[kernel.kallsyms]"


def test_trampolines_become_functions_of_python() -> None:
    """With the file that they are in."""
    (sample,) = reading.samples(STACKS)

    assert sample.frames == (Frame("train", "/home/me/train.py"), Frame("main", "/usr/bin/python3.11"))


@given(st.binary(max_size=400))
def test_whatever_perf_prints_is_read(printed: bytes) -> None:
    """Symbols are other programs' text."""
    for sample in reading.samples(printed):
        assert sample.count > 0
        assert sample.frames


@pytest.mark.parametrize("line", [" " * 4_000, "7f12 " + " " * 3_990, "7f12 x" + "(" * 3_990, "py::" + ":/" * 1_990, " " * 1_000_000 + "x"])
def test_a_symbol_that_costs_time_to_read_is_read_at_once(line: str) -> None:
    """A program writes the names of its functions itself, in /tmp/perf-PID.map."""
    start = time.process_time()
    reading.samples(f"python 4242\n  {line}x\npython 4242 7f12 {line}x\n{line}x\n".encode() + PRINTED)

    assert time.process_time() - start < 1  # cubic in the blanks, it took minutes


def test_a_library_that_was_replaced_is_named() -> None:
    """perf says so behind its name."""
    (sample,) = reading.samples(b"python 4242 7f12 at::native::add(float) (/usr/lib/libtorch_cpu.so (deleted))\n")

    assert sample.frames[0].function.startswith("at::native::add(float)")


def test_a_refusal_says_what_helps() -> None:
    """The kernel's switch by its name."""
    error = explained(Host(), os.getpid(), "Error:\nAccess to performance monitoring and observability operations is limited.")

    assert "does not let us sample" in str(error)
    assert "ended" in str(explained(Host(), 4_194_304, "anything"))


def test_without_perf_the_next_step_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """How it is installed."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UsageError, match="not installed"):
        sysperf_perf.sample(Host(), os.getpid(), 1)


def _cached_libraries() -> set[Path]:
    """What perf keeps for later, below the home of this user."""
    return set((Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".debug").rglob("*"))


def _seen_in_python(pid: int) -> int:
    """How often it was seen in its interpreter within a second."""
    try:
        taken = sysperf_perf.sample(Host(), pid, 1)
    except SysperfError as error:
        if "does not let us" in str(error):
            pytest.skip(f"{AS_ROOT}, or allow perf_event_open (sysctl kernel.perf_event_paranoid=2)")
        raise
    return sum(sample.count for sample in taken.samples if "python" in sample.frames[0].file)


@pytest.mark.skipif(shutil.which("perf") is None, reason="needs perf (Debian: linux-perf)")
def test_a_real_program_is_seen_in_its_interpreter() -> None:
    """Where it spends its time, by library; it goes on, and no copies of its libraries stay behind."""
    before = _cached_libraries()
    with started(sys.executable, BUSY) as program:
        seen, deadline = 0, time.monotonic() + 120
        while seen <= 10 and time.monotonic() < deadline:
            seen += _seen_in_python(program.pid)
        stacks = sysperf_perf.dump(Host(), program.pid)
        assert program.poll() is None

    assert _cached_libraries() == before
    assert seen > 10
    assert [thread.tid for thread in stacks.threads] == [program.pid]


@pytest.mark.skipif(shutil.which("perf") is None, reason="needs perf (Debian: linux-perf)")
def test_the_command_takes_it_by_its_name() -> None:
    """`--with perf`."""
    with started(sys.executable, BUSY) as program:
        argv = (sys.executable, "-m", "sysperf", "stacks", str(program.pid), "--seconds", "1", "--with", "perf", "--json")
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0 or "does not let us" in done.stderr
