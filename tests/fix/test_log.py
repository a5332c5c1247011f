"""The file of one transaction: what is added is whole or not there, and nothing that counts is lost when it is mended or written anew."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from sysperf.fix import recovery
from sysperf.fix.journal import Journal
from sysperf.fix.journal_lines import Begin, End, LeaseSet, StepResult, StepStarted, decode, encode
from sysperf.fix.journal_log import MAX_LINES, JournalError, Log
from sysperf.fix.replay import MAX_BYTES
from sysperf.model.change import Change, Lease
from tests.fix.kernel import SWAPPINESS, Machine, apply

CHANGE = Change("vm.swappiness", "", SWAPPINESS, "60", "10")


@contextmanager
def room(size: int) -> Iterator[None]:
    """No file gets larger than this, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    usual = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, usual)


def journal_of(folder: Path, *lines: bytes) -> tuple[Journal, Path]:
    """A journal of one transaction with these lines behind its first."""
    journal = Journal(str(folder))
    with journal.locked(), journal.begin(boot="b", by="", why="", taken_at=""):
        pass
    path = Path(journal.path(1))
    path.write_bytes(path.read_bytes() + b"".join(lines))
    return journal, path


def renewals(count: int) -> list[bytes]:
    """Lines of which only the last counts."""
    return [encode(LeaseSet(Lease("b", float(number)))) for number in range(count)]


def opened() -> set[str]:
    """The files that this process has open."""
    return set(os.listdir("/proc/self/fd"))


def test_what_became_of_a_step_is_written_into_a_full_journal(tmp_path: Path) -> None:
    """Only what announces more is refused: there is room for its end."""
    journal, path = journal_of(tmp_path)
    with journal.resume(1) as log:
        left = (12 << 20) - path.stat().st_size - len(encode(StepStarted(0, CHANGE)))
        log.add(StepStarted(0, msgspec.structs.replace(CHANGE, before="x" * left)))
        with pytest.raises(JournalError, match="it is full"):
            log.add(StepStarted(1, CHANGE))
        with pytest.raises(JournalError, match="it is full"):
            log.add(LeaseSet(Lease("b", 1.0)))
        log.add(StepResult(0, "undone"), End("rolled-back"))

    assert decode(path.read_bytes().splitlines()[-1]) == End("rolled-back")


def test_a_new_transaction_takes_the_file_of_no_other(tmp_path: Path) -> None:
    """Should a number be given twice, the second is refused, and a link leads nowhere."""
    journal, path = journal_of(tmp_path)
    (Path(journal.folder) / "000002.jsonl").symlink_to(tmp_path / "elsewhere")
    before = path.read_bytes()
    for number in (1, 2):
        with pytest.raises(JournalError, match="File exists"):
            Log(journal.path(number), number, new=True)

    assert path.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """A folder in its place is no journal that can only be read."""
    journal, _ = journal_of(tmp_path)
    os.mkdir(journal.path(2))
    with pytest.raises(JournalError, match="Is a directory"):
        journal.resume(2)


# ---------------------------------------------------------------------- its end


def test_a_line_that_lacks_only_its_end_counts(tmp_path: Path) -> None:
    """A crash took the newline: the step was announced, and is announced after the next line was added."""
    journal, path = journal_of(tmp_path, encode(StepStarted(0, CHANGE))[:-1])
    with journal.resume(1) as log:
        log.add(StepResult(0, "applied"))

    assert [(step.change, step.state) for step in journal.read(1).steps] == [(CHANGE, "applied")]
    assert path.read_bytes().count(b"\n") == 3


def test_an_end_that_no_crash_leaves_is_kept(tmp_path: Path) -> None:
    """It is evidence of damage, on a line of its own."""
    journal, path = journal_of(tmp_path, b"\0\0garbage")
    with journal.resume(1) as log:
        log.add(StepStarted(0, CHANGE))

    assert path.read_bytes().splitlines()[1] == b"\0\0garbage"
    assert journal.read(1).damaged_lines == (2,)
    assert [step.change for step in journal.read(1).steps] == [CHANGE]


@pytest.mark.parametrize("beyond", [0, 10])
def test_of_a_file_that_is_too_large_nothing_is_changed(tmp_path: Path, beyond: int) -> None:
    """It is not read to its end, and what is not known is not mended: also where the part that is read ends with a whole line."""
    journal, path = journal_of(tmp_path, *renewals(MAX_LINES))
    left = MAX_BYTES + 1 + beyond - path.stat().st_size - len(encode(StepResult(0, "applied", reason=".")))
    path.write_bytes(path.read_bytes() + encode(StepResult(0, "applied", reason="." * (left + 1))) + encode(StepStarted(0, CHANGE)))
    before = path.read_bytes()
    assert before[MAX_BYTES + beyond : MAX_BYTES + beyond + 1] == b"\n"
    with journal.resume(1):
        pass

    assert path.read_bytes() == before


def test_values_come_back_although_the_end_cannot_be_mended(sandbox: Machine) -> None:
    """The last line lacks its newline, and there is no room for one: what is not written down is said, after the value is back."""
    apply(sandbox, "vm.swappiness=10")
    path = Path(sandbox.journal.path(1))
    path.write_bytes(path.read_bytes()[:-1])
    with room(path.stat().st_size), pytest.raises(JournalError, match=r"File too large \(all values are back"):
        recovery.undo(sandbox.host, sandbox.journal, 1)
    assert sandbox.kernel.get(SWAPPINESS) == "60"

    assert [result.step.state for result in recovery.undo(sandbox.host, sandbox.journal, 1)] == ["undone"]
    assert sandbox.journal.read(1).state == "undone"


# ---------------------------------------------------------------------- writing it anew


def test_what_is_added_after_it_was_written_anew_is_in_it(tmp_path: Path) -> None:
    """The old file is let go of, and what a process left that was killed meanwhile is no part of the new one."""
    journal, path = journal_of(tmp_path, *renewals(MAX_LINES))
    Path(f"{path}.new").write_bytes(encode(StepStarted(0, CHANGE)) * 100)
    before = opened()
    with journal.resume(1) as log:
        log.add(StepResult(0, "applied"))

    lines = [decode(line) for line in path.read_bytes().splitlines()]
    assert [type(line) for line in lines] == [Begin, LeaseSet, StepResult]
    assert lines[1] == LeaseSet(Lease("b", MAX_LINES - 1.0))
    assert opened() == before
    assert not Path(f"{path}.new").exists()


@pytest.mark.parametrize("size", [0, 100])
def test_without_room_for_another_the_file_stays(tmp_path: Path, size: int) -> None:
    """Also where a part of it has room; nothing is left behind, and what is added counts."""
    journal, path = journal_of(tmp_path, *renewals(MAX_LINES))
    whole, before = path.read_bytes(), opened()
    with room(size):
        log = journal.resume(1)
    with log:
        log.add(StepResult(0, "applied"))

    assert path.read_bytes() == whole + encode(StepResult(0, "applied"))
    assert sorted(os.listdir(journal.folder)) == ["000001.jsonl", "lock"]
    assert opened() == before


def test_a_file_whose_lines_all_count_is_not_written_anew(tmp_path: Path) -> None:
    """Each command would write it again, for nothing."""
    changes = [Change("block.read_ahead_kb", f"sd{number}", f"/sys/block/sd{number}", "128", "512") for number in range(MAX_LINES + 1)]
    journal, path = journal_of(tmp_path, *(encode(StepStarted(index, change)) for index, change in enumerate(changes)))
    before = path.stat().st_ino
    with journal.resume(1):
        pass

    assert path.stat().st_ino == before


def test_a_file_is_on_the_disk_before_it_takes_the_place_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power loss between the two there would be an empty journal of changes that are in force."""
    journal, path = journal_of(tmp_path, *renewals(MAX_LINES))
    order: list[str] = []
    sync, rename = os.fsync, os.rename

    def synced(file: int) -> None:
        order.append(os.readlink(f"/proc/self/fd/{file}"))
        sync(file)

    def renamed(old: str, new: str) -> None:
        order.append("renamed")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    with journal.resume(1):
        pass

    assert order[:2] == [f"{path}.new", "renamed"]
