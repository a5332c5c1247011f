"""Two variants of a program, compared by running them in turn: every run, and what follows from them."""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.model.record import Record, fact
from sysperf.model.trial import Verdict

Arm = Literal["a", "b"]
MAX_VALUE = 1e100
MAX_TIME_S = 1e12


class Variant(Record):
    """A program as it is started in one arm of the comparison."""

    name: Annotated[str, fact("how reports call it, such as plain or wrapped")]
    argv: Annotated[tuple[str, ...], fact("the command")]
    env: Annotated[dict[str, str], fact("variables beside those of the caller")] = {}
    unset: Annotated[tuple[str, ...], fact("variables of the caller that it does not get")] = ()

    def environment(self, base: dict[str, str]) -> dict[str, str]:
        """Return the variables with which it is started."""
        return {name: value for name, value in {**base, **self.env}.items() if name not in self.unset}


class Metric(Record):
    """What is measured in each run."""

    name: Annotated[str, fact("such as wall time")]
    unit: Annotated[str, fact("of a run's value")]
    higher_is_better: Annotated[bool, fact("whether a larger value is a faster run")] = False
    pattern: Annotated[str, fact("the regular expression whose last match in the output is the value")] = ""
    counts: Annotated[Literal["", "optimizer", "forward"], fact("the steps whose rate is the value")] = ""
    max_steps: Annotated[int, fact("steps after which a run ends; 0 for none")] = 0
    run_s: Annotated[float, fact("seconds of steps after which the first run ends, and as many steps end the others; 0 for none")] = 0.0


class Conditions(Record):
    """What a run met beside what others took of the CPUs; null: unknown, or there is no such thing. Of GPUs: the worst one that it used."""

    cpu_waiting: Annotated[float | None, fact("share of the run in which some task of the machine waited for a CPU")] = None
    memory_waiting: Annotated[float | None, fact("the same for memory")] = None
    io_waiting: Annotated[float | None, fact("the same for storage")] = None
    cpu_slowed: Annotated[float | None, fact("share of the run in which heat slowed the worst package")] = None
    cpu_mhz: Annotated[float | None, fact("mean clock of the CPUs")] = None
    cpu_celsius: Annotated[float | None, fact("mean temperature of the hottest package")] = None
    gpus: Annotated[tuple[int, ...], fact("GPUs that it used, by NVML's number")] = ()
    gpu_mhz: Annotated[float | None, fact("mean clock of the slowest GPU's multiprocessors while it was busy")] = None
    gpu_celsius: Annotated[float | None, fact("mean temperature of the hottest GPU")] = None
    gpu_slowed: Annotated[float | None, fact("share of the busy samples in which heat, a power brake or the hardware slowed a GPU")] = None
    gpu_others: Annotated[float | None, fact("share of the time in which kernels of other programs ran on its GPUs")] = None


class Run(Record):
    """One launch of one arm."""

    pair: Annotated[int, fact("the pair that it belongs to; 0 is the first one, which warms caches and does not count")]
    arm: Annotated[Arm, fact("a or b")]
    value: Annotated[float, fact("the metric")]
    wall_s: Annotated[float, fact("from start to end")]
    cpu_s: Annotated[float, fact("CPU time of the program and its descendants")]
    other_cpus: Annotated[float | None, fact("CPUs that others and the hypervisor took meanwhile")] = None
    steps: Annotated[int, fact("steps that were counted")] = 0
    step_times_s: Annotated[tuple[float, ...], fact("when each step ended; kept of the first pair, from which the warm-up is found")] = ()
    disturbed: Annotated[str, fact("why its pair does not count; empty where it does")] = ""
    loss: Annotated[float | None, fact("the mean of its last losses; null where the probe saw none")] = None
    conditions: Annotated[Conditions | None, fact("what it met; null where it was not watched")] = None
    page_faults: Annotated[int | None, fact("minor page faults of the program and its descendants")] = None

    def is_sound(self) -> bool:
        """Whether its figures can be figures of a run."""
        counts, times_s = (self.pair, self.steps, self.page_faults or 0), (self.wall_s, self.cpu_s, *self.step_times_s)
        return 0 < self.value < MAX_VALUE and all(0 <= time_s < MAX_TIME_S for time_s in times_s) and all(0 <= n < 1 << 62 for n in counts)


class Comparison(Record, kw_only=True):
    """The result. Ratios are of speeds, B over A: above 1, B is faster."""

    a: Variant
    b: Variant
    metric: Metric
    verdict: Verdict
    reason: Annotated[str, fact("why it is unclear, and what would decide")] = ""
    ratio: Annotated[float | None, fact("speed of B as a multiple of A's; None before two pairs")] = None
    low: Annotated[float | None, fact("lower end of its interval")] = None
    high: Annotated[float | None, fact("upper end of its interval")] = None
    confidence: Annotated[float, fact("how often an interval made this way holds the true ratio")] = 0.95
    pairs: Annotated[int, fact("pairs that count for the verdict")] = 0
    fresh_pairs: Annotated[int, fact("pairs run after an early verdict, of which ratio and interval are then made")] = 0
    dropped_pairs: Annotated[int, fact("pairs that were disturbed")] = 0
    margin: Annotated[float, fact("differences below this share are called the same")] = 0.01
    median_a: Annotated[float | None, fact("median of the metric, of the runs that count")] = None
    median_b: Annotated[float | None, fact("median of the metric, of the runs that count")] = None
    warm_up_steps: Annotated[int, fact("steps at the beginning that both variants leave out")] = 0
    loss_a: Annotated[float | None, fact("median of the last losses of A's runs; null where the probe saw none")] = None
    loss_b: Annotated[float | None, fact("median of the last losses of B's runs; null where the probe saw none")] = None
    ranks: Annotated[tuple[int, int] | None, fact("ranks of A and of B: the ratio is then the efficiency of scaling")] = None
    seed: Annotated[int, fact("of the random order within pairs")] = 0
    page_faults_a: Annotated[float | None, fact("median of the minor page faults of A's runs")] = None
    page_faults_b: Annotated[float | None, fact("median of the minor page faults of B's runs")] = None
    notes: Annotated[tuple[str, ...], fact("what else the reader should know, such as what the warm-up took")] = ()
    unwatched: Annotated[tuple[str, ...], fact("what could not be seen of the machine during the runs, and why")] = ()
    runs: tuple[Run, ...] = ()

    def is_certain(self) -> bool:
        """Whether the interval excludes that both are equally fast."""
        return self.low is not None and self.high is not None and (self.low > 1 or self.high < 1)


class TriedFix(Record, kw_only=True):
    """What a fix that was promised gave here."""

    rules: Annotated[tuple[str, ...], fact("one rule, or all of them together")]
    promised: Annotated[str, fact("what the rule says that others gained")] = ""
    comparison: Annotated[Comparison | None, fact("plain against the fix; null where it could not be tried")] = None
    problem: Annotated[str, fact("why it could not be tried")] = ""
    p_value: Annotated[float | None, fact("that it makes no difference; of pairs that are no cause of stopping")] = None
    certain: Annotated[bool, fact("whether it makes a difference, all fixes taken together at 5 % (Holm)")] = False
