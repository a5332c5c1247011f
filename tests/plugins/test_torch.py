"""`sysperf trace`: the protocol, hostile datagrams, ends of all kinds, and a real PyTorch."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sysperf_torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sysperf_torch import target, trace_file, wire

from sysperf.cli import trace as cli
from sysperf.host import Host
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.profile import Trace, TraceRequest
from sysperf.report.profiling import profile
from tests.conftest import make_machine
from tests.plugins.programs import asking, command, loaded, sockets, started, training, with_torch


def request(types: int = 3, *pids: int) -> bytes:
    """What PyTorch sends every 5 s."""
    body = struct.pack(f"iiq{len(pids)}i", types, len(pids), 0, *pids)
    return struct.pack("Q32s", len(body), b"req") + body


@pytest.fixture
def folder() -> Iterator[str]:
    """The folder of the sockets."""
    with sockets() as path:
        yield path


def silent(_: str) -> None:
    """Nobody looks at the progress."""


def take(pid: int, output: Path, *, iterations: int = 5, limit_s: float = 30) -> Trace:
    return sysperf_torch.trace(Host(), TraceRequest(pid, iterations, output=str(output), limit_s=limit_s), silent)


def clean(folder: str, output: Path) -> bool:
    """No socket of ours, and nothing in the folder of the trace."""
    return not os.path.lexists(f"{folder}/dynolog") and not list(output.parent.iterdir())


# ---------------------------------------------------------------------- the protocol


def test_requests_are_understood() -> None:
    """With ancestors or without, free or at work; and the greeting of a GPU's context."""
    assert wire.parse(request(3, 7, 1)) == ("req", True)
    assert wire.parse(request(1)) == ("req", False)
    assert wire.parse(struct.pack("Q32siiq", 16, b"ctxt", 0, 7, 0)) == ("ctxt", False)


def test_answers_are_what_pytorch_reads() -> None:
    """A configuration for a request, a number for a greeting."""
    assert wire.reply(wire.Request("req", free=True), "A=1\n") == struct.pack("Q32s", 4, b"req") + b"A=1\n"
    assert wire.reply(wire.Request("ctxt")) == struct.pack("Q32si", 4, b"ctxt", 1)


@given(st.one_of(st.binary(max_size=120), st.builds(lambda head, body: struct.pack("Q32s", *head) + body, st.tuples(
    st.integers(0, 2**64 - 1) | st.integers(0, 60), st.sampled_from([b"req", b"ctxt", b"r" * 32, b""])), st.binary(max_size=60))))  # fmt: skip
@settings(max_examples=100)
def test_any_datagram_is_a_request_or_nothing(data: bytes) -> None:
    """A message is taken when its sizes agree to the byte."""
    asked = wire.parse(data)
    if asked is not None:
        assert struct.unpack_from("Q", data) == (len(data) - 40,)
        assert asked.kind.encode() == data[8:40].split(b"\0")[0]


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=900), st.integers(0, 7))
@settings(max_examples=25)
def test_every_true_request_is_understood(pids: list[int], types: int) -> None:
    """Whatever its ancestors are."""
    data = request(types, *pids)
    assert len(data) <= wire.MAX_BYTES
    assert wire.parse(data) == ("req", bool(types & 2))


def test_the_configuration_is_kinetos() -> None:
    """By steps or by time, with what was asked for and no more."""
    by_steps = sysperf_torch.config(TraceRequest(7, 5, shapes=True), "/x/t.json", has_gpu=False).splitlines()
    assert by_steps == [
        "ACTIVITIES_LOG_FILE=/x/t.json", "PROFILE_START_ITERATION=0", "PROFILE_START_ITERATION_ROUNDUP=1", "ACTIVITIES_ITERATIONS=5",
        "PROFILE_REPORT_INPUT_SHAPES=true", "PROFILE_WITH_STACK=false",
    ]  # fmt: skip
    by_time = sysperf_torch.config(TraceRequest(7, duration_ms=250, stacks=True), "/x/t.json", has_gpu=True)
    without_gpu = sysperf_torch.config(TraceRequest(7, duration_ms=250, stacks=True), "/x/t.json", has_gpu=False)
    assert "ACTIVITIES_DURATION_MSECS=250\n" in by_time
    assert "ITERATION" not in by_time
    assert "PROFILE_WITH_STACK=true\n" in by_time
    assert "WARMUP" not in by_time
    assert "ACTIVITIES_WARMUP_PERIOD_SECS=0\n" in without_gpu


@given(st.binary(max_size=400), st.integers(1, 400))
@settings(max_examples=50)
def test_counting_does_not_depend_on_chunks(tmp_path_factory: pytest.TempPathFactory, noise: bytes, chunk: int) -> None:
    """An event that straddles two chunks is counted once."""
    event = b'{"ph": "X", "cat": "user_annotation",\n    "name": "Optimizer.step#SGD.step"}'
    gpu = b'{"ph": "X", "cat": "gpu_user_annotation",\n    "name": "Optimizer.step#SGD.step"}'
    path = tmp_path_factory.mktemp("trace") / "t.json"
    noise = noise.replace(b'"', b"")
    path.write_bytes(noise + event + gpu + noise + event)
    before, trace_file.CHUNK_BYTES = trace_file.CHUNK_BYTES, chunk
    try:
        assert trace_file.counts(str(path)) == (path.stat().st_size, 3, 2)
    finally:
        trace_file.CHUNK_BYTES = before


def test_a_pipe_in_place_of_a_trace_is_not_waited_for(tmp_path: Path) -> None:
    """The program may put one there between the look and the reading."""
    os.mkfifo(tmp_path / "trace.json")

    assert trace_file.complete(str(tmp_path)) is None
    assert trace_file._size_with_ends(f"{tmp_path}/trace.json") == 0
    with pytest.raises(OSError, match="seek"):
        trace_file.counts(f"{tmp_path}/trace.json")


# ---------------------------------------------------------------------- who can be traced


def machine(env: str, **links: str) -> Host:
    """A program of user 1000 with this environment."""
    stat = "7 (py thon) S " + " ".join(str(number) for number in range(1, 50))
    files = {"/proc/7/stat": stat, "/proc/7/status": "Uid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\n", "/proc/7/environ": env}
    host = make_machine(files, {"/proc/7/ns/mnt": links.get("its", "mnt:[1]"), "/proc/self/ns/mnt": "mnt:[1]"})  # type: ignore[arg-type]
    host._tree.live = True
    return host


TRACEABLE = "PATH=/bin\0KINETO_USE_DAEMON=1\0KINETO_IPC_SOCKET_DIR=/run/user/1000/sysperf/kineto\0"


def test_a_traceable_program_is_known_by_its_environment() -> None:
    """Its user, its group, and the socket at which it asks."""
    known = target.find(machine(TRACEABLE), 7, 1000)

    assert (known.uid, known.gid, known.address) == (1000, 100, "/run/user/1000/sysperf/kineto/dynolog")
    assert target.find(machine("KINETO_USE_DAEMON=1\0"), 7, 0).address == b"\0dynolog\0"


@pytest.mark.parametrize(
    ("host", "me", "why", "hint"),
    [
        (machine("PATH=/bin\0"), 1000, "has no KINETO_USE_DAEMON=1", "wrap --traceable"),
        (machine("KINETO_USE_DAEMON=0\0"), 1000, "has no KINETO_USE_DAEMON=1", "wrap --traceable"),
        (machine(TRACEABLE), 1001, "belongs to user 1000", "sudo sysperf trace 7"),
        (machine(TRACEABLE, its="mnt:[2]"), 1000, "in a container", "inside of it"),
        (machine("KINETO_USE_DAEMON=1\0KINETO_IPC_SOCKET_DIR=kineto\0"), 1000, "not an absolute path", "wrap --traceable"),
        (machine(f"KINETO_USE_DAEMON=1\0KINETO_IPC_SOCKET_DIR=/{'x' * 60}\0"), 1000, "longer than 54 bytes", "wrap --traceable"),
    ],
)
def test_why_a_program_cannot_be_traced(host: Host, me: int, why: str, hint: str) -> None:
    """Each reason has its next step."""
    with pytest.raises(SysperfError, match=why) as raised:
        target.find(host, 7, me)
    assert hint in raised.value.hint


def test_no_such_process_and_captured_machines() -> None:
    """An ended process, a number that is none, and a machine that is only a capture."""
    for pid in (8, 0, -1):
        with pytest.raises(UsageError, match="no process"):
            target.find(machine(TRACEABLE), pid, 0)
    with pytest.raises(UsageError, match="captured"):
        target.find(make_machine({}), 7, 0)


# ---------------------------------------------------------------------- taking one


def test_a_trace_is_taken_and_placed(folder: str, tmp_path: Path) -> None:
    """The file is whole, counted, named as asked, and all else is gone."""
    output = tmp_path / "t.json"
    with asking(folder) as program:
        trace = take(program.pid, output)

    assert (trace.path, trace.events, trace.steps) == (str(output), 3, 3)
    assert trace.size_bytes == output.stat().st_size
    assert "ACTIVITIES_ITERATIONS=5" in str(loaded(output)["config"])
    assert not os.path.lexists(f"{folder}/dynolog")
    assert [*tmp_path.iterdir()] == [output]


def test_a_profiler_at_work_is_waited_for(folder: str, tmp_path: Path) -> None:
    """A program that is being traced already gets the request when it is free, and the user is told."""
    messages: list[str] = []
    with asking(folder, "busy") as program:
        sysperf_torch.trace(Host(), TraceRequest(program.pid, 5, output=str(tmp_path / "t.json")), messages.append)

    assert any("at work already" in line for line in messages)


def test_a_trace_by_time_that_was_dropped_is_asked_for_again(folder: str, tmp_path: Path) -> None:
    """Kineto makes the file, finds that its thread woke up too late for the warm-up, and asks for work as if nothing had been."""
    with asking(folder, "drop") as program:
        wish = TraceRequest(program.pid, duration_ms=100, output=str(tmp_path / "t.json"), limit_s=30)
        assert sysperf_torch.trace(Host(), wish, silent).steps == 3


def test_a_trace_by_time_that_is_always_dropped_ends(folder: str, tmp_path: Path) -> None:
    """Long before the limit, with what to do instead."""
    with asking(folder, "hang") as program, pytest.raises(SysperfError, match="started no trace") as raised:
        sysperf_torch.trace(Host(), TraceRequest(program.pid, duration_ms=100, output=str(tmp_path / "t.json"), limit_s=60), silent)
    assert "--iterations 5" in raised.value.hint


@pytest.mark.parametrize(
    ("does", "limit_s", "why"),
    [("die", 30, "ended before"), ("ignore", 30, "started no trace"), ("hang", 1.51602, "no trace within 1.52 s")],
)
def test_a_trace_that_fails_leaves_nothing(folder: str, tmp_path: Path, does: str, limit_s: float, why: str) -> None:
    """A program that dies, that ignores the request, that never finishes."""
    output = tmp_path / "t.json"
    with asking(folder, does) as program, pytest.raises(SysperfError, match=why) as raised:
        take(program.pid, output, limit_s=limit_s)
    assert clean(folder, output)
    assert ("134 or 139" in raised.value.hint) == (does == "die")


def test_a_program_that_never_asks_is_told(folder: str, tmp_path: Path) -> None:
    """It has the variable, and no PyTorch."""
    env = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": folder}
    script = "import time; print('ready', flush=True); time.sleep(60)"
    with started(sys.executable, script, env=env) as program, pytest.raises(SysperfError, match="has not asked") as raised:
        take(program.pid, tmp_path / "t.json", limit_s=1)
    assert "imported torch" in raised.value.hint
    assert clean(folder, tmp_path / "t.json")


def test_what_exists_is_never_overwritten(folder: str, tmp_path: Path) -> None:
    """Neither before the trace, nor when it comes meanwhile, nor through a link."""
    output = tmp_path / "t.json"
    output.symlink_to(tmp_path / "elsewhere")
    with asking(folder) as program:
        with pytest.raises(UsageError, match="exists"):
            take(program.pid, output)
        output.unlink()

        def meanwhile(_: str) -> None:
            output.write_text("mine")

        with pytest.raises(UsageError, match="exists by now"):
            sysperf_torch.trace(Host(), TraceRequest(program.pid, 5, output=str(output)), meanwhile)
    assert output.read_text() == "mine"
    assert [*tmp_path.iterdir()] == [output]


def test_paths_that_kineto_would_misread_are_refused(folder: str, tmp_path: Path) -> None:
    """A newline would be a line of the configuration of its own; # begins a comment."""
    for name in ("a\nb", "a#b", "a=b"):
        (tmp_path / name).mkdir()
        with asking(folder) as program, pytest.raises(UsageError, match="character"):
            take(program.pid, tmp_path / name / "t.json")


def test_a_daemon_that_listens_is_left_alone(folder: str, tmp_path: Path) -> None:
    """dynolog, or another trace: its socket stays, and we say so."""
    with asking(folder) as program, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dynolog:
        dynolog.bind(f"{folder}/dynolog")
        with pytest.raises(SysperfError, match="another tracing daemon"):
            take(program.pid, tmp_path / "t.json")
        assert os.path.lexists(f"{folder}/dynolog")


def test_a_dead_socket_is_replaced(folder: str, tmp_path: Path) -> None:
    """One that was left by kill -9."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(f"{folder}/dynolog")
    with asking(folder) as program:
        assert take(program.pid, tmp_path / "t.json").steps == 3


def test_two_traces_at_once_do_not_disturb_each_other(folder: str, tmp_path: Path) -> None:
    """The second is refused, the first is whole."""
    with asking(folder, "hang") as program:
        waiting, refusals = threading.Event(), []

        def first() -> None:
            with pytest.raises(SysperfError, match="no trace within"):
                sysperf_torch.trace(Host(), TraceRequest(program.pid, 5, output=str(tmp_path / "a"), limit_s=3), lambda _: waiting.set())

        thread = threading.Thread(target=first)
        thread.start()
        assert waiting.wait(10)
        with pytest.raises(SysperfError, match="another tracing daemon") as raised:
            take(program.pid, tmp_path / "b")
        refusals.append(raised.value)
        thread.join()
    assert refusals


def test_hostile_datagrams_change_nothing(folder: str, tmp_path: Path) -> None:
    """Garbage, forged process numbers, large messages and passed files, thousands a second, from another process."""
    output = tmp_path / "t.json"
    flood = f"""
import os, random, socket, struct, sys, time
victim = int(sys.argv[1])
asking = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); asking.bind("{folder}/hostile"); asking.setblocking(False)
body = struct.pack("iiqi", 3, 1, 0, victim)
forged = struct.pack("Q32s", len(body), b"req") + body
kinds = [b"", b"x", forged[:39], forged + b"x", forged * 200, struct.pack("Q32s", 2**63, b"req"), struct.pack("Q32siiq", 16, b"req", 3, 2**31 - 1, 0), forged]
print("ready", flush=True)
got, number = b"", 0
while True:
    number += 1
    try:
        if number % 7: asking.sendto(random.choice(kinds), "{folder}/dynolog")
        else: socket.send_fds(asking, [forged], [0, 1, 2], 0, "{folder}/dynolog")
    except OSError: time.sleep(0.001)
    try:
        if b"LOG_FILE" in asking.recv(4096): open("{folder}/stolen", "w").close()
    except OSError: pass
"""
    with asking(folder) as program, started(sys.executable, flood, str(program.pid)):
        gc.collect()  # files of earlier tests close now, and not meanwhile
        before = len(os.listdir("/proc/self/fd"))
        trace = take(program.pid, output)
        assert len(os.listdir("/proc/self/fd")) <= before, "no file that somebody passed is kept"

    assert trace.steps == 3
    assert not os.path.exists(f"{folder}/stolen"), "only the program itself is told"


def test_interrupts_leave_nothing(folder: str, tmp_path: Path) -> None:
    """Ctrl-C, and what ends services and lost terminals, in the middle of a trace."""
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        with asking(folder, "hang") as program:
            argv = (sys.executable, "-m", "sysperf", "trace", str(program.pid), "--output", str(tmp_path / "t.json"))
            with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tracing:
                assert tracing.stderr is not None
                while "traces itself" not in tracing.stderr.readline():
                    assert tracing.poll() is None
                tracing.send_signal(number)
                assert tracing.wait(10) == code
        assert clean(folder, tmp_path / "t.json")


@pytest.mark.root(users=True)
def test_root_goes_on_as_the_user(tmp_path: Path) -> None:
    """Root's command becomes the user whose program it is before it touches a folder of his."""
    script = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from sysperf.cli import trace
trace.become(65534, 65534)
print(os.getresuid(), os.getresgid(), os.getgroups())
"""
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.startswith("(65534, 65534, 65534) (65534, 65534, 65534) [")
    assert "[0" not in done.stdout


def test_the_abstract_name_is_dynologs(tmp_path: Path) -> None:
    """Without a folder the name is the one that Kineto spells, the zero at its end included."""
    with contextlib.ExitStack() as stack:
        program = stack.enter_context(
            started(sys.executable, "import time; print('ready', flush=True); time.sleep(60)", env={"KINETO_USE_DAEMON": "1"})
        )
        other = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        try:
            other.bind(b"\0dynolog\0")
        except OSError:
            pytest.skip("dynolog, or another trace, has the name on this machine")
        with pytest.raises(SysperfError, match="in the abstract name space"):
            take(program.pid, tmp_path / "t.json")


# ---------------------------------------------------------------------- the command


def test_the_command_tells_the_file(folder: str, tmp_path: Path) -> None:
    """Size, events, steps and how to open it on stdout, progress on stderr; JSON for scripts; a name of its own here."""
    with asking(folder) as program:
        text = command("trace", str(program.pid), cwd=tmp_path)
        data = json.loads(command("trace", str(program.pid), "--json", "--output", "b.json", cwd=tmp_path).stdout)

    assert text.returncode == 0, text.stderr
    assert "3 events, 3 optimizer steps" in text.stdout
    assert "https://ui.perfetto.dev" in text.stdout
    assert text.stderr.splitlines()[0].startswith(f"sysperf: waiting until process {program.pid} asks")
    assert data["path"] == str(tmp_path / "b.json")
    assert len([*tmp_path.glob("sysperf-trace-*.json")]) == 1


def test_lengths_of_a_trace_are_checked(tmp_path: Path) -> None:
    """Nonsense is refused before anything is opened."""
    for option in (("--iterations", "0"), ("--iterations", "100000"), ("--seconds", "nan"), ("--seconds", "-1"), ("--seconds", "900")):
        assert command("trace", str(os.getpid()), *option).returncode == 2
    with pytest.raises(UsageError):
        sysperf_torch.trace(Host(), TraceRequest(os.getpid(), 5, 5), silent)


def test_what_a_trace_lacks_is_said() -> None:
    """An empty file, and one that was taken by time although steps were asked for."""
    assert "It is empty" in profile.trace(Trace(7, "/t.json", 853, 0, 0, 8.0))
    assert "no optimizer step" in profile.trace(Trace(7, "/t.json", 853, 9, 0, 8.0), iterations=5)
    assert "It " not in profile.trace(Trace(7, "/t.json", 853, 9, 5, 8.0), iterations=5).replace("Open it", "")


def test_progress_is_a_line_for_each_thing_that_happens(capsys: pytest.CaptureFixture[str]) -> None:
    """Not one for each second where there is no terminal."""
    progress = cli._Progress()
    for text in ("waiting (0 s)", "waiting (1 s)", "writing (2 s)"):
        progress(text)
    assert capsys.readouterr().err == "sysperf: waiting\nsysperf: writing\n"


# ---------------------------------------------------------------------- real PyTorch


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """A program that trains, and the folder of its sockets."""
    with sockets() as path, training(tmp_path_factory.mktemp("training"), 0, path) as pid:
        yield pid, path


@pytest.mark.torch
@pytest.mark.slow
def test_a_real_trace_by_steps_and_by_time(trained: tuple[int, str], tmp_path: Path) -> None:
    """An unmodified training program writes the steps that were asked for, and a trace by time with shapes."""
    pid, folder = trained
    steps = take(pid, tmp_path / "steps.json", limit_s=90)
    wish = TraceRequest(pid, duration_ms=1_000, shapes=True, output=str(tmp_path / "time.json"), limit_s=90)
    by_time = sysperf_torch.trace(Host(), wish, silent)

    events = loaded(steps.path)["traceEvents"]
    assert isinstance(events, list)
    assert steps.steps == 5
    assert steps.events == sum(event.get("ph") == "X" for event in events)
    assert any(event.get("name") == "aten::addmm" for event in events)
    assert by_time.events > 0
    shaped = loaded(by_time.path)["traceEvents"]
    assert isinstance(shaped, list)
    assert any("Input Dims" in event.get("args", {}) for event in shaped)
    assert not os.path.lexists(f"{folder}/dynolog")


@pytest.mark.slow
@pytest.mark.torch
def test_a_real_trace_by_time_on_a_machine_that_stalls(trained: tuple[int, str], tmp_path: Path) -> None:
    """PyTorch drops a trace by time when it was stopped between the request and the warm-up; it comes all the same."""
    pid, _ = trained
    stopped: list[str] = []

    def stall(text: str) -> None:
        if "has the request" in text and not stopped:
            stopped.append(text)
            time.sleep(0.3)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(4)
            os.kill(pid, signal.SIGCONT)

    wish = TraceRequest(pid, duration_ms=500, output=str(tmp_path / "time.json"), limit_s=90)
    assert sysperf_torch.trace(Host(), wish, stall).events > 0
    assert stopped


@pytest.mark.slow
@pytest.mark.torch
def test_a_real_program_that_dies_while_traced(folder: str, tmp_path: Path) -> None:
    """kill -9 after it took the request: an error at once, and nothing is left."""
    output = tmp_path / "traces" / "t.json"
    output.parent.mkdir()
    with training(tmp_path, 0, folder) as pid:

        def kill(text: str) -> None:
            if "traces itself" in text or "has the request" in text:
                os.kill(pid, signal.SIGKILL)

        began = time.monotonic()
        with pytest.raises(SysperfError, match="ended before"):
            sysperf_torch.trace(Host(), TraceRequest(pid, duration_ms=5_000, output=str(output)), kill)
        assert time.monotonic() - began < 20
    assert clean(folder, output)


ENDING = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    model(torch.rand(8, 64)).sum().backward()
    optimizer.step()
print("done", flush=True)
"""


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("length", [("--iterations", "1000"), ("--seconds", "3")])
@pytest.mark.parametrize("gives_up", [False, True])
def test_a_real_program_that_ends_while_traced_ends_well(folder: str, tmp_path: Path, length: tuple[str, str], *, gives_up: bool) -> None:
    """It waits for its trace, also where nobody else does any more; PyTorch crashes there else, 9 of 10 times with torch 2.13."""
    script, end, output = tmp_path / "ending.py", tmp_path / "end", tmp_path / "traces" / "t.json"
    output.parent.mkdir()
    script.write_text(f"import os, sys\n{ENDING}")
    wrapped = ("wrap", "--quiet", "--traceable", "--only", "launch.traceable-asked", "--", with_torch(), str(script), str(end))
    env = {**os.environ, "KINETO_IPC_SOCKET_DIR": folder}
    sysperf, pipe = (sys.executable, "-m", "sysperf"), subprocess.PIPE
    with subprocess.Popen((*sysperf, *wrapped), stdout=pipe, stderr=pipe, text=True, env=env) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        argv = (*sysperf, "trace", str(program.pid), *length, "--output", str(output))
        with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True) as tracing:
            assert tracing.stderr is not None
            while "traces itself" not in tracing.stderr.readline():
                assert tracing.poll() is None
            end.touch()
            if gives_up:
                tracing.send_signal(signal.SIGINT)
            said = tracing.communicate(timeout=120)
        _, warned = program.communicate(timeout=120)

    assert program.returncode == 0, warned
    assert tracing.returncode == (130 if gives_up else 0), said
    assert gives_up or loaded(output)["traceEvents"]
    assert clean(folder, output) or not gives_up
    assert not [name for name in os.listdir(folder) if not name.startswith("dynoconfigclient")], "Kineto leaves its own alone"


def test_several_programs_are_traced_at_the_same_time(folder: str, tmp_path: Path) -> None:
    """Over one socket, from the same moment on; one that cannot be traced costs its own trace only."""
    begin = round(time.time() * 1e3) + 1_000
    with asking(folder) as first, asking(folder) as second:
        requests = [TraceRequest(pid, 0, 500, output=str(tmp_path / f"{pid}.json"), limit_s=30, start_ms=begin)
                    for pid in (first.pid, os.getpid(), second.pid)]  # fmt: skip
        one, refused, two = sysperf_torch.trace_all(Host(), requests, silent)

    assert isinstance(refused, SysperfError)
    for trace, pid in ((one, first.pid), (two, second.pid)):
        assert isinstance(trace, Trace)
        assert (trace.pid, trace.steps) == (pid, 3)
        assert f"PROFILE_START_TIME={begin}\\n" in Path(trace.path).read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{pid}.json" for pid in (first.pid, second.pid))
    assert not os.path.lexists(f"{folder}/dynolog")
