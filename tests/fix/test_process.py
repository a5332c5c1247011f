"""Settings of a running process: every thread gets its own value back, and no other process ever gets one."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import textwrap
import time
from ctypes import c_int
from pathlib import Path
from typing import Any

import pytest

from sysperf.fix import recovery, standing, transaction
from sysperf.host import Host
from sysperf.host.syscalls import syscall
from sysperf.model.change import Transaction
from tests.fix import journals
from tests.fix.conftest import Victim
from tests.fix.kernel import Machine, asked
from tests.privileges import real_root

CPUS = sorted(os.sched_getaffinity(0))
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU only")
only_root = real_root("nobody else may lower a nice value")
ROOT = Path(__file__).resolve().parents[2]


def apply(machine: Machine, *wishes: str) -> Transaction:
    """Plan and apply."""
    planned = machine.plan(*wishes)
    assert planned.changes, planned.skipped
    return transaction.apply(machine.host, machine.journal, planned, asked())


def undo(machine: Machine, number: int = 1, **options: Any) -> list[tuple[str, str]]:
    return [(result.step.state, result.message) for result in recovery.undo(machine.host, machine.journal, number, **options)]


def values(victim: Victim) -> list[tuple[int, tuple[int, ...], int]]:
    """(nice, CPUs, I/O priority) of each thread."""
    return [
        (os.getpriority(os.PRIO_PROCESS, tid), tuple(sorted(os.sched_getaffinity(tid))), syscall("ioprio_get", c_int(1), c_int(tid)))
        for tid in victim.tids
    ]


@two_cpus
@only_root
def test_each_thread_gets_its_own_value_back(sandbox: Machine, victim: Victim) -> None:
    """Threads that differed before are made alike, and differ again afterwards."""
    os.setpriority(os.PRIO_PROCESS, victim.tids[1], 4)
    os.sched_setaffinity(victim.tids[2], CPUS[:1])
    syscall("ioprio_set", c_int(1), c_int(victim.tids[3]), c_int(2 << 13 | 2))
    before = values(victim)
    pid = victim.pid
    done = apply(sandbox, f"process.nice@{pid}=9", f"process.cpus@{pid}={CPUS[1]}", f"process.io_class@{pid}=idle")

    assert done.state == "applied"
    assert {(nice, cpus, io >> 13) for nice, cpus, io in values(victim)} == {(9, (CPUS[1],), 3)}
    assert [state for state, _ in undo(sandbox)] == ["undone"] * 3
    assert values(victim) == before
    assert undo(sandbox) == []


@two_cpus
def test_a_list_of_cpus_is_written_as_the_kernel_does(sandbox: Machine, victim: Victim) -> None:
    """``1,0`` is ``0-1``: what is so already is no change, and a blank or a zero more is not another value."""
    every = ",".join(map(str, reversed(CPUS)))
    assert sandbox.plan(f"process.cpus@{victim.pid}={every}").skipped[0].already
    assert apply(sandbox, f"process.cpus@{victim.pid}= 0{CPUS[0]} ").state == "applied"


def test_a_process_that_has_ended_is_gone(sandbox: Machine, victim: Victim) -> None:
    """Nothing is written, nothing stays in force."""
    apply(sandbox, f"process.io_class@{victim.pid}=idle")
    victim.end()
    assert [state for state, _ in undo(sandbox)] == ["gone"]
    assert sandbox.journal.read(1).state == "undone"
    assert sandbox.plan(f"process.nice@{victim.pid}=5").skipped[0].reason == "the process has ended"


def _of_another_life(line: journals.Words) -> journals.Words:
    return {**line, "change": {**line["change"], "start_time": 1}} if "change" in line else line


def test_another_process_of_the_same_number_is_left_alone(sandbox: Machine, victim: Victim) -> None:
    """The start time tells them apart, for undoing and for handing over."""
    pid = victim.pid
    apply(sandbox, f"process.io_class@{pid}=idle")
    journals.edit(sandbox.journal, _of_another_life)
    before = values(victim)
    assert undo(sandbox) == [("gone", "the process has ended")]
    assert values(victim) == before


def test_a_later_change_of_a_new_process_does_not_inherit(sandbox: Machine, victim: Victim) -> None:
    """The first was about an earlier process: its value before is not what the second goes back to."""
    pid = victim.pid
    apply(sandbox, f"process.io_class@{pid}=idle")
    journals.edit(sandbox.journal, _of_another_life)
    apply(sandbox, f"process.io_class@{pid}=best-effort")
    assert [state for state, _ in undo(sandbox, 1)] == ["gone"]
    assert [state for state, _ in undo(sandbox, 2)] == ["undone"]
    assert {io >> 13 for _, _, io in values(victim)} == {3}


def test_a_thread_that_somebody_moved_is_kept(sandbox: Machine, victim: Victim) -> None:
    """One of four threads has a third value: the setting is somebody's now."""
    apply(sandbox, f"process.io_class@{victim.pid}=idle")
    syscall("ioprio_set", c_int(1), c_int(victim.tids[2]), c_int(2 << 13 | 7))
    assert undo(sandbox)[0][0] == "foreign"
    assert undo(sandbox, force=True)[0][0] == "undone"
    assert {io >> 13 for _, _, io in values(victim)} == {0}


def test_a_thread_that_was_put_back_by_hand_is_seen(sandbox: Machine, victim: Victim) -> None:
    """The list says that somebody did; undoing puts the others back."""
    apply(sandbox, f"process.io_class@{victim.pid}=idle")
    syscall("ioprio_set", c_int(1), c_int(victim.tids[2]), c_int(0))
    assert standing.standings(sandbox.host, sandbox.journal, sandbox.journal.read(1))[0].verdict == "changed"
    assert undo(sandbox)[0][0] == "undone"
    assert {io >> 13 for _, _, io in values(victim)} == {0}


@pytest.mark.root(users=True)
def test_another_users_process_needs_root(tmp_path: Path, victim: Victim) -> None:
    """The plan says so; nothing is tried."""
    nobody, lower = pwd.getpwnam("nobody").pw_uid, os.nice(0) + 3
    script = f"""
    import ctypes, json, os, resource, subprocess, tempfile
    from sysperf.fix import plan, recovery, transaction
    from sysperf.fix.journal import Journal
    from sysperf.host import Host, syscalls
    from sysperf.model.change import Setting
    from tests.fix.kernel import asked
    os.setgid({nobody}); os.setuid({nobody})  # from here on the interpreter's own files may be out of reach
    host, own = Host(), os.getpid()
    reasons = [plan.plan(host, [Setting(*wish)]).skipped[0].reason for wish in (
        ("process.nice", "{lower}", "{victim.pid}"), ("process.nice", "{lower}", str(own)), ("vm.swappiness", "61", ""))]
    child = subprocess.Popen(["sleep", "60"])
    folder = tempfile.mkdtemp()
    done = transaction.apply(host, Journal(folder), plan.plan(host, [Setting("process.io_class", "idle", str(child.pid))]), asked())
    undone = recovery.undo(host, Journal(folder), 1)
    child.kill()
    print(json.dumps([*reasons, done.state, undone[0].step.state]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    assert not done.returncode, done.stderr
    foreign, own, setting, state, undone = json.loads(done.stdout)
    assert foreign == "the process belongs to another user: only root may"
    assert own == f"only root could set it back to {os.nice(0)}", "giving up priority is free, and getting it back is not"
    assert "only root" in setting or "read-only" in setting
    assert (state, undone) == ("applied", "undone")


@only_root
def test_threads_that_start_meanwhile_are_included(sandbox: Machine) -> None:
    """A program that starts threads all the time: after applying, and after undoing, none is left out."""
    program = "import threading, time\nprint(1, flush=True)\nwhile True:\n    threading.Thread(target=time.sleep, args=(0.2,)).start()\n    time.sleep(0.001)\n"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout
        child.stdout.readline()
        time.sleep(0.1)
        assert apply(sandbox, f"process.nice@{child.pid}=3").state == "applied"
        assert _nices(child.pid) == {3}
        assert [state for state, _ in undo(sandbox)] == ["undone"]
        assert _nices(child.pid) == {os.nice(0)}
    finally:
        child.kill()
        child.communicate()


def _nices(pid: int) -> set[int]:
    return set(
        map(int, subprocess.run(["ps", "-L", "-o", "ni=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout.split())
    )


def test_two_io_classes_have_no_level(victim: Victim) -> None:
    """``none:4``, as old kernels report it, could not be set again; ``idle:7``, as ionice sets it, is idle."""
    from sysperf.fix.process import IoClass
    from sysperf.model.knob import KNOBS

    target = IoClass(Host(), KNOBS["process.io_class"], victim.pid)
    assert target.read() == "none"
    for tid in victim.tids:
        syscall("ioprio_set", c_int(1), c_int(tid), c_int(3 << 13 | 7))
    assert target.read() == "idle"


def test_a_containers_root_gives_up_no_priority(sandbox: Machine, victim: Victim) -> None:
    """Root of a user namespace could not set it back: what can not be undone is not done."""
    script = f"""
    import os
    from pathlib import Path
    from tests.fix.kernel import Machine
    print(os.geteuid(), Machine(Path({str(sandbox.folder)!r})).plan("process.nice@{victim.pid}=15").skipped[0].reason)
    """
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == f"0 only root outside of this container could set it back to {os.nice(0)}"
