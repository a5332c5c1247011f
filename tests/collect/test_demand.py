"""What a program wants of the CPUs: running or ready to run, by thread and by worker, and what keeps its threads waiting."""

from __future__ import annotations

import pytest

from sysperf.collect.process import collect
from sysperf.collect.process.demand import Wanted, share_a_lock
from sysperf.collect.process.records import Process
from sysperf.model.cpuset import CpuSet
from tests.collect.programs import LIBTORCH, VERSION, process, stat
from tests.conftest import Files, MakeMachine

UPTIME = {"/proc/uptime": "27.00 9.00\n"}
"""Process 70 started at 7 s, so it is 20 s old."""
GOMP = "/venv/lib/python3.12/site-packages/torch/lib/libgomp-a34b3233.so.1"
WAITS_WITH_LIMIT = "202 0x7f969ad4e6f4 0x89 0x0 0x7f9678f28ae0 0x0 0xffffffff 0x7f9678f289b0 0x7f969a6a3f16\n"
WAITS = "202 0x7f96827e5ae0 0x189 0x0 0x0 0x0 0xffffffff 0x7f967c7fedb0 0x7f969a6a3f16\n"


def spent(run_s: float, wait_s: float) -> str:
    return f"{int(run_s * 1e9)} {int(wait_s * 1e9)} 99\n"


def threads(count: int, run_s: float, wait_s: float, call: str = "running\n") -> Files:
    """Process 70 with this many threads of the main one's name, each of which ran and waited so long in 20 s."""
    files = {**VERSION, **UPTIME, **process(70, threads=("python",) * (count - 1))}
    for tid in range(70, 70 + count):
        files[f"/proc/70/task/{tid}/stat"] = stat(tid, ticks=int(run_s * 100), start=700)
        files[f"/proc/70/task/{tid}/schedstat"] = spent(run_s, wait_s)
        files[f"/proc/70/task/{tid}/syscall"] = call
    return files


def only(machine: MakeMachine, files: Files) -> Process:
    (program,) = collect(machine(files)).processes
    return program


def test_a_starving_team_wants_more_than_it_receives(machine: MakeMachine) -> None:
    """Sixteen threads that ran for one second each and were ready for nineteen want sixteen CPUs and use 0.8."""
    process_facts = only(machine, threads(16, 1.0, 19.0))

    assert (
        process_facts.threads.wanted_cpus,
        process_facts.threads.used_cpus,
        process_facts.threads.computing,
        process_facts.threads.sharing_lock,
    ) == (
        16.0,
        0.8,
        16,
        0,
    )


def test_threads_that_take_turns_are_no_team(machine: MakeMachine) -> None:
    """Eight threads of Python wait with a time limit for the interpreter's lock: one computes at a time."""
    process_facts = only(machine, threads(8, 2.5, 3.0, WAITS_WITH_LIMIT))

    assert (process_facts.threads.computing, process_facts.threads.sharing_lock, process_facts.threads.lock_waiters) == (1, 8, 8)


def test_an_openmp_team_that_sleeps_most_of_the_time_shares_no_lock(machine: MakeMachine) -> None:
    """An idle thread of OpenMP waits without a time limit."""
    process_facts = only(machine, threads(8, 2.5, 0.0, WAITS))

    assert (process_facts.threads.computing, process_facts.threads.sharing_lock, process_facts.threads.lock_waiters) == (8, 0, 0)


@pytest.mark.parametrize(
    ("count", "team", "waiters", "shares"),
    [
        (8, Wanted(4.2, 0.4), 6, True),  # on a busy machine each wakes up to ask for its turn
        (8, Wanted(8.0, 1.9), 6, False),  # two CPUs' worth: no lock holds them to one
        (8, Wanted(1.1, 1.0), None, True),  # who may not look goes by what they want
        (8, Wanted(4.2, 1.0), None, False),
        (2, Wanted(1.0, 1.0), 2, False),
        (8, None, 8, False),
    ],
)
def test_what_counts_as_taking_turns(count: int, team: Wanted | None, waiters: int | None, shares: bool) -> None:
    """More than two threads, hardly more than one CPU, and a third of them waiting with a limit."""
    assert share_a_lock(count, team, waiters) is shares


def test_without_schedstat_nobody_knows(machine: MakeMachine) -> None:
    """Absent is unknown, not idle."""
    process_facts = only(machine, {**VERSION, **UPTIME, **process(70)})

    assert (
        process_facts.threads.wanted_cpus,
        process_facts.threads.used_cpus,
        process_facts.workers.wanted_share,
        process_facts.reads.calls,
    ) == (
        None,
        None,
        0.0,
        None,
    )


def test_workers_that_starve_and_their_age(machine: MakeMachine) -> None:
    """Two workers of 10 and 5 s that were ready or ran all the time; a third began just now and says nothing yet."""
    workers = {**process(71, "pt_data_worker", ppid=70), **process(72, "pt_data_worker", ppid=70), **process(73, "pt_data_worker", ppid=70)}
    files = {**VERSION, **UPTIME, **process(70), **workers}
    files |= {f"/proc/{pid}/stat": stat(pid, "pt_data_worker", ppid=70, start=start) for pid, start in ((71, 1700), (72, 2200), (73, 2699))}
    files |= {"/proc/71/schedstat": spent(2, 8), "/proc/72/schedstat": spent(1, 4), "/proc/73/schedstat": spent(0, 0)}
    files |= {"/proc/70/io": "rchar: 4096\nsyscr: 8\n", "/proc/71/io": "rchar: 904\nsyscr: 2\n"}

    process_facts = only(machine, files)

    assert (process_facts.workers.count, process_facts.workers.wanted_share, process_facts.workers.age_s) == (3, 0.667, 10.0)
    assert (process_facts.reads.calls, process_facts.reads.bytes) == (10, 5000)


def test_children_that_ended_are_told_by_their_cpu_time(machine: MakeMachine) -> None:
    """The kernel adds what ended children used to their parent, as workers of each epoch do."""
    line = stat(70).split()
    line[15], line[16] = "250", "50"

    assert only(machine, {**VERSION, **UPTIME, **process(70), "/proc/70/stat": " ".join(line) + "\n"}).children.ended_cpu_s == 3.0


def bound(main: str, other: str, *, workers: int = 0, parent: str = "0-3", mapped: tuple[str, ...] = (LIBTORCH, GOMP)) -> Files:
    """A program whose main thread may use `main`, and its second thread `other`."""
    files = {**VERSION, **UPTIME, "/proc/1/status": f"Cpus_allowed_list:\t{parent}\n", **process(70, threads=("python",), mapped=mapped)}
    for path in ("/proc/70/status", "/proc/70/task/70/status"):
        files[path] = f"Cpus_allowed_list:\t{main}\n"
    files["/proc/70/task/71/status"] = f"Cpus_allowed_list:\t{other}\n"
    for pid in range(80, 80 + workers):
        files |= process(pid, "pt_data_worker", ppid=70, allowed=main)
    return files


@pytest.mark.parametrize(
    ("files", "openmp_bound", "before"),
    [
        (bound("0", "1"), True, "0-3"),  # each thread of the team has its own CPU: set inside the script
        (bound("0", "0"), False, "0"),  # taskset, as far as anybody can tell
        (bound("0", "0", workers=2), True, "0-3"),  # workers on the one CPU of the main thread
        (bound("0-1", "0-1", workers=2), False, "0-1"),  # taskset or numactl to two CPUs
        (bound("0", "1", mapped=(LIBTORCH,)), False, "0"),  # no OpenMP runtime to bind anything
        (bound("0", "0", workers=2, parent="0"), False, "0"),  # the parent has no more
    ],
)
def test_a_binding_of_the_script_shows_in_the_masks(machine: MakeMachine, files: Files, openmp_bound: bool, before: str) -> None:
    """OpenMP leaves the main thread one core; its team, its parent and its workers tell whether that is its work."""
    process_facts = only(machine, files)

    assert (process_facts.affinity.openmp_bound, process_facts.affinity.at_start) == (openmp_bound, CpuSet.parse(before))
