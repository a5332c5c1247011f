"""Facts about live meters: what they say, what they leave out, and what they cost."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.collect.process import workers
from sysperf.host import Host
from sysperf.live.gpus import Gpus
from sysperf.live.metrics import METERS, describe
from sysperf.live.open_file import MAX_SKIPPED, RETRY_S, OpenFile
from sysperf.live.programs import BUDGET_S, SLOW_S, Programs
from sysperf.live.scan import Scanner
from sysperf.live.system import Rates, System
from tests import gpus
from tests.agent.machines import FAKE_TORCH, SLEEPERS, Clock, RecordedNvml, programs, until
from tests.collect.programs import LOADER, torch_library
from tests.conftest import make_machine
from tests.stand_ins import NO_COMPILER

STAT = "cpu  {user} 0 {system} {idle} {iowait} 0 0 0 0 0\ncpu0 {user} 0 {system} {idle} {iowait} 0 0 0 0 0\nprocs_running 3\n"


def tree(folder: Path, files: dict[str, str]) -> str:
    """These files below a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


# ---------------------------------------------------------------------- files


def test_a_kept_file_is_read_anew(tmp_path: Path) -> None:
    """Each reading is the file as it is now, however large it became."""
    path = tmp_path / "stat"
    kept = OpenFile(str(path), Clock())
    path.write_bytes(b"one")
    assert kept.read() == b"one"

    path.write_bytes(b"x" * 100_000)
    assert kept.read() == b"x" * 100_000
    kept.close()


def test_an_absent_file_says_so_and_is_left_alone(tmp_path: Path) -> None:
    """None with the reason; it is tried again after a while."""
    clock, path = Clock(), tmp_path / "late"
    kept = OpenFile(str(path), clock)

    assert kept.read() is None
    assert kept.problem == os.strerror(errno.ENOENT)
    assert kept.gone
    path.write_bytes(b"here")
    assert kept.read() is None, "too early to ask again"
    clock.now += RETRY_S
    assert kept.read() == b"here"
    assert (kept.problem, kept.gone) == ("", False)
    kept.close()


def test_no_descriptors_left_is_a_reason(tmp_path: Path) -> None:
    """Out of descriptors: the meter is unknown, nothing breaks, and it comes back."""
    clock = Clock()
    kept = OpenFile("/proc/stat", clock)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        assert kept.read() is None
        assert kept.problem == os.strerror(errno.EMFILE)
        assert not kept.gone
        system = System(clock)
        assert system.sample() == {}
        assert system.problems
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    clock.now += RETRY_S
    assert kept.read()
    assert "memory.available_bytes" in system.sample()
    kept.close()
    system.close()


def test_a_costly_file_is_read_less_often(tmp_path: Path) -> None:
    """A reading of 10 ms is left out in the next turns."""
    (tmp_path / "slow").write_bytes(b"x")
    clock = Clock()

    def ticking() -> float:
        clock.now += 0.01
        return clock.now

    kept = OpenFile(str(tmp_path / "slow"), clock)
    taken = [kept.read_if_cheap(ticking) is not None for _ in range(60)]

    assert taken[0]
    assert 60 // (MAX_SKIPPED + 1) <= sum(taken) <= 4
    kept.close()


def test_a_file_that_was_waited_for_is_read_each_time(tmp_path: Path) -> None:
    """On a loaded machine a cheap read takes long, because the CPU was given to others meanwhile."""
    (tmp_path / "file").write_bytes(b"x")
    wall = Clock()

    def ticking() -> float:
        wall.now += 0.02
        return wall.now

    kept = OpenFile(str(tmp_path / "file"), ticking)
    assert [kept.read_if_cheap() for _ in range(5)] == [b"x"] * 5
    kept.close()


# ---------------------------------------------------------------------- the machine


def test_every_meter_of_this_machine_is_documented() -> None:
    """What is sampled has a line that says what it is, and shares are shares."""
    system = System()
    system.sample()
    time.sleep(0.2)

    values = system.sample()

    assert values["memory.available_bytes"] > 0
    assert all(describe(name) for name in values)
    shares = [name for name in values if describe(name).startswith("share")]
    assert shares
    assert all(0 <= values[name] <= 1 for name in shares)
    system.close()


def test_cpu_shares_are_what_was_spent(tmp_path: Path) -> None:
    """Of 100 ticks 30 in programs, 10 in the kernel, 20 waiting for a disk: 40 % busy."""
    clock = Clock()
    root = tree(tmp_path, {"proc/stat": STAT.format(user=100, system=50, idle=1000, iowait=10)})
    system = System(clock, root)
    assert "cpu.busy" not in system.sample(), "one reading is no rate"
    assert system.per_cpu() == {}

    clock.now += 1
    tree(tmp_path, {"proc/stat": STAT.format(user=130, system=60, idle=1040, iowait=30)})
    values = system.sample()

    assert (values["cpu.busy"], values["cpu.user"], values["cpu.system"], values["cpu.iowait"]) == pytest.approx((0.4, 0.3, 0.1, 0.2))
    assert values["cpu.runnable"] == 3
    assert system.per_cpu() == pytest.approx({0: 0.4})
    system.close()


def test_only_hardware_counts(tmp_path: Path) -> None:
    """A bridge, a partition and a loop device would count the same bytes twice."""
    clock = Clock()
    net = "Inter-|\n face |\n  lo: 9 0 0 0 0 0 0 0 9\n br0: {0} 0 0 0 0 0 0 0 {0}\neth0: {0} 0 0 0 0 0 0 0 7\n"
    disks = "259 0 nvme0n1 1 0 {0} 0 0 0 0 0 0 {0} 0\n259 1 nvme0n1p1 1 0 {0} 0 0 0 0 0 0 {0} 0\n7 0 loop0 1 0 {0} 0 0 0 0 0 0 0 0\n"
    fixed = {"sys/class/net/eth0/device/x": "", "sys/class/net/br0/x": "", "sys/block/nvme0n1/device/x": "", "sys/block/loop0/x": ""}
    system = System(clock, tree(tmp_path, {**fixed, "proc/net/dev": net.format(100), "proc/diskstats": disks.format(1000)}))
    system.sample()

    clock.now += 2
    tree(tmp_path, {"proc/net/dev": net.format(300), "proc/diskstats": disks.format(2000)})
    values = system.sample()

    assert values["network.received_bytes_per_s"] == 100
    assert values["network.sent_bytes_per_s"] == 0
    assert values["disk.read_bytes_per_s"] == 500 * 512
    assert values["disk.busy"] == 0.5
    system.close()


def test_quotas_of_both_cgroup_versions(tmp_path: Path) -> None:
    """v2 counts microseconds, v1 nanoseconds; both become CPUs' worth of time."""
    clock = Clock()
    system = System(clock, tree(tmp_path, {"v2/cpu.stat": "throttled_usec 0\n", "v1/cpu.stat": "throttled_time 0\n"}))
    system.watch_groups(("/v1/cpu.stat", "/v2/cpu.stat"))
    system.sample()

    clock.now += 2
    tree(tmp_path, {"v2/cpu.stat": "throttled_usec 1000000\n", "v1/cpu.stat": "throttled_time 3000000000\n"})

    assert system.sample()["cgroup.throttled_cpus"] == 2.0
    system.watch_groups(())
    assert "cgroup.throttled_cpus" not in system.sample()
    system.close()


def test_a_machine_without_pressure_has_none(tmp_path: Path) -> None:
    """A kernel without PSI: the meters are left out, and the reason is kept."""
    system = System(Clock(), tree(tmp_path, {"proc/stat": STAT.format(user=1, system=1, idle=1, iowait=1)}))

    values = system.sample()

    assert not [name for name in values if name.startswith("pressure.")]
    assert system.problems["/proc/pressure/cpu"] == os.strerror(errno.ENOENT)
    system.close()


def test_counters_that_run_backwards_give_no_rate() -> None:
    """A driver that was loaded again starts from 0."""
    rates = Rates()

    assert rates.per_s("x", 1, 100) is None
    assert rates.per_s("x", 2, 50) is None
    assert rates.per_s("x", 3, 80) == 30
    assert rates.per_s("x", 3, 90) is None, "no time went by"


@settings(max_examples=25)
@given(st.sampled_from(["stat", "meminfo", "vmstat", "net/dev", "diskstats", "pressure/cpu"]), st.binary(max_size=300), st.booleans())
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, name: str, raw: bytes, prefixed: bool) -> None:
    """Whatever such a file holds, sampling goes on."""
    known = {
        "stat": b"cpu  ",
        "meminfo": b"MemAvailable: ",
        "vmstat": b"\npgmajfault ",
        "net/dev": b"a\nb\neth0: ",
        "pressure/cpu": b"some avg10=",
    }
    folder = tmp_path_factory.mktemp("any")
    path = folder / "proc" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((known.get(name, b"1 1 sda ") if prefixed else b"") + raw)
    system = System(Clock(), str(folder))

    system.sample()
    values = system.sample()

    assert all(value >= 0 for value in values.values())
    system.close()


# ---------------------------------------------------------------------- processes


def cpu_s(pid: int) -> float:
    """CPU time of a process as the kernel counts it."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:13])) / os.sysconf("SC_CLK_TCK")


def test_a_busy_process_and_its_end() -> None:
    """It uses what the kernel gives it of a CPU; when it is killed it is reported once and forgotten."""
    with programs("import sys\nprint('ready', flush=True)\nwhile True: pass") as (busy,):
        meters = Programs()
        meters.watch([busy.pid])
        meters.sample()
        start, used_s = time.monotonic(), cpu_s(busy.pid)
        until(lambda: cpu_s(busy.pid) >= used_s + 0.4)

        values, gone = meters.sample()

        assert gone == []
        share = (cpu_s(busy.pid) - used_s) / (time.monotonic() - start)
        assert values[f"process.{busy.pid}.cpu"] == pytest.approx(share, rel=0.25)
        assert values[f"process.{busy.pid}.rss_bytes"] > 1 << 20
        assert 0 <= values[f"process.{busy.pid}.main_wait"] <= 1
        assert all(describe(name) for name in values)
        busy.kill()
        until(lambda: meters.sample()[1] == [busy.pid])
        assert meters.pids == ()
        assert meters.sample() == ({}, [])


def test_a_process_that_is_reaped_between_two_samples() -> None:
    """The kept descriptor never reads another process of the same number."""
    meters = Programs()
    short = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    meters.watch([short.pid])
    assert meters.sample()[1] == []

    short.kill()
    short.wait()

    assert meters.sample() == ({}, [short.pid])


def test_many_programs_take_turns(tmp_path: Path) -> None:
    """Where a sample of all would cost too much, each sample has some, and after a few everybody had a turn, with its threads too."""
    clock, cpu, costs = Clock(), Clock(), iter([0.0])

    def cpu_clock() -> float:
        cpu.now += next(costs, BUDGET_S / 3.5)
        return cpu.now

    stat = "{0} (python) S 1 7 7 0 -1 0 1 0 0 0 1 0 0 0 20 0 2 0 700 0 25\n"
    folder = tree(
        tmp_path,
        {
            f"proc/{pid}/{name}": text.format(pid)
            for pid in range(1, 13)
            for name, text in {"stat": stat, f"task/{pid}/schedstat": "0 0 1"}.items()
        },
    )
    meters = Programs(clock, folder, cpu_clock)
    meters.watch(range(1, 13))
    clock.now += SLOW_S

    turns = [{int(name.split(".")[1]) for name in meters.sample()[0]} for _ in range(3)]

    assert [len(turn) for turn in turns] == [4, 4, 4]
    assert set().union(*turns) == set(range(1, 13))
    assert sorted(meters.pids) == list(range(1, 13))


def test_threads_that_wait(tmp_path: Path) -> None:
    """Two threads, one of which had no CPU for half of its ready time."""
    clock = Clock()
    line = "7 (py thon) S 1 7 7 0 -1 0 {0} 0 0 0 {0} 0 0 0 20 0 2 0 700 0 25\n"
    folder = {"proc/7/stat": line.format(100), "proc/7/schedstat": "0 0 5", "proc/7/io": "rchar: 1\nread_bytes: 0\n"}
    meters = Programs(clock, tree(tmp_path, {**folder, "proc/7/task/7/schedstat": "0 0 1", "proc/7/task/8/schedstat": "0 0 1"}))
    meters.watch([7])
    clock.now += SLOW_S
    meters.sample()

    clock.now += SLOW_S
    tree(tmp_path, {"proc/7/stat": line.format(1600), "proc/7/schedstat": "3000000000 1500000000 9", "proc/7/io": "read_bytes: 3000\n"})
    tree(tmp_path, {"proc/7/task/7/schedstat": "1000000000 0 1", "proc/7/task/8/schedstat": "500000000 500000000 1"})
    values, _ = meters.sample()

    assert values["process.7.wait"] == 0.25
    assert values["process.7.main_run"] == pytest.approx(0.2)
    assert values["process.7.main_wait"] == pytest.approx(0.1)
    assert values["process.7.cpu"] == pytest.approx(1.0)
    assert values["process.7.read_bytes_per_s"] == pytest.approx(200)
    assert values["process.7.rss_bytes"] == 25 * os.sysconf("SC_PAGESIZE")


def test_what_one_may_not_read_is_left_out(tmp_path: Path) -> None:
    """io of a foreign process is denied: the other meters are there, and the reason is told once."""
    folder = tree(tmp_path, {"proc/7/stat": "7 (x) S 1 7 7 0 -1 0 1 0 0 0 1 0 0 0 20 0 2 0 700 0 25\n"})
    (tmp_path / "proc/7/io").symlink_to("/proc/1/mem" if os.geteuid() else "/nowhere")
    meters = Programs(Clock(), folder)
    meters.watch([7])

    values, gone = meters.sample()

    assert gone == []
    assert "process.7.read_bytes_per_s" not in values
    assert set(meters.problems) == {"/proc/[pid]/io", "/proc/[pid]/schedstat"}
    assert "(1 processes)" in meters.problems["/proc/[pid]/io"]


def test_wait_for_data_is_what_is_left(tmp_path: Path) -> None:
    """Asleep 70 % of the time, for 40 % of which a backward ran elsewhere: at most 30 % were waits for workers. Without workers: nothing."""
    clock, second = Clock(), 1_000_000_000
    stat = "{pid} ({comm}) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 700 0 25\n"
    folder = tree(tmp_path, {"proc/7/stat": stat.format(pid=7, comm="python"), "proc/7/schedstat": "0 0 5", "proc/7/io": "read_bytes: 0\n"})
    tree(tmp_path, {"proc/8/stat": stat.format(pid=8, comm="pt_data_worker"), "proc/7/task/7/children": "", "proc/7/task/7/comm": "python"})
    tree(tmp_path, {"proc/7/task/9/comm": "pt_autograd_0\n", "proc/7/task/9/schedstat": "0 0 1"})
    meters = Programs(clock, folder)
    meters.watch([7])

    def sampled(at: float, run: float, wait: float, backward: float) -> dict[str, float]:
        clock.now = at
        tree(tmp_path, {"proc/7/schedstat": f"{int(run * second)} {int(wait * second)} 9"})
        tree(tmp_path, {"proc/7/task/9/schedstat": f"{int(backward * second)} 0 9"})
        return meters.sample()[0]

    sampled(clock.now + SLOW_S, 0, 0, 0)
    assert "process.7.data_wait" not in sampled(clock.now + 1, 0.2, 0.1, 0.4), "no workers"
    tree(tmp_path, {"proc/7/task/7/children": "8"})
    start = clock.now + SLOW_S
    sampled(start, 1, 1, 1)
    sampled(start + 1, 1, 1, 1)
    assert sampled(start + 2, 1.2, 1.1, 1.4)["process.7.data_wait"] == pytest.approx(0.3)
    assert sampled(start + 3, 2.2, 1.1, 1.4)["process.7.data_wait"] == 0
    assert sampled(start + 4, 2.2, 1.1, 2.9)["process.7.data_wait"] == 0, "never less than nothing"
    (tmp_path / "proc/7/task/9/schedstat").unlink()
    meters.close()


LOADED = f"""{NO_COMPILER}
import time
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self): return 1 << 40
    def __getitem__(self, index):
        time.sleep(float(sys.argv[1]))
        return torch.ones(64)

if __name__ == "__main__":
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 64))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    batches = iter(DataLoader(Data(), num_workers=2, batch_size=16))
    next(batches)
    print("ready", flush=True)
    while True:
        batch = next(batches)
        for _ in range(int(sys.argv[2])):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(("sleep_s", "steps", "least", "most"), [("0.05", "1", 0.6, 1.0), ("0", "100", 0.0, 0.3)])
def test_wait_for_data_of_real_training(sleep_s: str, steps: str, least: float, most: float) -> None:
    """Slow workers: the main thread mostly waits for them. Quick workers and much to compute: it hardly does."""
    python = os.environ.get("SYSPERF_TORCH_PYTHON")
    if not python:
        pytest.skip("no PyTorch: set SYSPERF_TORCH_PYTHON to the interpreter of an environment that has it")
    from tests.collect.programs import running

    ahead = [0.0]
    with running(python, LOADED, sleep_s, steps) as pid:
        meters = Programs(lambda: time.monotonic() + ahead[0])
        meters.watch([pid])
        ahead[0] = SLOW_S
        meters.sample()
        meters.sample()
        time.sleep(4)
        bound = meters.sample()[0][f"process.{pid}.data_wait"]
    assert least <= bound <= most


@pytest.mark.torch
def test_workers_of_a_real_loader() -> None:
    """A DataLoader with two workers: they are counted, and their CPU time is known after two looks."""
    python = os.environ.get("SYSPERF_TORCH_PYTHON")
    if not python:
        pytest.skip("no PyTorch: set SYSPERF_TORCH_PYTHON to the interpreter of an environment that has it")
    clock = Clock()
    from tests.collect.programs import running

    with running(python, LOADER) as pid:
        meters = Programs(clock)
        meters.watch([pid])
        clock.now += SLOW_S
        first, _ = meters.sample()
        time.sleep(1)
        clock.now += SLOW_S
        values, _ = meters.sample()

    assert first[f"process.{pid}.workers"] == values[f"process.{pid}.workers"] == 2
    assert values[f"process.{pid}.workers_cpu"] >= 0


LOADING_THREAD = """
import ctypes, os, threading, time
def load():
    for _ in range(3):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, b"pt_data_worker", 0, 0, 0)
            time.sleep(120)
            os._exit(0)
    time.sleep(0.2)
    print("ready", flush=True)
    time.sleep(120)
threading.Thread(target=load).start()
"""


def test_workers_are_known_with_the_first_sample_whichever_thread_has_them() -> None:
    """A thread iterates the loader, so the workers are its children, not the main thread's: no look calls the program one without."""
    with programs(LOADING_THREAD) as (program,):
        meters = Programs()
        meters.watch([program.pid])
        first, _ = meters.sample()
        one_by_one = workers.read(Host(), program.pid).workers

    assert first[f"process.{program.pid}.workers"] == 3
    assert len(one_by_one or ()) == 3


# ---------------------------------------------------------------------- finding processes


def test_torch_is_found_and_its_end_too(tmp_path: Path) -> None:
    """A process that maps libtorch is new once; one that does not is none."""
    clock = Clock()
    scanner = Scanner(clock)
    with programs(FAKE_TORCH, env={"LIBRARY": str(torch_library(tmp_path))}) as (program,), programs(SLEEPERS, "0") as (other,):
        change = scanner.scan()
        assert program.pid in change.started
        assert other.pid not in change.started
        assert program.pid in scanner.torch
        clock.now += 100
        assert program.pid not in scanner.scan().started
        assert scanner.tree(scanner.torch).names("/proc", 100)[:-1] == [str(pid) for pid in sorted(scanner.torch)]
        program.kill()
        program.wait()
        assert scanner.scan().ended == (program.pid,)
        assert program.pid not in scanner.torch


def test_a_small_process_that_grows_is_looked_at_again(tmp_path: Path) -> None:
    """PyTorch may be imported long after the start."""
    clock = Clock()
    scanner = Scanner(clock)
    script = FAKE_TORCH.replace("library =", "print('ready', flush=True)\ntime.sleep(1.5)\nlibrary =")
    with programs(script, env={"LIBRARY": str(torch_library(tmp_path))}) as (late,):
        assert late.pid not in scanner.scan().started
        time.sleep(0.2)
        assert late.pid not in scanner.scan().started, "not due"

        def later() -> bool:
            clock.now += 60
            return late.pid in scanner.scan().started

        assert until(later)


def test_three_hundred_others_cost_little(tmp_path: Path) -> None:
    """What does not run PyTorch costs next to nothing once it was looked at."""
    clock = Clock()
    scanner = Scanner(clock)
    with programs(SLEEPERS, "300"), programs(FAKE_TORCH, env={"LIBRARY": str(torch_library(tmp_path))}):
        scanner.scan()
        assert scanner.count > 300
        start = time.process_time()
        for _ in range(100):
            clock.now += 15
            scanner.scan()
        per_scan_s = (time.process_time() - start) / 100

    assert per_scan_s < 0.015 * 0.5, "half a thousandth of a CPU at one scan each 15 s"


def test_looks_grow_rare() -> None:
    """An old process is looked at about once a minute, not in each scan."""
    clock = Clock()
    scanner = Scanner(clock)
    looks: list[int] = []
    from sysperf.live import scan

    with programs(SLEEPERS, "0") as (sleeper,):
        for _ in range(200):
            clock.now += 15
            scanner.scan()
            due = scanner._examined[sleeper.pid].due
            looks.append(int(due))
        assert len(set(looks[-100:])) <= 100 * 15 / (scan.MAX_DELAY_S * 0.7)


# ---------------------------------------------------------------------- GPUs


def test_a_gpu_in_work() -> None:
    """Recorded answers of an H100 become meters in our units."""
    pcie = {"DeviceGetFieldValues,197,198": {"197": 1000, "198": 5000}}
    gpm = {"GpmMetrics,2,3,5,10": {"2": 88.0, "3": 40.0, "5": 61.5, "10": None}}
    used = {"DeviceGetProcessUtilization,0": [{"pid": 4242, "timeStamp": 77, "smUtil": 90}, {"pid": 4242, "timeStamp": 99, "smUtil": 80}]}
    clock, session = Clock(), RecordedNvml(gpus.calls({**gpus.H100, **pcie, **gpm, **used}))
    meters = Gpus(lambda: session, clock)
    meters.sample()
    clock.now += 2
    session.calls["nvml:DeviceGetFieldValues(0,197,198)"] = {"197": 3000, "198": 9000}

    values = meters.sample()

    assert values["gpu.0.utilization"] == 0.97
    assert values["gpu.0.power_watts"] == 691.2
    assert values["gpu.0.sm_clock_mhz"] == 1755
    assert values["gpu.0.celsius"] == 64
    assert (values["gpu.0.power_capped"], values["gpu.0.slowed"]) == (1.0, 0.0)
    assert (values["gpu.0.sm_active"], values["gpu.0.tensor_active"]) == (0.88, 0.615)
    assert "gpu.0.dram_active" not in values
    assert (values["gpu.0.pcie_sent_bytes_per_s"], values["gpu.0.pcie_received_bytes_per_s"]) == (1000, 2000)
    assert values["process.4242.gpu_memory_bytes"] == 9 << 30
    assert all(describe(name) for name in values)
    assert "nvml:DeviceGetProcessUtilization(0,99)" in session.asked, "only what is new since the last sample"


def test_what_a_gpu_lacks_is_asked_once() -> None:
    """A workstation card without GPM and the newer names: the meters that it has, and no question twice in vain."""
    session = RecordedNvml(gpus.calls(gpus.RTX))
    meters = Gpus(lambda: session, Clock())

    values = [meters.sample() for _ in range(4)][-1]

    assert values["gpu.0.memory_used_bytes"] == 2 * gpus.GIB
    assert values["gpu.0.clock_events"] == 1
    assert "gpu.0.sm_active" not in values
    assert session.asked.count("nvml:GpmMetrics(0,2,3,5,10)") == 1
    assert meters.problem == ""


def test_a_lost_gpu_is_a_problem_and_no_end() -> None:
    """All its answers fail: no meters, and the reason. It is asked again, for it may come back."""
    answers = gpus.calls(gpus.H100)
    session = RecordedNvml(
        {key: answers[key] if "Count" in key else gpus.LOST for key in answers} | dict.fromkeys(_live_questions(), gpus.LOST)
    )
    meters = Gpus(lambda: session, Clock())

    assert meters.sample() == {}
    assert meters.problem == "GPU is lost"
    session.calls.update(answers)
    assert meters.sample()["gpu.0.utilization"] == 0.97


def _live_questions() -> list[str]:
    session = RecordedNvml({"nvml:DeviceGetCount()": 1})
    Gpus(lambda: session, Clock()).sample()
    return session.asked[1:]


def test_no_nvml_is_a_reason() -> None:
    """Where NVML cannot be opened there are no meters."""
    session = RecordedNvml({"nvml:DeviceGetCount()": OSError("NVML Shared Library Not Found")})
    meters = Gpus(lambda: session, Clock())

    assert meters.sample() == {}
    assert meters.problem == "NVML Shared Library Not Found"


def test_gpus_are_let_go() -> None:
    """Closed, it is closed; the next question opens it again."""
    sessions = [RecordedNvml(gpus.calls(gpus.H100)), RecordedNvml(gpus.calls(gpus.H100))]
    waiting = iter(sessions)
    meters = Gpus(lambda: next(waiting), Clock())
    meters.sample()

    meters.close()

    assert sessions[0].closed
    assert meters.ask("DeviceGetName", (0,)) == "NVIDIA H100 80GB HBM3"
    with pytest.raises(OSError, match="Not Supported"):
        meters.ask("DeviceGetFanSpeed", (0,))


@settings(max_examples=20)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["gpu", "pid", "2", "197", "used"]), inner, max_size=3), max_leaves=6))  # fmt: skip
def test_any_answer_of_a_driver(answer: object) -> None:
    """An answer of another shape than documented says nothing, and breaks nothing."""
    session = RecordedNvml({})
    session.ask_all = lambda questions: [1 if name == "DeviceGetCount" else answer for name, _ in questions]  # type: ignore[method-assign]
    meters = Gpus(lambda: session, Clock())

    for _ in range(2):
        assert all(isinstance(value, float | int) for value in meters.sample().values())


def test_documented_names_are_well_formed() -> None:
    """A series has a documentation of one line without a full stop; unknown ones have none."""
    assert all(metric.help and "\n" not in metric.help and not metric.help.endswith(".") for metric in METERS.values())
    assert describe("gpu.11.power_watts") == METERS["gpu.*.power_watts"].help
    assert describe("nobody.knows") == ""
    assert make_machine({}).live is False
