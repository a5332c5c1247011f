"""The privileged helper: a real process on a real socket, asked by friends and by others."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.agent import helper_server
from sysperf.agent.helper_client import HelperClient
from sysperf.agent.helper_server import Leases
from sysperf.fix import helper_protocol, recovery
from sysperf.fix.helper_protocol import AskApply, AskList, AskPlan, AskRenew, AskUndo, AskVerify, HelperError
from sysperf.fix.journal import Journal
from sysperf.fix.journal_lines import End, StepResult, StepStarted
from sysperf.fix.lease import boot_id, lease_of
from sysperf.model.change import Change, Setting, Transaction
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.record import to_json
from tests.fuzzing import fuzz
from tests.io_classes import io_class, set_io_class
from tests.mutation import damaged_bytes
from tests.privileges import AS_ROOT

pytestmark = pytest.mark.root
NOBODY = 65_534
BASE = io_class(os.getpid())
"""What children start with, however the tests themselves run."""
SET, OTHER = [name for name in ("idle", "best-effort", "none") if name != BASE][:2]


class Service:
    """A running helper."""

    def __init__(self, folder: Path, idle_s: float = 30.0) -> None:
        self.path, self.state = str(folder / "helper.sock"), folder / "state"
        command = (sys.executable, "-m", "sysperf", "helper", "--socket", self.path, "--state", str(self.state), "--idle", str(idle_s))
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 20
        while not os.path.exists(self.path) and time.monotonic() < end and self.process.poll() is None:
            time.sleep(0.02)

    def ask(self, question: helper_protocol.Ask) -> helper_protocol.Answer:
        return helper_protocol.ask(question, self.path)

    def raw(self, content: bytes, *, shut: bool = True) -> bytes:
        """Send bytes as they are; what comes back until the other side closes."""
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(20)
            door.connect(self.path)
            with contextlib.suppress(BrokenPipeError):
                door.sendall(content)
                if shut:
                    door.shutdown(socket.SHUT_WR)
            answer = bytearray()
            with contextlib.suppress(ConnectionResetError):
                while part := door.recv(65_536):
                    answer += part
        return bytes(answer)

    def stop(self) -> str:
        self.process.terminate()
        return self.process.communicate(timeout=300)[1]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = Service(tmp_path)
    yield running
    print(running.process.poll(), running.stop())


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for everything that a fuzzer sends."""
    running = Service(tmp_path_factory.mktemp("helper"))
    yield running
    running.stop()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(("sleep", "600")) as process:
        yield process
        process.kill()


def _idle(process: subprocess.Popen[bytes], value: str = SET) -> Setting:
    return Setting("process.io_class", value, str(process.pid), "test.rule")


def _frame(content: bytes) -> bytes:
    return struct.pack("!I", len(content)) + content


def test_plan_apply_list_undo(service: Service, sleeper: subprocess.Popen[bytes]) -> None:
    """The verbs in the order in which a person uses them; the process really gets and loses its I/O class."""
    planned = service.ask(AskPlan(settings=(_idle(sleeper),))).plan
    assert planned is not None
    assert [(change.before, change.after) for change in planned.changes] == [(BASE, SET)]
    assert io_class(sleeper.pid) == BASE

    done = service.ask(AskApply(settings=(_idle(sleeper),), why="test")).transaction
    assert done is not None
    assert (done.number, done.state, done.why) == (1, "applied", "test")
    assert io_class(sleeper.pid) == SET

    (listed,) = service.ask(AskList()).transactions
    assert listed == done
    (undone,) = service.ask(AskUndo(number=1)).undone
    assert undone.step.state == "undone"
    assert io_class(sleeper.pid) == BASE


def test_a_lease_ends_unless_renewed(service: Service, sleeper: subprocess.Popen[bytes]) -> None:
    """The helper keeps leases itself, and a renewal moves their end."""
    done = service.ask(AskApply(settings=(_idle(sleeper),), lease_s=2)).transaction
    assert done is not None
    assert done.keeper is not None
    assert (done.keeper.pid, done.keeper.is_helper) == (service.process.pid, True)
    service.ask(AskRenew(number=1, lease_s=600))
    time.sleep(3)
    assert io_class(sleeper.pid) == SET
    service.ask(AskRenew(number=1, lease_s=0.5))
    _wait_for(lambda: io_class(sleeper.pid) == BASE)
    with pytest.raises(HelperError, match="no lease"):
        service.ask(AskRenew(number=1, lease_s=5))


def test_killed_with_a_lease_that_ends_meanwhile(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """The next helper takes back what the one before could not."""
    first = Service(tmp_path)
    first.ask(AskApply(settings=(_idle(sleeper),), lease_s=600))
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    recovery.renew(Journal(str(first.state)), 1, 0.2)
    time.sleep(1)
    assert io_class(sleeper.pid) == SET
    os.unlink(first.path)
    second = Service(tmp_path)
    _wait_for(lambda: io_class(sleeper.pid) == BASE)
    second.stop()
    if first.process.stderr:
        first.process.stderr.close()


def test_leaves_when_idle_and_not_before(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """A helper without work ends by itself; one with a lease stays until that ends."""
    service = Service(tmp_path, idle_s=0.5)
    service.ask(AskApply(settings=(_idle(sleeper),), lease_s=600))
    time.sleep(2.5)
    assert service.process.poll() is None
    service.ask(AskRenew(number=1, lease_s=0.5))
    assert service.process.wait(timeout=300) == 0
    assert io_class(sleeper.pid) == BASE
    if service.process.stderr:
        service.process.stderr.close()


def test_a_lease_is_waited_for_without_reading_the_journal_again(tmp_path: Path) -> None:
    """A helper stays as long as the agent renews a lease: a hundred looks a minute read nothing, until something has changed."""
    kept = Journal(str(tmp_path))
    reads: list[int] = []

    class Counted(Journal):
        def transactions(self) -> list[Transaction]:
            reads.append(1)
            return super().transactions()

    leases = Leases(Counted(str(tmp_path)))
    assert not leases.any_running()
    with kept.locked(), kept.begin(boot=boot_id(), by="", why="", taken_at="", lease=lease_of(600)) as log:
        log.add(StepStarted(0, Change("process.nice", "1", "x", "0", "1")), StepResult(0, "applied"), End("applied"))
    assert leases.any_running()
    assert not any(leases.over() for _ in range(100))
    assert len(reads) == 2

    recovery.renew(kept, 1, 0.2)
    _wait_for(leases.over)
    assert leases.any_running()


def test_told_to_stop_it_ends_what_it_does(service: Service, sleeper: subprocess.Popen[bytes]) -> None:
    """A transaction that has begun is done and answered before the helper leaves."""
    answers: list[helper_protocol.Answer] = []
    with Journal(str(service.state)).locked():
        asking = threading.Thread(target=lambda: answers.append(service.ask(AskApply(settings=(_idle(sleeper),)))))
        asking.start()
        time.sleep(0.5)
        service.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert service.process.poll() is None
    asking.join(20)

    assert [answer.transaction and answer.transaction.state for answer in answers] == ["applied"]
    assert service.process.wait(20) == 0
    assert io_class(sleeper.pid) == SET


def test_what_somebody_else_sets_becomes_theirs(service: Service, sleeper: subprocess.Popen[bytes]) -> None:
    """A foreign write is noticed; asked without a person, the helper does not set it again; undo keeps it."""
    service.ask(AskApply(settings=(_idle(sleeper),)))
    set_io_class(sleeper.pid, OTHER)
    (holding,) = service.ask(AskVerify()).holdings
    assert (holding.verdict, holding.now) == ("changed", OTHER)

    answer = service.ask(AskApply(settings=(_idle(sleeper),), automatic=True))
    assert answer.transaction is None
    assert answer.plan is not None
    assert f"somebody has set it to {OTHER}" in answer.plan.skipped[0].reason
    (undone,) = service.ask(AskUndo(number=1)).undone
    assert undone.step.state == "foreign"
    assert io_class(sleeper.pid) == OTHER

    done = service.ask(AskApply(settings=(_idle(sleeper),))).transaction
    assert done is not None, "a person who asks gets it"
    assert done.state == "applied"


@pytest.mark.root(users=True)
def test_strangers_are_refused(service: Service, sleeper: subprocess.Popen[bytes]) -> None:
    """Even where the socket's mode lets them in, the kernel's word on who they are counts."""
    os.chmod(service.path, 0o666)  # noqa: S103 - the point of the test
    for folder in Path(service.path).parents:
        with contextlib.suppress(PermissionError):
            folder.chmod(folder.stat().st_mode | 0o011)
    question = json.dumps({"verb": "apply", "settings": [{"knob": "process.io_class", "value": SET, "item": str(sleeper.pid)}]}).encode()
    client = (
        "import os, socket, struct, sys\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        f"s = socket.socket(socket.AF_UNIX); s.connect({service.path!r}); s.sendall({_frame(question)!r})\n"
        "sys.stdout.write(s.makefile('rb').read().decode('utf-8', 'replace'))\n"
    )
    printed = subprocess.run((sys.executable, "-c", client), capture_output=True, text=True, check=True).stdout
    assert "only root and members of group sysperf may ask" in printed
    assert io_class(sleeper.pid) == BASE


WRONG = (
    (b'{"verb": "exec", "command": "id"}', "Invalid value"),
    (b'{"verb": "apply", "settings": []}', "length"),
    (b'{"verb": "apply", "settings": [{"knob": "x", "value": "1", "path": "/etc/passwd"}]}', "unknown field"),
    (b'{"verb": "apply", "settings": [{"knob": "x", "value": 1}]}', "Expected `str`"),
    (b'{"verb": "undo", "number": "1; id"}', "Expected `int`"),
    (b'{"verb": "undo", "number": 99}', "no transaction 99"),
    (b'{"verb": "renew", "number": 1, "lease_s": 1e99}', "Expected"),
    (b"[" * 30_000, "not understood"),
    (b"\xff\xfe\x00", "not understood"),
    (b"", "not understood"),
)


def test_what_it_does_not_understand(service: Service) -> None:
    """A wrong question gets a short answer that says what is wrong."""
    for question, problem in WRONG:
        answer = json.loads(service.raw(_frame(question))[4:])
        assert problem in answer["problem"], question[:80]
        assert len(answer["problem"]) < 600, question[:80]


UNLISTED = (
    Setting("vm.swappiness", "10\n20"),
    Setting("vm.swappiness", "$(id)"),
    Setting("kernel.core_pattern", "|/bin/sh"),
    Setting("../../etc/passwd", "x"),
    Setting("block.read_ahead_kb", "128", "../../../../proc/sys/kernel"),
    Setting("block.scheduler", "none", "sda/../../x"),
    Setting("persist.sysctl", "kernel.core_pattern=|x", "000001"),
    Setting("process.nice", "5", "1 2"),
    Setting("process.cpus", "0-99999999999", "1"),
    Setting("gpu.persistence", "1", "0000:65:00.0; id"),
)


def test_what_is_not_on_the_list_is_not_planned(service: Service) -> None:
    """Names, values and items outside the allow-list never reach a plan."""
    for setting in UNLISTED:
        planned = service.ask(AskPlan(settings=(setting,))).plan
        assert planned is not None, setting
        assert planned.changes == (), setting
        assert len(planned.skipped) == 1, setting
        assert service.ask(AskApply(settings=(setting,))).transaction is None, setting


def test_oversize_truncated_and_slow(service: Service, sleeper: subprocess.Popen[bytes]) -> None:
    """Such clients are dropped, and others are served meanwhile."""
    assert b"at most" in service.raw(struct.pack("!I", 1 << 31), shut=False)
    assert b"broke off" in service.raw(struct.pack("!I", 100) + b"{")
    slow = socket.socket(socket.AF_UNIX)
    slow.connect(service.path)
    slow.sendall(struct.pack("!I", 100))
    assert service.ask(AskPlan(settings=(_idle(sleeper),))).plan is not None
    slow.settimeout(20)
    assert b"timed out" in slow.recv(65_536)
    slow.close()


def test_many_half_open_connections_harm_nobody_for_long(service: Service) -> None:
    """More than it serves at once are closed at once; when the silent ones are dropped, everybody is served again."""
    doors = [socket.socket(socket.AF_UNIX) for _ in range(60)]
    for door in doors:
        with contextlib.suppress(OSError):
            door.settimeout(1)
            door.connect(service.path)
    _wait_for(lambda: _answers(service), 20)
    for door in doors:
        door.close()


def _answers(service: Service) -> bool:
    try:
        service.ask(AskList())
    except HelperError:
        return False
    return True


def test_two_clients_at_once(service: Service, sleeper: subprocess.Popen[bytes]) -> None:
    """Two who apply at the same time get two transactions, one after the other, and undoing both restores."""
    done = []
    threads = [
        threading.Thread(target=lambda value=value: done.append(service.ask(AskApply(settings=(_idle(sleeper, value),)))))
        for value in (SET, OTHER)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    states = [transaction.state for transaction in Journal(str(service.state)).transactions()]
    assert len(states) == 2
    assert "applied" in states
    for number in (1, 2):
        service.ask(AskUndo(number=number))
    assert io_class(sleeper.pid) == BASE


ASKED = to_json(AskPlan(settings=(Setting("process.io_class", SET, "1", "test.rule"),)))


@fuzz
@given(st.binary(max_size=300) | damaged_bytes(ASKED).map(_frame))
def test_any_bytes(lasting: Service, content: bytes) -> None:
    """Whatever is sent, the helper answers or closes, and lives."""
    lasting.raw(content)
    assert lasting.process.poll() is None


def test_by_hand_it_says_who_starts_it() -> None:
    """Without a socket from systemd it says what to do."""
    done = subprocess.run((sys.executable, "-m", "sysperf", "helper"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "sysperf service install" in done.stderr


def _wait_for(condition: object, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_the_agents_changes_live_as_long_as_it_renews_them(service: Service, sleeper: subprocess.Popen[bytes]) -> None:
    """What the agent asks for holds while it renews; a foreign write ends that, and so does the agent's own word."""
    helped = HelperClient(service.path)
    transaction = helped.apply([_idle(sleeper)], "test.rule", 600)
    helped.renew(transaction, 600)
    assert io_class(sleeper.pid) == SET
    helped.undo(transaction)
    assert io_class(sleeper.pid) == BASE
    with pytest.raises(HelperError, match="no lease"):
        helped.renew(transaction, 600)

    transaction = helped.apply([_idle(sleeper)], "test.rule", 600)
    set_io_class(sleeper.pid, OTHER)
    with pytest.raises(SysperfError, match=f"somebody else has set it to {OTHER}"):
        helped.renew(transaction, 600)
    with pytest.raises(SysperfError, match=f"somebody has set it to {OTHER}"):
        helped.apply([_idle(sleeper)], "test.rule", 600)


def test_the_agent_tells_a_helper_that_is_away_from_a_refusal(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """Away may come back: an OSError. A refusal is a SysperfError."""
    with pytest.raises(ConnectionError):
        HelperClient(str(tmp_path / "nobody.sock")).apply([_idle(sleeper)], "test.rule", 600)


def test_what_only_a_process_keeps_needs_a_lease(service: Service) -> None:
    """The helper leaves when it is idle, and a wish that ends with it would end unnoticed."""
    if not os.access("/dev/cpu_dma_latency", os.W_OK):
        pytest.skip(f"{AS_ROOT}, on a kernel that has /dev/cpu_dma_latency")
    with pytest.raises(HelperError, match="only while a process keeps it"):
        service.ask(AskApply(settings=(Setting("cpu.dma_latency_us", "100"),)))


@pytest.mark.root(users=True)
def test_a_socket_in_another_users_folder_is_refused(tmp_path: Path) -> None:
    """Its owner could put a link in the socket's place while root gives it to the group."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(UsageError, match="another user"):
        helper_server.listen(str(theirs / "helper.sock"))
    assert not list(theirs.iterdir())
