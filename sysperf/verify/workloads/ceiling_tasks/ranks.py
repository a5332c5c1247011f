"""What ranks do together: sums over all of them, and messages between two."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import statistics
import struct
import time
from collections.abc import Callable

from .timing import KEPT, LIBC, MIN_ROUNDS, Arguments, Rate, bind, of_list, synchronize

PR_SET_PDEATHSIG, SIOCGIFADDR, LOOPBACK = 1, 0x8915, 127


def joined(asked: Arguments) -> str:
    """Meet the other ranks, once, and return the device of this one."""
    import datetime

    import torch
    from torch import distributed

    device = f"cuda:{asked.get('gpu', asked['rank'])}" if asked["backend"] == "nccl" else "cpu"
    if device == "cpu":
        bind(of_list(asked["cpus"]))
        torch.set_num_threads(1)
    if not distributed.is_initialized():
        within = {"timeout": datetime.timedelta(seconds=asked["within"])} if "within" in asked else {}
        if "partner" in asked:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a rank that waits for another machine does not read its input
            if os.getppid() != KEPT["parent"]:
                os._exit(1)  # who asked was killed meanwhile
            lead_gloo_to(asked["partner"])
        distributed.init_process_group(asked["backend"], init_method=asked["init"], rank=asked["rank"], world_size=asked["ranks"], **within)
    return device


def lead_gloo_to(partner: str) -> None:
    """Have gloo use the interface that leads to another machine: by itself it takes that of this host's name, often the loopback."""
    family, _, _, _, address = socket.getaddrinfo(partner, 9, type=socket.SOCK_DGRAM)[0]
    if family != socket.AF_INET or "GLOO_SOCKET_IFNAME" in os.environ:
        return
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # sends nothing
        own = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
                if answer[20:24] == own or (own[0] == answer[20] == LOOPBACK):
                    os.environ["GLOO_SOCKET_IFNAME"] = name


def together(act: Callable[[], object], device: str, seconds: float) -> float:
    """Return the median seconds of what all ranks do, as often on each."""
    import torch
    from torch import distributed

    finish = synchronize(device)

    def took() -> float:
        start = time.perf_counter()
        act()
        finish()
        return time.perf_counter() - start

    took()
    longest = torch.tensor([took()], device=device)
    distributed.all_reduce(longest, op=distributed.ReduceOp.MAX)
    return statistics.median(took() for _ in range(max(MIN_ROUNDS, min(100, int(seconds / float(longest))))))


def all_reduce(asked: Arguments) -> Rate:
    """Return the bytes a second that each rank moves in an all-reduce, 2 (n - 1) / n times its buffer, as nccl-tests count."""
    import torch
    from torch import distributed

    device, ranks = joined(asked), asked["ranks"]
    buffer = torch.ones(asked["bytes"] // 4, device=device)
    took = together(lambda: distributed.all_reduce(buffer, op=distributed.ReduceOp.MAX), device, asked["seconds"])
    return 2 * (ranks - 1) / ranks * asked["bytes"] / took, ""


def send_recv(asked: Arguments) -> Rate:
    """Return the bytes a second that go from one of two ranks to the other and back."""
    import torch
    from torch import distributed

    device, rank = joined(asked), asked["rank"]
    buffer = torch.ones(asked["bytes"] // 4, device=device)

    def act() -> None:
        for sender in (0, 1):
            (distributed.send if rank == sender else distributed.recv)(buffer, 1 - rank)

    return 2 * asked["bytes"] / together(act, device, asked["seconds"]), ""
