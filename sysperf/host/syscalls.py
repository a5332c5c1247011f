"""System calls that Python has no function for, by their number on this machine's processor.

Kernel  https://docs.kernel.org/process/adding-syscalls.html (each architecture has a table of its own)
"""

from __future__ import annotations

import errno
import os

_GENERIC = {"ioprio_set": 30, "ioprio_get": 31, "migrate_pages": 238, "setgroups": 159}
_NUMBERS = {
    "x86_64": {"ioprio_set": 251, "ioprio_get": 252, "migrate_pages": 256, "setgroups": 116},
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
    "loongarch64": _GENERIC,
    "ppc64le": {"ioprio_set": 273, "ioprio_get": 274, "migrate_pages": 258, "setgroups": 81},
    "s390x": {"ioprio_set": 282, "ioprio_get": 283, "migrate_pages": 287, "setgroups": 206},
}


def syscall(name: str, *args: object) -> int:
    """The answer of a system call; arguments are ctypes values. Raises OSError."""
    import ctypes  # noqa: PLC0415 - 4 ms; only changes to processes pay

    number = _NUMBERS.get(os.uname().machine, {}).get(name)
    if number is None:
        raise OSError(errno.ENOSYS, f"{name} is not known on {os.uname().machine}")
    answer = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *args)
    if answer == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    return int(answer)
