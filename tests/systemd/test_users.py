"""The programs of two users: what root's audit finds is what agent and audit find that see all users; without that they say what they miss."""

from __future__ import annotations

import re

import pytest

from tests.systemd.conftest import MakeMachine
from tests.systemd.machine import Booted

pytestmark = [pytest.mark.systemd, pytest.mark.xdist_group("users")]


@pytest.fixture(scope="module")
def users(make_systemd: MakeMachine) -> Booted:
    return make_systemd().boot("tests.systemd.check_users", seconds=240)


def test_root_finds_what_is_there(users: Booted) -> None:
    """Two findings about a program, and one about each environment: one in a home, one in /tmp, both closed to others."""
    assert [rule for rule, _ in users["by_root"]] == [
        "allocator.preload-missing-file",
        "process.nice-or-batch",
        "torch.version-lag",
        "torch.version-lag",
    ]
    assert {subject for _, subject in users["by_root"]} > {"/home/alice/venv", "/tmp/bob/venv"}


def test_the_audit_that_sees_all_users_finds_what_root_finds(users: Booted) -> None:
    """Finding by finding, from inside the sandbox of its unit."""
    assert users["audit_with_the_drop_in"] == users["by_root"]


def test_the_agent_that_sees_all_users_finds_what_root_finds(users: Booted) -> None:
    """Finding by finding, through its socket."""
    assert users["agent_with_the_drop_in"] == users["by_root"]


def test_the_audit_that_sees_nobody_is_not_healthy(users: Booted) -> None:
    """As installed, it finds nothing there, and says how many programs it could not examine."""
    alone = users["audit_alone"]

    assert alone["findings"] == []
    assert "Healthy" not in alone["text"]
    assert re.search("2 (programs )?of other users could not be examined", alone["text"]), alone["text"]


def test_the_agent_that_sees_nobody_says_so(users: Booted) -> None:
    """As installed, it finds nothing there, and names what it misses and the drop-in that shows it."""
    alone = users["agent_alone"]

    assert alone["findings"] == []
    assert any(problem.startswith("2 large programs of other users could not be examined") for problem in alone["problems"])
    assert all("see-all-users" in text for text in (alone["status"], *alone["problems"]))
