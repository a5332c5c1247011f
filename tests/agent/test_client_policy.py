"""What each client of the helper may ask for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from sysperf.agent import client_policy
from sysperf.agent.client_policy import AGENT, Allowed, Client, Refused, check_apply, leave_to_root
from sysperf.fix.helper_protocol import AskApply
from sysperf.fix.lease import boot_id
from sysperf.model.change import Change, Plan, Setting, Step, Transaction

ROOT, MEMBER, AGENTS = Client(0), Client(1000), Client(61_300, in_agent=True)
RULES = {
    "thp.never": (Allowed("thp.enabled", "madvise", ""),),
    "process.low": (Allowed("process.nice", "10", ""),),
    "process.bound": (Allowed("process.cpus", "", ""),),
    "site.one": (Allowed("process.nice", "7", "1"),),
}
THP = Setting("thp.enabled", "madvise", rule="thp.never")


@pytest.fixture
def users_process() -> Iterator[int]:
    """A process of another user, or of this one."""
    child = subprocess.Popen(["sleep", "60"], user=65_534 if os.geteuid() == 0 else None)
    yield child.pid
    child.kill()
    child.wait()


def asked(*settings: Setting, lease_s: float | None = 60, **more: Any) -> AskApply:
    return AskApply(settings=settings, lease_s=lease_s, **more)


def test_the_agent_gets_what_the_site_lists(users_process: int) -> None:
    """The value that the rule has, on any process of a user; CPUs are computed on each machine."""
    check_apply(AGENTS, asked(THP), RULES)
    check_apply(AGENTS, asked(Setting("process.nice", "10", str(users_process), "process.low")), RULES)
    check_apply(AGENTS, asked(Setting("process.cpus", "0-3", str(users_process), "process.bound")), RULES)
    check_apply(AGENTS, asked(Setting("process.nice", "7", "1", "site.one")), RULES)


@pytest.mark.parametrize(
    "setting",
    [
        Setting("kernel.perf_event_paranoid", "-1", rule="thp.never"),
        Setting("kernel.perf_event_paranoid", "-1", rule="kernel.perf"),
        Setting("thp.enabled", "always", rule="thp.never"),
        Setting("thp.enabled", "madvise"),
        Setting("process.nice", "-20", "4000000", "process.low"),
        Setting("process.nice", "10", "1", "process.low"),
        Setting("process.cpus", "0", "1", "process.bound"),
        Setting("process.cpus", "nonsense", "1", "process.bound"),
        Setting("process.nice", "7", "2", "site.one"),
        Setting("no.such", "1", rule="thp.never"),
    ],
)
@pytest.mark.parametrize("client", [AGENTS, Client(0, in_agent=True), Client(1000, in_agent=True)])
def test_an_agent_that_was_taken_over_gets_nothing_else(setting: Setting, client: Client) -> None:
    """Another setting, value or process, without a rule, or as another user from inside its service."""
    with pytest.raises(Refused):
        check_apply(client, asked(THP, setting), RULES)


def test_the_agent_needs_a_lease_and_cannot_override() -> None:
    """What it changes ends without it, and nobody's choice is overridden."""
    for question in (asked(THP, lease_s=None), asked(THP, force=True), asked(THP, persist=True)):
        with pytest.raises(Refused):
            check_apply(AGENTS, question, RULES)
    with pytest.raises(Refused):
        check_apply(AGENTS, asked(THP), {})


def test_a_member_may_change_what_is_on_the_list_of_settings() -> None:
    """No rule is needed, and no lease; overriding is root's."""
    check_apply(MEMBER, asked(Setting("vm.swappiness", "10"), lease_s=None), {})
    for more in ({"force": True}, {"persist": True}):
        with pytest.raises(Refused):
            check_apply(MEMBER, asked(THP, **more), {})
        check_apply(ROOT, asked(THP, **more), {})


@pytest.mark.parametrize(
    ("client", "owner", "may"),
    [
        (ROOT, "root", True),
        (ROOT, AGENT, True),
        (MEMBER, "root", False),
        (MEMBER, AGENT, True),
        (MEMBER, "somebody", True),
        (AGENTS, "root", False),
        (AGENTS, "somebody", False),
        (AGENTS, AGENT, True),
        (Client(0, in_agent=True), "root", False),
    ],
)
def test_only_root_undoes_what_is_roots(client: Client, owner: str, may: bool) -> None:
    """The agent undoes its own; a member of the group everything but root's."""
    transaction = Transaction(number=1, state="applied", by=owner)
    assert client.owns(transaction) == may
    if not may:
        with pytest.raises(Refused, match="transaction 1 is"):
            client.check_owns(transaction)


def test_what_root_has_set_is_not_set_over() -> None:
    """That would undo it too; what root's transaction does not hold any more is free."""
    change = Change("vm.swappiness", "", "/proc/sys/vm/swappiness", "10", "20")
    other = Change("vm.dirty_ratio", "", "/proc/sys/vm/dirty_ratio", "20", "30")
    roots = Transaction(number=4, state="applied", by="root", steps=(Step(change, "applied"),))
    over = Transaction(number=5, state="undone", by="root", steps=(Step(other, "undone"),))
    planned = leave_to_root(Plan((change, other)), [roots, over])
    assert planned.changes == (other,)
    assert planned.skipped[0].reason == "root has set it with transaction 4; `sudo sysperf undo 4` gives it back"


def test_what_root_has_set_blocks_nobody_when_it_is_over() -> None:
    """A process that has ended, whose number another has; a setting before a restart, unless it is set at every start."""
    ended = Change("process.nice", "7", "process 7", "0", "5", start_time=100)
    begun = Change("process.nice", "7", "process 7", "0", "5", start_time=200)
    change = Change("vm.swappiness", "", "/proc/sys/vm/swappiness", "10", "20")
    file = Change("persist.sysctl", "000004", "/etc/sysctl.d/90-sysperf-000004.conf", "", "vm.swappiness = 20")
    steps = (Step(ended, "applied"), Step(change, "applied"))
    now = Transaction(number=4, state="applied", by="root", boot=boot_id(), steps=steps)
    earlier = Transaction(number=4, state="applied", by="root", boot="another boot", steps=steps)
    lasting = Transaction(number=4, state="applied", by="root", boot="another boot", steps=(*steps, Step(file, "applied")))

    assert leave_to_root(Plan((begun, change)), [now]).changes == (begun,)
    assert leave_to_root(Plan((ended, change)), [now]).changes == ()
    assert leave_to_root(Plan((begun, change)), [earlier]).changes == (begun, change)
    assert leave_to_root(Plan((begun, change)), [lasting]).changes == (begun,)


@pytest.mark.root(users=True)
def test_another_service_with_a_user_of_its_own_is_not_the_agent() -> None:
    """While its process is there: it is known not to be in the agent's service. When it has ended, it may have been the agent."""
    child = subprocess.Popen(["sleep", "60"], user=61_300)
    assert not client_policy.client_of(61_300, child.pid).is_agent
    assert client_policy.client_of(61_301, child.pid).is_agent, "this process is another user's: the one that asked has ended"
    with pytest.raises(Refused):
        client_policy.client_of(0, child.pid)
    child.kill()
    child.wait()
    assert client_policy.client_of(61_300, child.pid).is_agent
    assert not client_policy.client_of(1000, child.pid).is_agent


def test_fixes_of_the_shipped_rules_are_covered() -> None:
    """Every fix that sets something is something that the agent can be allowed."""
    from sysperf.engine import judging
    from sysperf.model.rule import Affinity, MigratePages, Nvml, SetKnob, Sysctl, Sysfs

    fixes = [
        fix
        for rule in judging.load_rules().rules
        for fix in rule.fix
        if isinstance(fix, (Affinity, MigratePages, Nvml, SetKnob, Sysctl, Sysfs))
    ]
    assert len(fixes) > 10
    assert all(client_policy._allowed(fix) for fix in fixes)


def test_a_client_that_is_gone_is_nobody() -> None:
    """Root must be there to be asked what it belongs to; this process is no agent."""
    child = subprocess.Popen(["true"])
    child.wait()
    with pytest.raises(Refused):
        client_policy.client_of(0, child.pid)
    assert client_policy.client_of(os.getuid(), os.getpid()) == Client(os.getuid())
