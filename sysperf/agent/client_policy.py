"""What each client of the helper may ask for: root everything, the agent what the site's rules set, nobody what is root's.

The agent is known by its service and its user: a program that took it over can ask for nothing that the site did not list.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sysperf import paths
from sysperf.engine import judging
from sysperf.engine.change import user
from sysperf.engine.configuration import read_config
from sysperf.evaluate.rule_files import site_files
from sysperf.evaluate.ruleset import load
from sysperf.fix.helper_protocol import AskApply
from sysperf.fix.recovery import key_of, steps_in_force
from sysperf.model.change import Plan, Setting, Skipped, Transaction
from sysperf.model.errors import SysperfError
from sysperf.model.knob import KNOBS
from sysperf.model.rule import Affinity, Fix, MigratePages, Nvml, SetKnob, Sysctl, Sysfs

AGENT = "sysperf-agent"
ROOT = "root"
DYNAMIC_UIDS = range(61_184, 65_520)
"""Users that systemd makes for services (https://systemd.io/UIDS-GIDS/), each for one service at a time: the agent is one of them."""


class Refused(SysperfError):
    """Error: this client may not."""


def client_of(uid: int, pid: int) -> Client:
    """Return who is on the other side of a socket. Raises Refused when a process that says to be root is gone."""
    try:
        process = os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # this process, whoever has its number later
    except OSError:
        return _client_that_ended(uid)
    try:
        with open("cgroup", opener=lambda path, flags: os.open(path, flags, dir_fd=process)) as file:
            in_agent = f"/{AGENT}.service" in file.read(65_536)
        owner = os.fstat(process).st_uid
    except OSError:
        return _client_that_ended(uid)
    finally:
        os.close(process)
    return Client(uid, in_agent) if in_agent or owner == uid else _client_that_ended(uid)


def _client_that_ended(uid: int) -> Client:
    """Return who asked, when the process with its number is not known to be theirs: the user of a service may be the agent's."""
    if uid == 0:
        raise Refused("who asked has ended: who it was is not known")
    return Client(uid, uid in DYNAMIC_UIDS)


class Allowed(NamedTuple):
    """A setting that a rule's fix makes; "" is what the fix computes on each machine."""

    knob: str
    value: str
    item: str

    def covers(self, setting: Setting) -> bool:
        """Whether this is that setting."""
        knob = KNOBS.get(setting.knob)
        if knob is None or setting.knob != self.knob or not knob.accepts(setting.value):
            return False
        same_value = not self.value or knob.canonical(setting.value) == knob.canonical(self.value)
        return same_value and (not self.item or setting.item == self.item)


AllowedByRule = Mapping[str, tuple[Allowed, ...]]


class Client(NamedTuple):
    """A client, by its user."""

    uid: int
    in_agent: bool = False
    """Whether it runs inside the agent's service, as whatever user, or has ended and may have."""

    @property
    def is_root(self) -> bool:
        """Return who may do everything."""
        return self.uid == 0 and not self.in_agent

    @property
    def is_agent(self) -> bool:
        """Whether it is the agent, or may be."""
        return self.in_agent or user(self.uid) == AGENT

    @property
    def name(self) -> str:
        """The name under which its transactions are written down."""
        return AGENT if self.is_agent else user(self.uid)

    def owns(self, transaction: Transaction) -> bool:
        """Whether it may undo, renew or give up this transaction."""
        return self.is_root or (transaction.by == AGENT if self.is_agent else transaction.by != ROOT)

    def check_owns(self, transaction: Transaction) -> None:
        """Raises Refused."""
        if not self.owns(transaction):
            raise Refused(
                f"transaction {transaction.number} is {transaction.by or 'somebody else'}'s", f"sudo sysperf undo {transaction.number}"
            )


def check_apply(client: Client, question: AskApply, rules: AllowedByRule) -> None:
    """Raises Refused when this client may not make these changes. `rules` has what the agent may set."""
    if client.is_root:
        return
    if question.force or question.persist:
        raise Refused("only root may override an administrator's choice, or change what is set at every start", "run it with sudo")
    if not client.is_agent:
        return
    if question.lease_s is None:
        raise Refused("the agent changes nothing without a lease")
    for setting in question.settings:
        _check_listed(setting, rules)


def _check_listed(setting: Setting, rules: AllowedByRule) -> None:
    allowed = next((allowed for allowed in rules.get(setting.rule, ()) if allowed.covers(setting)), None)
    if allowed is None:
        raise Refused(
            f"{setting.knob} = {setting.value[:80]} is nothing that a rule of `[agent] apply` sets",
            f"the list is in {paths.SYSTEM_CONFIG}/config.toml",
        )
    if not allowed.item and KNOBS[setting.knob].item == "process" and _is_of_the_system(int(setting.item)):
        raise Refused(f"process {setting.item} belongs to the system")


def _is_of_the_system(pid: int) -> bool:
    """Whether it is init, a thread of the kernel, or a service of root."""
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
        with open(f"/proc/{pid}/cgroup") as file:
            groups = [line.rpartition(":")[2].strip() for line in file.read(65_536).splitlines()]
    except OSError:
        return False  # it has ended: the plan says so
    return owner == 0 and (pid == 1 or any(group == "/" or group.endswith((".service", "/init.scope")) for group in groups))


def leave_to_root(planned: Plan, transactions: Iterable[Transaction]) -> Plan:
    """A plan without what root has set with sysperf and what is still in force: only root changes that again, or undoes it first."""
    latest = {key_of(step.change): transaction for transaction in transactions for step in steps_in_force(transaction)}
    roots = {key: transaction.number for key, transaction in latest.items() if transaction.by == ROOT}
    left = tuple(
        Skipped(
            Setting(change.knob, change.after, change.item, change.rule, change.start_time),
            f"root has set it with transaction {roots[key_of(change)]}; `sudo sysperf undo {roots[key_of(change)]}` gives it back",
        )
        for change in planned.changes
        if key_of(change) in roots
    )
    remaining = tuple(change for change in planned.changes if key_of(change) not in roots)
    return Plan(remaining, (*planned.skipped, *left), planned.conflicts)


def allowed_by_rule() -> AllowedByRule:
    """What the rules that the site lists for the agent set. Raises SysperfError when its configuration cannot be read."""
    path = f"{paths.SYSTEM_CONFIG}/config.toml"
    if not os.path.isfile(path):
        return {}
    config = read_config(path)
    if config.agent.mode != "apply":
        return {}
    site = site_files([f"{paths.SYSTEM_CONFIG}/rules.d"], config.rules)  # not those of root's home, which the helper does not see
    ruleset = load(judging.rule_files(), judging.schema(), site=site)
    return {
        name: tuple(allowed for rule in ruleset.witnesses(name) for allowed in map(_allowed, rule.fix) if allowed is not None)
        for name in config.agent.apply
    }


def _allowed(fix: Fix) -> Allowed | None:
    if isinstance(fix, Sysctl):
        return Allowed(fix.key, str(fix.value), "")
    if isinstance(fix, Sysfs | SetKnob):
        return Allowed(fix.knob, str(fix.value), "" if "{" in fix.item else fix.item)
    if isinstance(fix, Nvml):
        return Allowed("gpu.persistence", "1", "")
    if isinstance(fix, Affinity):
        return Allowed("process.cpus", "", "")
    return Allowed("process.pages", "", "") if isinstance(fix, MigratePages) else None
