"""Facts about what is seen of a machine during a run: its CPUs by files, its GPUs by NVML, and what is said where it is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sysperf.host import Host
from sysperf.verify import gpu_sensors, sensors, watch
from sysperf.verify.gpu_sensors import GpuConditions, GpuSensors
from sysperf.verify.sensors import Counters, Sensors, Shares
from tests.conftest import make_machine
from tests.stand_ins import build_nvml

ROOT = Path(__file__).resolve().parent.parent.parent
PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
CPU0 = "/sys/devices/system/cpu/cpu0"
NOT_SUPPORTED = OSError("Not Supported")


def test_counters_are_those_of_the_machine() -> None:
    """Waiting by resource, and how long heat slowed each package; what is not there is unknown, and said."""
    host = make_machine({
        "/proc/pressure/cpu": PSI.format(2_000_000),
        "/proc/pressure/memory": PSI.format(5),
        f"{CPU0}/thermal_throttle/package_throttle_total_time_ms": "120\n",
        "/sys/devices/system/cpu/cpu9/thermal_throttle/package_throttle_total_time_ms": "700\n",
    })  # fmt: skip
    conditions = sensors.read(host)

    assert (conditions.waiting_us, sorted(conditions.slowed_ms.values())) == ((2_000_000, 5, None), [120, 700])
    assert sensors.unknown(conditions, Sensors()) == [
        "waiting for io (the kernel gives no PSI)",
        "clocks, temperature of the CPUs (the kernel shows none)",
    ]


def test_shares_are_of_the_time_between_two_moments() -> None:
    """A counter that is absent at one end, or runs backwards, says nothing."""
    before, after = Counters(10.0, (100, 7, None), {"0": 50}), Counters(12.0, (1_000_100, 6, 3), {"0": 150})

    assert sensors.between(before, after) == Shares((0.5, None, None), 0.05)
    assert sensors.between(after, before) == Shares()


def test_no_share_is_more_than_all_of_the_time() -> None:
    """The counters are read a moment after the clock."""
    before, after = Counters(10.0, (0, 0, 0), {"0": 0}), Counters(11.0, (1_000_900, 0, 0), {"0": 1_002})

    assert sensors.between(before, after) == Shares((1.0, 0.0, 0.0), 1.0)


def test_the_package_that_heat_slows_now_counts() -> None:
    """Not the one that was slowed most since boot; a CPU that went offline says nothing."""
    paths = [f"/sys/devices/system/cpu/cpu{cpu}/thermal_throttle/package_throttle_total_time_ms" for cpu in (0, 64, 65)]
    before = sensors.read(make_machine(dict(zip(paths, ("900000\n", "5\n", "5\n"), strict=True))))
    after = sensors.read(make_machine(dict(zip(paths, ("900000\n", "405\n"), strict=False))))

    assert sensors.between(before._replace(at_s=10.0), after._replace(at_s=11.0)).slowed == 0.4


def test_clocks_and_temperatures_of_the_cpus() -> None:
    """The mean clock, and the hottest package of the drivers that know packages."""
    own = min(os.sched_getaffinity(0))
    host = make_machine({
        f"/sys/devices/system/cpu/cpu{own}/cpufreq/scaling_cur_freq": "2400000\n",
        "/sys/class/hwmon/hwmon0/name": "nvme\n", "/sys/class/hwmon/hwmon0/temp1_input": "90000\n",
        "/sys/class/hwmon/hwmon1/name": "coretemp\n", "/sys/class/hwmon/hwmon1/temp1_input": "61000\n",
        "/sys/class/hwmon/hwmon2/name": "coretemp\n", "/sys/class/hwmon/hwmon2/temp1_input": "64500\n",
    })  # fmt: skip
    machine_sensors = sensors.find(host)

    assert (sensors.mhz(host, machine_sensors), sensors.celsius(host, machine_sensors)) == (2_400.0, 64.5)
    assert sensors.mhz(make_machine(), machine_sensors) is None


def test_of_many_cpus_some_clocks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may have to ask each CPU: 16 at most, from the first to the last."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(250)))
    host = make_machine({f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq": f"{cpu}\n" for cpu in range(250)})
    read = [host.number(path) for path in sensors.find(host).clocks]

    assert read == list(range(0, 250, 16))


# ---------------------------------------------------------------------- GPUs


class Recorded:
    """NVML that answers from a dict: a call with its arguments, or its name alone. What is not there is not supported."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    def ask_all(self, questions: Sequence[tuple[str, tuple[int | str, ...]]]) -> list[Any]:
        return [self._answer(name, args) for name, args in questions]

    def _answer(self, name: str, args: tuple[int | str, ...]) -> Any:
        return self.answers.get(f"{name}({','.join(map(str, args))})", self.answers.get(name, NOT_SUPPORTED))


def running(*pids: int) -> list[dict[str, int]]:
    """Processes that compute on a GPU."""
    return [{"pid": pid, "usedGpuMemory": 1} for pid in pids]


def used(pid: int, percent: int, at_us: int = 5) -> dict[str, int]:
    """What a process used of the multiprocessors."""
    return {"pid": pid, "smUtil": percent, "timeStamp": at_us}


BUSY: dict[str, Any] = {
    "DeviceGetCount": 2,
    "DeviceGetComputeRunningProcesses_v3(0)": running(100, 200),
    "DeviceGetComputeRunningProcesses_v3(1)": running(200),
    "DeviceGetCurrentClocksEventReasons": 0x4,
    "DeviceGetClockInfo": 1_755,
    "DeviceGetTemperature": 64,
    "DeviceGetProcessUtilization": [used(100, 80), used(200, 30), used(200, 10)],
}
INITIAL = {"/proc/self/ns/pid": "pid:[4026531836]"}


def sampled(answers: dict[str, Any], times: int = 2, host: Host | None = None) -> GpuSensors:
    """Samples of a program that is process 100."""
    gpu_sensors = GpuSensors(Recorded(answers), lambda: {100}, host or make_machine(links=INITIAL))
    for _ in range(times):
        gpu_sensors.sample()
    return gpu_sensors


def test_the_gpus_that_the_program_uses_are_watched() -> None:
    """GPU 1 is another's. The power limit is no slow-down; kernels of others are counted from the second sample on."""
    conditions = sampled(BUSY).conditions()
    assert conditions[:4] == ((0,), 1_755.0, 64.0, 0.0)
    assert conditions.others == pytest.approx(0.2)
    assert sampled(BUSY, times=1).conditions().others is None
    assert sampled({**BUSY, "DeviceGetProcessUtilization": OSError("Not Found")}).conditions().others == 0.0


@pytest.mark.parametrize(("reasons", "slowed"), [(0x40, 1.0), (0x20, 1.0), (0x80, 1.0), (0x8, 1.0), (0x0, 0.0)])
def test_heat_power_brakes_and_hardware_slow_a_gpu(reasons: int, slowed: float) -> None:
    """As NVML names the reasons; the name of the call before driver 535 does as well."""
    new, old = "DeviceGetCurrentClocksEventReasons", "DeviceGetCurrentClocksThrottleReasons"

    assert sampled({**BUSY, new: reasons}).conditions().slowed == slowed
    assert sampled({**BUSY, new: OSError("Function Not Found"), old: reasons}).conditions().slowed == slowed


def test_an_idle_gpu_has_no_clock_to_compare() -> None:
    """It waits at a low one for work."""
    conditions = sampled({**BUSY, "DeviceGetCurrentClocksEventReasons": 0x1}).conditions()

    assert (conditions.gpus, conditions.mhz, conditions.slowed, conditions.celsius) == ((0,), None, None, 64.0)


def test_what_a_gpu_does_not_say_is_unknown_and_said() -> None:
    """A card without these sensors, one that is lost, a driver that does not answer, programs that share through MPS."""
    bare = sampled({name: BUSY[name] for name in BUSY if "Processes" in name or name == "DeviceGetCount"})
    assert bare.conditions() == GpuConditions((0,))
    assert [problem.partition(" of ")[0] for problem in bare.problems] == [
        "throttling",
        "clock",
        "temperature",
        "others on GPU 0 (Not Supported)",
    ]

    lost = sampled({**BUSY, "DeviceGetComputeRunningProcesses_v3(1)": OSError("GPU is lost")})
    assert lost.problems == ["GPU 1 (GPU is lost)"]

    silent = sampled({"DeviceGetCount": OSError("nvmlInit did not answer within 30 s: the driver hangs")})
    assert silent.problems == ["GPUs (nvmlInit did not answer within 30 s: the driver hangs)"]
    assert silent.conditions() == GpuConditions()

    shared = sampled(BUSY, host=make_machine({"/proc/200/comm": "nvidia-cuda-mps-server\n"}, INITIAL))
    assert shared.conditions().others is None
    assert "through MPS" in shared.problems[0]


def test_in_a_container_all_busy_gpus_are_watched() -> None:
    """The driver counts processes otherwise: whose kernels ran is not known, and that is said."""
    conditions = sampled(
        {**BUSY, "DeviceGetComputeRunningProcesses_v3(0)": running(9_000)}, host=make_machine(links={"/proc/self/ns/pid": "pid:[1]"})
    )

    assert conditions.conditions() == GpuConditions((0, 1), 1_755.0, 64.0, 0.0, None)
    assert conditions.problems == [gpu_sensors.NOT_OURS]


def test_a_gpu_that_only_others_use_is_not_watched() -> None:
    """On the machine itself the numbers of processes are ours, also while the program computes on no GPU."""
    nobody = sampled({**BUSY, "DeviceGetComputeRunningProcesses_v3(0)": running(200)})

    assert nobody.conditions() == GpuConditions()
    assert nobody.problems == []


def test_no_more_gpus_are_asked_for_than_machines_have() -> None:
    """Whatever number a driver says."""
    asked = list[tuple[int | str, ...]]()

    class Counting(Recorded):
        def _answer(self, name: str, args: tuple[int | str, ...]) -> Any:
            asked.append(args)
            return super()._answer(name, args)

    GpuSensors(Counting({"DeviceGetCount": 1 << 40}), lambda: {100}, make_machine(links=INITIAL)).sample()

    assert len(asked) == 1 + gpu_sensors.MAX_GPUS


def test_answers_of_another_shape_say_nothing() -> None:
    """Whatever a later driver returns."""
    answers: list[Any] = [None, "text", {"a": 1}, [1, "x"], [{"pid": None}], [{}]]
    for answer in answers:
        sampled({"DeviceGetCount": 1, "DeviceGetComputeRunningProcesses_v3": answer})
        conditions = sampled(
            {**BUSY, **dict.fromkeys([name for name in BUSY if "Clock" in name or "Temp" in name or "Util" in name], answer)}
        )
        assert conditions.conditions()[1:4] == (None, None, None)


# ---------------------------------------------------------------------- the process that samples


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libnvidia-ml.so.1 made for tests."""
    return build_nvml(tmp_path_factory.mktemp("nvml"))


MEASURE = """
import json, sys
from sysperf.engine.verify.measuring import measure
from sysperf.model.comparison import Metric, Variant
from sysperf.model.record import plain
from sysperf.verify import gpu_sensors, watch
gpu_sensors.DRIVER, watch.FIRST_S, watch.PERIOD_S, watch.ANSWER_S = "/proc/version", 0.3, 0.1, 1.0
script = "echo $$ > " + sys.argv[1] + "; sleep 3"
done = measure(Variant("A", ("sh", "-c", script)), Metric("wall time", "s"), 30.0)
print(json.dumps([plain(done.conditions), done.unwatched, done.wall_s]))
"""


def measured(library: Path, folder: Path, mode: str = "") -> Any:
    """What a run met where that library is the machine's NVML, and the program computes on its GPUs."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(library), "FAKE_NVML": mode}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(folder / "pid")],
        env={**env, "FAKE_NVML_USER": str(folder / "pid")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert not done.returncode, done.stderr
    assert not done.stderr
    return json.loads(done.stdout)


def test_a_run_is_watched_through_nvml(library: Path, tmp_path: Path) -> None:
    """The GPU that the program computes on, slowed by heat, and another program's kernels; the GPU that is lost is said."""
    conditions, unwatched, _ = measured(library, tmp_path)

    assert conditions["gpus"] == [0]
    assert (conditions["gpu_mhz"], conditions["gpu_celsius"], conditions["gpu_slowed"]) == (1_755.0, 64.0, 1.0)
    assert conditions["gpu_others"] == pytest.approx(0.1)
    assert any("GPU 1" in problem for problem in unwatched)


def test_a_driver_that_hangs_does_not_hold_a_study_up(library: Path, tmp_path: Path) -> None:
    """The run is timed as ever; what was not seen is said."""
    conditions, unwatched, wall_s = measured(library, tmp_path, "slow-start")

    assert conditions["gpu_mhz"] is None
    assert "did not answer within 1 s" in unwatched[-1]
    assert 2.9 < wall_s < 20


def test_a_sampler_that_ended_is_not_called_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it, and what is said of it is so."""

    def fails(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(watch, "_sampled", fails)
    sampler = watch._Sampler(Sensors(), has_gpus=False)
    try:
        assert sampler.result().problems == ("clocks, temperatures and GPUs (the process that reads them ended)",)
    finally:
        sampler.end()


def test_a_sampler_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is gone when the run is over, with nothing left to wait for."""
    monkeypatch.setattr(watch, "_sampled", lambda *_, **__: time.sleep(60))
    sampler = watch._Sampler(Sensors(), has_gpus=False)
    sampler.end()

    with pytest.raises(ChildProcessError):
        os.waitpid(sampler._pid, 0)


def test_ctrl_c_does_not_end_the_sampler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A terminal sends it to all processes of the group: what was seen until then is told."""
    ready = tmp_path / "ready"

    def samples(_parent: int, stop: int, *_: object, **__: object) -> watch._Samples:
        ready.touch()
        os.read(stop, 1)
        return watch._Samples(cpu_mhz=2_000.0)

    monkeypatch.setattr(watch, "_sampled", samples)
    sampler = watch._Sampler(Sensors(), has_gpus=False)
    try:
        while not ready.exists():
            time.sleep(0.01)
        os.kill(sampler._pid, signal.SIGINT)
        assert sampler.result() == watch._Samples(cpu_mhz=2_000.0)
    finally:
        sampler.end()
