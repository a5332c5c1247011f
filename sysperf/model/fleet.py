"""Many machines at one time: who answered, what they have in common, and which of them differ."""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.model.node import NodeState
from sysperf.model.record import Record, fact
from sysperf.model.rule import SEVERITIES, FailOn, Severity

Nodes = tuple[str, ...]
UNEXPLAINED_PCT = 10.0
"""Of the ranks' time: who waits for more than this waits for somebody, even where one window does not tell for whom.

Of 960 jobs of even ranks that were made in memory, none waited so long without taking turns.
"""


class Silent(Record):
    """Nodes of which nothing is known, for one reason."""

    state: NodeState
    reason: str
    nodes: Nodes


class HardwareClass(Record):
    """Nodes of equal hardware, which are compared with each other and with nobody else."""

    name: Annotated[str, fact("its hardware, for people")]
    hardware: dict[str, str]
    count: int
    nodes: Nodes


class Held(Record):
    """A value, and who has it."""

    value: str
    count: int
    nodes: Annotated[Nodes, fact("empty of the value that is expected: those are too many to name")] = ()


class FleetFinding(Record):
    """What one rule says of several nodes."""

    rule: str
    severity: Severity
    message: Annotated[str, fact("of the first of them")]
    nodes: Nodes
    alike: Annotated[bool, fact("whether it says the same of all of them")] = True


class FleetDifference(Record):
    """One fact that nodes of a class do not share."""

    fact: str
    of_class: Annotated[str, fact("name of the class")]
    kind: Annotated[
        Literal["differs", "groups"], fact("differs: from what is expected; groups: no value is held by enough nodes to expect it")
    ]
    expected: Annotated[str, fact("of the reference, or of the majority; empty of groups")]
    basis: Annotated[Literal["majority", "golden", "none"], fact("why that is expected")]
    known: Annotated[int, fact("nodes of the class of which the fact is known")]
    values: tuple[Held, ...]
    matters: Annotated[str, fact("why it matters for speed")]
    rank: Annotated[int, fact("0 matters most")]
    doubtful: Annotated[bool, fact("whether the nodes that are missing could change it")] = False


class FleetUnknown(Record):
    """An area that could not be read on some nodes, for one reason."""

    area: str
    why: str
    nodes: Nodes


class Asking(Record, kw_only=True):
    """What came of asking nodes: how many answered, and why the others did not."""

    schema: Literal[1] = 1
    sysperf: str
    taken_at: str
    engine: str
    asked: int = 0
    answered: int = 0
    silent: tuple[Silent, ...] = ()
    interrupted: bool = False
    took_ms: float = 0.0


class Fleet(Asking, kw_only=True):
    """What the nodes of a fleet say together."""

    oldest: Annotated[str, fact("when the first of the records was taken")] = ""
    newest: Annotated[str, fact("when the last of them was taken")] = ""
    classes: tuple[HardwareClass, ...] = ()
    findings: tuple[FleetFinding, ...] = ()
    differences: tuple[FleetDifference, ...] = ()
    unknown: tuple[FleetUnknown, ...] = ()
    slowest: Annotated[tuple[tuple[str, float], ...], fact("the five nodes that took longest, seconds")] = ()
    reference: Annotated[str, fact("what nodes are compared with: majority, a node, or a policy's file")] = "majority"

    @property
    def differing(self) -> tuple[FleetDifference, ...]:
        """The differences in which nodes are named."""
        return tuple(difference for difference in self.differences if difference.kind == "differs")

    def reaches(self, severity: FailOn) -> bool:
        """Whether there is a finding as severe; a node that differs counts as a warning."""
        if severity == "never":
            return False
        limit = SEVERITIES.index(severity)
        worst = [SEVERITIES.index(finding.severity) for finding in self.findings] + [SEVERITIES.index("warning")] * bool(self.differing)
        return any(place <= limit for place in worst)


class SlowNode(Record, kw_only=True):
    """What fresh runs say of one figure of a node, or of a link between two, that looked slow."""

    node: str
    to: Annotated[str, fact("the other end of a link; empty: it is about the node itself")] = ""
    of_class: str
    metric: str
    verdict: Annotated[
        Literal["slow", "slower", "usual", "unclear", "not measured"],
        fact("slow: named; slower: by too little to be named; usual: as its class; unclear: runs scatter too much"),
    ]
    middle_pct: Annotated[float, fact("percent of its controls, below 0 where it is slower")] = 0.0
    low_pct: Annotated[float, fact("lower end of the interval at 95 %")] = 0.0
    high_pct: Annotated[float, fact("upper end")] = 0.0
    runs: int = 0
    beside: Annotated[Nodes, fact("the controls: nodes near the median of the class")] = ()
    tells_from_pct: Annotated[float, fact("the least difference that such runs can tell; 100: none")] = 100.0


class FleetBench(Asking, kw_only=True):
    """Which nodes are slow, by figures that were measured."""

    classes: tuple[HardwareClass, ...] = ()
    small: Annotated[tuple[str, ...], fact("classes of fewer than four nodes, of which nobody is named")] = ()
    figures: Annotated[int, fact("measured figures of all nodes")] = 0
    pairs: Annotated[int | None, fact("pairs of nodes that were measured; null: each node by itself")] = None
    unknown: Annotated[tuple[FleetUnknown, ...], fact("pairs that gave no figure, and why")] = ()
    suspects: tuple[SlowNode, ...] = ()

    @property
    def slow(self) -> tuple[SlowNode, ...]:
        """The nodes that are named."""
        return tuple(suspect for suspect in self.suspects if suspect.verdict == "slow")


class Hang(Record, kw_only=True):
    """A collective in which ranks of a process group wait for each other."""

    group: str
    number: Annotated[int, fact("of the collective in its group; the first is 1")]
    collective: Annotated[str, fact("what most of the waiting ranks call; empty: the dumps do not say")] = ""
    place: Annotated[str, fact("the line that called it")] = ""
    waiting: Annotated[tuple[int, ...], fact("ranks that have begun it and not completed it")] = ()
    absent: Annotated[tuple[int, ...], fact("ranks that have not begun it")] = ()
    other: Annotated[tuple[int, ...], fact("ranks that began another collective, or sizes, under its number")] = ()
    silent: Annotated[tuple[int, ...], fact("members of the group of which there is no dump")] = ()
    last: Annotated[tuple[str, ...], fact("what the first of the absent ranks began last")] = ()


class JobWindow(Record, kw_only=True):
    """What the ranks of a job show beside each other in one window of some seconds."""

    taken_at: str
    ranks: Annotated[int, fact("ranks of which there is a trace")] = 0
    matched: Annotated[int, fact("collectives that all of them have")] = 0
    late: Annotated[int | None, fact("the rank that the others wait for, the first of several; null: none is late")] = None
    beside: Annotated[tuple[int, ...], fact("ranks that are late with it, wherever they run")] = ()
    node: Annotated[str, fact("where that rank runs")] = ""
    share_pct: Annotated[float | None, fact("of the time by which ranks come late, its part, with that of those late beside it")] = None
    lost_pct: Annotated[float | None, fact("what the others wait, mean percent of their time")] = None
    rotates: Annotated[bool | None, fact("one rank is late and then another")] = None
    cause: Annotated[str, fact("what the late rank has more time in")] = ""
    signals: Annotated[tuple[str, ...], fact("what else says that the late rank's machine holds it up")] = ()
    unknown: Annotated[tuple[str, ...], fact("what could not be seen")] = ()

    @property
    def is_open(self) -> bool:
        """Whether its ranks wait for somebody, and it does not tell for whom, nor that they take turns."""
        return self.late is None and not self.rotates and (self.lost_pct or 0.0) >= UNEXPLAINED_PCT


class FleetJob(Asking, kw_only=True):
    """Which rank and which node hold a job up, or that none does."""

    job: str
    world_size: Annotated[int | None, fact("ranks of the job, as its launcher told them")] = None
    windows: tuple[JobWindow, ...] = ()
    verdict: Annotated[
        Literal["node", "rank", "nobody", "hang", "cannot tell"],
        fact("node: a second signal says so; rank: its share of work, its loader or its node; hang: ranks wait for each other"),
    ] = "cannot tell"
    chronic: Annotated[bool | None, fact("the same rank in 8 of 10 windows over ten minutes; null: too few windows")] = None
    late: int | None = None
    node: str = ""
    hangs: tuple[Hang, ...] = ()
    problems: Annotated[tuple[str, ...], fact("what was left out, and why")] = ()


class PolicyClass(Record, kw_only=True):
    """What nodes of one hardware should be like."""

    hardware: dict[str, str]
    facts: dict[str, str]


class Policy(Record, kw_only=True):
    """What nodes should be like, as `sysperf fleet golden` writes it."""

    schema: Literal[1] = 1
    classes: Annotated[tuple[PolicyClass, ...], fact("one for each hardware")]
