"""One sick program or its healthy twin: ``python clinic.py ILLNESS sick|healthy FOLDER``. Each runs until it is ended."""

from __future__ import annotations

import ctypes
import functools
import multiprocessing
import os
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # ends with its parent, also as a rank in a session of its own

ILLNESS, STATE, FOLDER = sys.argv[1:4]
SICK = STATE == "sick"

os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{FOLDER}/inductor"
if ILLNESS == "binding" and SICK:
    os.environ["OMP_PROC_BIND"] = "true"  # as scripts do, before `import torch`: no file in /proc shows it

import torch  # noqa: E402 - what stands above must come before it
from torch.utils.data import DataLoader, Dataset  # noqa: E402


class Samples(Dataset[torch.Tensor]):
    """Samples that cost CPU time, and then a wait as for a storage."""

    def __init__(self, work_s: float, wait_s: float = 0.0, length: int = 1 << 20) -> None:
        self.work_s, self.wait_s, self.length = work_s, wait_s, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        burn(self.work_s)
        time.sleep(self.wait_s)
        return torch.zeros(64)


def burn(seconds: float) -> None:
    """Use this much CPU time of the thread, in Python."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1_000))


def multiply(size: int = 512) -> None:
    """A product that all threads of the team share."""
    torch.mm(torch.ones(size, size), torch.ones(size, size))


def oversubscribed() -> None:
    """Three programs with sixteen threads each, against one with a thread a CPU."""
    torch.set_num_threads(16 if SICK else len(os.sched_getaffinity(0)))
    values = torch.ones(1 << 21)
    while True:
        values.add_(1)


def binding() -> None:
    """Workers that inherit the one CPU that OpenMP left the main thread."""
    for _ in DataLoader(Samples(0.002, 0.05), num_workers=2, batch_size=4):
        torch.ones(1 << 21).add_(1)


def interpreter_lock() -> None:
    """Eight threads of Python, against a team of OpenMP beside eight that wait for work."""
    for _ in range(8):
        threading.Thread(target=burn if SICK else time.sleep, args=(3600.0,), daemon=True).start()
    while True:
        time.sleep(1) if SICK else multiply()


def page_faults() -> None:
    """A large tensor made anew for every step, against one that is used again."""
    kept = torch.empty(1 << 24)
    while True:
        (torch.empty(1 << 24) if SICK else kept).fill_(1.0)


def starved() -> None:
    """A main thread that only waits for its worker, against one that computes as long."""
    for _ in DataLoader(Samples(0.05), num_workers=1, batch_size=2):
        if not SICK:
            burn(0.2)


def workers_made_again() -> None:
    """A loader whose workers end with each short epoch, against one that keeps them."""
    loader = DataLoader(Samples(0.02, length=32), num_workers=2, batch_size=4, persistent_workers=not SICK)
    while True:
        for _ in loader:
            burn(0.05)


def too_many_workers() -> None:
    """Eight workers that compute, against eight that wait for a storage."""
    work_s, wait_s = (0.05, 0.0) if SICK else (0.0002, 0.05)
    for _ in DataLoader(Samples(work_s, wait_s), num_workers=8, batch_size=1, prefetch_factor=4):
        burn(0.002)


def one_thread() -> None:
    """One thread for large products, against all."""
    if SICK:
        torch.set_num_threads(1)
    while True:
        multiply(1024)


def unequal_ranks() -> None:
    """Two ranks of which one has five times the work, against equal ones."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    while True:
        burn(0.2 if SICK and dist.get_rank() == 0 else 0.04)
        dist.all_reduce(torch.ones(8))


def small_reads() -> None:
    """A file read in pieces of 256 bytes without a buffer, against pieces of 4 MiB."""
    path = f"{FOLDER}/samples"
    with open(path, "wb") as file:
        file.write(b"x" * (16 << 20))
    size = 256 if SICK else 4 << 20
    with open(path, "rb", buffering=0) as file:
        while True:
            if not file.read(size):
                file.seek(0)
                multiply()


def crowded_main() -> None:
    """Two workers and a main thread that computes, on two CPUs; against workers that wait half of their time."""
    torch.set_num_threads(1)
    samples = Samples(0.02) if SICK else Samples(0.002, 0.05)
    loader = iter(DataLoader(samples, num_workers=2, batch_size=1, prefetch_factor=4))
    while True:
        next(loader)
        burn(0.015 if SICK else 0.01)
        if not SICK:
            time.sleep(0.01)


def memory_grows() -> None:
    """Every output is kept, against the latest one only."""
    outputs = [torch.ones(1 << 19)]
    while True:
        if SICK:
            outputs.append(torch.ones(1 << 19))
        outputs[-1].fill_(2.0)
        time.sleep(0.04)


def synced_writes() -> None:
    """A log whose every line is confirmed by the disk, against one that only waits for something else as long."""
    with open(f"{FOLDER}/log", "ab", buffering=0) as file:
        while True:
            burn(0.001)
            file.write(b"x" * 4096)
            os.fsync(file.fileno()) if SICK else time.sleep(0.003)


def pool_made_again() -> None:
    """A pool a step, against one that stays."""
    context = multiprocessing.get_context("fork")
    kept = context.Pool(2)
    while True:
        if SICK:
            with context.Pool(2) as pool:
                pool.map(burn, [0.02] * 8)
        else:
            kept.map(burn, [0.02] * 8)


def compiles_late() -> None:
    """A function that is compiled for another number in each step, against one that is compiled once."""
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1 << 20
    step = 0
    while True:
        step += SICK
        torch.compile(functools.partial(scaled, step), dynamic=False)(torch.ones(64))
        time.sleep(0.05)


def scaled(factor: int, values: torch.Tensor) -> torch.Tensor:
    return torch.sin(values * (factor + 0.5))


if __name__ == "__main__":
    {name: value for name, value in globals().items() if callable(value)}[ILLNESS]()
