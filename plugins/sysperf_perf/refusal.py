"""Why perf could not sample a program, and what helps."""

from __future__ import annotations

import os

from sysperf.host import Host
from sysperf.model.errors import SysperfError

PARANOID = "/proc/sys/kernel/perf_event_paranoid"
_FORBIDDEN = ("perf_event_paranoid", "Permission", "Operation not permitted", "not permitted", "Access to performance")
_ENDED = ("No such process", "Couldn't create thread/CPU maps", "no such process")


def explained(host: Host, pid: int, complaint: str) -> SysperfError:
    """An error that says why and what helps, out of what perf complained about."""
    if not host.exists(f"/proc/{pid}/status") or any(sign in complaint for sign in _ENDED):
        return SysperfError(f"process {pid} has ended", "`sysperf ps` lists the PyTorch programs")
    if any(sign in complaint for sign in _FORBIDDEN):
        level = host.number(PARANOID)
        setting = f" (kernel.perf_event_paranoid = {level})" if level is not None else ""
        hint = (
            f"sudo sysperf stacks {pid} --with perf --seconds 5"
            if os.geteuid()
            else "a container's seccomp profile or the host forbids perf_event_open"
        )
        return SysperfError(f"this machine does not let us sample process {pid}{setting}", hint)
    first = next((line.strip() for line in complaint.splitlines() if line.strip()), "no reason given")
    return SysperfError(f"perf could not sample process {pid}: {first[:300]}", f"perf record -p {pid} -- sleep 1")
