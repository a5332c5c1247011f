"""Ranks of a job by torchrun and gloo: ``torchrun … gloo_ranks.py starved|work|hang RANK FOLDER``."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
SICK, RANK, FOLDER = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])


def end_with_parent() -> None:
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def hang() -> None:
    """Wait for a rank that never comes, and leave what the Flight Recorder has."""
    values = torch.ones(4)
    for _ in range(3):
        dist.all_reduce(values)
    if dist.get_rank() != RANK:
        dist.all_reduce(values, async_op=True)
    time.sleep(1)
    (FOLDER / f"trace_rank_{dist.get_rank()}").write_bytes(torch._C._distributed_c10d._dump_fr_trace())
    os._exit(0)


def starve() -> None:
    """Share one CPU with something else that has the higher priority."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    subprocess.Popen((sys.executable, "-c", "while True: pass"), preexec_fn=end_with_parent)  # noqa: PLW1509 - one call of the kernel
    os.nice(6)


def main() -> None:
    end_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if SICK == "hang":
        hang()
    mine = dist.get_rank() == RANK
    if SICK == "starved" and mine:
        starve()
    net = DistributedDataParallel(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    (FOLDER / f"ready-{dist.get_rank()}").touch()
    while True:
        values = torch.randn(256, 256)
        for _ in range(60 if SICK == "work" and mine else 10):
            values = (values @ values).clamp(-1, 1)
        net(torch.randn(64, 256)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
