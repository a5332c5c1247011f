"""The shipped units under the attack of a local user, who in namespaces of his own binds root's file over what is read of his PyTorch."""

from __future__ import annotations

import pytest

from tests.systemd.conftest import MakeMachine
from tests.systemd.machine import Booted

pytestmark = [pytest.mark.systemd, pytest.mark.xdist_group("foreign-files")]


@pytest.fixture(scope="module")
def foreign(make_systemd: MakeMachine) -> Booted:
    return make_systemd().boot("tests.systemd.check_foreign_files", seconds=240)


def test_the_attack_works(foreign: Booted) -> None:
    """Root reads its own file through the doors when nothing keeps it from that."""
    assert foreign["the_attack_works"] == {"read": [True, True], "maps": True}


def test_roots_commands_tell_nothing(foreign: Booted) -> None:
    """facts, audit, ps and capture see the program, and nothing of the file."""
    assert foreign["by_root"]["leaks"] == []
    assert foreign["by_root"]["seen"] == ["facts", "audit", "ps", "capture"]


@pytest.mark.parametrize("units", ["alone", "with_all_users"])
def test_agent_port_and_audit_tell_nothing(foreign: Booted, units: str) -> None:
    """The API, the metrics port, the daily audit and the logs, with and without the drop-in that shows all users."""
    answers = foreign[units]
    assert answers["leaks"] == []
    assert answers["port"]
    assert answers["sees"] == (units == "with_all_users")
    assert answers["audit"] == "success"


def test_helper_and_restore_tell_nothing(foreign: Booted) -> None:
    """Plans, the list of changes and their logs."""
    assert foreign["helper_and_restore"] == {"leaks": [], "restore": "success"}
