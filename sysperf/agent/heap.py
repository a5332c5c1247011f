"""The agent's memory: one heap for all threads, and free memory goes back to the kernel."""

from __future__ import annotations

import contextlib
import ctypes
import gc

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""mallopt(3)."""
LARGE_BYTES = 64 << 10


def keep_small() -> None:
    """Let the C library keep little of what is freed, and Python collect its garbage."""
    gc.enable()
    _libc("mallopt", M_ARENA_MAX, 1)  # a heap for each thread would cost 1 to 2 MB each
    _libc("mallopt", M_MMAP_THRESHOLD, LARGE_BYTES)  # what is large goes back to the kernel when it is freed, and leaves no hole
    _libc("mallopt", M_TRIM_THRESHOLD, LARGE_BYTES)


def freeze() -> None:
    """Spare later collections what lives as long as the agent: call once everything is loaded."""
    gc.collect()
    gc.freeze()


def give_back() -> None:
    """Let go of garbage and of free memory: audit passes leave some of both."""
    gc.collect()
    _libc("malloc_trim", 0)


def _libc(function: str, *arguments: int) -> None:
    """Call the C library where it is glibc; others neither have nor need these calls."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None)[function](*arguments)
