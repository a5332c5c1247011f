"""Binding for real: in a child process, read back from the kernel."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from sysperf.launch import bind

NUMA = os.path.exists("/proc/self/numa_maps") and os.uname().machine in bind._NUMBERS


def child(code: str) -> str:
    """What a Python of our own prints after this code."""
    head = "from sysperf.launch import bind; from sysperf.model.cpuset import CpuSet; import os\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_cpus() -> None:
    """The mask is what was asked for; a CPU that is not there is said, not raised."""
    first = min(os.sched_getaffinity(0))

    assert child(f"print(repr(bind.bind_cpus(CpuSet([{first}]))), os.sched_getaffinity(0))") == f"'' {{{first}}}"
    assert "failed" in child("print(bind.bind_cpus(CpuSet([60000])))")


@pytest.mark.skipif(not NUMA, reason="this kernel has no NUMA memory policies")
@pytest.mark.parametrize(("policy", "in_numa_maps"), [("preferred", "prefer"), ("strict", "bind"), ("interleave", "interleave")])
def test_memory_policies_survive_exec(policy: str, in_numa_maps: str) -> None:
    """The policy is in force in the program that is executed next."""
    code = f"print(repr(bind.bind_memory(CpuSet([0]), '{policy}')), flush=True); os.execlp('head', 'head', '-1', '/proc/self/numa_maps')"

    first_line, policy_line = child(code).splitlines()
    assert first_line == "''"
    assert policy_line.split()[1].startswith(in_numa_maps)


@pytest.mark.skipif(not NUMA, reason="this kernel has no NUMA memory policies")
def test_a_node_that_is_not_there() -> None:
    """Said in the system's words; the program would start all the same."""
    assert child("print(bind.bind_memory(CpuSet([63]), 'strict'))") == "memory policy not set: Invalid argument"


@pytest.mark.skipif(not NUMA, reason="this kernel has no NUMA memory policies")
def test_a_policy_that_is_set_is_seen() -> None:
    """As an outer numactl leaves it."""
    assert child("print(bind.has_policy()); bind.bind_memory(CpuSet([0]), 'preferred'); print(bind.has_policy())") == "False\nTrue"


SECCOMP = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
number, action = {number}, {action}
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, action), (0x06, 0, 0, 0x7FFF0000)]
code = b"".join(struct.pack("HBBI", *step) for step in steps)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
program = Program(len(steps), code)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program)) == 0, ctypes.get_errno()
"""


@pytest.mark.skipif(not NUMA or platform.machine() != "x86_64", reason="the filter is written for x86-64")
@pytest.mark.parametrize(("action", "says"), [(0x00050001, "container without CAP_SYS_NICE"), (0x80000000, "SIGSYS by a seccomp filter")])
def test_a_container_that_forbids_it(action: int, says: str) -> None:
    """Refused with EPERM or by killing whoever tries: only a child tries, and we go on."""
    code = SECCOMP.format(number=238, action=action) + "print(bind.bind_memory(CpuSet([0]), 'preferred'))"

    assert says in child(code)
