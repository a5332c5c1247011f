"""The size of /dev/shm, through which DataLoader workers and NCCL pass their buffers.

Kernel  https://docs.kernel.org/filesystems/tmpfs.html  https://man7.org/linux/man-pages/man2/mount.2.html
"""

from __future__ import annotations

import errno
import os

from sysperf.fix.target import Target
from sysperf.host import Host
from sysperf.model.knob import Knob
from sysperf.model.text import size
from sysperf.procfs import meminfo, mountinfo

_MS_REMOUNT = 32
_FLAGS = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
"""What a remount must repeat, or it is taken away (<linux/mount.h>)."""


class SharedMemory(Target):
    """The size of the tmpfs at /dev/shm in bytes, in whole pages."""

    def __init__(self, host: Host, knob: Knob) -> None:
        self.host, self.knob, self.path = host, knob, knob.path

    def read(self) -> str:
        """The size."""
        self._options()
        stat = os.statvfs(self.path)
        return str(stat.f_blocks * stat.f_frsize)

    def write(self, value: str) -> None:
        """Remount it with this size; the kernel refuses less than what is in it."""
        import ctypes  # noqa: PLC0415 - 4 ms

        flags = _MS_REMOUNT | sum(_FLAGS.get(option, 0) for option in self._options())
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"tmpfs", self.path.encode(), b"tmpfs", ctypes.c_ulong(flags), f"size={int(value)}".encode()) != 0:
            number = ctypes.get_errno()
            full = number == errno.EINVAL and self._used() > int(value) > 0
            raise OSError(number, f"{self._used()} bytes are in use there" if full else os.strerror(number), self.path)

    def same(self, value: str, other: str) -> bool:
        """Sizes are rounded up to pages."""
        page = os.sysconf("SC_PAGESIZE")
        return -(-int(value) // page) == -(-int(other) // page)

    def refuses(self, value: str) -> str:
        """A file system in memory that is larger than the memory can take the whole machine down."""
        memory = meminfo.sizes(self.host.text("/proc/meminfo") or "").get("MemTotal")
        return f"this machine has {size(memory)} of memory" if memory is not None and int(value) > memory else ""

    def problem(self) -> str:
        """Why it can not be set here."""
        if self.read() == "0":
            return "it has no limit, and the kernel gives none to one that has none"
        return "" if os.geteuid() == 0 else "only root may remount it"

    def _used(self) -> int:
        stat = os.statvfs(self.path)
        return (stat.f_blocks - stat.f_bfree) * stat.f_frsize

    def _options(self) -> list[str]:
        """Return its mount options, without those of the tmpfs itself. Raises OSError when it is no tmpfs of its own."""
        mounts = mountinfo.parse(self.host.text("/proc/self/mountinfo", limit=4 << 20) or "")
        top = next((mount for mount in reversed(mounts) if mount.point == self.path), None)  # the last one lies on top
        if top is not None and top.fstype == "tmpfs" and top.root == "/":  # a part of a larger one has another root
            return list(top.own_options)
        raise OSError(errno.ENODEV, f"{self.path} is no tmpfs of its own")
