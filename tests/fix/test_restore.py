"""Putting one step back: what is ours goes back, what is somebody else's stays, what is gone is gone, and what failed is said."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysperf.fix import keepers, latency, process, recovery, transaction
from sysperf.fix.journal_lines import StepStarted
from sysperf.fix.lease import boot_id
from sysperf.fix.restore import Undoing, restore
from sysperf.host import Host
from sysperf.model.change import Change, Keeper, Step
from tests.fix import journals
from tests.fix.conftest import Victim
from tests.fix.kernel import HUGEPAGES, LATENCY, POLICY, RELAXED_US, SWAPPINESS, Machine, apply, asked
from tests.privileges import real_root


def undo(machine: Machine, number: int = 1) -> list[tuple[str, str]]:
    """(state, message) of the steps that were taken back."""
    return [(result.step.state, result.message) for result in recovery.undo(machine.host, machine.journal, number)]


def test_a_value_that_does_not_come_back_is_not_undone(sandbox: Machine) -> None:
    """The kernel takes the old value and keeps its own: the step stays in force, with what it reads, and is tried again."""
    apply(sandbox, "vm.swappiness=10")
    sandbox.kernel.deaf.add(SWAPPINESS)
    assert undo(sandbox) == [("applied", "it reads 10 after 60 was written")]
    assert sandbox.journal.read(1).live

    sandbox.kernel.deaf.clear()
    assert undo(sandbox) == [("undone", "")]


@pytest.mark.parametrize(
    ("number", "state"),
    [(errno.ENOENT, "gone"), (errno.ESRCH, "gone"), (errno.ENODEV, "gone"), (errno.EBUSY, "applied"), (errno.EACCES, "applied")],
)
def test_only_what_does_not_exist_any_more_is_gone(sandbox: Machine, number: int, state: str) -> None:
    """A device that was removed while its file is open answers ENODEV; what refuses is there, and is tried again."""
    apply(sandbox, "vm.swappiness=10")
    sandbox.kernel.refusing[SWAPPINESS] = number

    assert undo(sandbox) == [(state, os.strerror(number))]


@real_root("nobody else may lower a nice value")
@pytest.mark.parametrize("before", ["many", "9" * 400])
def test_a_value_of_a_journal_that_is_none_costs_its_step_only(sandbox: Machine, victim: Victim, before: str) -> None:
    """Somebody edited it: no number where a number belongs, or one that no integer of C holds. Undoing goes on with the next step."""
    apply(sandbox, "vm.swappiness=10", f"process.nice@{victim.pid}=5")
    journals.edit(sandbox.journal, lambda line: {**line, "change": {**line["change"], "before": before}} if "nice" in str(line) else line)

    assert [state for state, _ in undo(sandbox)] == ["applied", "undone"]
    assert sandbox.kernel.get(SWAPPINESS) == "60"


def test_what_somebody_else_put_back_is_no_longer_theirs(sandbox: Machine) -> None:
    """A step that was kept because its value was foreign, and is as it was before by now."""
    apply(sandbox, "vm.swappiness=10")
    sandbox.kernel.put(SWAPPINESS, "33")
    assert undo(sandbox) == [("foreign", "somebody has set it to 33 since")]
    sandbox.kernel.put(SWAPPINESS, "60")

    assert undo(sandbox) == [("undone", "it was so already")]


def test_who_may_have_set_it_is_named(tmp_path: Path) -> None:
    """A daemon runs that sets it by itself."""
    machine = Machine.make(tmp_path / "m", {"/proc/100/comm": "sleep"})
    machine.kernel.has_processes = True
    apply(machine, "cpu.max_freq_khz=3000000")
    machine.kernel.put("/proc/100/comm", "thermald")
    machine.kernel.put(f"{POLICY}1/scaling_max_freq", "1200000")

    assert ("foreign", "somebody has set it to 1200000 since (thermald?)") in undo(machine)


# ---------------------------------------------------------------------- what the kernel may take a part of


@pytest.mark.parametrize(
    ("before", "after", "now", "state"),
    [
        ("0", "400", "200", "undone"),
        ("400", "100", "200", "undone"),
        ("100", "400", "50", "foreign"),
        ("0", "400", "500", "foreign"),
    ],
)
def test_a_part_of_what_was_asked_for_is_ours(sandbox: Machine, before: str, after: str, now: str, state: str) -> None:
    """Killed before it was read back, whether more huge pages were wanted or fewer; what lies outside of both is somebody's."""
    sandbox.kernel.put(HUGEPAGES, before)
    change = sandbox.plan(f"vm.nr_hugepages={after}").changes[0]
    with sandbox.journal.locked(), sandbox.journal.begin(boot=boot_id(), by="", why="", taken_at="") as log:
        log.add(StepStarted(0, change))
    sandbox.kernel.put(HUGEPAGES, now)

    assert [found for found, _ in undo(sandbox)] == [state]
    assert sandbox.kernel.get(HUGEPAGES) == (before if state == "undone" else now)


def test_a_part_is_ours_only_while_nobody_has_read_what_came_of_it(sandbox: Machine) -> None:
    """400 were read back: 200 is what somebody else set. After an undoing that failed half-way, it is what that left."""
    apply(sandbox, "vm.nr_hugepages=400")
    sandbox.kernel.put(HUGEPAGES, "200")
    assert [state for state, _ in undo(sandbox)] == ["foreign"]

    apply(sandbox, "vm.nr_hugepages=400")
    sandbox.kernel.refusing[HUGEPAGES] = errno.EBUSY
    assert [state for state, _ in undo(sandbox, 2)] == ["applied"]
    sandbox.kernel.refusing.clear()
    sandbox.kernel.put(HUGEPAGES, "300")
    assert [state for state, _ in undo(sandbox, 2)] == ["undone"]
    assert sandbox.kernel.get(HUGEPAGES) == "200"


def test_what_an_earlier_transaction_set_is_ours_after_it_was_handed_over(sandbox: Machine) -> None:
    """The second was killed before its write, and could not be recovered when the first was undone: 10 is the first's, not foreign."""
    apply(sandbox, "vm.swappiness=10")
    with sandbox.journal.locked(), sandbox.journal.begin(boot=boot_id(), by="", why="", taken_at="") as log:
        log.add(StepStarted(0, sandbox.plan("vm.swappiness=20").changes[0]))
    with sandbox.journal.locked():
        assert [result.step.state for result in recovery._undo(sandbox.host, sandbox.journal, 1)] == ["undone"]
    assert sandbox.kernel.get(SWAPPINESS) == "10"

    assert [state for state, _ in undo(sandbox, 2)] == ["undone"]
    assert sandbox.kernel.get(SWAPPINESS) == "60"


# ---------------------------------------------------------------------- memory of a process


def moved(victim: Victim, before: str) -> Step:
    """A step that moved a process's memory to node 0."""
    started = process.start_time(Host(), victim.pid)
    return Step(
        Change("process.pages", str(victim.pid), f"memory of process {victim.pid}", before, "0", start_time=started), "applied", "0"
    )


@pytest.mark.skipif(not os.path.exists("/proc/self/numa_maps"), reason="a kernel without NUMA support")
def test_memory_that_came_from_several_nodes_stays(sandbox: Machine, victim: Victim) -> None:
    """Which page was where is not known any more; from one node it is, and going back there is tried."""
    several, one = (restore(sandbox.host, moved(victim, before), Undoing()) for before in ("0-1", "1023"))

    assert several == ("gone", "memory came from nodes 0-1; which page was where is not known any more")
    assert one.state is None
    assert "not known" not in one.reason


# ---------------------------------------------------------------------- what a process holds

HELD = Step(Change("cpu.dma_latency_us", "", LATENCY, str(RELAXED_US), "20"), "applied")


@pytest.fixture
def holder() -> Iterator[Keeper]:
    """A process that might hold it."""
    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield Keeper(running.pid, process.start_time(Host(), running.pid))
    running.kill()
    running.communicate()


def test_what_the_helper_holds_is_the_helpers_to_give_up(sandbox: Machine, holder: Keeper) -> None:
    """Another process of ours ends neither the helper nor the step; of one that has ended, nothing is held."""
    helper = Keeper(holder.pid, holder.start_time, is_helper=True)
    ended = Keeper(holder.pid, holder.start_time + 1, is_helper=True)

    assert restore(sandbox.host, HELD, Undoing(keeper=helper)).state is None
    assert keepers.alive(helper)
    assert restore(sandbox.host, HELD, Undoing(keeper=ended)).state == "undone"
    assert keepers.alive(helper)


def test_a_keeper_that_is_known_is_ended_although_the_journal_is_damaged(sandbox: Machine, holder: Keeper) -> None:
    """Another line of it cannot be read: who holds it is known."""
    assert restore(sandbox.host, HELD, Undoing(keeper=holder, keeper_unknown=True)).state == "undone"
    os.waitpid(holder.pid, 0)
    assert not keepers.alive(holder)


def test_who_holds_it_himself_gives_it_up(sandbox: Machine) -> None:
    """As the helper does, which applies and undoes in one process."""
    (sandbox.folder / f"root{LATENCY}").write_bytes(struct.pack("=i", RELAXED_US))
    me = Keeper(os.getpid(), process.start_time(Host(), os.getpid()), is_helper=True)
    done = transaction.apply(sandbox.host, sandbox.journal, sandbox.plan("cpu.dma_latency_us=20"), asked(60)._replace(keep=lambda _: me))
    assert (done.state, len(latency.held())) == ("applied", 1)

    assert undo(sandbox) == [("undone", "")]
    assert latency.held() == []
