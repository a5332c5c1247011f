"""The window of the kernel's accounting, on real processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.collect.cgroup import Cgroup, slowed_for_memory, throttled_share
from sysperf.diagnosis import counters, machine, measured, neighbours, programs, rates
from sysperf.diagnosis.jobtime import JobTime
from sysperf.diagnosis.window import Window
from sysperf.model.cpuset import CpuSet
from sysperf.procfs.stat import TICKS_PER_S, Stat
from tests.system_calls import needs_system_calls

BUSY = "while True: pass"
PARENT = "import os, subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'while True: pass']); time.sleep(60)"


@pytest.fixture(name="start")
def make_start():  # type: ignore[no-untyped-def]  # a generator of a closure
    """Start Python programs that are ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> int:
        program = subprocess.Popen((sys.executable, "-c", f"print(flush=True)\n{code}"), stdout=subprocess.PIPE, start_new_session=True)
        started.append(program)
        assert program.stdout
        program.stdout.readline()
        return program.pid

    yield start
    for program in started:
        os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def until_it_sleeps(pid: int) -> int:
    """A program, as soon as it has slept for a while: one that waits for a CPU has not run either."""
    before, deadline = "", time.monotonic() + 60
    while time.monotonic() < deadline:
        now = Path(f"/proc/{pid}/schedstat").read_text()
        if now == before and ") S " in Path(f"/proc/{pid}/stat").read_text():
            break
        before = now
        time.sleep(0.2)
    return pid


def wait_for_child(pid: int) -> list[int]:
    """The children of a program, as soon as it has one."""
    deadline = time.monotonic() + 30
    while not (children := counters.children(pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return children


def test_a_busy_program_wants_a_cpu_all_the_time(start) -> None:  # type: ignore[no-untyped-def]
    """It ran or was ready: on a machine that others use, the sum still is the whole window."""
    pid = start(BUSY)
    seen = Window(pid)
    seen.run(1.0)
    main, threads = measured.scheduling(seen.processes[pid])

    assert (main.ran or 0.0) + (main.waited or 0.0) > 0.7
    assert threads.team == 1


@needs_system_calls
def test_who_hands_batches_over_is_no_member_of_a_team() -> None:
    """Where others have the CPUs, it waits as long as who computes."""
    main, computes = measured._Thread(1, "python", 0.03, 0.26), measured._Thread(2, "python", 0.03, 0.2)
    feeders = [measured._Thread(tid, "python", 0.001, 0.1) for tid in (3, 4)]
    every = [main, computes, *feeders]

    assert [measured._is_member(thread, every, main) for thread in (computes, *feeders)] == [True, False, False]
    assert [measured._is_member(thread, [main, *feeders], main) for thread in feeders] == [False, False]


@pytest.mark.parametrize(
    ("ran", "waited", "computing"),
    [
        ([0.26, *[0.1] * 7, 0.014, 0.016], 0.32, 8),  # a team of eight on two CPUs, which is measured
        ([0.9, 0.4, 0.35], 0.3, 1),  # large objects are pickled and sent beside the decoding
        ([0.9, 0.8, 0.1], 0.3, 2),
        ([0.0], 0.0, 0),
    ],
)
def test_a_team_within_a_worker_is_told_from_what_sends_its_batches(ran: list[float], waited: float, computing: int) -> None:
    """Its first thread makes the sample, too, so the others run less; of those that send there are two."""
    assert measured._computing([measured._Thread(tid, "pt_data_worker", share, waited) for tid, share in enumerate(ran)]) == computing


def test_a_launcher_is_told_from_who_makes_processes_again_and_again(start) -> None:  # type: ignore[no-untyped-def]
    """Both sleep meanwhile; the processes of a launcher stay."""
    makes = "import subprocess, sys\nwhile True: subprocess.run([sys.executable, '-c', 'import time; time.sleep(0.2)'])"
    launches = "import subprocess, sys, time; time.sleep(1); [subprocess.Popen(['sleep', '60']) for _ in (0, 1)]; time.sleep(60)"
    ended = {}
    for code in (makes, launches):
        pid = start(code)
        seen, deadline = Window(pid), time.monotonic() + 30
        while programs._children_started(seen, pid) < 2 and time.monotonic() < deadline:
            seen.run(0.5)
        assert programs._children_started(seen, pid) >= 2
        seen.run(1.5)
        ended[code] = programs._some_ended(seen, pid)

    assert ended == {makes: True, launches: False}


def test_a_sleeping_program_sleeps(start) -> None:  # type: ignore[no-untyped-def]
    """And waits for no lock."""
    pid = until_it_sleeps(start("import time; time.sleep(60)"))
    seen = Window(pid)
    seen.run(0.6)
    main, _ = measured.scheduling(seen.processes[pid])

    assert (main.slept or 0.0) > 0.9
    assert main.locked == 0.0
    assert (main.sleeping or 0.0) > 0.9, "the kernel sees it in a call that sleeps"
    assert {what for _, what in seen.processes[pid].timeline} == {"sleeps"}


def test_of_no_cpu_time_no_share_is_known(start) -> None:  # type: ignore[no-untyped-def]
    """Not 'none of it waited', nor 'none of it was in the kernel'."""
    pid = until_it_sleeps(start("import time; time.sleep(60)"))
    seen = Window(pid)
    seen.run(0.6)
    _, threads = measured.scheduling(seen.processes[pid])

    assert threads.used_cpus is not None
    assert threads.used_cpus < 0.01
    assert (threads.waited_share, threads.system, measured.faults([seen.processes[pid]]).share) == (None, None, None)


def test_page_faults_of_all_workers_count_together(start) -> None:  # type: ignore[no-untyped-def]
    """One takes fresh memory again and again, another one sleeps; their program does, too. They get their name after their start."""
    pid = start(
        "import mmap, os, time\n"
        "for faults in (True, False):\n"
        "    if not os.fork():\n"
        "        time.sleep(0.3); open('/proc/self/comm', 'w').write('pt_data_worker')\n"
        "        while True: mmap.mmap(-1, 1 << 24).write(bytes(1 << 24)) if faults else time.sleep(1)\n"
        "time.sleep(60)"
    )
    seen, deadline = Window(pid), time.monotonic() + 30
    while (workers := measured.workers(seen, pid)).count < 2 or workers.faults.share is None:
        assert time.monotonic() < deadline
        seen.run(0.5)
    faults = workers.faults

    assert (faults.share or 0.0) > 0.1
    assert (faults.per_s or 0.0) > 1_000
    assert (measured.faults([seen.processes[pid]]).per_s or 0.0) < 1_000


@needs_system_calls
def test_a_thread_that_waits_for_another_is_seen_in_a_futex(start) -> None:  # type: ignore[no-untyped-def]
    """A lock without a time limit is none of the interpreter's."""
    pid = until_it_sleeps(start("import threading; threading.Lock().acquire() and threading.Event().wait()"))
    seen = Window(pid)
    seen.run(0.6)
    main, _ = measured.scheduling(seen.processes[pid])

    assert (main.futex or 0.0) > 0.9
    assert main.locked == main.sleeping == 0.0


def test_calls_that_the_kernel_does_not_tell_are_unknown(start) -> None:  # type: ignore[no-untyped-def]
    """Who may not trace a process reads an empty file: that is not 'never in fsync'."""
    pid = until_it_sleeps(start("import time; time.sleep(60)"))
    seen = Window(pid)
    seen.run(0.3)
    seen.processes[pid].looks["asked"] = 0
    main, threads = measured.scheduling(seen.processes[pid])

    assert (main.syncing, main.locked, threads.python) == (None, None, None)


def test_children_are_found_where_the_kernel_does_not_list_them(start, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """CONFIG_PROC_CHILDREN is off on some machines: the tree is the same without it."""
    pid = start(PARENT)
    listed = wait_for_child(pid)
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert len(listed) == 1
    assert counters.children(pid) == listed


def test_children_are_found_and_counted_to_the_job(start) -> None:  # type: ignore[no-untyped-def]
    """The tree is walked by the kernel's lists of children."""
    pid = start(PARENT)
    wait_for_child(pid)
    seen = Window(pid)
    deadline = time.monotonic() + 20
    while seen.job.ticks < 4 and time.monotonic() < deadline:  # others may have the CPUs
        seen.run(0.8)

    assert len(seen.processes) == 2
    assert sorted(seen.parents.values()) == [pid]
    assert seen.job.ticks >= 4
    assert rates.used_cpus(seen) > 0


def test_a_program_that_ends_meanwhile_ends_the_window(start) -> None:  # type: ignore[no-untyped-def]
    """Without an error, and before its time."""
    pid = start("import time; time.sleep(0.6)")
    seen, began = Window(pid), time.monotonic()
    seen.run(30.0)

    assert time.monotonic() - began < 20
    assert not seen.alive()


def test_a_suspended_program_is_no_trouble(start) -> None:  # type: ignore[no-untyped-def]
    """It sleeps, and stays suspended: nothing is sent to it."""
    pid = start(BUSY)
    os.kill(pid, signal.SIGSTOP)
    seen = Window(pid)
    seen.run(0.5)

    main, _ = measured.scheduling(seen.processes[pid])
    assert main.ran is not None
    assert main.ran < 0.2
    assert main.suspended == 1.0
    reading = counters.process(pid, 0.0)
    assert reading is not None
    assert reading.stat.state == "T"


def test_a_number_that_is_nobody_has_no_window() -> None:
    """The highest number of all is never given."""
    seen = Window(4_194_304)
    seen.run(0.1)

    assert not seen.processes


@given(st.lists(st.integers(0, 1 << 40), max_size=200))
def test_steady_growth_is_found_and_nothing_else(sizes: list[int]) -> None:
    """What falls back in between is no growth."""
    looks = [(index * 0.05, size) for index, size in enumerate(sizes)]
    rate = measured.growth(looks)

    assert rate is None or rate == 0.0 or sizes[-1] > min(sizes[: len(sizes) // 4])


def test_a_leak_is_growth() -> None:
    """40 MB a second for 5 s."""
    looks = [(index * 0.05, 1_000_000_000 + index * 2_000_000) for index in range(100)]

    assert measured.growth(looks) == pytest.approx(40e6, rel=0.05)
    assert measured.growth([(at, 1_000_000_000) for at, _ in looks]) == 0.0


def test_switches_for_finding_faults_are_known() -> None:
    """A switch that is off is none."""
    assert programs.debug({"CUDA_LAUNCH_BLOCKING": "1", "TORCH_DISTRIBUTED_DEBUG": "OFF"}, "") == ("CUDA_LAUNCH_BLOCKING=1",)
    assert programs.debug({"CUDA_LAUNCH_BLOCKING": "0"}, "python -X dev train.py") == ("-X dev",)


def test_a_group_that_does_not_tell_its_throttling_is_unknown() -> None:
    """Not 'never stopped'."""
    first, last = Cgroup(version=2, path="/job", nr_periods=10), Cgroup(version=2, path="/job", nr_periods=90, nr_throttled=20)

    assert throttled_share(first, last) is None
    assert throttled_share(msgspec.structs.replace(first, nr_throttled=12), last) == 0.1


def test_a_group_with_a_quota_in_no_period_is_unknown() -> None:
    """It did not run; one without a quota is never stopped."""
    still = Cgroup(version=2, path="/job", nr_periods=10, nr_throttled=2, cpu_quota=2.0)

    assert throttled_share(still, still) is None
    assert throttled_share(still, msgspec.structs.replace(still, cpu_quota=0.0)) == 0.0


def test_a_cpu_that_came_meanwhile_is_not_counted() -> None:
    """Its counters are of all the time since the machine started."""
    looked = Window(os.getpid())
    looked.machine_first = machine.MachineReading({0: 100}, {0: 200}, {}, None)
    looked.machine_last = machine.MachineReading({0: 150, 1: 9_000}, {0: 300, 1: 10_000}, {}, None)

    assert rates.busy_cpus(looked, None) == 0.5


def test_shares_of_a_window_are_bounded_and_known_of_enough() -> None:
    """Waiting is never more than all of the time; of fewer than a thousand pages no share is told."""
    looked = Window(os.getpid())
    looked.ended = looked.began + 2
    looked.machine_first = machine.MachineReading({}, {}, {"cpu": 0}, None, remote_pages=(0, 0))
    looked.machine_last = machine.MachineReading({}, {}, {"cpu": 2_000_900}, None, remote_pages=(750, 250))
    assert (rates.pressure(looked, "cpu"), rates.remote_share(looked)) == (1.0, 0.25)

    looked.machine_last = looked.machine_last._replace(remote_pages=(750, 249))
    assert rates.remote_share(looked) is None


def test_pages_of_the_machine_are_counted_a_second() -> None:
    """Each of the three is a difference of its own counter; one that this kernel does not have is unknown."""
    looked = Window(os.getpid())
    looked.ended = looked.began + 2
    looked.machine_first = machine.MachineReading({}, {}, {}, 100, refaulted=1_000, available_bytes=50_000)
    looked.machine_last = machine.MachineReading({}, {}, {}, 110, refaulted=1_600, available_bytes=10_000)
    assert [rate(looked) for rate in PAGE_RATES] == [5.0, 300.0, -20_000.0]

    looked.machine_first = machine.MachineReading({}, {}, {}, None)
    assert [rate(looked) for rate in PAGE_RATES] == [None, None, None]


PAGE_RATES = (rates.swapped_per_s, rates.refaulted_per_s, rates.available_growth_per_s)


def test_what_the_kernel_counts_of_pages_is_read_by_its_names() -> None:
    """Kernels before 5.9 count all refaults as one: that is not what is asked for, and unknown."""
    vmstat = b"numa_local 70\nnuma_other 30\nworkingset_refault_anon 4\nworkingset_refault_file 50\npswpin 1\npswpout 2\nswpin_zero 900\n"

    assert machine.paging(vmstat) == (3, 54, (70, 30))
    assert machine.paging(vmstat.replace(b"_refault_anon", b"_refault")) == (3, None, (70, 30))
    assert machine.paging(b"pswpin 1\nnuma_local 5\n") == (None, None, None)


def waits(pid: int) -> Counter[str]:
    """In which calls its main thread is seen."""
    seen = Window(pid)
    seen.run(0.3)
    return seen.processes[pid].looks


@needs_system_calls
@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("import time; time.sleep(60)", "sleeping"),
        ("import select; select.select([], [], [], 60)", "sleeping"),
        ("import os, select; select.select([os.pipe()[0]], [], [], 60)", "polling"),
        ("import os, select; p = select.poll(); p.register(os.pipe()[0]); p.poll(60_000)", "polling"),
        ("import os; pipe = os.pipe(); os.read(pipe[0], 1)", "polling"),
        ("import asyncio; asyncio.run(asyncio.sleep(60))", "polling"),
        ("import asyncio\nasync def poll():\n    while True: await asyncio.sleep(0.05)\nasyncio.run(poll())", "timed"),
        ("import threading; threading.Event().wait()", "futex"),
        ("import threading; threading.Event().wait(60)", "locked"),
    ],
)
def test_a_thread_waits_in_one_kind_of_call(start, code: str, call: str) -> None:  # type: ignore[no-untyped-def]
    """To sleep is not to wait for a pipe, although Python up to 3.10 sleeps in select(2), of no file."""
    pid = start(code)
    deadline = time.monotonic() + 20
    looks = waits(pid)
    while not 0 < looks[call] == looks["looks"] and time.monotonic() < deadline:  # it may still start
        looks = waits(pid)

    kinds = {"locked": {"locked", "futex"}, "timed": {"timed", "polling"}}.get(call, {call})
    assert {kind for kind in ("syncing", "locked", "polling", "timed", "sleeping", "futex") if looks[kind]} == kinds
    assert looks[call] == looks["asked"] == looks["looks"]


def test_neighbours_are_told_the_busiest_first() -> None:
    """What a thread of the kernel that has ended did is counted whole: nobody knows where it ran."""
    looked = Window(os.getpid())
    looked.ended = looked.began + 1
    gone = 2**22 + 1
    looked.machine_first = machine.MachineReading({}, {}, {}, None)
    looked.machine_last = looked.machine_first._replace(
        spent={gone: counters.Spent("kworker", 50, kernel=True)}
        | {gone + number: counters.Spent(f"p{number}", ticks, kernel=False) for number, ticks in ((1, 10), (2, 80), (3, 40))}
    )
    outside = rates.outside(looked, CpuSet([0]))

    assert [name for name, _, _ in outside.programs] == ["p2", "p3", "p1"]
    assert outside.kernel_cpus == pytest.approx(0.5)


def test_others_are_those_outside_of_the_job(start) -> None:  # type: ignore[no-untyped-def]
    """Neither the job nor this process is its own neighbour, and who is gets named."""
    job, other = start(BUSY), start(BUSY)
    seen = Window(job)
    seen.run(1.0)
    outside = {pid: (name, pid, cpus) for name, pid, cpus in rates.outside(seen).programs}

    assert other in outside
    assert not outside.keys() & {job, os.getpid()}
    around = programs.machine(seen, None, torch=(), other_programs=0, governor=None)
    if outside[other][2] >= neighbours.MIN_NAMED:
        assert f"(pid {other})" in (neighbours.named([outside[other]]) or "")
        crowded = len((around.others or "").split(",")) == neighbours.MAX_NAMED  # those that use most
        assert f"(pid {other})" in (around.others or "") or crowded


def test_who_may_not_run_on_the_jobs_cpus_is_no_neighbour(start) -> None:  # type: ignore[no-untyped-def]
    """A program that fills other CPUs takes nothing from the job."""
    here, elsewhere = sorted(os.sched_getaffinity(0))[:2]
    near, far = start(BUSY), start(BUSY)
    os.sched_setaffinity(near, {here})
    os.sched_setaffinity(far, {elsewhere})
    outside = rates.Outside(0.0, (("python", far, 9.0), ("python", near, 0.5), ("sh", near, 0.01)))
    looked = _spent({near: counters.Spent("python", 0, kernel=False), far: counters.Spent("python", 0, kernel=False)})

    assert neighbours.named(neighbours.by_kind(looked, outside, (), CpuSet([here])).programs) == f"python (pid {near}) 0.5"
    assert {pid for _, pid, _ in neighbours.by_kind(looked, outside, (), None).programs} == {near, far}


def _spent(spent: dict[int, counters.Spent]) -> Window:
    looked = Window(os.getpid())
    looked.machine_last = machine.MachineReading({}, {}, {}, None, spent=spent)
    return looked


def test_neighbours_are_told_by_kind() -> None:
    """A PyTorch program has its workers' CPUs; what a run of sysperf started is the run's; a pipe's other end is the job's own."""
    first = 2**22
    job, torch, worker, verify, trial, build, tee = range(first + 1, first + 8)
    looked = _spent(
        {
            job: counters.Spent("python", 0, kernel=False, parent=1, group=job),
            torch: counters.Spent("python", 0, kernel=False, parent=1, group=torch),
            worker: counters.Spent("pt_data_worker", 0, kernel=False, parent=torch, group=torch),
            verify: counters.Spent("sysperf", 0, kernel=False, parent=1, group=verify),
            trial: counters.Spent("python", 0, kernel=False, parent=verify, group=trial),
            build: counters.Spent("cc1plus", 0, kernel=False, parent=1, group=build),
            tee: counters.Spent("tee", 0, kernel=False, parent=1, group=job),
        }
    )
    looked.processes[job] = None  # type: ignore[assignment]  # only its number counts
    used = ((torch, 0.2), (worker, 0.5), (verify, 0.1), (trial, 0.9), (build, 0.6), (tee, 0.3))
    outside = rates.Outside(0.0, tuple((looked.machine_last.spent[pid].name, pid, cpus) for pid, cpus in used))
    seen = neighbours.by_kind(looked, outside, (torch, trial), None, is_sysperf=lambda pid: pid == verify)

    assert neighbours.named(seen.torch) == f"python (pid {torch}) 0.7"
    assert neighbours.named(seen.trials) == f"sysperf (pid {verify}) 1.0"
    assert neighbours.named(seen.programs) == f"cc1plus (pid {build}) 0.6"
    assert seen.helper_cpus == pytest.approx(0.3)


def test_the_other_end_of_the_jobs_pipe_is_no_neighbour() -> None:
    """A script's shell leads the group of both: the pipe tells who reads what the job writes, and not who writes into it, too."""
    read, write = os.pipe()
    sleeps = (sys.executable, "-c", "import time; time.sleep(600)")
    job, beside = (subprocess.Popen(sleeps, stdin=subprocess.DEVNULL, stdout=write) for _ in range(2))
    parser = subprocess.Popen(sleeps, stdin=read, stdout=subprocess.DEVNULL)
    os.close(read)
    os.close(write)
    try:
        pids = (parser.pid, beside.pid)
        looked = _spent({pid: counters.Spent("python", 0, kernel=False, parent=1, group=1) for pid in (job.pid, *pids)})
        looked.processes[job.pid] = None  # type: ignore[assignment]  # only its number counts
        seen = neighbours.by_kind(looked, rates.Outside(0.0, tuple(("python", pid, 0.5) for pid in pids)), (), None)
    finally:
        for process in (job, beside, parser):
            process.kill()
            process.wait()

    assert ([pid for _, pid, _ in seen.helpers], [pid for _, pid, _ in seen.programs]) == ([parser.pid], [beside.pid])


def test_commands_that_ended_are_their_parents() -> None:
    """A script runs one short command after the other; what one had used before the window is not counted, nor what init takes over."""
    shell, make, compiler, gone = (2**22 + number for number in range(1, 5))
    looked = Window(os.getpid())
    looked.ended = looked.began + 1
    empty = machine.MachineReading({}, {}, {}, None)
    looked.machine_first = empty._replace(
        spent={
            1: counters.Spent("init", 0, kernel=False),
            shell: counters.Spent("bash", 10, kernel=False, parent=1, ended_ticks=1000),
            make: counters.Spent("make", 5, kernel=False, parent=shell, ended_ticks=100),
            compiler: counters.Spent("cc1plus", 400, kernel=False, parent=make),
            gone: counters.Spent("python", 90_000, kernel=False, parent=1),
        }
    )
    looked.machine_last = empty._replace(
        spent={
            1: counters.Spent("init", 0, kernel=False, ended_ticks=90_010),
            shell: counters.Spent("bash", 12, kernel=False, parent=1, ended_ticks=1000 + 5 + 100 + 400 + 60),
        }
    )

    assert {pid: round(used, 2) for _, pid, used in rates.outside(looked).programs} == {shell: 0.62, 1: 0.0}


def test_hours_of_orphans_are_not_those_of_who_takes_them_over() -> None:
    """A terminal is closed: the user's manager waits for what ran in it. Numbers that were used again go round in a circle."""
    terminal, shell, trained, manager, one, other = (2**22 + number for number in range(1, 7))
    looked = Window(os.getpid())
    looked.ended = looked.began + 1
    empty = machine.MachineReading({}, {}, {}, None)
    stays = {terminal: counters.Spent("tmux", 0, kernel=False, parent=1)}
    looked.machine_first = empty._replace(
        spent={
            **stays,
            manager: counters.Spent("systemd", 0, kernel=False, parent=1),
            shell: counters.Spent("bash", 0, kernel=False, parent=terminal),
            trained: counters.Spent("python", 9_000_000, kernel=False, parent=shell),
            one: counters.Spent("a", 0, kernel=False, parent=other),
            other: counters.Spent("b", 0, kernel=False, parent=one),
        }
    )
    looked.machine_last = empty._replace(
        spent={**stays, manager: counters.Spent("systemd", 2, kernel=False, parent=1, ended_ticks=9_000_010)}
    )

    assert {pid: round(used, 2) for _, pid, used in rates.outside(looked).programs} == {manager: 0.02, terminal: 0.0}


def test_the_kernels_work_on_other_cpus_hides_no_neighbour(start) -> None:  # type: ignore[no-untyped-def]
    """Its threads there take nothing from the job, and nothing from what others take."""
    here, elsewhere = sorted(os.sched_getaffinity(0))[:2]
    bound = start(BUSY)
    os.sched_setaffinity(bound, {elsewhere})
    looked = Window(os.getpid())
    looked.ended = looked.began + 5
    looked.machine_first = machine.MachineReading({here: 0}, {here: 0}, {}, None)
    looked.machine_last = machine.MachineReading(
        {here: 0}, {here: 500}, {}, None, spent={bound: counters.Spent("kworker", 400, kernel=True)}
    )

    around = programs.machine(looked, CpuSet([here]), torch=(), other_programs=0, governor=None)
    assert (around.others_cpus, around.left_share) == (1.0, 0.0)
    assert rates.outside(looked, CpuSet([elsewhere])).kernel_cpus == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("busy", "ready", "left"), [(0, False, 1.0), (250, False, 0.5), (250, True, 0.5), (0, True, 0.75), (500, True, 0.0)]
)
def test_others_leave_what_they_neither_use_nor_are_ready_for(busy: int, ready: bool, left: float) -> None:
    """Of four CPUs; who waits for a CPU takes one as soon as the job leaves it."""
    cpus, waiting = range(4), {2**22 + 1: counters.Spent("cc1plus", busy, kernel=False, ready=ready)}
    looked = Window(os.getpid())
    looked.ended = looked.began + 5
    looked.machine_first = machine.MachineReading(dict.fromkeys(cpus, 0), dict.fromkeys(cpus, 0), {}, None, spent=waiting)
    looked.machine_last = machine.MachineReading(dict.fromkeys(cpus, 500 - busy), dict.fromkeys(cpus, 500), {}, None, spent=waiting)

    assert programs.machine(looked, CpuSet(cpus), torch=(), other_programs=0, governor=None).left_share == pytest.approx(left)


def test_a_neighbour_is_steady_only_if_it_is_there_all_the_time() -> None:
    """Of ten half seconds a command of others fills two."""
    looked = Window(os.getpid())
    looked.parts = [machine.Part({0: idle}, {0: 50 * number}, 20 * number) for number, idle in enumerate((0, 30, 60, 60, 60, 90, 120))]

    assert rates.others_steady(looked, None, 0.25) == pytest.approx(2 / 6)
    assert rates.others_steady(looked, CpuSet([0]), 0.25) == pytest.approx(2 / 6)
    looked.parts = looked.parts[:3]
    assert rates.others_steady(looked, None, 0.25) is None


def test_who_waits_for_a_cpu_beside_the_job_is_counted(start) -> None:  # type: ignore[no-untyped-def]
    """Three others are ready all the time, whatever each of them gets; what the job itself starts is none of them."""
    others, job = [start(BUSY) for _ in range(3)], start(PARENT)
    wait_for_child(job)
    seen = Window(job)
    seen.run(1.0)
    for at in ("machine_first", "machine_last"):  # beside them, others of the machine may be ready
        reading = getattr(seen, at)
        setattr(seen, at, reading._replace(spent={pid: reading.spent[pid] for pid in (*others, *seen.processes) if pid in reading.spent}))

    assert len(seen.processes) == 2
    assert rates.others_ready(seen, None) == 3
    for pid in others:
        os.sched_setaffinity(pid, {0})
    assert rates.others_ready(seen, CpuSet([1])) == 0


FORKS = """
import os, time
while not os.path.exists({go!r}):
    time.sleep(0.02)
for _ in range(3):
    if not os.fork():
        end = time.process_time() + 0.6
        while time.process_time() < end:
            pass
        os._exit(0)
    os.wait()
open({done!r}, "w").close()
time.sleep(60)
"""


def test_what_begins_and_ends_within_the_window_is_counted_once(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Workers that are made again and again would count as a neighbour else, or hide one: three of them, each 0.6 s of CPU time."""
    go, done = tmp_path / "go", tmp_path / "done"
    seen = Window(start(FORKS.format(go=str(go), done=str(done))))
    while not seen.parts:
        seen.run(0.6)
    go.touch()
    while not done.exists():
        seen.run(0.6)
    seen.run(0.6)  # takes a part, however few looks a busy machine leaves it

    assert rates.used_cpus(seen) * seen.seconds == pytest.approx(1.8, abs=0.2)
    assert (seen.parts[-1].job_ticks - seen.parts[0].job_ticks) / TICKS_PER_S == pytest.approx(1.8, abs=0.2)


def test_new_processes_are_searched_for_by_the_clock() -> None:
    """Of looks that come late, as on a busy machine, there are few: parts of the window are half seconds all the same."""
    now = 0.0

    def late(seconds: float) -> None:
        nonlocal now
        now += max(seconds, 0.3)

    looked = Window(os.getpid(), clock=lambda: now, sleep=late)
    looked.run(3.0)

    assert len(looked.parts) == 5


def stat_of(pid: int, ticks: int, ended: int = 0) -> Stat:
    return Stat(f"{pid} (python) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 {ended} 0 20 0 1 0 9 0 100")


def test_hours_of_a_child_that_ends_are_none_of_the_window() -> None:
    """Its parent's ended children grow by all of its life when it is waited for."""
    job = JobTime()
    job.begin(stat_of(1, 50), from_start=True)
    job.begin(stat_of(2, 360_000), from_start=True)
    job.update({1: stat_of(1, 60), 2: stat_of(2, 360_030)}, {2: 1})
    assert job.ticks == 40
    job.update({1: stat_of(1, 60, ended=360_035)}, {2: 1})

    assert job.ticks == 45


def test_what_a_child_had_from_its_own_children_is_handed_over_too() -> None:
    """All of it is among the ended children of the process that waited; parents that are each other's end the search."""
    job = JobTime()
    job.begin(stat_of(1, 0), from_start=True)
    job.begin(stat_of(2, 10, ended=90), from_start=True)
    job.update({1: stat_of(1, 0, ended=100)}, {2: 1})
    assert job.ticks == 0

    job.begin(stat_of(3, 10), from_start=True)
    job.update({1: stat_of(1, 0, ended=100)}, {3: 4, 4: 3})
    assert job.ticks == 0


def test_a_child_that_nobody_waits_for_stays_counted() -> None:
    """And one whose parent ended with it is among the ended children of the process above."""
    orphan, family = JobTime(), JobTime()
    for job in (orphan, family):
        job.begin(stat_of(1, 0), from_start=True)
        job.begin(stat_of(2, 10), from_start=False)
        job.begin(stat_of(3, 20), from_start=False)
    orphan.update({1: stat_of(1, 5)}, {2: 1, 3: 2})
    family.update({1: stat_of(1, 5, ended=37)}, {2: 1, 3: 2})

    assert (orphan.ticks, family.ticks) == (35, 42)


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans(), st.booleans()), min_size=1, max_size=20))
def test_each_tick_is_counted_once(children: list[tuple[int, bool, bool]]) -> None:
    """Of any row of children: seen before their end or not, and waited for before their parent is read or right after."""
    job, ended, parents = JobTime(), 0, dict.fromkeys(range(2, 22), 1)
    job.begin(stat_of(1, 0), from_start=True)
    for pid, (ticks, was_seen, is_late) in enumerate(children, 2):
        if was_seen:
            job.begin(stat_of(pid, ticks // 2), from_start=False)
            job.update({1: stat_of(1, 0, ended), pid: stat_of(pid, ticks)}, parents)
        if is_late:
            job.update({1: stat_of(1, 0, ended)}, parents)
        ended += ticks
        job.update({1: stat_of(1, 0, ended)}, parents)

    assert job.ticks == sum(ticks for ticks, _, _ in children)


def test_a_number_that_another_process_has_now_is_not_the_program() -> None:
    """It would be looked into in the program's place."""
    looked = Window(os.getpid())
    looked.run(0.1)
    assert looked.alive()
    looked.processes[os.getpid()].first.stat.start_ticks -= 1

    assert not looked.alive()


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt-get install strace")
def test_who_stops_a_program_at_its_system_calls_is_named() -> None:
    """The kernel says who traces a process."""
    script = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    command = ("strace", "-f", "-o", os.devnull, sys.executable, "-c", script)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as started:
        assert started.stdout is not None
        pid = int(started.stdout.readline())
        names = programs.tracer(pid), programs.tracer(os.getpid())
        os.killpg(started.pid, signal.SIGKILL)

    assert names == ("strace", "")


@needs_system_calls
def test_a_thread_that_sleeps_in_a_call_of_a_file_waits_for_no_pipe(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """A file system of a program answers late while the thread sleeps, in no state D; here a file that nobody opens to write."""
    os.mkfifo(tmp_path / "late")
    pid = start(f"open({str(tmp_path / 'late')!r})")
    window = Window(pid)
    window.run(1.0)

    main, _ = measured.scheduling(window.processes[pid])

    assert (main.reading, main.polling, main.blocked) == (1.0, 0.0, 0.0)


def test_a_sampler_that_stops_the_program_is_named(start) -> None:  # type: ignore[no-untyped-def]
    """It is py-spy by its name, and asks for this program; one that stops nothing, and one that looks at another program, are none."""
    pid = start("import time; time.sleep(60)")
    others = ("--pid", str(pid), "--nonblocking"), ("--pid", "1"), ("--rate", str(pid), "--pid", "1"), ("--pid", str(os.getpid()))

    for asked in others:
        assert not _sampled_by(pid, "record", *asked)
    assert not _sampled_by(pid, "dump", "--pid", str(pid))
    for named in ((f"--pid={pid}",), ("-p", str(pid)), ("-s", "--pid", str(os.getpid()))):
        assert _sampled_by(pid, "record", *named)


def _sampled_by(pid: int, *arguments: str) -> bool:
    with contextlib.ExitStack() as stack:
        number = _named_py_spy(stack, *arguments)
        window = Window(pid)
        window.run(0.1)
        return programs.sampled_by(window, pid) == f"py-spy (pid {number})"


def test_a_sampler_of_one_rank_is_none_of_the_others(start) -> None:  # type: ignore[no-untyped-def]
    """Both are of one job; what has started one of them under itself samples that one."""
    pid = start(PARENT)
    time.sleep(0.3)
    with contextlib.ExitStack() as stack:
        number = _named_py_spy(stack, "record", "--pid", str(pid))
        window = Window(pid)
        window.run(0.2)
        (child,) = (process for process in window.processes if process != pid)

        assert programs.sampled_by(window, pid) == f"py-spy (pid {number})"
        assert programs.sampled_by(window, child) == ""


def test_a_sampler_that_has_started_the_program_is_named(start) -> None:  # type: ignore[no-untyped-def]
    """`py-spy record -- python train.py` names no process, and the program is the one that is asked about."""
    under = "import ctypes, subprocess, sys; ctypes.CDLL(None).prctl(15, b'py-spy'); subprocess.run([sys.executable, '-c', sys.argv[2]])"
    number = start(f"import os, sys; os.execv(sys.executable, [sys.executable, '-c', {under!r}, 'record', 'import time; time.sleep(60)'])")
    pid = int(_children(number)[0])
    window = Window(pid)
    window.run(0.1)

    assert programs.sampled_by(window, pid) == f"py-spy (pid {number})"


def _children(pid: int) -> list[str]:
    deadline = time.monotonic() + 20
    while not (found := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def _named_py_spy(stack: contextlib.ExitStack, *arguments: str) -> int:
    """A process of this name that only sleeps."""
    named = "import ctypes, sys, time; ctypes.CDLL(None).prctl(15, b'py-spy'); print(flush=True); time.sleep(60)"
    process = stack.enter_context(subprocess.Popen((sys.executable, "-c", named, *arguments), stdout=subprocess.PIPE))
    stack.callback(process.kill)
    assert process.stdout
    process.stdout.readline()
    return process.pid


def test_a_program_with_one_cpu_of_its_parents_is_bound(start) -> None:  # type: ignore[no-untyped-def]
    """The parent may use what the test may; where that is one CPU, nothing is known of a binding."""
    ours = os.sched_getaffinity(0)
    pid = start(f"import os, time; os.sched_setaffinity(0, {{{min(ours)}}}); time.sleep(60)")
    window = Window(pid)
    window.run(0.1)
    watched = window.processes[pid]

    assert programs._pinned_from(watched, CpuSet([min(ours)])) == (CpuSet(ours) if len(ours) > 1 else None)
    assert programs._pinned_from(watched, CpuSet(ours) | CpuSet([min(ours) + 1])) is None


def test_a_group_is_slowed_down_for_memory_as_often_as_its_events_grow() -> None:
    """Of two readings of the same group; of another group, and of an old kernel, it is unknown."""
    before, after = Cgroup(path="/pod", memory_high_events=10), Cgroup(path="/pod", memory_high_events=52)

    assert slowed_for_memory(before, after) == 42
    assert slowed_for_memory(before, Cgroup(path="/other", memory_high_events=52)) is None
    assert slowed_for_memory(before, Cgroup(path="/pod")) is None
