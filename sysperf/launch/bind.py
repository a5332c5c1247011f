"""Binding this process, so that what it executes next is bound: CPUs by sched_setaffinity, memory by set_mempolicy.

Kernel  https://man7.org/linux/man-pages/man2/set_mempolicy.2.html
        https://docs.kernel.org/admin-guide/mm/numa_memory_policy.html

Both survive exec. Containers often forbid set_mempolicy, some by killing whoever tries: it is tried in a child first.
"""

import errno
import os
from collections.abc import Callable

from sysperf.model.cpuset import CpuSet

SystemCall = Callable[..., int]
"""syscall(2), whose arguments are of the types that ctypes has."""
_NUMBERS = {
    # by machine, the numbers of set_mempolicy and get_mempolicy
    "x86_64": (238, 239),
    "aarch64": (237, 236),
    "riscv64": (237, 236),
    "loongarch64": (237, 236),
    "ppc64le": (261, 260),
    "ppc64": (261, 260),
    "s390x": (270, 269),
}
_PREFERRED, _BIND, _INTERLEAVE, _PREFERRED_MANY = 1, 2, 3, 5
_WORD = 64
FAILED, KILLED = 1, 2


def bind_cpus(cpus: CpuSet) -> str:
    """Bind; "" or why that failed. A launcher's or container's limits hold: the kernel cuts the set to them."""
    try:
        os.sched_setaffinity(0, list(cpus))
    except OSError as error:
        return f"binding to CPUs {cpus} failed: {error.strerror}"
    return ""


def bind_memory(nodes: CpuSet, policy: str) -> str:
    """Set the memory policy; "" or why that failed. The program runs all the same."""
    call = _call()
    if call is None:
        return f"memory policy not set: not known how on {os.uname().machine}"
    # Before Linux 5.15 there is no way to prefer several nodes: one of them would be worse than none.
    preferred = (_PREFERRED_MANY,) if len(nodes) > 1 else (_PREFERRED_MANY, _PREFERRED)
    modes = {"preferred": preferred, "strict": (_BIND,), "interleave": (_INTERLEAVE,)}[policy]
    problem = ""
    for mode in modes:
        problem = _probe(call, mode, nodes)
        if not problem:
            code = _set(call, mode, nodes)
            return f"memory policy not set: {os.strerror(code)}" if code else ""
    return f"memory policy not set: {problem}"


def has_policy() -> bool:
    """Whether somebody gave this process a memory policy already, as numactl does."""
    call = _call()
    if call is None:
        return False
    import ctypes  # noqa: PLC0415 - 4 ms; machines with one node do not pay

    mode = ctypes.c_int(0)
    numbers = _NUMBERS[os.uname().machine]
    return bool(call(numbers[1], ctypes.byref(mode), None, ctypes.c_ulong(0), None, ctypes.c_ulong(0)) == 0 and mode.value & 0xFF)


def _call() -> SystemCall | None:
    if os.uname().machine not in _NUMBERS:
        return None
    import ctypes  # noqa: PLC0415 - 4 ms; machines with one node do not pay

    return ctypes.CDLL(None, use_errno=True).syscall


def _set(call: SystemCall, mode: int, nodes: CpuSet) -> int:
    """0, or the error number."""
    import ctypes  # noqa: PLC0415 - 4 ms; machines with one node do not pay

    words = nodes.bits.bit_length() // _WORD + 1
    mask = (ctypes.c_uint64 * words)(*(nodes.bits >> _WORD * word & (1 << _WORD) - 1 for word in range(words)))
    # The kernel takes one bit less than it is told (set_mempolicy(2), NOTES).
    done = call(_NUMBERS[os.uname().machine][0], ctypes.c_int(mode), ctypes.byref(mask), ctypes.c_ulong(words * _WORD + 1))
    return ctypes.get_errno() if done else 0


def _probe(call: SystemCall, mode: int, nodes: CpuSet) -> str:
    """Why the call would fail; "" when it works."""
    pid = os.fork()
    if pid == 0:
        code = errno.EINVAL
        try:
            code = _set(call, mode, nodes)
        finally:
            os._exit(min(code, 255))
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        import signal  # noqa: PLC0415 - 0.7 ms, with this problem only

        return f"forbidden here ({signal.Signals(os.WTERMSIG(status)).name} by a seccomp filter)"
    code = os.WEXITSTATUS(status)
    if code == errno.EPERM:
        return "forbidden here (a container without CAP_SYS_NICE, or a seccomp filter)"
    return os.strerror(code) if code else ""
