"""What OpenMP's variables do to the main thread, as `sched_getaffinity` showed it after `import torch` (libgomp)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.launch.machine import Machine, MemoryNode
from sysperf.launch.omp_places import main_thread_cpus
from sysperf.model.cpuset import CpuSet

TWO = CpuSet(range(2))
SMALL = Machine(TWO, TWO, (CpuSet([0]), CpuSet([1])), l3_domains=(TWO,), nodes=(MemoryNode(0, TWO),), packages=(TWO,))
ALL = ""


@pytest.mark.parametrize(
    ("variables", "cpus"),
    [
        # measured on two CPUs of one socket with torch 2.13
        ("OMP_PLACES=sockets", ALL),
        ("OMP_PLACES={0,1}", ALL),
        ("OMP_PLACES={0},{1}", "0"),
        ("OMP_PLACES=cores", "0"),
        ("OMP_PLACES=threads", "0"),
        ("OMP_PLACES=threads(1)", "0"),
        ("OMP_PLACES=cores OMP_PROC_BIND=false", ALL),
        ("OMP_PLACES={0:2}", ALL),
        ("OMP_PLACES={0}:2:1", "0"),
        ("OMP_PLACES=ll_caches", ALL),
        ("OMP_PLACES=numa_domains", ALL),
        ("OMP_PLACES=garbage", ALL),
        ("OMP_PROC_BIND=true", "0"),
        ("OMP_PROC_BIND=close", "0"),
        ("OMP_PROC_BIND=primary", ALL),
        ("OMP_PROC_BIND=garbage", ALL),
        ("OMP_PROC_BIND=true OMP_PLACES={0,1}", ALL),
        ("OMP_PROC_BIND=close OMP_PLACES=sockets", ALL),
        ("GOMP_CPU_AFFINITY=0-1", "0"),
        ("GOMP_CPU_AFFINITY=1", "1"),
        ("GOMP_CPU_AFFINITY=0 OMP_PROC_BIND=false", ALL),
        ("GOMP_CPU_AFFINITY=0 OMP_PLACES=sockets", ALL),
        ("OMP_PROC_BIND=false,close", ALL),
        ("GOMP_CPU_AFFINITY=7", ALL),
        ("", ALL),
    ],
)
def test_as_measured(variables: str, cpus: str) -> None:
    """Where the main thread may run after torch was imported; all CPUs are no binding."""
    env = dict(word.split("=", 1) for word in variables.split())

    assert str(main_thread_cpus(env, SMALL, TWO)) == cpus


def test_a_socket_of_two_binds_to_half() -> None:
    """Workers then have half of the machine."""
    every = CpuSet(range(8))
    machine = Machine(every, every, packages=(CpuSet(range(4)), CpuSet(range(4, 8))))

    assert str(main_thread_cpus({"OMP_PLACES": "sockets"}, machine, every)) == "0-3"
    assert str(main_thread_cpus({"OMP_PLACES": "sockets"}, machine, CpuSet(range(5, 8)))) == ""


@pytest.mark.parametrize("places", ["!{0},{1}", "{!0,1}", "{0:2:1:4}", "{0"])
def test_what_is_not_understood_is_unknown(places: str) -> None:
    """Neither bound nor unbound; and a machine whose caches nobody knows."""
    assert main_thread_cpus({"OMP_PLACES": places}, SMALL, TWO) is None
    assert main_thread_cpus({"OMP_PLACES": "ll_caches"}, Machine(TWO, TWO), TWO) is None


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_any_text(bind: str, places: str, affinity: str) -> None:
    """Whatever stands there: CPUs that are allowed, or unknown."""
    cpus = main_thread_cpus({"OMP_PROC_BIND": bind, "OMP_PLACES": places, "GOMP_CPU_AFFINITY": affinity}, SMALL, TWO)

    assert cpus is None or cpus.issubset(TWO)
