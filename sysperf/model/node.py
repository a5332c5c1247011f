"""One machine of many: what it says of itself in a few kilobytes, and whether it could be asked."""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.model.finding import State
from sysperf.model.record import Record, fact
from sysperf.model.rule import Severity
from sysperf.startup import lazy

MAX_RECORD_BYTES = 256 << 10
MAX_OUTPUT_BYTES = MAX_RECORD_BYTES + (64 << 10)
"""A record, and what a shell says before it."""
MAX_NAME = 253
"""Characters of a host's name: RFC 1035 allows no more."""
_NAME = lazy(rf"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{{0,{MAX_NAME - 1}}})")

NodeState = Literal["answered", "late", "unreachable", "refused", "busy", "drained"]
"""refused: it did not let us in, or what it sent is no record of it."""

Verb = Literal["record", "bench", "ranks", "pair"]
"""What may be asked of a node: never a command of the user's, so that a fleet is no remote shell."""


def is_name(text: str) -> bool:
    """Whether it can be the name of a node: no option of a command, no path, nothing that a terminal acts on."""
    return bool(_NAME.fullmatch(text))


def record_line(output: bytes) -> bytes:
    """The record in what a node printed: the last line that looks like one, behind whatever its shell said before."""
    return next((line for line in reversed(output.split(b"\n")) if line.startswith(b'{"')), b"")


class Node(Record):
    """A machine that an engine knows."""

    name: str
    state: Annotated[NodeState, fact("answered: it can be asked")] = "answered"
    reason: Annotated[str, fact("why it cannot be asked")] = ""


class Answer(Record):
    """What came of one node: its state and, where it answered, its bytes."""

    node: str
    state: NodeState = "answered"
    reason: str = ""
    data: bytes = b""
    took_s: float = 0.0


class Asked(Record):
    """Which nodes are meant, by what the engine takes: a folder, a list of names, a job."""

    where: Annotated[str, fact("a folder of records, or - for one record a line from stdin")] = ""
    hosts: Annotated[tuple[str, ...], fact("names; empty: all that the engine knows")] = ()
    at_once: Annotated[int, fact("how many are asked at a time")] = 64
    node_limit_s: Annotated[float, fact("for one node")] = 20.0
    runs: Annotated[int, fact("of each figure, for `bench` and `pair`")] = 5
    groups: Annotated[tuple[str, ...], fact("of figures, for `bench`; metrics, for `pair`")] = ("memory", "matmul", "gpu")
    pairs: Annotated[tuple[tuple[str, str], ...], fact("of nodes that measure what lies between them, for `pair`")] = ()
    port: Annotated[int, fact("where the first of a pair listens, one more for each pair, for `pair`")] = 0
    job: Annotated[str, fact("of which ranks are asked for, for `ranks`")] = ""
    window_s: Annotated[float, fact("how long they are traced, for `ranks`")] = 3.0
    begin_ms: Annotated[int, fact("when that begins on all nodes, since 1970, for `ranks`")] = 0
    command: Annotated[tuple[str, ...], fact("how sysperf is started on a node")] = ("sysperf",)

    def words(self, verb: Verb) -> tuple[str, ...]:
        """How a node is asked for a verb: words of ours, and none of a user's. What it starts ends by itself."""
        limit = ("--limit", f"{self.node_limit_s:g}")
        measured = ("--runs", str(self.runs), "--only", ",".join(self.groups)) if verb in ("bench", "pair") else ()
        job = ("--job", self.job, "--seconds", f"{self.window_s:g}", "--begin", str(self.begin_ms)) if verb == "ranks" else ()
        paired = ("--pairs", ",".join(map(":".join, self.pairs)), "--port", str(self.port)) if verb == "pair" else ()
        return ("node", verb, *measured, *job, *paired, *limit)


class NodeFinding(Record, forbid_unknown_fields=False):
    """What one rule says of one subject of a node."""

    rule: str
    severity: Severity
    state: State = "finding"
    subject: str = ""
    message: str = ""


class Unread(Record, forbid_unknown_fields=False):
    """An area that could not be read there."""

    area: str
    why: str


class NodeCeiling(Record, forbid_unknown_fields=False):
    """One measured figure of a node; more is better."""

    metric: str
    unit: str
    group: Annotated[str, fact("what of the machine it is about")] = ""
    values: Annotated[tuple[float, ...], fact("one of each short run")] = ()


class RankRecord(Record, kw_only=True, forbid_unknown_fields=False):
    """One rank of a job: what comparing ranks needs of its trace, and how the kernel treated it meanwhile."""

    rank: int
    pid: int = 0
    world_size: Annotated[int | None, fact("ranks of the job")] = None
    problem: Annotated[str, fact("why there is no trace of it")] = ""
    window_ns: int = 0
    names: Annotated[tuple[str, ...], fact("what its collectives are matched by")] = ()
    collectives: Annotated[tuple[tuple[int, int, int, tuple[int, ...]], ...], fact("(place in names, start, ns, exposed from, to, …)")] = ()
    kernels: Annotated[dict[str, tuple[int, int]], fact("number and total ns by name")] = {}
    parts: Annotated[dict[str, float], fact("times in percent of the window of which a late rank can have more")] = {}
    waits_pct: Annotated[float | None, fact("of the time in which its threads wanted a CPU, the part that they had none")] = None
    throttled_pct: Annotated[float | None, fact("of the periods of its quota, the part in which it was stopped")] = None
    nice: Annotated[int | None, fact("its priority; 19 is the lowest")] = None


class NodeRecord(Record, kw_only=True, forbid_unknown_fields=False):
    """One node: what it is, what matters for speed, what its rules found. A newer sysperf may send more; that is left out."""

    schema: Literal[1] = 1
    node: str
    taken_at: str
    sysperf: Annotated[str, fact("the version that wrote it")]
    hardware: Annotated[dict[str, str], fact("GPUs, CPUs, RDMA ports and memory; `?` where that is not known")] = {}
    comparables: Annotated[dict[str, str], fact("facts that matter for speed; `?` is unknown")] = {}
    findings: tuple[NodeFinding, ...] = ()
    unknown: tuple[Unread, ...] = ()
    ceilings: tuple[NodeCeiling, ...] = ()
    job: Annotated[str, fact("the scheduler's job that runs there; empty: none is known")] = ""
    ranks: Annotated[tuple[RankRecord, ...], fact("of the job that was asked for")] = ()
    took_ms: float = 0.0
    problem: Annotated[str, fact("why there is nothing else")] = ""
