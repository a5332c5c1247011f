"""What a machine can give at most: measured figures beside those that its hardware should give."""

from __future__ import annotations

from statistics import median
from typing import Annotated, Literal

from sysperf.model.record import Record, fact

Group = Literal["memory", "matmul", "gpu", "storage", "decode", "start", "all-reduce"]


class Ceiling(Record, kw_only=True):
    """One figure of a machine. All are rates: more is better, so that machines can be compared without knowing what it is."""

    metric: Annotated[str, fact("its name, the same on machines of one kind, such as memory.triad.node0")]
    group: Annotated[Group, fact("what of the machine it is about")]
    what: Annotated[str, fact("the same for people")]
    unit: Annotated[str, fact("of the values, such as GB/s")]
    values: Annotated[tuple[float, ...], fact("one of each short run")] = ()
    expected: Annotated[float | None, fact("what the hardware should give at most; null where that is not known")] = None
    basis: Annotated[str, fact("how that is worked out, or why it is not known")] = ""
    remark: Annotated[str, fact("what else decides it, such as the size of the matrices")] = ""
    problem: Annotated[str, fact("why it could not be measured; empty where it was")] = ""
    other_cpus: Annotated[float | None, fact("CPUs that others took meanwhile, the median of its runs")] = None

    @property
    def middle(self) -> float | None:
        """The median of its runs."""
        return median(self.values) if self.values else None

    @property
    def share(self) -> float | None:
        """The measured part of what the hardware should give."""
        return self.middle / self.expected if self.middle is not None and self.expected else None


class Ceilings(Record, kw_only=True):
    """All figures of a machine, from one hour."""

    schema: Literal[1] = 1
    sysperf: str
    taken_at: str
    took_s: float = 0.0
    machine: Annotated[dict[str, str], fact("kernel, CPUs and driver: what decides whether figures can be compared over time")] = {}
    about: Annotated[dict[str, str], fact("versions of Python, torch and the decoder by which it was measured")] = {}
    runs: Annotated[int, fact("short runs of each figure, in random order")] = 0
    ceilings: tuple[Ceiling, ...] = ()
    notes: Annotated[tuple[str, ...], fact("what was not measured, and why")] = ()
    interrupted: bool = False


class Compared(Record, kw_only=True):
    """One figure of two machines, or of one machine at two times."""

    metric: str
    what: str
    unit: str
    before: Annotated[float, fact("median of the record that is compared with")]
    now: Annotated[float, fact("median of this one")]
    ratio: Annotated[float | None, fact("now as a multiple of before; null of fewer than two runs each")] = None
    low: Annotated[float | None, fact("lower end of its interval at 95 %")] = None
    high: Annotated[float | None, fact("upper end")] = None
