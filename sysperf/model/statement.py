"""The statements of the two articles that sysperf started from, and what measuring them gave."""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.model.record import Record, fact

Effect = Literal["helps", "does nothing", "harms", "unclear"]


class Statement(Record):
    """A statement, or several that are told together."""

    name: Annotated[str, fact("such as S0.4a–c")]
    ids: tuple[str, ...]
    says: str
    today: Annotated[str, fact("what is true of it today")]
    rules: Annotated[str, fact("the rules that cover it, as text")] = ""

    @property
    def verdict(self) -> str:
        """What is true of it today, without Markdown's marks."""
        return self.today.replace("**", "")


class Measured(Record, kw_only=True):
    """What a rung that follows a statement gave, by a record of `sysperf bench trainer`."""

    seeds: tuple[str, ...]
    rung: str
    workload: str
    effect: Effect
    ratio: float
    low: float
    high: float
    pairs: int
    mechanism: Annotated[str, fact("seen, not seen or unknown: whether a trace shows what the rung does")] = "unknown"
    machine: str
    torch: str = ""
    record: Annotated[str, fact("the record's name, in benchmarks/results")] = ""

    def sentence(self) -> str:
        """``helps: +12.1 % (+9.0 to +15.2 %; text, loader-workers)``."""
        gains = [f"{(ratio - 1) * 100:+.1f}" for ratio in (self.ratio, self.low, self.high)]
        how = {"seen": ", its mechanism seen in the trace", "not seen": ", its mechanism not seen in the trace"}.get(self.mechanism, "")
        return f"{self.effect}: {gains[0]} % ({gains[1]} to {gains[2]} %, {self.pairs} pairs; {self.workload}, {self.rung}{how})"
