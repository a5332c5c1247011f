"""kill -9 at every line that a change runs through: whatever was there before can be put back, as a whole."""

from __future__ import annotations

import bisect
import functools
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import sysperf.fix
from sysperf.fix import recovery, standing, targets, transaction
from sysperf.fix.journal_log import MAX_LINES
from sysperf.host import files, live
from sysperf.model.change import LIVE, Plan
from tests.conftest import COUNTS
from tests.fix.conftest import SAMPLE_OR_ALL, Victim
from tests.fix.kernel import POLICY, Machine, asked, memory, shown
from tests.privileges import real_root

FOLDER = os.path.dirname(sysperf.fix.__file__)
WHERE = (FOLDER, live.__file__, files.__file__, os.path.join(os.path.dirname(__file__), "kernel.py"))
CALLS = {
    "write",
    "open",
    "fsync",
    "link",
    "unlink",
    "rename",
    "close",
    "flock",
    "makedirs",
    "mkdir",
    "setpriority",
    "sched_setaffinity",
    "syscall",
}
"""Only in such a call something changes that another process can see: just before and just after each are all the states there are."""
SAMPLE = {"call": 29, "line": 601}
"""How a point is defined, and every how manieth is tried every day; the complete run tries all."""
SEVERAL = ("vm.swappiness=10", "thp.enabled=always", "cpu.governor=performance", "block.read_ahead_kb@nvme0n1=512", "vm.nr_hugepages=400")


class Scenario(NamedTuple):
    """What is there, what is interrupted."""

    prepare: Callable[[Machine], Any]
    act: Callable[[Machine], Any]
    whole: bool = True
    """Whether recovering alone must give all or nothing."""


def _killed(act: Callable[[], object], after: int, mode: str = "line") -> bool:
    """Run in a process of its own that is killed at the `after`-th point of the changing code; False when it got through."""
    child = os.fork()
    if child == 0:
        try:
            _trap(after, mode)
            act()
            sys.setprofile(None)
            sys.settrace(None)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - nothing of the child may get back into pytest
            sys.setprofile(None)
            sys.settrace(None)
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "it failed instead of being killed"
    return False


def _trap(after: int, mode: str) -> None:
    left = after

    def count() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        if event == "call":
            ours = frame.f_code.co_filename.startswith(WHERE)
            frame.f_trace_opcodes = mode == "opcode" and ours
            return trace if ours else None
        if event == mode:
            count()
        return trace

    def profile(_frame: FrameType, event: str, called: Any) -> None:
        if event in ("c_call", "c_return") and getattr(called, "__name__", "") in CALLS:
            count()

    if mode == "call":
        sys.setprofile(profile)
    else:
        sys.settrace(trace)


def _settle(machine: Machine, backwards: bool) -> None:
    """What the next start of the machine, and then a person, do."""
    with machine.journal.locked():
        recovery.recover(machine.host, machine.journal)
    numbers = machine.journal.numbers()
    for number in reversed(numbers) if backwards else numbers:
        recovery.undo(machine.host, machine.journal, number)


def _points(base: Machine, scenario: Scenario, folder: Path, stride: int = 1, mode: str = "line") -> Iterator[Machine]:
    """The machine after a kill at every point, one after the other."""
    point = 0
    killed = True
    files = base.copy(folder / "trial").files()
    while killed:
        point += stride
        machine = Machine(folder / "trial").again(files)
        killed = _killed(functools.partial(scenario.act, Machine(machine.folder)), point, mode)
        yield machine
    assert point >= 40, "hardly a point was reached: the trap does not see the code"


def _apply(machine: Machine, *wishes: str, persist: bool = False) -> None:
    done = transaction.apply(machine.host, machine.journal, machine.plan(*wishes), asked(persist=persist))
    assert done.state == "applied", [step.reason for step in done.steps]


def _three(machine: Machine) -> None:
    for value in (10, 20, 30):
        _apply(machine, f"vm.swappiness={value}", "thp.enabled=always" if value == 10 else f"vm.dirty_ratio={value + 1}")


def _interrupted(machine: Machine) -> None:
    """As a kill in the middle of the fourth step leaves it."""
    trial = Machine(machine.folder.parent / "trial")

    def fourth_is_written(point: int) -> bool:
        shutil.rmtree(trial.folder, ignore_errors=True)
        machine.copy(trial.folder)
        _killed(lambda: _apply(Machine(trial.folder), *SEVERAL, persist=True), point, "call")
        return trial.kernel.state()[f"{POLICY}1/scaling_governor"] == "performance"

    first = bisect.bisect_left(range(2_000), True, lo=1, key=fourth_is_written)
    assert fourth_is_written(first)
    step_states = [step.state for logged in trial.journal.transactions() for step in logged.steps]
    assert step_states[3:] == ["intended"]
    shutil.rmtree(machine.folder)
    os.rename(trial.folder, machine.folder)


def _nothing(_: Machine) -> None:
    pass


def _undo(number: int) -> Callable[[Machine], None]:
    def act(machine: Machine) -> None:
        recovery.undo(machine.host, machine.journal, number)

    return act


def _recover(machine: Machine) -> None:
    with machine.journal.locked():
        recovery.recover(machine.host, machine.journal)


def _refused(machine: Machine) -> None:
    machine.kernel.deaf.add("/sys/block/nvme0n1/queue/read_ahead_kb")
    done = transaction.apply(machine.host, machine.journal, machine.plan(*SEVERAL), asked())
    assert done.state == "rolled-back"


def _renewed_often(machine: Machine) -> None:
    """One renewal before its journal is written anew."""
    transaction.apply(machine.host, machine.journal, machine.plan(*SEVERAL), asked(3_600))
    while Path(machine.journal.path(1)).read_bytes().count(b"\n") <= MAX_LINES:
        recovery.renew(machine.journal, 1, 3_600)


def _renew(machine: Machine) -> None:
    recovery.renew(machine.journal, 1, 3_600)
    assert Path(machine.journal.path(1)).read_bytes().count(b"\n") < MAX_LINES


SCENARIOS = {
    "apply": Scenario(_nothing, lambda machine: _apply(machine, *SEVERAL)),
    "apply-persistent": Scenario(_nothing, lambda machine: _apply(machine, *SEVERAL, persist=True)),
    "apply-refused": Scenario(_nothing, _refused),
    "undo": Scenario(lambda machine: _apply(machine, *SEVERAL, persist=True), _undo(1), whole=False),
    "recover": Scenario(_interrupted, _recover),
    "renew": Scenario(_renewed_often, _renew, whole=False),
    "supersede-first": Scenario(_three, _undo(1), whole=False),
    "supersede-middle": Scenario(_three, _undo(2), whole=False),
    "supersede-last": Scenario(_three, _undo(3), whole=False),
}


@SAMPLE_OR_ALL
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", SAMPLE)
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_any_point_everything_comes_back(
    name: str, mode: str, every: bool, record_property: Callable[[str, object], None]
) -> None:
    """After a kill at each call or line in turn, recovering gives all or nothing, undoing gives what was there; twice is harmless."""
    scenario = SCENARIOS[name]
    with memory() as folder:
        machine = Machine.make(folder / "base")
        before = machine.kernel.state()
        scenario.prepare(machine)
        number = -1
        for number, killed in enumerate(_points(machine, scenario, folder, 1 if every else SAMPLE[mode], mode)):
            _recover(killed)
            now = killed.kernel.state()
            if scenario.whole and now != before:
                assert _settled(killed), f"point {number}: half of it is there"
            _settle(killed, backwards=bool(number % 2))
            assert killed.kernel.state() == before, f"point {number}"
            _settle(killed, backwards=not number % 2)
            assert killed.kernel.state() == before, f"point {number}, again"
            assert not [step for logged in killed.journal.transactions() for step in logged.steps if step.state in (*LIVE, "foreign")]
    record_property(COUNTS, f"kills at each {mode}, {name}: {shown(Counter(restored=number + 1))}")


def _settled(machine: Machine) -> bool:
    """Whether the last transaction is in force as a whole."""
    last = machine.journal.transactions()[-1]
    return last.state == "applied" and all(
        standing.verdict == "holds" for standing in standing.standings(machine.host, machine.journal, last)
    )


@SAMPLE_OR_ALL
@pytest.mark.timeout(1800)
def test_killed_at_any_instruction(every: bool, record_property: Callable[[str, object], None]) -> None:
    """The same for every 13th instruction of the interpreter, or every 997th."""
    scenario = SCENARIOS["apply"]
    stride = 13 if every else 997
    tried = 0
    with memory() as folder:
        machine = Machine.make(folder / "base")
        before = machine.kernel.state()
        for killed in _points(machine, scenario, folder, stride, "opcode"):
            _settle(killed, backwards=True)
            assert killed.kernel.state() == before
            tried += 1
    record_property(COUNTS, f"kills at instructions: {shown(Counter(restored=tried))}")


def _threads(victim: Victim) -> dict[int, tuple[int, tuple[int, ...]]]:
    return {tid: (os.getpriority(os.PRIO_PROCESS, tid), tuple(sorted(os.sched_getaffinity(tid)))) for tid in victim.tids}


@SAMPLE_OR_ALL
@real_root("nobody else may lower a nice value")
def test_killed_between_two_threads(victim: Victim, every: bool) -> None:
    """Each thread has its own value again, whichever of them had the new one."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one CPU only")
    os.setpriority(os.PRIO_PROCESS, victim.tids[1], 3)
    os.sched_setaffinity(victim.tids[2], cpus[:1])
    before = _threads(victim)
    stride = 1 if every else 5
    wishes = (f"process.nice@{victim.pid}=7", f"process.cpus@{victim.pid}={cpus[1]}")
    with memory() as folder:
        machine = Machine.make(folder / "base")
        applying = Scenario(_nothing, lambda machine: _apply(machine, *wishes))
        for number, killed in enumerate(_points(machine, applying, folder, stride, "call")):
            _settle(killed, backwards=True)
            assert _threads(victim) == before, f"point {number} of applying"
        _apply(machine, *wishes)
        assert _threads(victim) != before
        after = dict(_threads(victim))
        for number, killed in enumerate(_points(machine, Scenario(_nothing, _undo(1)), folder / "undo", stride, "call")):
            _settle(killed, backwards=True)
            assert _threads(victim) == before, f"point {number} of undoing"
            for tid, (nice, allowed) in after.items():
                os.setpriority(os.PRIO_PROCESS, tid, nice)
                os.sched_setaffinity(tid, allowed)


def test_the_plan_is_not_empty() -> None:
    """What the scenarios change is really planned."""
    with memory() as folder:
        machine = Machine.make(folder / "base")
        planned: Plan = machine.plan(*SEVERAL)
        assert len(planned.changes) == len(SEVERAL) + 2
        assert not planned.skipped
        assert all(targets.of(machine.host, change).read() == change.before for change in planned.changes)
