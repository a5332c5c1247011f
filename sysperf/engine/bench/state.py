"""A ladder that is climbed: what was asked for, every run so far, and the traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sysperf.engine.bench import traces
from sysperf.engine.bench.ladder import Configuration
from sysperf.model.comparison import MAX_TIME_S, Conditions
from sysperf.model.record import Record
from sysperf.verify import noise

CLIMB, ENDS, TOP = "climb", "ends", "top"
"""Parts: rungs are added from the bottom; no rung and all of them in turn; rungs are left out of the whole ladder."""
PARTS = {CLIMB: "the climb", ENDS: "no rung beside all of them", TOP: "the whole ladder without a rung"}


class Request(Record, kw_only=True):
    """What the user asks for."""

    workload: str = "text"
    rungs: tuple[str, ...] = ()
    """Ids; none: those of the ladder and what is doubtful."""
    minutes: float = 12.0
    python: str = ""
    trainer: str = ""
    arguments: tuple[str, ...] = ()
    """Further ones of the trainer."""
    ranks: int = 1
    steps: int = 0
    """Of each run; 0: as many as take a few seconds."""
    seed: int = 1
    traces_with: str = "torch"
    """``torch``, ``nsys`` or ``none``."""
    folder: str = ""
    """Where traces are kept."""


class Shot(Record, kw_only=True):
    """One run of a configuration."""

    part: str
    round: int
    place: int
    """In the sequence of its round."""
    configuration: Configuration
    step_times_s: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    wall_s: float = 0.0
    cpu_s: float = 0.0
    other_cpus: float | None = None
    loss: float | None = None
    page_faults: int | None = None
    conditions: Conditions | None = None
    units_per_step: float | None = None
    flop_per_step: float | None = None

    def is_sound(self) -> bool:
        """Whether its figures can be figures of a run."""
        return all(0 <= time_s < MAX_TIME_S for time_s in (self.wall_s, self.cpu_s, *self.step_times_s))


class State(Record, kw_only=True):
    """A ladder that is climbed: all that is needed to show it, to stop it and to resume it."""

    request: Request
    machine: dict[str, str] = {}
    lacks: dict[str, str] = {}
    """Why a rung cannot be had here."""
    max_steps: int = 0
    shots: tuple[Shot, ...] = ()
    traced: tuple[traces.Traced, ...] = ()
    failed: dict[str, str] = {}
    """By the configuration's name: why it does not run."""
    peaks: dict[str, tuple[float, ...]] = {}
    """Floating-point operations a second of matrix products, by type."""
    unmeasured: dict[str, str] = {}
    """Why a type of product was not measured."""
    about: dict[str, str] = {}
    """Of the first record: device, torch, unit, size, batch."""
    spent_s: float = 0.0
    ended: str = ""
    """Why it ended before its time."""

    def is_sound(self) -> bool:
        """Whether its figures can be figures of a ladder: it may have been read from a file."""
        return 0 <= self.spent_s < MAX_TIME_S and 0 <= self.max_steps < 1 << 31 and all(shot.is_sound() for shot in self.shots)


class Progress(NamedTuple):
    """The progress of a ladder."""

    what: str
    state: State
    left_s: float


Observe = Callable[[Progress], object]


def name_of(configuration: Configuration) -> str:
    """Return what reports call a configuration."""
    return " + ".join(configuration) or "no rung"


def load_of(shot: Shot) -> noise.Load | None:
    """Return what others took during a run; None where it is unknown."""
    return None if shot.other_cpus is None else noise.Load(shot.other_cpus, 0.0, shot.wall_s)
