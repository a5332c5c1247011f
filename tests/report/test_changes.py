"""Plans, outcomes and lists of changes as text: complete, as wide as the terminal, harmless."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.fix.standing import Standing
from sysperf.model.change import Change, Plan, Setting, Skipped, Step, Transaction, Undone
from sysperf.report import changes
from tests.report.hostile import harmless, texts

SWAPPINESS = Change("vm.swappiness", "", "/proc/sys/vm/swappiness", "60", "10", "memory.swappiness-high")
POLICIES = tuple(
    Change("cpu.governor", "", f"/sys/devices/system/cpu/cpufreq/policy{number}/scaling_governor", "powersave", "performance")
    for number in range(8)
)


def test_a_plan_is_a_diff() -> None:
    """Each setting once, though a machine has a policy a CPU; what was before, what will be, what is known about it."""
    planned = Plan((SWAPPINESS, *POLICIES, Change("vm.nr_hugepages", "", "/proc/sys/vm/nr_hugepages", "0", "64")))
    text = changes.plan(planned, color=False, width=80)
    assert text.startswith("Would change 3 settings:")
    assert "/proc/sys/vm/swappiness  vm.swappiness, for memory.swappiness-high\n  - 60\n  + 10\n" in text
    assert "policy*/scaling_governor (8 files)" in text
    assert text.count("+ performance") == 1
    assert "the kernel may find fewer" in text


def test_what_is_left_alone_says_why() -> None:
    """With the item it is about."""
    planned = Plan(skipped=(Skipped(Setting("block.scheduler", "none", "sda"), "this machine offers mq-deadline"),))
    assert "block.scheduler of sda: this machine offers mq-deadline" in changes.plan(planned, color=False, width=80)


def test_an_outcome() -> None:
    """Applied; rolled back with the reason; rolled back but for one."""
    done = Transaction(
        number=3, state="applied", steps=(Step(SWAPPINESS, "applied", "10"),), persisted=("/etc/sysctl.d/90-sysperf-000003.conf",)
    )
    text = changes.outcome(done, color=False, width=80)
    assert "Transaction 3: 1 setting changed and read back." in text
    assert "/etc/sysctl.d/90-sysperf-000003.conf" in text
    assert "sysperf undo 3" in text
    refused = Transaction(number=3, state="rolled-back", steps=(Step(SWAPPINESS, "refused", reason="Read-only file system"),))
    text = changes.outcome(refused, color=False, width=80)
    assert "/proc/sys/vm/swappiness: refused: Read-only file system" in text
    assert "every value is as it was" in text
    stuck = Transaction(number=3, state="partly-undone", steps=(Step(SWAPPINESS, "intended", reason="Device or resource busy"),))
    text = changes.outcome(stuck, color=False, width=80)
    assert "could not be put back: Device or resource busy" in text
    assert "every value is as it was" not in text
    assert "read back" not in text


@pytest.mark.parametrize(
    ("verdict", "now", "words"),
    [
        ("holds", "10", "holds"),
        ("replaced", "transaction 4", "transaction 4 has set it since"),
        ("changed", "33", "it is 33 now: something else has set it"),
        ("gone", "the process has ended", "gone: the process has ended"),
        ("unknown", "Permission denied", "unknown: Permission denied"),
    ],
)
def test_how_a_change_stands(verdict: str, now: str, words: str) -> None:
    """In words."""
    step = Step(SWAPPINESS, "applied", "10")
    transaction = Transaction(number=3, state="applied", steps=(step,), taken_at="2026-11-21T06:00:00Z", by="root", why="apply")
    text = changes.transactions([(transaction, [Standing(step, now, verdict)])], {3: 125.0}, color=False, width=80)
    assert words in text
    assert "3  in force, 2 min 5 s left" in text
    assert "60 → 10, for memory.swappiness-high" in text


@pytest.mark.parametrize("state", ["open", "applied", "rolled-back", "undone", "partly-undone", "damaged"])
def test_every_state_has_words(state: str) -> None:
    """None is shown by its name in the program."""
    transaction = msgspec.structs.replace(Transaction(number=1, state="open"), state=state, problem="line 2 can not be read")
    text = changes.transactions([(transaction, [])], {}, color=False, width=80)
    assert text.startswith("1  ")
    assert "line 2 can not be read" in text


@pytest.mark.parametrize("state", ["intended", "applied", "refused", "undone", "foreign", "gone", "lost"])
def test_every_fate_has_words(state: str) -> None:
    """Put back, left as it is, gone, lost, or not."""
    step = msgspec.structs.replace(Step(SWAPPINESS), state=state)
    words = {"undone": "back to 60", "foreign": "left as it is", "gone": "gone"}
    assert words.get(state, "not taken back") in changes.undone([Undone(1, step, "why")], color=False, width=80)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (61, "1 min 1 s"), (3_600, "1 h"), (3_660, "1 h 1 min"), (90_000, "1 d 1 h"), (-5, "0 s")],
)
def test_durations(seconds: float, text: str) -> None:
    """In the two largest units."""
    assert changes.duration(seconds) == text


@given(texts, texts, texts, st.sampled_from([40, 80, 120]))
@settings(max_examples=60)
def test_hostile_texts_are_harmless_and_fit(first: str, second: str, third: str, width: int) -> None:
    """In every place that text of others can reach: nothing that a terminal acts on; no sentence wider than it."""
    change = Change(first, second, third, first, second, third, shown_before=first)
    step = Step(change, "applied", read=second, reason=third)
    whole = Transaction(number=1, state="applied", steps=(step,), taken_at=first, by=second, why=third, persisted=(first,), problem=second)
    standings = [Standing(step, first, verdict) for verdict in ("changed",)]
    rendered = [
        changes.outcome(whole, color=False, width=width),
        changes.outcome(msgspec.structs.replace(whole, state="rolled-back"), color=False, width=width),
        changes.transactions([(whole, standings)], {1: 5.0}, color=False, width=width),
        changes.undone([Undone(1, step, second)], color=False, width=width),
    ]
    known = Change("vm.swappiness", second, third, first, second, third, shown_before=first)
    rendered.append(changes.plan(Plan((known,), (Skipped(Setting(first, second, third), second),)), color=False, width=width))
    assert all(map(harmless, rendered))
    from sysperf.report.terminal import cells

    for text in rendered[:-1]:
        assert all(cells(line) <= width for line in text.splitlines())
