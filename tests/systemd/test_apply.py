"""The agent in mode `apply`, as a service beside the helper."""

from __future__ import annotations

import pytest

from tests.systemd.conftest import MakeMachine
from tests.systemd.machine import Booted

pytestmark = [pytest.mark.systemd, pytest.mark.xdist_group("apply")]


@pytest.fixture(scope="module")
def agent(make_systemd: MakeMachine) -> Booted:
    return make_systemd().boot("tests.systemd.check_apply", seconds=150)


def test_what_the_site_lists_is_applied(agent: Booted) -> None:
    """The agent has no right to change anything: the helper does, for a rule that the configuration names."""
    assert agent["applied"] == [0, 7], agent["agent_said"]
    assert "(agent: test.always)" in agent["who_did_it"]
    assert "left" in agent["who_did_it"], "it has a lease"


def test_the_lease_is_renewed_while_the_agent_lives(agent: Booted) -> None:
    """Longer than the lease."""
    assert agent["renewed"] == ["active", 7]


def test_an_agent_that_was_taken_over_gets_nothing_but_its_list(agent: Booted) -> None:
    """No other setting, no other process, and nothing of root's: the helper knows the list, too."""
    answers = agent["taken_over"]

    assert answers["paranoid"].startswith("refused"), answers
    assert answers["init"].startswith("refused")
    assert answers["undo root's"].startswith("refused transaction 2 is root's")
    assert answers["list"].startswith("done")
    assert (answers["nice"], answers["nice of init"]) == ("3", "0")


def test_a_dead_agent_leaves_nothing_behind(agent: Booted) -> None:
    """Killed, and not restarted: the helper ends the lease."""
    assert agent["killed"] == ["failed", 0]
    assert "lease of transaction 1 ended" in agent["helper_said"]
