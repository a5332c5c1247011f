"""What a machine lacks for comparing copies to a GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sysperf.engine.verify import workload
from sysperf.engine.wrap.facts import gather
from sysperf.host import Host
from sysperf.launch import environment
from sysperf.launch.gpus import VISIBLE
from sysperf.launch.request import LaunchRequest


def cannot_copy(python: str) -> str:
    """Say why nothing can be copied to a GPU here; "" where it can. Raises UsageError where no interpreter has torch."""
    return _no_gpu(("true",)) or _no_gpu(workload.command("host_to_device", python))


def _no_gpu(argv: Sequence[str]) -> str:
    """Say why this command would find no GPU; of one that is no program of torch, what the machine itself lacks."""
    known = gather(Host(), LaunchRequest(argv=tuple(argv)), environment.inherited(), os.getcwd(), None)
    if not known.gpus.machine:
        return "this machine has no NVIDIA GPU"
    if known.gpus.visible is None:
        return f"which GPUs are visible is not known: {known.gpus.problem}"
    if not known.gpus.visible:
        return f"{VISIBLE} leaves no GPU visible"
    if known.program.torch and known.program.torch.gpu is False:
        return f"{known.request.argv[0]} has a torch that is built for CPUs only"
    return ""
