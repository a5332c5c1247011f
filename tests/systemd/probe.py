"""Runs in the sandbox of a unit and tries what it must, or must not, be able to do. Changes nothing: files are opened, not written.

The answer is one JSON object: what was tried, and "ok" or the name of the error.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

CREATED = (
    "/etc",
    "/usr",
    "/opt",
    "/var",
    "/var/lib/sysperf-other",
    "/data",
    "/home",
    "/root",
    "/run",
    "/run/sysperf",
    "/dev/shm",
    "/sys/fs/cgroup",
)
OPENED = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/sched_autogroup_enabled",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/vm/swappiness",
    "/sys/kernel/mm/ksm/run",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/khugepaged/defrag",
    "/proc/sysrq-trigger",
    "/dev/kmsg",
)
READ = ("/etc/shadow", "/home/keep/secret", "/etc/sysperf-secret", "/var/lib/sysperf/journal")
CLONE_NEWUSER = 0x10000000

LIBC = ctypes.CDLL(None, use_errno=True)


def tried(action: Callable[[], Any]) -> str:
    """ok, or the error's name."""
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    except Exception as error:  # noqa: BLE001 - part of the answer
        return type(error).__name__
    return "ok"


def called(name: str, *arguments: Any) -> Callable[[], None]:
    """A function of libc that gives -1 when it fails."""

    def call() -> None:
        if getattr(LIBC, name)(*arguments) < 0:
            raise OSError(ctypes.get_errno(), name)

    return call


def created(folder: str) -> Callable[[], None]:
    def create() -> None:
        path = f"{folder}/sysperf-probe"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(path)

    return create


def opened(path: str, flags: int = os.O_WRONLY) -> Callable[[], None]:
    return lambda: os.close(os.open(path, flags))


def connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)


def main(other: int, knobs: list[str]) -> dict[str, str]:
    """`other` is a process of another user; `knobs` are files that a helper may write."""
    answers = {f"create in {folder}": tried(created(folder)) for folder in CREATED}
    answers |= {"create in the state folder": tried(created(os.environ.get("STATE_DIRECTORY", "/no state folder")))}
    answers |= {f"write {path}": tried(opened(path)) for path in (*OPENED, *knobs)}
    answers |= {f"read {path}": tried(opened(path, os.O_RDONLY)) for path in READ}
    answers |= {
        "read environ of another": tried(opened(f"/proc/{other}/environ", os.O_RDONLY)),
        "read maps of another": tried(opened(f"/proc/{other}/maps", os.O_RDONLY)),
        "read status of another": tried(opened(f"/proc/{other}/status", os.O_RDONLY)),
        "write memory of another": tried(opened(f"/proc/{other}/mem", os.O_RDWR)),
        "trace another": tried(called("ptrace", 0x4206, other, None, None)),
        "move another": tried(lambda: os.sched_setaffinity(other, os.sched_getaffinity(other))),
        "end another": tried(lambda: os.kill(other, 0)),
        "internet socket": tried(lambda: socket.socket(socket.AF_INET).close()),
        "packet socket": tried(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()),
        "mount": tried(called("mount", b"none", b"/mnt", b"tmpfs", 0, None)),
        "become root": tried(lambda: os.setuid(0)),
        "module": tried(called("syscall", 175, None, 0, b"")),
        "writable code": tried(lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()),
        "realtime": tried(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))),
        # last, because it takes away what root could do
        "namespace": tried(called("unshare", CLONE_NEWUSER)),
        "helper": tried(lambda: connect("/run/sysperf/helper.sock")),
    }
    return answers


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2:])))
