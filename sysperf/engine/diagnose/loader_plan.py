"""How many loader workers a program should have, and how many computing threads beside them: they share the CPUs.

A step is the unit of time. What the stacks and the scheduler showed gives the CPU time and the waiting of a batch, and the time of
computing. A plan is as fast as the slowest of three: the threads that compute, the workers that make batches, and the CPUs that do both.
So it gains what is idle, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from sysperf.diagnosis.facts import Diagnosis, LoaderPlan, Program

MAX_WORKERS = 64
HANDOVER = 0.02
"""Share of a step that taking a batch over from a worker costs, some milliseconds."""
MIN_SAVED = 0.05
"""Of less, more workers or fewer threads are not worth a change."""
LOCKED = 0.3
"""Share of a worker's samples in which it waits for a lock, from which workers are in each other's way."""
SPARE_CPUS = 0.3
"""CPUs that threads and workers may want beyond those that are there: of more, a team waits for its last thread."""
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

    @property
    def batch(self) -> float:
        """Return for how long a worker is busy with a batch."""
        return self.fetch_cpu + self.fetch_wait


def plan(program: Program, facts: Diagnosis) -> LoaderPlan | None:
    """Return the plan by which a program gains most; None where its stacks or the CPUs are not known, or it does not load."""
    cpus, idle = facts.machine.cpus, facts.machine.idle_cpus
    if program.stacks is None or not cpus or idle is None or (work := _work(program)) is None:
        return None
    computing = [one for one in facts.programs if one.role == "computes"] or [program]
    used = sum((one.threads.used_cpus or 0.0) + one.workers.count * (one.workers.ran or 0.0) for one in computing)
    limit = program.quota or cpus
    available = max(1.0, min(idle + used, cpus, limit) / len(computing))
    if (locked := _locked(program)) >= LOCKED:
        return _without_lock(program, work, available, locked)
    plans = sorted(_plans(work, available))
    best = next(one for one in sorted(plans, key=lambda one: (one[1], -one[2])) if one[0] <= plans[0][0] * ALIKE)
    step, workers, threads = best
    if 1 - step - HANDOVER < MIN_SAVED or (workers <= program.workers.count and threads == work.team):
        return LoaderPlan(workers=workers, threads=threads, saves=None, advice=_otherwise(best, work, available, cpus))
    return LoaderPlan(workers=workers, threads=threads, saves=1 - step - HANDOVER, advice=_advice(best, work, cpus))


def _locked(program: Program) -> float:
    return program.worker_stacks.locking if program.worker_stacks is not None and program.workers.count > 1 else 0.0


def _without_lock(program: Program, work: _Work, available: float, locked: float) -> LoaderPlan:
    """What the same workers do when none waits for another one: more of them would wait for the same lock."""
    batch = work.fetch_cpu + work.fetch_wait - min(work.fetch_wait, locked * program.workers.count)
    step = max(work.computing, batch / program.workers.count, (work.fetch_cpu + work.computing * work.team) / available)
    return LoaderPlan(workers=program.workers.count, threads=work.team, saves=max(0.0, 1 - step - HANDOVER), advice=UNLOCK)


def _work(program: Program) -> _Work | None:
    taken, workers = program.stacks, program.workers
    assert taken is not None  # noqa: S101 - the caller has looked
    team = 1 if program.uses_gpu else max(1, program.threads.team or 1)
    if not workers.count:
        waits = min(taken.inline_fetch, program.main.slept or 0.0)
        return _Work(taken.inline_fetch - waits, waits, 1 - taken.inline_fetch, team) if taken.inline_fetch else None
    if workers.ran is None or workers.waited is None:
        return None
    return _Work(workers.count * workers.ran, workers.count * max(0.0, 1 - workers.ran - workers.waited), 1 - taken.loader_wait, team)


def _plans(work: _Work, available: float) -> Iterator[tuple[float, int, int]]:
    """Each (time of a step, workers, threads) in which threads and busy workers fit on the CPUs; a team scales at best with its threads."""
    most = min(MAX_WORKERS, max(math.ceil(available), math.ceil(work.batch / max(0.05, work.computing))))
    for threads in range(1, work.team + 1):
        for workers in range(1, max(1, most) + 1):
            computing = work.computing * work.team / threads
            step = max(computing, work.batch / workers, (work.fetch_cpu + work.computing * work.team) / available)
            if threads == 1 or threads + work.fetch_cpu / max(step, 0.01) <= available + SPARE_CPUS:
                yield step, workers, threads


def _otherwise(chosen: tuple[float, int, int], work: _Work, available: float, cpus: int) -> str:
    """What to do where no other numbers gain by CPUs that are idle; nobody knows how much that saves."""
    if work.team > available + SPARE_CPUS:
        left = f"of its {cpus} CPUs others leave about {available:.1f}, and a team waits for its last thread"
        return f"torch.set_num_threads({chosen[2]}): {left}; more workers gain nothing now"
    return f"make samples cheaper, or keep them: its {cpus} CPU(s) are in use, and other numbers of workers or threads gain nothing now"


def _advice(chosen: tuple[float, int, int], work: _Work, cpus: int) -> str:
    _, workers, threads = chosen
    beside = f" and torch.set_num_threads({threads})" if threads < work.team else ""
    shared = f": workers and computing threads share {cpus} CPUs" if beside else ""
    return f"DataLoader(..., num_workers={workers}, persistent_workers=True){beside}{shared}"
