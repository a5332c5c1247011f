"""Running PyTorch programs are found without touching them, and described with their helpers."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.collect.machine_facts import MachineFacts
from sysperf.collect.process import collect, unknown_variables
from sysperf.collect.process import stuck as stuck_tasks
from sysperf.collect.process.memory import numa_pages
from sysperf.collect.process.records import Process, Processes
from sysperf.engine import judging
from sysperf.engine.audit import audit
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import Missing
from sysperf.model.record import to_json
from sysperf.procfs.maps import Mapped, torch_mapped
from sysperf.procfs.stat import Stat
from tests.collect.programs import FAKE, LIBTORCH, LOADER, PYTHON, SITE, SMALL, VERSION, maps, process, running, stat, torch_library
from tests.conftest import Dict, Files, MakeMachine, make_machine
from tests.other_gpus import MI300X, amd, bus_id, drm_client

UPTIME: Files = {"/proc/uptime": "1000.50 3000.00\n"}
TORCH_PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")
needs_torch = pytest.mark.skipif(not TORCH_PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch")


def files(*parts: Files) -> Files:
    """One machine out of several processes, with PyTorch 2.13 installed."""
    together: Files = {**VERSION, **UPTIME}
    for part in parts:
        together.update(part)
    return together


def only(facts: Processes) -> Process:
    (program,) = facts.processes
    return program


# ---------------------------------------------------------------------- finding


def test_a_process_that_maps_libtorch_is_found_and_described(machine: MakeMachine) -> None:
    """Who, what and since when come from files anybody may read; the version from beside the mapped library."""
    program = only(collect(machine(files(process(70, env="PATH=/bin OMP_NUM_THREADS=4", ticks=500)))))

    assert (program.pid, program.ppid, program.name, program.user) == (70, 1, "python", 1000)
    assert (program.command, program.age_s, program.cpu_s) == ("python train.py", 930.5, 5.0)
    assert (program.torch.version, program.torch.prefix) == ("2.13.0+cpu", "/venv")
    assert program.env == {"OMP_NUM_THREADS": "4"}
    assert (program.affinity.now, program.memory.rss_bytes) == (CpuSet.parse("0-3"), 300_000 << 10)


def test_ordinary_processes_cost_one_tiny_read_each(machine: MakeMachine) -> None:
    """A process too small to hold libtorch, and a kernel thread, are told by their size alone."""
    host = machine(files(*(process(pid, pages=SMALL) for pid in range(10, 70)), {"/proc/2/statm": "0 0 0 0 0 0 0\n"}))

    facts = collect(host)

    assert (facts.processes, facts.scanned, facts.unreadable) == ((), 61, 0)
    per_process = [source.path for source in host.sources if re.match(r"/proc/\d", source.path)]
    assert len(per_process) == 61
    assert all(path.endswith("/statm") for path in per_process)


def test_large_processes_without_libtorch_are_not_ours(machine: MakeMachine) -> None:
    """A browser is large too; nothing but its maps is read closer."""
    host = machine(files(process(70, "firefox", mapped=("/usr/lib/libxul.so", "/data/libtorch-notes.txt"))))

    assert collect(host).processes == ()
    assert not any("70/environ" in source.path for source in host.sources)


def test_a_libtorch_program_without_python_is_found(machine: MakeMachine) -> None:
    """The C++ distribution has no version.py, but a file that says its build."""
    library = {"/opt/libtorch/build-version": "2.12.1+cu130\n"}
    program = only(collect(machine({**process(70, "serve", mapped=("/opt/libtorch/lib/libtorch_cpu.so",)), **library})))

    assert (program.torch.version, program.torch.prefix) == ("2.12.1+cu130", "")


def test_what_may_not_be_read_is_counted_not_ignored(machine: MakeMachine) -> None:
    """Another user's large process is unknown: it could be PyTorch. The reason is kept."""
    host = machine(files({**process(70), "/proc/70/maps": PermissionError(errno.EACCES, "Permission denied", "/proc/70/maps")}))

    facts = collect(host)

    assert (facts.processes, facts.unreadable) == ((), 1)
    assert ("/proc/70/maps", "Permission denied") in [(source.path, source.error) for source in host.sources]


def test_hidden_processes_are_counted(machine: MakeMachine) -> None:
    """With hidepid=1 not even the size can be read."""
    hidden: Files = {"/proc/70/statm": PermissionError(errno.EPERM, "Operation not permitted", "/proc/70/statm")}

    assert collect(machine(files(process(10, pages=SMALL), hidden))).unreadable == 1


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "70 (python",
        "70 (python) R 1 2",
        "9 (python) S" + " 1" * 50,
        "70 (python) S" + f" {'9' * 400}" * 50,
        "70 (python) S" + " ٣" * 50,
    ],
)
def test_one_damaged_stat_hides_one_process(machine: MakeMachine, damage: str) -> None:
    """It counts as one that could not be examined; the others are described as ever."""
    facts = collect(machine(files(process(70), {**process(71), "/proc/70/stat": damage})))

    assert [program.pid for program in facts.processes] == [71]
    assert facts.unreadable == 1


def test_folders_that_only_look_like_process_numbers_are_no_processes(machine: MakeMachine) -> None:
    """str.isdigit() takes superscripts, which int() refuses."""
    facts = collect(machine(files(process(70), {"/proc/²/statm": "9 9", "/proc/٣/statm": "9 9"})))

    assert ([program.pid for program in facts.processes], facts.scanned) == ([70], 1)


@pytest.mark.parametrize(
    ("options", "pids", "hidden"),
    [("hidepid=2", (70,), True), ("hidepid=invisible", (70,), True), ("hidepid=2", (1, 70), False), ("rw", (70,), False)],
)
def test_hidden_processes_are_not_called_absent(machine: MakeMachine, options: str, pids: tuple[int, ...], hidden: bool) -> None:
    """With hidepid=2 /proc shows a user his own processes only; root sees all, process 1 among them."""
    mount: Files = {"/proc/self/mountinfo": f"22 1 0:21 / /proc rw - proc proc rw,{options}\n"}
    facts = collect(machine(files(*(process(pid, pages=SMALL) for pid in pids), mount)))

    assert (facts.processes, facts.hidden) == ((), hidden)


@pytest.mark.parametrize("lost", ["statm", "stat", "maps", "status", "environ"])
def test_a_process_that_ends_meanwhile_leaves_no_trace(machine: MakeMachine, lost: str) -> None:
    """Between any two reads a process can vanish: it is dropped, it is not unreadable, and no failure is noted."""
    gone: Files = {f"/proc/70/{lost}": ProcessLookupError(errno.ESRCH, "No such process", f"/proc/70/{lost}")}
    host = machine(files({**process(70), **gone}, process(71)), calls={"exists:/proc/70": False})

    facts = collect(host)

    assert [program.pid for program in facts.processes] == [71]
    assert facts.unreadable == 0
    assert not [source for source in host.sources if source.error and "/70" in source.path]


def test_no_processes_is_missing_not_none(machine: MakeMachine) -> None:
    """A capture without /proc says nothing about processes."""
    with pytest.raises(Missing, match="lists no process"):
        collect(machine({"/proc/meminfo": ""}))


def test_what_was_recorded_replays_to_the_same_facts() -> None:
    """A capture of this machine finds the same programs."""
    parts = files(process(70, env="OMP_NUM_THREADS=4", threads=("python", "pt_data_pin")), process(72, "pt_data_worker", ppid=70))
    recording = Host("/test-machine", tree=Dict(parts), record=True)
    expected = collect(recording)

    replayed = Host("/test-machine", tree=Dict({}), answers=recording.answers)

    assert to_json(collect(replayed)) == to_json(expected)
    assert only(expected).workers.count == 1


# ---------------------------------------------------------------------- helpers


def test_workers_are_folded_under_their_program(machine: MakeMachine) -> None:
    """Forked workers are children; workers of a forkserver are grandchildren."""
    forked = [process(pid, "pt_data_worker", ppid=70, allowed="2", threads=("pt_data_worker",)) for pid in (81, 82)]
    server = process(
        91, ppid=71, argv="python -c from\u00a0multiprocessing.forkserver\u00a0import\u00a0main;\u00a0main(5,\u00a07,\u00a0[])", pages=SMALL
    )
    served = process(
        92,
        "pt_data_worker",
        ppid=91,
        argv="python -c from\u00a0multiprocessing.forkserver\u00a0import\u00a0main;\u00a0main(5,\u00a07,\u00a0[])",
    )

    program, other = collect(machine(files(process(70), process(71), *forked, server, served))).processes

    assert (program.workers.count, program.workers.start, program.workers.cpus, program.workers.threads) == (2, "fork", CpuSet([2]), 2)
    assert (other.workers.count, other.workers.start) == (1, "forkserver")
    assert program.workers.rss_bytes == 2 * 300_000 << 10


def test_workers_need_no_maps_of_their_own(machine: MakeMachine) -> None:
    """64 workers with thousands of mappings each are told by name: their maps are not read."""
    host = machine(files(process(70), *(process(pid, "pt_data_worker", ppid=70) for pid in range(100, 164))))

    assert only(collect(host)).workers.count == 64
    assert [source.path for source in host.sources if source.path.endswith("/maps")] == ["/proc/70/maps"]


def test_spawned_workers_are_told_from_ranks(machine: MakeMachine) -> None:
    """The same command line starts both; the name tells a worker, and a rank is a program of its own."""
    spawn = "python -c from multiprocessing.spawn import spawn_main; --multiprocessing-fork"
    parts = process(70), process(71, ppid=70, argv=spawn), process(72, "pt_data_worker", ppid=71, argv=spawn)

    main, rank = collect(machine(files(*parts))).processes

    assert (main.workers.count, rank.workers.count, rank.workers.start) == (0, 1, "fork")  # forked by the rank: the same argv
    assert rank.job.id == main.job.id == 70


def test_workers_whose_program_is_gone_are_orphans(machine: MakeMachine) -> None:
    """A worker that init inherited belongs to nobody."""
    facts = collect(machine(files(process(72, "pt_data_worker", ppid=1))))

    assert facts.processes == ()


def test_forked_pools_are_folded_but_forked_ranks_are_not(machine: MakeMachine) -> None:
    """A copy of the program that computes by itself has threads that say so."""
    pool = [process(pid, ppid=70) for pid in (81, 82)]
    rank = process(83, ppid=70, threads=("pt_gloo_runloop", "python"))

    main, computing = collect(machine(files(process(70), *pool, rank))).processes

    assert (main.children.forks, computing.pid, computing.threads.gloo_group) == (2, 83, True)


def test_a_child_that_was_started_anew_is_a_program_of_its_own(machine: MakeMachine) -> None:
    """Lightning starts its ranks with its own command line; a fork has its parent's stack, what was executed has another."""
    forked, executed = process(81, ppid=70, stack=1000), process(82, ppid=70, stack=2000)

    main, other = collect(machine(files(process(70, stack=1000), forked, executed))).processes

    assert (main.children.forks, other.pid, other.job.id) == (1, 82, 70)


def test_who_may_not_see_stacks_takes_equal_command_lines_for_forks(machine: MakeMachine) -> None:
    """The kernel answers 0 to those who may not trace the process."""
    assert only(collect(machine(files(process(70, stack=1000), process(81, ppid=70))))).children.forks == 1


COPIES = """
import os, subprocess, sys, time
copy = subprocess.Popen([sys.executable, "-c", "import time; print('', flush=True); time.sleep(60)"], stdout=subprocess.PIPE)
copy.stdout.readline()
forked = os.fork()
if forked:
    print("ready", flush=True)
    try: time.sleep(60)
    finally: os.kill(forked, 9), copy.kill()
time.sleep(9)
"""


def test_the_kernel_tells_a_fork_from_what_was_executed() -> None:
    """A fork has its parent's address space; a started copy has a new one, at addresses of its own."""
    with running(PYTHON, COPIES) as pid:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        own, copy, forked = (Stat(Path(f"/proc/{number}/stat").read_text()) for number in (pid, *children))
        for child in children:
            os.kill(int(child), 9)

    assert own.stack == forked.stack != copy.stack


def test_workers_of_torch_before_2_5_have_no_name(machine: MakeMachine) -> None:
    """There the forked copies are taken for the loader's workers."""
    old: Files = {f"{SITE}/torch/version.py": "__version__ = '2.4.1'\n"}
    program = only(collect(machine(files(process(70), process(81, ppid=70), old))))

    assert (program.workers.count, program.children.forks, program.threads.pins_memory) == (1, 0, None)


def test_compile_workers_are_counted_apart(machine: MakeMachine) -> None:
    """torch.compile starts a pool whose command line names it, and the pool forks its workers when they are needed."""
    pool = f"python {SITE}/torch/_inductor/compile_worker/__main__.py --workers=2"
    head, workers = process(80, ppid=70, argv=pool), [process(pid, ppid=80, argv=pool) for pid in (81, 82)]
    program, waiting = (only(collect(machine(files(process(70), head, *more)))) for more in (workers, []))

    assert (program.compiling.workers, program.workers.count, program.children.forks) == (2, 0, 0)
    assert waiting.compiling.workers == 1


# ---------------------------------------------------------------------- affinity, threads, time


def test_the_mask_before_openmp_narrowed_it(machine: MakeMachine) -> None:
    """With a binding variable, the masks of the team, the workers and the parent tell what was allowed at the start."""
    bound = process(70, ppid=5, env="OMP_PROC_BIND=close", allowed="0", threads=("python",))
    bound["/proc/70/task/71/status"] = "Cpus_allowed_list:\t1\n"
    program = only(
        collect(machine(files(bound, {"/proc/5/status": "Cpus_allowed_list:\t0-7\n"}, process(80, "pt_data_worker", ppid=70, allowed="0"))))
    )

    assert (str(program.affinity.now), str(program.affinity.at_start), str(program.workers.cpus)) == ("0", "0-7", "0")


def test_a_taskset_is_no_narrowing(machine: MakeMachine) -> None:
    """Without such a variable a small mask is somebody's choice, and the parent is not asked."""
    host = machine(files(process(70, ppid=5, allowed="0-1"), {"/proc/5/status": "Cpus_allowed_list:\t0-7\n"}))

    assert str(only(collect(host)).affinity.at_start) == "0-1"
    assert not any(source.path == "/proc/5/status" for source in host.sources)


def test_compute_threads_are_those_that_worked(machine: MakeMachine) -> None:
    """The team carries the program's name; a thread that hardly ran is none of it, nor is one with a name of its own."""
    program = process(70, threads=("python", "python", "pt_autograd_0"), ticks=1000)
    program["/proc/70/task/72/stat"] = stat(72, ticks=10)
    only_process = only(collect(machine(files(program))))

    assert (only_process.threads.count, only_process.threads.computing, only_process.threads.names) == (4, 2, ("pt_autograd_0",))


def test_thread_names_tell_pinning_training_and_collectives(machine: MakeMachine) -> None:
    """What is not there is false where this PyTorch names its threads, and unknown where it does not yet."""
    named = ("pt_data_pin", "pt_autograd_0", "pt_nccl_watchdg")
    program = only(collect(machine(files(process(70, threads=named)))))
    older: Files = {f"{SITE}/torch/version.py": "__version__ = '2.6.0'\n"}
    old = only(collect(machine(files(process(70, threads=named), older))))

    assert (program.threads.pins_memory, program.threads.ran_backward, program.threads.nccl_group, program.threads.gloo_group) == (
        True,
        True,
        True,
        False,
    )
    assert old.threads.gloo_group is None


def test_faults_beyond_the_first_touch_cost_time(machine: MakeMachine) -> None:
    """400,000 kB were touched once; what faults beyond those 100,000 pages was given back and fetched again."""
    program = only(collect(machine(files(process(70, ticks=1000, faults=1_100_000)))))

    assert program.faults.refault_share == pytest.approx(0.2)  # 1,000,000 faults of 2 µs in 10 s of CPU time


def test_waiting_for_a_cpu_is_read_for_the_main_thread(machine: MakeMachine) -> None:
    """schedstat holds nanoseconds run, nanoseconds waited, and slices."""
    program = only(collect(machine(files(process(70), {"/proc/70/schedstat": "8000000000 2000000000 99\n"}))))

    assert (program.main.run_s, program.main.wait_s) == (8.0, 2.0)


@pytest.mark.parametrize(
    ("schedstat", "ticks", "demand"),
    [
        ("8000000000 2000000000 99", 1000, 0.011),  # a server: 10 of 930.5 s
        ("460000000000 470500000000 99", 46_000, 1.0),  # ran for half of its life, and was ready for the other half
        ("1000000000 0 99", 186_100, 0.5),  # other threads used half of its four CPUs
        ("", 1000, None),
    ],
)
def test_demand_is_what_a_program_wanted_of_its_cpus(machine: MakeMachine, schedstat: str, ticks: int, demand: float | None) -> None:
    """Waiting for a CPU is wanting one, too."""
    program = only(collect(machine(files(process(70, ticks=ticks), {"/proc/70/schedstat": schedstat}))))

    assert program.demand == demand


def test_workers_are_as_busy_as_their_cpu_time_in_their_lives(machine: MakeMachine) -> None:
    """Two workers of 920 s each, one of which computed in half of them; those of a second ago say nothing yet."""

    def loader(*workers: Files) -> Files:
        return files(process(70), *workers)

    lazy, busy = (process(pid, "pt_data_worker", ppid=70, ticks=ticks) for pid, ticks in ((80, 0), (81, 46_000)))
    fresh: Files = {**process(82, "pt_data_worker", ppid=70), "/proc/82/stat": stat(82, "pt_data_worker", ppid=70, start=100_000)}

    assert only(collect(machine(loader(lazy, busy)))).workers.busy_share == pytest.approx(0.25, abs=0.001)
    assert only(collect(machine(loader(fresh)))).workers.busy_share is None
    assert only(collect(machine(loader()))).workers.busy_share == 0.0


# ---------------------------------------------------------------------- software


def test_libraries_of_elsewhere_are_told_from_the_wheels(machine: MakeMachine) -> None:
    """cuDNN of the system is foreign where a wheel brings one, and the machine's own choice where none does."""
    mapped = (
        LIBTORCH,
        "/usr/local/cuda/lib64/libcudnn.so.9.8.0",
        f"{SITE}/nvidia/cublas/lib/libcublas.so.12",
        "/dev/nvidia0",
        "/x/libcudnn_ops.so.9",
    )
    wheel: Files = {f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9": b""}

    shadowed = only(collect(machine(files(process(70, mapped=mapped), wheel))))
    system = only(collect(machine(files(process(70, mapped=mapped)))))

    assert (shadowed.loaded.foreign_libraries, system.loaded.foreign_libraries) == (("/usr/local/cuda/lib64/libcudnn.so.9.8.0",), ())
    assert [(library.name, library.version) for library in shadowed.loaded.libraries] == [("libcudnn", "9.8.0"), ("libcublas", "12")]
    assert shadowed.loaded.cudnn_folders == ("/usr/local/cuda/lib64", "/x")
    assert shadowed.cuda_used


def test_two_openmp_runtimes_and_an_allocator_are_seen(machine: MakeMachine) -> None:
    """Also under the names that auditwheel gives them."""
    mapped = (
        LIBTORCH,
        f"{SITE}/torch.libs/libgomp-a34b3233.so.1.0.0",
        f"{SITE}/sklearn/libiomp5.so",
        "/usr/lib/libtcmalloc_minimal.so.4.5.10",
        "/usr/lib/libasan.so.8",
    )
    program = only(collect(machine(files(process(70, mapped=mapped)))))

    assert [library.name for library in program.loaded.openmp] == ["libgomp", "libiomp5"]
    assert (program.loaded.allocator, program.loaded.allocators, program.loaded.sanitizers) == ("tcmalloc", ("tcmalloc",), ("asan",))
    assert program.loaded.packages == ("sklearn", "torch")


def test_a_preload_that_was_not_loaded_is_missing(machine: MakeMachine) -> None:
    """A mapped one is there, a file that is mapped by its real name is there, and what is neither was skipped."""
    env = "LD_PRELOAD=/usr/lib/libjemalloc.so:libtcmalloc_minimal.so.4:/nope/libjemalloc.so.1:$LIB/libx.so"
    mapped = (LIBTORCH, "/usr/lib/libjemalloc.so.2", "/usr/lib/libtcmalloc_minimal.so.4.5.10")
    program = only(collect(machine(files(process(70, env=env, mapped=mapped)))))

    assert program.variables.preload_missing == ("/nope/libjemalloc.so.1",)
    assert len(program.variables.preload or ()) == 4


@pytest.mark.parametrize(
    ("folders", "release"),
    [
        ("/opt/rocm-6.3.0/lib:/opt/rocm-7.0.0/lib", "6.3.0"),
        ("/usr/lib:/opt/rocm/lib", "7.1.1"),
        ("/opt/rocm-6.4.1/llvm/lib", ""),
        ("/usr/lib", ""),
        ("", ""),
        ("/opt/rocm-7/lib", None),
    ],
)
def test_the_rocm_that_a_program_searches_first_is_told(machine: MakeMachine, folders: str, release: str | None) -> None:
    """By the folder's name, else by the file in it. Folders of its compiler hold no runtime."""
    program = process(70, env=f"LD_LIBRARY_PATH={folders}", mapped=(LIBTORCH,))

    assert only(collect(machine(files(program, {"/opt/rocm/.info/version": "7.1.1-38\n"})))).variables.rocm_searched == release


@pytest.mark.parametrize(
    ("folder", "there"), [("/run/mps", True), ("/tmp/nvidia-mps", False), ("", None), ("/dev/null", None), ("mps", None)]
)
def test_the_daemon_of_mps_has_its_end_in_the_folder_that_a_program_sees(machine: MakeMachine, folder: str, there: bool | None) -> None:
    """In a container that folder is another one."""
    program = process(70, env=f"CUDA_MPS_PIPE_DIRECTORY={folder}", mapped=(LIBTORCH,))
    links = {"/proc/70/ns/mnt": "mnt:[2]", "/proc/self/ns/mnt": "mnt:[1]"}
    ours: Files = {"/run/mps/control": "", "/tmp/nvidia-mps/x": "", "/proc/70/root/tmp/nvidia-mps/control": ""}

    assert only(collect(machine(files(program, ours)))).variables.mps_control is there
    inside = only(collect(machine(files(program, ours), links=links))).variables.mps_control
    assert inside is (there if there is None else not there)


@pytest.mark.parametrize(
    ("size", "seen", "count"), [("4", ("channel0", "channel1"), 2), ("4", ("x",), 0), ("4", (), 0), ("", ("channel0",), None)]
)
def test_channels_of_a_rack_are_counted_for_a_rank(machine: MakeMachine, size: str, seen: tuple[str, ...], count: int | None) -> None:
    program = process(70, env=f"LOCAL_WORLD_SIZE={size}", mapped=(LIBTORCH,))
    channels: Files = {"/dev/null": "", **{f"/dev/nvidia-caps-imex-channels/{name}": "" for name in seen}}

    assert only(collect(machine(files(program, channels)))).variables.imex_channels == count


def test_files_of_a_container_are_seen_through_its_root(machine: MakeMachine) -> None:
    """Its paths are not ours: the version and the preloads are looked up where it sees them."""
    inside: Files = {f"/proc/70/root{SITE}/torch/version.py": "__version__ = '2.9.1+cu128'\n", "/proc/70/root/lib/mine.so": b""}
    links = {"/proc/70/ns/mnt": "mnt:[2]", "/proc/self/ns/mnt": "mnt:[1]"}
    program = only(collect(machine(files(process(70, env="LD_PRELOAD=/lib/mine.so"), inside), links=links)))

    assert (program.torch.version, program.variables.preload_missing, program.files.mounts) == ("2.9.1+cu128", (), None)


def test_a_replaced_installation_is_noticed(machine: MakeMachine) -> None:
    """The maps say that the file a program runs is no longer the one on disk."""
    program = only(collect(machine(files(process(70, mapped=(f"{LIBTORCH} (deleted)",))))))

    assert program.torch.version == "2.13.0+cpu"


def test_gpus_come_from_the_driver_by_process_number(machine: MakeMachine) -> None:
    """The driver lists its processes; addresses are written as sysfs writes them."""
    calls: dict[str, object] = {
        "nvml:SystemGetDriverVersion()": "580.95.05",
        "nvml:DeviceGetCount()": 2,
        **{f"nvml:DeviceGetPciInfo({index})": {"busId": f"00000000:{65 + index}:00.0"} for index in (0, 1)},
        "nvml:DeviceGetComputeRunningProcesses_v3(0)": [{"pid": 70, "usedGpuMemory": 1}],
        "nvml:DeviceGetComputeRunningProcesses_v3(1)": [{"pid": 70}, {"pid": 71}, "junk"],
    }
    parts = {**files(process(70, mapped=(LIBTORCH, "/dev/nvidiactl"))), "/dev/nvidiactl": ""}
    host = machine(parts, links={"/proc/self/ns/pid": "pid:[4026531836]"}, calls=calls)
    container = machine(parts, links={"/proc/self/ns/pid": "pid:[4026532000]"}, calls=calls)
    translated = {**calls, "nvml:DeviceGetComputeRunningProcesses_v3(1)": [{"pid": 0}]}
    newer = machine(parts, links={"/proc/self/ns/pid": "pid:[4026532000]"}, calls=translated)

    assert only(collect(host)).gpu_bus_ids == ("0000:65:00.0", "0000:66:00.0")
    assert only(collect(container)).gpu_bus_ids is None
    assert only(collect(newer)).gpu_bus_ids == ("0000:65:00.0",)
    assert only(collect(machine(files(process(70))))).gpu_bus_ids == ()


def test_programs_on_amds_gpus_are_known_by_the_compute_driver(machine: MakeMachine) -> None:
    """No library is asked; a program that waits and holds no memory has no context yet."""
    gpu_files, gpu_links = amd(MI300X, MI300X)
    held = {"/sys/class/kfd/kfd/proc/70/vram_1001": "4096\n", "/sys/class/kfd/kfd/proc/71/vram_1000": "0\n"}
    parts = {**gpu_files, **held, **files(process(70, mapped=(LIBTORCH, "/dev/kfd")))}
    own = {"/proc/self/ns/pid": "pid:[4026531836]"}

    program = only(collect(machine(parts, links={**gpu_links, **own})))
    unlisted = only(collect(machine({path: text for path, text in parts.items() if path not in held}, links={**gpu_links, **own})))

    assert (program.cuda_used, program.gpu_bus_ids) == (True, (bus_id(1),))
    assert unlisted.gpu_bus_ids is None


def test_programs_on_intels_gpus_are_known_by_their_open_files(machine: MakeMachine) -> None:
    """The build for XPU and the driver of Level Zero; a GPU that was only looked at is none. The same holds in a container."""
    xpu = ("/opt/venv/lib/python3.12/site-packages/torch/lib/libtorch_xpu.so", "/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1.6.33276")
    computing = {
        "/proc/70/fdinfo/5": drm_client(3, "0000:03:00.0", resident_vram0="8 GiB", resident_gtt="192 KiB"),
        "/proc/70/fdinfo/6": drm_client(4, "0000:04:00.0", resident_vram0="0", resident_gtt="192 KiB"),
        "/proc/70/fdinfo/7": drm_client(9, "0000:05:00.0", resident_vram0="1 GiB"),
    }
    opened = {"/proc/70/fd/5": "/dev/dri/renderD128", "/proc/70/fd/6": "/dev/dri/renderD129", "/proc/70/fd/7": "/home/me/x.npy"}
    parts = {**files(process(70, mapped=(LIBTORCH, *xpu))), **computing}
    container = {**opened, "/proc/self/ns/pid": "pid:[4026532000]"}

    for links in (opened, container):
        program = only(collect(machine(parts, links)))
        assert (program.cuda_used, program.gpu_bus_ids) == (True, ("0000:03:00.0",))
    for part in ((), xpu[:1], xpu[1:]):
        assert not only(collect(machine({**files(process(70, mapped=(LIBTORCH, *part))), **computing}, opened))).cuda_used


def test_no_sign_of_a_driver_asks_no_driver(machine: MakeMachine) -> None:
    """A program that maps CUDA's library where no driver is: its GPUs are unknown, and 2 MB of bindings are not imported to learn it."""
    host = machine(files(process(70, mapped=(LIBTORCH, "/dev/nvidiactl"))), calls={"nvml:DeviceGetCount()": 2})

    assert only(collect(host)).gpu_bus_ids is None
    assert "nvml:DeviceGetCount()" not in {source.path for source in host.sources}


def test_data_files_tell_their_file_systems(machine: MakeMachine) -> None:
    """Open and mapped data, of the program and its first worker; libraries, devices and pipes are no data."""
    mounts: Files = {
        "/proc/self/mountinfo": "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:50 / /data rw - nfs4 server:/data rw\n",
    }
    worker = process(80, "pt_data_worker", ppid=70)
    links = {
        "/proc/70/fd/3": "/data/train.bin",
        "/proc/70/fd/4": "pipe:[7]",
        "/proc/80/fd/5": "/home/me/x.npy",
        "/proc/70/fd/1": "/dev/null",
    }
    program = only(collect(machine(files(process(70, mapped=(LIBTORCH, "/data/shard-0.arrow")), worker, mounts), links=links)))

    assert [(mount.point, mount.fstype, mount.files) for mount in program.files.mounts or ()] == [("/", "ext4", 1), ("/data", "nfs4", 2)]
    assert program.files.open == 4


def test_memory_by_node_is_read_where_there_are_nodes(machine: MakeMachine) -> None:
    """Huge pages count by their size; the policy is that of most of the memory."""
    numa: Files = {
        "/proc/70/numa_maps": "7f00 bind:0 anon=5 N0=5 kernelpagesize_kB=2048\n7f10 default file=/x mapped=3 N0=1 N1=2 kernelpagesize_kB=4\n",
        **{f"/sys/devices/system/node/node{node}/cpulist": "" for node in (0, 1)},
    }
    program = only(collect(machine(files(process(70), numa))))

    assert program.memory.policy == "bind:0"
    assert [(pages.node, pages.bytes) for pages in program.memory.nodes or ()] == [(0, (5 << 21) + 4096), (1, 8192)]


@pytest.mark.parametrize("policy", ["prefer (many):1", "prefer (many)=static:1", "weighted interleave:0-1", "prefer:1", "interleave:0-1"])
def test_policies_of_two_words(policy: str) -> None:
    """As the kernel names them (mm/mempolicy.c), whatever follows."""
    assert numa_pages(f"7f00 {policy} anon=5 dirty=5 N1=5 kernelpagesize_kB=4\n")[0] == policy
    assert numa_pages(f"7f00 {policy} N1=5 kernelpagesize_kB=4\n")[0] == policy


def test_memory_of_a_large_process_is_left_alone(machine: MakeMachine) -> None:
    """Counting the pages of 200 GiB would stop the process for a while: that needs --deep."""
    numa: Files = {"/proc/70/numa_maps": "", **{f"/sys/devices/system/node/node{node}/cpulist": "" for node in (0, 1)}}
    large: Files = {"/proc/70/status": "VmRSS:\t209715200 kB\n"}
    host = machine(files(process(70), large, numa))

    assert only(collect(host)).memory.nodes is None
    assert any(source.path == "/proc/70/numa_maps" and "--deep" in (source.error or "") for source in host.sources)


# ---------------------------------------------------------------------- jobs


def test_ranks_of_one_launcher_are_one_job(machine: MakeMachine) -> None:
    """The launcher computes nothing; the first rank speaks for the job."""
    launcher = process(60, argv="python /venv/bin/torchrun --nproc-per-node 2 train.py", threads=("pt_elastic",))
    ranks = [process(70 + rank, ppid=60, env=f"RANK={rank} LOCAL_RANK={rank} WORLD_SIZE=2") for rank in (0, 1)]

    facts = collect(machine(files(launcher, *ranks))).processes

    assert [(program.job.launcher, program.job.rank, program.job.world_size, program.job.id, program.job.leads) for program in facts] == [
        ("torchrun", -1, 1, 60, False),
        ("", 0, 2, 60, True),
        ("", 1, 2, 60, False),
    ]


@pytest.mark.parametrize(
    ("argv", "launcher"),
    [
        ("python -m torch.distributed.run train.py", "torchrun"),
        ("python -m torch.distributed.launch train.py", "torchrun"),
        ("python /venv/bin/accelerate launch train.py", "accelerate"),
        ("python -u -m deepspeed.launcher.launch train.py", "deepspeed"),
        ("python train.py --launcher torchrun_like", ""),
    ],
)
def test_launchers_are_told_by_their_command(machine: MakeMachine, argv: str, launcher: str) -> None:
    """A program that only mentions a launcher is none."""
    assert only(collect(machine(files(process(70, argv=argv))))).job.launcher == launcher


def test_slurm_variables_make_a_rank_only_under_srun(machine: MakeMachine) -> None:
    """The batch script has them too, and is one process of however many tasks."""
    env = "SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NTASKS=8"
    step = only(collect(machine(files(process(70, ppid=50, env=env), {"/proc/50/stat": stat(50, "slurmstepd")}))))
    batch = only(collect(machine(files(process(70, ppid=50, env=env), {"/proc/50/stat": stat(50, "bash")}))))

    assert (step.job.rank, step.job.local_rank, step.job.world_size) == (3, 1, 8)
    assert (batch.job.rank, batch.job.world_size) == (-1, 1)


def test_unreadable_variables_are_unknown(machine: MakeMachine) -> None:
    """No rank, no preload and no setting is concluded from a file that may not be read, or that a title overwrote."""
    denied: Files = {"/proc/70/environ": PermissionError(errno.EACCES, "Permission denied", "/proc/70/environ")}
    program = only(collect(machine(files(process(70), denied))))
    titled = only(collect(machine(files(process(70, argv="VLLM::EngineCore", env="")), links={"/proc/70/exe": "/venv/bin/python3.12"})))
    plain = only(collect(machine(files(process(70, argv="python", env="")), links={"/proc/70/exe": "/venv/bin/python3.12"})))

    assert (program.env, program.job.rank, program.variables.preload_missing) == (None, None, None)
    assert titled.env is None
    assert plain.env == {}


# ---------------------------------------------------------------------- hostile input


@given(st.binary(max_size=600))
@settings(max_examples=25)
def test_any_maps_can_be_sorted(raw: bytes) -> None:
    """Whatever the kernel or a hostile file name holds, sorting ends and is bounded."""
    mapped = Mapped(raw + maps(LIBTORCH).encode() + raw)

    assert mapped.torch == LIBTORCH or "libtorch_cpu" in mapped.torch
    assert len(mapped.libraries) <= 64
    assert torch_mapped(raw) is None or b"/lib" in raw


@given(st.text(max_size=200))
@settings(max_examples=25)
def test_any_stat_is_read_or_refused(text: str) -> None:
    """A name may hold brackets and blanks; anything that is no stat line is a ValueError and nothing else."""
    name = text.replace("\n", " ")
    assert Stat(stat(9, name)).comm == name
    try:
        parsed = Stat(text)
    except ValueError:
        return
    assert parsed.ppid >= 0 or "-" in text


@given(st.text(alphabet="N0123456789=k_ernlpagsizB: \n", max_size=200))
@settings(max_examples=25)
def test_any_numa_maps_can_be_summed(text: str) -> None:
    """Lines that make no sense add nothing."""
    policy, pages = numa_pages(text + "\n7f default N3=2 kernelpagesize_kB=4\n")

    assert any(page.node == 3 and page.bytes >= 8192 for page in pages)
    assert len(policy) <= 80


@given(st.sampled_from(["stat", "statm", "status", "maps", "environ", "cmdline", "schedstat", "limits"]), st.binary(max_size=300))
@settings(max_examples=25)
def test_any_file_of_a_process_may_be_rubbish(name: str, raw: bytes) -> None:
    """No content of any file stops the collector."""
    host = make_machine({**files(process(70), process(71)), f"/proc/70/{name}": raw})

    assert 71 in [program.pid for program in collect(host).processes]


def test_a_hostile_program_shows_and_leaks_nothing(tmp_path: Path) -> None:
    """Names, arguments and variables of a real process come through without escapes, and its secrets not at all."""
    secrets = {
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENGbPxRfiCYzzz",
        "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwx",
        "WANDB_API_KEY": "0123456789abcdef" * 2,
    }
    env = {
        **secrets,
        "LIBRARY": str(torch_library(tmp_path)),
        "COMM": "\x1b[31m[b]x",
        "OMP_NUM_THREADS": "4\x1b[2J\n[red]",
        "NCCL_TOKEN": "nccl-secret-value-1",
    }
    arguments = ("--api-key=sk-verysecretvalue123456", "--password", "hunter2hunter2", "\x1b]0;owned\x07\n[bold]", "\u202egnp.exe")
    with running(PYTHON, FAKE, *arguments, env=env) as pid:
        host = Host("/", record=True)
        facts = collect(host)

    program = next(candidate for candidate in facts.processes if candidate.pid == pid)
    everything = to_json(facts).decode() + repr(host.answers) + repr(host.sources)
    hidden = [*secrets.values(), "verysecretvalue", "hunter2", "nccl-secret"]
    assert [secret for secret in hidden if secret in everything] == []
    texts = (program.name, program.command or "", *(program.env or {}).values())
    assert not any(char in text for text in texts for char in "\x1b\x07\n\u202e")
    assert (program.torch.version, program.torch.prefix) == ("9.9.9+fake", str(tmp_path / "venv"))
    assert "--password" in (program.command or "")


def test_variables_that_nothing_reads_are_found_by_deep_only(tmp_path: Path) -> None:
    """A name is known when a module or library of the loaded PyTorch contains it; what images and plugins set is theirs."""
    library = torch_library(tmp_path)
    library.write_bytes(bytes(9_000_000) + b"NCCL_P2P_LEVEL\0")
    (library.parent.parent / "config.py").write_text('os.environ.get("TORCHINDUCTOR_FX_GRAPH_CACHE")')
    known = {"NCCL_P2P_LEVEL": "NVL", "TORCHINDUCTOR_FX_GRAPH_CACHE": "1", "NCCL_VERSION": "2.30", "NCCL_OFI_X": "1"}
    with running(PYTHON, FAKE, env={"LIBRARY": str(library), "NCCL_P2P_DISABEL": "1", **known}) as pid:
        deep = next(program for program in collect(Host("/", deep=True)).processes if program.pid == pid)
        plain = next(program for program in collect(Host("/")).processes if program.pid == pid)

    assert (deep.variables.searched, deep.variables.unread) == (True, ("NCCL_P2P_DISABEL",))
    assert (plain.variables.searched, plain.variables.unread) == (False, None)


def test_a_pipe_among_the_modules_of_a_program_keeps_nobody_waiting(tmp_path: Path) -> None:
    """`--deep` looks through folders of users: what is no plain file there is an unknown with its reason."""
    library = torch_library(tmp_path)
    os.mkfifo(library.parent.parent / "a.py")
    with running(PYTHON, FAKE, env={"LIBRARY": str(library), "NCCL_P2P_DISABEL": "1"}) as pid:
        host = Host("/", deep=True)
        program = next(candidate for candidate in collect(host).processes if candidate.pid == pid)

    assert (program.variables.searched, program.variables.unread) == (True, None)
    assert "not a plain file" in {source.error for source in host.sources}


def test_looking_at_processes_has_an_end(machine: MakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who makes all of his slow to read does not stop an audit: it says that it left the youngest out."""
    clock = iter(range(0, 1_000, 9))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    host = machine(files(process(70), process(71), process(72)))

    assert [program.pid for program in collect(host).processes] == [70, 71]
    assert ("/proc", "looking at the processes took 20 s: the youngest are not shown") in [
        (source.path, source.error) for source in host.sources
    ]


def test_looking_for_variables_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also among empty files and in too many folders."""
    (tmp_path / "empty.py").touch()
    (tmp_path / "lib").mkdir()
    assert unknown_variables._mentioned(["NCCL_X"], unknown_variables._files(str(tmp_path), [])) == set()
    monkeypatch.setattr(unknown_variables, "MAX_FOLDERS", 1)
    with pytest.raises(OSError, match="folders"):
        unknown_variables._mentioned(["NCCL_X"], unknown_variables._files(str(tmp_path), []))
    monkeypatch.setattr(unknown_variables, "MAX_FOLDERS", 9)
    monkeypatch.setattr(unknown_variables, "MAX_S", -1.0)
    with pytest.raises(OSError, match="30 s"):
        unknown_variables._mentioned(["NCCL_X"], unknown_variables._files(str(tmp_path), []))


# ---------------------------------------------------------------------- real PyTorch


def findings(pid: int) -> tuple[Process, dict[str, Any]]:
    """The facts of a real process and the rules that fire on it."""
    ruleset = judging.load_rules()
    ruleset.select(["openmp", "allocator", "environment"], [])
    report = audit(Host("/"), judging.Terms(ruleset))
    program = next(candidate for candidate in MachineFacts(report.snapshot.areas).programs if candidate.pid == pid)
    return program, {outcome.rule: outcome for outcome in report.findings() if f"pid {pid}" in outcome.about}


@pytest.mark.slow
@needs_torch
@pytest.mark.torch
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs")
def test_binding_variables_collapse_real_workers_and_the_rule_says_so() -> None:
    """OMP_PROC_BIND=true leaves both workers of a real loader on one CPU; without it nothing is said."""
    with running(TORCH_PYTHON, LOADER, env={"OMP_PROC_BIND": "true"}) as pid:
        bound, rules = findings(pid)
    with running(TORCH_PYTHON, LOADER) as pid:
        free, quiet = findings(pid)

    assert (bound.workers.count, bound.workers.start, len(bound.workers.cpus or ())) == (2, "fork", 1)
    assert len(bound.affinity.now or ()) == 1 < len(bound.affinity.at_start or ())
    assert "OMP_PROC_BIND" in rules["openmp.affinity-pins-workers"].message
    assert len(free.workers.cpus or ()) == len(free.affinity.now or ()) > 1
    assert "openmp.affinity-pins-workers" not in quiet


@needs_torch
@pytest.mark.torch
def test_a_real_program_is_described(tmp_path: Path) -> None:
    """Version, prefix, threads and the missing preload of a real PyTorch."""
    version = "import importlib.metadata; print(importlib.metadata.version('torch'))"
    expected = subprocess.run((TORCH_PYTHON, "-c", version), capture_output=True, text=True, check=True).stdout.strip()
    with running(TORCH_PYTHON, LOADER, env={"LD_PRELOAD": "/nope/libjemalloc.so.1", "OMP_NUM_THREADS": "2"}) as pid:
        program, rules = findings(pid)

    assert (program.torch.version, program.variables.preload_missing) == (expected, ("/nope/libjemalloc.so.1",))
    assert Path(program.torch.prefix, "bin").is_dir()
    assert program.loaded.openmp
    assert program.threads.pins_memory is False
    assert "allocator.preload-missing-file" in rules


# ---------------------------------------------------------------------- stuck


def test_only_deep_looks_for_stuck_processes(machine: MakeMachine) -> None:
    """The answer is the machine's own, so that a capture has it."""
    calls: dict[str, object] = {"stuck-tasks": [[7, "python"], [8, "\x1b[31mdd"]]}
    deep, shallow = (collect(machine(files(process(10, pages=SMALL)), calls=calls, deep=deep)).stuck for deep in (True, False))

    assert [(program.pid, program.name) for program in deep or ()] == [(7, "python"), (8, "\\x1b[31mdd")]
    assert shallow is None


def test_a_busy_machine_has_no_stuck_process() -> None:
    """A look at this machine ends, and a process that waits for a timer is not among those found."""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            facts = collect(Host(deep=True)).stuck
        finally:
            sleeper.kill()

    assert facts is not None
    assert sleeper.pid not in {program.pid for program in facts}


def test_a_process_in_vfork_is_seen_as_stuck() -> None:
    """The parent of a vfork() waits uninterruptibly until its child executes something."""
    script = "import ctypes, os\nlibc = ctypes.CDLL(None)\nlibc.vfork.restype = ctypes.c_int\nif libc.vfork() == 0:\n    libc.sleep(60)\n    libc._exit(0)\n"
    with subprocess.Popen([sys.executable, "-c", script], start_new_session=True) as parent:
        try:
            end = time.monotonic() + 60
            children, state = Path(f"/proc/{parent.pid}/task/{parent.pid}/children"), Path(f"/proc/{parent.pid}/stat")
            while time.monotonic() < end and not (children.read_text() and " D " in state.read_text()):
                time.sleep(0.05)  # an interpreter that reads its modules from disk is in state D as well, but has no child
            stuck = stuck_tasks.stuck(Host(deep=True))
        finally:
            os.killpg(parent.pid, signal.SIGKILL)

    assert parent.pid in {program.pid for program in stuck or ()}
