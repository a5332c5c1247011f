"""Two looks at a program: its shares and rates are of the time in between, where that is long enough and the program the same."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from sysperf.collect.machine_facts import MachineFacts
from sysperf.collect.process import collect
from sysperf.collect.process import second_look as second
from sysperf.collect.process.parts import Affinity, Faults, LoaderWorkers, MainThread, ProgramMemory, ProgramReads, ProgramThreads
from sysperf.collect.process.records import Process, Processes
from sysperf.collect.process.window import Window, between, over
from sysperf.host import Host
from sysperf.live.process_facts import MIN_WINDOW_S, ProcessFacts
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import DecodeError, convert
from sysperf.model.snapshot import Area
from tests.agent.machines import FAKE_TORCH, programs
from tests.collect.programs import LIBTORCH, VERSION, process
from tests.conftest import MakeMachine
from tests.system_calls import needs_system_calls

MIB = 1 << 20
HOURS = Process(
    pid=70, ppid=1, name="python", start_time=5, age_s=7200.0, affinity=Affinity(now=CpuSet.parse("0-1")), cpu_s=7000.0, demand=0.97,
    main=MainThread(run_s=6900.0, wait_s=100.0, waited_share=0.014), threads=ProgramThreads(wait_s=100.0, wanted_cpus=0.99, used_cpus=0.97),
    faults=Faults(minor=1000, refault_share=0.0), reads=ProgramReads(calls=1000, bytes=1000, per_s=0.1),
    memory=ProgramMemory(anonymous_bytes=100 * MIB, file_bytes=0, peak_bytes=120 * MIB),
    workers=LoaderWorkers(count=2, age_s=7190.0, wanted_share=0.1, run_s=1000.0, wait_s=0.0),
)  # fmt: skip
"""Two hours of computing."""


def after(seconds: float, **changed: object) -> Process:
    """The same program later, which did nothing but grow old where nothing else is said; of a part, what changed in it."""
    assert HOURS.age_s is not None
    assert HOURS.workers.age_s is not None
    older = {"age_s": HOURS.age_s + seconds, "workers": {"age_s": HOURS.workers.age_s + seconds}}
    return changed_in(changed_in(HOURS, **older), **changed)


def changed_in(program: Process, **changed: object) -> Process:
    """The program with other facts; of a part, only those that are named."""
    parts = {name: msgspec.structs.replace(getattr(program, name), **part) for name, part in changed.items() if isinstance(part, dict)}
    return msgspec.structs.replace(program, **{**changed, **parts})


def test_a_program_that_began_to_wait_is_seen_to() -> None:
    """Its main thread computed for two hours and sleeps now, while its workers have no time to."""
    window = between(HOURS, after(30.0, cpu_s=7003.0, main={"run_s": 6903.0}, workers={"run_s": 1059.0}))

    assert (window.window_s, window.demand, window.workers.wanted_share) == (30.0, 0.1, 0.983)
    assert (window.threads.used_cpus, window.threads.wanted_cpus) == (0.1, 0.1)


def test_memory_grows_where_it_goes_beyond_its_peak() -> None:
    """What a program frees and takes again in each step is no growth, however much it is."""
    grows = between(HOURS, after(10.0, memory={"anonymous_bytes": 200 * MIB, "peak_bytes": 220 * MIB}))
    breathes = between(HOURS, after(10.0, memory={"anonymous_bytes": 119 * MIB}))

    assert (grows.memory.growth_bytes_per_s, breathes.memory.growth_bytes_per_s) == (10 * MIB, 0.0)


def test_faults_reads_and_children_are_of_the_window() -> None:
    faults, reads = {"minor": 1_001_000, "major": 50}, {"calls": 101_000, "bytes": 10_001_000}
    ended = {"children": {"ended_cpu_s": 4.0}, "compiling": {"cpu_s": 15.0}}
    window = between(HOURS, after(10.0, cpu_s=7010.0, faults=faults, reads=reads, **ended))

    assert (window.faults.refault_share, window.faults.major_per_s) == (0.2, 5.0)
    assert (window.reads.per_s, window.reads.size_bytes) == (10_000.0, 100.0)
    assert (window.children.ended_cpus, window.compiling.cpus) == (0.4, 1.5)


def test_kernels_that_were_compiled_meanwhile_are_counted(machine: MakeMachine) -> None:
    """Inductor's are named by a hash, in whatever folder; Triton's launchers by what they are."""
    inductor = [f"/tmp/cache/ab/c{letter * 51}.so" for letter in "ab"] + [f"/cache/cd/c{'d' * 51}.main.so"]
    triton = "/home/me/.triton/cache/AB/__triton_launcher.cpython-312-x86_64-linux-gnu.so"
    mapped = (LIBTORCH, *inductor, triton, "/venv/lib/numpy/core.so")
    (program,) = collect(machine({**VERSION, **process(70, mapped=mapped)})).processes
    later = changed_in(program, age_s=50.0, compiling={"kernels": 6})

    assert program.compiling.kernels == 4
    assert between(msgspec.structs.replace(program, age_s=20.0), later).compiling.new_kernels == 2


@pytest.mark.parametrize(
    ("why", "later"),
    [
        ("too close", after(1.0, main={"run_s": 6901.0})),
        ("another program with its number", after(30.0, start_time=6)),
        ("age unread", after(30.0, age_s=None)),
    ],
)
def test_without_a_window_means_stay_means_of_a_life(why: str, later: Process) -> None:
    assert between(HOURS, later) is later, why


def test_counters_that_fell_are_unknown_and_change_nothing() -> None:
    """Threads and workers that ended take their time with them; new workers' short lives are a window by themselves."""
    workers = {"run_s": 20.0, "age_s": 20.0, "wanted_share": 0.8}
    window = between(HOURS, after(30.0, threads={"wait_s": 1.0}, workers=workers, cpu_s=7001.0))

    assert (window.threads.wanted_cpus, window.workers.wanted_share) == (0.99, 0.8)


def take(facts: ProcessFacts, program: Process) -> Process:
    """What an agent knows of a program after it was read so."""

    facts.take([program.pid], Area(Processes(processes=(program,)), None, (), 0.0), ())
    (known,) = MachineFacts({"process": facts.area()}).programs
    return known


def test_the_agent_has_a_window_from_its_second_look_on() -> None:
    """A look that follows at once, as after a change of a setting, takes the window of the one before."""
    facts = ProcessFacts()
    first = take(facts, HOURS)
    second_look = take(facts, after(30.0, main={"run_s": 6903.0}, cpu_s=7003.0))
    at_once = take(facts, after(30.0 + MIN_WINDOW_S / 2, main={"run_s": 6903.0}, cpu_s=7003.0))
    later = take(facts, after(60.0, main={"run_s": 6933.0}, cpu_s=7033.0))

    assert [known.window_s for known in (first, second_look, at_once, later)] == [0.0, 30.0, 35.0, 30.0]
    assert [known.demand for known in (second_look, later)] == [0.1, 1.0]


def test_the_agent_forgets_what_it_knew_of_a_number_that_another_program_has() -> None:
    facts = ProcessFacts()
    take(facts, HOURS)

    assert take(facts, after(30.0, start_time=99)).window_s == 0.0


@needs_system_calls
def test_deep_looks_twice_at_a_real_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs is looked at again some seconds later; a capture keeps the answer, and one look says nothing of a window."""
    monkeypatch.setattr(second, "WINDOW_S", 3.2)
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(b"\0" * 8192)
    with programs(FAKE_TORCH, env={"LIBRARY": str(library)}) as (started,):
        host = Host("/", deep=True)
        (deep,) = [program for program in collect(host).processes if program.pid == started.pid]
        (shallow,) = [program for program in collect(Host("/")).processes if program.pid == started.pid]

    assert deep.window_s >= 3.0
    assert deep.memory.growth_bytes_per_s == 0.0
    assert deep.main.sync_share == 0.0
    assert (shallow.window_s, shallow.memory.growth_bytes_per_s, shallow.main.sync_share) == (0.0, None, None)
    assert any(source.path == second.CALL for source in host.sources)


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder where temporary files lie, unless that is in memory, too; `tmp_path` may be."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@needs_system_calls
def test_a_main_thread_that_syncs_is_seen(on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is within fsync(2) at many looks, on a disk that takes milliseconds for it; we never are."""
    if subprocess.run(["stat", "-f", "-c", "%T", str(on_disk)], capture_output=True, text=True, check=True).stdout.strip() == "tmpfs":
        pytest.skip("a tmpfs confirms at once: fsync cannot be waited for here")
    monkeypatch.setattr(second, "WINDOW_S", 2.0)
    code = "import os, sys\nfile = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND)\nprint(flush=True)\nwhile True: os.write(file, b'x' * 4096); os.fsync(file)"
    with subprocess.Popen([sys.executable, "-c", code, str(on_disk / "log")], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        samples = second.sample([program.pid, os.getpid()])
        program.kill()

    shares = {pid: samples[pid].seen(Window()).sync_share or 0.0 for pid in samples}
    assert shares[program.pid] > 0.0
    assert shares[os.getpid()] == 0.0


def test_children_that_were_started_and_ended_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a thread that is not the main one; a compiler among them is known by its name."""
    monkeypatch.setattr(second, "WINDOW_S", 2.5)
    code = (
        "import subprocess, sys, threading\n"
        "def work():\n"
        "    while True: subprocess.run(['bash', '-c', 'exec -a g++ sleep 0.2; :'])\n"
        "threading.Thread(target=work).start()"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as program:
        window = second.sample([program.pid])[program.pid].seen(Window())
        program.kill()

    assert (window.started_children or 0) >= 3
    assert window.compiling_share == 0.0  # its name is what it is, not what it calls itself


def test_a_capture_cannot_set_other_facts() -> None:
    """A second look changes shares; a forged one cannot rename a program, and what it leaves out stays."""
    with pytest.raises(DecodeError, match="pid"):
        convert({"pid": 1, "demand": 0.5}, Window)
    assert over(HOURS, convert({"demand": 0.5}, Window)) == msgspec.structs.replace(HOURS, demand=0.5)


def test_a_capture_answers_as_the_machine_did(machine: MakeMachine) -> None:
    """What two looks at the machine found is kept as it is; of a program that it does not name, nothing changes."""
    calls: dict[str, object] = {second.CALL: {"70": {"window_s": 4.0, "demand": 0.5, "sync_share": 0.25}}}
    named, other = collect(machine({**VERSION, **process(70), **process(71)}, calls=calls, deep=True)).processes

    assert (named.window_s, named.demand, named.main.sync_share) == (4.0, 0.5, 0.25)
    assert (other.window_s, other.demand, other.main.sync_share) == (0.0, None, None)
