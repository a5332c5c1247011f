"""The CPUs that a program may use, and those that it had before OpenMP bound its threads.

Reads   /proc/[pid]/status  /sys/devices/system/cpu/cpu*/topology/thread_siblings_list
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from sysperf.collect.process.parts import Affinity
from sysperf.collect.process.subject import Subject
from sysperf.collect.process.threads import all_allowed, allowed_in
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.procfs import cpulist
from sysperf.procfs.maps import OPENMP

_BINDING = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PROC_BIND", "OMP_PLACES")


def affinity(subject: Subject) -> Affinity:
    """The CPUs of the program now and before OpenMP bound it."""
    now = subject.allowed
    asked = None if subject.env is None else any(subject.env.get(name) for name in _BINDING)
    if now is None:
        return Affinity(openmp_bound=asked or None)
    before = _before_binding(subject, now) if asked or _may_be_bound(subject, now) else now
    found_bound = len(before) > len(now) and _is_one_core(subject.host, now)
    return Affinity(now=now, at_start=before, openmp_bound=bool(asked) or found_bound)


def _may_be_bound(subject: Subject, now: CpuSet) -> bool:
    """Whether its script may have asked OpenMP for a binding: the runtime is there, and its main thread has one core only."""
    return bool(subject.mapped.named(*OPENMP)) and _is_one_core(subject.host, now)


def _is_one_core(host: Host, cpus: CpuSet) -> bool:
    """Whether these are one CPU, or the threads of one core: the places that OpenMP binds to."""
    first = next(iter(cpus), None)
    return first is not None and (len(cpus) == 1 or set(cpus) == set(_threads_of_core(host, first) or (first,)))


def _threads_of_core(host: Host, cpu: int) -> CpuSet | None:
    return cpulist.parse(host.word(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))


def _before_binding(subject: Subject, now: CpuSet) -> CpuSet:
    """The CPUs of all its threads, its workers and its parent: taskset leaves a parent more, but no other thread of the program."""
    host = subject.host
    threads = all_allowed(host, subject.pid, subject.threads)
    workers = [allowed_in(host, f"/proc/{stat.pid}/status") or CpuSet() for stat in subject.workers]
    asked = subject.env is not None and any(subject.env.get(name) for name in _BINDING)
    if not asked and threads.issubset(now) and not subject.workers:
        return now  # one core for all its threads, and nobody inherits it: taskset or a cpuset, as far as anybody can tell
    parent = allowed_in(host, f"/proc/{subject.stat.ppid}/status") or CpuSet()
    group = subject.machine.groups.of(subject.pid)
    cpuset = group.cpuset if group else None
    return CpuSet.union((now, threads, *workers, parent if cpuset is None else parent & cpuset))
