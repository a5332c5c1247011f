"""What profilers bring back: call stacks, how a main thread spends its time, and trace files."""

from __future__ import annotations

from sysperf.model.record import Record
from sysperf.startup import lazy

_TORCH = lazy(
    r"-packages/torch/|/torch/(?:nn/(?:modules/|parallel/|utils/|(?:functional|init|parameter)\.py)|optim/|autograd/|amp/"
    r"|utils/(?:data/|_\w+|checkpoint\.py)|distributed/(?:distributed_c10d\.py|fsdp/|_)|_\w+(?:/|\.py)|(?:functional|serialization)\.py)"
)
"""PyTorch's own files: all where it is installed; where it runs from its source, those whose names nobody else gives."""


class Frame(Record):
    """One call in a stack."""

    function: str
    file: str
    line: int | None = None

    @property
    def is_of_torch(self) -> bool:
        """Whether it is one of PyTorch's own functions in Python."""
        return "/torch/" in self.file and _TORCH.search(self.file) is not None


class Thread(Record):
    """One thread of a program and where it is."""

    tid: int | None
    name: str
    active: bool | None
    """Running, or ready to; False: it waits. None: unknown."""
    frames: tuple[Frame, ...]
    """The innermost call first."""


class Stacks(Record):
    """The stacks of all threads of a program at one moment."""

    pid: int
    threads: tuple[Thread, ...]


class Sample(Record):
    """A stack in which a thread was seen, and how often."""

    tid: int | None
    thread: str
    frames: tuple[Frame, ...]
    """The innermost call first."""
    count: int


class Samples(Record):
    """Stacks of a program, taken many times a second."""

    pid: int
    seconds: int
    rate_hz: int
    samples: tuple[Sample, ...]


class Phase(Record):
    """A part of a training step and its share of the main thread's time."""

    name: str
    samples: int
    share: float
    frame: Frame | None = None
    """The user's line that was seen most in it."""
    frame_share: float = 0.0
    """That line's share of the main thread's time."""


class Split(Record):
    """How the main thread of a program spent its time."""

    pid: int
    seconds: int
    rate_hz: int
    samples: int
    phases: tuple[Phase, ...]
    """All phases in a fixed order; their shares add up to 1 where there is a sample."""


class TraceRequest(Record):
    """Which trace is wanted. Either `iterations` of the optimizer or `duration_ms`."""

    pid: int
    iterations: int = 0
    duration_ms: int = 0
    shapes: bool = False
    stacks: bool = False
    output: str = ""
    """The file to write; "" for a name of our own in the working folder."""
    limit_s: float = 300.0
    start_ms: int = 0
    """When a trace by time begins, since 1970, so that several processes begin together; 0: at once."""


class Trace(Record):
    """A trace file as it was written."""

    pid: int
    path: str
    size_bytes: int
    events: int
    """Timed events in it."""
    steps: int
    """Optimizer steps in it."""
    took_s: float
