"""Bandwidth of memory: copies by the C library, and triads of torch on a CPU or a GPU."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import threading

from .timing import LIBC, Arguments, Rate, bind, of_list, rounds, synchronize

MPOL_DEFAULT, MPOL_BIND = 0, 2
SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
WORDS_OF_NODES = 16
_memmove = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(("memmove", LIBC))
"""Of the C library, called without Python's lock: `ctypes.memmove` keeps nothing else from running either."""


def allocate_on(node: int | None) -> None:
    """Have memory that is touched from now on come from one node, or from where it is touched. A kernel that refuses is left alone."""
    number = SET_MEMPOLICY.get(platform.machine())
    if number is None:
        return
    mask = (ctypes.c_ulong * WORDS_OF_NODES)()
    if node is not None:
        mask[node // 64] = 1 << node % 64
    LIBC.syscall(number, MPOL_DEFAULT if node is None else MPOL_BIND, mask if node is not None else None, 64 * WORDS_OF_NODES)


def share_on_node(address: int, node: int) -> float:
    """Return the share of a mapping's pages that lie on a memory node: numa_maps(5) of the mapping that holds the address."""
    with open("/proc/self/numa_maps") as file:
        mappings = [(int(line.split(" ", 1)[0], 16), line.split()) for line in file]
    _, words = max(mapping for mapping in mappings if mapping[0] <= address)
    pages = {word.partition("=")[0]: int(word.partition("=")[2]) for word in words if word[0] == "N" and word[1:2].isdigit()}
    return pages.get(f"N{node}", 0) / max(1, sum(pages.values()))


def check_place(address: int, node: int | None) -> None:
    """Raise RuntimeError where memory does not lie on the node that was asked for."""
    if node is not None and share_on_node(address, node) < 0.9:
        raise RuntimeError(f"the kernel gave memory of other nodes than {node}")


def copy(asked: Arguments) -> Rate:
    """Copy memory by the C library, a thread a CPU, each its own part; both what is read and what is written counts, in bytes."""
    cpus = sorted(of_list(asked["cpus"]))
    part = asked["bytes"] // len(cpus) // mmap.PAGESIZE * mmap.PAGESIZE
    node = asked.get("node")
    allocate_on(node)
    whole = mmap.mmap(-1, 2 * part * len(cpus))
    start_of = ctypes.addressof(ctypes.c_char.from_buffer(whole))
    ready, go = threading.Barrier(len(cpus) + 1), threading.Barrier(len(cpus) + 1)
    took: list[float] = []

    def one(number: int) -> None:
        allocate_on(node)
        source = start_of + 2 * part * number
        if asked.get("near"):
            os.sched_setaffinity(0, of_list(asked["near"]))
        ctypes.memset(source, 1, 2 * part)
        os.sched_setaffinity(0, {cpus[number]})
        ready.wait()
        go.wait()
        took.append(rounds(lambda: _memmove(source + part, source, part), asked["seconds"]))

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(len(cpus))]
    for thread in threads:
        thread.start()
    ready.wait()
    check_place(start_of, node)
    go.wait()
    for thread in threads:
        thread.join()
    allocate_on(None)
    return sum(2 * part / seconds for seconds in took), ""


def triad(asked: Arguments) -> Rate:
    """Return the bytes a second of STREAM's triad, a = b + 3 c, on a CPU's memory or a GPU's: two arrays read, one written."""
    import torch

    device, node = asked.get("device", "cpu"), asked.get("node")
    if device == "cpu":
        bind(of_list(asked.get("near") or asked["cpus"]))
        torch.set_num_threads(len(of_list(asked["cpus"])))
        allocate_on(node)
    arrays = [torch.full((asked["bytes"] // 3 // 8,), 1.0, dtype=torch.float64, device=device) for _ in range(3)]
    if device == "cpu":
        allocate_on(None)
        for array in arrays:
            check_place(array.data_ptr(), node)
        bind(of_list(asked["cpus"]))
    into, first, second = arrays
    finish = synchronize(device)

    def act() -> None:
        torch.add(first, second, alpha=3.0, out=into)
        finish()

    return 3 * first.numel() * 8 / rounds(act, asked["seconds"]), ""
