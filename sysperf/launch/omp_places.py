"""The CPUs to which OpenMP's variables bind the main thread when torch is imported: every process that it starts inherits them.

libgomp  https://gcc.gnu.org/onlinedocs/libgomp/Environment-Variables.html
OpenMP   https://www.openmp.org/spec-html/5.2/openmpse66.html (OMP_PLACES)

Seen with torch 2.13 and libgomp: OMP_PLACES comes before GOMP_CPU_AFFINITY, `false` switches both off, `primary` alone binds nothing,
and what cannot be read is ignored. The main thread gets the first place.
"""

from collections.abc import Mapping, Sequence

from sysperf.launch.machine import Machine
from sysperf.model.cpuset import MAX_CPU, CpuSet
from sysperf.startup import lazy

VARIABLES = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
NOT_BOUND = CpuSet()
_ABSTRACT = lazy(r"(threads|cores|ll_caches|sockets|numa_domains)(?:\([0-9]{1,5}\))?")
_PLACE = lazy(r"\{([0-9:, ]{1,2000})\}(?=$|[,:])")
_INTERVAL = lazy(r"([0-9]{1,6})(?::([0-9]{1,6}))?(?::([0-9]{1,6}))?")
_FIRST = lazy(r"[ ,]*([0-9]{1,6})")
_POLICIES = frozenset(("true", "close", "spread"))


def main_thread_cpus(env: Mapping[str, str], machine: Machine, allowed: CpuSet) -> CpuSet | None:
    """The CPUs that the main thread keeps; empty when nothing binds it, None when the variables are not understood."""
    policy = env.get("OMP_PROC_BIND", "").strip().lower().partition(",")[0]
    places = env.get("OMP_PLACES", "").strip().lower()
    if policy == "false":
        return NOT_BOUND
    if places:
        place = _first_place(places, machine, allowed)
        return place if place != allowed else NOT_BOUND
    if first := _FIRST.match(env.get("GOMP_CPU_AFFINITY", "")):
        return CpuSet((min(int(first[1]), MAX_CPU),)) & allowed
    return CpuSet((allowed.first() or 0,)) if policy in _POLICIES and len(allowed) > 1 else NOT_BOUND


def _first_place(text: str, machine: Machine, allowed: CpuSet) -> CpuSet | None:
    """The first place of OMP_PLACES; empty when it is ignored, None when that is unknown."""
    if abstract := _ABSTRACT.fullmatch(text):
        first = allowed.first() or 0
        groups = _groups(abstract[1], machine)
        return None if groups is None else next((group & allowed for group in groups if first in group), CpuSet((first,)))
    listed = _PLACE.match(text)
    if listed is None:
        return None if "{" in text else NOT_BOUND
    cpus = [_interval(part.strip()) for part in listed[1].split(",")]
    return None if None in cpus else CpuSet.union(group for group in cpus if group) & allowed


def _groups(name: str, machine: Machine) -> Sequence[CpuSet] | None:
    if name == "threads":
        return ()
    if name == "numa_domains":
        return [node.cpus for node in machine.nodes] or None
    return {"cores": machine.cores, "ll_caches": machine.l3_domains, "sockets": machine.packages}[name]


def _interval(text: str) -> CpuSet | None:
    """``first``, ``first:length`` or ``first:length:stride``."""
    interval = _INTERVAL.fullmatch(text)
    if interval is None:
        return None
    first, length, stride = int(interval[1]), int(interval[2] or 1), int(interval[3] or 1)
    return CpuSet(cpu for cpu in range(first, min(first + length * stride, MAX_CPU + 1), max(stride, 1)))
