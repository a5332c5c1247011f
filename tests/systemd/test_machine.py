"""The throw-away machine itself: what the other tests of this folder stand on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.systemd.conftest import MakeMachine
from tests.systemd.machine import Booted

pytestmark = [pytest.mark.systemd, pytest.mark.xdist_group("machine")]


@pytest.fixture(scope="module")
def traces() -> set[str]:
    """What a boot could leave here, as it was before."""
    return _traces()


@pytest.fixture(scope="module")
def machine(traces: set[str], make_systemd: MakeMachine) -> Booted:
    return make_systemd().boot("tests.systemd.check_machine")


def _traces() -> set[str]:
    groups = {folder for folder, _, _ in os.walk("/sys/fs/cgroup") if "/sysperf-" in folder or folder.endswith("/payload")}
    mounts = {line for line in Path("/proc/mounts").read_text().splitlines() if "/machine/space" in line}
    runs = {folder for folder, _, _ in os.walk("/run") if "/nspawn/" in folder and "/sysperf-" in folder}
    return groups | mounts | runs


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


def test_nothing_stays(machine: Booted, traces: set[str]) -> None:
    """Neither control groups nor mounts nor files in /run."""
    assert machine.facts
    assert _traces() == traces
