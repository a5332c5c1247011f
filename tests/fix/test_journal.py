"""The journal: on the disk before the value is, torn at any byte, full, foreign, newer, and held by one at a time."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sysperf.fix import lease, recovery, standing, transaction
from sysperf.fix.journal import Journal
from sysperf.fix.journal_lines import Begin, End, StepStarted
from sysperf.fix.journal_log import JournalError, Log
from sysperf.fix.replay import replay
from sysperf.model.change import Change
from tests.fix import journals
from tests.fix.conftest import SAMPLE_OR_ALL
from tests.fix.kernel import SWAPPINESS, THP, Machine, apply, asked, memory
from tests.fuzzing import fuzz

ROOT = Path(__file__).resolve().parents[2]
SEVERAL = ("vm.swappiness=10", "thp.enabled=always", "cpu.governor=performance", "vm.nr_hugepages=400")


def recover(machine: Machine) -> None:
    with machine.journal.locked():
        recovery.recover(machine.host, machine.journal)


def unprivileged(script: str, *, mounts: bool = False, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script in Python, with mounts of its own if asked."""
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(
        ["unshare", "-m", "--propagation", "private", *command] if mounts else command,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


# ---------------------------------------------------------------------- written ahead


def test_every_step_is_on_the_disk_before_it_begins(sandbox: Machine) -> None:
    """Between the line that announces a value and the write of that value lies an fsync of the journal."""
    order: list[str] = []

    def watch(frame: Any, event: str, called: Any) -> None:
        name = getattr(called, "__name__", "") if event == "c_call" else ""
        inside = frame.f_code.co_filename
        if name == "write" and inside.endswith("journal_log.py"):
            order.append("line")
        elif name == "fsync" and inside.endswith("journal_log.py"):
            order.append("fsync")
        elif event == "call" and frame.f_code.co_name == "_taken":
            order.append("value")

    planned = sandbox.plan(*SEVERAL)
    sys.setprofile(watch)
    try:
        transaction.apply(sandbox.host, sandbox.journal, planned, asked())
    finally:
        sys.setprofile(None)

    assert order.count("value") == len(planned.changes)
    assert all(order[place - 1] == "fsync" for place, what in enumerate(order) if what == "value")
    assert all(order[place + 1] == "fsync" for place, what in enumerate(order) if what == "line")


@SAMPLE_OR_ALL
def test_a_power_loss_at_any_byte_loses_no_value(fast: Path, every: bool) -> None:
    """Whatever was on the disk when a value was written is enough to put it back, and any further part of the journal too."""
    machine = Machine.make(fast / "m")
    before = machine.kernel.state()
    moments: list[tuple[int, dict[str, str]]] = []
    real = machine.kernel.write

    def write(path: str, content: bytes) -> None:
        size = os.path.getsize(machine.journal.path(1))
        moments.append((size, machine.kernel.state()))
        real(path, content)
        moments.append((size, machine.kernel.state()))

    machine.kernel.write = write  # type: ignore[method-assign]  # a method of the made kernel
    apply(machine, "vm.swappiness=10", "thp.enabled=always", "vm.nr_hugepages=400")
    machine.kernel.write = real  # type: ignore[method-assign]  # as above
    whole = Path(machine.journal.path(1)).read_bytes()
    ends = [*(size for size, _ in moments[1:]), len(whole)]
    tried = 0
    for (least, state), most in zip(moments, ends, strict=True):
        for size in range(least, max(most, least) + 1, 1 if every else 5):
            tried += 1
            for path, text in state.items():
                machine.kernel.put(path, text)
            Path(machine.journal.path(1)).write_bytes(whole[:size])
            recover(machine)
            for number in machine.journal.numbers():
                recovery.undo(machine.host, machine.journal, number)
            assert machine.kernel.state() == before, f"{size} bytes of the journal were left"
    assert tried > (500 if every else 100)


def test_a_new_journal_folder_is_on_the_disk(tmp_path: Path) -> None:
    """All folders that are made are synced into those that hold them."""
    journal = Journal(str(tmp_path / "a/b"))
    with journal.locked():
        assert os.path.isdir(tmp_path / "a/b/changes")


# ---------------------------------------------------------------------- damage


def test_a_torn_last_line_is_a_step_that_never_began(sandbox: Machine) -> None:
    """Cut at every byte, a journal is read; what it announces whole is there, and adding to it keeps both readable."""
    apply(sandbox, *SEVERAL)
    whole = Path(sandbox.journal.path(1)).read_bytes()
    for size in range(len(whole)):
        logged = replay(1, whole[:size])
        announced = sum(b'"line":"step-started"' in line for line in whole[: size + 1].split(b"\n")[:-1])  # what ends a line may lack
        assert len(logged.steps) == announced
        assert logged.state != "damaged"
    Path(sandbox.journal.path(1)).write_bytes(whole[:-20])
    recovery.undo(sandbox.host, sandbox.journal, 1)
    assert sandbox.journal.read(1).state == "rolled-back"
    assert sandbox.kernel.get(SWAPPINESS) == "60"


def test_a_line_in_the_middle_that_is_garbage_costs_its_step_only(sandbox: Machine) -> None:
    """The others are put back; the lost one is named, so that nobody believes that all is well."""
    apply(sandbox, "vm.swappiness=10", "thp.enabled=always")
    path = Path(sandbox.journal.path(1))
    kept = path.read_bytes().splitlines(keepends=True)
    assert b"step-started" in kept[1]
    kept[1] = b"\0" * 40 + b"\n"
    path.write_bytes(b"".join(kept))

    undone = recovery.undo(sandbox.host, sandbox.journal, 1)

    assert sandbox.kernel.get(THP) == "always [madvise] never"
    assert [result.step.state for result in undone] == ["undone", "lost"]
    assert undone[1].step.change.target == "step 1, whose line in the journal is damaged"
    assert sandbox.journal.read(1).problem == "line 2 of its journal cannot be read"


def test_a_newer_version_is_left_alone(sandbox: Machine) -> None:
    """It is listed as unreadable, refused with what to do, and does not stand in the way of others."""
    apply(sandbox, "vm.swappiness=10")
    path = Path(sandbox.journal.path(1))
    journals.edit(sandbox.journal, lambda line: {**line, "version": 3, "word": "new"} if "version" in line else line)
    content = path.read_bytes()

    assert sandbox.journal.read(1).state == "damaged"
    with pytest.raises(JournalError, match="newer sysperf"):
        recovery.undo(sandbox.host, sandbox.journal, 1)
    assert path.read_bytes() == content
    assert apply(sandbox, "thp.enabled=always").number == 2


@fuzz
@given(
    st.lists(
        st.binary(max_size=60) | st.sampled_from([b'{"line":"told","step":0,"state":"applied"}', b"[" * 5_000, b"null", b"{}"]), max_size=6
    )
)
def test_no_content_stops_the_reader(content: list[bytes]) -> None:
    """Any bytes give a transaction, or one that is damaged."""
    head = b'{"line":"open","version":1,"number":1,"taken_at":"","boot":"","by":""}'
    for raw in (b"\n".join(content), b"\n".join([head, *content, b""])):
        assert replay(1, raw).number == 1


def test_a_journal_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """And what would make it so is not written: a step that could not be read back could not be undone."""
    assert replay(1, b"x" * ((16 << 20) + 1)).state == "damaged"
    journal = Journal(str(tmp_path))
    with journal.locked(), journal.begin(boot="", by="", why="", taken_at="") as log:
        log.add(StepStarted(0, Change("vm.swappiness", "", "", "x" * (11 << 20), "")))
        with pytest.raises(JournalError, match="full"):
            log.add(StepStarted(1, Change("vm.swappiness", "", "", "x" * (2 << 20), "")))


@pytest.mark.parametrize("force", [False, True])
def test_a_changed_journal_leads_nowhere_else(sandbox: Machine, force: bool) -> None:
    """The target comes from the knob: a line that names another knob, file or value writes nothing there."""
    victim = sandbox.folder / "root/etc/passwd"
    victim.write_text("root")
    apply(sandbox, "vm.swappiness=10")
    good = journals.lines(sandbox.journal)
    for change in (
        {"target": "/etc/passwd"},
        {"target": "/proc/sys/vm/../../../etc/passwd"},
        {"knob": "kernel.core_pattern", "target": "/proc/sys/kernel/core_pattern"},
        {"knob": "persist.sysctl", "item": "../../x", "target": "/etc/passwd", "before": "x"},
        {
            "knob": "persist.sysctl",
            "item": "000001",
            "target": "/etc/sysctl.d/90-sysperf-000001.conf",
            "before": "kernel.core_pattern = |/x\n",
        },
        {
            "knob": "persist.sysctl",
            "item": "000001",
            "target": "/etc/sysctl.d/90-sysperf-000001.conf",
            "before": "# to systemd, NUL ends a line\0kernel.core_pattern = |/x\n",
        },
        {"knob": "block.scheduler", "item": "../../..", "target": "/etc/passwd"},
        {"before": "1\n2"},
        {"before": "x" * 100},
        {"knob": "shm.size_bytes", "target": "/dev/shm", "before": "much"},
        {"knob": "process.nice", "item": "1", "target": "setpriority of process 1", "before": "9" * 30},
        {
            "knob": "process.cpus",
            "item": str(os.getpid()),
            "target": f"sched_setaffinity of process {os.getpid()}",
            "before": "-",
            "start_time": 1,
        },
    ):
        journals.write(sandbox.journal, [{**line, "change": {**line["change"], **change}} if "change" in line else line for line in good])
        before = sandbox.kernel.state()
        undone = recovery.undo(sandbox.host, sandbox.journal, 1, force=force)
        assert sandbox.kernel.state() == before, change
        assert undone[0].step.state in ("applied", "gone", "foreign"), change
        assert standing.standings(sandbox.host, sandbox.journal, sandbox.journal.read(1))
    assert victim.read_text() == "root"


# ---------------------------------------------------------------------- no room, no right


@pytest.mark.parametrize("room", range(0, 2_000, 61))
def test_a_full_disk_changes_nothing(fast: Path, room: int) -> None:
    """The write that has no room is the last: everything is put back, with the reason, whichever line it was."""
    machine = Machine.make(fast / "m")
    before = machine.kernel.state()
    child = os.fork()
    if child == 0:
        code = 3
        try:
            with machine.journal.locked():
                pass
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
            apply(machine, *SEVERAL)
            code = 0
        except JournalError as error:
            code = 1 if "File too large" in str(error) or "No space" in str(error) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) in (0, 1)
    if os.waitstatus_to_exitcode(status):
        assert machine.kernel.state() == before
        recover(machine)
        assert machine.kernel.state() == before
        assert apply(machine, *SEVERAL).state == "applied"
    for number in machine.journal.numbers():
        recovery.undo(machine.host, machine.journal, number)
    assert machine.kernel.state() == before


def test_half_a_line_is_taken_out_again(tmp_path: Path) -> None:
    """A line that is added to the same open journal later, when there is room again, is whole and follows the last whole one."""
    journal, change = Journal(str(tmp_path)), Change("vm.swappiness", "", "/proc/sys/vm/swappiness", "60", "10")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    usual = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with journal.locked(), journal.begin(boot="", by="", why="", taken_at="") as log:
        size = os.path.getsize(log.path)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, limits[1]))
            with pytest.raises(JournalError, match="No space left on device"):
                log.add(StepStarted(0, change))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, usual)
        assert os.path.getsize(log.path) == size
        log.add(StepStarted(0, change))

        assert [step.change for step in log.read().steps] == [change]
        assert log.read().state == "open"


@pytest.mark.root(mounts=True)
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """On a file system without a free page: refused before anything is changed; undoing still restores, and says what it could not write."""
    done = unprivileged(
        f"""
        import subprocess, os
        from pathlib import Path
        from sysperf.fix import recovery, transaction
        from sysperf.fix.journal_lines import StepResult, encode
        from sysperf.fix.journal_log import JournalError
        from tests.fix.kernel import Machine, asked, SWAPPINESS
        machine = Machine.make(Path({str(tmp_path)!r}) / "m")
        os.mkdir(machine.folder / "state")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "none", machine.folder / "state"], check=True)
        planned = machine.plan("vm.swappiness=10")
        transaction.apply(machine.host, machine.journal, planned, asked())
        filler = open(machine.folder / "state/filler", "wb", buffering=0)
        try:
            while filler.write(b"x" * 512): pass
        except OSError: pass
        path = Path(machine.journal.path(1))
        with open(path, "ab", buffering=0) as file:      # the rest of its page
            room = 4096 - path.stat().st_size - len(encode(StepResult(0, "applied")))
            file.write(encode(StepResult(0, "applied", reason="x" * room)))
        try: transaction.apply(machine.host, machine.journal, machine.plan("vm.dirty_ratio=30"), asked())
        except JournalError as error: print("apply:", error)
        print(machine.kernel.get("/proc/sys/vm/dirty_ratio"))
        try: recovery.undo(machine.host, machine.journal, 1)
        except JournalError as error: print("undo:", error)
        print(machine.kernel.get(SWAPPINESS))
        os.unlink(machine.folder / "state/filler"); filler.close()
        print([one.step.state for one in recovery.undo(machine.host, machine.journal, 1)], machine.journal.read(1).state)
        """,
        mounts=True,
    )

    assert not done.returncode, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("apply:")
    assert "No space left" in lines[0]
    assert lines[1] == "20"
    assert lines[2].startswith("undo:")
    assert "No space left" in lines[2]
    assert lines[3:] == ["60", "['undone'] undone"]


def test_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    """Refused with the reason: a file is in the way, or the folder is."""
    (tmp_path / "changes").write_text("")
    with pytest.raises(JournalError, match="nothing was changed"), Journal(str(tmp_path)).locked():
        pass


@pytest.mark.root(mounts=True)
def test_a_folder_on_a_read_only_file_system(tmp_path: Path) -> None:
    """As in a container whose root is read-only."""
    done = unprivileged(
        f"""
        import subprocess
        from sysperf.fix.journal import Journal
        from sysperf.fix.journal_log import JournalError
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", {str(tmp_path)!r}], check=True)
        try:
            with Journal({str(tmp_path / "state")!r}).locked(): print("locked")
        except JournalError as error: print(error)
        """,
        mounts=True,
    )

    assert "Read-only file system; nothing was changed" in done.stdout


# ---------------------------------------------------------------------- two at once


def _applier(folder: Path, value: int, gate: Any, answers: Any) -> None:
    machine = Machine(folder)
    planned = machine.plan(f"vm.swappiness={value}", f"vm.dirty_ratio={value}")
    gate.wait()
    answers.put((value, transaction.apply(machine.host, machine.journal, planned, asked()).state))


def test_two_at_once_wait_for_each_other(fast: Path) -> None:
    """One is applied, the other finds that its plan is out of date and is rolled back; both journals are whole."""
    machine = Machine.make(fast / "m")
    context = multiprocessing.get_context("fork")
    gate, answers = context.Barrier(2), context.Queue()
    running = [context.Process(target=_applier, args=(fast / "m", value, gate, answers)) for value in (11, 22)]
    for process in running:
        process.start()
    states = dict(answers.get(timeout=300) for _ in running)
    for process in running:
        process.join()

    assert sorted(states.values()) == ["applied", "rolled-back"]
    (won,) = [value for value, state in states.items() if state == "applied"]
    assert machine.kernel.get(SWAPPINESS) == str(won)
    assert {logged.state for logged in machine.journal.transactions()} == {"applied", "rolled-back"}
    for number in machine.journal.numbers():
        recovery.undo(machine.host, machine.journal, number)
    assert machine.kernel.get(SWAPPINESS) == "60"


def test_who_waits_too_long_is_told(sandbox: Machine) -> None:
    """The lock is not waited for without end."""
    with sandbox.journal.locked(), pytest.raises(JournalError, match="another sysperf"), Journal(str(sandbox.folder / "state")).locked(0.1):
        pass


def test_only_its_owner_can_hold_the_lock(sandbox: Machine) -> None:
    """Whoever can open a file can lock it, reading is enough: another user would keep root from undoing."""
    lock = Path(sandbox.journal.folder) / "lock"
    apply(sandbox, "vm.swappiness=10")
    assert lock.stat().st_mode & 0o777 == 0o600
    lock.chmod(0o644)  # as it was made before
    recovery.undo(sandbox.host, sandbox.journal, 1)
    assert lock.stat().st_mode & 0o777 == 0o600


@pytest.mark.root(users=True)
@pytest.mark.parametrize("of", ["folder", "file"])
@pytest.mark.parametrize("how", ["mode", "owner", "link"])
def test_root_believes_no_journal_that_others_can_write(sandbox: Machine, of: str, how: str) -> None:
    """What it says is neither undone nor renewed, and the list says why."""
    apply(sandbox, "vm.swappiness=10", lease_s=600)
    path = Path(sandbox.journal.folder if of == "folder" else sandbox.journal.path(1))
    if how == "mode":
        path.chmod(path.stat().st_mode | 0o022)
    elif how == "owner":
        os.chown(path, 65_534, 0)
    else:
        path.rename(sandbox.folder / "elsewhere")
        path.symlink_to(sandbox.folder / "elsewhere")

    with pytest.raises(JournalError, match=r"believe|link"):
        recovery.undo(sandbox.host, sandbox.journal, 1, force=True)
    with pytest.raises(JournalError):
        recovery.renew(sandbox.journal, 1, 600)
    assert sandbox.kernel.get(SWAPPINESS) == "10"
    assert [logged.state for logged in sandbox.journal.transactions()] == ["damaged" if of == "file" else "applied"]


def test_what_is_no_file_is_no_journal(sandbox: Machine) -> None:
    """A pipe or a folder of that name is said to be damaged, and keeps nobody waiting."""
    apply(sandbox, "vm.swappiness=10")
    os.mkfifo(sandbox.journal.path(2))
    os.mkdir(sandbox.journal.path(3))
    assert [logged.state for logged in sandbox.journal.transactions()] == ["applied", "damaged", "damaged"]
    assert recovery.undo(sandbox.host, sandbox.journal, 1)[0].step.state == "undone"


def test_a_transaction_that_goes_away_while_they_are_listed(sandbox: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is without it."""
    apply(sandbox, "vm.swappiness=10")
    monkeypatch.setattr(sandbox.journal, "numbers", lambda: [1, 2])
    assert [logged.number for logged in sandbox.journal.transactions()] == [1]


# ---------------------------------------------------------------------- clocks and restarts


def test_numbers_do_not_follow_the_clock(sandbox: Machine) -> None:
    """The next number is one more than the highest, whatever time it claims to be."""
    apply(sandbox, "vm.swappiness=10")
    path = Path(sandbox.journal.path(1))
    os.utime(path, (4_000_000_000, 4_000_000_000))
    journals.edit(sandbox.journal, lambda line: {**line, "taken_at": "2126-01-01T00:00:00Z"} if "taken_at" in line else line)
    assert apply(sandbox, "vm.swappiness=20").number == 2
    assert [logged.number for logged in sandbox.journal.transactions()] == [1, 2]


@pytest.mark.root(mounts=True)
def test_a_lease_counts_sleep_and_not_the_wall_clock(tmp_path: Path) -> None:
    """In a time namespace whose machine has run a day longer, a lease of an hour is over."""
    hour = lease.lease_of(3_600)
    script = f"""
    from sysperf.model.change import Lease
    from sysperf.fix.lease import expired
    print(expired(Lease({hour.boot!r}, {hour.until_s!r})))
    """
    shifted = subprocess.run(
        ["unshare", "-T", "--boottime", "86400", "--fork", sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if "unshare" in shifted.stderr:
        pytest.skip("no time namespaces here")
    assert shifted.stdout.strip() == "True"
    assert unprivileged(script).stdout.strip() == "False"


def test_a_restart_ends_what_was_interrupted(sandbox: Machine) -> None:
    """The kernel has its own values again: nothing is written, the steps are gone."""
    with sandbox.journal.locked(), sandbox.journal.begin(boot=lease.boot_id(), by="", why="", taken_at="") as log:
        log.add(StepStarted(0, sandbox.plan("vm.swappiness=10").changes[0]))
    sandbox.kernel.put(SWAPPINESS, "10")  # what the new start chose, by chance
    journals.another_boot(sandbox.journal)
    recover(sandbox)

    (logged,) = sandbox.journal.transactions()
    assert [step.state for step in logged.steps] == ["gone"]
    assert sandbox.kernel.get(SWAPPINESS) == "10"


def test_a_restart_ends_a_lease(sandbox: Machine) -> None:
    """However long it still had."""
    apply(sandbox, "vm.swappiness=10", lease_s=1e6)
    journals.another_boot(sandbox.journal)
    sandbox.kernel.put(SWAPPINESS, "60")
    recover(sandbox)
    assert sandbox.journal.read(1).state == "undone"
    assert sandbox.kernel.get(SWAPPINESS) == "60"


def test_what_a_file_of_ours_set_again_is_taken_back_after_a_restart(sandbox: Machine) -> None:
    """Interrupted after the file was written: the start of the machine applied it, recovering removes both."""
    apply(sandbox, "vm.swappiness=10", persist=True)
    journals.edit(sandbox.journal, lambda line: line if line["line"] != "end" else None)
    journals.another_boot(sandbox.journal)
    recover(sandbox)

    assert sandbox.kernel.get(SWAPPINESS) == "60"
    assert not os.listdir(sandbox.folder / "root/etc/sysctl.d")


def test_after_a_restart_another_value_is_the_machines(sandbox: Machine) -> None:
    """It is not put back to what was there in an earlier life."""
    apply(sandbox, "vm.swappiness=10")
    journals.another_boot(sandbox.journal)
    sandbox.kernel.put(SWAPPINESS, "33")
    assert [result.step.state for result in recovery.undo(sandbox.host, sandbox.journal, 1)] == ["gone"]
    assert sandbox.kernel.get(SWAPPINESS) == "33"


# ---------------------------------------------------------------------- housekeeping


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(201, 215))
def test_old_ones_are_forgotten_and_those_in_force_never(count: int) -> None:
    """The last 200 that are over are kept, and each that is in force; numbers are not used again."""
    with memory() as folder:
        machine = Machine.make(folder / "m")
        apply(machine, "vm.swappiness=10")
        for number in range(2, count + 2):
            with machine.journal.locked(), Log(machine.journal.path(number), number, new=True) as log:
                log.add(Begin(version=2, number=number, taken_at="", boot="", by=""), End("rolled-back"))
        done = apply(machine, "vm.dirty_ratio=33")
        assert done.number == count + 2
        numbers = machine.journal.numbers()
        assert numbers[0] == 1
        assert len(numbers) == 202


def test_errors_name_the_next_step() -> None:
    """Of a transaction that is not there, and of a full disk."""
    with pytest.raises(JournalError) as caught:
        Journal("/nonexistent").read(7)
    assert "sysperf changes" in caught.value.hint
    assert os.strerror(errno.ENOSPC) == "No space left on device"
