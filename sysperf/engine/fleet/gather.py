"""The verbs `fleet audit`, `diff` and `golden`: ask nodes for their records, and merge them as they come."""

from __future__ import annotations

import datetime
import os
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence

import tomli

from sysperf import __version__, paths, plugin
from sysperf.engine import reading
from sysperf.evaluate.compare import weight
from sysperf.evaluate.ruleset import Ruleset
from sysperf.fleet.merge import Merge, Weigh
from sysperf.fleet.records import Refused, decode
from sysperf.host.plain_files import read_named
from sysperf.model import moment
from sysperf.model.difference import UNKNOWN
from sysperf.model.errors import UsageError
from sysperf.model.fleet import Fleet, Policy, PolicyClass
from sysperf.model.node import Answer, Asked, Node, NodeRecord, Verb
from sysperf.model.record import convert
from sysperf.model.text import natural, neutral

MAX_POLICY_BYTES = 4 << 20
MAX_ALL_BYTES = 1 << 30
MAX_SLOWEST = 5
STALE = datetime.timedelta(hours=24)
"""A record that is older than most by so much is no answer: clocks of nodes differ by hours, not by days."""


class Gathered:
    """What came of the nodes, one after the other. Records lie in a file without a name, so that one at a time is in memory."""

    def __init__(self, asked: Sequence[Node]) -> None:
        self.silent: dict[str, Answer] = {node.name: Answer(node.name, node.state, node.reason) for node in asked}
        self.took_s: dict[str, float] = {}
        """Of each node that answered."""
        self.times: dict[str, datetime.datetime] = {}
        self._file = tempfile.TemporaryFile(dir=paths.temporary_home())  # noqa: SIM115 - as long as this object
        self._places: dict[str, tuple[int, int]] = {}

    def take(self, answer: Answer) -> None:
        """Take one answer; the first of each node counts, unless that is refused afterwards."""
        if answer.node in self.took_s:
            if answer.state != "refused":
                return
            for known in (self.took_s, self.times, self._places):
                known.pop(answer.node, None)
        if answer.state == "answered":
            try:
                taken_at = moment.read(decode(answer).taken_at)
                self._keep(answer)
            except Refused as error:
                answer = Answer(answer.node, "refused", str(error))
            else:
                self.took_s[answer.node] = answer.took_s
                self.times |= {answer.node: taken_at} if taken_at else {}
                self.silent.pop(answer.node, None)
                return
        self.silent[answer.node] = answer

    def _keep(self, answer: Answer) -> None:
        """Put a record down. Raises Refused."""
        packed, place = zlib.compress(answer.data, 1), self._file.seek(0, os.SEEK_END)
        if place + len(packed) > MAX_ALL_BYTES:
            raise Refused(f"the records of all nodes together are larger than {MAX_ALL_BYTES >> 20} MiB")
        self._file.write(packed)
        self._places[answer.node] = (place, len(packed))

    def record(self, node: str) -> NodeRecord:
        """Read the record of a node that answered."""
        place, size = self._places[node]
        self._file.seek(place)
        return decode(Answer(node, data=zlib.decompress(self._file.read(size))))

    def late(self) -> dict[str, str]:
        """Why records are no answer: a node that died is in its folder still."""
        if not self.times:
            return {}
        usual = statistics.median_low(self.times.values())
        return {
            node: f"its record is of {taken_at:%Y-%m-%d %H:%M} UTC" for node, taken_at in self.times.items() if usual - taken_at > STALE
        }


def fleet(
    engine: str, asked: Asked, ruleset: Ruleset, *, reference: str = "majority", say: Callable[[int, int], object] = lambda *_: None
) -> tuple[Fleet, Policy]:
    """(what the nodes say together, what most of them are like). `say` is told how many answered, and of how many. Raises SysperfError.

    Ctrl-C ends it with what is there.
    """
    start = time.perf_counter()
    gathered, interrupted = ask(engine, asked, "record", say)
    matters = ruleset.tables.get("matters", {})
    merge, golden = _merged(gathered, lambda fact: weight(fact, matters), reference.removeprefix("node:"))
    policy = golden if reference.startswith("node:") else None if reference == "majority" else read_policy(reference)
    if policy is None and reference != "majority":
        raise UsageError(f"--golden {reference}: no record of this node", "name one that answered")
    times = sorted(gathered.times[name] for name in merge.names if name in gathered.times)
    slowest = sorted(((name, took_s) for name, took_s in gathered.took_s.items() if took_s), key=lambda each: -each[1])
    found = Fleet(
        sysperf=__version__,
        taken_at=reading.now(),
        engine=engine or plugin.ENGINES.default,
        asked=len(gathered.took_s) + len(gathered.silent),
        answered=len(merge.names),
        oldest=f"{times[0]:%Y-%m-%dT%H:%M:%SZ}" if times else "",
        newest=f"{times[-1]:%Y-%m-%dT%H:%M:%SZ}" if times else "",
        silent=merge.silent(),
        classes=merge.described(),
        findings=merge.findings(),
        differences=merge.differences(policy),
        unknown=merge.unknown(),
        slowest=tuple((name, round(seconds, 2)) for name, seconds in slowest[:MAX_SLOWEST]),
        reference=reference,
        interrupted=interrupted,
        took_ms=round((time.perf_counter() - start) * 1e3, 1),
    )
    return found, merge.policy()


def ask(
    engine: str, asked: Asked, verb: Verb, say: Callable[[int, int], object] = lambda *_: None, only: Sequence[str] = ()
) -> tuple[Gathered, bool]:
    """(what came, whether Ctrl-C ended it); with `only` of these nodes."""
    reaching, wanted = plugin.engine(engine), set(only)
    nodes = [node for node in reaching.nodes(asked) if not wanted or node.name in wanted]
    gathered = Gathered([_not_yet(node) for node in nodes])

    def deliver(answer: Answer) -> None:
        gathered.take(answer)
        say(len(gathered.took_s), len(gathered.took_s) + len(gathered.silent))

    try:
        reaching.run(nodes, verb, asked, deliver)
    except KeyboardInterrupt:
        return gathered, True
    return gathered, False


def _not_yet(node: Node) -> Node:
    """Call it late until it answers."""
    return Node(node.name, "late", "no answer yet") if node.state == "answered" else node


def _merged(gathered: Gathered, weigh: Weigh, golden: str) -> tuple[Merge, Policy | None]:
    """(all nodes as one, what the golden one is like)."""
    merge, late, policy = Merge(weigh), gathered.late(), None
    for name in sorted(gathered.took_s, key=natural):
        if name in late:
            merge.silence(name, "late", late[name])
            continue
        record = gathered.record(name)
        merge.add(record)
        if name == golden:
            facts = {fact: value for fact, value in record.comparables.items() if value != UNKNOWN}
            policy = Policy(classes=(PolicyClass(hardware=record.hardware, facts=facts),))
    for answer in gathered.silent.values():
        merge.silence(answer.node, answer.state, answer.reason)
    return merge, policy


def read_policy(path: str) -> Policy:
    """What `sysperf fleet golden` wrote. Raises UsageError."""
    hint = "write one with `sysperf fleet golden RECORDS --output FILE`, or give `majority` or `node:NAME`"
    try:
        raw = tomli.loads(read_named(path, MAX_POLICY_BYTES).decode())
        return convert({"schema": raw.get("schema"), "classes": raw.get("class", [])}, Policy)
    except OSError as error:
        raise UsageError(f"--golden {path}: {error.strerror or error}", hint) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--golden {path}: no policy: {neutral(str(error), 200)}", hint) from None
