"""The verb `diagnose`: what slows a running job down, from outside to inside, only as far as the question is open.

A window of the kernel's accounting comes first, then samples of stacks and of machine code, then a trace of a second. After each
the rules of scope `diagnosis` are judged anew, and whoever listens gets the verdict so far. Nothing of the job is changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from sysperf import __version__
from sysperf.collect import AREAS
from sysperf.collect.cgroup import slowed_for_memory, throttled_share
from sysperf.collect.machine_facts import MachineFacts
from sysperf.diagnosis import gpu, measured, programs
from sysperf.diagnosis.activities import Stacks
from sysperf.diagnosis.facts import Diagnosis, Gpu, Native, Program, Share
from sysperf.diagnosis.verdict import Verdict
from sysperf.diagnosis.window import Watched, Window
from sysperf.engine.diagnose import earlier, inside, known, loader_plan, proof, shares
from sysperf.engine.diagnose import verdict as diagnose_verdict
from sysperf.engine.diagnose.parallel_looks import ParallelLooks
from sysperf.engine.judging import Terms
from sysperf.engine.reading import snapshot
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.record import Record
from sysperf.model.snapshot import Snapshot

WINDOW_S, STACKS_S, NATIVE_S = 5.0, 6, 3
LIMIT_S = 27.0
"""All looks end within this time; a longer window from outside comes on top."""
AGAIN_S = 3
MIN_TRACE_S = 7.0
"""A program asks every 5 s: in less time there is no trace that could be read, too."""
LINT_S = 3.0
"""For the sources of all programs: their author is the program's, who may have made one that takes a minute."""
MIN_FETCH = 0.1
"""Share of the main thread's time that it makes batches, from which it is asked how long one takes."""
MAX_SAMPLED = 3
MIN_OPEN_GAIN = 10.0

Tell = Callable[[str, Verdict | None], None]
"""Gets what is done now, and after each look the verdict so far."""
SampleGpus = Callable[[], dict[str, float]]


class Options(Record, kw_only=True):
    """How far a diagnosis may go."""

    seconds: float = WINDOW_S
    passive: bool = False
    trace: bool = True
    stacks_with: str = ""
    traces_with: str = ""


def diagnose(pid: int, terms: Terms, options: Options, *, tell: Tell = lambda *_: None, gpus: SampleGpus | None = None) -> Verdict:
    """Say what slows this program and all below it down. Raises SysperfError where there is nothing to look at."""
    diagnoser = _Diagnoser(pid, terms, options, tell, gpus)
    verdict = diagnoser.run()
    return msgspec.structs.replace(verdict, changed=earlier.changed(verdict, diagnoser.start_ticks))


class _Diagnoser:
    """One diagnosis while it is made."""

    def __init__(self, pid: int, terms: Terms, options: Options, tell: Tell, gpus: SampleGpus | None) -> None:
        self._host = Host()
        self._terms, self._options, self._tell = terms, options, tell
        self._gpus = gpu.Sampler(gpus) if gpus is not None else None
        self._start = time.monotonic()
        self._inside: inside.Inside | None = None
        self._notes: list[str] = []
        self._first_stacks: dict[int, Stacks] = {}
        self._alternates: dict[int, bool] = {}
        if pid < 1 or not self._host.exists(f"/proc/{pid}"):
            raise UsageError(f"there is no process {pid}", "`sysperf ps` lists the PyTorch programs")
        self._asked = pid
        self._machine = self._read()
        self._root = _root(pid, self._machine)
        self._window = Window(self._root)

    @property
    def start_ticks(self) -> int:
        """Return when the program was started: with its number, the name of this very process."""
        watched = self._window.processes.get(self._root)
        return watched.first.stat.start_ticks if watched is not None else 0

    def run(self) -> Verdict:
        facts = self._look_from_outside()
        verdict = self._judge(facts)
        self._tell("the kernel's accounting", verdict)
        if not self._options.passive and sampled(facts.programs) and self._left_s() > 0:
            facts = self._sample(facts)
            verdict = self._judge(facts)
            self._tell("samples", verdict)
            unsure = is_open(verdict) or diagnose_verdict.trace_may_tell(verdict.causes, facts, self._terms.ruleset)
            if self._options.trace and unsure and computing(facts.programs):
                verdict = self._judge(self._trace(facts))
        return verdict

    def _left_s(self) -> float:
        return LIMIT_S + self._options.seconds - WINDOW_S - (time.monotonic() - self._start)

    # ------------------------------------------------------------------ from outside

    def _read(self) -> Snapshot:
        return snapshot(self._host, AREAS)

    def _look_from_outside(self) -> Diagnosis:
        self._tell("the kernel's accounting", None)
        if self._gpus is not None:
            self._gpus.start()
        self._window.run(self._options.seconds)
        if self._gpus is not None:
            self._gpus.stop()
        if self._root not in self._window.processes:
            raise SysperfError(f"process {self._asked} ended before it could be observed", "`sysperf ps` lists the programs that run")
        after = self._read() if self._window.alive() else self._machine
        described = self._known(after)
        if not described and self._host.text(f"/proc/{self._asked}/maps", 16 << 20) is None and self._window.alive():
            if os.geteuid():
                raise SysperfError(f"process {self._asked} belongs to somebody else", f"sudo sysperf diagnose {self._asked}")
            raise SysperfError(
                f"the kernel does not let anybody inspect process {self._asked} from here",
                "a container without CAP_SYS_PTRACE does so: look from the host",
            )
        if not described:
            raise SysperfError(
                f"neither process {self._asked} nor any below it runs PyTorch",
                "`sysperf ps` lists the PyTorch programs; one that has just been started has not loaded it yet",
            )
        finished = tuple(self._finished(program, after) for program in programs.programs(self._window, described))
        return self._around(Diagnosis(programs=finished), after)

    def _known(self, after: Snapshot) -> list[Program]:
        """The PyTorch programs in the tree, as they were before or are after the window."""
        several = {
            candidate.pid: candidate
            for candidate in (*known.processes(self._machine), *known.processes(after))
            if candidate.pid in self._window.processes
        }
        return known.programs(list(several.values()), after, self._terms)

    def _finished(self, program: Program, after: Snapshot) -> Program:
        first, last = (
            next((process.cgroup for process in known.processes(taken) if process.pid == program.pid), None)
            for taken in (self._machine, after)
        )
        meters = self._gpu(program.pid, after) if program.uses_gpu else None
        started, folder = self._started(program.pid)
        high = slowed_for_memory(first, last)
        return msgspec.structs.replace(
            program, throttled=throttled_share(first, last), memory_high_per_s=None if high is None else high / self._window.seconds,
            gpu=meters, started=started, folder=folder,
        )  # fmt: skip

    def _started(self, pid: int) -> tuple[str, str]:
        """(line, folder) of what started a program's job."""
        several = known.processes(self._machine)
        process = next((process for process in several if process.pid == pid), None)
        return ("", "") if process is None else proof.start_of(process, several)

    def _gpu(self, pid: int, after: Snapshot) -> Gpu:
        """The meters of the GPUs on which a program has a context."""
        bus_ids = next((process.gpu_bus_ids for process in known.processes(after) if process.pid == pid), None)
        devices = gpu.used_by(bus_ids, known.cards(after))
        if self._gpus is not None and not devices:
            self._notes.append(f"GPU of process {pid}: the driver does not report on which one it computes")
        meters = self._gpus.facts(devices, self._window.processes, known.cards(after)) if self._gpus is not None else None
        if meters is not None and meters.others and meters.others_used is None:
            self._notes.append(f"GPU of process {pid}: the driver does not report which of {meters.others + 1} programs keeps it busy")
        if meters is None or self._gpus is None:
            return Gpu()
        return msgspec.structs.replace(meters, valleys=self._gpus.valleys(devices, self._window.processes[pid].timeline))

    def _around(self, facts: Diagnosis, after: Snapshot) -> Diagnosis:
        cpus = CpuSet.union([program.allowed for program in facts.programs if program.allowed]) if facts.programs else None
        job = Share(pid=self._asked, command=_command(self._machine, facts, self._asked), cpus=cpus or CpuSet())
        others = shares.competing(known.processes(self._machine), known.processes(after), self._window, cpus)
        power = MachineFacts(after.areas).power
        around = programs.machine(
            self._window, cpus, torch=[process.pid for process in known.processes(after) if process.pid not in self._window.processes],
            other_programs=len(others), governor=power.governors[0] if power and power.governors else None,
            shares=shares.shares(self._host, after, job, others) if cpus else (), float16=_computes_float16(MachineFacts(after.areas)),
        )  # fmt: skip
        return msgspec.structs.replace(facts, machine=around, ranks=programs.ranks(facts.programs))

    # ------------------------------------------------------------------ inside

    def _sample(self, facts: Diagnosis) -> Diagnosis:
        self._tell("samples", None)
        chosen = sampled(facts.programs)
        look = self._inside = inside.Inside(self._host, self._options.stacks_with, self._notes)
        looks: ParallelLooks[tuple[int, str], Stacks | Native | None] = ParallelLooks()
        with looks:
            for program in chosen:
                looks.start((program.pid, "stacks"), partial(self._stacks, look, program.pid, is_rank=programs.is_rank(program)))
                if worker := self._busiest_worker(program.pid):
                    looks.start((program.pid, "worker_stacks"), partial(look.stacks, worker, STACKS_S, program.pid))
            if chosen:
                looks.start((chosen[0].pid, "native"), partial(look.native, chosen[0].pid, NATIVE_S))
            results = looks.results(max(1.0, self._left_s() - LINT_S))
        self._notes += [f"{what} of process {pid}: they took too long" for pid, what in looks.pending]
        lint_s = min(LINT_S, self._left_s()) / max(1, len(chosen))
        seen = []
        for program in facts.programs:
            looked = {what: result for (pid, what), result in results.items() if pid == program.pid}
            looked |= {"stacks": self._first_stacks[program.pid]} if program.pid in self._first_stacks else {}
            places = look.hits(program.pid, self._terms.ruleset, lint_s) if program in chosen else ()
            hits = tuple(sorted({hit.rule for hit in places}))
            later = measured.growth_later(self._window, program.pid)
            memory = msgspec.structs.replace(program.memory, growth_later_bytes_per_s=later)
            alternates = self._alternates.get(program.pid)
            batch_s = self._batch_s(program, looked.get("stacks"))
            looked_into = msgspec.structs.replace(
                program, hits=hits, places=places, memory=memory, alternates=alternates, batch_s=batch_s, **looked
            )
            seen.append(programs.with_role_by_stacks(looked_into))
        sampled_all = msgspec.structs.replace(facts, programs=tuple(seen), ranks=programs.ranks(seen))
        planned = (msgspec.structs.replace(program, loader=loader_plan.plan(program, sampled_all)) for program in seen)
        return msgspec.structs.replace(sampled_all, programs=tuple(planned))

    def _batch_s(self, program: Program, taken: Stacks | Native | None) -> float | None:
        """Return the seconds in which it makes a batch, without its waits for a CPU that others have."""
        if self._inside is None or not isinstance(taken, Stacks) or not self._makes_batches(program, taken):
            return None
        took_s = self._inside.batch_s(program.pid, taken)
        return None if took_s is None else took_s * programs.awake(program)

    def _makes_batches(self, program: Program, taken: Stacks) -> bool:
        """Whether it makes so much of its batches itself that workers may be advised, and there is time to see how long one takes."""
        fetches = not program.workers.count and taken.inline_fetch >= MIN_FETCH
        prepares = (taken.statement if taken.cure == "data" else taken.preparing) >= MIN_FETCH
        return (fetches or prepares) and self._left_s() > LINT_S

    def _stacks(self, look: inside.Inside, pid: int, *, is_rank: bool) -> Stacks | None:
        """Look once more at a program that evaluates and trains: it does both by turns, or was met at the end of an epoch."""
        first = look.stacks(pid, STACKS_S, is_rank=is_rank)
        if first is not None and programs.evaluates_and_trains(first):
            self._first_stacks[pid] = first
            second = look.stacks(pid, AGAIN_S, is_rank=is_rank)
            self._alternates[pid] = second is not None and programs.evaluates_and_trains(second)
        return first

    def _busiest_worker(self, pid: int) -> int | None:
        """The DataLoader worker of a program that used most CPU time."""
        mine = [process for process in self._window.processes.values() if self._window.parents.get(process.pid) == pid]
        workers = [process for process in mine if process.comm == measured.WORKER and process.last is not process.first]
        return max(workers, key=_used_ticks).pid if workers else None

    def _trace(self, facts: Diagnosis) -> Diagnosis:
        chosen = sampled(facts.programs)[:1]
        if not chosen:
            return facts
        if self._left_s() < MIN_TRACE_S:
            self._notes.append(f"trace of process {chosen[0].pid}: no time is left for one, so busy is the machine")
            return facts
        self._tell("a trace of a second", None)
        pid, trace_s = chosen[0].pid, inside.length_s(chosen[0].native)
        traced = inside.trace(pid, self._terms.ruleset, trace_s, self._left_s(), self._options.traces_with, self._notes)
        seen = [msgspec.structs.replace(program, traced=traced) if program.pid == pid else program for program in facts.programs]
        return msgspec.structs.replace(facts, programs=tuple(seen))

    def _judge(self, facts: Diagnosis) -> Verdict:
        weighed = diagnose_verdict.judged(facts, self._terms.ruleset, self._inside.remedy if self._inside is not None else "")
        return Verdict(
            sysperf=__version__,
            pid=self._asked,
            command=_command(self._machine, facts, self._asked),
            verdict=weighed.word,
            sentence=weighed.sentence,
            causes=weighed.causes,
            dropped=weighed.dropped,
            hypotheses=weighed.hypotheses,
            notes=tuple(dict.fromkeys(self._notes)),
            next=weighed.next,
            took_s=round(time.monotonic() - self._start, 1),
            facts=facts,
        )


def _computes_float16(machine: MachineFacts) -> bool | None:
    """Whether the CPUs have instructions for float16; None where that is not known, as of ARM's."""
    isa = machine.cpu.isa if machine.cpu is not None else None
    return None if isa is None or not isa.avx2 else isa.avx512_fp16 or isa.amx_fp16


def is_open(verdict: Verdict) -> bool:
    """Whether a trace may still tell something: no confirmed cause in the job itself explains a good part of the step."""
    confirmed = [
        cause
        for cause in verdict.causes
        if cause.state == "confirmed" and (cause.gain.middle or 0.0) >= MIN_OPEN_GAIN and cause.rule not in diagnose_verdict.BY_OTHERS
    ]
    return not confirmed and verdict.verdict != "idle"


def sampled(candidates: Sequence[Program]) -> list[Program]:
    """The programs that are looked into: of ranks the busiest and the least busy one, else those that use most CPU time.

    Ranks that do not compute may wait for each other, or keep those waiting that spin: one of them, or two where none computes. Of other
    programs that do not compute only stacks tell whether they wait for work or for data.
    """
    busy = computing(candidates)
    ranks = [program for program in busy if programs.is_rank(program)]
    idle = sorted((program for program in candidates if program.role == "idle"), key=programs.is_rank, reverse=True)
    if ranks and idle and programs.is_rank(idle[0]):
        return [ranks[0], idle[0]]
    if len(ranks) > 1:
        return [busy[0], busy[-1]]
    return busy[:MAX_SAMPLED] or idle[:2]


def computing(candidates: Sequence[Program]) -> list[Program]:
    """The programs that compute, those that use most CPU time first."""
    return sorted(
        (program for program in candidates if program.role == "computes"), key=lambda program: -(program.threads.used_cpus or 0.0)
    )


def _root(pid: int, taken: Snapshot) -> int:
    """Return, for a rank, the process that started all ranks, so that they are seen together."""
    process = next((candidate for candidate in known.processes(taken) if candidate.pid == pid), None)
    if process is None or (process.job.world_size or 1) < 2 or process.job.id in (0, pid, 1):
        return pid
    return int(process.job.id)


def _used_ticks(watched: Watched) -> int:
    return watched.last.stat.cpu_ticks - watched.first.stat.cpu_ticks


def _command(taken: Snapshot, facts: Diagnosis, pid: int) -> str:
    named = [program.command for program in facts.programs if program.pid == pid] or [program.command for program in facts.programs]
    return named[0] if named else next((program.command or "" for program in known.processes(taken) if program.pid == pid), "")
