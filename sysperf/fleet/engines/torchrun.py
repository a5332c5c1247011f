"""Nodes by torchrun, or whatever starts ranks with its variables: the first rank of each node answers the first rank of all.

They meet in the store in which ranks find each other, and which torchrun keeps. So a rank that does not answer costs its own answer only,
as it would not in a collective, and nothing is unpickled. Orders are verbs of ours with their arguments, never words of a command line.

Store  https://docs.pytorch.org/docs/stable/distributed.html#distributed-key-value-store
"""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NoReturn

from sysperf import fleet
from sysperf.fleet.engines import programs
from sysperf.host.commands import sysperf_command
from sysperf.host.forked import ending_with_parent
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.node import Answer, Asked, Node, Verb, is_name, record_line
from sysperf.model.record import Record, from_json, to_json
from sysperf.model.text import neutral
from sysperf.plugin import Deliver

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
STORE = os.path.join(os.path.dirname(os.path.abspath(fleet.__file__)), "in_torch/store.py")
MEET_S = 90.0
"""How long the ranks may take to come: they import torch."""
WAIT_S = 24 * 3_600.0
"""How long a node waits to be asked; torchrun ends it before where the first rank ends."""
GRACE_S = 10.0
MAX_LINE = 1 << 20
NO_NODE = b"-"


class _Order(Record):
    """What the first rank asks; of no ranks: nothing more."""

    ranks: tuple[int, ...] = ()
    verb: Verb = "record"
    asked: Asked = Asked()


class _Store:
    """The store of the ranks, by a program in an interpreter that has torch."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.rank, self.size = int(variables["RANK"]), int(variables["WORLD_SIZE"])
        self.orders = itertools.count()
        self._process = subprocess.Popen(
            (_python(), STORE),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what goes wrong is an answer; else torch tells of each rank that leaves
            # A node waits long, and does not read its input meanwhile. The first rank's program tells them all when its input ends.
            preexec_fn=ending_with_parent(signal.SIGKILL) if self.rank else None,  # noqa: PLW1509 - one call of the kernel
        )

    def put(self, key: str, value: bytes) -> None:
        """Set a key. Raises SysperfError."""
        self._ask("put", key, base64.b64encode(value).decode())

    def put_last(self, key: str, value: bytes) -> None:
        """Have a key set when this process ends, however it ends; it takes the place of the one before. Raises SysperfError."""
        self._ask("last", key, base64.b64encode(value).decode())

    def get(self, key: str, within_s: float) -> bytes | None:
        """Return what somebody set, or will in so many seconds; None: nobody did. Raises SysperfError."""
        value = self._ask("get", key, f"{max(0.01, within_s):.2f}")
        return None if value is None else base64.b64decode(value)

    def _ask(self, *words: str) -> str | None:
        assert self._process.stdin is not None  # noqa: S101 - for type checkers: both are pipes
        assert self._process.stdout is not None  # noqa: S101 - as above
        said = b""
        with contextlib.suppress(OSError):
            self._process.stdin.write(" ".join(words).encode() + b"\n")
            self._process.stdin.flush()
            said = self._process.stdout.readline(MAX_LINE)
        state, _, value = said.decode("utf-8", "replace").rstrip("\n").partition(" ")
        if state in ("is", "none"):
            return value if state == "is" else None
        raise SysperfError(
            f"the ranks do not meet: {neutral(value, 300) or 'the program that holds their store ended'}", "start them by torchrun"
        )


def nodes(asked: Asked) -> tuple[Node, ...]:
    """Return the nodes whose ranks came. A rank that is not the first of all answers here, and ends the program. Raises SysperfError."""
    if _store().rank:
        _serve()
    found = [node for _, node in _met()]
    strangers = [Node(name, "unreachable", "no rank runs there") for name in asked.hosts if name not in {node.name for node in found}]
    return (*(node for node in found if not asked.hosts or node.name in asked.hosts), *strangers)


def run(nodes: Sequence[Node], verb: Verb, asked: Asked, deliver: Deliver) -> None:
    """Ask those whose ranks came, this node among them."""
    store, wanted = _store(), {node.name for node in nodes if node.state == "answered"}
    for node in nodes:
        if node.name not in wanted:
            deliver(Answer(node.name, node.state, node.reason))
    ranks = {rank: node.name for rank, node in _met() if node.name in wanted}
    number, end = next(store.orders), time.monotonic() + asked.node_limit_s + GRACE_S
    store.put(f"order/{number}", to_json(_Order(tuple(ranks), verb, asked)))
    store.put_last(f"order/{number + 1}", to_json(_Order()))
    if 0 in ranks:
        deliver(_done(ranks.pop(0), verb, asked))
    for rank, name in ranks.items():
        said = store.get(f"answer/{number}/{rank}", end - time.monotonic())
        deliver(_answer(name, said) if said is not None else Answer(name, "late", programs.TOO_LATE.format(asked.node_limit_s)))


@functools.cache
def _store() -> _Store:
    if missing := [name for name in VARIABLES if not os.environ.get(name)]:
        hint = "torchrun --nnodes N --nproc-per-node 1 --no-python sysperf fleet audit --engine torchrun"
        raise UsageError(f"this is no rank of a job: {', '.join(missing)} not set", hint)
    store = _Store(os.environ)
    if store.rank == 0:
        store.put_last("order/0", to_json(_Order()))
    return store


@functools.cache
def _met() -> tuple[tuple[int, Node], ...]:
    """The first rank of each node, and the node; who did not come is known by its rank."""
    store, end = _store(), time.monotonic() + MEET_S
    store.put("node/0", _own_name().encode())
    came = {rank: store.get(f"node/{rank}", end - time.monotonic()) for rank in range(store.size)}
    names = {rank: neutral((said or b"").decode("utf-8", "replace"), 253) for rank, said in came.items() if said != NO_NODE}
    counts = Counter(names.values())
    return tuple((rank, _node(rank, name, counts[name])) for rank, name in names.items())


def _node(rank: int, name: str, count: int) -> Node:
    if not is_name(name):
        return Node(f"rank-{rank}", "unreachable", "it did not come")
    return Node(name) if count == 1 else Node(name, "refused", f"{count} nodes have its name")


def _serve() -> NoReturn:
    """Do what the first rank of all asks, as the first of this node, until it asks no more. Raises SysperfError."""
    store = _store()
    first = next((os.environ[name] for name in LOCAL_RANK if name in os.environ), "0") == "0"
    store.put(f"node/{store.rank}", _own_name().encode() if first else NO_NODE)
    with contextlib.suppress(SysperfError, ValueError):  # the first rank, and the store with it, may have gone meanwhile
        for number in store.orders if first else ():
            order = from_json(store.get(f"order/{number}", WAIT_S) or b"{}", _Order)
            if not order.ranks:
                break
            if store.rank in order.ranks:
                store.put(f"answer/{number}/{store.rank}", to_json(_done(_own_name(), order.verb, order.asked)))
        store.put(f"done/{store.rank}", b"1")
    raise SystemExit(0)


def _done(name: str, verb: Verb, asked: Asked) -> Answer:
    """What this node says; the program is the one that runs here."""
    ended = programs.run((*sysperf_command(), *asked.words(verb), "--node", name), asked.node_limit_s)
    took_s = round(ended.took_s, 2)
    if ended.code == 0:
        return Answer(name, data=record_line(ended.output), took_s=took_s)
    return Answer(
        name, "late" if ended.code is None else "refused", ended.problem or ended.last_words or f"code {ended.code}", took_s=took_s
    )


def _answer(name: str, said: bytes) -> Answer:
    """What a node put into the store, under the name that it had before."""
    try:
        answer = from_json(said, Answer)
    except ValueError:
        return Answer(name, "refused", "no answer of a node")
    return answer if answer.node == name else Answer(name, "refused", f"its answer is of another node, {neutral(answer.node, 80)}")


def _own_name() -> str:
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def _python() -> str:
    """An interpreter that has torch: this one, else that of torchrun, which started us."""
    if importlib.util.find_spec("torch"):
        return sys.executable
    with contextlib.suppress(OSError), open(f"/proc/{os.getppid()}/cmdline", "rb") as file:
        parent = file.read(4_096).split(b"\0")[0].decode("utf-8", "replace")
        if os.path.basename(parent).startswith("python"):
            return parent
    return shutil.which("python3") or sys.executable
