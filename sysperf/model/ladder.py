"""What each piece of advice gains on a machine: the reference trainer with and without it, its mechanism in a trace, its prediction."""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.model.comparison import Comparison
from sysperf.model.record import Record, fact

Mechanism = Literal["seen", "not seen", "unknown"]
Finding = Literal[
    "gain with its mechanism", "gain without its mechanism", "gain", "no gain here", "harms here", "unclear here", "losses differ",
    "skipped",
]  # fmt: skip


class Sign(Record):
    """A figure of a trace by which a rung's mechanism shows."""

    figure: Annotated[str, fact("its name in `sysperf analyze --json`, below `facts`")]
    change: Annotated[str, fact("falls or rises")]
    before: float | None = None
    after: float | None = None
    seen: Annotated[bool | None, fact("whether it changed as it should; null: a trace does not tell")] = None


class Parity(Record):
    """The losses of the first steps with and without a rung."""

    steps: int
    without: Annotated[float, fact("their mean")]
    with_: Annotated[float, fact("their mean")]
    bound: Annotated[float, fact("by which share they may differ; 0: they must be equal bit for bit")]
    equal: Annotated[bool, fact("equal bit for bit")]
    holds: bool


class Predicted(Record):
    """What a trace without the rung says that it would gain, percent of the step; the same as it was measured."""

    by: Annotated[str, fact("the prediction's name")]
    low: float
    high: float
    measured: Annotated[float | None, fact("percent of the step that the rung saved; null: not measured")] = None
    measured_low: Annotated[float | None, fact("lower end of its interval")] = None
    measured_high: Annotated[float | None, fact("upper end of its interval")] = None

    @property
    def error(self) -> float | None:
        """How far the middle of the prediction is from what was measured, in points of percent."""
        return None if self.measured is None else (self.low + self.high) / 2 - self.measured

    @property
    def holds(self) -> bool | None:
        """Whether what was measured lies in the predicted interval."""
        return None if self.measured is None else self.low <= self.measured <= self.high

    @property
    def agrees(self) -> bool:
        """Whether some value is in both intervals."""
        known = self.measured_low is not None and self.measured_high is not None
        return known and self.low <= (self.measured_high or 0.0) and (self.measured_low or 0.0) <= self.high


class Trial(Record, kw_only=True):
    """One comparison of two configurations that differ by a rung."""

    kind: Annotated[
        Literal["added", "left out", "at the bottom", "at the top"],
        fact("added to the rungs below it; the whole ladder against all but it; alone at the bottom or at the top"),
    ]
    comparison: Comparison


class RungResult(Record, kw_only=True):
    """One rung: what it gains, how, and what was expected."""

    id: str
    title: str
    place: Annotated[int, fact("on the ladder, from 1 on")]
    role: str
    rules: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    outcome: Finding
    skipped: Annotated[str, fact("why it was not tried; empty where it was")] = ""
    trials: tuple[Trial, ...] = ()
    mechanism: Mechanism = "unknown"
    signs: tuple[Sign, ...] = ()
    predicted: Predicted | None = None
    parity: Parity | None = None
    share_of_peak: Annotated[float | None, fact("floating-point operations of the naive model, of the measured matmul peak")] = None
    units_per_s: Annotated[float | None, fact("tokens or images a second with it and all below it, the median")] = None
    trace: Annotated[str, fact("the trace with it, a file beside the record; empty where there is none")] = ""

    def trial(self, *kinds: str) -> Comparison | None:
        """Return the comparison of the first of these kinds that there is."""
        return next((trial.comparison for kind in kinds for trial in self.trials if trial.kind == kind), None)


class Ladder(Record, kw_only=True):
    """All rungs of a workload on one machine."""

    schema: Literal[1] = 1
    sysperf: str
    taken_at: str
    took_s: float = 0.0
    workload: str
    machine: Annotated[dict[str, str], fact("kernel, CPUs, driver, and variables that explain performance")] = {}
    device: Annotated[str, fact("the GPU's name, or cpu")] = ""
    torch: str = ""
    unit: Annotated[str, fact("tokens or images")] = ""
    size: str = ""
    batch: int | None = None
    max_steps: Annotated[int, fact("steps of each run")] = 0
    seed: int = 0
    rounds: Annotated[int, fact("in each of which every configuration ran once")] = 0
    total: Annotated[Comparison | None, fact("all rungs against none")] = None
    rungs: tuple[RungResult, ...] = ()
    peak_tflops: Annotated[dict[str, float], fact("of matrix products, measured between the rounds: the highest, by type")] = {}
    bottom_share_of_peak: float | None = None
    bottom_units_per_s: float | None = None
    bottom_trace: str = ""
    predicted_error: Annotated[float | None, fact("median distance of predictions from what was measured, in points of percent")] = None
    predicted_held: Annotated[tuple[int, int] | None, fact("(predictions whose interval held what was measured, all of them)")] = None
    predicted_agree: Annotated[int | None, fact("predictions whose interval and that of the measurement have a value in common")] = None
    notes: tuple[str, ...] = ()
    interrupted: Annotated[str, fact("why it ended early; empty: it did not")] = ""
