"""The verb `node pair`: what this node and its partner reach together, each run on both at the same time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from sysperf import __version__
from sysperf.engine import reading
from sysperf.engine.bench.machine import Machine
from sysperf.engine.bench.workers import Worker
from sysperf.engine.fleet import record
from sysperf.engine.fleet.pairs import Pair
from sysperf.model.errors import UsageError
from sysperf.model.node import NodeCeiling, NodeRecord
from sysperf.model.record import JsonObject
from sysperf.model.text import neutral

RUN_S = 0.1
GLOO_BYTES, NCCL_BYTES = 4 << 20, 256 << 20
WAIT_SHARE = 0.5
"""Of the limit, the part in which the partner must have come."""
MAX_PORT = 65_535


def own_pair(pairs: Sequence[Pair], node: str) -> tuple[int, int]:
    """(number of the pair that this node is in, its rank there). Raises UsageError."""
    found = [(number, pair.index(node)) for number, pair in enumerate(pairs) if node in pair]
    if len(found) != 1 or any(one == other for one, other in pairs):
        raise UsageError(f"--pairs: {node} is not in one of them", "pairs look like n1:n2,n3:n4, and each node is in one of them")
    return found[0]


def measured(node: str, pairs: Sequence[Pair], port: int, metrics: Sequence[str], runs: int, limit_s: float) -> NodeRecord:
    """What this node and its partner reach. What cannot be measured says why."""
    start = time.monotonic()
    node = node or record.name()
    number, rank = own_pair(pairs, node)
    taken_at = reading.now()
    machine = Machine(ranks=1)
    ceilings: tuple[NodeCeiling, ...] = ()
    problem = "no interpreter with torch was found"
    if machine.python:
        request: JsonObject = {
            **({"backend": "nccl", "gpu": 0, "bytes": NCCL_BYTES} if machine.gpus else {"backend": "gloo", "bytes": GLOO_BYTES}),
            "init": f"tcp://{pairs[number][0]}:{min(MAX_PORT, port + number)}",
            "partner": pairs[number][1 - rank],
            "rank": rank,
            "ranks": 2,
            "within": WAIT_SHARE * limit_s,
            "cpus": str(machine.allowed),
            "seconds": RUN_S,
        }
        ceilings, problem = _in_turn(Worker(machine.python), request, metrics, runs, start + limit_s)
        problem = problem and f"with {pairs[number][1 - rank]}: {problem}"
    return NodeRecord(
        node=node,
        taken_at=taken_at,
        sysperf=__version__,
        ceilings=ceilings,
        took_ms=round((time.monotonic() - start) * 1e3, 1),
        problem=neutral(problem, 300),
    )


def _in_turn(worker: Worker, request: JsonObject, metrics: Sequence[str], runs: int, end: float) -> tuple[tuple[NodeCeiling, ...], str]:
    """(the figures, what ended them): one run of each after the other, in the same order on both nodes."""
    values: dict[str, list[float]] = {name: [] for name in metrics}
    with contextlib.closing(worker):
        for _ in range(runs):
            for name in metrics:
                answer = worker.ask({**request, "task": name.replace("-", "_")}, max(0.1, end - time.monotonic()))
                if answer.rate is None:
                    return (), answer.problem or "no figure"
                values[name].append(answer.rate / 1e9)
    return tuple(NodeCeiling(name, "GB/s", "pair", tuple(rates)) for name, rates in values.items()), ""
