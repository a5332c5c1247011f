"""The verb `bench host`: what this machine can give at most, in a minute, each figure by short runs in random order."""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from sysperf import __version__
from sysperf.engine import reading
from sysperf.engine.bench.figures import DECODER, GROUPS, OURS, RANKS, TORCH, Figure, planned
from sysperf.engine.bench.files import bench_folder
from sysperf.engine.bench.machine import Machine
from sysperf.engine.bench.workers import Answer, Asked, Ranks, Worker, close_all
from sysperf.engine.verify import resuming
from sysperf.host import Host
from sysperf.model.ceiling import Ceiling, Ceilings
from sysperf.model.errors import UsageError
from sysperf.model.record import Record
from sysperf.model.text import neutral
from sysperf.verify import noise

RUNS = 5
ABOUT_S = 30.0
"""All runs together take about so long, besides what starts and what storage takes."""
MIN_RUN_S, MAX_RUN_S = 0.05, 0.25
LIMIT_S = 60.0
"""A run that takes longer is ended, and its figure is not measured again."""
BUSY_CPUS = 0.3


class Request(Record):
    """What the user asks for."""

    groups: tuple[str, ...] = GROUPS
    runs: int = RUNS
    folder: str = "."
    """Where files are written and read: what lies there is on the storage that is measured."""
    python: str = ""
    ranks: int | None = None


class _Runs:
    """What the runs of one figure gave so far."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.values: list[float] = []
        self.others: list[float] = []
        self.remark = ""
        self.problem = ""

    def add(self, answer: Answer, load: noise.Load | None) -> None:
        if answer.rate is None or answer.problem:
            self.problem = neutral(answer.problem or "no figure", 300)
            return
        self.values.append(answer.rate / self.figure.scale)
        self.remark = neutral(answer.remark, 200)
        if load is not None:
            self.others.append(load.total)

    def ceiling(self) -> Ceiling:
        return msgspec.structs.replace(
            self.figure.ceiling,
            values=tuple(self.values),
            remark=self.remark,
            problem=self.problem,
            other_cpus=median(self.others) if self.others else None,
        )


def measure(request: Request, say: Callable[[str, float], object] = lambda *_: None) -> Ceilings:
    """Measure what this machine gives. `say` is told what runs and the part that is done. Ctrl-C ends it with what is there."""
    unknown = sorted(set(request.groups) - set(GROUPS))
    if unknown:
        raise UsageError(f"--only {', '.join(unknown)}: no such group", f"groups are {', '.join(GROUPS)}")
    start = time.monotonic()
    machine = Machine(request.python, request.ranks)
    with bench_folder(request.folder) if "storage" in request.groups else contextlib.nullcontext("") as folder:
        figures = [figure for figure in planned(machine, folder) if figure.ceiling.group in request.groups]
        workers = _workers(machine)
        try:
            about = _about(workers, machine)
            all_runs, interrupted = _in_rounds(figures, workers, request.runs, say)
        finally:
            close_all([*workers.values()])
    return Ceilings(
        sysperf=__version__,
        taken_at=reading.now(),
        took_s=time.monotonic() - start,
        machine=resuming.machine(),
        about=about,
        runs=request.runs,
        ceilings=tuple(runs.ceiling() for runs in all_runs),
        notes=(*machine.notes, *_of_load(all_runs)),
        interrupted=interrupted,
    )


def _workers(machine: Machine) -> dict[str, Asked]:
    """One for each kind; those of the user's interpreter where it is known."""
    ours: dict[str, Asked] = {OURS: Worker(sys.executable)}
    if machine.python:
        ours |= {TORCH: Worker(machine.python), DECODER: Worker(machine.python)}
        ours |= {RANKS: Ranks(machine.python, machine.ranks)} if machine.ranks > 1 else {}
    return ours


def _about(workers: dict[str, Asked], machine: Machine) -> dict[str, str]:
    """Versions; what the user's interpreter lacks is a note."""
    if TORCH not in workers:
        return {}
    answer = workers[TORCH].ask({"task": "about"}, LIMIT_S)
    if answer.problem:
        machine.notes.append(neutral(f"{machine.python}: {answer.problem}", 300))
    return {name: neutral(text, 200) for name, text in answer.about.items()}


def _in_rounds(
    figures: Sequence[Figure], workers: dict[str, Asked], runs: int, say: Callable[[str, float], object]
) -> tuple[list[_Runs], bool]:
    """(what all runs gave, whether Ctrl-C ended them): in each round each figure once, in random order."""
    every = [_Runs(figure) for figure in figures]
    seconds = max(MIN_RUN_S, min(MAX_RUN_S, ABOUT_S / max(1, len(figures) * runs)))
    done, total = 0, max(1, len(figures) * runs)
    try:
        for _ in range(runs):
            for each in random.sample(every, len(every)):
                say(each.figure.ceiling.what, done / total)
                done += 1
                if not each.problem:
                    _run(each, workers, seconds)
    except KeyboardInterrupt:
        return every, True
    return every, False


def _run(each: _Runs, workers: dict[str, Asked], seconds: float) -> None:
    worker = workers.get(each.figure.worker)
    if worker is None:
        each.problem = "no interpreter with torch was found"
        return
    before = noise.read(Host())
    answer = worker.ask({**each.figure.request, "seconds": seconds}, LIMIT_S)
    each.add(answer, noise.between(before, noise.read(Host()), answer.cpu_s))


def _of_load(all_runs: Sequence[_Runs]) -> list[str]:
    """Say that others took CPUs all the time: the figures are then no ceilings."""
    others = [load for runs in all_runs for load in runs.others]
    if not others or (usual := median(others)) <= BUSY_CPUS:
        return []
    return [f"others took {usual:.1f} CPUs meanwhile: an idle machine gives more"]
