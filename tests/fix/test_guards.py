"""Guards, bounds and orders: what nobody sees until it is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sysperf.fix import journal_log, recovery, restore, transaction
from sysperf.fix.journal_log import JournalError
from sysperf.fix.plan import plan
from sysperf.host import Host
from sysperf.model.change import Setting
from sysperf.model.knob import KNOBS
from tests.fix import journals
from tests.fix.conftest import Victim
from tests.fix.kernel import BALANCING, DIRTY, SWAPPINESS, THP, Machine, apply, asked, wish
from tests.io_classes import io_class


def test_what_somebody_sets_while_the_journal_is_written_is_not_lost(sandbox: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may take its time: the value is read again just before it is written, and the step says what happened."""
    sync = os.fsync

    def slow(descriptor: int) -> None:
        sync(descriptor)
        if sandbox.journal.numbers() and sandbox.journal.read(1).steps:
            sandbox.kernel.put(SWAPPINESS, "33")

    monkeypatch.setattr(os, "fsync", slow)
    done = apply(sandbox, "vm.swappiness=10")
    assert sandbox.kernel.get(SWAPPINESS) == "33"
    assert done.state == "rolled-back"
    assert done.steps[0].reason == "it has become 33 while its old value was written to the journal"


@pytest.mark.root(mounts=True)
def test_undoing_works_from_a_read_only_journal(sandbox: Machine) -> None:
    """Values are back; that the journal does not say so is reported, and it is written down when it can be."""
    apply(sandbox, "vm.swappiness=10", "thp.enabled=always")
    script = f"""
import os, subprocess
from pathlib import Path
from sysperf.fix import recovery
from sysperf.fix.journal_log import JournalError
from tests.fix.kernel import Machine, apply
from tests.io_classes import io_class
subprocess.run(["mount", "--bind", {str(sandbox.folder / "state")!r}, {str(sandbox.folder / "state")!r}], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", {str(sandbox.folder / "state")!r}], check=True)
machine = Machine(Path({str(sandbox.folder)!r}))
try: recovery.undo(machine.host, machine.journal, 1)
except JournalError as error: print(error)
try: apply(machine, "vm.dirty_ratio=33")
except JournalError as error: print(error)
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = ["unshare", "-m", "--propagation", "private", sys.executable, "-c", script]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert not done.returncode, done.stderr
    undoing, applying = done.stdout.splitlines()
    assert "Read-only file system (all values are back; the journal does not say so yet)" in undoing
    assert "Read-only file system" in applying
    assert (sandbox.kernel.get(SWAPPINESS), sandbox.kernel.get(DIRTY)) == ("60", "20")
    assert "[madvise]" in sandbox.kernel.get(THP)
    assert [result.step.state for result in recovery.undo(sandbox.host, sandbox.journal, 1)] == ["undone", "undone"]


def test_steps_are_undone_last_first(sandbox: Machine) -> None:
    """A later step may stand on an earlier one: in rolling back and in undoing."""
    sandbox.kernel.deaf.add("/sys/block/nvme0n1/queue/read_ahead_kb")
    apply(sandbox, "vm.swappiness=10", "vm.dirty_ratio=33", "thp.enabled=always", "block.read_ahead_kb@nvme0n1=512")
    back = [path for path, _ in sandbox.kernel.writes[4:] if "read_ahead" not in path]
    assert back == [THP, DIRTY, SWAPPINESS]

    sandbox.kernel.writes.clear()
    apply(sandbox, "vm.swappiness=10", "vm.dirty_ratio=33")
    recovery.undo(sandbox.host, sandbox.journal, sandbox.journal.numbers()[-1])
    assert [path for path, _ in sandbox.kernel.writes] == [SWAPPINESS, DIRTY, DIRTY, SWAPPINESS]


@pytest.mark.parametrize("force", [False, True])
def test_after_a_restart_no_process_is_touched(sandbox: Machine, victim: Victim, force: bool) -> None:
    """Its number and start time may be another's by chance: a setting of a process ends with the machine."""
    apply(sandbox, f"process.io_class@{victim.pid}=idle")
    journals.another_boot(sandbox.journal)
    (undone,) = recovery.undo(sandbox.host, sandbox.journal, 1, force=force)
    assert (undone.step.state, undone.message) == ("gone", "the machine restarted since")
    assert io_class(victim.pid) == "idle"


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_root_believes_no_journal_that_a_group_or_anybody_can_write(sandbox: Machine, mode: int) -> None:
    """Each bit alone is enough, of the file and of the folder."""
    apply(sandbox, "vm.swappiness=10")
    path = Path(sandbox.journal.path(1))
    path.chmod(0o644 | mode)
    assert sandbox.journal.read(1).state == "damaged"
    with pytest.raises(JournalError, match="believe"):
        recovery.undo(sandbox.host, sandbox.journal, 1)
    path.chmod(0o644)
    Path(sandbox.journal.folder).chmod(0o755 | mode)
    with pytest.raises(JournalError, match="believe"):
        recovery.undo(sandbox.host, sandbox.journal, 1)
    assert sandbox.kernel.get(SWAPPINESS) == "10"


def test_a_ratio_is_left_alone_while_bytes_are_in_force(tmp_path: Path) -> None:
    """The kernel shows 0 for the one that is not in force, and writing it would switch the other off."""
    machine = Machine.make(tmp_path / "m", {DIRTY: "0", "/proc/sys/vm/dirty_bytes": "67108864"})
    planned = machine.plan("vm.dirty_ratio=20")
    assert not planned.changes
    assert planned.skipped[0].reason == "vm.dirty_bytes is in force instead"


def test_every_new_name_is_on_the_disk(sandbox: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is made or replaced has a name after a power loss when its folder was synced."""
    synced: list[str] = []
    monkeypatch.setattr(journal_log, "sync_folder", synced.append)
    apply(sandbox, "vm.swappiness=10", lease_s=300)
    assert synced == [sandbox.journal.folder]
    for _ in range(journal_log.MAX_LINES + 1):
        recovery.renew(sandbox.journal, 1, 300)
    assert synced == [sandbox.journal.folder] * 2


def test_every_new_folder_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each folder that is made is synced into the one that holds it."""
    from sysperf.fix import journal

    synced: list[str] = []
    monkeypatch.setattr(journal, "sync_folder", synced.append)
    with journal.Journal(str(tmp_path / "a/b")).locked():
        assert sorted(synced) == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a/b")]


def test_an_interrupted_transaction_stays_open_until_all_is_back(sandbox: Machine) -> None:
    """What cannot be put back now is tried again: a transaction that is closed would be forgotten."""
    apply(sandbox, "vm.swappiness=10", "kernel.numa_balancing=0")
    journals.edit(sandbox.journal, lambda line: line if line["line"] != "end" else None)
    sandbox.kernel.refusing[BALANCING] = 1
    with sandbox.journal.locked():
        recovery.recover(sandbox.host, sandbox.journal)
    assert (sandbox.journal.read(1).state, sandbox.kernel.get(SWAPPINESS)) == ("open", "60")
    sandbox.kernel.refusing.clear()
    with sandbox.journal.locked():
        recovery.recover(sandbox.host, sandbox.journal)
    assert (sandbox.journal.read(1).state, sandbox.kernel.get(BALANCING)) == ("rolled-back", "1")


def test_no_guard_no_change(sandbox: Machine) -> None:
    """Who should end the lease beside the keeper is asked before anything is changed."""

    def refuse(_: int) -> None:
        assert sandbox.kernel.get(SWAPPINESS) == "60"
        raise JournalError("nobody would end it")

    with pytest.raises(JournalError, match="nobody"):
        transaction.apply(sandbox.host, sandbox.journal, sandbox.plan("vm.swappiness=10"), asked(60)._replace(guard=refuse))
    assert not sandbox.kernel.writes


@pytest.mark.parametrize(("value", "accepted"), [(64 << 20, True), (1 << 48, True), ((1 << 48) + 1, False), (9999999999999999999, False)])
def test_shared_memory_has_an_upper_bound(value: int, accepted: bool) -> None:
    """A size that no machine has is no value."""
    assert KNOBS["shm.size_bytes"].accepts(str(value)) == accepted


def test_shared_memory_is_not_larger_than_the_memory() -> None:
    """Programs that fill it would take the machine down."""
    skipped = plan(Host(), [Setting("shm.size_bytes", str(1 << 48))]).skipped
    assert "of memory" in skipped[0].reason or "no tmpfs of its own" in skipped[0].reason


def test_every_number_has_two_bounds() -> None:
    """None takes whatever fits into 19 digits."""
    assert not [knob.name for knob in KNOBS.values() if not knob.choices and not knob.listed and (knob.low is None or knob.high is None)]


def test_nodes_that_a_process_may_not_use_are_refused(victim: Victim) -> None:
    """The kernel would leave them out silently, and the journal would claim what did not happen."""
    planned = plan(Host(), [wish(f"process.pages@{victim.pid}=0-1023")])
    assert not planned.changes
    assert planned.skipped[0].reason.startswith("the process may not use node")
    assert not planned.skipped[0].already


def test_memory_that_did_not_move_is_no_success(sandbox: Machine, victim: Victim) -> None:
    """All pages stayed where they were: refused."""
    from sysperf.fix import targets

    pages = targets.find(sandbox.host, KNOBS["process.pages"], str(victim.pid))[0]
    assert pages.took("0-1", "1")
    assert not pages.took("0", "1")
    assert pages.fulfils("0", "0-1")
    assert not pages.fulfils("0-1", "0")


def test_a_held_limit_of_an_unknown_keeper_is_reported() -> None:
    """The line that names the process that holds it is damaged: it would be said to be undone, and hold on."""
    from sysperf.model.change import Change, Step

    step = Step(Change("cpu.dma_latency_us", "", "/dev/cpu_dma_latency", "2000000000", "20"), "applied")
    undoing: Any = restore.Undoing(keeper_unknown=True)
    assert restore.restore(Host(), step, undoing).state is None
    assert restore.restore(Host(), step, restore.Undoing()).state == "undone"
