"""Nodes of a Ray cluster: one task on each, which starts sysperf there as whoever started Ray would, without what Ray sets for tasks.

Ray is asked by a program in an interpreter that has it; sysperf may lie in another one. A task takes no CPU: nodes that work answer, too.

Ray  https://docs.ray.io/en/latest/ray-core/scheduling/index.html#nodeaffinityschedulingstrategy
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from sysperf.host.forked import ending_with_parent
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.node import MAX_OUTPUT_BYTES, Answer, Asked, Node, Verb, is_name, record_line
from sysperf.model.record import Record, from_json, to_json
from sysperf.model.text import neutral
from sysperf.plugin import Deliver

TASKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tasks.py")
MEET_S = 90.0
"""How long it may take to join the cluster, which begins with importing Ray."""
GRACE_S = 30.0
"""How much longer than sysperf itself a task may take: Ray starts a worker for it."""
MAX_LINE = 32 << 20
LOST = ("unspecified", "unexpected_termination")
"""Nodes that ended so are missed; others were taken out of the cluster."""


class Known(Record):
    """A node as Ray lists it."""

    id: str
    names: tuple[str, ...]
    alive: bool = True
    death: str = ""
    why: str = ""


class _Said(Record):
    """A line of the program: a list of nodes, what came of one, an end, or why there is nothing."""

    nodes: tuple[Known, ...] = ()
    id: str = ""
    code: int | None = None
    output: str = ""
    complaint: str = ""
    state: str = ""
    reason: str = ""
    took_s: float = 0.0
    problem: str = ""
    end: bool = False


class _Order(Record):
    """What it is asked: of no nodes, their list."""

    nodes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    at_once: int = 1
    limit_s: float = 0.0
    grace_s: float = GRACE_S
    most: int = MAX_OUTPUT_BYTES


class _Cluster:
    """A cluster, by the program that has joined it."""

    def __init__(self, address: str) -> None:
        self._read = bytearray()
        self._process = subprocess.Popen(
            (_python(), TASKS, address or "auto"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what goes wrong is an answer
            start_new_session=True,
            preexec_fn=ending_with_parent(signal.SIGKILL),  # noqa: PLW1509 - one call of the kernel, made ready before the fork
        )

    def ask(self, order: _Order, patience_s: float) -> Iterator[_Said]:
        """What it says, until its end. Whatever ends this early ends the program, and Ray its tasks. Raises SysperfError."""
        try:
            self._write(to_json(order) + b"\n")
            while not (said := self._line(time.monotonic() + patience_s)).end:
                yield said
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End it."""
        _clusters.clear()
        self._process.kill()
        self._process.communicate()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None  # noqa: S101 - for type checkers: it is a pipe
        with contextlib.suppress(OSError):  # its last words say why it ended
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _line(self, until: float) -> _Said:
        assert self._process.stdout is not None  # noqa: S101 - as above
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._read:
            if len(self._read) > MAX_LINE or not select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
                raise _unheard("it does not answer")
            part = os.read(descriptor, 1 << 20)
            if not part:
                raise _unheard("the program that has joined it ended")
            self._read += part
        line, _, rest = bytes(self._read).partition(b"\n")
        self._read = bytearray(rest)
        said = from_json(line, _Said)
        if said.problem:
            raise _unheard(neutral(said.problem, 300))
        return said


_clusters: dict[str, _Cluster] = {}


def nodes(asked: Asked) -> tuple[Node, ...]:
    """Return the nodes of the cluster, those that died included. Raises SysperfError."""
    found = {
        name: Node(name) if each.alive else Node(name, "unreachable", f"Ray says that it died: {neutral(each.why or each.death, 200)}")
        for name, each in named(_listed(asked)).items()
    }
    strangers = (Node(name, "unreachable", "Ray does not have it") for name in asked.hosts if name not in found)
    return (*(node for node in found.values() if not asked.hosts or node.name in asked.hosts), *strangers)


def run(nodes: Sequence[Node], verb: Verb, asked: Asked, deliver: Deliver) -> None:
    """Ask those that live."""
    known = named(_listed(asked))
    names = {known[node.name].id: node.name for node in nodes if node.state == "answered" and node.name in known}
    for node in nodes:
        if node.name not in names.values():
            deliver(Answer(node.name, node.state if node.state != "answered" else "unreachable", node.reason or "Ray lost it a moment ago"))
    if not names:
        return
    words = (*asked.command, *asked.words(verb), "--node")
    order = _Order(tuple((of, (*words, name)) for of, name in names.items()), asked.at_once, asked.node_limit_s)
    for said in _cluster(asked.where).ask(order, asked.node_limit_s + 2 * GRACE_S):
        if said.id in names:
            deliver(_answer(names.pop(said.id), said))


def named(listed: Sequence[Known]) -> dict[str, Known]:
    """Each node under the first of its names that no other one has. Who died and is back, or was taken out, is left out."""
    alive = [each for each in listed if each.alive]
    lost = {each.names: each for each in listed if not each.alive and each.death in LOST}
    kept = [*alive, *(each for names, each in lost.items() if names not in {other.names for other in alive})]
    counts = Counter(name for each in kept for name in set(each.names))
    return {
        next((name for name in each.names if counts[name] == 1 and is_name(name)), f"node-{neutral(each.id, 40)[:12]}"): each
        for each in kept
    }


def _answer(name: str, said: _Said) -> Answer:
    took_s = round(said.took_s, 2)
    if said.code == 0:
        return Answer(name, data=record_line(base64.b64decode(said.output)), took_s=took_s)
    reason = neutral(said.reason or said.complaint, 200) or f"code {said.code}"
    return Answer(name, "late" if said.state == "late" else "unreachable" if said.state == "lost" else "refused", reason, took_s=took_s)


def _listed(asked: Asked) -> tuple[Known, ...]:
    (said,) = _cluster(asked.where).ask(_Order(), MEET_S)
    return said.nodes


def _cluster(address: str) -> _Cluster:
    """The cluster at an address; without one that of RAY_ADDRESS, or of this machine. None is started. Raises UsageError."""
    if address not in ("", "auto") and not re.fullmatch(r"(?:ray://)?[A-Za-z0-9_.:\[\]-]{1,253}:[0-9]{1,5}", address):
        raise UsageError(f"{address[:80]}: no address of a Ray cluster", "such as 10.0.0.1:6379, or ray://10.0.0.1:10001")
    if address not in _clusters:
        _clusters[address] = _Cluster(address)
    return _clusters[address]


def _unheard(why: str) -> SysperfError:
    return SysperfError(f"Ray: {why}", "`ray status` shows whether a cluster is reached from here")


def _python() -> str:
    """An interpreter that has Ray: this one, else that beside the command `ray`."""
    if importlib.util.find_spec("ray"):
        return sys.executable
    command = shutil.which("ray")
    beside = os.path.join(os.path.dirname(command), "python3") if command else ""
    return beside if os.access(beside, os.X_OK) else shutil.which("python3") or sys.executable
