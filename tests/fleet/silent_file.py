"""A file that never answers: a FUSE file system of one file, whose server reads no request. Run as a program, it starts one over it.

    unshare --mount python -m tests.fleet.silent_file /proc/sys/vm/swappiness PROGRAM …

Kernel  https://docs.kernel.org/filesystems/fuse.html
"""

from __future__ import annotations

import ctypes
import os
import sys


def make(path: str) -> int:
    """Mount it over a file, in this mount namespace; it answers with an error once the descriptor is closed."""
    server = os.open("/dev/fuse", os.O_RDWR)
    os.set_inheritable(server, True)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mount(b"none", b"/", None, ctypes.c_ulong(0x4000 | 0x40000), None)  # MS_REC | MS_PRIVATE
    options = f"fd={server},rootmode=100444,user_id=0,group_id=0".encode()
    if libc.mount(b"silent", path.encode(), b"fuse", ctypes.c_ulong(0), options):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return server


if __name__ == "__main__":
    make(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - the program of the test
