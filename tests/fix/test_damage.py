"""A damaged journal: what is left is undone, what is lost is reported, and nothing ends at a wrong value silently."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from sysperf.fix import recovery
from sysperf.fix.journal_lines import StepResult, decode, encode, fold
from sysperf.fix.journal_log import MAX_LINES, JournalError
from sysperf.fix.lease import boot_id, boot_s
from sysperf.fix.replay import replay
from tests.conftest import COUNTS
from tests.fix.conftest import SAMPLE_OR_ALL
from tests.fix.kernel import SWAPPINESS, Machine, apply, memory, shown

EARLIER = Path(__file__).parent / "journal_1"
"""Folders of journals that version 1 of the format wrote, and the settings that there were then."""


def _three_changes(machine: Machine) -> int:
    """A transaction of four steps, two of them with the value of an earlier transaction; returns the one that is damaged."""
    apply(machine, "vm.swappiness=10", "thp.enabled=always", "vm.nr_hugepages=400", "vm.dirty_ratio=33")
    return 1


def _a_lease(machine: Machine) -> int:
    """A transaction that ends by itself, and has ended."""
    apply(machine, "vm.swappiness=10", lease_s=1e-9)
    return 1


def _superseded(machine: Machine) -> int:
    """The second of two transactions about the same, after the first was undone: it goes back to the first value of all."""
    apply(machine, "vm.swappiness=10", "vm.dirty_ratio=33")
    apply(machine, "vm.swappiness=20", "vm.dirty_ratio=44")
    recovery.undo(machine.host, machine.journal, 1)
    return 2


def _an_undone_one(machine: Machine) -> int:
    """A transaction that was undone, after which somebody chose the same values."""
    apply(machine, "vm.swappiness=10")
    recovery.undo(machine.host, machine.journal, 1)
    return 1


class Told(NamedTuple):
    """What a person hears of it."""

    left: bool
    """`undo` says that something is not back, or that nobody knows: exit 3."""
    problem: bool
    """`changes` says that a journal is damaged."""


def undo_all(machine: Machine) -> Told:
    """What the next start of the machine and then a person do."""
    left = problem = False
    with machine.journal.locked():
        left |= any(undone.step.state not in ("undone", "gone") for undone in recovery.recover(machine.host, machine.journal))
    for number in reversed(machine.journal.numbers()):
        try:
            undone = recovery.undo(machine.host, machine.journal, number)
            left |= any(result.step.state not in ("undone", "gone") for result in undone)
        except JournalError:
            left = True
        problem |= bool(machine.journal.read(number).problem)
    return Told(left, problem)


def _outcome(machine: Machine, before: dict[str, str], told: Told) -> str:
    """What became of a damaged journal: the values that were there before, and what was said of them."""
    if machine.kernel.state() == before:
        return "restored, and in doubt" if told.left else "restored"
    return "reported" if told.left or told.problem else "silent"


@SAMPLE_OR_ALL
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("prepare", [_three_changes, _a_lease, _superseded, _an_undone_one])
def test_no_flipped_bit_ends_at_a_wrong_value_silently(
    prepare: Callable[[Machine], int], every: bool, record_property: Callable[[str, object], None]
) -> None:
    """Each bit of a journal in turn: all is put back, or what is not is reported."""
    with memory() as folder:
        machine = Machine.make(folder / "base")
        before = machine.kernel.state()
        damaged = prepare(machine)
        whole = Path(machine.journal.path(damaged)).read_bytes()
        counts: Counter[str] = Counter()
        bits = 8 * len(whole)
        files = machine.files()
        for bit in sorted({*range(0, bits, 1 if every else 83), *range(bits - 8, bits)}):  # the last byte ends the last line
            trial = machine.again(files)
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << bit % 8
            Path(trial.journal.path(damaged)).write_bytes(flipped)
            counts[_outcome(trial, before, undo_all(trial))] += 1
    record_property(COUNTS, f"flipped bits, {prepare.__name__.strip('_')}: {shown(counts)}")
    assert not counts["silent"]
    assert counts["restored"]
    assert not counts["restored, and in doubt"], "what is back is not said to be lost"


@SAMPLE_OR_ALL
@pytest.mark.timeout(900)
def test_no_garbled_journal_ends_at_a_wrong_value_silently(every: bool, record_property: Callable[[str, object], None]) -> None:
    """Parts of it are overwritten with anything, as by a disk that loses sectors: what is not put back is reported."""
    dice = random.Random(7)
    with memory() as folder:
        machine = Machine.make(folder / "base")
        before = machine.kernel.state()
        number = _three_changes(machine)
        whole = Path(machine.journal.path(number)).read_bytes()
        counts: Counter[str] = Counter()
        files = machine.files()
        for _ in range(4_000 if every else 150):
            trial = machine.again(files)
            garbled = bytearray(whole)
            for _ in range(dice.choice((1, 1, 2, 5))):
                place = dice.randrange(len(garbled))
                length = dice.choice((1, 2, 8, 64, 512))
                garbled[place : place + length] = dice.choice((bytes(length), b"\n" * length, dice.randbytes(length)))[
                    : len(garbled) - place
                ]
            Path(trial.journal.path(number)).write_bytes(garbled)
            counts[_outcome(trial, before, undo_all(trial))] += 1
    record_property(COUNTS, f"garbled journals: {shown(counts)}")
    assert not counts["silent"]


# ---------------------------------------------------------------------- journals of earlier versions


@pytest.mark.parametrize("name", sorted(path.name for path in EARLIER.iterdir()))
def test_a_journal_of_version_1_is_still_undone(fast: Path, name: str) -> None:
    """As an earlier sysperf wrote it, on this boot and before: everything is back, and what somebody else set stays."""
    machine = Machine.make(fast / "m")
    before = machine.kernel.state()
    state = EARLIER / name
    after = json.loads((state / "settings.json").read_text())
    (fast / "m/state/changes").mkdir(parents=True)
    for path in state.glob("*.jsonl"):
        text = path.read_text().replace("THIS-BOOT", boot_id())
        Path(machine.journal.folder, path.name).write_text(text)
    for path, text in after.items():
        machine.kernel.put(path, text)
    theirs = {path: text for path, text in after.items() if name == "foreign" and path == SWAPPINESS}

    assert not [transaction.problem for transaction in machine.journal.transactions() if transaction.problem]
    undo_all(machine)

    assert machine.kernel.state() == {**before, **theirs}
    states = {step.state for transaction in machine.journal.transactions() for step in transaction.steps}
    assert states == ({"foreign"} if name == "foreign" else {"undone"})


def test_a_journal_of_version_1_with_any_flipped_bit_is_read(fast: Path) -> None:
    """Without a checksum a changed digit cannot be told; but nothing stops the reader, and what can be told is said."""
    path = EARLIER / "several/000001.jsonl"
    raw = path.read_bytes()
    for bit in range(0, 8 * len(raw), 9):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        replayed = replay(1, bytes(flipped))
        assert replayed.number == 1
        if bit % 8 == 7 and raw[bit // 8] != ord("\n"):
            assert replayed.problem, "a byte that no JSON text of ours has"


# ---------------------------------------------------------------------- growth


@SAMPLE_OR_ALL
@pytest.mark.timeout(900)
def test_ninety_days_of_renewals_stay_small(fast: Path, every: bool) -> None:
    """An agent renews a lease each 100 s: the file is written anew from time to time, and the last lease is in force."""
    machine = Machine.make(fast / "m")
    apply(machine, "vm.swappiness=10", lease_s=300)
    path = Path(machine.journal.path(1))
    largest = 0
    renewals = 90 * 86_400 // 100 if every else 600
    for _ in range(renewals):
        recovery.renew(machine.journal, 1, 300)
        largest = max(largest, path.stat().st_size)
    transaction = machine.journal.read(1)
    assert largest < 64 << 10
    assert transaction.lease
    assert 290 < transaction.lease.until_s - boot_s() <= 300
    recovery.undo(machine.host, machine.journal, 1)
    assert machine.kernel.get(SWAPPINESS) == "60"


def test_a_step_that_fails_in_another_way_each_time_fills_no_disk(fast: Path) -> None:
    """What became of it is written down each time it is another reason, and only the last counts."""
    machine = Machine.make(fast / "m")
    apply(machine, "vm.swappiness=10", "vm.dirty_ratio=33")
    for number in range(1_000):
        with machine.journal.locked(), machine.journal.resume(1) as log:
            log.add(StepResult(0, "applied", reason=f"it reads {number}"))
    assert len(Path(machine.journal.path(1)).read_bytes().splitlines()) <= MAX_LINES + 1
    first, _ = machine.journal.read(1).steps
    assert (first.reason, first.read) == ("it reads 999", "10")
    assert [result.step.state for result in recovery.undo(machine.host, machine.journal, 1)] == ["undone", "undone"]


def test_damaged_lines_are_named_by_their_numbers(fast: Path) -> None:
    """As an editor counts them, in the problem that `changes` shows and in the record."""
    machine = Machine.make(fast / "m")
    path = Path(machine.journal.path(_three_changes(machine)))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2], lines[4] = lines[2].replace(b"}", b"]", 1), b"torn\n"
    path.write_bytes(b"".join(lines))

    transaction = machine.journal.read(1)
    assert transaction.problem == "lines 3, 5 of its journal cannot be read"
    assert transaction.damaged_lines == (3, 5)


def test_what_is_damaged_is_not_written_anew(fast: Path) -> None:
    """It is evidence: who looks for what was lost finds it as it was."""
    machine = Machine.make(fast / "m")
    apply(machine, "vm.swappiness=10", lease_s=300)
    path = Path(machine.journal.path(1))
    path.write_bytes(path.read_bytes().replace(b"vm.swappiness", b"vm.swappinezz"))
    damaged = path.read_bytes()
    for _ in range(2 * MAX_LINES):
        with machine.journal.locked(), machine.journal.resume(1) as log:
            log.add(StepResult(0, "applied"))
    assert path.read_bytes().startswith(damaged)


def test_folding_loses_nothing(fast: Path) -> None:
    """A transaction reads the same from all its lines and from those that are left."""
    machine = Machine.make(fast / "m")
    apply(machine, "vm.swappiness=10", "vm.dirty_ratio=33", lease_s=300)
    apply(machine, "vm.swappiness=20", lease_s=300)
    recovery.renew(machine.journal, 2, 500)
    recovery.undo(machine.host, machine.journal, 1)
    for number in (1, 2):
        raw = Path(machine.journal.path(number)).read_bytes()
        lines = [decode(line) for line in raw.splitlines()]
        folded = b"".join(map(encode, fold(lines)))
        assert replay(number, folded) == replay(number, raw)
        assert len(fold(lines)) < len(lines)
