"""`sysperf wrap` as the ExecStart of a unit: the program is systemd's, and the unit's limits decide its threads."""

from __future__ import annotations

import os

import pytest

from tests.systemd.conftest import MakeMachine
from tests.systemd.machine import PYTHON_INSIDE, Booted

pytestmark = [pytest.mark.systemd, pytest.mark.xdist_group("wrap")]


@pytest.fixture(scope="module")
def wrap(make_systemd: MakeMachine) -> Booted:
    return make_systemd().boot("tests.systemd.check_wrap", seconds=90)


def test_half_a_cpu_is_one_thread(wrap: Booted) -> None:
    """CPUQuota=50%: a second thread would only wait for the quota."""
    assert wrap["half_a_cpu"]["told"]["threads"] == "1"


def test_a_quota_is_rounded_up(wrap: Booted) -> None:
    """CPUQuota=150% has work for two threads; a machine with two CPUs starts no more by itself."""
    assert wrap["one_and_a_half_cpus"]["told"]["threads"] in ("2", None if wrap["cpus"] == 2 else "2")


def test_the_units_mask_is_kept(wrap: Booted) -> None:
    """CPUAffinity=0: the program runs there, and starts no thread too many."""
    assert wrap["one_cpu_of_the_mask"]["told"]["cpus"] == [0]


def test_the_program_is_the_main_process(wrap: Booted) -> None:
    """systemd's MainPID is the program's own number, and nothing of sysperf stays beside it."""
    served = wrap["serves"]

    assert int(served["MainPID"]) == served["told"]["pid"]
    assert wrap["main_process"].startswith(str(PYTHON_INSIDE))
    assert wrap["processes_of_the_unit"] == [served["MainPID"]]


def test_it_tells_systemd_that_it_is_ready(wrap: Booted) -> None:
    """Type=notify with NotifyAccess=main: `systemctl start` waits for the wrapped program's READY=1."""
    served = wrap["serves"]

    assert served["start"] == 0
    assert (served["ActiveState"], served["StatusText"]) == ("active", "serving")


def test_stop_reaches_the_program(wrap: Booted) -> None:
    """SIGTERM is handled by the program, whose exit code is the unit's."""
    code, state, last = wrap["stopped"]

    assert code == 0
    assert state == {"Result": "success", "ExecMainStatus": "0", "ActiveState": "inactive"}
    assert last == "ended in order"


def test_the_exit_code_is_the_programs(wrap: Booted) -> None:
    """A program that ends with 7 makes the unit fail with 7, which Restart=on-failure sees."""
    assert wrap["fails"] == {"Result": "exit-code", "ExecMainStatus": "7", "ExecMainCode": "1"}


def test_it_works_in_a_sandbox(wrap: Booted) -> None:
    """A user made up by systemd, no home, a filter of system calls: the program starts all the same."""
    answer = wrap["in_a_sandbox"]

    assert (answer["start"], answer["Result"]) == (0, "success")
    assert answer["told"]["uid"] not in (0, os.getuid())


def test_sockets_reach_the_program(wrap: Booted) -> None:
    """Socket activation: the descriptor and LISTEN_PID, which names the process, are the program's."""
    program = wrap["socket_passed"]["told"]

    assert program["fds"] == "1"
    assert program["passed"] == ["/run/passed.sock"]
