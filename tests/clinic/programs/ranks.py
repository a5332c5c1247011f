"""Two ranks by torchrun and gloo, sick in one way or cured: ``torchrun … ranks.py ILLNESS sick|cured FOLDER``."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it ends with what started it
ILLNESS, STATE, FOLDER = sys.argv[1:4]
SICK = STATE == "sick"
PATCH = os.environ.get("CLINIC_PATCH", "")
EXCHANGES = SICK and "no_sync" not in PATCH


def model(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, 256))


def prepared(batch: int, rounds: int) -> torch.Tensor:
    """A batch that takes as many rounds to be made."""
    values = torch.randn(256, 256)
    for _ in range(rounds):
        values = (values @ values).clamp(-1, 1)
    return values[:batch]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    wide, batch = (4096, 4) if ILLNESS == "communication" and SICK else (256, 128)
    net = DistributedDataParallel(model(wide))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    passes = 8 if ILLNESS == "accumulation" else 4 if "no_sync" in PATCH else 1
    if ILLNESS == "accumulation":
        net = DistributedDataParallel(model(2048))
        optimizer, batch = torch.optim.SGD(net.parameters(), lr=0.001), 8
    steps, next_line_s = 0, time.monotonic() + 1
    while True:
        rounds = 0 if ILLNESS != "slow_rank" else 35 if "equal" in PATCH else 60 if SICK and rank == 1 else 10
        for number in range(passes):
            last = number == passes - 1
            with contextlib.nullcontext() if EXCHANGES or last else net.no_sync():
                net(prepared(batch, rounds)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += passes
        if rank == 0 and time.monotonic() > next_line_s:
            print(f"step {steps} {time.monotonic():.3f}", flush=True)
            next_line_s += 1


if __name__ == "__main__":
    main()
