"""What was measured on this machine: one change, tried against what was there before, again and again in turn."""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.model.finding import Gain
from sysperf.model.record import Record, fact

Verdict = Literal["faster", "slower", "same", "unclear"]
Experiment = Literal["verify", "tune", "ladder"]


class Trial(Record, kw_only=True):
    """One comparison: interleaved pairs of runs without and with a change. Ratios are of speeds: above 1 the change is faster."""

    experiment: Annotated[
        Experiment, fact("verify: a program plain and wrapped; tune: one point of a search; ladder: a rung of the trainer")
    ]
    what: Annotated[str, fact("the change that was tried, such as numa.balancing = 0")]
    metric: Annotated[str, fact("what was measured, such as steps per second or wall time")]
    unit: Annotated[str, fact("of the baseline, such as steps/s or s")]
    baseline: Annotated[float, fact("the metric without the change, the median of its runs")]
    ratio: Annotated[float, fact("speed with the change as a multiple of the speed without it, whatever the metric")]
    low: Annotated[float, fact("lower end of the ratio's interval")]
    high: Annotated[float, fact("upper end of the ratio's interval")]
    confidence: Annotated[float, fact("how often an interval made this way holds the true ratio: 0.95")]
    pairs: Annotated[int, fact("pairs of runs")]
    verdict: Annotated[Verdict, fact("unclear: more pairs are needed to tell")]
    at: Annotated[float, fact("when it was measured, in Unix time")]
    rule: Annotated[str, fact("the rule whose advice was tried; empty for what no rule says")] = ""
    rung: Annotated[int, fact("its place on the trainer's ladder, from 1 on; 0 for what is no rung")] = 0
    fingerprint: Annotated[str, fact("the environment: hardware, kernel, driver, torch")] = ""

    def is_sound(self) -> bool:
        """Whether its figures can be figures of a comparison."""
        ordered = 0 < self.low <= self.ratio <= self.high < 1e6
        return (
            ordered and 0 < self.confidence < 1 and self.pairs >= 1 and 0 < self.at < 1e11 and abs(self.baseline) < 1e18 and self.rung >= 0
        )

    def sentence(self) -> str:
        """``4.2 % faster here``: the verdict in words."""
        if self.verdict in ("faster", "slower"):
            return f"{abs(self.ratio - 1) * 100:.1f} % {self.verdict} here"
        return "no difference here" if self.verdict == "same" else "unclear here, more runs are needed"

    def gain(self) -> Gain:
        """Return the gain for the finding whose advice was tried."""
        interval = f"{(self.low - 1) * 100:+.1f} to {(self.high - 1) * 100:+.1f} % at {self.confidence * 100:.0f} %"
        low, middle, high = (round(100 - 100 / ratio, 2) for ratio in (self.low, self.ratio, self.high))
        return Gain("measured", f"{self.sentence()} ({interval}; {self.metric}, {self.pairs} pairs)", low, middle, high)
