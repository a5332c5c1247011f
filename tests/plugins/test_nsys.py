"""`sysperf trace --with nsys`: with nsys itself where it is installed, and what it says where nsys is absent, refuses, or prints otherwise."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sysperf_nsys
from hypothesis import given
from hypothesis import strategies as st
from sysperf_nsys import sessions

from sysperf.engine.analyze import analyze
from sysperf.engine.judging import load_rules
from sysperf.host import Host
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.profile import Trace, TraceRequest
from sysperf.report.profiling import profile

LISTED = "     ID   TIME      STATE       LAUNCH  NAME\n   4711  01:12   Launched            1  profile-4711\n"
STAND_IN = """#!/bin/sh
case "$1" in
sessions) printf '%s' "$NSYS_LISTED" ;;
start) echo "cannot start: no rights" >&2; exit 1 ;;
esac
"""


@pytest.fixture(name="launched")
def make_launched() -> Iterator[int]:
    """A program with a session of nsys in its environment."""
    with subprocess.Popen(("sleep", "60"), env={**os.environ, sessions.VARIABLE: "4711"}) as program:
        while sessions.VARIABLE.encode() not in Path(f"/proc/{program.pid}/environ").read_bytes():
            time.sleep(0.01)  # the kernel replaces a program before it shows the new one's variables
        yield program.pid
        program.kill()


@pytest.fixture(name="stand_in")
def make_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that answers as nsys does when it may not start."""
    nsys = tmp_path / "bin" / "nsys"
    nsys.parent.mkdir()
    nsys.write_text(STAND_IN.replace('"$NSYS_LISTED"', f"'{LISTED}'"))
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", f"{nsys.parent}:{os.environ['PATH']}")
    return tmp_path


def test_without_nsys_the_next_step_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it comes from."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UsageError, match="not installed"):
        sysperf_nsys.owner(Host(), os.getpid())


def test_a_program_that_nsys_did_not_start_cannot_be_traced(stand_in: Path) -> None:
    """And how it is started."""
    with subprocess.Popen((sys.executable, "-c", "import time; time.sleep(60)")) as program:
        with pytest.raises(SysperfError, match="not started by nsys") as caught:
            sysperf_nsys.owner(Host(), program.pid)
        program.kill()

    assert "nsys launch" in caught.value.hint


def test_what_nsys_refuses_is_told_in_its_words(stand_in: Path, launched: int) -> None:
    """Nothing is left behind."""
    assert sysperf_nsys.owner(Host(), launched) == (os.geteuid(), os.getegid())
    request = TraceRequest(launched, duration_ms=100, output=str(stand_in / "trace.sqlite"))
    with pytest.raises(SysperfError, match="no rights"):
        sysperf_nsys.trace(Host(), request, lambda _: None)

    assert not (stand_in / "trace.sqlite").exists()


def test_steps_are_not_counted(stand_in: Path, launched: int) -> None:
    """Time is."""
    with pytest.raises(UsageError, match="counts no steps"):
        sysperf_nsys.trace(Host(), TraceRequest(launched, iterations=5), lambda _: None)


def test_the_session_is_found_by_its_number() -> None:
    """Its name is the last column, with brackets where the session was given none, and may have several words."""
    assert sessions.name_of("4711", LISTED) == "profile-4711"
    assert sessions.name_of("12", LISTED + "     12   00:04   Launched   1  [default]  \n") == "[default]"
    assert sessions.name_of("12", LISTED + "     12   00:04   Launched   1  my own run\n") == "my own run"
    with pytest.raises(SysperfError, match="no session 12"):
        sessions.name_of("12", LISTED)


@given(st.text(max_size=300), st.sampled_from(["1", "4711"]))
def test_whatever_is_printed_a_name_is_harmless(printed: str, number: str) -> None:
    """It becomes part of an argument."""
    try:
        name = sessions.name_of(number, printed)
    except SysperfError:
        return
    assert not name.startswith("-")
    assert not set(name) & set("/='\"$;`\n")


@pytest.mark.parametrize(("name", "viewer"), [("t.sqlite", ""), ("t.json", "ui.perfetto.dev"), ("t.json.gz", "ui.perfetto.dev"), ("t", "")])
def test_a_trace_is_opened_with_what_knows_its_form(name: str, viewer: str) -> None:
    """Neither Perfetto nor nsys-ui opens an export of Nsight Systems."""
    text = profile.trace(Trace(pid=1, path=f"/tmp/{name}", size_bytes=1, events=1, steps=1, took_s=1.0))

    assert ("Open it with" in text) == bool(viewer)
    assert viewer in text
    assert f"sysperf analyze /tmp/{name}" in text


def test_events_of_an_export_are_counted(tmp_path: Path) -> None:
    """A file that is none is an error."""
    with sqlite3.connect(tmp_path / "export.sqlite") as export:
        export.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start)")
        export.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?)", [(1,), (2,)])
    (tmp_path / "none").write_text("text" * 1000)

    assert sysperf_nsys.count(str(tmp_path / "export.sqlite")) == 2
    with pytest.raises(SysperfError):
        sysperf_nsys.count(str(tmp_path / "none"))


def installed() -> bool:
    """Whether nsys is here, and can write a report by itself."""
    return shutil.which("nsys") is not None and bool(glob.glob("/usr/lib/x86_64-linux-gnu/nsight-systems/host-linux-x64/QdstrmImporter"))


with_nsys = pytest.mark.skipif(not installed(), reason="needs nsys: Debian's package nsight-systems, as .ci/run installs it")
LAUNCHES, LAUNCH_S, SHUTDOWN_S = 5, 40, 5
PROGRAM = (
    "import os, time; end = time.time() + 600\nwhile time.time() < end and not os.path.exists({!r}): sum(range(20_000)); time.sleep(0.01)"
)


@pytest.fixture(name="alone")
def make_alone() -> Iterator[None]:
    """Nobody else uses nsys: sessions without a name are one session."""
    with open(f"{tempfile.gettempdir()}/sysperf-test-nsys-{os.geteuid()}", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def started(name: str = "", until: Path = Path("/nonexistent")) -> Iterator[int]:
    """The process of a program that nsys launched in a session of this name. Nsys now and then starts nothing: then it is asked again.

    The program ends by itself once there is a file of this name.
    """
    session, found = name or "[default]", list[int]()
    named = [f"--session-new={name}"] if name else []
    for _ in range(LAUNCHES):
        token = f"# {time.monotonic_ns()}"
        command = ("nsys", "launch", *named, "--trace=nvtx,osrt", sys.executable, "-c", PROGRAM.format(str(until)) + token)
        nsys = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        end = time.monotonic() + LAUNCH_S
        while not (found := processes(token)) and time.monotonic() < end and nsys.poll() is None:
            time.sleep(0.1)
        if found:
            break
        ended(nsys, session)
        time.sleep(1)
    assert found, f"nsys started nothing in {LAUNCHES} launches"
    try:
        yield found[0]
    finally:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended(nsys, session)


def ended(nsys: subprocess.Popen[bytes], session: str) -> None:
    """End a launch and its session. An agent of nsys's may hang while it shuts down, and refuses each launch of its session from then on."""
    nsys.kill()
    nsys.wait()
    subprocess.run(("nsys", "shutdown", f"--session={session}"), capture_output=True, timeout=60, check=False)
    end = time.monotonic() + SHUTDOWN_S
    while (agents := agents_of(session)) and time.monotonic() < end:
        time.sleep(0.1)
    for pid in agents:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def agents_of(session: str) -> list[int]:
    """The processes with which nsys keeps a session."""
    words = (b"--start-agent", f"--session-name={session}".encode())
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [int(path.parent.name)] if set(words) <= set(path.read_bytes().split(b"\0")) else []
    return found


def processes(token: str) -> list[int]:
    """Those with this text in their command that nsys has prepared: it starts them by an agent of its own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if token.encode() in path.read_bytes() and sessions.number_of(Host(), int(path.parent.name)):
                found.append(int(path.parent.name))
    return found


@with_nsys
@pytest.mark.usefixtures("alone")
def test_a_program_that_nsys_launched_is_traced(tmp_path: Path) -> None:
    """As the hint says, without a name for the session. What is exported can be analyzed."""
    with started() as pid:
        path = str(tmp_path / "trace.sqlite")
        taken = sysperf_nsys.trace(Host(), TraceRequest(pid, duration_ms=1_000, output=path), lambda _: None)
        rank = analyze([path], load_rules()).analysis.trace.ranks[0]

    assert taken.events > 10
    assert rank.host.system_call == "clock_nanosleep"
    assert 20 < (rank.host.system_call_pct or 0) <= 100


@with_nsys
@pytest.mark.usefixtures("alone")
def test_each_of_two_sessions_is_found() -> None:
    """By the number that nsys gave its programs."""
    with started() as first, started("my.run") as second:
        printed = subprocess.run(("nsys", "sessions", "list"), capture_output=True, text=True, timeout=30, check=True).stdout
        names = [sessions.name_of(sessions.number_of(Host(), pid) or "", printed) for pid in (first, second)]

    assert names == ["[default]", "my.run"]


@with_nsys
@pytest.mark.usefixtures("alone")
def test_a_program_that_ends_meanwhile_leaves_its_trace(tmp_path: Path) -> None:
    """Nsys stops by itself then. The program ends once it is traced, however long nsys took to begin."""
    end, waited = tmp_path / "end", list[str]()

    def progress(text: str) -> None:
        waited.extend([text] if "is traced" in text else [])
        if len(waited) == 4:
            end.touch()

    with started(until=end) as pid:
        taken = sysperf_nsys.trace(Host(), TraceRequest(pid, duration_ms=60_000, output=str(tmp_path / "trace.sqlite")), progress)

    assert taken.events > 10
    assert len(waited) < 60  # of 120 looks within a minute


HANGING = """#!/bin/sh
case "$1" in
sessions) printf '%s' 'LISTED' ;;
stop) sleep 60 ;;
esac
"""


def test_a_stop_that_does_not_come_back_is_told_with_what_ends_the_collection(
    stand_in: Path, launched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some versions hang while several sessions are open; the collection goes on, and slows the program down."""
    monkeypatch.setattr(sysperf_nsys, "STOP_S", 0.2)
    monkeypatch.setattr(sysperf_nsys, "COMMAND_S", 1.0)
    (stand_in / "bin" / "nsys").write_text(HANGING.replace("'LISTED'", f"'{LISTED}   4712  00:09   Launched   1  other\n'"))
    with pytest.raises(SysperfError, match=r"nsys stop took too long.*2 sessions are open") as caught:
        sysperf_nsys.trace(Host(), TraceRequest(launched, duration_ms=100, output=str(stand_in / "trace.sqlite")), lambda _: None)

    assert "nsys shutdown --session=profile-4711" in caught.value.hint


WORKING = """#!/bin/sh
case "$1" in
sessions) printf '%s' 'LISTED' ;;
export) for word; do case "$word" in --output=*) cp 'EXPORT' "${word#--output=}" ;; esac; done; ln -s 'VICTIM' 'PLACE' ;;
esac
"""


def test_an_export_replaces_nothing_and_follows_no_link(stand_in: Path, launched: int) -> None:
    """Somebody lays a link at its name, which can be guessed, while nsys exports; the temporary folder may be on another file system."""
    victim, place, export = stand_in / "victim", stand_in / "trace.sqlite", stand_in / "made.sqlite"
    victim.write_text("untouched")
    sqlite3.connect(export).close()
    words = {"LISTED": LISTED, "EXPORT": str(export), "VICTIM": str(victim), "PLACE": str(place)}
    script = WORKING
    for word, value in words.items():
        script = script.replace(f"'{word}'", f"'{value}'")
    (stand_in / "bin" / "nsys").write_text(script)
    with pytest.raises(UsageError, match="exists by now"):
        sysperf_nsys.trace(Host(), TraceRequest(launched, duration_ms=100, output=str(place)), lambda _: None)

    assert place.is_symlink()
    assert victim.read_text() == "untouched"
    assert {entry.name for entry in stand_in.iterdir()} == {"bin", "victim", "trace.sqlite", "made.sqlite"}
