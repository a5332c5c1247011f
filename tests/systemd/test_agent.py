"""The agent as a service: started, asked, reloaded, killed, hung, stopped."""

from __future__ import annotations

import pytest

from tests.systemd.conftest import MakeMachine
from tests.systemd.machine import Booted

pytestmark = [pytest.mark.systemd, pytest.mark.xdist_group("agent")]


@pytest.fixture(scope="module")
def agent(make_systemd: MakeMachine) -> Booted:
    return make_systemd().boot("tests.systemd.check_agent", seconds=120)


def test_it_says_when_it_is_ready(agent: Booted) -> None:
    """`systemctl start` returns when the agent answers: Type=notify."""
    done, state, seconds = agent["start"]

    assert done["code"] == 0, done["err"]
    assert state == {"ActiveState": "active", "SubState": "running", "Result": "success", "NRestarts": "0"}
    assert seconds < 10


def test_systemctl_status_tells_what_it_found(agent: Booted) -> None:
    """The status text has the number of programs and findings."""
    assert "0 PyTorch processes" in agent["status_text"]
    assert "finding" in agent["status_text"]


def test_it_is_nobody(agent: Booted) -> None:
    """A user of its own that systemd made up, without a capability, and not in the group that may ask the helper."""
    who = agent["who"]
    uid = int(who["Uid"].split()[0])

    assert 61184 <= uid <= 65519
    assert int(who["CapEff"], 16) == 0
    assert who["NoNewPrivs"] == "1"
    assert agent["group"] not in who["Groups"].split()


def test_a_member_of_the_group_may_ask(agent: Booted) -> None:
    """Through curl and through `sysperf agent status`."""
    assert '"version"' in agent["member_asks"]["out"]
    assert agent["member_uses_the_command"]["code"] == 0, agent["member_uses_the_command"]["err"]


def test_others_may_not_ask(agent: Booted) -> None:
    """The socket is closed to everybody else."""
    assert agent["stranger_asks"]["code"] == 7
    assert agent["stranger_asks"]["out"] == ""


def test_prometheus_gets_figures_from_a_port(agent: Booted) -> None:
    """The proxy is started by whoever asks, and joins the port to the socket that has figures only."""
    before, figures, snapshot, after = agent["metrics_on_a_port"]

    assert before == "inactive"
    assert after == {"ActiveState": "active", "SubState": "running", "NRestarts": "0"}, "it is ready, not waited for until it is killed"
    assert "\nsysperf_findings{" in figures
    assert "areas" not in snapshot
    assert "not found" in snapshot.lower() or "no such" in snapshot.lower()


def test_the_figures_socket_is_the_groups_too(agent: Booted) -> None:
    """Who wants them without the port is a member."""
    assert agent["stranger_and_figures"]["code"] == 7


def test_its_own_limits_are_no_findings(agent: Booted) -> None:
    """CPUQuota= and MemoryMax= of the unit are the agent's, not this machine's."""
    assert not [rule for rule in agent["findings"] if rule.startswith("cgroup.")]


def test_the_history_is_private(agent: Booted) -> None:
    """Only the agent, and root, can read what it keeps."""
    mode, mine, folder = agent["history_file"]

    assert (mode, mine, folder) == ("0o600", True, "0o700")


def test_reload_keeps_the_process(agent: Booted) -> None:
    """`systemctl reload` reads rules and configuration again, in the same process."""
    assert agent["reload"] == [0, True, True, True]


def test_a_killed_agent_comes_back_with_its_history(agent: Booted) -> None:
    """kill -9: systemd starts it again, and what it had stored is there."""
    other, state, had, has = agent["killed"]

    assert other
    assert state == {"NRestarts": "1", "ActiveState": "active"}
    assert had
    assert has[: len(had)] == had
    assert len(has) > len(had)


def test_a_hung_agent_is_started_again(agent: Booted) -> None:
    """It feeds the watchdog while it is well; stopped by a signal it does not, and systemd replaces it."""
    fed, other, restarts, logged = agent["hung"]

    assert fed
    assert other
    assert restarts == 1
    assert logged


def test_it_stops_when_told(agent: Booted) -> None:
    """SIGTERM ends it in order, and it says so in its history."""
    code, state, seconds, last = agent["stop"]

    assert code == 0
    assert state == {"ActiveState": "inactive", "Result": "success"}
    assert seconds < 5
    assert last == "stopped"


def test_a_question_starts_it(agent: Booted) -> None:
    """Who connects to the socket of a stopped agent gets an answer from a new one."""
    before, answered, after = agent["started_by_a_question"]

    assert (before, answered, after) == ("inactive", True, "active")


def test_only_sockets_of_systemd_are_in_the_folder(agent: Booted) -> None:
    """The agent makes nothing in /run/sysperf."""
    assert agent["private_folder"] == ["agent.sock", "helper.sock", "metrics.sock"]


def test_its_log_is_quiet(agent: Booted) -> None:
    """No traceback, no internal error, in all of the above."""
    text = agent["everything_in_the_journal"]

    assert "Traceback" not in text
    assert "internal error" not in text


def test_uninstall_stops_it(agent: Booted) -> None:
    """Nothing runs afterwards, and the folder of sockets is gone."""
    code, state, folder = agent["uninstalled"]

    assert code == 0
    assert state["ActiveState"] == "inactive"
    assert state["LoadState"] == "not-found"
    assert not folder
