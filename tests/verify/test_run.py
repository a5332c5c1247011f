"""Facts about timed runs: what is measured, and that nothing a program starts outlives its run, or us."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sysperf.host.descendants import descendants
from sysperf.verify.output import MAX_LINE_BYTES, MAX_TAIL_BYTES, Match, Output
from sysperf.verify.run import Finished, run


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


def value(script: str, pattern: str = r"speed: +([0-9.]+)") -> float | None:
    """The metric that a shell script prints."""
    match = shell(script, pattern=pattern).match
    return match.value if match else None


def printing(expression: str) -> str:
    """A command that writes a text of Python."""
    return f"{sys.executable} -c 'import sys; sys.stdout.write({expression})'"


def test_a_run_has_its_times_its_code_and_its_value() -> None:
    """CPU time is that of all descendants; the value is the last match's last group."""
    run = shell(
        f"echo speed: 12; {sys.executable} -c 'sum(range(3000000))'; echo 'the speed: 13 it/s'; exit 3", pattern=r"(the )?speed: ([\d.,]+)"
    )

    assert run.match == Match("13", 13.0)
    assert run.exit_code == 3
    assert run.cpu_s > 0
    assert run.wall_s > 0
    assert run.tail.endswith("speed: 13 it/s\n")


@pytest.mark.parametrize("end", ["\\r", "\\n", "\\r\\n"])
def test_the_last_of_many_matches_is_the_value(end: str) -> None:
    """A progress bar writes one line again and again, as tqdm, Keras and the Trainer do: its last speed counts, after however many."""
    bar = f'"".join("{end}%6d/20000 [00:10<00:00, speed: %8.2f it/s]" % (step, step / 1000) for step in range(20001))'

    assert value(printing(bar)) == 20.0
    assert value(printing(f'{bar} + "{end}"')) == 20.0


def test_of_a_line_that_is_too_long_the_end_is_searched() -> None:
    """What was cut there is no number: its beginning is lost. The lines after it are whole."""
    cut = f'"speed: 1" + "2" * 3 + "," + "-" * ({MAX_LINE_BYTES} - 3)'

    assert value(printing('"x" * 100000 + " speed: 7"')) == 7.0
    assert value(printing('"x" * 100000 + " speed: 7\\n8"')) == 7.0
    assert value(printing(cut), "([0-9]+)") is None
    assert value(printing(f'{cut} + "\\n"'), "([0-9]+)") is None
    assert value(printing(f'{cut} + "\\n9"'), "([0-9]+)") == 9.0


@pytest.mark.parametrize(
    ("printed", "number"),
    [
        ("13", 13.0),
        ("-1.5e3", -1_500.0),
        ("1,234.5", 1_234.5),
        ("12,345,678", 12_345_678.0),
        ("1_234", 1_234.0),
        ("13,", 13.0),
        ("1,5", None),
        ("1,25", None),
        ("0,125", None),
        ("1.234,5", None),
        ("1234,567", None),
        ("1_5", None),
        ("12.3.4", None),
        ("n/a", None),
    ],
)
def test_what_is_a_number(printed: str, number: float | None) -> None:
    """Commas are taken out where they group by three; a decimal comma would make 15 of 1,5. What is no number stays as it was printed."""
    assert shell(f"echo speed: 3; echo speed: {printed}", pattern=r"speed: (\S+)").match == Match(printed, number)


def test_a_pattern_without_a_group_is_all_that_it_matches() -> None:
    """Text around the number makes it no number."""
    assert shell("echo speed: 3", pattern="[0-9.]+").match == Match("3", 3.0)
    assert shell("echo speed: 3", pattern="speed: [0-9.]+").match == Match("speed: 3")


def test_a_pattern_knows_the_letters_of_all_languages() -> None:
    """It is searched for in text, not in bytes."""
    assert value("echo 'µs: 3'; echo 'ßs: 4'", r"(?u)^[\u00b5ß]s: (\d)") == 4.0


PATTERN_WITHOUT_END, LINE_WITHOUT_MATCH = "(a+)+$", f"{'a' * 60}!"


def test_a_pattern_that_backtracks_without_end_ends_the_run() -> None:
    """The guard searches for it, and would otherwise see neither the limit of the run nor our end."""
    marker = f"76{os.getpid()}"
    run = shell(f"echo {LINE_WITHOUT_MATCH}; sleep {marker}", pattern=PATTERN_WITHOUT_END)

    assert run.match == Match(LINE_WITHOUT_MATCH, took_too_long=True)
    assert run.exit_code == -signal.SIGKILL
    assert not alive(marker)


def test_a_program_that_prints_gigabytes_or_binary_is_read_to_its_end() -> None:
    """Only the end of its output is kept."""
    run = shell("head -c 50000000 /dev/urandom; printf 'speed: 4'", pattern="speed: ([0-9.]+)")

    assert run.exit_code == 0
    assert len(run.tail) <= MAX_TAIL_BYTES
    assert run.match == Match("4", 4.0)


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


@pytest.mark.parametrize("pattern", ["", PATTERN_WITHOUT_END])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_us(number: signal.Signals, pattern: str) -> None:
    """kill -9 and Ctrl-C of sysperf end the program, what it started, in a session of its own too, and the guard, which has our words."""
    marker = f"79{os.getpid()}{number}{len(pattern)}"
    ours = f"sysperf{marker}"
    script = (
        f"import os; from sysperf.verify.run import run; "
        f"run(('sh', '-c', 'setsid sleep {marker} & echo {LINE_WITHOUT_MATCH}; sleep {marker}'), os.environ, limit_s=60, pattern={pattern!r})"
    )
    with subprocess.Popen((sys.executable, "-c", script, ours), stderr=subprocess.DEVNULL) as sysperf:
        end = time.monotonic() + 60
        while not alive(marker) and time.monotonic() < end:
            time.sleep(0.05)
        assert alive(marker)
        sysperf.send_signal(number)
        sysperf.wait(60)
    while (alive(marker) or alive(ours)) and time.monotonic() < end:
        time.sleep(0.05)

    assert not alive(marker)
    assert not alive(ours), "the guard is a copy of us"


def test_what_is_no_finite_number_is_told_as_it_was_printed() -> None:
    """A loss that became nan or inf comes out of the guard as such, beside numbers too large for a float."""
    values = [value(f"echo loss: {printed}", pattern=r"loss: (\S+)") for printed in ("nan", "1e999", "-inf")]

    assert [str(value) for value in values] == ["nan", "inf", "-inf"]


def test_cpu_time_and_page_faults_are_those_of_the_program() -> None:
    """Of user and kernel, its children included: no less than what it counted itself at its end."""
    program = (
        "import os, subprocess\n"
        "subprocess.run(('sh', '-c', 'head -c 1G /dev/zero > /dev/null'))\n"
        "for _ in range(2_000_000): pass\n"
        "block = bytearray(64 << 20)\n"
        "for at in range(0, len(block), 4096): block[at] = 1\n"
        "print('took:', sum(os.times()[:4]))"
    )
    done = run((sys.executable, "-c", program), os.environ, limit_s=60, pattern="took: (.*)")

    assert done.match
    assert done.match.value
    assert done.cpu_s >= done.match.value
    assert done.page_faults >= (64 << 20) // 4096 // 2


def test_a_program_has_a_session_of_its_own_and_no_input() -> None:
    """What is typed meanwhile, and Ctrl-C, do not reach it: input waits in a pipe here, which it does not see."""
    read, write = os.pipe()
    os.write(write, b"typed\n")
    saved = os.dup(0)
    os.dup2(read, 0)
    try:
        done = run(("sh", "-c", "cat; ps -o sid= -p $$"), os.environ, limit_s=20)
    finally:
        os.dup2(saved, 0)
        for descriptor in (saved, read, write):
            os.close(descriptor)

    assert int(done.tail) != os.getsid(0)


def test_a_program_that_ends_its_parent_goes_on() -> None:
    """SIGTERM to the guard: it stays, and tells how the run went."""
    done = run(("sh", "-c", "kill -TERM $PPID; echo speed: 3"), os.environ, limit_s=20, pattern="speed: (.*)")

    assert done.match
    assert (done.exit_code, done.match.value) == (0, 3.0)


def test_an_exit_code_of_a_shell_is_no_failure_to_start() -> None:
    """127 is what shells say of a command that is not there: the program's own answer."""
    done = run(("sh", "-c", "exit 128"), os.environ, limit_s=20)

    assert (done.exit_code, done.error) == (128, "")


def test_no_guard_is_left_behind() -> None:
    """It is waited for: a study of many runs collects no zombies."""
    before = descendants(os.getpid())
    run(("true",), os.environ, limit_s=20)

    assert descendants(os.getpid()) == before


def test_a_program_starts_as_from_a_shell(tmp_path: Path) -> None:
    """In the folder that is given, with no signal ignored that Python ignores, and what it writes as an error is read, too."""
    script = 'pwd; read -r _ ignored <<< "$(grep SigIgn /proc/self/status)"; echo $ignored; echo speed: 7 >&2'
    done = run(("bash", "-c", script), os.environ, limit_s=20, pattern="speed: (.*)", cwd=str(tmp_path))
    folder, ignored = done.tail.split()[:2]

    assert folder == str(tmp_path)
    assert int(ignored, 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1 | 1 << signal.SIGTERM - 1) == 0
    assert done.match
    assert done.match.value == 7.0


@pytest.mark.parametrize("reads", [True, False])
def test_output_that_nobody_reads_holds_no_run_up(reads: bool) -> None:
    """A reader that stands still, and one that has left: what the program printed is taken all the same."""
    reading, writing = os.pipe()
    printed, into = os.pipe()
    os.write(into, b"x" * 50_000 + b"\nspeed: 5\n")
    os.close(into)
    if reads:
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x" * 4_096)
        os.set_blocking(writing, True)
    else:
        os.close(reading)
    output = Output(printed, "speed: ([0-9]+)", writing)
    while output.read():
        pass
    output.drain()
    for descriptor in (writing, printed, *([reading] if reads else [])):
        os.close(descriptor)

    assert output.match == Match("5", 5.0)
