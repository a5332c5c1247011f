"""ApplyPolicy as a whole and taking back: what was there, in any order, and nothing of anybody else's."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.fix import recovery, standing, transaction
from sysperf.model.change import Change, Keeper, Transaction
from tests.fix.kernel import BALANCING, DIRTY, HUGEPAGES, POLICY, QUEUE, SWAPPINESS, THP, Machine, asked, memory

SEVERAL = ("vm.swappiness=10", "thp.enabled=always", "cpu.governor=performance", "block.read_ahead_kb@nvme0n1=512", "vm.nr_hugepages=400")

FREQUENCY = f"{POLICY}0/scaling_max_freq"


def apply(machine: Machine, *wishes: str, **request: Any) -> Transaction:
    """Plan and apply."""
    return transaction.apply(machine.host, machine.journal, machine.plan(*wishes), asked(**request))


def undo(machine: Machine, number: int, *, force: bool = False) -> list[str]:
    """The states of the steps that were taken back."""
    return [result.step.state for result in recovery.undo(machine.host, machine.journal, number, force=force)]


def test_everything_is_applied_and_everything_comes_back(sandbox: Machine) -> None:
    """In reverse order, and a second time it changes nothing."""
    before = sandbox.kernel.state()
    done = apply(sandbox, *SEVERAL)
    order = [path for path, _ in sandbox.kernel.writes]

    assert done.state == "applied"
    assert sandbox.kernel.get(THP) == "[always] madvise never"
    assert [sandbox.kernel.get(f"{POLICY}{number}/scaling_governor") for number in (0, 1, 10)] == ["performance"] * 3
    sandbox.kernel.writes.clear()
    assert undo(sandbox, 1) == ["undone"] * 7
    assert [path for path, _ in sandbox.kernel.writes] == order[::-1]
    assert sandbox.kernel.state() == before
    sandbox.kernel.writes.clear()
    assert undo(sandbox, 1) == []
    assert not sandbox.kernel.writes
    assert sandbox.journal.read(1).state == "undone"


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EROFS, "Read-only file system"),
        (errno.EPERM, "Operation not permitted"),
        (errno.EINVAL, "Invalid argument"),
        (errno.EIO, "Input/output error"),
    ],
)
@pytest.mark.parametrize("path", [SWAPPINESS, THP, f"{POLICY}10/scaling_governor", HUGEPAGES])
def test_a_write_that_fails_takes_all_back(sandbox: Machine, path: str, number: int, reason: str) -> None:
    """Whichever step it is; the reason is told."""
    before = sandbox.kernel.state()
    sandbox.kernel.refusing[path] = number
    done = apply(sandbox, *SEVERAL)

    assert done.state == "rolled-back"
    assert [step.reason for step in done.steps if step.state == "refused"] == [reason]
    assert sandbox.kernel.state() == before


@pytest.mark.parametrize("path", [SWAPPINESS, THP, QUEUE + "read_ahead_kb"])
def test_a_write_that_does_not_take_is_refused(sandbox: Machine, path: str) -> None:
    """The kernel said yes, and kept its value."""
    before = sandbox.kernel.state()
    sandbox.kernel.deaf.add(path)
    done = apply(sandbox, *SEVERAL)

    (refused,) = [step for step in done.steps if step.state == "refused"]
    assert "after" in refused.reason
    assert done.state == "rolled-back"
    assert sandbox.kernel.state() == before


def test_a_part_is_not_enough(sandbox: Machine) -> None:
    """512 of 600 huge pages: refused, and none is left."""
    done = apply(sandbox, "vm.nr_hugepages=600")
    assert done.steps[0].reason == "it reads 512 after 600 was written"
    assert sandbox.kernel.get(HUGEPAGES) == "0"


def test_huge_pages_for_which_there_is_no_memory_are_not_tried(tmp_path: Path) -> None:
    """The kernel would take all that is available, from the programs that run, before anybody could see that it is too little."""
    machine = Machine.make(tmp_path / "m", {"/proc/meminfo": "MemAvailable:    1048576 kB\nHugepagesize:       2048 kB"})
    (left,) = machine.plan("vm.nr_hugepages=513").skipped

    assert left.reason == "it takes 1 GiB more, and 1 GiB are available"
    assert apply(machine, "vm.nr_hugepages=512").state == "applied"
    assert apply(machine, "vm.nr_hugepages=0").state == "applied"


def test_a_value_that_is_clamped_is_not_taken(sandbox: Machine) -> None:
    """One policy takes less than the others: all are as before."""
    before = sandbox.kernel.state()
    done = apply(sandbox, "cpu.max_freq_khz=5000000")
    assert "it reads 4000000 after 5000000" in done.steps[0].reason
    assert sandbox.kernel.state() == before


def test_a_plan_that_is_out_of_date_is_refused(sandbox: Machine) -> None:
    """Somebody was faster."""
    planned = sandbox.plan("thp.enabled=always", "vm.swappiness=10")
    sandbox.kernel.put(SWAPPINESS, "33")
    done = transaction.apply(sandbox.host, sandbox.journal, planned, asked())

    assert done.steps[1].reason == "it has become 33 since the plan was made"
    assert sandbox.kernel.get(SWAPPINESS) == "33"
    assert sandbox.kernel.get(THP) == "always [madvise] never"


def test_what_can_not_be_put_back_is_never_called_refused(sandbox: Machine) -> None:
    """A clamped value on a file that then refuses everything: the step stays open, with its reason, until undoing succeeds."""
    planned = sandbox.plan("cpu.max_freq_khz=5000000")
    real = sandbox.kernel.write

    def once(path: str, content: bytes) -> None:
        real(path, content)
        sandbox.kernel.refusing[FREQUENCY] = errno.EBUSY

    sandbox.kernel.write = once  # type: ignore[method-assign]  # a method of the made kernel
    done = transaction.apply(sandbox.host, sandbox.journal, planned, asked())
    assert (done.state, done.steps[0].state, done.steps[0].reason) == ("open", "intended", "Device or resource busy")
    sandbox.kernel.refusing.clear()
    sandbox.kernel.write = real  # type: ignore[method-assign]  # as above
    assert undo(sandbox, 1) == ["undone"]
    assert sandbox.kernel.get(FREQUENCY) == "3500000"


def test_what_refuses_to_go_back_is_tried_again(sandbox: Machine) -> None:
    """It stays in force, the journal does not grow with every try."""
    apply(sandbox, "vm.swappiness=10")
    sandbox.kernel.refusing[SWAPPINESS] = errno.EBUSY
    assert undo(sandbox, 1) == ["applied"]
    size = os.path.getsize(sandbox.journal.path(1))
    assert undo(sandbox, 1) == ["applied"]
    assert os.path.getsize(sandbox.journal.path(1)) == size
    sandbox.kernel.refusing.clear()
    assert undo(sandbox, 1) == ["undone"]


def test_what_does_not_come_back_while_a_change_is_refused_stays_open(sandbox: Machine) -> None:
    """Steps before it come back; the next command tries the rest again, before it changes anything."""
    before = sandbox.kernel.state()

    def progress(change: Change) -> None:
        if change.knob == "vm.dirty_ratio":
            sandbox.kernel.refusing[THP] = errno.EBUSY
            sandbox.kernel.deaf.add(DIRTY)

    plan = sandbox.plan("vm.swappiness=10", "thp.enabled=always", "vm.dirty_ratio=31")
    refused = transaction.apply(sandbox.host, sandbox.journal, plan, asked()._replace(progress=progress))
    assert (refused.state, sandbox.kernel.get(SWAPPINESS)) == ("open", "60")
    assert sandbox.kernel.get(THP) == "[always] madvise never"

    sandbox.kernel.refusing.clear()
    apply(sandbox, "vm.zone_reclaim_mode=1")
    assert sandbox.journal.read(1).state == "rolled-back"
    undo(sandbox, 2)
    assert sandbox.kernel.state() == before


def test_a_journal_that_is_full_when_all_is_back_keeps_nobody_waiting(sandbox: Machine) -> None:
    """That it was undone cannot be written down: the values are back all the same, and whoever comes next writes it."""
    before = sandbox.kernel.state()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    sandbox.kernel.deaf.add(DIRTY)
    real = sandbox.kernel.write

    def write(path: str, content: bytes) -> None:
        real(path, content)
        if (path, content) == (SWAPPINESS, b"60"):  # from now on nothing can be written to any file
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))

    sandbox.kernel.write = write  # type: ignore[method-assign]  # a method of the made kernel
    try:
        refused = apply(sandbox, "vm.swappiness=10", "vm.dirty_ratio=31")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (refused.state, refused.steps[1].reason) == ("open", "it reads 20 after 31 was written")
    assert sandbox.kernel.state() == before

    with sandbox.journal.locked():
        recovery.recover(sandbox.host, sandbox.journal)
    assert sandbox.journal.read(1).state == "rolled-back"


def test_nobody_keeps_what_was_refused(sandbox: Machine) -> None:
    """No process is started for a lease of nothing."""
    sandbox.kernel.deaf.add(SWAPPINESS)

    def keep(_: int) -> Keeper:
        raise AssertionError

    done = transaction.apply(sandbox.host, sandbox.journal, sandbox.plan("vm.swappiness=10"), asked(600)._replace(keep=keep))
    assert done.state == "rolled-back"


def test_a_signal_while_steps_are_undone_comes_afterwards(sandbox: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is undone first; then it does what it would have done, once."""
    before = sandbox.kernel.state()
    received: list[int] = []
    sandbox.kernel.deaf.add(DIRTY)
    write = sandbox.kernel.write

    def disturbed(path: str, content: bytes) -> None:
        write(path, content)
        if (path, content) == (SWAPPINESS, b"60"):
            for _ in range(2):
                signal.raise_signal(signal.SIGTERM)
            assert not received

    monkeypatch.setattr(sandbox.kernel, "write", disturbed)
    previous = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        assert apply(sandbox, "vm.swappiness=10", "vm.dirty_ratio=31").state == "rolled-back"
    finally:
        signal.signal(signal.SIGTERM, previous)

    assert received == [signal.SIGTERM]
    assert sandbox.kernel.state() == before


def test_what_belongs_to_somebody_else_stays(sandbox: Machine) -> None:
    """It is kept and named; the rest is taken back; --force takes it back too."""
    transaction.apply(sandbox.host, sandbox.journal, sandbox.plan("cpu.governor=performance", "vm.swappiness=10", force=True), asked())
    sandbox.kernel.put(f"{POLICY}1/scaling_governor", "schedutil")
    done = recovery.undo(sandbox.host, sandbox.journal, 1)

    assert [result.message for result in done if result.step.state == "foreign"] == ["somebody has set it to schedutil since"]
    assert sandbox.kernel.get(f"{POLICY}1/scaling_governor") == "schedutil"
    assert sandbox.kernel.get(SWAPPINESS) == "60"
    assert sandbox.journal.read(1).state == "partly-undone"
    assert undo(sandbox, 1) == ["foreign"]
    assert undo(sandbox, 1, force=True) == ["undone"]
    assert sandbox.kernel.get(f"{POLICY}1/scaling_governor") == "powersave"


def test_a_value_that_is_back_already_is_not_written(sandbox: Machine) -> None:
    """Somebody restored it by hand."""
    apply(sandbox, "vm.swappiness=10")
    sandbox.kernel.put(SWAPPINESS, "60")
    sandbox.kernel.writes.clear()
    assert undo(sandbox, 1) == ["undone"]
    assert not sandbox.kernel.writes


def test_what_is_gone_is_gone(sandbox: Machine) -> None:
    """A device that was unplugged does not stop the others."""
    apply(sandbox, "block.read_ahead_kb@nvme0n1=512", "vm.swappiness=10")
    os.rename(sandbox.folder / "root/sys/block/nvme0n1", sandbox.folder / "unplugged")
    assert undo(sandbox, 1) == ["undone", "gone"]
    assert sandbox.journal.read(1).state == "undone"


def test_a_foreign_value_between_two_of_ours_is_what_comes_back(sandbox: Machine) -> None:
    """60, sysperf 10, somebody 33, sysperf 20: taking the first back leaves the second to go back to 33."""
    apply(sandbox, "vm.swappiness=10")
    sandbox.kernel.put(SWAPPINESS, "33")
    apply(sandbox, "vm.swappiness=20")
    assert undo(sandbox, 1) == ["foreign"]
    assert undo(sandbox, 2) == ["undone"]
    assert sandbox.kernel.get(SWAPPINESS) == "33"


def test_a_later_change_of_ours_is_not_somebody_elses(sandbox: Machine) -> None:
    """The first is replaced, not changed; disowning leaves it alone."""
    apply(sandbox, "vm.swappiness=10")
    apply(sandbox, "vm.swappiness=20")
    (first,) = standing.standings(sandbox.host, sandbox.journal, sandbox.journal.read(1))
    assert (first.verdict, first.now) == ("replaced", "transaction 2")
    assert standing.release_ownership(sandbox.host, sandbox.journal, 1, 0) == ""
    assert undo(sandbox, 1) == ["undone"]
    assert undo(sandbox, 2) == ["undone"]
    assert sandbox.kernel.get(SWAPPINESS) == "60"


def test_an_open_transaction_is_nobodys_to_disown(sandbox: Machine) -> None:
    """Somebody may be at work on it, or it is taken back soon."""
    from sysperf.fix.journal_lines import StepStarted
    from sysperf.fix.lease import boot_id

    with sandbox.journal.locked(), sandbox.journal.begin(boot=boot_id(), by="", why="", taken_at="") as log:
        log.add(StepStarted(0, sandbox.plan("vm.nr_hugepages=400").changes[0]))
    sandbox.kernel.put(HUGEPAGES, "200")
    assert standing.standings(sandbox.host, sandbox.journal, sandbox.journal.read(1))[0].verdict == "unknown"
    assert standing.release_ownership(sandbox.host, sandbox.journal, 1, 0) == ""
    assert undo(sandbox, 1) == ["undone"]
    assert sandbox.kernel.get(HUGEPAGES) == "0"


def test_what_was_interrupted_is_taken_back_before_it_is_taken_for_foreign(sandbox: Machine) -> None:
    """A second transaction was killed before its write: undoing the first still restores."""
    apply(sandbox, "vm.swappiness=10")
    from sysperf.fix.journal_lines import StepStarted
    from sysperf.fix.lease import boot_id

    with sandbox.journal.locked(), sandbox.journal.begin(boot=boot_id(), by="", why="", taken_at="") as log:
        log.add(StepStarted(0, sandbox.plan("vm.swappiness=20").changes[0]))
    undo(sandbox, 1)
    undo(sandbox, 2)
    assert sandbox.kernel.get(SWAPPINESS) == "60"
    assert [logged.state for logged in sandbox.journal.transactions()] == ["undone", "rolled-back"]


def test_a_problem_of_one_transaction_does_not_stop_recovering_others(sandbox: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is tried; the problem is told afterwards."""
    from sysperf.fix.journal_lines import StepStarted
    from sysperf.fix.journal_log import JournalError, Log
    from sysperf.fix.lease import boot_id

    for wish in ("vm.swappiness=10", "vm.dirty_ratio=30"):
        with sandbox.journal.locked(), sandbox.journal.begin(boot=boot_id(), by="", why="", taken_at="") as log:
            log.add(StepStarted(0, sandbox.plan(wish).changes[0]))
    sandbox.kernel.put(SWAPPINESS, "10")
    sandbox.kernel.put(DIRTY, "30")
    resume = sandbox.journal.resume

    def resumed(number: int) -> Log:
        if number == 1:
            raise JournalError("it can not be written")
        return resume(number)

    monkeypatch.setattr(sandbox.journal, "resume", resumed)
    with sandbox.journal.locked(), pytest.raises(JournalError):
        recovery.recover(sandbox.host, sandbox.journal)
    assert sandbox.kernel.get(DIRTY) == "20"


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_takes_all_back(sandbox: Machine, ending: signal.Signals) -> None:
    """An interruption during any step rolls back, and another one during that waits until it is done."""
    before = sandbox.kernel.state()
    planned = sandbox.plan(*SEVERAL)
    handler = signal.signal(ending, signal.default_int_handler)
    real = sandbox.kernel.write
    seen = 0

    def write(path: str, content: bytes) -> None:
        nonlocal seen
        real(path, content)
        seen += 1
        if seen >= 3:  # in the third step, and in every step of the way back
            os.kill(os.getpid(), ending)

    sandbox.kernel.write = write  # type: ignore[method-assign]  # a method of the made kernel
    try:
        with pytest.raises(KeyboardInterrupt):
            transaction.apply(sandbox.host, sandbox.journal, planned, asked())
    finally:
        signal.signal(ending, handler)
    assert sandbox.kernel.state() == before
    assert sandbox.journal.read(1).state == "rolled-back"


def test_progress_that_fails_takes_all_back(sandbox: Machine) -> None:
    """Whoever watches can not leave half of it behind."""
    before = sandbox.kernel.state()

    def progress(change: Change) -> None:
        if change.knob == "thp.enabled":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        transaction.apply(sandbox.host, sandbox.journal, sandbox.plan(*SEVERAL), asked()._replace(progress=progress))
    assert sandbox.kernel.state() == before


def test_a_journal_that_was_deleted_meanwhile_is_still_read(sandbox: Machine) -> None:
    """Rolling back reads the open file, not its name."""
    before = sandbox.kernel.state()

    def progress(change: Change) -> None:
        if change.knob == "thp.enabled":
            os.unlink(sandbox.journal.path(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        transaction.apply(sandbox.host, sandbox.journal, sandbox.plan(*SEVERAL), asked()._replace(progress=progress))
    assert sandbox.kernel.state() == before


# ---------------------------------------------------------------------- any order


Layer = tuple[int, str]
"""(transaction, or 0 for somebody else; the value it set)."""


class Stack:
    """What should happen: values lie on each other, and taking one out leaves the others."""

    def __init__(self, first: str) -> None:
        self.layers: list[Layer] = [(0, first)]

    @property
    def top(self) -> str:
        return self.layers[-1][1]

    def undo(self, number: int) -> None:
        place = next((place for place, layer in enumerate(self.layers) if layer[0] == number), None)
        if place is None:
            return
        above = self.layers[place + 1] if place + 1 < len(self.layers) else None
        if above is None or above[0]:
            del self.layers[place]


STEP = st.tuples(st.just("apply"), st.sets(st.sampled_from(("vm.swappiness", "vm.dirty_ratio")), min_size=1)) | st.tuples(
    st.sampled_from(("undo", "undo", "foreign")), st.integers(1, 6)
)


@given(st.lists(STEP, max_size=14))
@settings(max_examples=60)
def test_any_order_of_undoing_gives_what_the_others_left(steps: list[tuple[str, Any]]) -> None:
    """Random sequences of applying, undoing and writes by others: a value is that of the topmost who still has a say."""
    paths = {"vm.swappiness": SWAPPINESS, "vm.dirty_ratio": DIRTY}
    with memory() as folder:
        machine = Machine.make(folder / "m")
        stacks = {knob: Stack(machine.kernel.get(path)) for knob, path in paths.items()}
        count, value = 0, 21
        for what, given_ in steps:
            value += 1
            if what == "apply":
                count += 1
                assert apply(machine, *(f"{knob}={value}" for knob in sorted(given_))).number == count
                for knob in given_:
                    stacks[knob].layers.append((count, str(value)))
            elif what == "undo" and given_ <= count:
                undo(machine, given_)
                for stack in stacks.values():
                    stack.undo(given_)
            elif what == "foreign":
                knob = sorted(paths)[given_ % 2]
                machine.kernel.put(paths[knob], str(value))
                stacks[knob].layers.append((0, str(value)))
            for knob, path in paths.items():
                assert machine.kernel.get(path) == stacks[knob].top, f"after {what} {given_}"


@given(st.permutations([1, 2, 3, 4]))
@settings(max_examples=12)
def test_four_on_one_setting_in_any_order(order: list[int]) -> None:
    """In the end it is as before, whoever goes first."""
    with memory() as folder:
        machine = Machine.make(folder / "m")
        for value in (10, 20, 30, 40):
            apply(machine, f"vm.swappiness={value}")
        for number in order:
            assert undo(machine, number) == ["undone"]
        assert machine.kernel.get(SWAPPINESS) == "60"


# ---------------------------------------------------------------------- a real read-only /proc/sys


@pytest.mark.root(mounts=True)
def test_a_container_with_read_only_kernel_settings() -> None:
    """The plan says so before anything is tried, and a write that is tried anyway is refused with that reason."""
    script = """
    import subprocess, tempfile
    subprocess.run(["mount", "--bind", "/proc/sys", "/proc/sys"], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", "/proc/sys"], check=True)
    from sysperf.fix import plan, transaction
    from sysperf.fix.journal import Journal
    from sysperf.host import Host
    from sysperf.model.change import Change, Plan, Setting
    from tests.fix.kernel import asked
    host = Host()
    now = host.word("/proc/sys/vm/swappiness")
    other = str(int(now) ^ 1)
    planned = plan.plan(host, [Setting("vm.swappiness", other)])
    print(planned.skipped[0].reason)
    forced = Plan((Change("vm.swappiness", "", "/proc/sys/vm/swappiness", now, other),))
    with tempfile.TemporaryDirectory() as folder:
        done = transaction.apply(host, Journal(folder), forced, asked())
        print(done.state, done.steps[0].state, done.steps[0].reason)
    print(host.word("/proc/sys/vm/swappiness") == now)
    """
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    assert not done.returncode, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("read-only here") or "others" in lines[0] or "sets it" in lines[0]
    assert lines[1:] == ["rolled-back refused Read-only file system", "True"]


def test_both_files_of_balancing_are_one_setting(sandbox: Machine) -> None:
    """A rule and a person may ask for the same: one change; for different values: the first, and the other is told so."""
    planned = sandbox.plan("kernel.numa_balancing=0", "kernel.numa_balancing=0", "kernel.numa_balancing=2")
    assert [(change.target, change.after) for change in planned.changes] == [(BALANCING, "0")]
    assert [skip.reason for skip in planned.skipped] == ["it is to be 0 already"]
