"""Leases: they end by themselves, whoever is killed, and nothing of them stays behind."""

from __future__ import annotations

import os
import resource
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from sysperf.fix import keeper, keepers, latency, recovery, standing, transaction
from sysperf.fix.journal import Journal
from sysperf.fix.journal_lines import End, StepResult, StepStarted
from sysperf.fix.lease import boot_id, lease_of
from sysperf.fix.plan import plan
from sysperf.host import Host
from sysperf.host.forked import close_all_but
from sysperf.model.change import Change, Keeper, Setting, Step, Transaction, TransactionState
from tests.fix import journals
from tests.fix.conftest import Victim
from tests.fix.kernel import LATENCY, RELAXED_US, SWAPPINESS, Machine, asked
from tests.io_classes import io_class, set_io_class


def leased(machine: Machine, *wishes: str, lease_s: float) -> Transaction:
    """Apply with a keeper."""
    request = asked(lease_s)._replace(keep=lambda number: keeper.start(machine.host, machine.journal, number))
    return transaction.apply(machine.host, machine.journal, machine.plan(*wishes), request)


def until(what: Callable[[], object], seconds: float = 10.0) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def keeper_of(leased_change: Transaction) -> Keeper:
    assert leased_change.keeper
    return leased_change.keeper


@pytest.fixture
def machine(sandbox: Machine) -> Iterator[Machine]:
    """A made machine; no keeper outlives the test."""
    yield sandbox
    latency.release()
    for leased_change in sandbox.journal.transactions():
        if leased_change.keeper and keepers.alive(leased_change.keeper) and leased_change.keeper.pid != os.getpid():
            os.kill(leased_change.keeper.pid, signal.SIGKILL)


def test_a_lease_ends_by_itself(machine: Machine) -> None:
    """The value is back, the keeper is gone."""
    leased_change = leased(machine, "vm.swappiness=10", lease_s=0.5)
    assert machine.kernel.get(SWAPPINESS) == "10"
    assert keepers.alive(keeper_of(leased_change))
    assert until(lambda: machine.kernel.get(SWAPPINESS) == "60")
    assert until(lambda: not keepers.alive(keeper_of(leased_change)))
    assert machine.journal.read(1).state == "undone"


def test_a_keeper_holds_nothing(machine: Machine) -> None:
    """No lock, no terminal, no file but the null device, no folder that could not be unmounted."""
    with open(machine.folder / "open", "w") as left:
        keeper_process = keeper_of(leased(machine, "vm.swappiness=10", lease_s=60))
        assert left.fileno() > 2

        def opened() -> set[str]:
            return {os.readlink(f"/proc/{keeper_process.pid}/fd/{name}") for name in os.listdir(f"/proc/{keeper_process.pid}/fd")}

        assert until(lambda: opened() == {os.devnull})  # it has tried the lock once
    assert os.readlink(f"/proc/{keeper_process.pid}/cwd") == "/"
    assert os.getsid(keeper_process.pid) != os.getsid(0)
    with machine.journal.locked(0.0):
        pass


def signals(pid: int, what: str) -> set[int]:
    """The signals that a process ignores (SigIgn) or has handlers for (SigCgt)."""
    with open(f"/proc/{pid}/status") as file:
        (mask,) = (int(line.split()[1], 16) for line in file if line.startswith(f"{what}:"))
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def test_who_starts_a_keeper_has_no_child_of_it(machine: Machine) -> None:
    """The helper lives on for months, and would collect a zombie with each lease."""

    def children() -> set[str]:
        return {name for name in os.listdir("/proc") if name.isdigit() and parent_of(name) == os.getpid()}

    before = children()
    leased(machine, "vm.swappiness=10", lease_s=60)

    assert children() == before


def parent_of(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:  # it has ended meanwhile
        return None


def test_a_keeper_outlives_the_terminal_and_ends_when_it_is_asked_to(machine: Machine) -> None:
    """What a command does on a signal is not its keeper's: no Ctrl-C and no closed terminal ends a lease early, SIGTERM ends it."""
    usual = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)}
    try:
        keeper_process = keeper_of(leased(machine, "vm.swappiness=10", lease_s=60))
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)

    assert {signal.SIGINT, signal.SIGHUP} <= signals(keeper_process.pid, "SigIgn")
    assert not {signal.SIGINT, signal.SIGHUP, signal.SIGTERM} & signals(keeper_process.pid, "SigCgt")
    os.kill(keeper_process.pid, signal.SIGTERM)
    assert until(lambda: not keepers.alive(keeper_process))


def test_undoing_dismisses_the_keeper(machine: Machine) -> None:
    """It has nothing left to do."""
    keeper_process = keeper_of(leased(machine, "vm.swappiness=10", lease_s=60))
    recovery.undo(machine.host, machine.journal, 1)
    assert until(lambda: not keepers.alive(keeper_process))
    assert machine.kernel.get(SWAPPINESS) == "60"


def test_a_lease_that_is_renewed_holds_on(machine: Machine) -> None:
    """The keeper looks at the journal again when the time has come."""
    leased_change = leased(machine, "vm.swappiness=10", lease_s=0.7)
    recovery.renew(machine.journal, 1, 60)
    time.sleep(1.2)
    assert machine.kernel.get(SWAPPINESS) == "10"
    assert keepers.alive(keeper_of(leased_change))


def test_a_keeper_that_was_killed_is_replaced_by_recovering(machine: Machine) -> None:
    """The lease is in the journal; before it ends, nothing is taken back."""
    keeper_process = keeper_of(leased(machine, "vm.swappiness=10", lease_s=0.8))
    os.kill(keeper_process.pid, signal.SIGKILL)
    with machine.journal.locked():
        assert recovery.recover(machine.host, machine.journal) == []
    time.sleep(0.9)
    assert machine.kernel.get(SWAPPINESS) == "10"
    with machine.journal.locked():
        recovery.recover(machine.host, machine.journal)
    assert machine.kernel.get(SWAPPINESS) == "60"


def test_who_applies_is_killed_before_the_end(machine: Machine) -> None:
    """With a keeper running and the transaction still open: the keeper takes it back, and leaves."""
    child = os.fork()
    if child == 0:

        def keep(number: int) -> Keeper:
            started = keeper.start(machine.host, machine.journal, number)
            (machine.folder / "keeper").write_text(f"{started.pid} {started.start_time}")
            os.kill(os.getpid(), signal.SIGKILL)
            return started

        transaction.apply(machine.host, machine.journal, machine.plan("vm.swappiness=10"), asked(600)._replace(keep=keep))
        os._exit(0)
    os.waitpid(child, 0)
    pid, start_time = map(int, (machine.folder / "keeper").read_text().split())
    started = Keeper(pid, start_time)

    assert until(lambda: machine.kernel.get(SWAPPINESS) == "60")
    assert until(lambda: not keepers.alive(started))
    assert machine.journal.read(1).state == "rolled-back"


def test_a_keeper_waits_for_those_at_work(machine: Machine) -> None:
    """While somebody else has the lock, the lease can not end; afterwards it does, and nobody was kept from working."""
    with machine.journal.locked():
        pass
    leased_change = leased(machine, "vm.swappiness=10", lease_s=0.3)
    with machine.journal.locked():
        time.sleep(0.8)
        assert machine.kernel.get(SWAPPINESS) == "10"
    assert until(lambda: machine.kernel.get(SWAPPINESS) == "60")
    assert until(lambda: not keepers.alive(keeper_of(leased_change)))


def test_what_can_not_be_put_back_is_tried_again_by_its_keeper(machine: Machine) -> None:
    """The keeper stays until it is."""
    file = machine.folder / f"root{SWAPPINESS}"
    keeper_process = keeper_of(leased(machine, "vm.swappiness=10", lease_s=0.3))
    os.rename(machine.folder / "root/proc/sys/vm", machine.folder / "vm")
    (machine.folder / "root/proc/sys/vm").write_text("")  # ENOTDIR, which is not "gone"
    time.sleep(0.6)
    assert not file.exists()
    os.unlink(machine.folder / "root/proc/sys/vm")
    os.rename(machine.folder / "vm", machine.folder / "root/proc/sys/vm")
    if machine.journal.read(1).live:
        assert until(lambda: machine.kernel.get(SWAPPINESS) == "60")
    assert until(lambda: not keepers.alive(keeper_process))


def test_a_keepers_number_in_another_life_is_not_killed(machine: Machine) -> None:
    """After a restart a process may have the same number and start time."""
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        from sysperf.fix import process
        from sysperf.fix.journal_lines import KeeperStarted

        transaction.apply(machine.host, machine.journal, machine.plan("vm.swappiness=10"), asked())
        with machine.journal.locked(), machine.journal.resume(1) as log:
            log.add(KeeperStarted(Keeper(bystander.pid, process.start_time(Host(), bystander.pid))))
        journals.another_boot(machine.journal)
        recovery.undo(machine.host, machine.journal, 1)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.communicate()


def test_settings_of_gpus_are_taken_back_by_a_new_program(sandbox: Machine, victim: Victim) -> None:
    """NVML's connection to the driver does not survive a fork: the keeper becomes `sysperf undo --expired`, on the same journal."""
    host, pid = Host(), victim.pid
    idle = plan(host, [Setting("process.io_class", "idle", str(pid))]).changes[0]
    gpu = Change("gpu.persistence", "0000:01:00.0", "persistence mode of GPU 0000:01:00.0", "0", "1")
    with sandbox.journal.locked(), sandbox.journal.begin(boot=boot_id(), by="", why="", taken_at="", lease=lease_of(-1)) as log:
        for index, change in enumerate((gpu, idle)):
            log.add(StepStarted(index, change), StepResult(index, "applied", change.after))
        log.add(End("applied"))
    best = plan(host, [Setting("process.io_class", "best-effort", str(os.getpid()))]).changes[0]
    with sandbox.journal.locked(), sandbox.journal.begin(boot=boot_id(), by="", why="", taken_at="") as log:
        log.add(StepStarted(0, best), StepResult(0, "applied", "best-effort"), End("applied"))  # no lease of it ends
    set_io_class(pid, "idle")
    child = os.fork()
    if child == 0:
        try:
            close_all_but(())
            keeper._end(host, sandbox.journal, 1)
        finally:
            os._exit(77)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) != 77
    assert sandbox.journal.read(1).steps[1].state == "undone"
    assert sandbox.journal.read(2).steps[0].state == "applied"
    assert io_class(pid) == "none"


@pytest.mark.parametrize(
    ("state", "left_s", "nap_s"), [("applied", 3600.0, 60.0), ("applied", 20.0, 20.0), ("applied", -1.0, 0.5), ("open", 3600.0, 0.5)]
)
def test_a_keeper_looks_again_in_a_minute_at_the_latest(machine: Machine, state: TransactionState, left_s: float, nap_s: float) -> None:
    """A lease may be shortened; and what is not written as applied yet may be left behind by who was killed."""
    change = machine.plan("vm.swappiness=10").changes[0]
    leased_change = Transaction(number=1, state=state, steps=(Step(change, "applied"),), lease=lease_of(left_s))

    assert keeper._nap_s(leased_change) == pytest.approx(nap_s, abs=5 if left_s == 20 else 0)


# ---------------------------------------------------------------------- what only a process can hold


def limit(machine: Machine) -> int:
    """The wake-up limit in force."""
    value: int = struct.unpack("=i", os.read(machine.kernel.hold(LATENCY, os.O_RDONLY), 4))[0]
    return value


@pytest.fixture
def device(machine: Machine) -> Machine:
    """With the device node of wake-up limits."""
    (machine.folder / f"root{LATENCY}").write_bytes(struct.pack("=i", RELAXED_US))
    return machine


def test_a_wake_up_limit_holds_as_long_as_its_keeper(device: Machine) -> None:
    """Not the process that applied it, which ends; killing the keeper gives it up, too."""
    keeper_process = keeper_of(leased(device, "cpu.dma_latency_us=20", lease_s=60))
    assert latency.held() == []
    assert limit(device) == 20
    assert standing.standings(device.host, device.journal, device.journal.read(1))[0].verdict == "holds"
    os.kill(keeper_process.pid, signal.SIGKILL)
    assert until(lambda: limit(device) == RELAXED_US)
    assert [value.step.state for value in recovery.undo(device.host, device.journal, 1)] == ["undone"]


def test_undoing_gives_a_wake_up_limit_up(device: Machine) -> None:
    """Two of them, in either order: the stricter one is in force while it lasts."""
    leased(device, "cpu.dma_latency_us=20", lease_s=60)
    leased(device, "cpu.dma_latency_us=10", lease_s=60)
    assert limit(device) == 10
    recovery.undo(device.host, device.journal, 1)
    assert limit(device) == 10
    recovery.undo(device.host, device.journal, 2)
    assert until(lambda: limit(device) == RELAXED_US)


def test_a_lease_of_a_wake_up_limit_ends(device: Machine) -> None:
    """By itself."""
    keeper_process = keeper_of(leased(device, "cpu.dma_latency_us=20", lease_s=0.4))
    assert until(lambda: limit(device) == RELAXED_US)
    assert until(lambda: not keepers.alive(keeper_process))


def test_a_limit_looser_than_anothers_is_refused_and_not_kept(device: Machine) -> None:
    """Somebody wishes 5 already: ours changes nothing, and no wish of ours stays behind."""
    planned = device.plan("cpu.dma_latency_us=20")
    wish = device.kernel.hold(LATENCY, os.O_WRONLY)
    os.write(wish, struct.pack("=i", 5))
    done = transaction.apply(device.host, device.journal, planned, asked(60))
    assert done.state == "rolled-back"
    planned = device.plan("cpu.dma_latency_us=20")
    assert transaction.apply(device.host, device.journal, planned, asked(60)).steps[0].reason == "it reads 5 after 20 was written"
    assert latency.held() == []
    os.close(wish)
    assert limit(device) == RELAXED_US


def test_no_keeper_no_lease(sandbox: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it can not be started, nothing is changed."""
    monkeypatch.setattr(os, "fork", lambda: (_ for _ in ()).throw(BlockingIOError(11, "Resource temporarily unavailable")))
    with pytest.raises(OSError, match="temporarily"):
        leased(sandbox, "vm.swappiness=10", lease_s=5)
    assert sandbox.kernel.get(SWAPPINESS) == "60"
    assert Journal(str(sandbox.folder / "state")).read(1).state == "rolled-back"


def test_a_keeper_that_ends_before_it_says_who_it_is_keeps_nothing(sandbox: Machine) -> None:
    """It finds no room for a file of its own: the change is taken back, and the reason is said."""
    hungry = [True]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.register_at_fork(after_in_child=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1])) if hungry else None)

    def keep(number: int) -> Keeper:
        try:
            return keeper.start(sandbox.host, sandbox.journal, number)
        finally:
            hungry.clear()

    with pytest.raises(OSError, match="could not be started"):
        transaction.apply(sandbox.host, sandbox.journal, sandbox.plan("vm.swappiness=10"), asked(60)._replace(keep=keep))
    assert sandbox.kernel.get(SWAPPINESS) == "60"
    assert sandbox.journal.read(1).state == "rolled-back"
