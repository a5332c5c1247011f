"""The agent's main loop: samples on a fixed beat, looks at the machine in a thread beside it, tells whoever listens.

One task samples, judges and logs; the server answers in between. Nothing that may hang runs here: collectors and NVML
have threads of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from sysperf import __version__
from sysperf.agent import api, sockets
from sysperf.agent.apply_policy import ApplyPolicy, ChangeService, SettingsOf, checked
from sysperf.agent.async_store import AsyncStore
from sysperf.agent.events import Events
from sysperf.agent.log import NOTICE
from sysperf.agent.notify import Notifier
from sysperf.agent.server import Server
from sysperf.agent.state import AgentState
from sysperf.agent.status import Cost
from sysperf.agent.store import Event
from sysperf.engine.judging import Terms
from sysperf.evaluate.judge import JUDGED
from sysperf.live.auditor import Auditor, AuditPass
from sysperf.live.gpus import Gpus
from sysperf.live.hysteresis import FindingTracker, Past, Times, Transition
from sysperf.live.metric import process_of
from sysperf.live.open_file import OpenFile
from sysperf.live.programs import Programs
from sysperf.live.scan import Scanner
from sysperf.live.system import PAGE_BYTES, System
from sysperf.live.unchecked import Unchecked
from sysperf.live.watchers import PressureWatcher, ProcessExitWatcher
from sysperf.live.worker import Worker
from sysperf.model.agent_settings import Settings
from sysperf.model.change import Transaction
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.outcome import Outcome, Remedy

IDLE_S = 5.0
"""Time between samples while no PyTorch runs."""
AWAKE_S = 60.0
"""After the kernel reported pressure, samples are as frequent as with PyTorch for so long …"""
REST_S = 300.0
"""… and then not again for so long: a machine that is always busy with other things is not watched more closely."""
FLUSH_S = 10.0
OWN_S = 10.0
STATUS_S = 60.0
LATE = 3
"""A loop that took no sample for so many intervals is not alive."""
LATE_S = 10.0
HANGING_S = 60.0
JOURNAL = "reading the journal of changes"
OLD_S = 60.0
"""What was not read for so long is unknown."""
GPU_SHARE = 0.001
"""GPUs that are slow to answer are asked less often, so that it takes no more than this of a CPU."""
SLOWEST_GPU_S = 10.0
OURS = "agent: "
"""How the reason of a change begins that the agent itself asked for."""


class Setup(NamedTuple):
    """What a configuration asks for."""

    settings: Settings
    terms: Terms


class Options(NamedTuple):
    """What the command line asks for, and who makes changes."""

    socket: str
    history: str | None = None
    fixer: Callable[[], ChangeService | None] = lambda: None
    """Who makes changes in mode `apply`; None where nobody can."""
    settings_of: SettingsOf = lambda _: ()
    made: Callable[[], tuple[Transaction, ...]] = tuple
    """What was changed on this machine, newest first. Asked with each sample, in a thread: it is cheap while nothing changes."""


class Agent:
    """One running agent."""

    def __init__(self, load: Callable[[], Setup], options: Options, log: logging.Logger, notifier: Notifier | None = None) -> None:
        self._load = load
        self._options = options
        self._setup = self._checked_setup()
        self._log = log
        self._notify = notifier or Notifier()
        self._stop = False
        self._reload = False
        self._wake: asyncio.Future[None] | None = None
        self._problems: dict[str, str] = {}

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
            for one, its in figures:
                await one.start(its)
            await self._run()
        finally:
            self._notify.stopping()
            for one in (server, *(one for one, _ in figures)):
                await one.close()
            await self._close()

    # ------------------------------------------------------------------ parts

    def _open(self, store: AsyncStore, events: Events) -> None:
        """Make the parts. They hold no more than descriptors and memory."""
        loop = asyncio.get_running_loop()
        self._store, self._events = store, events
        self._system, self._programs, self._gpus, self._scanner = System(), Programs(), Gpus(), Scanner()
        self._auditor = Auditor(self._setup.terms, self._scanner, self._gpus)
        self._findings = FindingTracker(Past(store.first_seen, store.last_seen))
        self._unchecked = Unchecked()
        self._state = AgentState(store, self._findings, self._setup.settings.mode, time.time())
        self._state.problems = self._all_problems
        self._looker, self._gpu_worker, self._hand = Worker("sysperf-look"), Worker("sysperf-gpu"), Worker("sysperf-fix")
        self._ends = ProcessExitWatcher(loop, self._ended)
        self._pressure = PressureWatcher(loop, self._pressed)
        self._applying = self._made_for(self._setup)
        self._look_task: asyncio.Task[None] | None = None
        self._gpu_task: asyncio.Task[None] | None = None
        self._fix_task: asyncio.Task[None] | None = None
        self._gpu_values: dict[str, float] = {}
        self._gpu_due, self._awake_until = 0.0, -REST_S
        self._look_started = self._next_at = self._sampled_at = self._feed_at = 0.0
        self._read_at: dict[str, float] = {}
        self._names: dict[int, str] = {}
        self._own = OpenFile("/proc/self/statm", time.monotonic)
        self._cpu_s, self._cpu_at = time.process_time(), time.monotonic()

    async def _close(self) -> None:
        for task in (self._look_task, self._gpu_task, self._fix_task):
            if task is not None:
                task.cancel()
        if self._applying is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._hand.run(self._applying.stop), 20)
        for worker in (self._looker, self._gpu_worker, self._hand):
            worker.close()
        self._tell("agent", "", "stopped")
        for part in (self._ends, self._pressure, self._programs, self._system, self._own):
            part.close()
        await self._store.close()
        self._log.info("stopped")

    def _made_for(self, setup: Setup) -> ApplyPolicy | None:
        fixer = self._options.fixer() if setup.settings.mode == "apply" else None
        if fixer is None:
            return None
        return ApplyPolicy(fixer, self._options.settings_of, setup.settings.apply, setup.settings.lease_s, self._log)

    # ------------------------------------------------------------------ the beat

    async def _run(self) -> None:
        """Sample at fixed times, however long a sample takes; times that passed meanwhile are left out."""
        loop = asyncio.get_running_loop()
        self._tell("agent", "", f"started, mode {self._state.mode}, sysperf {__version__}")
        self._log.info("sysperf %s watches this machine, mode %s, socket %s", __version__, self._state.mode, self._options.socket)
        if self._store.problem:
            self._log.warning("%s", self._store.problem)
        self._next_at = loop.time()
        flush_at, status_at = self._next_at + FLUSH_S, 0.0
        while not self._stop:
            now = loop.time()
            if now >= self._next_at:
                self._sample(now - self._next_at)
                self._sampled_at = now
                # Fixed times, however long a sample takes; those that passed meanwhile are left out.
                interval = self._interval(now)
                self._next_at += interval if self._next_at + interval > now else now - self._next_at + interval
            if now >= status_at:
                self._notify.status(self._status()) if status_at else self._notify.ready(self._status())
                status_at = now + STATUS_S
                _give_back()
            self._start_looking(now)
            if self._applying is not None and self._applying.due(time.monotonic()):
                self._start_fixing()  # looks may be further apart than a lease lasts
            if now >= flush_at:
                flush_at = now + FLUSH_S
                self._store.flush()
            self._feed(now)
            await self._sleep(loop, self._next_at if not self._notify.watchdog_s else min(self._next_at, self._feed_at))
            if self._reload:
                self._reload = False
                self._use_new_setup()

    def _feed(self, now: float) -> None:
        """Tell systemd that we are alive, if samples are taken."""
        if self._notify.watchdog_s and now >= self._feed_at:
            self._feed_at = now + self._notify.watchdog_s
            if now - self._sampled_at < max(LATE_S, LATE * self._interval(now)):
                self._notify.watchdog()

    def _interval(self, now: float) -> float:
        chosen = self._setup.settings.interval_s
        return chosen if self._programs.pids or now < self._awake_until else max(chosen, IDLE_S)

    async def _sleep(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        """Until then, or until something happens."""
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

    # ------------------------------------------------------------------ sampling

    def _sample(self, late_s: float) -> None:
        values = self._system.sample()
        mine, gone = self._programs.sample()
        values.update(mine)
        for pid in gone:
            self._ended(pid)
        now = time.monotonic()
        self._ask_gpus(now)
        values.update(self._gpu_values)
        self._measure_ourselves(values, now)
        values["agent.late_s"] = late_s
        self._state.samples += 1
        at = time.time()
        self._store.append(at, values)
        self._state.values = self._latest(values, now)
        if self._events.listeners:
            self._events.publish("sample", {"at": at, "meters": values})

    def _latest(self, values: dict[str, float], now: float) -> dict[str, float]:
        """What was read now, over what is read less often; nothing old, and nothing of processes that ended."""
        alive = {"", *map(str, self._programs.pids)}
        kept = {
            name: value for name, value in self._state.values.items() if now - self._read_at[name] < OLD_S and process_of(name) in alive
        }
        kept.update(values)
        self._read_at = {name: now if name in values else self._read_at[name] for name in kept}
        return kept

    def _measure_ourselves(self, values: dict[str, float], now: float) -> None:
        if now - self._cpu_at < OWN_S:
            return
        used_s = time.process_time()
        values["agent.cpu"] = (used_s - self._cpu_s) / (now - self._cpu_at)
        self._cpu_s, self._cpu_at = used_s, now
        words = (self._own.read() or b"").split()
        rss = int(words[1]) * PAGE_BYTES if len(words) > 1 else None
        if rss is not None:
            values["agent.rss_bytes"] = rss
        self._state.cost = Cost(round(used_s, 3), rss)

    def _ask_gpus(self, now: float) -> None:
        if not self._auditor.computes:
            self._gpu_values = {}
        elif now >= self._gpu_due and (self._gpu_task is None or self._gpu_task.done()):
            self._gpu_due = now + self._setup.settings.interval_s * 0.9
            self._gpu_task = asyncio.ensure_future(self._sample_gpus())

    async def _sample_gpus(self) -> None:
        def work() -> tuple[dict[str, float], float]:
            start = time.process_time()
            return self._gpus.sample(), time.process_time() - start

        with self._reported("gpu"):
            values, took_s = await self._gpu_worker.run(work)
            watched = {f"process.{pid}." for pid in self._programs.pids}
            self._gpu_values = {
                name: value for name, value in values.items() if name.startswith("gpu.") or any(map(name.startswith, watched))
            }
            self._gpu_due = max(self._gpu_due, time.monotonic() + min(SLOWEST_GPU_S, took_s / GPU_SHARE) - 1)

    # ------------------------------------------------------------------ looking

    def _start_looking(self, now: float) -> None:
        """One look at a time, and none while the last one hangs."""
        if self._look_task is not None and not self._look_task.done():
            if now - self._look_started > HANGING_S:
                self._problems["look"] = f"{self._auditor.doing or JOURNAL} takes more than {HANGING_S:g} s"
            return
        self._look_started = now
        self._look_task = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        """Look at what is due, or was changed."""
        with self._reported("look"):
            made = await self._looker.run(self._options.made)
            if made == self._state.made and not self._auditor.due():
                return
            touched = self._changed(made) if made != self._state.made and self._state.last is not None else set()
            self._state.made = made
            self._apply_result(await self._looker.run(self._auditor.run_pass), touched)
            self._problems.pop("look", None)

    def _changed(self, made: tuple[Transaction, ...]) -> set[str]:
        """Something was changed or taken back: look at once at what the rules behind it look at. Returns those rules."""
        news = [one for one in made if one.steps and one not in self._state.made]  # one without steps is being written just now
        rules = {step.change.rule for new in news for step in new.steps}
        areas = {area for rule in rules for area in self._auditor.areas_of(rule)}
        if news:
            self._auditor.invalidate(*(areas if all(map(self._auditor.areas_of, rules)) else ()))
        for new in news:
            if not new.why.startswith(OURS):  # those are told by whom they are made
                self._tell("change", new.steps[0].change.shown(), _change_told(new), {"transaction": new.number, "state": new.state})
        return rules

    def _apply_result(self, look: AuditPass, touched: Collection[str] = ()) -> None:
        """Take over what a look found."""
        first, self._state.last = self._state.last is None, look.snapshot
        programs = self._state.processes()
        pids = [program.process.pid for program in programs]
        self._names = {program.process.pid: program.process.name for program in programs}
        before = set(self._programs.pids)
        self._programs.watch(pids)
        self._ends.watch(pids)
        self._system.watch_groups(self._auditor.throttle_files)
        for program in programs:
            if program.process.pid not in before and not first:
                self._tell(
                    "process", f"{program.process.name} (pid {program.process.pid})", f"PyTorch {program.process.torch_version or ''} runs"
                )
        self._unchecked.take(look.rules, look.outcomes)
        times = Times(time.monotonic(), time.time())
        news = self._findings.take(times, look.rules, look.outcomes, self._auditor.period_s, look.present, touched)
        self._remember(times.at)
        self._announce(news)
        if first:
            gc.collect()
            gc.freeze()
            self._notify.status(self._status())
        if not before and pids:
            self._sooner()
        self._start_fixing()

    def _remember(self, at: float) -> None:
        for held in self._findings.active():
            if held.last_seen == at:
                self._store.remember(held.outcome.fingerprint, at)

    def _announce(self, news: list[Transition]) -> None:
        for new in news:
            if new.restored:
                continue
            outcome = new.held.outcome
            text = outcome.message if new.kind == "finding" else f"{outcome.title}: {_SAID[new.kind]}"
            self._tell(
                new.kind, outcome.subject, text, {"rule": outcome.rule, "key": outcome.key, "fingerprint": outcome.fingerprint}, new.held
            )
            if self._state.mode != "observe":
                self._advise(new)

    def _advise(self, transition: Transition) -> None:
        """Say in the log what is new, and what to do."""
        outcome = transition.held.outcome
        where = f" [{outcome.subject}]" if outcome.subject else ""
        if transition.kind != "finding":
            self._log.info("%s%s %s", outcome.rule, where, _SAID[transition.kind])
            return
        level = logging.WARNING if outcome.severity in ("error", "warning") else NOTICE
        fix = _best(outcome)
        todo = f" Fix: {fix.command or fix.title}" if fix else ""
        self._log.log(level, "%s%s: %s%s", outcome.rule, where, outcome.message, todo)

    def _start_fixing(self) -> None:
        """Renew leases, and make changes for what is new; one at a time."""
        if self._applying is not None and (self._fix_task is None or self._fix_task.done()):
            self._fix_task = asyncio.ensure_future(self._fix(self._applying))

    async def _fix(self, applying: ApplyPolicy) -> None:
        with self._reported("fix"):
            active = self._findings.active()
            made = await self._hand.run(lambda: applying.step(active, time.monotonic()))
            for transaction, outcome in made:
                self._tell("change", outcome.subject, f"fixed {outcome.rule}", {"rule": outcome.rule, "transaction": transaction})
            if made:
                self._auditor.invalidate(*{area for _, outcome in made for area in self._auditor.areas_of(outcome.rule)})

    # ------------------------------------------------------------------ what happens

    def _ended(self, pid: int) -> None:
        self._ends.forget(pid)
        self._programs.forget(pid)
        self._auditor.ended(pid)
        name = self._names.pop(pid, "")
        self._tell("process", f"{name} (pid {pid})" if name else f"pid {pid}", "ended")
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
            setup = self._checked_setup()
        except SysperfError as error:
            self._problems["reload"] = f"not reloaded: {error}"
            self._log.error("not reloaded, the former rules stay in force: %s%s", error, f" ({error.hint})" if error.hint else "")
            self._tell("agent", "", f"not reloaded: {error}")
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the new configuration, the old one works
            self._problems["reload"] = f"not reloaded: {type(error).__name__}: {error}"
            self._log.error("not reloaded, the former rules stay in force: %s: %s", type(error).__name__, error)
        else:
            self._problems.pop("reload", None)
            self._take_over(setup)
        self._notify.ready(self._status())

    def _checked_setup(self) -> Setup:
        """What is to be in force, without the rules that nobody judges here. Raises SysperfError."""
        setup = self._load()
        _require_fixer(setup, self._options)
        setup.terms.ruleset.keep_scopes(JUDGED)
        return setup

    def _take_over(self, setup: Setup) -> None:
        before, self._setup = self._setup, setup
        self._state.mode = setup.settings.mode
        self._auditor.renew(setup.terms)
        rules = {rule.id for rule in setup.terms.ruleset.rules}
        self._announce(self._findings.keep_rules(rules, Times(time.monotonic(), time.time())))
        if _allowed(setup) != _allowed(before):
            if self._applying is not None:
                self._fix_task = asyncio.ensure_future(self._hand.run(self._applying.stop))
            self._applying = self._made_for(setup)
        self._log.info("reloaded: %s rules, mode %s", len(rules), setup.settings.mode)
        self._tell("agent", "", f"reloaded, mode {setup.settings.mode}")

    # ------------------------------------------------------------------ telling

    def _tell(self, kind: str, subject: str, text: str, data: Any = None, payload: Any = None) -> None:
        """Keep an event, and pass it on."""
        at = time.time()
        number = self._store.event(at, kind, subject, text, data)
        if self._events.listeners:
            self._events.publish(kind, Event(number, at, kind, subject, text, data if payload is None else payload), number)

    def _status(self) -> str:
        active, programs = len(self._findings.active()), len(self._programs.pids)
        return f"{programs} PyTorch process{'' if programs == 1 else 'es'}, {active} finding{'' if active == 1 else 's'}"

    def _all_problems(self) -> tuple[str, ...]:
        parts: list[Mapping[str, str]] = [self._system.problems, self._programs.problems]
        files = [f"{path}: {problem}" for part in parts for path, problem in part.items()]
        said = [f"{name}: {problem}" for name, problem in self._problems.items()]
        ours = (self._gpus.problem, self._scanner.problem, self._pressure.problem, self._applying.problem if self._applying else "")
        hidden = (self._scanner.hidden(), self._unchecked.problem())
        return (*filter(None, hidden), *sorted([*said, *files[:50], *filter(None, ours)]))

    @contextlib.contextmanager
    def _reported(self, part: str) -> Iterator[None]:
        """A part that breaks is a problem to report, not the end of the agent."""
        try:
            yield
            self._problems.pop(part, None)
        except Exception as error:  # noqa: BLE001 - the agent outlives a bug in one of its parts
            self._problems[part] = f"{type(error).__name__}: {error}"[:300]
            self._log.error("%s failed: %s: %s", part, type(error).__name__, error)


_SAID = {"gone": "gone", "flapping": "keeps coming and going"}


def _allowed(setup: Setup) -> tuple[object, ...]:
    """What may be changed, and for how long."""
    settings = setup.settings
    return settings.mode == "apply", settings.apply, settings.lease_s


def _change_told(transaction: Transaction) -> str:
    """``vm.swappiness: 60 → 10``, or that it is ``undone``."""
    change = transaction.steps[0].change
    more = f" and {len(transaction.steps) - 1} more" if len(transaction.steps) > 1 else ""
    told = f"{change.shown()}: {change.before} → {change.after}{more}"
    return (told if transaction.state == "applied" else f"{transaction.state.replace('-', ' ')}: {told}")[:300]


def _best(outcome: Outcome) -> Remedy | None:
    """The fix to name: one with a command rather than an advice."""
    return next((fix for fix in outcome.fixes if fix.command), outcome.fixes[0] if outcome.fixes else None)


def _require_fixer(setup: Setup, options: Options) -> None:
    """Mode `apply` without somebody who can make changes refuses to start. Raises UsageError."""
    if setup.settings.mode != "apply":
        return
    checked(setup.settings.apply, {rule.id for rule in setup.terms.ruleset.rules})
    if options.fixer() is None:
        raise UsageError(
            "mode `apply` needs the helper, which makes the changes, and there is none here",
            "install it with `sysperf service install`, or use `--mode advise`, which only says what to do",
        )


def _libc(function: str, *arguments: int) -> None:
    """Call the C library where it is glibc; others neither have nor need these calls."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None)[function](*arguments)


def _give_back() -> None:
    """Let go of garbage and of free memory: looks leave some of both. What lives as long as the agent is frozen, so this is cheap."""
    gc.collect()
    _libc("malloc_trim", 0)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""mallopt(3)."""
LARGE_BYTES = 64 << 10


def run(agent: Agent) -> None:
    """Run until stopped."""
    gc.enable()
    _libc("mallopt", M_ARENA_MAX, 1)  # a heap for each thread would cost 1 to 2 MB each
    _libc("mallopt", M_MMAP_THRESHOLD, LARGE_BYTES)  # what is large goes back to the kernel when it is freed, and leaves no hole
    _libc("mallopt", M_TRIM_THRESHOLD, LARGE_BYTES)
    os.environ.pop("NOTIFY_SOCKET", None)  # not for our children
    asyncio.run(agent.run())
