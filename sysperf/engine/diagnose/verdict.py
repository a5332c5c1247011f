"""The verdict on facts: one word, a sentence, the causes that are left after weighing, and what to run next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sysperf.diagnosis import programs
from sysperf.diagnosis.activities import Stacks
from sysperf.diagnosis.facts import Diagnosis, Program
from sysperf.diagnosis.verdict import Word
from sysperf.engine.diagnose import causes as diagnose_causes
from sysperf.engine.diagnose import hits, weighing
from sysperf.engine.diagnose.causes import subject_of, within_a_sentence
from sysperf.engine.diagnose.proof import in_folder
from sysperf.evaluate.ruleset import Ruleset
from sysperf.model.finding import Finding, State
from sysperf.model.rule import Scope

OTHERS_DOING = frozenset(("threads.neighbour", "threads.programs-compete"))
"""What others do to a job says nothing about the job itself."""
BY_OTHERS = OTHERS_DOING | {"threads.team-beside-others"}
"""With what a job can do about them, which says no more of what it does itself."""
HEALTHY_SHARE = 0.6
MIN_STARTING = 0.1
"""Share of its samples in imports from which a program still starts: the window before them was all of it start-up."""
MOSTLY = 0.9
BESIDE_SHARE = 0.3
STATEMENT_SHARE = 0.15
"""Of the time of a program of which no cause is said, how much its largest statement takes that is shown."""
OWN_SHARE = 0.2
"""Of the CPU time of a program, how much its main thread takes that computes itself, perhaps with a team."""
MIN_BESIDE = 0.3
"""CPUs that a run of sysperf or a helper of the job takes, from which it is said."""


class Judged(NamedTuple):
    """The answer, before it gets its frame."""

    word: Word
    sentence: str
    causes: tuple[Finding, ...]
    dropped: tuple[Finding, ...]
    next: str
    hypotheses: tuple[Finding, ...] = ()


def judged(facts: Diagnosis, ruleset: Ruleset, remedy: str = "") -> Judged:
    """Judge the rules of scope `diagnosis` on each program, and weigh what they found.

    `remedy` is the command that would have shown the stacks, where they could not be seen.
    """
    if (starting := _starting(facts)) is not None:
        return starting
    causes = weighing.one_per_rule(diagnose_causes.find(facts, ruleset))
    dropped = [cause for cause in causes if cause.state == "contradicted"]
    kept, explained = weighing.without_consequences([cause for cause in causes if cause.state != "contradicted"], ruleset)
    kept.sort(key=weighing.order)
    word, sentence, then = _verdict(facts, kept, remedy)
    return Judged(word, sentence, tuple(kept), (*dropped, *explained), then, _joined(facts, kept, ruleset))


def _starting(facts: Diagnosis) -> Judged | None:
    """The answer about programs that import modules most of the time: what they do meanwhile is not what a step does."""
    for program in facts.programs:
        if program.stacks is not None and program.stacks.importing >= MIN_STARTING:
            sentence = f"Cannot tell yet: it still starts, and imports modules {program.stacks.importing * 100:.0f} % of the time."
            return Judged("cannot-tell", sentence, (), (), f"sysperf diagnose {program.pid}")
    return None


def _joined(facts: Diagnosis, causes: Sequence[Finding], ruleset: Ruleset) -> tuple[Finding, ...]:
    """What lint said of the running functions, with the causes and the findings in a trace that make it more than a hypothesis."""
    hypotheses = []
    for program in facts.programs:
        mine = [cause.rule for cause in causes if program.pid in {subject.pid for subject in (cause.subject, *cause.also)}]
        seen: list[tuple[str, Scope]] = [(cause, "diagnosis") for cause in mine]
        seen += [(cause, "trace") for cause in program.traced.findings] if program.traced is not None else []
        for hit in program.places:
            by = tuple(dict.fromkeys(name for name, scope in seen if hits.speaks_for(hit.rule, name, scope, ruleset)))
            rule = hits.in_source(hit.rule, ruleset)
            state: State = "confirmed" if by else "finding"
            hypotheses.append(Finding(hit.rule, state, rule.severity, "script", rule.title, places=(hit.place,), confirmed_by=by))
    return tuple(sorted(dict.fromkeys(hypotheses), key=_order))


def _order(hypothesis: Finding) -> tuple[object, ...]:
    """Confirmed ones first, then in the order of the source."""
    return (not hypothesis.confirmed_by, *((place.file, place.line) for place in hypothesis.places), hypothesis.rule)


def trace_may_tell(causes: Sequence[Finding], facts: Diagnosis, ruleset: Ruleset) -> bool:
    """Whether a cause may be the consequence of one that only a trace shows."""
    if not causes or any(program.traced is not None for program in facts.programs):
        return False
    running = [rule for rule in ruleset.rules if rule.scope == "diagnosis"]
    only_traced = [rule for rule in running if [signal.source for signal in rule.signals[:1]] == ["trace"]]
    found = {cause.rule for cause in causes}
    return any(found & {*rule.explains, *rule.explains_where_most} for rule in only_traced)


def _verdict(facts: Diagnosis, causes: Sequence[Finding], remedy: str) -> tuple[Word, str, str]:
    """(word, sentence, command to run next)."""
    if causes:
        first, of_others = causes[0], all(cause.rule in BY_OTHERS for cause in causes)
        then = first.verify or next((fix.command for fix in first.fixes if fix.command), "")
        return "slowed", _slowed(facts, causes), (remedy if of_others else "") or then
    computing = [program for program in facts.programs if program.role == "computes"]
    suspended = [program for program in facts.programs if (program.main.suspended or 0.0) >= MOSTLY]
    if suspended and not computing:
        return "idle", f"It does nothing now: {subject_of(suspended[0]).text} is suspended, by a signal or a debugger.", ""
    if not computing:
        return _waiting(facts, remedy)
    busiest = _busiest(computing)
    if shown := _computes(busiest):
        return "healthy", f"Healthy: bound by computation; {shown}{_beside(busiest)}.", ""
    why, then = _why_unknown(busiest, remedy)
    return "cannot-tell", f"Cannot tell: {_of_its_own(facts)}{why}{_beside(busiest)}.", then


def _of_its_own(facts: Diagnosis) -> str:
    """Name who takes the job's CPUs and is no neighbour: what it is connected with, and runs of sysperf."""
    around = facts.machine
    several = (
        ("a run of sysperf takes", around.trials, around.trials_cpus),
        ("the job's own helpers take", around.helpers, around.helpers_cpus),
    )
    return "".join(
        f"{what} {used:.1f} CPUs of the job meanwhile, {who}; " for what, who, used in several if who and used and used >= MIN_BESIDE
    )


def _busiest(candidates: Sequence[Program]) -> Program:
    return max(candidates, key=lambda program: program.threads.used_cpus or 0.0)


def _beside(program: Program) -> str:
    """Name the statement, or the place outside of forward, backward and optimizer, where a program spends much of its time."""
    taken = program.stacks
    if taken is not None and taken.statement >= STATEMENT_SHARE:
        return f"; its largest statement beside the model takes {taken.statement:.0%} of its time{_most_at(taken, 'statement', ', ')}"
    if taken is None or taken.other < BESIDE_SHARE or taken.backward + taken.optimizer < MIN_STARTING:
        return ""
    return f"; {taken.other:.0%} of its time is outside of forward, backward and optimizer{_most_at(taken, 'other')}"


def _most_at(taken: Stacks, kind: str, before: str = ", most of it ") -> str:
    """The line with most of a phase or an activity, as a part of a sentence."""
    return next((f"{before}at {place.file}:{place.line} ({place.function})" for place in taken.lines if place.what == kind), "")


def _waiting(facts: Diagnosis, remedy: str) -> tuple[Word, str, str]:
    """What is said of programs that use no CPU: that they wait for work only where that is seen, and not where it may be for data."""
    for program in facts.programs:
        if program.role == "idle" and program.stacks is None:
            whom = f"it and its {program.workers.count} DataLoader worker(s) use" if program.workers.count else "it uses"
            why = f"{whom} no CPU: only stacks tell whether it waits for data or for work"
            return "cannot-tell", f"Cannot tell: {why}.", remedy or f"sysperf diagnose {program.pid}"
        if program.role == "idle" and not programs.is_rank(program) and (where := _waits_in(program.stacks or Stacks())):
            return "cannot-tell", f"Cannot tell: it uses no CPU, and waits {where}.", f"sysperf stacks {program.pid}"
    return "idle", "It does nothing now: its programs wait for work and use no CPU.", ""


def _waits_in(taken: Stacks) -> str:
    """Say where a program waits that may do so for data; empty of one at a prompt, in a server's loop or in a sleep."""
    if taken.attending + taken.sleeping >= HEALTHY_SHARE:
        return ""
    places = {"serving": "at a socket or a pipe", "locking": "for another thread of it", "other": "in its own code"}
    for_what = {"compiling": "while torch.compile compiles", "children": "for processes that it started", **places}
    kind = next((kind for kind in for_what if getattr(taken, kind) >= HEALTHY_SHARE), "other")
    unknown = ": for data or for work, which nothing here tells" if kind in places else ""
    return f"{for_what[kind]}{_most_at(taken, kind, ', ')}{unknown}"


def _slowed(facts: Diagnosis, causes: Sequence[Finding]) -> str:
    first = causes[0]
    own = [cause for cause in causes if cause.rule not in BY_OTHERS]
    team = [cause for cause in causes[1:] if cause.rule in BY_OTHERS - OTHERS_DOING]
    beside = ""
    if first.rule in BY_OTHERS:
        beside = "".join(map(_in_itself, (*team, *own[:1]))) or _others_of(facts) or _beside(_busiest(facts.programs))
    sure = "Confirmed" if first.state == "confirmed" else "Likely"
    where = _at(first)
    low, middle, high = first.gain.low or 0.0, first.gain.middle or 0.0, first.gain.high or 0.0
    gain = f"; mending it could save {middle:.0f} % of each step ({low:.0f} to {high:.0f})" if middle >= 1 else ""
    return f"{sure}: {within_a_sentence(first.title)}{where}{gain}{beside}."


def _in_itself(cause: Finding) -> str:
    """What is to be mended in the job itself, where others are said first."""
    return f"; in the program itself: {within_a_sentence(cause.title)}{_at(cause)}"


def _others_of(facts: Diagnosis) -> str:
    """Name the place where another thread is at work of a program whose main thread only waits."""
    taken = _busiest(facts.programs).stacks
    if taken is None or not taken.other_threads or max(taken.locking, taken.serving) < MOSTLY:
        return ""
    return f"; in the program itself another thread than the main one is at work{_most_at(taken, 'other_threads')}"


def _at(cause: Finding) -> str:
    return f", at {cause.place.file}:{cause.place.line}" if cause.place else ""


def _computes(program: Program) -> str:
    """Why it is bound by computation; empty where that is not shown."""
    traced, native, stacks, gpu = program.traced, program.native, program.stacks, program.gpu
    if gpu is not None and (used := (gpu.own_used if gpu.others else gpu.utilization) or 0.0) >= 0.9:
        return f"its GPU is busy {used:.0%} of the time"
    if traced is not None and (traced.operators or 0.0) >= HEALTHY_SHARE:
        return f"operators run {traced.operators:.0%} of the time"
    if program.uses_gpu:
        return ""
    wanted = (program.main.ran or 0.0) + (program.main.waited or 0.0)
    # kernels of PyTorch's libraries count as both, those that were compiled at run time as math only
    if native is not None and wanted >= HEALTHY_SHARE and (own := max(native.torch, native.math) + native.openmp) >= HEALTHY_SHARE:
        return f"its main thread is in PyTorch's own code {min(1.0, own):.0%} of its CPU time"
    if stacks is not None and wanted >= HEALTHY_SHARE and stacks.forward + stacks.backward + stacks.optimizer >= HEALTHY_SHARE:
        return f"forward, backward and optimizer take {stacks.forward + stacks.backward + stacks.optimizer:.0%} of its main thread's time"
    return ""


def _why_unknown(program: Program, remedy: str) -> tuple[str, str]:
    """(why it cannot be told, what to run next)."""
    if program.stacks is None:
        why = "from outside alone nothing is wrong with it, and its stacks could not be seen"
        return why, remedy or f"sysperf diagnose {program.pid}"
    if (waits := max(program.stacks.locking, program.stacks.serving)) >= MOSTLY:
        if (program.main.ran or 0.0) >= OWN_SHARE * (program.threads.used_cpus or 0.0):
            why = f"its main thread waits {waits:.0%} of the time, and computes in between: for data or for work, which nothing here tells"
            return why, f"sysperf stacks {program.pid}"
        at = _most_at(program.stacks, "other_threads")
        return f"its main thread only waits, and another thread of it computes{at}", f"sysperf stacks {program.pid}"
    if program.traced is None:
        why = "neither the kernel's accounting nor samples show a cause, and there is no trace"
        return why, in_folder(program, f"sysperf diagnose -- {program.started}") if program.started else f"sysperf stacks {program.pid}"
    return "no single cause takes a tenth of its step", f"sysperf trace {program.pid} --stacks --shapes --analyze"
