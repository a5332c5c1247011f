"""A search for the best way to start a program: factors, runs, and what follows from them."""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.model.comparison import Comparison, Metric
from sysperf.model.record import JsonObject, Record, fact

Choice = tuple[int, ...]
"""A level of each factor by its place; 0 is `as it is`, and zeros alone are the plain program."""
Phase = Literal["pilot", "design", "model", "tpe", "race"]
State = Literal["confirmed", "nothing", "unconfirmed"]


class Level(Record):
    """One way to set a factor."""

    name: Annotated[str, fact("such as 8 or tcmalloc_minimal; the first of a factor is `as it is`")]
    profile: Annotated[JsonObject, fact("what it adds to a launch profile")] = {}


class Factor(Record):
    """Something about a start that may matter, and the ways to set it here."""

    name: Annotated[str, fact("such as threads")]
    levels: tuple[Level, ...]


class LeftOut(Record):
    """A factor that is not searched."""

    name: str
    reason: str


class TuneRun(Record):
    """One launch of the search."""

    number: int
    phase: Phase
    choice: Annotated[Choice, fact("the level of each factor")]
    value: Annotated[float | None, fact("the metric; null for a run that failed")] = None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    other_cpus: Annotated[float | None, fact("CPUs that others and the hypervisor took meanwhile")] = None
    disturbed: Annotated[str, fact("why it does not count; empty where it does")] = ""
    failed: Annotated[str, fact("why there is no value")] = ""
    block: Annotated[int, fact("of the race, from 1 on")] = 0
    gpu_others: Annotated[float | None, fact("share of the time in which kernels of other programs ran on its GPUs")] = None


class LevelEffect(Record):
    """The speed with a level as a multiple of the speed as it is, all other factors alike, by the main-effects model."""

    name: str
    ratio: float
    low: Annotated[float, fact("one standard error below")]
    high: Annotated[float, fact("one standard error above")]
    runs: int


class FactorEffect(Record):
    """How much a factor mattered."""

    name: str
    importance: Annotated[float, fact("its share of the variance that the factors explain, 0 to 1")]
    levels: tuple[LevelEffect, ...]


class Tuning(Record, kw_only=True):
    """The result of a search."""

    state: Annotated[State, fact("confirmed: fresh pairs show that it is faster; nothing: nothing helps here; unconfirmed: not decided")]
    reason: Annotated[str, fact("why it is not confirmed")] = ""
    argv: tuple[str, ...]
    metric: Metric
    factors: tuple[Factor, ...]
    left_out: tuple[LeftOut, ...] = ()
    effects: Annotated[tuple[FactorEffect, ...], fact("what mattered, most first")] = ()
    winner: Annotated[Choice | None, fact("the best of the race; null when plain was")] = None
    comparison: Annotated[Comparison | None, fact("the winner against plain, in fresh pairs")] = None
    profile: Annotated[str, fact("the launch profile that was written; empty where none was")] = ""
    runs: tuple[TuneRun, ...] = ()
    with_tpe: Annotated[bool, fact("whether Optuna's TPE proposed, too")] = False
    seed: int = 0
    notes: Annotated[tuple[str, ...], fact("what else the reader should know, such as who took CPUs all the time")] = ()

    def words(self, choice: Choice) -> str:
        """Return a choice as ``threads 8, allocator jemalloc``; `plain` where all is as it is."""
        parts = [f"{factor.name} {factor.levels[level].name}" for factor, level in zip(self.factors, choice, strict=True) if level]
        return ", ".join(parts) or "plain"
