"""The verbs `fleet marks`, `mark` and `unmark`: tell a scheduler of bad nodes, through the journal, and take that back.

A mark is a change like any other: one transaction a node, written down before the scheduler is told, read back, and undone unless
somebody else has changed it since. Nothing marks by itself: a person, or what a person put into cron, says which nodes.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from sysperf import plugin
from sysperf.engine import change
from sysperf.engine.fleet import gather
from sysperf.evaluate.ruleset import Ruleset
from sysperf.fix import recovery, transaction
from sysperf.fix.journal import Journal
from sysperf.fix.standing import standings
from sysperf.host import Host
from sysperf.model.change import LIVE, Change, Plan, Setting, Skipped, Step, Transaction, Undone
from sysperf.model.check import Fault
from sysperf.model.errors import Exit, SysperfError, UsageError
from sysperf.model.knob import of_mark
from sysperf.model.mark import How, Marked, NodeMark, is_ours
from sysperf.model.node import Asked, NodeFinding
from sysperf.model.text import natural, neutral
from sysperf.report.fleet.check import mark_text, reason

WINDOW = datetime.timedelta(hours=24)
HOWS: tuple[How, ...] = ("mark", "drain")


class BrakeTripped(SysperfError):
    """So many nodes are bad at once that something else is likelier: nothing more is marked until a person says so."""

    code = Exit.PARTIAL


class Brake:
    """Limits of marking: a number or a share of each partition within 24 hours, and the nodes that stay usable."""

    def __init__(self, most: float, keep: int) -> None:
        self.most, self.keep = most, keep

    def check(self, nodes: Sequence[str], states: Mapping[str, NodeMark], before: Iterable[str], *, drain: bool) -> None:
        """Raise BrakeTripped where these nodes, and those that were marked before, are too many of a partition."""
        recent = {*before, *(mark.node for mark in states.values() if mark.ours)}
        for partition in sorted({name for node in nodes for name in _groups(states[node])}):
            members = {mark.node for mark in states.values() if partition in _groups(mark)}
            marked, limit = members & {*recent, *nodes}, self._limit(len(members))
            if len(marked) > limit:
                raise BrakeTripped(
                    f"partition {neutral(partition, 80)}: {len(marked)} of {len(members)} nodes would be marked within 24 hours, and "
                    f"{limit} may be; nothing further was marked",
                    "look for what they share first: the network, a file system, a roll-out; "
                    f"`--at-most {len(marked)}` marks them all the same",
                )
            left = [node for node in members if states[node].usable and node not in nodes]
            if drain and len(left) < self.keep:
                raise BrakeTripped(
                    f"partition {neutral(partition, 80)}: {len(left)} usable nodes would be left, and {self.keep} must be; "
                    "nothing further was drained",
                    "repair a node first, or mark without --drain",
                )

    def _limit(self, nodes: int) -> int:
        return self.most if isinstance(self.most, int) else max(1, math.floor(self.most * nodes))


def _groups(mark: NodeMark) -> tuple[str, ...]:
    """Name its partitions; nodes without one are a group of their own."""
    return mark.partitions or ("none",)


class Marks:
    """Marks in one scheduler, by this machine's journal."""

    def __init__(self, marker: str = "", folder: str | None = None) -> None:
        self.name = marker or plugin.MARKERS.default
        self._marker = plugin.marker(self.name)
        self._host, self.journal = Host(), Journal(folder)

    def plan(self, reasons: Mapping[str, str], how: How, rule: str = "") -> Plan:
        """What marking these nodes means: never over somebody else's words, and not twice. Nothing is changed. Raises SysperfError."""
        if how not in getattr(self._marker, "HOWS", HOWS):
            raise UsageError(f"{self.name} can be told of a node, and drains none by it", "leave --drain out")
        states, changes, skipped = self._marker.states(), [], []
        for node, text in sorted(reasons.items(), key=lambda item: natural(item[0])):
            knob = of_mark(f"{how}.{self.name}")
            found = states.get(node)
            if found is None or knob is None:
                skipped.append(_left(how, self.name, node, text, f"{self.name} does not have this node"))
            elif already := next((there for there in (found.reason, *([found.comment] if how == "mark" else [])) if is_ours(there)), ""):
                skipped.append(_left(how, self.name, node, text, f"marked already: {already}", already=True))
            elif theirs := found.text(how):
                by = f" [{found.by}]" if how == "drain" and found.by else ""
                skipped.append(_left(how, self.name, node, text, f"it is {found.state}, and these words are not ours: {theirs}{by}"))
            else:
                changes.append(Change(knob.name, node, knob.path.replace("{item}", node), found.text(how), text, rule))
        return Plan(tuple(changes), tuple(skipped))

    def check(self, planned: Plan, brake: Brake) -> None:
        """Raise BrakeTripped where the whole plan is too much."""
        nodes = [change.item for change in planned.changes]
        if nodes:
            brake.check(nodes, self._marker.states(), self._recent(), drain=planned.changes[0].knob.startswith("drain."))

    def mark(self, planned: Plan, why: str, brake: Brake, done: Callable[[Transaction], object]) -> None:
        """Mark the nodes of a plan, a transaction each. The brake is asked again before each, while nobody else can mark here."""
        for each in planned.changes:
            request = change.request(why)._replace(guard=functools.partial(self._guard, brake, each))
            done(transaction.apply(self._host, self.journal, Plan((each,)), request))

    def _guard(self, brake: Brake, each: Change, _: int) -> None:
        states = self._marker.states()
        if each.item in states:
            brake.check([each.item], states, self._recent(), drain=each.knob.startswith("drain."))

    def unmark(self, nodes: Sequence[str] = ()) -> list[Undone]:
        """Take back what the journal has of these nodes, or of all, the latest first; what somebody else has changed stays."""
        undone: list[Undone] = []
        for number, step in reversed(self._steps()):
            if (not nodes or step.change.item in nodes) and step.state in LIVE:
                undone += self.undo(number)
        return undone

    def of(self, node: str, why: str) -> list[Transaction]:
        """The transactions about a node that were made for this reason, and that nobody has taken back."""
        live = (each for each in self.journal.transactions() if each.live and each.why == why and self._ours(each))
        return [each for each in live if any(step.change.item == node for step in each.steps)]

    def undo(self, number: int) -> list[Undone]:
        """Take one transaction back. Raises JournalError."""
        return recovery.undo(self._host, self.journal, number)

    def recover(self) -> None:
        """Take back what was interrupted. Raises JournalError."""
        with self.journal.locked():
            recovery.recover(self._host, self.journal)

    def listed(self) -> list[Marked]:
        """Each mark that is there, or that this journal has and somebody has changed. Raises SysperfError."""
        states = self._marker.states()
        found: dict[tuple[str, How], Marked] = {}
        for each in self.journal.transactions():
            for standing in standings(self._host, self.journal, each) if each.live and self._ours(each) else ():
                step = standing.step
                how: How = "drain" if step.change.knob.startswith("drain.") else "mark"
                state = states[step.change.item].state if step.change.item in states else ""
                verdict = "interrupted" if each.state == "open" else standing.verdict
                if verdict == "changed" and standing.now == step.change.before:
                    verdict = "lifted"
                if verdict in ("holds", "changed", "lifted", "interrupted", "gone", "unknown"):
                    found[step.change.item, how] = Marked(
                        node=step.change.item,
                        how=how,
                        text=step.change.after,
                        state=state,
                        transaction=each.number,
                        taken_at=each.taken_at,
                        verdict=verdict,  # type: ignore[arg-type]  # one of these
                        now=standing.now,
                    )
        for mark in states.values():
            for how in HOWS:
                if is_ours(text := mark.text(how)):
                    found.setdefault((mark.node, how), Marked(node=mark.node, how=how, text=text, state=mark.state, now=text))
        return sorted(found.values(), key=lambda each: (natural(each.node), each.how))

    def _ours(self, each: Transaction) -> bool:
        return any(step.change.knob in self._knobs for step in each.steps)

    @property
    def _knobs(self) -> tuple[str, ...]:
        return tuple(f"{how}.{self.name}" for how in HOWS)

    def _steps(self) -> list[tuple[int, Step]]:
        """The marks of the journal, oldest first."""
        return [(each.number, step) for each in self.journal.transactions() for step in each.steps if step.change.knob in self._knobs]

    def _recent(self) -> set[str]:
        """Nodes that were marked within the last 24 hours, whatever became of it. A clock that jumped back makes none of them old."""
        since = f"{datetime.datetime.now(datetime.timezone.utc) - WINDOW:%Y-%m-%dT%H:%M:%SZ}"
        return {
            step.change.item
            for each in self.journal.transactions()
            if each.taken_at > since
            for step in each.steps
            if step.change.knob in self._knobs and step.state != "refused"
        }


def _left(how: How, marker: str, node: str, text: str, why: str, *, already: bool = False) -> Skipped:
    return Skipped(Setting(f"{how}.{marker}", text, node), neutral(why, 300), already=already)


def of_words(nodes: Iterable[str], words: str, ruleset: Ruleset) -> dict[str, str]:
    """The words of a mark by node: of a rule, or as they are."""
    rule = next((rule for rule in ruleset.rules if rule.id == words), None)
    text = reason(Fault("node" if rule.id in _of_node(ruleset) else "site", rule.id, rule.severity)) if rule else mark_text(words)
    return dict.fromkeys(nodes, text)


def _of_node(ruleset: Ruleset) -> frozenset[str]:
    """The rules whose findings mean that the machine itself is bad."""
    return frozenset(ruleset.tables.get("check", {}).get("node", ()))


def of_records(folder: str, nodes: Sequence[str], ruleset: Ruleset) -> dict[str, str]:
    """The words of a mark for each node whose record shows that the machine itself is bad. Raises SysperfError."""
    gathered, interrupted = gather.ask(plugin.ENGINES.default, Asked(where=folder), "record")
    late = gathered.late()
    if interrupted or (missing := sorted(set(nodes) - (gathered.took_s.keys() - late.keys()))):
        raise UsageError(f"{folder}: no record of {', '.join(missing)[:200]}, or an old one", "what is not known is not marked")
    sick: dict[str, str] = {}
    of_node = _of_node(ruleset)

    def whose(found: NodeFinding) -> Fault | None:
        """The finding as a fault of the machine itself; None where it is none."""
        bad = found.state == "finding" and found.severity == "error" and found.rule in of_node
        return Fault("node", found.rule, found.severity, found.subject[:200]) if bad else None

    for name in gathered.took_s:
        if name not in late and (not nodes or name in nodes):
            faults = [fault for fault in map(whose, gathered.record(name).findings) if fault]
            sick |= {name: reason(faults[0])} if faults else {}
    return sick
