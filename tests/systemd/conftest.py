"""What tests of this folder share: whether a systemd can be booted here, and machines with sysperf on them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.systemd.machine import SystemdMachine, why_not

MakeMachine = Callable[..., SystemdMachine]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that boot say why they cannot."""
    for item in items:
        if item.get_closest_marker("systemd") and Path(__file__).parent in item.path.parents and why_not():
            item.add_marker(pytest.mark.skip(reason=why_not()))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with /opt/sysperf in it, made once."""
    machine = SystemdMachine(tmp_path_factory.mktemp("installed") / "machine")
    machine.add_sysperf()
    return machine.lay / "opt/sysperf"


@pytest.fixture(scope="session")
def make_systemd(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeMachine:
    """Make a machine that has this checkout's sysperf in /opt/sysperf."""

    def make(wants: tuple[str, ...] = ()) -> SystemdMachine:
        machine = SystemdMachine(tmp_path_factory.mktemp("systemd") / "machine", wants)
        shutil.copytree(installed, machine.lay / "opt/sysperf", symlinks=True)
        return machine

    return make
