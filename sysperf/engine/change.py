"""Changing settings: findings become requested settings, these a plan, a plan a transaction that can be taken back."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import structs

from sysperf import paths
from sysperf.engine import reading
from sysperf.evaluate.schema import suggest
from sysperf.fix import helper_protocol, keeper, keepers, lease_timer, plan, recovery, standing, transaction
from sysperf.fix.journal import Journal
from sysperf.fix.standing import Standing
from sysperf.host import Host
from sysperf.model.change import Change, Plan, Setting, Transaction, Undone
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.finding import Finding, Remedy
from sysperf.model.knob import KNOBS
from sysperf.startup import lazy

_SPAN = lazy(r"([0-9]{1,7})(s|m|min|h|d)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_LIST = "`sysperf plan --list` shows the settings with their ranges"


class Manual(NamedTuple):
    """A finding that sysperf does not fix by itself, and what a person can do."""

    outcome: Finding
    reason: str


class RequestedSettings(NamedTuple):
    """What the findings ask for."""

    settings: tuple[Setting, ...]
    manual: tuple[Manual, ...]


def requested_settings(outcomes: Iterable[Finding], named: Sequence[str] = (), *, caution: bool = False) -> RequestedSettings:
    """The first fix of each finding that sysperf can apply: safe ones; with `caution`, or for rules named, cautious ones too.

    What keeps users from each other is changed for rules that are named only.
    """
    settings: list[Setting] = []
    manual: list[Manual] = []
    for outcome in outcomes:
        if outcome.state != "finding" or (named and outcome.rule not in named):
            continue
        remedy = _first(outcome.fixes, caution=caution, named=outcome.rule in named)
        if remedy and remedy.setting:
            settings.append(structs.replace(remedy.setting, rule=outcome.rule))
        else:
            manual.append(Manual(outcome, _why_not(outcome)))
    return RequestedSettings(tuple(settings), tuple(manual))


def _first(fixes: Iterable[Remedy], *, caution: bool, named: bool) -> Remedy | None:
    allowed = ("safe", "caution") if caution or named else ("safe",)
    usable = (fix for fix in fixes if fix.setting and fix.safety in allowed and not fix.numerics)
    return next((fix for fix in usable if fix.setting and (named or not KNOBS[fix.setting.knob].guards)), None)


def _why_not(outcome: Finding) -> str:
    if any(fix.setting for fix in outcome.fixes):
        guards = any(fix.setting and KNOBS[fix.setting.knob].guards for fix in outcome.fixes)
        what, how = ("keeps users from each other", "") if guards else ("can affect other programs", ", or --caution,")
        return f"{what}: `sysperf apply {outcome.rule}`{how} includes it"
    fix = next(iter(outcome.fixes), None)
    if fix is None:
        return "there is nothing to set"
    return f"{fix.title}{f': {fix.command}' if fix.command else ''}"


def setting(text: str) -> Setting:
    """``vm.swappiness=10`` or ``block.read_ahead_kb@nvme0n1=128`` as a requested setting. Raises UsageError."""
    name, equals, value = text.partition("=")
    knob, _, item = name.strip().partition("@")
    if not equals and knob in KNOBS:
        raise UsageError(f"--set {text}: to what? {knob} takes {KNOBS[knob].range()}", f"--set {text}=VALUE")
    if not equals or knob not in KNOBS:
        raise UsageError(
            f"--set {text}: `{knob}` is no setting that sysperf may change{suggest(knob, KNOBS)}",
            _LIST,
        )
    if not KNOBS[knob].takes_item(item):
        of = KNOBS[knob].item
        raise UsageError(f"--set {text}: it takes {f'a {of}: {knob}@…={value}' if of else f'no item: {knob}={value}'}", _LIST)
    if not KNOBS[knob].accepts(value.strip()):
        raise UsageError(f"--set {text}: {knob} takes {KNOBS[knob].range()}", _LIST)
    return Setting(knob, value.strip(), item)


class Changer:
    """Makes changes for this user: root and owners of processes change by themselves, others ask the helper."""

    def __init__(self, host: Host | None = None, folder: str | None = None) -> None:
        self.host = host or Host()
        self.journal = Journal(folder)

    def asks_helper(self, settings: Iterable[Setting]) -> bool:
        """Whether these settings need root, which this user is not, and there is a helper."""
        needs_root = any(KNOBS[asked.knob].kind != "process" for asked in settings if asked.knob in KNOBS)
        return needs_root and os.geteuid() != 0 and helper_protocol.available()

    def plan(self, settings: Sequence[Setting], *, force: bool = False) -> Plan:
        """What these settings mean here. Nothing is changed."""
        if self.asks_helper(settings):
            return helper_protocol.ask(helper_protocol.AskPlan(settings=tuple(settings), force=force)).plan or Plan()
        return plan.plan(self.host, settings, force=force)

    def apply(self, planned: Plan, request: transaction.Request, *, force: bool = False) -> Transaction:
        """Do a plan as a whole. Raises SysperfError with nothing changed; the transaction says which step was refused, and why."""
        settings = tuple(Setting(change.knob, change.after, change.item, change.rule, change.start_time) for change in planned.changes)
        if self.asks_helper(settings):
            unique = tuple(dict.fromkeys(settings))
            question = helper_protocol.AskApply(
                settings=unique, why=request.why, force=force, persist=request.persist, lease_s=request.lease_s
            )
            done = helper_protocol.ask(question).transaction
            if done is None:
                raise helper_protocol.HelperError("the helper gave no transaction back")
            return done
        check(planned.changes, request)
        if request.lease_s is not None:
            request = request._replace(
                keep=lambda number: keeper.start(self.host, self.journal, number), guard=lease_timer.guard(self.journal, request.lease_s)
            )
        return transaction.apply(self.host, self.journal, planned, request)

    def undo(self, number: int, *, force: bool = False) -> list[Undone]:
        """Take a transaction back. Raises SysperfError."""
        if self._helper_undoes(self.journal.read(number)):
            return list(helper_protocol.ask(helper_protocol.AskUndo(number=number, force=force)).undone)
        return recovery.undo(self.host, self.journal, number, force=force)

    def renew(self, number: int, lease_s: float) -> None:
        """Let a transaction's lease end so many seconds from now. Raises SysperfError when it is over."""
        if self._helper_undoes(self.journal.read(number)):
            helper_protocol.ask(helper_protocol.AskRenew(number=number, lease_s=lease_s))
        else:
            recovery.renew(self.journal, number, lease_s)

    def _helper_undoes(self, record: Transaction) -> bool:
        """What the helper keeps alive only it can end; and who may not write the machine's journal can only ask it."""
        if not helper_protocol.available():
            return False
        by_helper = record.keeper is not None and record.keeper.is_helper and keepers.alive(record.keeper)
        return by_helper or not os.access(self.journal.folder, os.W_OK)

    def recover(self) -> list[Undone]:
        """Take back what was interrupted and what has a lease that ended."""
        with self.journal.locked():
            return recovery.recover(self.host, self.journal)

    def transactions(self) -> list[tuple[Transaction, list[Standing]]]:
        """All transactions, oldest first, and how each step stands now."""
        return [(record, standing.standings(self.host, self.journal, record)) for record in self.journal.transactions()]


def overdue() -> list[Transaction]:
    """What was interrupted or has a lease that ended, and is still there, of the journals that this user can read."""
    over: list[Transaction] = []
    for journal in journals():
        with contextlib.suppress(SysperfError):
            over += filter(recovery.is_over, journal.transactions())
    return over


def check(changes: Iterable[Change], request: transaction.Request) -> None:
    """Raises UsageError when the changes can not be had for that long."""
    kept = next((change for change in changes if KNOBS[change.knob].needs_keeper), None)
    if kept and request.lease_s is None:
        raise UsageError(f"{kept.knob} holds only while a process keeps it", "say for how long: --lease 8h")
    if request.lease_s is not None and request.persist:
        raise UsageError("--lease ends by itself and --persist does not", "give one of them")


def request(why: str, *, lease_s: float | None = None, persist: bool = False) -> transaction.Request:
    """A request by this user, now."""
    return transaction.Request(by=user(os.geteuid()), why=why, taken_at=reading.now(), lease_s=lease_s, persist=persist)


def seconds(text: str) -> float:
    """``10m`` in seconds. Raises UsageError."""
    match = _SPAN.fullmatch(text)
    if not match or not int(match[1]):
        raise UsageError(f"{text!r} is no time span", "such as 90s, 10m, 8h or 2d")
    return float(int(match[1]) * _SECONDS[match[2]])


def user(uid: int) -> str:
    """The name of a user, or the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def journals() -> list[Journal]:
    """The machine's journal, and this user's own."""
    return [Journal(folder) for folder in dict.fromkeys((paths.SYSTEM_STATE, paths.state_folder()))]
