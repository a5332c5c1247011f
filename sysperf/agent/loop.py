"""The agent's main loop: samples at a fixed rate, audits the machine in a thread beside it, publishes events.

The server answers in between. Nothing that may hang runs here: collectors and NVML have threads of their own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping

from sysperf import __version__
from sysperf.agent import api, heap, sockets
from sysperf.agent.announcer import Announcer
from sysperf.agent.async_store import AsyncStore
from sysperf.agent.audit_runner import AuditRunner
from sysperf.agent.events import Events
from sysperf.agent.fixing import Fixing
from sysperf.agent.notify import Notifier
from sysperf.agent.problems import Problems
from sysperf.agent.sampler import Sampler
from sysperf.agent.server import Server
from sysperf.agent.setup import Options, Setup, checked_setup
from sysperf.agent.state import AgentState
from sysperf.collect.process.records import Process
from sysperf.live.auditor import Auditor, AuditPass
from sysperf.live.gpus import Gpus
from sysperf.live.hysteresis import FindingTracker
from sysperf.live.scan import Scanner
from sysperf.live.tracked_finding import Past, Times, Transition
from sysperf.live.watchers import PressureWatcher, ProcessExitWatcher
from sysperf.model.errors import SysperfError

IDLE_S = 5.0
"""Time between samples while no PyTorch runs."""
AWAKE_S = 60.0
"""After the kernel reported pressure, samples are as frequent as with PyTorch for so long …"""
REST_S = 300.0
"""… and then not again for so long: a machine that is always busy with other things is not watched more closely."""
FLUSH_S = 10.0
STATUS_S = 60.0
MAX_LATE_SAMPLES = 3
"""A loop that took no sample for so many intervals is not alive."""
MIN_LATE_S = 10.0
MAX_FILE_PROBLEMS = 50


class Agent:
    """One running agent."""

    def __init__(self, load: Callable[[], Setup], options: Options, log: logging.Logger, notifier: Notifier | None = None) -> None:
        self._load = load
        self._options = options
        self._setup = checked_setup(load, options)
        self._log = log
        self._notify = notifier or Notifier()
        self._stop = False
        self._reload = False
        self._wake: asyncio.Future[None] | None = None
        self._problems = Problems(log)

    async def run(self) -> None:
        """Sample until somebody says stop. Raises UsageError when the socket cannot be had."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped)
        loop.add_signal_handler(signal.SIGHUP, self._reloaded)
        events = Events()
        passed = sockets.passed_sockets()
        listener = sockets.listener(self._options.socket, "agent.socket", passed)
        store = await AsyncStore.open(self._options.history)
        self._open(store, events)
        faces = api.Api(self._state, events)
        server = Server(faces.routes())
        figures = [(Server(faces.metrics_only()), sockets.Listener(sock)) for sock in passed.values()]
        self._state.clients = lambda: server.clients
        try:
            await server.start(listener)
            for metrics_server, metrics_listener in figures:
                await metrics_server.start(metrics_listener)
            await self._run()
        finally:
            self._notify.stopping()
            for open_server in (server, *(metrics_server for metrics_server, _ in figures)):
                await open_server.close()
            await self._close()

    # ------------------------------------------------------------------ parts

    def _open(self, store: AsyncStore, events: Events) -> None:
        """Make the parts. They hold no more than descriptors and memory."""
        loop = asyncio.get_running_loop()
        self._store = store
        self._findings = FindingTracker(Past(store.first_seen, store.last_seen))
        self._state = AgentState(store, self._findings, self._setup.settings.mode, time.time())
        self._state.problems = self._all_problems
        self._announcer = Announcer(store, events, self._log)
        self._gpus, self._scanner = Gpus(), Scanner()
        self._state.unknown = lambda: self._gpus.unknown
        self._auditor = Auditor(self._setup.terms, self._scanner, self._gpus)
        self._sampler = Sampler(self._state, events, self._gpus, self._problems)
        self._audits = AuditRunner(
            self._auditor, self._state, self._announcer, self._problems, self._options.transactions, self._apply_result
        )
        self._fixing = Fixing(self._options, self._findings, self._auditor, self._announcer, self._problems, self._log)
        self._fixing.use(self._setup)
        self._exits = ProcessExitWatcher(loop, self._ended)
        self._pressure = PressureWatcher(loop, self._pressed)
        self._awake_until = -REST_S
        self._next_at = self._sampled_at = self._feed_at = 0.0
        self._names: dict[int, str] = {}

    async def _close(self) -> None:
        self._audits.cancel()
        self._sampler.cancel()
        await self._fixing.close()
        self._audits.close()
        self._announcer.tell("agent", "", "stopped")
        for part in (self._exits, self._pressure, self._sampler):
            part.close()
        await self._store.close()
        self._log.info("stopped")

    # ------------------------------------------------------------------ the beat

    async def _run(self) -> None:
        """Sample at fixed times, however long a sample takes; times that passed meanwhile are left out."""
        loop = asyncio.get_running_loop()
        self._announcer.tell("agent", "", f"started, mode {self._state.mode}, sysperf {__version__}")
        self._log.info("sysperf %s watches this machine, mode %s, socket %s", __version__, self._state.mode, self._options.socket)
        if self._store.problem:
            self._log.warning("%s", self._store.problem)
        self._next_at = loop.time()
        flush_at, status_at = self._next_at + FLUSH_S, 0.0
        while not self._stop:
            now = loop.time()
            self._sample_if_due(now)
            if now >= status_at:
                self._notify.status(self._status()) if status_at else self._notify.ready(self._status())
                status_at = now + STATUS_S
                heap.give_back()
            self._audits.start(now)
            self._fixing.start_if_due()
            if now >= flush_at:
                flush_at = now + FLUSH_S
                self._store.flush()
            self._feed(now)
            await self._sleep(loop, self._next_at if not self._notify.watchdog_s else min(self._next_at, self._feed_at))
            if self._reload:
                self._reload = False
                self._use_new_setup()

    def _sample_if_due(self, now: float) -> None:
        if now < self._next_at:
            return
        late_s, interval_s = now - self._next_at, self._setup.settings.interval_s
        self._sampler.sample(late_s, interval_s, gpus_compute=self._auditor.computes, ended=self._ended)
        self._sampled_at = now
        interval = self._interval(now)
        self._next_at += interval if self._next_at + interval > now else late_s + interval

    def _feed(self, now: float) -> None:
        """Tell systemd that we are alive, if samples are taken."""
        if self._notify.watchdog_s and now >= self._feed_at:
            self._feed_at = now + self._notify.watchdog_s
            if now - self._sampled_at < max(MIN_LATE_S, MAX_LATE_SAMPLES * self._interval(now)):
                self._notify.watchdog()

    def _interval(self, now: float) -> float:
        chosen = self._setup.settings.interval_s
        return chosen if self._sampler.programs.pids or now < self._awake_until else max(chosen, IDLE_S)

    async def _sleep(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        """Sleep until then, or until something happens."""
        if self._stop or self._reload:
            return
        self._wake = loop.create_future()
        timer = loop.call_at(until, self._wake_up)
        await self._wake
        timer.cancel()

    def _sooner(self) -> None:
        """The pace has quickened: do not wait for the next sample of the old one."""
        now = asyncio.get_running_loop().time()
        self._next_at = min(self._next_at, now + self._interval(now))
        self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # ------------------------------------------------------------------ what an audit pass found

    def _apply_result(self, audit: AuditPass, touched: Collection[str] = ()) -> None:
        """Take over what an audit pass found."""
        first, self._state.last = self._state.last is None, audit.snapshot
        was_idle = not self._sampler.programs.pids
        self._watch(self._state.running(), announce=not first)
        self._state.checks.take(audit)
        times = Times(time.monotonic(), time.time())
        news = self._findings.take(times, audit.rules, audit.outcomes, self._auditor.period_s, audit.present, touched)
        self._remember(times.at)
        self._announce(news)
        if first:
            heap.freeze()
            self._notify.status(self._status())
        if was_idle and self._sampler.programs.pids:
            self._sooner()
        self._fixing.start()

    def _watch(self, processes: Collection[Process], *, announce: bool) -> None:
        """Sample these programs from now on, and hear when they end."""
        before = set(self._sampler.programs.pids)
        self._names = {process.pid: process.name for process in processes}
        self._sampler.programs.watch([*self._names])
        self._exits.watch([*self._names])
        self._sampler.system.watch_groups(self._auditor.throttle_files)
        for process in processes:
            if announce and process.pid not in before:
                text = f"PyTorch {process.torch.version or ''} runs"
                self._announcer.tell("process", f"{process.name} (pid {process.pid})", text)

    def _remember(self, at: float) -> None:
        for finding in self._findings.active():
            if finding.last_seen == at:
                self._store.remember(finding.outcome.fingerprint, at)

    def _announce(self, news: list[Transition]) -> None:
        self._announcer.findings(news, advise=self._state.mode != "observe")

    # ------------------------------------------------------------------ what happens

    def _ended(self, pid: int) -> None:
        self._exits.forget(pid)
        self._sampler.programs.forget(pid)
        self._auditor.ended(pid)
        name = self._names.pop(pid, "")
        self._announcer.tell("process", f"{name} (pid {pid})" if name else f"pid {pid}", "ended")
        self._wake_up()

    def _pressed(self) -> None:
        """The kernel says that tasks wait: look closely for a while."""
        now = asyncio.get_running_loop().time()
        if now >= self._awake_until + REST_S:
            self._awake_until = now + AWAKE_S
            self._auditor.invalidate("memory", "cgroup")
            self._sooner()

    def _stopped(self) -> None:
        self._stop = True
        self._wake_up()

    def _reloaded(self) -> None:
        self._reload = True
        self._wake_up()

    def _use_new_setup(self) -> None:
        """Read rules and configuration again; a mistake in them leaves everything as it was."""
        self._notify.reloading()
        try:
            setup = checked_setup(self._load, self._options)
        except SysperfError as error:
            self._problems["reload"] = f"not reloaded: {error}"
            self._log.error("not reloaded, the former rules stay in force: %s%s", error, f" ({error.hint})" if error.hint else "")
            self._announcer.tell("agent", "", f"not reloaded: {error}")
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the new configuration, the old one works
            self._problems["reload"] = f"not reloaded: {type(error).__name__}: {error}"
            self._log.error("not reloaded, the former rules stay in force: %s: %s", type(error).__name__, error)
        else:
            self._problems.pop("reload", None)
            self._take_over(setup)
        self._notify.ready(self._status())

    def _take_over(self, setup: Setup) -> None:
        before, self._setup = self._setup, setup
        self._state.mode = setup.settings.mode
        self._auditor.renew(setup.terms)
        rules = {rule.id for rule in setup.terms.ruleset.rules}
        self._announce(self._findings.keep_rules(rules, Times(time.monotonic(), time.time())))
        self._state.checks.keep_rules(rules)
        if setup.allowed != before.allowed:
            self._fixing.use(setup)
        self._log.info("reloaded: %s rules, mode %s", len(rules), setup.settings.mode)
        self._announcer.tell("agent", "", f"reloaded, mode {setup.settings.mode}")

    # ------------------------------------------------------------------ how it is doing

    def _status(self) -> str:
        active, programs = len(self._findings.active()), len(self._sampler.programs.pids)
        return f"{programs} PyTorch process{'' if programs == 1 else 'es'}, {active} finding{'' if active == 1 else 's'}"

    def _all_problems(self) -> tuple[str, ...]:
        by_file: tuple[Mapping[str, str], ...] = (self._sampler.system.problems, self._sampler.programs.problems)
        files = [f"{path}: {problem}" for problems in by_file for path, problem in problems.items()]
        parts = [f"{name}: {problem}" for name, problem in self._problems.items()]
        other = filter(None, (self._gpus.problem, self._scanner.problem, self._pressure.problem, self._fixing.problem))
        unseen = filter(None, (self._scanner.hidden(), self._state.checks.problem()))
        return (*unseen, *sorted([*parts, *files[:MAX_FILE_PROBLEMS], *other]))


def run(agent: Agent) -> None:
    """Run until stopped."""
    heap.keep_small()
    os.environ.pop("NOTIFY_SOCKET", None)  # not for our children
    asyncio.run(agent.run())
