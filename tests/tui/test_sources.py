"""Where facts and meters come from: an agent's socket, this process, a capture; and an agent that goes and comes back."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sysperf import paths
from sysperf.collect import collect
from sysperf.collect.machine_facts import MachineFacts
from sysperf.collect.memory import Memory
from sysperf.collect.numa import Node, Numa
from sysperf.engine import judging
from sysperf.engine.judging import Terms
from sysperf.fix.journal import Journal
from sysperf.fix.journal_lines import End, StepResult, StepStarted
from sysperf.fix.lease import boot_id
from sysperf.live.auditor import AuditPass
from sysperf.live.scan import Change as Scanned
from sysperf.live.system import System
from sysperf.model.change import Change
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import UsageError
from sysperf.model.record import plain, to_json
from sysperf.model.snapshot import Snapshot
from sysperf.tui import decode
from sysperf.tui.decode import SnapshotDecoder
from sysperf.tui.now import Now
from sysperf.tui.source import Changed, Facts, Load, Meters, Problem, SourceUpdate
from sysperf.tui.sources import here, ssh
from sysperf.tui.sources.agent import Agent
from sysperf.tui.sources.here import Here
from tests.agent.states import PID, START, Table, eventually, serving
from tests.conftest import make_machine
from tests.report import reports


class Ear:
    """Keeps what a source tells."""

    def __init__(self) -> None:
        self.heard: list[SourceUpdate] = []
        self.now = Now()

    def __call__(self, news: SourceUpdate) -> None:
        self.heard.append(news)
        self.now.take(news)

    def has(self, kind: Any) -> bool:
        return any(isinstance(update, kind) for update in self.heard)


def test_an_agent_tells_all_that_it_knows(tmp_path: Path) -> None:
    """Facts, active findings with since when they hold, meters and changes; then each sample as it comes."""
    ear = Ear()
    with serving(tmp_path) as running:
        source = Agent(running.path)
        source.start(ear)
        assert eventually(lambda: ear.has(Changed) and ear.has(Meters) and ear.now.report is not None)
        assert [finding.rule for finding in ear.now.findings()] == ["numa.balancing-on"]
        assert ear.now.since[ear.now.findings()[0].key] == START
        assert ear.now.facts.memory is not None
        assert ear.now.facts.memory.total_bytes == 1 << 40
        assert ear.now.meters["cpu.busy"] == running.table.figures["cpu.busy"]
        assert eventually(lambda: running.events.listeners)
        running.call(running.events.publish, "sample", {"at": START + 90, "meters": {"cpu.busy": 0.75, f"process.{PID}.cpu": 2.0}})
        assert eventually(lambda: ear.now.meters.get("cpu.busy") == 0.75)
        source.close()


def test_an_agent_tells_how_much_it_could_check(tmp_path: Path) -> None:
    """So the headline may be green, and `x` shows what could not be judged; an older agent tells no counts."""
    ear, later = Ear(), Ear()
    with serving(tmp_path) as running:
        checked = AuditPass(Scanned((), ()), frozenset(), {}, reports.UNKNOWNS, {"a.b": 70}, {}, {}, reports.snapshot())
        running.call(running.table.checks.take, checked)
        Agent(running.path).start(ear)
        assert eventually(lambda: ear.now.report is not None)
        assert ear.now.counted
        assert ear.now.report is not None
        assert (ear.now.report.tally.unknown, ear.now.report.tally.findings) == (3, 1)
        assert [outcome.rule for outcome in ear.now.report.outcomes] == ["numa.balancing-on", *(each.rule for each in reports.UNKNOWNS)]
    (tmp_path / "old").mkdir()
    with serving(tmp_path / "old", more={"/v1/findings": lambda _: (200, "application/json", b'{"findings": []}')}) as running:
        Agent(running.path).start(later)
        assert eventually(lambda: later.now.report is not None)
        assert not later.now.counted


def test_an_agent_that_ends_is_missed_and_found_again(tmp_path: Path) -> None:
    """What was known stays, with the problem beside it; when the agent is back, the problem is gone."""
    ear = Ear()
    with serving(tmp_path) as running:
        source = Agent(running.path)
        source.start(ear)
        assert eventually(lambda: ear.now.report is not None)
    assert eventually(lambda: "trying again" in ear.now.problem)  # a question asked just then is given up after 10 s
    assert ear.now.findings()
    with serving(tmp_path):
        assert eventually(lambda: not ear.now.problem)
        source.close()


def test_history_has_points_and_marks(tmp_path: Path) -> None:
    """The points of a series, and what happened in that time."""
    table = Table()
    now = time.time()
    for second in range(60):
        table.store.append(now - 60 + second, {"cpu.busy": second / 60})
    with serving(tmp_path, table) as running:
        running.call(table.store.flush)
        running.call(table.store.event, now - 30, "change", "", "fixed \x1b[31m something")
        source = Agent(running.path)
        assert ("cpu.busy", "share of all CPUs' time that was used; waiting for disks is not use") in source.series()
        # the server of these tests lives in the past: ask for all time
        assert eventually(lambda: source.history(["cpu.busy"], START, 100).points("cpu.busy"))
        past = source.history(["cpu.busy"], START, 100)
        assert [(mark.kind, mark.text) for mark in past.marks] == [("change", "fixed \\x1b[31m something")]


def test_a_newer_agent_may_say_more() -> None:
    """Fields that this version does not know are left out; a finding of another shape is left out as a whole."""
    raw = plain(reports.balancing())
    raw |= {"new": 1, "evidence": [{**evidence, "more": [1]} for evidence in raw["evidence"]]}
    outcome = decode.outcome(raw)
    assert outcome == reports.balancing()
    assert decode.outcome({"rule": 3}) is None
    assert decode.outcome("text") is None


def decoded(**areas: Any) -> Snapshot:
    """A snapshot as it arrives from an agent that tells these areas."""
    snapshot = SnapshotDecoder().decode(to_json({"taken_at": "2026-11-22T06:00:00Z", "areas": areas, "later": 1}))
    assert snapshot is not None
    return snapshot


def test_facts_of_an_agent_are_those_of_the_machine() -> None:
    """What the collectors of a captured machine read is the same after the way over the socket, record by record."""
    machine = collect(make_machine({"/sys/devices/system/cpu/online": "0-3\n", "/proc/meminfo": "MemTotal: 1024 kB\n"}))
    taken = Snapshot(taken_at="2026-11-22T06:00:00Z", areas=machine)
    assert SnapshotDecoder().decode(to_json(taken)) == taken
    assert MachineFacts(taken.areas).cpu is not None


def test_a_newer_agent_may_know_more_fields_and_areas() -> None:
    """A field and an area that this version does not know are left out."""
    nodes = [{"id": 0, "cpus": "0-3", "colour": "red"}]
    snapshot = decoded(numa={"facts": {"nodes": nodes, "mood": [1]}, "later": 2}, quantum={"facts": {"qubits": 3}})
    assert MachineFacts(snapshot.areas).numa == Numa(nodes=(Node(id=0, cpus=CpuSet.parse("0-3")),), nodes_with_cpus=None)
    assert snapshot.areas.keys() == {"numa"}


def test_a_field_that_an_older_agent_does_not_know_is_unknown() -> None:
    """`None`, also where this version's collector always writes the field; without a field that cannot be unknown, the area is unknown."""
    snapshot = decoded(numa={"facts": {"nodes": [{"id": 0}]}}, torch={"facts": {"installs": [{"prefix": "/opt"}]}})
    assert MachineFacts(snapshot.areas).numa == Numa(nodes=(Node(id=0, cpus=None),), nodes_with_cpus=None)
    assert MachineFacts(snapshot.areas).torch is None
    assert "site_packages" in str(snapshot.areas["torch"].problem)


@pytest.mark.parametrize("facts", [{"nodes": [{"id": "zero"}]}, {"nodes": 3}, [], "text", {"nodes": [{"id": 0, "cpus": "3-0-9"}]}])
def test_an_area_of_another_shape_is_unknown_with_the_reason(facts: Any) -> None:
    """The other areas stay known."""
    snapshot = decoded(numa={"facts": facts}, memory={"facts": {"total_bytes": 7}})
    assert snapshot.areas["numa"].facts is None
    assert str(snapshot.areas["numa"].problem).startswith(decode.OTHER_SHAPE)
    assert MachineFacts(snapshot.areas).memory is not None


def test_an_area_that_did_not_change_is_not_decoded_again() -> None:
    """The very record of the answer before; an area that changed has a new one."""
    decoder = SnapshotDecoder()
    first = decoder.decode(b'{"taken_at": "a", "areas": {"numa": {"facts": {"nodes": []}}, "memory": {"facts": {"total_bytes": 7}}}}')
    second = decoder.decode(b'{"taken_at": "b", "areas": {"numa": {"facts": {"nodes": []}}, "memory": {"facts": {"total_bytes": 8}}}}')
    assert first is not None
    assert second is not None
    assert second.areas["numa"] is first.areas["numa"]
    assert MachineFacts(first.areas).memory == Memory(total_bytes=7)
    assert MachineFacts(second.areas).memory == Memory(total_bytes=8)


@pytest.mark.parametrize("answer", [b'{"areas": 3}', b"[]", b"text", b"\xff", b"[" * 100_000])
def test_an_answer_that_is_no_snapshot_is_none(answer: bytes) -> None:
    """Nothing raises."""
    assert SnapshotDecoder().decode(answer) is None


def test_this_process_samples_by_itself() -> None:
    """Without an agent: facts, findings with the count of checks, and rates from the second sample on."""
    ear = Ear()
    source = Here(lambda: Terms(judging.load_rules()), interval_s=0.2)
    source.start(ear)
    try:
        assert eventually(lambda: ear.now.report is not None and "cpu.busy" in ear.now.meters)
        assert ear.now.counted
        assert ear.now.report is not None
        assert ear.now.report.tally.passed > 0
        source.watch_cpus(on=True)
        assert eventually(lambda: ear.has(Load))
        source.watch_cpus(on=False)
        looks = len([update for update in ear.heard if isinstance(update, Facts)])
        source.look_again()
        assert eventually(lambda: len([update for update in ear.heard if isinstance(update, Facts)]) > looks)
    finally:
        source.close()
    assert eventually(
        lambda: not [thread for thread in threading.enumerate() if thread.name in ("sysperf-meters", "sysperf-look", "sysperf-load")]
    )


def test_a_change_on_a_command_line_is_seen_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an agent, too: what `apply` wrote down is listed, and the machine is looked at again."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(paths, "SYSTEM_STATE", str(tmp_path / "machine"))
    ear = Ear()
    source = Here(lambda: Terms(judging.load_rules()), interval_s=0.2)
    source.start(ear)
    try:
        assert eventually(lambda: ear.has(Facts), 30)
        assert eventually(lambda: not ear.has(Changed) and source._transactions() == ())
        facts = len([update for update in ear.heard if isinstance(update, Facts)])
        journal = Journal(str(tmp_path / "machine"))
        with journal.locked(), journal.begin(boot=boot_id(), by="me", why="apply", taken_at="2026-01-01T00:00:00Z", steps=1) as log:
            change = Change("vm.swappiness", "", "/proc/sys/vm/swappiness", "60", "10")
            log.add(StepStarted(0, change), StepResult(0, "applied"), End("applied", 1))

        assert eventually(lambda: ear.has(Changed), 10)
        assert [transaction.why for transaction in ear.now.changes] == ["apply"]
        assert eventually(lambda: len([update for update in ear.heard if isinstance(update, Facts)]) > facts)
    finally:
        source.close()


def test_a_late_sample_is_followed_by_a_whole_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate over the moment that a machine took to catch up would say nothing."""
    spans: list[tuple[float, float]] = []

    class Late(System):
        def sample(self) -> dict[str, float]:
            began = time.monotonic()
            time.sleep(0 if spans else 0.5)
            spans.append((began, time.monotonic()))
            return {}

    monkeypatch.setattr(here, "System", Late)
    source = Here(lambda: Terms(judging.load_rules()), interval_s=0.2)
    source.start(Ear())
    try:
        assert eventually(lambda: len(spans) > 1)
        assert spans[1][0] - spans[0][1] > 0.15
    finally:
        source.close()


def test_rules_that_are_wrong_are_a_problem_not_an_end() -> None:
    """A mistake in a site's rule file is told on the screen, and meters go on."""

    def load() -> Terms:
        raise UsageError("rules/local.toml: wrong", "look there")

    ear = Ear()
    source = Here(load, interval_s=0.1)
    source.start(ear)
    try:
        assert eventually(lambda: ear.now.problem == "rules/local.toml: wrong. look there" and ear.has(Meters))
    finally:
        source.close()


# ---------------------------------------------------------------------- ssh


FAKE_SSH = """\
#!{python}
import os, socket, sys, threading
arguments = sys.argv[1:]
mine, there = arguments[arguments.index("-L") + 1].split(":")
assert arguments[-2] == "--", arguments
if arguments[-1] == "nowhere":
    sys.exit(255)
listening = socket.socket(socket.AF_UNIX)
listening.bind(mine)
listening.listen()
def copy(a, b):
    while data := a.recv(65536):
        b.sendall(data)
    try: b.shutdown(socket.SHUT_WR)
    except OSError: pass
while True:
    near, _ = listening.accept()
    far = socket.socket(socket.AF_UNIX)
    try: far.connect(there)
    except OSError:
        near.close()
        continue
    for pair in ((near, far), (far, near)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""


@pytest.fixture
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called ssh that forwards sockets on this machine."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(FAKE_SSH.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


def test_another_machine_through_ssh(fake_ssh: Path, tmp_path: Path) -> None:
    """ssh forwards the agent's socket into a folder of ours, and ends with us."""
    ear = Ear()
    with serving(tmp_path) as running, ssh.forwarded(f"ssh://me@gpu-7:2222{running.path}") as forward:
        mine = forward.path
        assert stat.S_IMODE(os.stat(os.path.dirname(mine)).st_mode) == 0o700
        assert forward.ended() == ""
        source = Agent(mine, name="me@gpu-7", local=False)
        source.start(ear)
        assert eventually(lambda: ear.now.report is not None)
        source.close()
    assert not os.path.exists(mine)


def test_ssh_that_fails_says_so(fake_ssh: Path) -> None:
    """Its own words stand above; ours say that it ended."""
    with pytest.raises(UsageError, match="ended with code 255"), ssh.forwarded("ssh://nowhere"):
        pass


@pytest.mark.parametrize(
    "address",
    [
        "ssh://-oProxyCommand=x",
        "ssh://a b",
        "ssh://",
        "http://x",
        "ssh://x:port",
        "ssh://u:pw@x",
        "ssh://x/a:b",
        "ssh://x?y",
        "ssh://-x@y",
        "ssh://x;id",
        "ssh://[",
        "ssh://[::1",
        "ssh://x:99999",
        "ssh://\udcff",
    ],
)
def test_addresses_that_ssh_would_misread_are_refused(address: str) -> None:
    """No option, no command, no second path gets into ssh's command line."""
    with pytest.raises(UsageError):
        ssh.parse(address)


def test_problems_are_news() -> None:
    """An empty text says that all is well again."""
    now = Now()
    now.take(Problem("x"))
    assert now.problem == "x"
    now.take(Problem(""))
    assert not now.problem
