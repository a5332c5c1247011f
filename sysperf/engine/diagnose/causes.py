"""Which causes the rules find in each program, with their signals, gain, lines and fixes.

A cause is *confirmed* by two signals of different sources, *likely* by one. A signal against it contradicts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from sysperf.diagnosis import programs
from sysperf.diagnosis.facts import Diagnosis, Line, Program, Share
from sysperf.diagnosis.verdict import Cause, Signal, State
from sysperf.engine.diagnose import fixes as diagnose_fixes
from sysperf.engine.diagnose import hits
from sysperf.engine.reading import now
from sysperf.evaluate.compiled import Compiled
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.functions import Unknown
from sysperf.evaluate.judge import Judge, scope_names
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.scope import Scope
from sysperf.evaluate.subject import Subject
from sysperf.model.outcome import Outcome
from sysperf.model.snapshot import Area, Snapshot

TOO_HIGH, TOO_LOW = 0.6, 1.5
"""Of the prediction, what was measured in four of five sick programs of tests/clinic: what replaces a cause costs something, too, and
samples see only a part of some."""
MAX_LINES = 3
FULL_GPU = 0.95


def find(facts: Diagnosis, ruleset: Ruleset) -> list[Cause]:
    """One cause a rule and program."""
    snapshot = Snapshot(taken_at=now(), areas={"diagnosis": Area(facts)})
    names = scope_names(snapshot)
    causes = []
    for rule in ruleset.rules:
        if rule.scope != "diagnosis":
            continue
        compiled = ruleset.compiled(rule.key)
        for place, program in enumerate(facts.programs):
            judge = Judge(names, ruleset.tables, Ledger(snapshot))
            judge.subject(compiled, Subject(compiled.loop, program, place))
            causes += [
                _cause(compiled, outcome, {**names, compiled.loop: program}, program, ruleset, facts.machine.shares)
                for outcome in judge.outcomes
                if outcome.state == "finding"
            ]
    return causes


def _cause(
    compiled: Compiled, outcome: Outcome, names: dict[str, object], program: Program, ruleset: Ruleset, shares: Sequence[Share]
) -> Cause:
    scope = Scope(dict(names), ruleset.tables)
    busy = None if compiled.rule.on_gpu or not compiled.rule.cost else _gpu_busy(program)
    signals = tuple(_signals(compiled, scope))
    if not any(signal.source == "script" for signal in signals):
        signals += _hypotheses(compiled, program, ruleset)
    signals += _hidden(busy)
    against = [signal.text for signal in signals if not signal.supports]
    fixes = diagnose_fixes.fixes(outcome.fixes, compiled, program, shares, ruleset)
    cause = Cause(
        id=outcome.rule, title=outcome.title, state=_state(signals), message=outcome.message, subjects=(name_of(program),),
        pids=(program.pid,), signals=signals, where=_lines(compiled.rule.lines, program), why=outcome.why,
        because=against[0] if against else "", fixes=tuple(diagnose_fixes.of_program(fix, program.command) for fix in fixes),
        verify=diagnose_fixes.proof(fixes, program.command, compiled.rule.proof), refs=outcome.refs,
    )  # fmt: skip
    return with_gain(cause, _bounded(_number(compiled, scope), busy))


def _state(signals: Sequence[Signal]) -> State:
    if not all(signal.supports for signal in signals):
        return "contradicted"
    return "confirmed" if len({signal.source for signal in signals}) > 1 else "likely"


def _signals(compiled: Compiled, scope: Scope) -> Iterable[Signal]:
    for index, signal in enumerate(compiled.rule.signals):
        if compiled.expression(signal.when, f"signals[{index}].when")(scope) is True:
            yield Signal(source=signal.source, supports=not signal.against, text=compiled.template(signal.says).fill(scope))


def _hypotheses(compiled: Compiled, program: Program, ruleset: Ruleset) -> tuple[Signal, ...]:
    """What lint says of the program's script and this cause confirms: a hypothesis and a live signal support each other."""
    raised = [hits.in_source(hit, ruleset).title for hit in program.hits if hits.speaks_for(hit, compiled.rule.id, "diagnosis", ruleset)]
    return (Signal(source="script", text=f"in its script: {within_a_sentence(raised[0])}"),) if raised else ()


def _hidden(busy: float | None) -> tuple[Signal, ...]:
    """The signal against all that only keeps the main thread, of a GPU that computes all the time."""
    if busy is None or busy < FULL_GPU:
        return ()
    text = f"its GPU is busy {100 * busy:.0f} % of the time: kernels hide what the main thread does"
    return (Signal(source="gpu", supports=False, text=text),)


def _number(compiled: Compiled, scope: Scope) -> float | None:
    if not compiled.rule.cost:
        return None
    value = compiled.expression(compiled.rule.cost, "cost")(scope)
    return None if isinstance(value, Unknown) or not isinstance(value, int | float) else max(0.0, float(value))


def _gpu_busy(program: Program) -> float | None:
    """The share of the time in which kernels of the program run; what its main thread does meanwhile costs nothing. None: not measured."""
    if not program.uses_gpu or program.gpu is None:
        return None
    return program.gpu.own_used if program.gpu.others else program.gpu.utilization


def _bounded(cost: float | None, busy: float | None) -> float | None:
    """A loss of the main thread, of which no more can be gained than the time in which the GPU is idle."""
    return cost if cost is None or busy is None else min(cost, 100 * (1 - busy))


def _lines(kinds: Sequence[str], program: Program) -> tuple[Line, ...]:
    """The program's lines for these phases and activities, its workers' behind `worker:`."""
    by_place: dict[tuple[str, int], Line] = {}
    for kind in kinds:
        of_worker = kind.startswith("worker:")
        taken = program.worker_stacks if of_worker else program.stacks
        for line in taken.lines if taken is not None else ():
            if line.kind == kind.removeprefix("worker:"):
                by_place.setdefault((line.file, line.line), line)
    return tuple(by_place.values())[:MAX_LINES]


def with_gain(cause: Cause, percent: float | None) -> Cause:
    """A cause with what acting on it is predicted to gain, in percent of the step, and the bounds of that; None: not known."""
    low, gain, high = (None if percent is None else round(min(99.0, percent * part), 1) for part in (TOO_HIGH, 1.0, TOO_LOW))
    return msgspec.structs.replace(cause, gain=gain, gain_low=low, gain_high=high)


def name_of(program: Program) -> str:
    """``rank 3 (pid 4242)`` or ``python (pid 4242)``."""
    what = f"rank {program.rank}" if programs.is_rank(program) else program.name or "process"
    return f"{what} (pid {program.pid})"


def within_a_sentence(title: str) -> str:
    """A title behind a colon; names such as DataLoader, NCCL and Python keep their capitals."""
    word = title.partition(" ")[0]
    return title if word.startswith("Python") or word[1:] != word[1:].lower() else f"{title[:1].lower()}{title[1:]}"
