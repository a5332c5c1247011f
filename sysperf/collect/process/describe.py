"""The facts of one PyTorch program, gathered part by part.

Reads   /proc/[pid]/{stat,status,cmdline,maps}  version.py beside the mapped libtorch
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

import shlex
from collections.abc import Sequence

from sysperf.collect.process import loaded_torch
from sysperf.collect.process.affinity import affinity
from sysperf.collect.process.children import children
from sysperf.collect.process.memory import memory
from sysperf.collect.process.open_files import open_files
from sysperf.collect.process.process_tree import Family, forget_if_gone
from sysperf.collect.process.records import Process
from sysperf.collect.process.subject import Machine, Subject
from sysperf.collect.process.thread_demand import threads
from sysperf.collect.process.usage import usage
from sysperf.collect.process.variables import variables
from sysperf.model.record import Fields
from sysperf.model.text import neutral
from sysperf.procfs.maps import OPENMP

MAX_PACKAGES = 64
MAX_COMMAND = 800


def describe(machine: Machine, family: Family) -> Process | None:
    """The facts of one process; None when it ended meanwhile."""
    mark = len(machine.host.sources)
    facts: Fields = {}
    with machine.host.as_owner_of(family.stat.pid):  # its variables and maps name files: its user may not read all that we may
        subject = Subject(machine, family)
        for part in (_identity, _software, variables, children, threads, affinity, usage, memory, open_files):
            facts.update(part(subject))
    return None if forget_if_gone(machine.host, subject.pid, mark) else Process(**facts)


def _identity(subject: Subject) -> Fields:
    stat, argv = subject.stat, subject.family.argv
    return {
        "pid": stat.pid,
        "ppid": stat.ppid,
        "name": neutral(stat.comm, 40),
        "user": subject.status.user,
        "command": None if argv is None else neutral(_command(argv), MAX_COMMAND),
        "start_time": stat.start_ticks,
        "age_s": subject.age_s,
    }


def _command(argv: Sequence[str]) -> str:
    """The command line as one would type it; a program that gave itself a title has one word with blanks in it."""
    return argv[0] if len(argv) == 1 else " ".join(map(shlex.quote, argv))


def _software(subject: Subject) -> Fields:
    mapped, gpus = subject.mapped, subject.machine.gpus
    return {
        "torch_version": subject.version,
        "torch_prefix": loaded_torch.prefix_of(mapped.torch),
        "cuda_used": mapped.cuda or mapped.xpu,
        "gpu_bus_ids": () if not (mapped.cuda or mapped.xpu) else None if gpus is None else tuple(gpus.get(subject.pid, ())),
        "libraries": tuple(mapped.libraries),
        "foreign_libraries": subject.machine.software.foreign(mapped, subject.root),
        "cudnn_folders": tuple(neutral(folder) for folder in mapped.cudnn),
        "openmp": mapped.named(*OPENMP),
        "allocator": mapped.allocators[0] if mapped.allocators else "glibc",
        "allocators": mapped.allocators,
        "sanitizers": tuple(dict.fromkeys(mapped.sanitizers)),
        "profilers": tuple(mapped.profilers),
        "packages": tuple(sorted(mapped.packages))[:MAX_PACKAGES],
        "maps_count": mapped.count,
        "compiled_kernels": mapped.compiled,
    }
