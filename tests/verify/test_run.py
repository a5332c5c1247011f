"""Facts about timed runs: what is measured, and that nothing a program starts outlives its run, or us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sysperf.verify.run import MAX_TAIL_BYTES, Finished, run


def shell(script: str, limit_s: float = 60.0, pattern: str = "") -> Finished:
    """Run a shell script."""
    return run(("sh", "-c", script), os.environ, limit_s=limit_s, pattern=pattern)


def alive(marker: str) -> bool:
    """Whether a process with this word among its arguments runs."""
    return any(marker.encode() in arguments(pid) for pid in os.listdir("/proc") if pid.isdigit())


def arguments(pid: str) -> list[bytes]:
    """The arguments of a process; none once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def test_a_run_has_its_times_its_code_and_its_values() -> None:
    """CPU time is that of all descendants; values are the numbers of the last group."""
    run = shell(
        f"echo 'speed: 1,250.5 it/s'; {sys.executable} -c 'sum(range(3000000))'; echo speed: 13; exit 3", pattern=r"speed: ([\d.,]+)"
    )

    assert run.values == (1250.5, 13.0)
    assert run.exit_code == 3
    assert run.cpu_s > 0
    assert run.wall_s > 0
    assert run.tail.endswith("speed: 13\n")


def test_a_program_that_prints_gigabytes_or_binary_is_read_to_its_end() -> None:
    """Only the end of its output is kept."""
    run = shell("head -c 50000000 /dev/urandom; printf 'speed: 4'", pattern="speed: ([0-9.]+)")

    assert run.exit_code == 0
    assert len(run.tail) <= MAX_TAIL_BYTES
    assert run.values[-1:] == (4.0,)


def test_the_last_state_of_a_progress_bar_counts() -> None:
    """Thousands of updates on one line, and what comes last on a line of megabytes."""
    bar = "import sys\nfor n in range(3000): sys.stdout.write(f'\\r{n}/3000 speed: {10 + n // 1500}.5 it/s')\nprint()"
    run = shell(f'{sys.executable} -c "{bar}"', pattern=r"speed: ([\d.]+)")
    assert (len(run.values), run.values[-1]) == (3_000, 11.5)

    long_line = "head -c 3000000 /dev/zero | tr '\\0' x; echo ' speed: 7'"
    assert shell(long_line, pattern=r"speed: ([\d.]+)").values == (7.0,)


def test_the_last_of_many_values_is_kept() -> None:
    """More of them than are kept."""
    assert shell("seq 25000", pattern="([0-9]+)").values[-1] == 25_000


@pytest.mark.parametrize(
    ("printed", "values", "no_number"),
    [
        ("1,250.5", (1250.5,), ""), ("-12,345,678", (-12_345_678.0,), ""), ("1,5", (), "1,5"), ("1,25", (), "1,25"),
        ("1.234,5", (), "1.234,5"), ("1,2345", (), "1,2345"), ("3 then 2,5", (3.0,), "2,5"), ("2,5 then 3", (3.0,), ""),
    ],
)  # fmt: skip
def test_a_decimal_comma_is_not_taken_for_thousands(printed: str, values: tuple[float, ...], no_number: str) -> None:
    """A number a thousand times as large would be an answer, and a wrong one."""
    run = shell(f"echo '{printed}'", pattern=r"(-?\d[\d.,]*)")

    assert (run.values, run.no_number) == (values, no_number)


def test_a_pattern_that_takes_for_ever_is_given_up() -> None:
    """Its time is exponential in the line. The run goes on to its end, and the guard ends with us."""
    run = shell("printf 'speed: 3\\n'; printf 'a%.0s' $(seq 60); echo '!'; sleep 0.1; echo end", pattern="(a+)+$", limit_s=30)

    assert (run.slow_pattern, run.timed_out, run.exit_code) == (True, False, 0)
    assert run.tail.endswith("end\n")


def test_what_a_program_leaves_behind_is_ended_and_counted() -> None:
    """A daemon in a session of its own, and one below another."""
    marker = f"77{os.getpid()}"
    run = shell(f"setsid sleep {marker} >/dev/null 2>&1 & sleep {marker} & sleep 0.3; exit 0")

    assert run.left_behind == 2
    assert not alive(marker)


def test_a_program_that_ignores_signals_is_killed_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """First SIGTERM, then SIGKILL for it and its children."""
    monkeypatch.setattr("sysperf.verify.run.TERM_GRACE_S", 0.3)
    marker = f"78{os.getpid()}"
    run = shell(f"trap '' TERM; sleep {marker}; sleep {marker}", limit_s=0.3)

    assert run.timed_out
    assert run.exit_code == -signal.SIGKILL
    assert not alive(marker)


def test_a_run_may_be_given_more_time_than_a_poll_takes() -> None:
    """Thirty days, or ten times a run of some days: poll(2) counts milliseconds in 31 bits."""
    assert run(("true",), dict(os.environ), limit_s=30 * 86_400.0).exit_code == 0


def test_a_program_that_cannot_be_started_says_why() -> None:
    """Absent, or no program."""
    assert "No such file" in run(("/nothing/of/this/name",), os.environ, limit_s=5).error
    assert "Permission denied" in run((__file__,), os.environ, limit_s=5).error


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_us(number: signal.Signals) -> None:
    """kill -9 and Ctrl-C of sysperf end the program and what it started, in a session of its own too."""
    marker = f"79{os.getpid()}{number}"
    script = f"import os; from sysperf.verify.run import run; run(('sh', '-c', 'setsid sleep {marker} & sleep {marker}'), os.environ, limit_s=60)"
    with subprocess.Popen((sys.executable, "-c", script), stderr=subprocess.DEVNULL) as sysperf:
        end = time.monotonic() + 60
        while not alive(marker) and time.monotonic() < end:
            time.sleep(0.05)
        assert alive(marker)
        sysperf.send_signal(number)
        sysperf.wait(60)
    while alive(marker) and time.monotonic() < end:
        time.sleep(0.05)

    assert not alive(marker)


def test_what_is_no_finite_number_is_told_as_it_was_printed() -> None:
    """A loss that became nan or inf comes out of the guard as such, beside numbers too large for a float."""
    values = shell("echo loss: nan; echo loss: 1e999; echo loss: -inf; echo loss: 2", pattern=r"loss: (\S+)").values

    assert [str(value) for value in values] == ["nan", "inf", "-inf", "2.0"]
