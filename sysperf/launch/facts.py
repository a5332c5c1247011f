"""launch: the command that `sysperf wrap` starts, the environment it gets, and the place found for it.

Rules of scope `launch` judge these facts; `sysperf facts --describe launch` lists them.
"""

from __future__ import annotations

from typing import Annotated

from sysperf.launch.environment import MARKER
from sysperf.launch.gpus import GPUS, VISIBLE
from sysperf.launch.load import LOADAVG, MEMINFO, PRESSURE
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record, fact

COMMAND = "command"
ENVIRON = "environment"
STATUS = "/proc/self/status"
CORES = "/sys/devices/system/cpu/cpu*/topology/*"
NODES = "/sys/devices/system/node/node*/*"
QUOTA = "/sys/fs/cgroup/*/cpu.*"
TORCH = "/*/torch/version.py"
PLACED = (STATUS, CORES, NODES, QUOTA)


class Launch(Record):
    """What is started, for whom, and where."""

    # ---- the command
    command: Annotated[tuple[str, ...], fact("the command, without secrets", COMMAND)]
    kind: Annotated[str, fact("python, launcher (starts ranks), shell, environment (conda run) or program", COMMAND)]
    program: Annotated[str, fact("the program behind env, nice, numactl and the like", COMMAND)] = ""
    script: Annotated[str, fact("the script that Python runs; empty for a module or none", COMMAND)] = ""
    module: Annotated[str, fact("the module that Python runs (-m); empty without", COMMAND)] = ""
    launcher: Annotated[str, fact("torchrun, accelerate, mpirun, …; empty for a program that computes itself", COMMAND)] = ""
    launcher_ranks: Annotated[int | None, fact("ranks that the launcher starts here", COMMAND)] = None
    cpu_tool: Annotated[str, fact("tool in the command that chooses CPUs (taskset, numactl); empty without", COMMAND)] = ""
    memory_tool: Annotated[str, fact("tool in the command that chooses memory; empty without", COMMAND)] = ""
    is_python: Annotated[bool | None, fact("whether a Python program runs in the end, as far as files tell", COMMAND)] = None
    interpreter: Annotated[str, fact("the Python that runs it; empty when unknown", COMMAND)] = ""
    torch: Annotated[bool | None, fact("whether that Python has PyTorch", TORCH)] = None
    torch_version: Annotated[str, fact("version of that PyTorch; empty when unknown", TORCH)] = ""
    torch_gpu: Annotated[bool | None, fact("whether that PyTorch is built for GPUs", TORCH)] = None
    openmp_runtime: Annotated[
        str, fact("OpenMP runtime of that PyTorch: libgomp, libiomp5, libomp; empty when unknown", "/*/torch/lib")
    ] = ""

    # ---- the environment
    env: Annotated[dict[str, str], fact("performance variables that reach the program, without secrets", ENVIRON)] = {}
    injected: Annotated[
        tuple[str, ...], fact("variables among them that a launcher set and no user chose", ENVIRON, "/proc/*/environ")
    ] = ()
    wrapped: Annotated[bool, fact("an outer `sysperf wrap` has placed this program already", f"{ENVIRON}:{MARKER}")] = False
    traceable: Annotated[bool, fact("asked for with --traceable", COMMAND)] = False
    trace_folder: Annotated[str, fact("folder of the sockets for traces on demand; empty without --traceable", COMMAND)] = ""
    allocator: Annotated[str, fact("allocator asked for with --allocator; empty without", COMMAND)] = ""
    allocator_missing: Annotated[bool, fact("that allocator is not here, or the program would not take it", COMMAND, "/*/lib")] = False
    threads_variable: Annotated[str, fact("variable of the user's that decides how many threads torch starts; empty without", ENVIRON)] = ""
    unpinned: Annotated[bool, fact("variables that bind the main thread are unset: asked for with --unpin", COMMAND)] = False
    main_thread_cpus: Annotated[
        CpuSet | None, fact("CPUs to which importing torch would bind the main thread; empty: to none", ENVIRON, *PLACED)
    ] = None

    # ---- the job
    rank_source: Annotated[str, fact("launcher of which this process is a rank; empty for a process of its own", ENVIRON)] = ""
    rank: Annotated[int, fact("its number among the ranks of this machine", ENVIRON)] = 0
    ranks: Annotated[int | None, fact("ranks on this machine", ENVIRON)] = None
    own_cpus: Annotated[bool, fact("the launcher gave each rank CPUs of its own", STATUS, "/proc/*/status", ENVIRON)] = False
    gpus: Annotated[tuple[str, ...] | None, fact("PCI addresses of the GPUs that it will see", GPUS, f"{ENVIRON}:{VISIBLE}")] = None
    gpu_problem: Annotated[str, fact("why those are unknown", ENVIRON)] = ""

    # ---- the machine
    other_runnable: Annotated[int | None, fact("other tasks that want to run, in two looks", LOADAVG)] = None
    pressure: Annotated[float | None, fact("share of the last 10 s in which some task waited for a CPU", PRESSURE)] = None
    memory_total_bytes: Annotated[int | None, fact("memory that the machine, or the control group, has", MEMINFO)] = None
    memory_available_bytes: Annotated[int | None, fact("memory that is free, or easily freed", MEMINFO)] = None
    keepable_bytes: Annotated[
        int | None, fact("freed memory that a rank's allocator may keep: an eighth of what is available, as a power of two", MEMINFO)
    ] = None
    online_cpus: Annotated[int | None, fact("CPUs that are online", "/sys/devices/system/cpu/online")] = None
    quota: Annotated[float | None, fact("CPUs' worth of time that the control group has; 0 is no quota", QUOTA)] = None

    # ---- the place
    allowed: Annotated[CpuSet | None, fact("CPUs that it may use", STATUS)] = None
    cpus: Annotated[CpuSet | None, fact("CPUs found best for it", *PLACED)] = None
    target: Annotated[str, fact("what those are: gpu-node, node, rank-share, cpus (asked for); empty: all that it may use", *PLACED)] = ""
    nodes: Annotated[CpuSet | None, fact("memory nodes of those CPUs", NODES)] = None
    memory_nodes: Annotated[CpuSet | None, fact("memory nodes to prefer; empty: memory comes from where it runs", NODES)] = None
    strict_memory: Annotated[bool, fact("memory may come from no other node: asked for with --strict-memory", COMMAND)] = False
    cores: Annotated[int | None, fact("physical cores among those CPUs that should compute", *PLACED)] = None
    threads: Annotated[int | None, fact("compute threads that are right there", *PLACED)] = None
    default_threads: Annotated[int | None, fact("compute threads that PyTorch would start by itself", STATUS, CORES)] = None
    threads_asked: Annotated[bool, fact("asked for with --threads", COMMAND)] = False
    notes: Annotated[tuple[str, ...], fact("what was left alone, and why", *PLACED)] = ()
