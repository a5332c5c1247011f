"""How many loader workers a program should have, and how many computing threads beside them: they share the CPUs.

A step is the unit of time. What the stacks and the scheduler showed gives the CPU time and the waiting of a batch, and the time of
computing. A plan is as fast as the slowest of three: the threads that compute, the workers that make batches, and the CPUs that do both.
So it gains what is idle, and no more.

Who waits for storage or for a service hardly wants a CPU. Where others have the CPUs, the scheduler gives such a job its turn, and nobody
knows how much of its wait is a wait for these others: what answers it may be among them, and works as much more as it is asked. So from
nothing up to an even part of the CPUs may be gained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from sysperf.diagnosis import programs
from sysperf.diagnosis.facts import Diagnosis, LoaderPlan, Program

MAX_WORKERS = 64
MIN_CPUS = 0.01
HANDOVER = 0.02
"""Share of a step that taking a batch over from a worker costs, some milliseconds."""
SMALL_S = 0.015
"""Seconds in which a batch is made, below which a worker may take as long to hand it over: each tensor costs some calls on both sides."""
MIN_SAVED = 0.05
"""Of less, more workers or fewer threads are not worth a change."""
LOCKED = 0.3
"""Share of a worker's samples in which it waits for a lock, from which workers are in each other's way."""
SPARE_CPUS = 0.3
"""CPUs that threads and workers may want beyond those that are there: of more, a team waits for its last thread."""
WAITS = 0.5
"""Of a batch's time, how much a worker waits, from which it wants an answer more than a CPU."""
NOBODY = 0.1
"""CPUs that others use, of which nothing grows with the job's pace."""
LARGER = (
    "larger batches (batch_size), or a whole batch by one index in the place of samples (batch_size=None with a BatchSampler): each is "
    "made within some milliseconds, and to hand one over costs a worker some; workers after that, tried with `sysperf verify`"
)
UNLOCK = (
    "let workers read beside each other: a file, a handle or a connection for each of them, opened in its own process, in the place of one "
    "lock for all; more workers wait for the same lock"
)
ALIKE = 1.02
"""Plans whose steps differ by less are alike: the one with fewer workers and more threads is taken."""


class _Work(NamedTuple):
    """One step, in its own time."""

    fetch_cpu: float
    fetch_wait: float
    computing: float
    team: int
    awake: float
    """Of the time in which its main thread wants a CPU, how much it has one."""

    @property
    def batch(self) -> float:
        """Return for how long a worker is busy with a batch."""
        return self.fetch_cpu + self.fetch_wait

    @property
    def cpu(self) -> float:
        """Return the CPU time of a step, of all threads and workers."""
        return self.fetch_cpu + self.computing * self.team * self.awake

    @property
    def waits(self) -> bool:
        """Whether a batch is mostly a wait."""
        return self.fetch_wait >= WAITS * self.batch


def plan(program: Program, facts: Diagnosis) -> LoaderPlan | None:
    """Return the plan by which a program gains most; None where its stacks or the CPUs are not known, or it does not load."""
    cpus, idle = facts.machine.cpus, facts.machine.idle_cpus
    if program.stacks is None or not cpus or idle is None or (work := _work(program)) is None:
        return None
    computing = [one for one in facts.programs if one.role == "computes"] or [program]
    used = sum((one.threads.used_cpus or 0.0) + one.workers.count * (one.workers.ran or 0.0) for one in computing)
    limit = min(cpus, program.quota or cpus)
    available = max(MIN_CPUS, min(idle + used, limit) / len(computing))
    if program.batch_s is not None and program.batch_s < SMALL_S and not work.waits:
        return LoaderPlan(workers=0, threads=work.team, saves=None, advice=LARGER)
    if (locked := _locked(program)) >= LOCKED:
        return _without_lock(program, work, available, locked)
    best = step, workers, threads = _best(work, max(available, _turn(facts, limit / len(computing))) if work.waits else available)
    if 1 - step - HANDOVER < MIN_SAVED or (workers <= program.workers.count and threads == work.team):
        return LoaderPlan(workers=workers, threads=threads, saves=None, advice=_otherwise(best, work, available, cpus))
    saves = 1 - step - HANDOVER
    return LoaderPlan(
        workers=workers,
        threads=threads,
        saves=saves,
        saves_least=min(saves, _least(work, facts, cpus, idle)),
        advice=_advice(best, work, cpus),
    )


def _best(work: _Work, available: float) -> tuple[float, int, int]:
    """The plan with the shortest step; of those that are alike, that of the fewest workers and most threads."""
    plans = sorted(_plans(work, available))
    return next(one for one in sorted(plans, key=lambda one: (one[1], -one[2])) if one[0] <= plans[0][0] * ALIKE)


def _turn(facts: Diagnosis, limit: float) -> float:
    """The CPUs that the scheduler gives a main thread and a worker beside others that are ready, an even part to each."""
    ready = facts.machine.others_ready
    return 0.0 if ready is None else limit * min(1.0, 2 / (2 + ready))


def _least(work: _Work, facts: Diagnosis, cpus: int, idle: float) -> float:
    """What a plan saves in any case: where others use CPUs, what is idle for a job that waits, which may ask these for more."""
    others = (facts.machine.others_cpus or 0.0) + (facts.machine.torch_cpus or 0.0)
    return 1.0 if others < NOBODY else idle / cpus if work.waits else 1 - others / cpus


def _locked(program: Program) -> float:
    return program.worker_stacks.locking if program.worker_stacks is not None and program.workers.count > 1 else 0.0


def _without_lock(program: Program, work: _Work, available: float, locked: float) -> LoaderPlan:
    """What the same workers do when none waits for another one: more of them would wait for the same lock."""
    batch = work.fetch_cpu + work.fetch_wait - min(work.fetch_wait, locked * program.workers.count)
    step = max(work.computing, batch / program.workers.count, work.cpu / available)
    return LoaderPlan(workers=program.workers.count, threads=work.team, saves=max(0.0, 1 - step - HANDOVER), advice=UNLOCK)


def _work(program: Program) -> _Work | None:
    taken, workers = program.stacks, program.workers
    assert taken is not None  # noqa: S101 - the caller has looked
    team = 1 if program.uses_gpu else max(1, program.threads.team or 1)
    awake = 1.0 if program.uses_gpu else programs.awake(program)
    if not workers.count:
        waits = min(taken.inline_fetch, program.main.slept or 0.0)
        return _Work((taken.inline_fetch - waits) * awake, waits, 1 - taken.inline_fetch, team, awake) if taken.inline_fetch else None
    if workers.ran is None or workers.waited is None:
        return None
    waits = workers.count * max(0.0, 1 - workers.ran - workers.waited)
    return _Work(workers.count * workers.ran, waits, 1 - taken.loader_wait, team, awake)


def _plans(work: _Work, available: float) -> Iterator[tuple[float, int, int]]:
    """Each (time of a step, workers, threads) in which threads and busy workers fit on the CPUs; a team scales at best with its threads."""
    most = min(MAX_WORKERS, max(math.ceil(available), math.ceil(work.batch / max(0.05, work.computing))))
    for threads in range(1, work.team + 1):
        for workers in range(1, max(1, most) + 1):
            computing = work.computing * work.team / threads
            step = max(computing, work.batch / workers, work.cpu / available)
            if threads == 1 or threads + work.fetch_cpu / max(step, 0.01) <= available + SPARE_CPUS:
                yield step, workers, threads


def _otherwise(chosen: tuple[float, int, int], work: _Work, available: float, cpus: int) -> str:
    """What to do where no other numbers gain by CPUs that are idle; nobody knows how much that saves."""
    if chosen[2] < work.team and work.team > available + SPARE_CPUS:
        left = f"of its {cpus} CPUs others leave about {available:.1f}, and a team waits for its last thread"
        return f"torch.set_num_threads({chosen[2]}): {left}; more workers gain nothing now"
    busy = f"its {cpus} CPU(s) are in use, and other numbers of workers or threads gain nothing now"
    return f"make samples cheaper, or keep what is the same in each pass: {busy}"


def _advice(chosen: tuple[float, int, int], work: _Work, cpus: int) -> str:
    _, workers, threads = chosen
    beside = f" and torch.set_num_threads({threads})" if threads < work.team else ""
    shared = f": workers and computing threads share {cpus} CPUs" if beside else ""
    asked = f"; the storage or service that they wait for has to answer {workers} at once" if work.waits else ""
    return f"DataLoader(..., num_workers={workers}, persistent_workers=True){beside}{shared}{asked}"
