"""From facts to a verdict: rules name causes, their signals are weighed, and what one cause explains is not said twice.

A cause is *confirmed* by two signals of different sources, *likely* by one. A signal against it drops it, and the report says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from sysperf.diagnosis import programs
from sysperf.diagnosis.facts import Diagnosis, Line, Program, Share
from sysperf.diagnosis.verdict import Cause, Hypothesis, Signal, State, Word
from sysperf.engine.reading import now
from sysperf.evaluate.compiled import Compiled
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.functions import Unknown
from sysperf.evaluate.judge import Judge, scope_names
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.scope import Scope
from sysperf.evaluate.subject import Subject
from sysperf.model.outcome import Outcome, Remedy
from sysperf.model.rule import Rule
from sysperf.model.snapshot import Area, Snapshot
from sysperf.model.text import for_shell
from sysperf.startup import lazy

TOO_HIGH, TOO_LOW = 0.6, 1.5
"""Of the prediction, what was measured in four of five sick programs of tests/clinic: what replaces a cause costs something, too, and
samples see only a part of some."""
MAX_LINES = 3
HEALTHY_SHARE = 0.6
FULL_GPU = 0.95
MIN_STARTING = 0.1
"""Share of its samples in imports from which a program still starts: the window before them was all of it start-up."""
MIN_SHARE_OF_GAIN = 0.5
"""Of another cause's share: one that takes as much of the step explains it."""
ANY_PROGRAM = " python …"
"""How fixes name the program that is started."""
MOSTLY = 0.9
STEPS = 200
_UNSET = lazy(r" -u (\w+)")


class Judged(NamedTuple):
    """The answer, before it gets its frame."""

    word: Word
    sentence: str
    causes: tuple[Cause, ...]
    dropped: tuple[Cause, ...]
    next: str
    hypotheses: tuple[Hypothesis, ...] = ()


def judged(facts: Diagnosis, ruleset: Ruleset) -> Judged:
    """Judge the rules of scope `diagnosis` on each program, and weigh what they found."""
    if (starting := _starting(facts)) is not None:
        return starting
    causes = _together(_found(facts, ruleset))
    dropped = [cause for cause in causes if cause.state == "contradicted"]
    kept, explained = _without_consequences([cause for cause in causes if cause.state != "contradicted"], ruleset)
    kept.sort(key=_order)
    word, sentence, then = _verdict(facts, kept)
    return Judged(word, sentence, tuple(kept), (*dropped, *explained), then, _joined(facts, kept, ruleset))


def _starting(facts: Diagnosis) -> Judged | None:
    """The answer about programs that import modules most of the time: what they do meanwhile is not what a step does."""
    for program in facts.programs:
        if program.stacks is not None and program.stacks.importing >= MIN_STARTING:
            sentence = f"Cannot tell yet: it still starts, and imports modules {program.stacks.importing * 100:.0f} % of the time."
            return Judged("cannot-tell", sentence, (), (), f"sysperf diagnose {program.pid}")
    return None


def _joined(facts: Diagnosis, causes: Sequence[Cause], ruleset: Ruleset) -> tuple[Hypothesis, ...]:
    """What lint said of the running functions, with the causes and the findings in a trace that make it more than a hypothesis."""
    hypotheses = []
    for program in facts.programs:
        seen = [cause.id for cause in causes if program.pid in cause.pids]
        seen += program.traced.findings if program.traced is not None else ()
        detected = {rule: set(ruleset.compiled(rule).rule.detects) for rule in seen}
        for hit in program.places:
            rule = ruleset.compiled(hit.rule).rule
            by = tuple(name for name, detections in detected.items() if detections & set(rule.confirmed_by))
            hypotheses.append(Hypothesis(rule=hit.rule, title=rule.title, file=hit.file, line=hit.line, raised_by=by))
    return tuple(
        sorted(
            dict.fromkeys(hypotheses), key=lambda hypothesis: (not hypothesis.raised_by, hypothesis.file, hypothesis.line, hypothesis.rule)
        )
    )


def trace_may_tell(causes: Sequence[Cause], facts: Diagnosis, ruleset: Ruleset) -> bool:
    """Whether a cause may be the consequence of one that only a trace shows."""
    if not causes or any(program.traced is not None for program in facts.programs):
        return False
    return any(
        {cause.id for cause in causes} & {*rule.covers, *rule.within} and {signal.source for signal in rule.signals[:1]} == {"trace"}
        for rule in ruleset.rules
        if rule.scope == "diagnosis"
    )


def _found(facts: Diagnosis, ruleset: Ruleset) -> list[Cause]:
    """One cause a rule and program."""
    snapshot = Snapshot(taken_at=now(), areas={"diagnosis": Area(facts)})
    names = scope_names(snapshot)
    causes = []
    for rule in ruleset.rules:
        if rule.scope != "diagnosis":
            continue
        compiled = ruleset.compiled(rule.id)
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
    signals = tuple(_signals(compiled, scope))
    if not any(signal.source == "script" for signal in signals):
        signals += _hypotheses(compiled, program, ruleset)
    busy = None if compiled.rule.on_gpu or not compiled.rule.cost else _gpu_busy(program)
    cost = _bounded(_number(compiled, scope), busy)
    if busy is not None and busy >= FULL_GPU:
        text = f"its GPU is busy {100 * busy:.0f} % of the time: kernels hide what the main thread does"
        signals += (Signal(source="gpu", supports=False, text=text),)
    against = [signal for signal in signals if not signal.supports]
    started = [fix for remedy in outcome.fixes if (fix := _of_what_is_set(remedy, program.env)) is not None]
    fixes = (*_divided(started, shares), *_codemods(compiled, program, ruleset))
    state: State = "contradicted" if against else "confirmed" if len({signal.source for signal in signals}) > 1 else "likely"
    return Cause(
        id=outcome.rule, title=outcome.title, state=state, message=outcome.message, subjects=(name_of(program),), pids=(program.pid,),
        gain=_percent(cost), gain_low=_percent(cost, TOO_HIGH), gain_high=_percent(cost, TOO_LOW),
        signals=signals, where=_lines(compiled.rule.lines, program), why=outcome.why, because=against[0].text if against else "",
        fixes=tuple(_of_program(fix, program.command) for fix in fixes),
        verify=proof(fixes, program.command, compiled.rule.proof), refs=outcome.refs,
    )  # fmt: skip


def _gpu_busy(program: Program) -> float | None:
    """The share of the time in which kernels of the program run; what its main thread does meanwhile costs nothing. None: not measured."""
    if not program.uses_gpu or program.gpu is None:
        return None
    return program.gpu.own_used if program.gpu.others else program.gpu.utilization


def _bounded(cost: float | None, busy: float | None) -> float | None:
    """A loss of the main thread, of which no more can be gained than the time in which the GPU is idle."""
    return cost if cost is None or busy is None else min(cost, 100 * (1 - busy))


def _divided(fixes: Sequence[Remedy], shares: Sequence[Share]) -> tuple[Remedy, ...]:
    """A fix that gives programs CPUs of their own is a line for each of them; none where the CPUs cannot be divided."""
    return tuple(line for fix in fixes for line in ([_start_of(fix, share) for share in shares] if fix.kind == "bind" else [fix]))


def _codemods(compiled: Compiled, program: Program, ruleset: Ruleset) -> tuple[Remedy, ...]:
    """What `sysperf lint --fix` changes in the program's source against this cause: it shows a diff, and asks."""
    hits = [hit for hit in program.places if hit.fixable and set(ruleset.compiled(hit.rule).rule.confirmed_by) & set(compiled.rule.detects)]
    places = dict.fromkeys((hit.file, hit.rule) for hit in hits)
    return tuple(
        Remedy(
            "advice", "as a diff of the source, which is shown first", "caution", f"sysperf lint {shlex.quote(file)} --select {rule} --fix"
        )
        for file, rule in places
    )


def _of_program(fix: Remedy, command: str) -> Remedy:
    """A fix that starts the program in another way, with this program's own command line."""
    if fix.kind not in ("env", "preload") or not fix.command.endswith(ANY_PROGRAM):
        return fix
    return msgspec.structs.replace(fix, command=f"{fix.command.removesuffix(ANY_PROGRAM)} {for_shell(command) or ANY_PROGRAM.strip()}")


def _of_what_is_set(fix: Remedy, env: Mapping[str, str] | None) -> Remedy | None:
    """A fix that unsets variables, for those which the program has; None where nothing is left of it."""
    named = _UNSET.findall(fix.command) if fix.kind == "env" else []
    kept = [name for name in named if env is None or name in env]
    if kept == named:
        return fix
    command = _UNSET.sub(lambda option: option[0] if option[1] in kept else "", fix.command)
    if command == f"env{ANY_PROGRAM}":
        return None
    return msgspec.structs.replace(fix, command=command, title=fix.title.replace(", ".join(named), ", ".join(kept)))


def _start_of(fix: Remedy, share: Share) -> Remedy:
    command = f"sysperf wrap --cpus {share.cpus} -- {for_shell(share.command) or 'python …'}"
    return msgspec.structs.replace(fix, title=f"{fix.title}: process {share.pid}", command=command)


def _percent(cost: float | None, part: float = 1.0) -> float | None:
    return None if cost is None else round(min(99.0, cost * part), 1)


def name_of(program: Program) -> str:
    """``rank 3 (pid 4242)`` or ``python (pid 4242)``."""
    what = f"rank {program.rank}" if programs.is_rank(program) else program.name or "process"
    return f"{what} (pid {program.pid})"


def _signals(compiled: Compiled, scope: Scope) -> Iterable[Signal]:
    for index, signal in enumerate(compiled.rule.signals):
        if compiled.expression(signal.when, f"signals[{index}].when")(scope) is True:
            yield Signal(source=signal.source, supports=not signal.against, text=compiled.template(signal.says).fill(scope))


def _hypotheses(compiled: Compiled, program: Program, ruleset: Ruleset) -> tuple[Signal, ...]:
    """What lint says of the program's script and this cause confirms: a hypothesis and a live signal support each other."""
    rules = [ruleset.compiled(hit).rule for hit in program.hits]
    raised = [rule.title for rule in rules if set(rule.confirmed_by) & set(compiled.rule.detects)]
    return (Signal(source="script", text=f"in its script: {_within_a_sentence(raised[0])}"),) if raised else ()


def _number(compiled: Compiled, scope: Scope) -> float | None:
    if not compiled.rule.cost:
        return None
    value = compiled.expression(compiled.rule.cost, "cost")(scope)
    return None if isinstance(value, Unknown) or not isinstance(value, int | float) else max(0.0, float(value))


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


def proof(fixes: Sequence[Remedy], command: str, what: str = "") -> str:
    """The command that compares the program with and without the first fix; ``--b …`` where that is a change of its source.

    None where the rule says `none`: a program that makes no progress has no speed.
    """
    if what == "none":
        return ""
    program = for_shell(command) or "python …"
    if what == "wrap":
        return f"sysperf verify -- {program}"
    first = fixes[0] if fixes else None
    if first is not None and first.kind == "bind":
        return f"sysperf verify --a {shlex.quote(program)} --b {shlex.quote(first.command)}"
    if first is not None and first.kind in ("env", "preload") and first.command.endswith(ANY_PROGRAM):
        return f"sysperf verify --a {shlex.quote(program)} --b {shlex.quote(_of_program(first, command).command)}"
    return f"sysperf verify --steps optimizer --max-steps {STEPS} --a {shlex.quote(program)} --b …"


# ---------------------------------------------------------------------- weighing


def _together(causes: Sequence[Cause]) -> list[Cause]:
    """One cause a rule: what the programs of a job have in common is said once, by the one that shows it most clearly."""
    by_id: dict[str, list[Cause]] = {}
    for cause in causes:
        by_id.setdefault(cause.id, []).append(cause)
    return [_merged(sorted(several, key=_order)) for several in by_id.values()]


def _merged(several: Sequence[Cause]) -> Cause:
    first = several[0]
    same = [cause for cause in several if cause.state == first.state]
    return msgspec.structs.replace(
        first, subjects=tuple(name for cause in same for name in cause.subjects), pids=tuple(pid for cause in same for pid in cause.pids)
    )


_STATES = ("confirmed", "likely", "explained", "contradicted")


def _order(cause: Cause) -> tuple[object, ...]:
    return (_STATES.index(cause.state), -(cause.gain or 0.0), -len(cause.signals), cause.id)


def _without_consequences(causes: list[Cause], ruleset: Ruleset) -> tuple[list[Cause], list[Cause]]:
    """(causes, those that another one of them explains). What is itself explained explains nothing."""
    rules = {cause.id: ruleset.compiled(cause.id).rule for cause in causes}
    explained: dict[str, str] = {}
    for cause in sorted(causes, key=lambda other: (-len(rules[other.id].covers) - len(rules[other.id].within), *_order(other))):
        if cause.id not in explained:
            explained |= {other.id: cause.id for other in causes if other.id not in explained and _explains(cause, other, rules)}
    dropped = [
        msgspec.structs.replace(cause, state="explained", because=f"a consequence of {explained[cause.id]}")
        for cause in causes
        if cause.id in explained
    ]
    kept = [cause for cause in causes if cause.id not in explained]
    return [_rest(cause, [part for part in kept if cause.id in rules[part.id].within]) for cause in kept], dropped


def _explains(cause: Cause, other: Cause, rules: Mapping[str, Rule]) -> bool:
    """Whether another cause is a consequence of this one, or is within it to the most part.

    Of two that are within each other, which is the same time seen from two sides, the one with the larger gain explains the other.
    """
    if other.id in rules[cause.id].covers:
        return True
    if other.id not in rules[cause.id].within:
        return False
    mutual = cause.id in rules[other.id].within
    return other.gain is None or (cause.gain or 0.0) >= (1.0 if mutual else MIN_SHARE_OF_GAIN) * other.gain


def _rest(cause: Cause, parts: Sequence[Cause]) -> Cause:
    """A cause with what is left to gain when its largest part is gone."""
    largest = max((part.gain or 0.0 for part in parts), default=0.0)
    if cause.gain is None or not largest:
        return cause
    rest = cause.gain - largest
    return msgspec.structs.replace(cause, gain=_percent(rest), gain_low=_percent(rest, TOO_HIGH), gain_high=_percent(rest, TOO_LOW))


# ---------------------------------------------------------------------- the verdict


def _verdict(facts: Diagnosis, causes: Sequence[Cause]) -> tuple[Word, str, str]:
    """(word, sentence, command to run next)."""
    if causes:
        first = causes[0]
        return "slowed", _slowed(causes), first.verify or next((fix.command for fix in first.fixes if fix.command), "")
    computing = [program for program in facts.programs if program.role == "computes"]
    suspended = [program for program in facts.programs if (program.main_suspended or 0.0) >= MOSTLY]
    if suspended and not computing:
        return "idle", f"It does nothing now: {name_of(suspended[0])} is suspended, by a signal or a debugger.", ""
    if not computing:
        return "idle", "It does nothing now: its programs wait for work and use no CPU.", ""
    busiest = max(computing, key=lambda program: program.used_cpus or 0.0)
    if (why := _computes(busiest)) != "":
        return "healthy", f"Healthy: bound by computation; {why}.", ""
    return _cannot(busiest)


def _slowed(causes: Sequence[Cause]) -> str:
    first = causes[0]
    sure = "Confirmed" if first.state == "confirmed" else "Likely"
    where = f", at {first.where[0].file}:{first.where[0].line}" if first.where else ""
    gain = f"; acting saves about {first.gain:.0f} % of the step" if first.gain is not None and first.gain >= 1 else ""
    return f"{sure}: {_within_a_sentence(first.title)}{where}{gain}."


def _within_a_sentence(title: str) -> str:
    """A title behind a colon; names such as DataLoader, NCCL and Python keep their capitals."""
    word = title.partition(" ")[0]
    return title if word.startswith("Python") or word[1:] != word[1:].lower() else f"{title[:1].lower()}{title[1:]}"


def _computes(program: Program) -> str:
    """Why it is bound by computation; empty where that is not shown."""
    traced, native, stacks, gpu = program.traced, program.native, program.stacks, program.gpu
    if gpu is not None and (used := (gpu.own_used if gpu.others else gpu.utilization) or 0.0) >= 0.9:
        return f"its GPU is busy {used:.0%} of the time"
    if traced is not None and (traced.operators or 0.0) >= HEALTHY_SHARE:
        return f"operators run {traced.operators:.0%} of the time"
    if program.uses_gpu:
        return ""
    wanted = (program.main_ran or 0.0) + (program.main_waited or 0.0)
    # kernels of PyTorch's libraries count as both, those that were compiled at run time as math only
    if native is not None and wanted >= HEALTHY_SHARE and (own := max(native.torch, native.math) + native.openmp) >= HEALTHY_SHARE:
        return f"its main thread is in PyTorch's own code {min(1.0, own):.0%} of its CPU time"
    if stacks is not None and wanted >= HEALTHY_SHARE and stacks.forward + stacks.backward + stacks.optimizer >= HEALTHY_SHARE:
        return f"forward, backward and optimizer take {stacks.forward + stacks.backward + stacks.optimizer:.0%} of its main thread's time"
    return ""


def _cannot(program: Program) -> tuple[Word, str, str]:
    if program.stacks is None:
        return (
            "cannot-tell", "Cannot tell: from outside alone nothing is wrong with it, and its stacks could not be seen.",
            f"sudo sysperf diagnose {program.pid}",
        )  # fmt: skip
    if max(program.stacks.locking, program.stacks.serving) >= MOSTLY:
        return (
            "cannot-tell",
            "Cannot tell: its main thread only waits, and another thread of it computes.",
            f"sysperf stacks {program.pid}",
        )
    if program.traced is None:
        return (
            "cannot-tell",
            "Cannot tell: neither the kernel's accounting nor samples show a cause, and it cannot be traced.",
            f"sysperf diagnose -- {for_shell(program.command) or 'python …'}",
        )
    return (
        "cannot-tell",
        "Cannot tell: no single cause takes a tenth of its step.",
        f"sysperf trace {program.pid} --stacks --shapes --analyze",
    )
