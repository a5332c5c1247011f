"""What one file tells the others that are linted with it: what its functions give, whom it calls how often, and what it is told back."""

from __future__ import annotations

from sysperf.model.record import Record

MAX_CALLS = 8
"""Calls of one function that are told: more of them say nothing new."""


OF_METRICS = frozenset(("update", "update_state", "update_metrics", "process", "add_batch", "accumulate"))
"""Methods by which a metric takes a batch."""


class Known(Record):
    """What an expression of another file may be; `loader` is the place of the loader that it is, or comes from.

    `made` is the class of an object whose methods are followed, or a function that is handed over.
    """

    kind: str
    loader: str = ""
    guess: bool = False
    made: tuple[str, str] | None = None


Kinds = tuple[Known, ...]


class Result(Record, kw_only=True):
    """What a function gives back, as a whole or in parts, and whether it makes a step of the training."""

    whole: Kinds = ()
    parts: tuple[Kinds, ...] = ()
    advances: bool = False
    makes: tuple[str, str] | None = None
    """The class of another file, or of its own, of which it gives back an object."""


class Class(Record, kw_only=True):
    """A class: what its objects are, the classes that it inherits from, its methods, and attributes."""

    kind: str = ""
    bases: tuple[tuple[str, str], ...] = ()
    methods: tuple[str, ...] = ()
    attributes: dict[str, Kinds] = {}
    waits: bool = False
    """A hook or `forward` of it would be judged, were its kind known."""


class Called(Record, kw_only=True):
    """One call of a function of another file: how often it runs, and what it gives."""

    file: str
    name: str
    often: str = ""
    guarded: bool = False
    given: tuple[Kinds, ...] = ()
    named: dict[str, Kinds] = {}
    is_open: bool = False


class Use(Record, kw_only=True):
    """What a file does with a loader that another one makes."""

    seen: bool = False
    trains: bool = False
    moved: bool = False
    epochs: bool = False


class Surroundings(Record, kw_only=True):
    """What a file says of the program as a whole."""

    device: str = ""
    gpu: bool = False
    moves: bool = False
    trains: bool = False


class Links(Record, kw_only=True):
    """What a file tells the others."""

    imports: dict[str, tuple[str, str]] = {}
    stars: tuple[str, ...] = ()
    asked: tuple[tuple[str, str], ...] = ()
    defines: tuple[str, ...] = ()
    functions: dict[str, Result] = {}
    classes: dict[str, Class] = {}
    called: tuple[Called, ...] = ()
    uses: dict[str, Use] = {}
    outlined: bool = False
    """It says nothing of PyTorch, so only its names are known, and what reads something."""
    runs: bool = False
    """It trains or evaluates."""
    steps: bool = False
    """A loop of it makes steps."""
    waits: dict[str, int] = {}
    """Functions in which something would be said, were they known to run often, by what that is (`waiting`)."""
    around: Surroundings = Surroundings()


class News(Record, kw_only=True):
    """What a file is told by the others; the names are its own functions, and what it imported."""

    called: dict[str, tuple[Called, ...]] = {}
    results: dict[str, Result] = {}
    classes: dict[str, Class] = {}
    uses: dict[str, Use] = {}
    around: Surroundings = Surroundings()
