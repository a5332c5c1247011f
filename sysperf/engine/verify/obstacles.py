"""What a machine lacks for an experiment: far memory, or a GPU."""

from __future__ import annotations

import os

from sysperf.engine.verify import workload
from sysperf.engine.wrap.facts import Known, gather
from sysperf.host import Host
from sysperf.launch import environment
from sysperf.launch.gpus import VISIBLE
from sysperf.launch.request import LaunchRequest
from sysperf.model.experiment import COPIES


def obstacle(experiment: str) -> str:
    """Say what of the machine an experiment lacks, whatever program it runs; "" where it lacks nothing."""
    known = gather(Host(), LaunchRequest(argv=("true",)), environment.inherited(), os.getcwd(), None)
    return _one_node(known) if experiment == "numa-bandwidth" else _no_gpu(known)


def cannot_copy(python: str) -> str:
    """Say why nothing can be copied to a GPU here; "" where it can. Raises UsageError where no interpreter has torch."""
    if cannot := obstacle(COPIES):
        return cannot
    argv = workload.command("host_to_device", python)
    return _no_gpu(gather(Host(), LaunchRequest(argv=argv), environment.inherited(), os.getcwd(), None))


def _no_gpu(known: Known) -> str:
    """Say why nothing can be copied to a GPU here; "" where it can."""
    if not known.gpus.machine:
        return "this machine has no NVIDIA GPU"
    if known.gpus.visible is None:
        return f"which GPUs are visible is not known: {known.gpus.problem}"
    if not known.gpus.visible:
        return f"{VISIBLE} leaves no GPU visible"
    if known.program.torch and known.program.torch.gpu is False:
        return f"{known.request.argv[0]} has a torch that is built for CPUs only"
    return ""


def _one_node(known: Known) -> str:
    """Say that there is no far memory here; "" where there is some."""
    allowed = known.machine.allowed
    nodes = [node for node in known.machine.nodes if node.has_memory and not node.gpu_memory]
    if sum(bool(node.cpus & allowed if allowed else node.cpus) for node in nodes) > 1:
        return ""
    seen = "one memory node" if nodes else "no memory nodes"
    return f"this machine shows {seen} whose CPUs may be used: there is no far memory to compare with"
