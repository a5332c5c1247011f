"""Which causes the rules find in each program, with their signals, gain, lines and fixes.

A cause is *confirmed* by two signals of different sources, *likely* by one. A signal against it contradicts it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from sysperf.diagnosis import programs
from sysperf.diagnosis.facts import Diagnosis, Program
from sysperf.engine.diagnose import fixes as diagnose_fixes
from sysperf.engine.diagnose import hits
from sysperf.engine.diagnose import proof as diagnose_proof
from sysperf.engine.reading import now
from sysperf.evaluate.compiled import Compiled
from sysperf.evaluate.judge import Answer, judge
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.scope import Scope
from sysperf.evaluate.subject import program_of, with_subject
from sysperf.model.finding import Finding, Gain, Place, Signal, State, Subject
from sysperf.model.snapshot import Area, Snapshot

TOO_HIGH, TOO_LOW = 0.6, 1.5
"""Of the prediction, what was measured in four of five sick programs of tests/clinic: what replaces a cause costs something, too, and
samples see only a part of some."""
ALIKE_SAMPLES = 5
"""Samples in a row that show the same call, about: a tenth of a second counts as one look."""
FAR_LESS = 3
"""How many times more of the time another line has, from which it stands before the rule's first kind."""
MAX_LINES = 3
FULL_GPU = 0.95


def find(facts: Diagnosis, ruleset: Ruleset) -> list[Finding]:
    """One cause a rule and program."""
    snapshot = Snapshot(taken_at=now(), areas={"diagnosis": Area(facts)})
    answers = judge(ruleset, snapshot, ("diagnosis",)).answers
    return [_cause(answer, answer.item.value, facts, ruleset) for answer in answers if answer.finding.state == "finding"]


def _cause(answer: Answer, program: Program, facts: Diagnosis, ruleset: Ruleset) -> Finding:
    compiled, rule = answer.rule, answer.rule.rule
    scope = Scope({"diagnosis": facts, compiled.loop: program}, ruleset.tables)
    busy = None if rule.on_gpu or not rule.cost else _gpu_busy(program)
    signals = tuple(_signals(compiled, scope))
    if not any(signal.source == "script" for signal in signals):
        signals += _hypotheses(compiled, program, ruleset)
    signals += _hidden(busy)
    against = [signal.text for signal in signals if not signal.supports]
    fixes = diagnose_fixes.fixes(answer.finding.fixes, compiled, program, facts.machine.shares, ruleset)
    cost, places = compiled.percent("cost", scope), _places(compiled, program, ruleset)
    proven = diagnose_proof.proof(fixes, program, rule.proof, places[0] if places else None)
    cause = msgspec.structs.replace(
        with_subject(answer.finding, subject_of(program)), state=_state(signals), signals=signals, places=places,
        because=against[0] if against else "",
        fixes=tuple(diagnose_fixes.of_program(fix, program) for fix in fixes),
        keep=proven.keep, verify=proven.verify, cost_pct=cost,
    )  # fmt: skip
    saves = compiled.percent("saves", scope) if rule.saves else cost
    most = _bounded(saves if saves is None or cost is None else min(cost, saves), busy)
    return with_gain(cause, most, least=compiled.percent("saves_least", scope), looks=_looks(rule.cost, program))


def _looks(cost: str, program: Program) -> float | None:
    """How many looks the cost rests on that do not depend on each other; None where it is no share of samples."""
    taken = program.stacks if "stacks." in cost else program.native if "native." in cost else None
    return taken.samples / ALIKE_SAMPLES if taken is not None and taken.samples else None


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
    raised = [hit for hit in program.hits if hits.speaks_for(hit, compiled.rule.id, "diagnosis", ruleset)]
    if not raised:
        return ()
    same, title = compiled.rule.id in raised, hits.in_source(raised[0], ruleset).title
    return (Signal(source="script", text="its source shows it, too" if same else f"in its source: {within_a_sentence(title)}"),)


def _hidden(busy: float | None) -> tuple[Signal, ...]:
    """The signal against all that only keeps the main thread, of a GPU that computes all the time."""
    if busy is None or busy < FULL_GPU:
        return ()
    text = f"its GPU is busy {100 * busy:.0f} % of the time: kernels hide what the main thread does"
    return (Signal(source="gpu", supports=False, text=text),)


def _gpu_busy(program: Program) -> float | None:
    """The share of the time in which kernels of the program run; what its main thread does meanwhile costs nothing. None: not measured."""
    if not program.uses_gpu or program.gpu is None:
        return None
    return program.gpu.own_used if program.gpu.others else program.gpu.utilization


def _bounded(cost: float | None, busy: float | None) -> float | None:
    """A loss of the main thread, of which no more can be gained than the time in which the GPU is idle."""
    return cost if cost is None or busy is None else min(cost, 100 * (1 - busy))


def _places(compiled: Compiled, program: Program, ruleset: Ruleset) -> tuple[Place, ...]:
    """The program's lines for a rule's phases and activities, its workers' behind `worker:`; `script` are those that lint names."""
    by_line: dict[tuple[str, int], Place] = {}
    for kind in compiled.rule.lines:
        if kind == "script":
            spoken = (hit.place for hit in program.places if hits.speaks_for(hit.rule, compiled.rule.id, "diagnosis", ruleset))
            by_line |= {(place.file, place.line): place for place in spoken if (place.file, place.line) not in by_line}
            continue
        of_worker = kind.startswith("worker:")
        taken = program.worker_stacks if of_worker else program.stacks
        for place in taken.lines if taken is not None else ():
            if place.what == kind.removeprefix("worker:"):
                by_line.setdefault((place.file, place.line), place)
    places = list(by_line.values())
    if (largest := max(places, key=_share, default=None)) is not None and _share(places[0]) * FAR_LESS < _share(largest):
        places.sort(key=lambda place: place is not largest)
    return tuple(places[:MAX_LINES])


def _share(place: Place) -> float:
    return place.share or 0.0


def with_gain(cause: Finding, percent: float | None, *, least: float | None = None, looks: float | None = None) -> Finding:
    """A cause with what acting on it is predicted to gain, in percent of the step, and the bounds of that; None: not known.

    `least` is what it gains in any case, where that is less. Of few `looks` a share is uncertain by twice its standard error.
    """
    if percent is None:
        return msgspec.structs.replace(cause, gain=Gain())
    least = percent if least is None else min(least, percent)
    unsure = 2 * math.sqrt(max(0.0, percent * (100 - percent)) / looks) if looks else 0.0
    bounds = min(least * TOO_HIGH, least - unsure), (least + percent) / 2, max(percent * TOO_LOW, percent + unsure)
    low, middle, high = (round(min(99.0, max(0.0, bound)), 1) for bound in bounds)
    text = f"about {middle:.0f} % of the step ({low:.0f} to {high:.0f}) by what was seen; unmeasured"
    return msgspec.structs.replace(cause, gain=Gain("samples", text, low, middle, high))


def subject_of(program: Program) -> Subject:
    """A rank by its number in the job, another program by its name."""
    name = f"rank {program.rank}" if programs.is_rank(program) else program.name
    return Subject("process", name, pid=program.pid, program=program_of(program.command))


def within_a_sentence(title: str) -> str:
    """A title behind a colon; names such as DataLoader, NCCL and Python keep their capitals."""
    word = title.partition(" ")[0]
    return title if word.startswith("Python") or word[1:] != word[1:].lower() else f"{title[:1].lower()}{title[1:]}"
