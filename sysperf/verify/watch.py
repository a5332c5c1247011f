"""Clocks, temperatures and GPUs of a run, sampled each second by a process of its own.

Of its own, because NVML does not survive a fork, a call into a sick driver may never return, and an open NVML keeps GPUs awake
between runs. It is forked before the run, ends with it, and is killed when sysperf is.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import NoReturn

import msgspec

from sysperf.host import Host
from sysperf.host.descendants import descendants
from sysperf.host.forked import close_all_but, ending_with_parent
from sysperf.model.comparison import Conditions
from sysperf.model.record import Record
from sysperf.verify import gpu_sensors, sensors
from sysperf.verify.gpu_sensors import GpuConditions, GpuSensors
from sysperf.verify.sensors import Sensors

FIRST_S, PERIOD_S = 0.25, 1.0
ANSWER_S = 5.0
"""How long the samples are waited for after the run: a call into a driver that hangs may hold them."""


class Watched(Record):
    """What a run met, and what could not be seen of it."""

    conditions: Conditions = Conditions()
    unknown: tuple[str, ...] = ()


class _Samples(Record):
    """What the sampling process tells."""

    cpu_mhz: float | None = None
    cpu_celsius: float | None = None
    gpu: GpuConditions = GpuConditions()
    problems: tuple[str, ...] = ()


@contextlib.contextmanager
def watching() -> Iterator[Callable[[], Watched]]:
    """Watch the machine while this block runs; the function that it gives returns what was seen. Never raises."""
    host = Host()
    machine_sensors, has_gpus = sensors.find(host), host.exists(gpu_sensors.DRIVER) is True
    sampler = _Sampler(machine_sensors, has_gpus=has_gpus) if has_gpus or machine_sensors.clocks or machine_sensors.temperatures else None
    before = sensors.read(host)

    def seen() -> Watched:
        shares = sensors.between(before, sensors.read(Host()))
        samples = sampler.result() if sampler else _Samples()
        gpu = samples.gpu
        cpu_waiting, memory_waiting, io_waiting = shares.waiting
        conditions = Conditions(
            cpu_waiting=cpu_waiting,
            memory_waiting=memory_waiting,
            io_waiting=io_waiting,
            cpu_slowed=shares.slowed,
            cpu_mhz=samples.cpu_mhz,
            cpu_celsius=samples.cpu_celsius,
            gpus=gpu.gpus,
            gpu_mhz=gpu.mhz,
            gpu_celsius=gpu.celsius,
            gpu_slowed=gpu.slowed,
            gpu_others=gpu.others,
        )
        return Watched(conditions, (*sensors.unknown(before, machine_sensors), *gpu_sensors.unknown(host), *samples.problems))

    try:
        yield seen
    finally:
        if sampler:
            sampler.end()


class _Sampler:
    """The process that takes samples until its pipe is closed."""

    def __init__(self, machine_sensors: Sensors, *, has_gpus: bool) -> None:
        stop, self._stop = os.pipe()
        self._result, result = os.pipe()
        parent, end_with_parent = os.getpid(), ending_with_parent(signal.SIGKILL)
        self._pid = os.fork()
        if self._pid == 0:
            _sample(parent, end_with_parent, stop, result, machine_sensors, has_gpus=has_gpus)
        os.close(stop)
        os.close(result)

    def result(self) -> _Samples:
        """Have it stop, and return what it saw."""
        os.close(self._stop)
        self._stop = -1
        raw, has_ended, end = b"", False, time.monotonic() + ANSWER_S
        while select.select([self._result], [], [], max(0.0, end - time.monotonic()))[0]:
            part = os.read(self._result, 65_536)
            if not part:
                has_ended = True
                break
            raw += part
        try:
            return msgspec.msgpack.decode(raw, type=_Samples)
        except msgspec.MsgspecError:
            why = "the process that reads them ended" if has_ended else f"they did not answer within {ANSWER_S:g} s"
            return _Samples(problems=(f"clocks, temperatures and GPUs ({why})",))

    def end(self) -> None:
        """Kill it. One that hangs in the driver cannot be waited for."""
        for descriptor in (self._stop, self._result):
            if descriptor >= 0:
                os.close(descriptor)
        os.kill(self._pid, signal.SIGKILL)
        for _ in range(200):  # a second: a crowded machine takes its time
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                return
            time.sleep(0.005)


def _sample(
    parent: int, end_with_parent: Callable[[], object], stop: int, result: int, machine_sensors: Sensors, *, has_gpus: bool
) -> NoReturn:
    """The sampling process: never returns, and holds no file of ours open, such as the lock of the study."""
    try:
        end_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        close_all_but({stop, result})
        samples = _sampled(parent, stop, machine_sensors, has_gpus=has_gpus)
        os.write(result, msgspec.msgpack.encode(samples))
    finally:
        os._exit(0)


def _sampled(parent: int, stop: int, machine_sensors: Sensors, *, has_gpus: bool) -> _Samples:
    host, mhz, celsius = Host(), list[float](), list[float]()
    gpus: GpuSensors | None = None
    wait_s = FIRST_S
    while not select.select([stop], [], [], wait_s)[0]:
        wait_s = PERIOD_S
        if has_gpus and gpus is None:  # not before the program: it would find GPUs that we had woken
            gpus = GpuSensors(host.nvml_library(), lambda: _program(parent), host)
        if gpus:
            gpus.sample()
        for read, values in ((sensors.mhz, mhz), (sensors.celsius, celsius)):
            if (value := read(Host(), machine_sensors)) is not None:
                values.append(value)
    gpu = gpus.conditions() if gpus else GpuConditions()
    return _Samples(fmean(mhz) if mhz else None, fmean(celsius) if celsius else None, gpu, tuple(gpus.problems) if gpus else ())


def _program(parent: int) -> set[int]:
    """The processes of the measured program: all that sysperf has started but this one."""
    return set(descendants(parent)) - {os.getpid()}
