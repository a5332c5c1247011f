"""Facts about the running agent: what it survives, what it keeps, and whom it tells. The agents here are real ones."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sysperf.agent import audit_runner, loop, notify
from sysperf.agent.announcer import Announcer
from sysperf.agent.apply_policy import RETRY_S, ApplyPolicy, checked
from sysperf.agent.log import NOTICE, logger
from sysperf.agent.setup import Options, Setup
from sysperf.engine import judging
from sysperf.engine.audit import audit
from sysperf.engine.configuration import Config
from sysperf.engine.judging import Terms
from sysperf.evaluate.judge import JUDGED
from sysperf.evaluate.ruleset import Ruleset, load
from sysperf.fix.journal import Journal
from sysperf.fix.journal_lines import End, StepResult, StepStarted
from sysperf.host import Host
from sysperf.live.auditor import SCAN_S, Auditor, looks_at
from sysperf.live.checks import KEPT, Checks
from sysperf.live.gpus import Gpus
from sysperf.live.scan import Scanner
from sysperf.live.tracked_finding import TrackedFinding
from sysperf.live.watchers import PressureWatcher, ProcessExitWatcher
from sysperf.live.worker import Worker
from sysperf.model.agent_settings import Mode, Settings
from sysperf.model.change import Change, Setting
from sysperf.model.errors import RuleError, SysperfError, UsageError
from sysperf.model.finding import Finding, Tally
from sysperf.model.rule import Override
from tests.agent.machines import FAKE_TORCH, Manager, Only, Running, agent, programs, until
from tests.collect.programs import LOADER, running, torch_library

RULE = """
[[rule]]
id = "site.{name}"
title = "A rule of this site"
scope = "host"
severity = "warning"
message = "{message}"
when = "memory.total_bytes > 0"
explain = "For tests."
fix = [{{ kind = "advice", by = "command", command = "echo do this" }}]
"""


def site_rule(folder: Path, text: str) -> Path:
    """A rule file of the site for an agent that runs in this folder."""
    path = folder / "config/sysperf/rules.d/site.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o644)
    return path


def rule(name: str = "always", message: str = "memory {memory.total_bytes|bytes}") -> str:
    return RULE.format(name=name, message=message)


# ---------------------------------------------------------------------- life and death


def test_a_torch_process_comes_and_goes(tmp_path: Path) -> None:
    """It is found, sampled, and told; its end is noticed at once, not with the next scan."""
    environ = {"LIBRARY": str(torch_library(tmp_path))}
    with agent(tmp_path, "--interval", "0.2", "--history", "none") as running, programs(FAKE_TORCH, env=environ) as (program,):
        processes = until(
            lambda: [process for process in running.get("/v1/processes")["processes"] if process["process"]["pid"] == program.pid], 150
        )
        assert processes[0]["process"]["torch"]["version"] == "9.9.9+fake"
        until(lambda: running.get("/v1/meters")["meters"].get(f"process.{program.pid}.cpu"))
        before = running.get("/v1/status")["samples"]
        until(lambda: running.get("/v1/status")["samples"] >= before + 3, loop.IDLE_S - 0.5)  # quicker while PyTorch runs
        program.kill()
        killed = time.monotonic()
        program.wait()
        gone = f"process.{program.pid}.cpu"
        until(lambda: gone not in running.get("/v1/meters")["meters"], SCAN_S - 1)
        until(lambda: all(process["process"]["pid"] != program.pid for process in running.get("/v1/processes")["processes"]), SCAN_S - 1)
        assert time.monotonic() - killed < SCAN_S


def test_memory_comes_in_small_pages(tmp_path: Path) -> None:
    """Where the kernel gives huge pages unasked, they would make 45 MB of 30."""
    with agent(tmp_path, "--history", "none") as running:
        status = Path(f"/proc/{running.process.pid}/status").read_text()
    if "THP_enabled" not in status:
        pytest.skip("this kernel does not say whether a process takes huge pages: Linux 5.0 does")

    assert "THP_enabled:\t0" in status


@pytest.mark.torch
def test_a_real_loader_is_watched(tmp_path: Path) -> None:
    """Real PyTorch with two DataLoader workers: its version, its workers and its waits are there."""
    python = os.environ.get("SYSPERF_TORCH_PYTHON")
    if not python:
        pytest.skip("no PyTorch: set SYSPERF_TORCH_PYTHON to the interpreter of an environment that has it")
    with running(python, LOADER) as pid, agent(tmp_path, "--interval", "0.5", "--history", "none") as watching:

        def whole() -> list[dict[str, Any]]:
            """The program once its workers are found, too: of many that start at once, each look examines some."""
            listed = [each["process"] for each in watching.get("/v1/processes")["processes"]]
            return [each for each in listed if each["pid"] == pid and each["workers"]["count"]]

        processes = until(whole, 150)
        wanted = {f"process.{pid}.{name}" for name in ("workers", "main_wait", "rss_bytes")}
        meters = until(lambda: wanted <= (known := watching.get("/v1/meters")["meters"]).keys() and known)

    assert processes[0]["workers"]["count"] == 2
    assert processes[0]["torch"]["version"]
    assert meters[f"process.{pid}.workers"] == 2
    assert 0 <= meters[f"process.{pid}.main_wait"] <= 1
    assert meters[f"process.{pid}.rss_bytes"] > 100 << 20


OTHERS_TORCH = FAKE_TORCH.replace("print(", "os.setgid(65_534); os.setuid(65_534); print(", 1)
"""A program that becomes another user's when it has mapped its library."""
WITHOUT_PRIVILEGES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


@pytest.mark.root(users=True)
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv: install util-linux")
def test_what_a_sandbox_hides_is_a_problem(tmp_path: Path) -> None:
    """Without the privilege to look into programs of others, the agent does not say that there is nothing: it says what it cannot see."""
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(b"\0" * 8192)
    library.chmod(0o644)
    tmp_path.chmod(0o755)
    with programs(OTHERS_TORCH, env={"LIBRARY": str(library)}), agent(tmp_path, "--history", "none", prefix=WITHOUT_PRIVILEGES) as running:
        assert running.get("/v1/processes")["processes"] == []
        problem = until(lambda: next((text for text in running.get("/v1/status")["problems"] if "could not be examined" in text), ""))
        assert "of other users" in problem
        assert "see-all-users" in problem


@pytest.mark.slow
def test_kill_9_loses_no_history(tmp_path: Path) -> None:
    """After kill -9 and a new start the samples, the events and since when a finding holds are still there."""
    site_rule(tmp_path, rule())
    history = str(tmp_path / "history.db")
    with agent(tmp_path, "--interval", "0.2", "--history", history, "--mode", "advise") as running:
        first = until(lambda: running.get("/v1/findings")["findings"])
        mine = next(finding for finding in first if finding["outcome"]["rule"] == "site.always")
        until(lambda: _count(history, "seen") and _count(history, "raw_system"))  # a flush each 10 s
        assert running.get("/v1/status")["store_problem"] == ""
        assert running.stop(signal.SIGKILL) == -signal.SIGKILL
        killed_at = time.time()

    with agent(tmp_path, "--interval", "0.2", "--history", history, "--mode", "advise") as running:
        again = next(
            finding for finding in until(lambda: running.get("/v1/findings")["findings"]) if finding["outcome"]["rule"] == "site.always"
        )
        past = running.get(f"/v1/history?series=memory.available_bytes&since={mine['first_seen'] - 60}&until={killed_at}")
        number = running.said().count("site.always")

    assert again["first_seen"] == pytest.approx(mine["first_seen"], abs=0.01)
    assert again["last_seen"] > killed_at
    assert past["history"]["memory.available_bytes"]
    assert number == 1, "it held before the restart: no news"


def _count(history: str, table: str) -> int:
    """The rows that another process sees."""
    with contextlib.closing(sqlite3.connect(f"file:{history}?mode=ro", uri=True)) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - our own names


def test_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    """Exit code 0, the manager is told, and the socket is gone."""
    manager = Manager(str(tmp_path / "notify"))
    with agent(tmp_path, "--history", "none", env={"NOTIFY_SOCKET": manager.address}) as running:
        manager.wait("READY=1")
        assert running.stop() == 0
        manager.wait("STOPPING=1", 5)
        assert not Path(running.socket).exists()


def test_killed_while_clients_listen(tmp_path: Path) -> None:
    """A client's stream ends, the stale socket is taken over by the next agent, and a listener never holds up its end."""
    with agent(tmp_path, "--history", "none") as running:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.settimeout(10)
        client.connect(running.socket)
        client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in client.recv(4096)
        running.stop(signal.SIGKILL)
        while client.recv(4096):
            pass
        client.close()
        assert Path(running.socket).exists(), "nobody could remove it"

    with agent(tmp_path, "--history", "none") as running, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(running.socket)
        client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        start = time.monotonic()
        assert running.stop() == 0
        assert time.monotonic() - start < 5


def test_two_agents_cannot_share_a_socket(tmp_path: Path) -> None:
    """The second says so and leaves the first alone."""
    with agent(tmp_path, "--history", "none") as first:
        second = Running(tmp_path, "--history", "none")
        assert second.process.wait(20) == 2
        assert "another agent answers there" in second.said()
        assert first.get("/v1/status")


# ---------------------------------------------------------------------- watchdog and reload


def test_a_stopped_agent_feeds_no_watchdog(tmp_path: Path) -> None:
    """SIGSTOP silences it, SIGCONT brings it back: the messages come from the loop that samples."""
    manager = Manager(str(tmp_path / "notify"))
    with agent(tmp_path, "--history", "none", env={"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "1000000"}) as running:
        manager.wait("WATCHDOG=1", 10)
        running.process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        manager.take()
        time.sleep(1.5)
        assert manager.take() == []
        running.process.send_signal(signal.SIGCONT)
        manager.wait("WATCHDOG=1", 5)


def test_a_loop_without_samples_feeds_no_watchdog() -> None:
    """The watchdog hears of samples, not of a loop that merely turns."""
    notified: list[str] = []

    class Notifier(notify.Notifier):
        def send(self, *states: str) -> bool:
            notified.extend(states)
            return True

    daemon = loop.Agent(lambda: Setup(Settings(), Terms(rules())), Options(""), logging.getLogger("test"), Notifier({}))
    daemon._notify.watchdog_s = 0.5
    daemon._feed_at = daemon._awake_until = 0.0

    class Nobody:
        pids = ()

    class Sampler:
        programs = Nobody()

    daemon._sampler = Sampler()  # type: ignore[assignment]
    daemon._sampled_at = 1000.0
    daemon._feed(1001.0)
    assert notified == ["WATCHDOG=1"]
    daemon._feed(1100.0)
    assert notified == ["WATCHDOG=1"], "no sample for 99 s"


def test_a_broken_rule_file_keeps_the_old_rules(tmp_path: Path) -> None:
    """Reloading a mistake: the old rules judge on, log and status say why. Mended, it is taken."""
    path = site_rule(tmp_path, rule())
    manager = Manager(str(tmp_path / "notify"))
    with agent(tmp_path, "--history", "none", env={"NOTIFY_SOCKET": manager.address}) as running:
        manager.wait("READY=1")
        path.write_text(rule().replace("memory.total_bytes >", "memory.totl_bytes >"))
        running.process.send_signal(signal.SIGHUP)
        manager.wait("RELOADING=1", 5)
        manager.wait("READY=1", 5)
        problems = running.get("/v1/status")["problems"]
        assert any("not reloaded" in problem and "memory.totl_bytes" in problem for problem in problems)
        assert "the former rules stay in force" in running.said()
        assert "site.always" in [finding["outcome"]["rule"] for finding in running.get("/v1/findings")["findings"]]

        path.write_text(rule("other"))
        running.process.send_signal(signal.SIGHUP)
        until(lambda: "site.other" in active(running.get("/v1/findings")))
        assert "site.always" not in active(running.get("/v1/findings"))
        assert not [problem for problem in running.get("/v1/status")["problems"] if "reloaded" in problem]


def active(answer: dict[str, list[dict[str, dict[str, str]]]]) -> list[str]:
    return [finding["outcome"]["rule"] for finding in answer["findings"] if finding["state"] == "active"]  # type: ignore[comparison-overlap]


@pytest.mark.root
def test_a_rule_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """As root, a rule file that others can write stops the start, and a reload keeps what was."""
    path = site_rule(tmp_path, rule())
    with agent(tmp_path, "--history", "none") as running:
        path.chmod(0o666)
        running.process.send_signal(signal.SIGHUP)
        until(lambda: "not reloaded" in running.said())
        assert "only root can write" in running.said()


def test_advise_says_what_to_do(tmp_path: Path) -> None:
    """A new finding is one line of the log: rule, what was observed, the fix."""
    site_rule(tmp_path, rule())
    with agent(tmp_path, "--history", "none", "--mode", "advise") as running:
        until(lambda: "site.always" in running.said())
        (line,) = [line for line in running.said().splitlines() if "site.always" in line]

    assert line.startswith("sysperf agent: site.always: memory ")
    assert line.endswith("Fix: echo do this")


def test_observe_keeps_quiet(tmp_path: Path) -> None:
    """Findings are there for whoever asks, and not in the log."""
    site_rule(tmp_path, rule())
    with agent(tmp_path, "--history", "none") as running:
        until(lambda: "site.always" in active(running.get("/v1/findings")))

        assert "site.always" not in running.said()


@pytest.mark.parametrize("what", ["reading storage", "reading the journal of changes"])
def test_a_look_that_hangs_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A file system that never answers: samples go on, and the status says what hangs."""
    release = threading.Event()

    def hanging_pass(self: Auditor) -> None:
        self.doing = what if what == "reading storage" else ""
        release.wait(120)

    def hanging_journal() -> tuple[()]:
        if what != "reading storage":
            release.wait(120)
        return ()

    monkeypatch.setattr(Auditor, "run_pass", hanging_pass)
    monkeypatch.setattr(audit_runner, "HANGING_S", 0.5)
    monkeypatch.setattr(loop, "IDLE_S", 0.2)
    setup = Setup(Settings(interval_s=0.2), Terms(rules()))
    options = Options(str(tmp_path / "a.sock"), transactions=hanging_journal)
    daemon = loop.Agent(lambda: setup, options, logging.getLogger("test"), notify.Notifier({}))

    async def scenario() -> tuple[int, tuple[str, ...]]:
        task = asyncio.ensure_future(daemon.run())
        answer: tuple[int, tuple[str, ...]] = (0, ())
        for _ in range(600):  # a minute, on a machine that is busy
            await asyncio.sleep(0.1)
            if hasattr(daemon, "_state"):
                answer = daemon._state.samples, daemon._all_problems()
            if answer[0] >= 5 and any(what in problem for problem in answer[1]):
                break
        daemon._stopped()
        await asyncio.wait_for(task, 60)
        return answer

    samples, problems = asyncio.run(scenario())
    release.set()
    assert samples >= 5
    assert f"look: {what} takes more than 0.5 s" in problems


def test_a_change_is_looked_at_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the journal was written, the areas of the rules behind it are read with the next sample; everything when no rule is known."""
    invalid: list[tuple[str, ...]] = []
    others = (("memory", "cgroup"), ("process",))  # pressure, and PyTorch programs that come and go: of other tests on this machine
    monkeypatch.setattr(Auditor, "invalidate", lambda _, *areas: invalid.append(areas) if areas not in others else None)
    monkeypatch.setattr(loop, "IDLE_S", 0.2)
    journal = Journal(str(tmp_path))

    async def changed(rule: str) -> None:
        with journal.locked(), journal.begin(boot="x", by="me", why="", taken_at="2026-01-01T00:00:00Z") as log:
            seen = len(invalid)
            await asyncio.sleep(1)  # it is seen before it says what it changes: that hurries nothing
            assert len(invalid) == seen
            change = Change("vm.swappiness", "", "/proc/sys/vm/swappiness", "60", "10", rule)
            log.add(StepStarted(0, change), StepResult(0, "applied"), End("applied"))  # at once: no sample sees a part of it

    options = Options(str(tmp_path / "a.sock"), transactions=lambda: tuple(journal.transactions()))
    setup = Setup(Settings(interval_s=0.2), Terms(rules()))
    daemon = loop.Agent(lambda: setup, options, logging.getLogger("test"), notify.Notifier({}))

    events: list[tuple[str, str]] = []
    tell = Announcer.tell

    def heard(announcer: Announcer, kind: str, subject: str, text: str, *more: Any) -> None:
        events.append((kind, text))
        tell(announcer, kind, subject, text, *more)

    monkeypatch.setattr(Announcer, "tell", heard)

    async def soon(count: int) -> None:
        for _ in range(200):
            if len(invalid) >= count:
                return
            await asyncio.sleep(0.05)

    async def scenario() -> None:
        task = asyncio.ensure_future(daemon.run())
        for _ in range(600):
            if hasattr(daemon, "_state") and daemon._state.last is not None:
                break
            await asyncio.sleep(0.05)
        for number, name in enumerate(("memory.swappiness-high", ""), 1):
            await changed(name)
            await soon(number)
        daemon._stopped()
        await asyncio.wait_for(task, 10)

    asyncio.run(scenario())
    assert ("change", "vm.swappiness: 60 → 10") in events
    assert [set(paths) for paths in invalid[:2]] == [looks_at(daemon._auditor._terms.ruleset, "memory.swappiness-high"), set()]


# ---------------------------------------------------------------------- the audit, taken apart


def rules() -> Ruleset:
    return load(judging.rule_files(), judging.schema())


def test_only_what_was_read_again_is_judged_again() -> None:
    """The second look reads nothing; a invalid area brings the rules that look at it, and no others."""
    auditor = Auditor(Terms(rules()), Only(time.monotonic, ()), Gpus())  # programs that start meanwhile would be read
    first = auditor.run_pass()
    assert len(first.rules) == len(auditor.rules)

    assert auditor.run_pass().rules == {}
    auditor.invalidate("memory")
    again = auditor.run_pass()

    assert again.refreshed == {"memory"}
    assert 0 < len(again.rules) < len(first.rules)
    assert all("memory" in looks_at(auditor._terms.ruleset, rule_id) for rule_id in again.rules)
    assert again.snapshot.areas["cpu"] is first.snapshot.areas["cpu"]


def test_the_checks_of_parts_add_up_to_those_of_the_whole() -> None:
    """Each pass replaces what its rules said before, of all witnesses of a cause; rules that go take theirs along."""
    auditor, checks = Auditor(Terms(rules()), Scanner(), Gpus()), Checks()
    checks.take(auditor.run_pass())
    auditor.invalidate("memory", "kernel")
    checks.take(auditor.run_pass())
    whole = auditor.report()

    def counts(tally: Tally) -> tuple[int, ...]:
        return tally.passed, tally.findings, tally.unknown, tally.suppressed, tally.not_applicable

    def keys_by_rule(outcomes: Iterable[Finding]) -> dict[str, set[str]]:
        keys: dict[str, set[str]] = {}
        for outcome in outcomes:
            keys.setdefault(outcome.rule, set()).add(outcome.key)
        return keys

    assert counts(checks.tally()) == counts(whole.tally)
    kept, unknown = keys_by_rule(checks.unknown()), keys_by_rule(outcome for outcome in whole.outcomes if outcome.state == "unknown")
    assert {rule: len(keys) for rule, keys in kept.items()} == {rule: min(len(keys), KEPT) for rule, keys in unknown.items()}
    assert all(keys <= unknown[rule] for rule, keys in kept.items())
    checks.keep_rules(())
    assert (checks.tally().passed, checks.unknown()) == (0, ())


def test_an_audit_by_parts_says_what_an_audit_says() -> None:
    """The first look finds what `sysperf audit` finds on this machine just before or just after it."""
    ruleset = rules()
    auditor = Auditor(Terms(ruleset), Scanner(), Gpus())
    volatile = ("mem.", "proc.", "storage.")  # other programs run beside this test

    def states(outcomes: Iterable[Finding]) -> set[tuple[str, str]]:
        return {(outcome.rule, outcome.state) for outcome in outcomes if not outcome.rule.startswith(volatile)}

    before = states(audit(Host("/"), judging.Terms(ruleset)).outcomes)
    looked = states(auditor.run_pass().outcomes)
    after = states(audit(Host("/"), judging.Terms(ruleset)).outcomes)

    assert before & after <= looked <= before | after


def test_a_slow_area_is_read_less_often() -> None:
    """It gets its share of a CPU and no more, and is still read now and then."""
    auditor = Auditor(Terms(rules()), Scanner(), Gpus())

    auditor._cost_s["memory"] = 0.001
    assert auditor._period("memory") == 60
    auditor._cost_s["memory"] = 0.1
    assert auditor._period("memory") == 200
    auditor._cost_s["memory"] = 50.0
    assert auditor._period("memory") == 600


# ---------------------------------------------------------------------- apply


def held(name: str = "thp.never") -> TrackedFinding:
    outcome = Finding(name, "finding", "warning", "host", "t", message="m", key=f"{name}@")
    return TrackedFinding(outcome, 1.0, 2.0, "active", 1)


class Hand:
    """A change service that records what it was asked to change."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.error: Exception | None = None

    def apply(self, settings: Sequence[Setting], rule: str, lease_s: float) -> str:
        self._call("apply", settings[0].knob, rule, lease_s)
        return f"t{len(self.calls)}"

    def renew(self, transaction: str, lease_s: float) -> None:
        assert lease_s > 0
        self._call("renew", transaction)

    def undo(self, transaction: str) -> None:
        self._call("undo", transaction)

    def _call(self, *what: object) -> None:
        self.calls.append(what)
        if self.error is not None:
            raise self.error


def applying(hand: Hand, *allowed: str) -> ApplyPolicy:
    return ApplyPolicy(hand, lambda outcome: [Setting("thp.enabled", "always", rule=outcome.rule)], allowed, 300, logging.getLogger("test"))


def test_only_allowed_rules_are_applied_and_once() -> None:
    """What the site listed is made once, and its lease is renewed three times within its length."""
    hand = Hand()
    applies = applying(hand, "thp.never")

    applied = applies.step([held(), held("other.rule")], 0)
    for now in range(1, 301):
        applies.step([held()], now)

    assert [(name, outcome.rule) for name, outcome in applied] == [("t1", "thp.never")]
    assert hand.calls[0] == ("apply", "thp.enabled", "thp.never", 300)
    assert hand.calls[1:] == [("renew", "t1")] * 3


def test_a_finding_that_is_fixed_stays_fixed() -> None:
    """Once made, the condition no longer holds: that is no reason to take it back."""
    hand = Hand()
    applies = applying(hand, "thp.never")
    applies.step([held()], 0)

    applies.step([], 50)

    assert list(applies.transactions) == ["t1"]
    applies.stop()
    assert hand.calls[-1] == ("undo", "t1")
    assert list(applies.transactions) == []


def test_a_refusal_is_not_repeated_each_second() -> None:
    """Refused once, it is asked again an hour later."""
    hand = Hand()
    hand.error = SysperfError("tuned sets it")
    applies = applying(hand, "thp.never")
    for now in range(100):
        assert applies.step([held()], now) == []
    assert len(hand.calls) == 1
    assert "tuned sets it" in applies.problem

    hand.error = None
    assert applies.step([held()], RETRY_S + 1)


def test_what_somebody_undid_is_left_alone() -> None:
    """The helper no longer knows it: it is not made again at once, against a person's will."""
    hand = Hand()
    applies = applying(hand, "thp.never")
    applies.step([held()], 0)
    hand.error = SysperfError("it was undone")
    applies.step([held()], 150)
    hand.error = None

    assert applies.step([held()], 160) == []
    assert applies.transactions == ()


def test_a_helper_that_is_away_keeps_the_lease_for_later() -> None:
    """A renewal that could not be asked for is asked for again."""
    hand = Hand()
    applies = applying(hand, "thp.never")
    applies.step([held()], 0)
    hand.error = ConnectionError("no helper")
    applies.step([held()], 150)
    assert "no helper" in applies.problem
    hand.error = None
    applies.step([held()], 300)

    assert applies.transactions == ("t1",)
    assert hand.calls[-1] == ("renew", "t1")


def test_the_agent_applies_and_takes_back(tmp_path: Path) -> None:
    """A finding of a listed rule is fixed; a reload without the mode, and the end, take it back."""
    path = tmp_path / "site.toml"
    path.write_text(rule())
    path.chmod(0o644)
    ruleset = load([], judging.schema(), site=[path])
    hand = Hand()
    modes: Iterator[Mode] = iter(("apply", "observe", "apply"))

    def setup() -> Setup:
        return Setup(Settings(next(modes), ("site.always",), interval_s=0.2), Terms(ruleset))

    wish = Setting("thp.enabled", "always", rule="site.always")
    options = Options(str(tmp_path / "a.sock"), change_service=lambda: hand, settings_of=lambda _: [wish])
    daemon = loop.Agent(setup, options, logging.getLogger("test"), notify.Notifier({}))

    async def called(kind: str, count: int) -> None:
        for _ in range(200):
            if [call[0] for call in hand.calls].count(kind) == count:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{kind} not {count} times: {hand.calls}")

    async def scenario() -> list[str]:
        task = asyncio.ensure_future(daemon.run())
        await called("apply", 1)
        daemon._reloaded()
        await called("undo", 1)
        daemon._reloaded()
        await called("apply", 2)
        kinds = [event.kind for event in await daemon._store.events()]
        daemon._stopped()
        await asyncio.wait_for(task, 10)
        return kinds

    assert "change" in asyncio.run(scenario())
    assert [call[0] for call in hand.calls] == ["apply", "undo", "apply", "undo"]


def test_rules_that_nobody_judges_here_are_not_kept() -> None:
    """An agent judges no launch and no trace; a waiver and an override may still name their rules, and a misspelt one is told."""
    everything = judging.load_rules()
    ruleset = judging.machine_rules(Config(override=(Override("launch.memory-far", disabled=True),)))

    assert {rule.scope for rule in ruleset.rules} == set(JUDGED)
    assert {rule.id for rule in everything.rules} == ruleset.known_ids | ruleset.others
    with pytest.raises(RuleError, match=r"launch\.memory-fat"):
        judging.machine_rules(Config(override=(Override("launch.memory-fat", disabled=True),)))


def test_apply_without_a_list_or_with_unknown_rules_is_refused() -> None:
    """Nothing is applied that nobody named."""
    with pytest.raises(UsageError, match="without a list"):
        checked((), ("a.b",))
    with pytest.raises(UsageError, match=r"no rule `c\.d`"):
        checked(("a.b", "c.d"), ("a.b",))


# ---------------------------------------------------------------------- parts


def test_log_lines_for_journald_and_for_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a priority where systemd says that the stream is its journal, plain elsewhere; always one line without control characters."""
    with open(tmp_path / "journal", "w+") as journal, open(tmp_path / "file", "w+") as file:
        number = os.fstat(journal.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{number.st_dev}:{number.st_ino}")
        for stream in (journal, file):
            log = logger(stream)
            log.log(NOTICE, "one\ntwo \x1b[31m")
            log.error("bad")
            log.debug("never")

    assert (tmp_path / "journal").read_text() == "<5>one\\x0atwo \\x1b[31m\n<3>bad\n"
    assert (tmp_path / "file").read_text() == "sysperf agent: one\\x0atwo \\x1b[31m\nsysperf agent: bad\n"


def test_a_worker_hands_back_errors_and_outlives_them() -> None:
    """What the work raises is raised to whoever waits; the next work is done."""

    async def scenario() -> int:
        worker = Worker("test")
        with pytest.raises(ZeroDivisionError):
            await worker.run(lambda: 1 // 0)
        answer = await worker.run(lambda: 7)
        worker.close()
        return answer

    assert asyncio.run(scenario()) == 7


def test_a_process_that_ends_wakes_us() -> None:
    """Its pidfd tells at once, even before its parent took leave of it."""

    async def scenario() -> tuple[list[int], int]:
        ended: list[int] = []
        ends = ProcessExitWatcher(asyncio.get_running_loop(), ended.append)
        with programs("print('ready', flush=True)\nimport time; time.sleep(60)") as (program,):
            ends.watch([program.pid, 2**22 + 1])
            program.kill()
            for _ in range(100):
                await asyncio.sleep(0.02)
                if ended:
                    break
        ends.close()
        return ended, program.pid

    ended, pid = asyncio.run(scenario())
    assert ended == [pid]


def test_pressure_that_cannot_be_watched_is_a_problem(tmp_path: Path) -> None:
    """No PSI in the kernel, or no right to ask: nothing is watched, and the reason is known."""

    async def scenario(folder: str) -> tuple[int, str]:
        pressure = PressureWatcher(asyncio.get_running_loop(), lambda: None, folder)
        answer = pressure.armed, pressure.problem
        pressure.close()
        return answer

    assert asyncio.run(scenario(str(tmp_path))) == (0, f"{tmp_path}/cpu: No such file or directory")
    armed, problem = asyncio.run(scenario("/proc/pressure"))
    assert armed == 3 or problem
