"""The OpenMP settings of the shell, and the runtimes beside PyTorch's own."""

from __future__ import annotations

import pytest

from sysperf.collect.openmp import binding_variables, collect
from sysperf.host import Host
from tests.collect.test_allocator import cache
from tests.conftest import MakeMachine

X86 = {"uname": ["6.1.0", "x86_64"]}


def shell(machine: MakeMachine, *variables: str, **files: bytes) -> Host:
    """A machine whose shell has these variables."""
    environ = "\0".join(("PATH=/bin", *variables, ""))
    return machine({"/proc/self/environ": environ, "/etc/ld.so.cache": cache({}), **files}, calls={**X86, "sudo": False})


def test_numbers_are_parsed_and_what_is_not_set_is_zero(machine: MakeMachine) -> None:
    """A list of numbers for nested teams is no plain number: unknown, not the first of them."""
    facts = collect(shell(machine, "OMP_NUM_THREADS=4", "MKL_NUM_THREADS=8,2"))

    assert (facts.num_threads, facts.mkl_num_threads, facts.thread_limit) == (4, None, 0)
    assert facts.variables == {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "8,2"}


@pytest.mark.parametrize(
    ("variables", "binding"),
    [
        ({"GOMP_CPU_AFFINITY": "0-3"}, ["GOMP_CPU_AFFINITY"]),
        ({"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}, ["OMP_PROC_BIND", "OMP_PLACES"]),
        ({"OMP_PLACES": "cores"}, ["OMP_PLACES"]),
        ({"OMP_PROC_BIND": " FALSE", "GOMP_CPU_AFFINITY": "0-3", "OMP_PLACES": "cores"}, []),
        ({"OMP_NUM_THREADS": "4"}, []),
        ({"KMP_AFFINITY": "granularity=fine,compact,1,0"}, []),
    ],
)
def test_variables_that_bind_are_told_from_those_that_do_not(variables: dict[str, str], binding: list[str]) -> None:
    """As measured with libgomp: false switches all of it off, places alone bind, Intel's variable is Intel's."""
    assert binding_variables(variables, has_intel=False) == binding


def test_intels_variable_binds_where_its_runtime_is(machine: MakeMachine) -> None:
    """KMP_AFFINITY counts with libiomp5 in the active environment, and none or disabled bind nothing."""
    intel = {"/env/lib/libiomp5.so": b""}

    compact = collect(shell(machine, "CONDA_PREFIX=/env", "KMP_AFFINITY=granularity=fine,compact,1,0", **intel))
    none = collect(shell(machine, "CONDA_PREFIX=/env", "KMP_AFFINITY=granularity=fine,none", **intel))

    assert (compact.binding, none.binding) == (("KMP_AFFINITY=granularity=fine,compact,1,0",), ())
    assert [(runtime.name, runtime.path) for runtime in compact.runtimes or ()] == [("libiomp5", "/env/lib/libiomp5.so")]


def test_behind_sudo_the_shell_is_unknown(machine: MakeMachine) -> None:
    """sudo drops the variables: saying that none is set would be a guess."""
    host = machine({"/proc/self/environ": "PATH=/bin\0"}, calls={"sudo": True})

    facts = collect(host)

    assert (facts.variables, facts.num_threads, facts.binding) == (None, None, None)
    assert any("sudo" in (source.error or "") for source in host.sources)


def test_a_capture_without_the_shell_is_unknown(machine: MakeMachine) -> None:
    """No environment, no loader cache: nothing is said of either."""
    facts = collect(machine({}))

    assert (facts.variables, facts.runtimes) == (None, None)
