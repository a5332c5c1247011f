"""The throw-away machine itself: what the other tests of this folder stand on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.systemd.conftest import MakeMachine
from tests.systemd.machine import Booted, SystemdMachine

pytestmark = [pytest.mark.systemd, pytest.mark.xdist_group("machine")]


@pytest.fixture(scope="module")
def booted(make_systemd: MakeMachine) -> tuple[SystemdMachine, Booted]:
    machine = make_systemd()
    return machine, machine.boot("tests.systemd.check_machine")


@pytest.fixture(scope="module")
def machine(booted: tuple[SystemdMachine, Booted]) -> Booted:
    return booted[1]


def test_systemd_is_process_1(machine: Booted) -> None:
    """The container runs a real systemd."""
    assert machine["process_1"] == "systemd"


def test_nothing_failed_at_boot(machine: Booted) -> None:
    """This machine's own services are not started in its copy, and none of the system's fails."""
    assert machine["failed_units"] == ""


def test_sysperf_is_installed(machine: Booted) -> None:
    """As from its wheel, in a virtual environment, with an interpreter that no unit's sandbox hides."""
    assert machine["sysperf_version"]["code"] == 0
    assert machine["interpreter"][:2] == ["/opt/sysperf/bin/python", "/opt/sysperf"]
    assert not machine["interpreter"][2].startswith(("/root", "/home", "/tmp"))


def test_what_raises_fails_one_test(machine: Booted) -> None:
    """A fact that could not be found out is an error of the test that looks at it."""
    with pytest.raises(AssertionError, match="as it should"):
        machine["raises"]
    with pytest.raises(AssertionError, match="not reached"):
        machine["no such fact"]


def test_limits_of_units_work(machine: Booted) -> None:
    """CPUQuota= is a quota of the unit's control group, so that tests can rely on it."""
    assert machine["quota"].split()[0] == "50000"


def test_nothing_stays(booted: tuple[SystemdMachine, Booted]) -> None:
    """Neither control groups nor mounts nor files in /run nor processes bear its name."""
    machine, result = booted
    folders = [folder for top in ("/sys/fs/cgroup", "/run") for folder, _, _ in os.walk(top) if machine.name in folder]
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]

    assert result.facts
    assert folders == []
    assert str(machine.folder) not in Path("/proc/mounts").read_text()
    assert not [command for command in commands if machine.name.encode() in command]
