"""The helper as a service, and what is left when it, or the machine, goes down."""

from __future__ import annotations

import pytest

from tests.systemd.conftest import MakeMachine
from tests.systemd.machine import Booted

pytestmark = [pytest.mark.systemd, pytest.mark.xdist_group("helper")]


@pytest.fixture(scope="module")
def boots(make_systemd: MakeMachine) -> list[Booted]:
    return make_systemd().boots("tests.systemd.check_helper", "tests.systemd.check_restored", seconds=120)


@pytest.fixture(scope="module")
def helper(boots: list[Booted]) -> Booted:
    return boots[0]


@pytest.fixture(scope="module")
def after(boots: list[Booted]) -> Booted:
    return boots[1]


def test_a_question_starts_it(helper: Booted) -> None:
    """It does not run until a member of the group asks, and then does what it was asked."""
    answer, nice, state = helper["member_changes"]

    assert helper["before"] == ["inactive", 0]
    assert answer["transaction"]["state"] == "applied", answer
    assert (nice, state) == (5, "active")


def test_the_journal_is_roots_and_readable(helper: Booted) -> None:
    """Who made the change is in it, and every user may read that."""
    files, owner, listed = helper["journal_of_changes"]

    assert "000001.jsonl" in files
    assert owner == 0
    assert "by 4321" in listed
    assert "setpriority of process" in listed


def test_a_member_takes_it_back(helper: Booted) -> None:
    """Undoing needs no root either."""
    answer, nice = helper["member_takes_it_back"]

    assert answer["problem"] == ""
    assert nice == 0


def test_the_commands_ask_the_helper(helper: Booted) -> None:
    """A member needs no sudo: `plan` shows what the helper would change, `undo --machine` takes back what it did."""
    plan, set_to, undo, nice = helper["member_uses_the_commands"]

    assert plan["code"] == 0, plan["err"]
    assert "+ 11" in plan["out"]
    assert (set_to, nice) == (2, 0)
    assert undo["code"] == 0, undo["err"]


def test_strangers_cannot_ask(helper: Booted) -> None:
    """Who is not in the group does not reach the socket."""
    answer, nice = helper["stranger"]

    assert "Permission denied" in answer["error"]
    assert nice != 7


def test_only_the_list(helper: Booted) -> None:
    """A setting that is not on the list is not changed for anybody."""
    answer = helper["not_on_the_list"]

    assert answer["transaction"] is None
    assert answer["plan"]["changes"] == []


def test_it_leaves_when_it_is_idle(helper: Booted) -> None:
    """The process ends, the socket goes on listening."""
    assert helper["leaves"] == [{"ActiveState": "inactive", "Result": "success"}, "active"]


def test_a_lease_ends(helper: Booted) -> None:
    """The value goes back by itself; the helper stays until then."""
    answer, during, later = helper["lease_ends"]

    assert answer["transaction"]["state"] == "applied"
    assert during == 6
    assert later != 6


def test_a_lease_ends_although_the_helper_was_killed(helper: Booted) -> None:
    """kill -9: systemd starts it again, and it finds in its journal what it owes."""
    answer, during, later, restarts = helper["killed"]

    assert answer["transaction"]["state"] == "applied"
    assert during == 4
    assert later != 4
    assert restarts == "1"


def test_a_lease_ends_although_the_helper_was_stopped(helper: Booted) -> None:
    """A timer of systemd, one for each lease, is the second guard."""
    answer, timers, during, later, state = helper["stopped"]

    assert answer["transaction"]["state"] == "applied", answer
    assert timers == 1
    assert (during, state) == (9, "inactive")
    assert later != 9


def test_a_lease_ends_although_its_keeper_was_killed_with_a_service(helper: Booted) -> None:
    """`sysperf apply --lease` inside a service: its processes end with it."""
    done, during, later = helper["apply_inside_a_service"]

    assert done["code"] == 0, done
    assert during == 8
    assert later != 8


def test_crashes_do_not_take_the_socket_down(helper: Booted) -> None:
    """However often it crashes, the next question is answered."""
    assert helper["crashes_often"] == ["", "active", 0]


def test_restoring_removes_the_files_of_an_interrupted_change(helper: Booted) -> None:
    """Its sandbox lets it, and the transaction is closed when the file is gone."""
    before, after, result, listed = helper["interrupted_persist"]

    assert any(name.startswith("90-sysperf-") for name in before)
    assert not any(name.startswith("90-sysperf-") for name in after)
    assert result == "success"
    assert "rolled back" in listed


def test_its_log_is_quiet(helper: Booted) -> None:
    """Changes and leases are logged, and nothing broke."""
    text = helper["everything_in_the_journal"]

    assert "applied" in text
    assert "Traceback" not in text
    assert "internal error" not in text


def test_after_a_power_failure_leases_are_ended_at_boot(helper: Booted, after: Booted) -> None:
    """The change was in force when the machine went down; the next boot closes it before anybody asks the helper."""
    answer, nice = helper["power_is_lost"]

    assert answer["transaction"]["state"] == "applied"
    assert nice == 3
    assert after["restored"] == {"Result": "success", "ExecMainStatus": "0", "ActiveState": "inactive"}
    assert "the process has ended" in after["said"]
    assert after["changes"]["out"].lstrip().startswith(f"{answer['transaction']['number']}  undone")
    assert after["helper_was_not_needed"] == "inactive"
