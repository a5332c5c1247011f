"""The verb `verify --experiment` for bandwidths: from the memory of each node to the CPUs of each, and from each node to each GPU."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from sysperf.engine.verify import measuring, workload
from sysperf.engine.verify.measuring import RunFailed
from sysperf.engine.wrap.facts import Known, gather
from sysperf.host import Host
from sysperf.launch import environment
from sysperf.launch.gpus import VISIBLE
from sysperf.launch.request import LaunchRequest
from sysperf.model.comparison import Variant
from sysperf.model.cpuset import CpuSet
from sysperf.model.experiment import COPIES
from sysperf.model.record import Record
from sysperf.model.sweep import Bandwidths, Transfer
from sysperf.model.text import neutral

ROUNDS = 5
COPIED_BYTES = 2 * (256 << 20)
"""Of a step of `memory_bandwidth`: read and written."""
SENT_BYTES = 64 << 20
"""Of a step of `host_to_device`."""


class Way(NamedTuple):
    """From one place to another, and the program that tells how fast."""

    source: str
    target: str
    variant: Variant
    step_bytes: int


class Node(NamedTuple):
    """A memory node with CPUs that we may use."""

    id: int
    cpus: CpuSet


class CopiesState(Record, kw_only=True):
    """Copies in progress: all that is needed to go on with them."""

    seed: int
    machine: dict[str, str] = {}
    """How it was when they began, as far as that decides whether runs can be compared."""
    rates: dict[str, list[float]] = {}
    """Of each way, by its name."""
    failed: dict[str, str] = {}


Keep = Callable[[CopiesState], object]


def measure(
    experiment: str, argv: tuple[str, ...], limit_s: float, state: CopiesState, say: Callable[[str], object], keep: Keep
) -> Bandwidths:
    """Measure all ways of an experiment by this program, each five times, in random order; one in progress goes on."""
    known = gather(Host(), LaunchRequest(argv=argv), environment.inherited(), os.getcwd(), None)
    nodes = _nodes(known)
    if experiment == "numa-bandwidth":
        cannot, ways = _between_nodes(nodes, known.request.argv)
    else:
        cannot, ways = _to_gpus(nodes, known)
    return Bandwidths(experiment=experiment, cannot=cannot) if cannot else _measured(experiment, ways, limit_s, state, say, keep)


def obstacle(experiment: str) -> str:
    """Say what of the machine an experiment lacks, whatever program it runs; "" where it lacks nothing."""
    known = gather(Host(), LaunchRequest(argv=("true",)), environment.inherited(), os.getcwd(), None)
    return _between_nodes(_nodes(known), ())[0] if experiment == "numa-bandwidth" else _no_gpu(known)


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


def _nodes(known: Known) -> list[Node]:
    allowed = known.machine.allowed
    nodes = [node for node in known.machine.nodes if node.has_memory and not node.gpu_memory]
    cut = [Node(node.id, node.cpus & allowed if allowed else node.cpus) for node in nodes]
    return [node for node in cut if node.cpus]


def _between_nodes(nodes: Sequence[Node], argv: Sequence[str]) -> tuple[str, list[Way]]:
    if len(nodes) < 2:
        seen = "one memory node" if nodes else "no memory nodes"
        return f"this machine shows {seen} whose CPUs may be used: there is no far memory to compare with", []
    return "", [
        Way(
            f"memory of node {memory.id}",
            f"CPUs of node {cpus.id}",
            Variant(
                f"node {memory.id} to {cpus.id}",
                (*argv, "--cpus", str(cpus.cpus), "--memory-cpus", str(memory.cpus), "--memory-node", str(memory.id)),
            ),
            COPIED_BYTES,
        )
        for memory in nodes
        for cpus in nodes
    ]


def _to_gpus(nodes: Sequence[Node], known: Known) -> tuple[str, list[Way]]:
    if cannot := _no_gpu(known):
        return cannot, []
    visible = known.gpus.visible or ()
    words = known.deciding.get(VISIBLE, "").split(",") if known.deciding.get(VISIBLE) else [str(index) for index in range(len(visible))]
    return "", [
        Way(
            f"memory of node {node.id}",
            f"GPU {word.strip()} ({gpu.bus_id})",
            Variant(
                f"node {node.id} to GPU {word.strip()}",
                (*known.request.argv, "--cpus", str(node.cpus), "--memory-cpus", str(node.cpus)),
                {VISIBLE: word.strip()},
            ),
            SENT_BYTES,
        )
        for word, gpu in zip(words, visible, strict=False)
        for node in nodes
    ]


def _measured(
    experiment: str, ways: Sequence[Way], limit_s: float, state: CopiesState, say: Callable[[str], object], keep: Keep = lambda _: None
) -> Bandwidths:
    """Run each way in shuffled rounds. Ctrl-C ends it with what is there; a way whose program fails is not tried again."""
    rates = {way.variant.name: list(state.rates.get(way.variant.name, ())) for way in ways}
    failed = dict(state.failed)
    order, interrupted = random.Random(state.seed), False  # noqa: S311 - an order, no secret
    try:
        for number in range(ROUNDS):
            for way in order.sample(ways, len(ways)):
                name = way.variant.name
                if name not in failed and len(rates[name]) <= number:
                    failed |= _run(way, rates[name], limit_s)
                    last = failed.get(name) or f"{rates[name][-1]:.1f} GB/s"
                    say(f"round {number + 1} of {ROUNDS}, {way.source} to {way.target}: {last}")
                    keep(msgspec.structs.replace(state, rates=rates, failed=failed))
    except KeyboardInterrupt:
        interrupted = True
    transfers = tuple(_transfer(way, rates[way.variant.name], failed.get(way.variant.name, "")) for way in ways)
    cannot = "" if any(transfer.runs for transfer in transfers) else f"no run ended well: {transfers[0].failed or 'interrupted'}"
    return Bandwidths(experiment=experiment, transfers=transfers, cannot=cannot, interrupted=interrupted)


def _run(way: Way, rates: list[float], limit_s: float) -> dict[str, str]:
    try:
        step_s = measuring.measure(way.variant, workload.METRIC, limit_s).value
    except RunFailed as error:
        return {way.variant.name: neutral(f"{error}: {error.hint}", 300)}
    rates.append(way.step_bytes / step_s / 1e9)
    return {}


def _transfer(way: Way, rates: Sequence[float], failed: str) -> Transfer:
    if not rates:
        return Transfer(way.source, way.target, failed=failed)
    return Transfer(way.source, way.target, median(rates), min(rates), max(rates), len(rates), failed)
