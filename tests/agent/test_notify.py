"""Facts about what systemd is told."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sysperf.agent.notify import Notifier
from tests.agent.machines import Manager


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Manager:
    """A manager that listens at a path, or at an abstract address."""
    return Manager(str(tmp_path / "notify") if request.param == "path" else f"@sysperf-test-{os.getpid()}-{time.monotonic_ns()}")


def test_ready_names_us(manager: Manager) -> None:
    """One message says that we are ready, who we are and how we are."""
    Notifier({"NOTIFY_SOCKET": manager.address}).ready("8 PyTorch processes")

    assert manager.take() == [f"READY=1\nMAINPID={os.getpid()}\nSTATUS=8 PyTorch processes"]


def test_each_state_is_a_message(manager: Manager) -> None:
    """Watchdog, status, reload and stop are told as sd_notify words them; a reload has the time with it."""
    notifier = Notifier({"NOTIFY_SOCKET": manager.address})
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000

    notifier.watchdog()
    notifier.status("well")
    notifier.reloading()
    notifier.stopping()

    watchdog, status, reloading, stopping = manager.take()
    assert (watchdog, status, stopping) == ("WATCHDOG=1", "STATUS=well", "STOPPING=1")
    head, _, at = reloading.partition("MONOTONIC_USEC=")
    assert head == "RELOADING=1\n"
    assert before <= int(at) <= before + 10_000_000


def test_without_a_manager_nothing_is_sent() -> None:
    """No address, a foreign one, and one where nobody listens: no message and no error."""
    for address in ("", "vsock:2:1234", "/nowhere/notify", "@sysperf-nobody"):
        assert not Notifier({"NOTIFY_SOCKET": address}).send("READY=1")


def test_a_full_socket_does_not_block(tmp_path: Path) -> None:
    """A manager that reads nothing must not stop us."""
    manager = Manager(str(tmp_path / "notify"))
    notifier = Notifier({"NOTIFY_SOCKET": manager.address})

    sent = [notifier.send("STATUS=" + "x" * 1000) for _ in range(3000)]

    assert sent[0]
    assert not sent[-1]


def test_the_watchdog_is_half_of_what_is_allowed() -> None:
    """systemd recommends half; a limit for another process, or none, is none."""
    mine = str(os.getpid())
    assert Notifier({"WATCHDOG_USEC": "30000000"}).watchdog_s == 15
    assert Notifier({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": mine}).watchdog_s == 15
    assert Notifier({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}).watchdog_s == 0
    assert Notifier({"WATCHDOG_USEC": "soon"}).watchdog_s == 0
    assert Notifier({}).watchdog_s == 0
