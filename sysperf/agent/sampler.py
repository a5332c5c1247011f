"""The agent's samples: system and programs in each period, GPUs in a thread of their own, and what the agent itself uses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sysperf.agent.events import Events
from sysperf.agent.problems import Problems
from sysperf.agent.state import AgentState
from sysperf.agent.status import Cost
from sysperf.live.gpus import Gpus
from sysperf.live.metric import process_of
from sysperf.live.open_file import OpenFile
from sysperf.live.programs import Programs
from sysperf.live.system import PAGE_BYTES, System
from sysperf.live.worker import Worker

OWN_S = 10.0
"""Time between two measurements of the agent itself."""
STALE_AFTER_S = 60.0
"""What was not read for so long is unknown."""
SWEEP_S = 5.0
"""Time between two looks for what is stale; a process that ended is dropped at once."""
GPU_SHARE = 0.001
"""GPUs that are slow to answer are asked less often, so that it takes no more than this of a CPU."""
MAX_GPU_PERIOD_S = 10.0


class Sampler:
    """Takes one sample after another, and keeps the latest value of each series."""

    def __init__(self, state: AgentState, events: Events, gpus: Gpus, problems: Problems) -> None:
        self._state, self._events, self._gpus, self._problems = state, events, gpus, problems
        self.system, self.programs = System(), Programs()
        self._gpu_worker = Worker("sysperf-gpu")
        self._gpu_task: asyncio.Task[None] | None = None
        self._gpu_values: dict[str, float] = {}
        self._gpu_due = 0.0
        self._read_at: dict[str, float] = {}
        self._swept_at = -STALE_AFTER_S
        self._alive: frozenset[int] = frozenset()
        self._own = OpenFile("/proc/self/statm", time.monotonic)
        self._cpu_s, self._cpu_at = time.process_time(), time.monotonic()

    def sample(self, late_s: float, interval_s: float, *, gpus_compute: bool, ended: Callable[[int], None]) -> None:
        """Take a sample, which comes so late; `ended` hears of programs that are gone."""
        values = self.system.sample()
        of_programs, gone = self.programs.sample()
        values.update(of_programs)
        for pid in gone:
            ended(pid)
        now = time.monotonic()
        self._ask_gpus(now, interval_s, compute=gpus_compute)
        values.update(self._gpu_values)
        self._measure_ourselves(values, now)
        values["agent.late_s"] = late_s
        self._state.samples += 1
        at = time.time()
        self._state.store.append(at, values)
        self._state.values = self._latest(values, now)
        if self._events.listeners:
            self._events.publish("sample", {"at": at, "meters": values})

    def cancel(self) -> None:
        """Wait for no GPU any more."""
        if self._gpu_task is not None:
            self._gpu_task.cancel()

    def close(self) -> None:
        """Close threads and files."""
        self._gpu_worker.close()
        for part in (self.programs, self.system, self._own):
            part.close()

    def _latest(self, values: dict[str, float], now: float) -> dict[str, float]:
        """What was read now, over what is read less often; nothing old, and nothing of processes that ended."""
        self._read_at.update(dict.fromkeys(values, now))
        latest = {**self._state.values, **values}
        alive = frozenset(self.programs.pids)
        if alive == self._alive and now - self._swept_at < SWEEP_S:
            return latest
        self._alive, self._swept_at = alive, now
        of_alive = {"", *map(str, alive)}
        self._read_at = {
            name: at for name, at in self._read_at.items() if now - at < STALE_AFTER_S and (name in values or process_of(name) in of_alive)
        }
        return {name: latest[name] for name in self._read_at}

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

    def _ask_gpus(self, now: float, interval_s: float, *, compute: bool) -> None:
        if not compute:
            self._gpu_values = {}
        elif now >= self._gpu_due and (self._gpu_task is None or self._gpu_task.done()):
            self._gpu_due = now + interval_s * 0.9
            self._gpu_task = asyncio.ensure_future(self._sample_gpus())

    async def _sample_gpus(self) -> None:
        def work() -> tuple[dict[str, float], float]:
            start = time.process_time()
            return self._gpus.sample(), time.process_time() - start

        with self._problems.reported("gpu"):
            values, took_s = await self._gpu_worker.run(work)
            watched = {f"process.{pid}." for pid in self.programs.pids}
            self._gpu_values = {
                name: value for name, value in values.items() if name.startswith("gpu.") or any(map(name.startswith, watched))
            }
            self._gpu_due = max(self._gpu_due, time.monotonic() + min(MAX_GPU_PERIOD_S, took_s / GPU_SHARE) - 1)
