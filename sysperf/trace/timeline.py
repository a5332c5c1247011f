"""A trace as columns: what ran on devices, what the host called, and the ranges that programs and PyTorch named.

All times are integer nanoseconds of the trace's own clock. Readers fill a `Timeline`; everything else reads it.
A trace has millions of events: they are columns of machine numbers, 40 bytes an event, and names are stored once.
"""

from __future__ import annotations

import itertools
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from sysperf.trace.intervals import Interval

KERNEL, COPY, SET, GRAPH = 0, 1, 2, 3
"""What a device operation is; a CUDA graph where it is recorded as one piece, and none of its kernels."""

OPERATOR, ANNOTATION, PYTHON = 0, 1, 2
"""What a host range is: an operator of PyTorch, a range that somebody named, a Python function."""

PRODUCTS = frozenset(("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"))
"""Operators whose floating-point operations follow from the shapes of their inputs."""

KERNELS, COPIES, SETS, CALLS = "kernels", "copies", "memsets", "calls of the host"
KERNEL_NAMES, CALL_NAMES, DIRECTIONS, MEMORY_KINDS = "names of kernels", "names of calls", "directions of copies", "kinds of memory"
GRAPHS, GRAPH_KERNELS = "CUDA graphs", "kernels of CUDA graphs"
"""What a file can have no table or column for."""

MAX_NAMES, MAX_NAME, MAX_NAMES_TEXT = 400_000, 10_000, 200_000_000
"""How many, and characters of one and of all. The longest names of kernels have some thousands."""
OTHER_NAME = "(more names)"
NUMBER_BITS = 38
"""Of what a call and its operation have in common, in files of several processes: above it stands the process, of 24 bits."""
MAX_THREADS = 10_000
"""More share the last one: no program has so many, and a file may have any number of them."""


class Names:
    """Texts by number, each stored once; where there are too many, all others share one number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.numbers: dict[str, int] = {}
        self._room = MAX_NAMES_TEXT

    def number(self, text: str) -> int:
        """The number of a text."""
        number = self.numbers.get(text)
        if number is None:
            text = text[:MAX_NAME] if len(self.texts) < MAX_NAMES and self._room > 0 else OTHER_NAME
            number = self.numbers.setdefault(text, len(self.texts))
            if number == len(self.texts):
                self.texts.append(text)
                self._room -= len(text)
        return number


class Spans:
    """What all kinds of events have: start and end in ns, and the number of the name."""

    def __init__(self) -> None:
        self.start = array("q")
        self.end = array("q")
        self.name = array("i")

    def __len__(self) -> int:
        return len(self.start)

    def keep(self, indices: list[int]) -> None:
        """Keep only these rows."""
        for column, values in vars(self).items():
            setattr(self, column, array(values.typecode, map(values.__getitem__, indices)))

    def span(self, index: int) -> Interval:
        return self.start[index], self.end[index]

    def spans(self) -> Iterator[Interval]:
        return zip(self.start, self.end, strict=True)

    def spans_of(self, indices: Iterable[int]) -> list[Interval]:
        """The spans of these rows."""
        starts, ends = self.start, self.end
        return [(starts[index], ends[index]) for index in indices]


class Operations(Spans):
    """What ran on devices: kernels, copies, memsets and CUDA graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = array("b")
        self.device = array("i")
        self.stream = array("q")
        self.correlation = array("q")  # -1: the trace does not say what launched it
        self.bytes = array("q")  # -1: unknown
        self.blocks = array("f")  # thread blocks per multiprocessor, or the number of blocks where that is all we know; -1: unknown
        self.graph = array("b")  # 1: part of a CUDA graph, by the file's own word
        self.detail = array("i")  # index into Timeline.collectives; -1: none


class Calls(Spans):
    """What the host asked of a driver or runtime."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = array("i")
        self.correlation = array("q")
        self.stack = array("i")  # number of the call stack; -1: unknown


class Ranges(Spans):
    """Named times of a host thread."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = array("i")
        self.kind = array("b")
        self.detail = array("i")  # index into Timeline.shapes; -1: none
        self.stack = array("i")


class Memory(NamedTuple):
    """One change of a device's memory."""

    at: int
    device: int
    allocated: int
    reserved: int


class Collective(NamedTuple):
    """What the trace says of one collective operation."""

    name: str
    bytes: int
    group: str
    sequence: int
    ranks: int = 0
    """How many take part; 0: unknown."""

    @property
    def is_between_two(self) -> bool:
        """Whether one rank sends something to another. Such are numbered by rank, and not by group."""
        return self.name in ("send", "recv")


class Device(NamedTuple):
    """What the trace says of one device; None means unknown."""

    name: str | None = None
    memory_bytes: int | None = None
    capability: float | None = None
    multiprocessors: int | None = None


SECOND = "another trace follows the first one in it, and was left out"


class Damage:
    """What was wrong with the file itself."""

    def __init__(self) -> None:
        self.events = 0  # events that could not be decoded
        self.no_duration = 0
        self.truncated = ""  # why the file ends early
        self.is_open = False  # the text ends before all that it opened is closed
        self.dropped = 0  # events that the profiler says it lost
        self.reasons: list[str] = []  # what the profiler itself says that it could not record

    @property
    def breaks_off(self) -> bool:
        """Whether events are missing behind those that were read."""
        return self.truncated not in ("", SECOND)


class Timeline:
    """One trace of one process (or of several on one machine, in Nsight Systems)."""

    def __init__(self, file: str, form: str) -> None:
        self.file = file
        self.form = form
        self.names = Names()
        self.signatures: dict[str, set[str]] = {}  # full names by the short ones that do not tell a product's type; all in lower case
        self.stacks = Names()
        self.operations = Operations()
        self.calls = Calls()
        self.system_calls = Calls()  # of the operating system's libraries, as Nsight Systems records them
        self.ranges = Ranges()
        self.accelerator = Spans()  # operations of devices that are no GPU (MTIA and others)
        self.threads: list[tuple[int, int]] = []  # (process, thread) by number
        self.thread_names: dict[int, str] = {}
        self.memory: list[Memory] = []
        self.shapes: list[str] = []  # shapes of operators' inputs as JSON
        self.collectives: list[Collective] = []
        self.devices: dict[int, Device] = {}
        self.device_processes: dict[int, set[int]] = {}  # empty: every call belongs to every device
        self.rank: int | None = None
        self.world_size: int | None = None
        self.backend: str | None = None
        self.with_stacks = False
        self.with_shapes = False
        self.with_memory = False
        self.overhead: list[Interval] = []
        self.scheduling: dict[int, list[Interval]] = {}  # when a thread was runnable and did not run, by thread number
        self.metrics: dict[str, float] = {}  # means of the GPU's own counters
        self.page_faults: int | None = None
        self.absent: set[str] = set()  # what the file has no table or column for
        self.damage = Damage()
        self.unknown_kinds: set[str] = set()  # categories of events that are not used, some of them
        self.cut: int | None = None  # of a large file, only what starts until here was kept; None: everything
        self.short_functions = 0  # Python functions that were left out, because there were too many
        self.other_programs = 0  # processes with steps or launches of their own that were in the file, and left out
        self.mixed = False  # whether some operations may be those of one of these, or not
        self.program: int | None = None  # of several processes with steps of their own, the one whose steps are counted; None: there is one
        self._thread_numbers: dict[tuple[int, int], int] = {}

    @cached_property
    def ranges_by_name(self) -> dict[int, list[int]]:
        """The rows of `ranges` by the number of their name. Ask when all rows are there."""
        rows: defaultdict[int, list[int]] = defaultdict(list)
        for index, name in enumerate(self.ranges.name):
            rows[name].append(index)
        return rows

    def ranges_named(self, question: Callable[[str], object], *, python: bool = False) -> list[int]:
        """The rows of `ranges` with such names, one name after the other; Python functions where asked for. Ask when all rows are there."""
        texts, kinds = self.names.texts, self.ranges.kind
        rows = itertools.chain(*(rows for name, rows in self.ranges_by_name.items() if question(texts[name])))
        return [index for index in rows if python or kinds[index] != PYTHON]

    def marks(self, question: Callable[[str], object], processes: Collection[int] = ()) -> list[int]:
        """The rows of `ranges` with such names of these processes; of none, of the program whose steps are counted."""
        rows, threads = self.ranges_named(question), self.ranges.thread
        owners = processes or ((self.program,) if self.program is not None else ())
        return [index for index in rows if self.threads[threads[index]][0] in owners] if owners else rows

    def thread(self, process: int, thread: int) -> int:
        """The number of a host thread."""
        key = (process, thread)
        number = self._thread_numbers.get(key)
        if number is None and len(self.threads) >= MAX_THREADS:
            return MAX_THREADS - 1
        if number is None:
            number = self._thread_numbers[key] = len(self.threads)
            self.threads.append(key)
        return number
