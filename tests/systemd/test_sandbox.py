"""The sandboxes of the units, as tried from inside. What systemd-analyze scores is not what a process can do."""

from __future__ import annotations

import pytest

from tests.systemd.conftest import MakeMachine
from tests.systemd.machine import Booted
from tests.systemd.probe import CREATED, OPENED, READ

pytestmark = [pytest.mark.systemd, pytest.mark.xdist_group("sandbox")]

AGENTS = ("agent", "agent_that_sees_all", "agent_that_applies", "audit")
WRITERS = ("helper", "restore")
ALL = (*AGENTS, *WRITERS)
CLOSED = {"EROFS", "EACCES", "EPERM", "EAFNOSUPPORT"}
NOT_IN_A_CONTAINER = {"/proc/sysrq-trigger", "/dev/kmsg"}


@pytest.fixture(scope="module")
def sandbox(make_systemd: MakeMachine) -> Booted:
    return make_systemd().boot("tests.systemd.check_sandbox", seconds=90)


def test_every_door_is_there_to_be_closed(sandbox: Booted) -> None:
    """Root without a sandbox passes all that is asserted below: a refusal is the sandbox's."""
    free = sandbox["unconfined"]

    assert {free[f"create in {folder}"] for folder in CREATED} == {"ok"}
    assert {free[f"write {path}"] for path in (*OPENED, *sandbox["settings"]) if path not in NOT_IN_A_CONTAINER} == {"ok"}
    assert {free[f"read {path}"] for path in READ} == {"ok"}
    tried = ("read environ of another", "read maps of another", "write memory of another", "trace another", "move another", "end another")
    assert {free[name] for name in (*tried, "internet socket", "packet socket", "mount", "namespace", "writable code", "helper")} == {"ok"}


@pytest.mark.parametrize("unit", ALL)
def test_no_file_can_be_made(sandbox: Booted, unit: str) -> None:
    """Not in the system, not in homes, not in /run beside the sockets, not in /dev/shm, not on another disk."""
    answers = sandbox[unit]

    assert {answers[f"create in {folder}"] for folder in CREATED} <= CLOSED


@pytest.mark.parametrize("unit", [unit for unit in ALL if unit != "audit"])
def test_its_own_folder_is_writable(sandbox: Booted, unit: str) -> None:
    """The history, or the journal of changes. The audit keeps nothing."""
    assert sandbox[unit]["create in the state folder"] == "ok"


@pytest.mark.parametrize("unit", AGENTS)
def test_watchers_can_set_nothing(sandbox: Booted, unit: str) -> None:
    """No setting of the kernel can be written, none of the helper's either."""
    answers = sandbox[unit]

    assert {answers[f"write {path}"] for path in (*OPENED, *sandbox["settings"])} <= CLOSED | {"ENOENT"}


@pytest.mark.parametrize("unit", WRITERS)
def test_writers_can_set_what_is_on_the_list(sandbox: Booted, unit: str) -> None:
    """Every setting of this machine that is a file can be written, without a capability."""
    answers = sandbox[unit]

    assert len(sandbox["settings"]) > 8
    assert {path: answers[f"write {path}"] for path in sandbox["settings"]} == dict.fromkeys(sandbox["settings"], "ok")


@pytest.mark.parametrize("unit", WRITERS)
def test_writers_can_set_nothing_else(sandbox: Booted, unit: str) -> None:
    """Files beside those on the list are read-only, in the same folders too."""
    others = [path for path in OPENED if path not in sandbox["settings"]]

    assert len(others) > 4
    assert {sandbox[unit][f"write {path}"] for path in others} <= CLOSED | {"ENOENT"}


@pytest.mark.parametrize("unit", ALL)
def test_no_network_no_namespace_no_code(sandbox: Booted, unit: str) -> None:
    """Sockets are unix sockets; no mount, no namespace, no module, no memory that is writable and executable, no tracing."""
    answers = sandbox[unit]
    names = (
        "internet socket",
        "packet socket",
        "mount",
        "namespace",
        "module",
        "writable code",
        "realtime",
        "become root",
        "trace another",
    )

    assert {answers[name] for name in names} <= CLOSED


@pytest.mark.parametrize("unit", ALL)
def test_others_cannot_be_changed_or_ended(sandbox: Booted, unit: str) -> None:
    """No unit can write another user's memory or end its processes; moving them to other CPUs is what the helper is for."""
    answers = sandbox[unit]

    assert answers["write memory of another"] in CLOSED
    assert answers["end another"] in CLOSED
    assert answers["move another"] == ("ok" if unit in WRITERS else "EPERM")


@pytest.mark.parametrize("unit", ["agent", "agent_that_applies", "audit"])
def test_others_stay_private(sandbox: Booted, unit: str) -> None:
    """By default the agent sees of other users' processes what every user sees, and no file that is not everybody's."""
    answers = sandbox[unit]

    assert answers["read status of another"] == "ok"
    assert {answers[name] for name in ("read environ of another", "read maps of another")} == {"EACCES"}
    assert {answers[f"read {path}"] for path in READ} == {"EACCES"}


def test_the_drop_in_opens_others_processes(sandbox: Booted) -> None:
    """see-all-users: environment and maps of other users' processes, and the homes in which their environments lie, can be read."""
    answers = sandbox["agent_that_sees_all"]

    assert {answers[name] for name in ("read environ of another", "read maps of another")} == {"ok"}
    assert answers["read /home/keep/secret"] == "ok"


@pytest.mark.parametrize("unit", AGENTS)
def test_who_reaches_the_helper(sandbox: Booted, unit: str) -> None:
    """Only the agent that was allowed to, by the drop-in `apply`."""
    assert sandbox[unit]["helper"] == ("ok" if unit == "agent_that_applies" else "EACCES")
