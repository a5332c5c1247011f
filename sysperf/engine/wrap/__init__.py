"""The verb `wrap`: what is known, the place for it, what the launch rules say, and the plan that comes of them.

A launch must not wait: only the areas that placement and the rules in force name are read, and only launch rules are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from sysperf.engine.wrap.area import launch_facts
from sysperf.engine.wrap.facts import Known, gather
from sysperf.engine.wrap.rules import Judged, configure, judge_launch, names_command, rules
from sysperf.evaluate.ruleset import Ruleset
from sysperf.host import Host
from sysperf.injected import python_path
from sysperf.launch import environment, gpus, omp_places, plan
from sysperf.launch.command import Command
from sysperf.launch.facts import Launch
from sysperf.launch.placement import TARGETS, Placement, Refused, RequestedPlacement, place
from sysperf.launch.plan import LaunchPlan, ProposedChange
from sysperf.launch.ranks import Ranks
from sysperf.launch.request import LaunchRequest
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import UsageError
from sysperf.model.finding import Finding
from sysperf.model.record import Record
from sysperf.model.rule import Bind
from sysperf.procfs.numbers import whole

__all__ = ["Decision", "LaunchRequest", "decide", "rules", "wrap", "wrap_instances"]

MAX_THREAD_DIGITS = 5


class Decision(Record):
    """A launch, decided: the plan, and what it follows from."""

    plan: LaunchPlan
    launch: Launch
    placement: Placement
    command: Command
    outcomes: tuple[Finding, ...] = ()
    rank: str = ""
    """Which rank this is, in one word; empty for a process of its own."""


def wrap(
    host: Host,
    ruleset: Ruleset,
    request: LaunchRequest,
    env: Mapping[str, str],
    cwd: str,
    *,
    rank: int | None = None,
    reported: bool = True,
) -> Decision:
    """Decide how to start a program; `rank` is the instance with --nproc. Raises UsageError when a request cannot be met.

    Where the decision is not `reported`, its facts lack the words of the command, unless a rule looks at them.
    """
    configure(ruleset, request)
    return decide(gather(host, request, env, cwd, rank), ruleset, reported=reported)


def wrap_instances(host: Host, ruleset: Ruleset, request: LaunchRequest, env: Mapping[str, str], cwd: str) -> list[Decision]:
    """The same for each instance of --nproc: what they are started on is read once. Raises UsageError."""
    configure(ruleset, request)
    known = gather(host, request, env, cwd, 0)
    numbers = range(request.instances)
    return [decide(msgspec.structs.replace(known, instance=number, ranks=_rank_of_instance(known, number)), ruleset) for number in numbers]


def _rank_of_instance(known: Known, number: int) -> Ranks:
    """An instance is a rank of ours, unless it starts ranks itself."""
    return known.ranks if known.command.kind == "launcher" else msgspec.structs.replace(known.ranks, rank=number)


def decide(known: Known, ruleset: Ruleset, *, reported: bool = True) -> Decision:
    """The place, the rules' word on it, and the plan. Raises UsageError when a request cannot be met."""
    targets = frozenset(fix.to for rule in ruleset.rules for fix in rule.fix if isinstance(fix, Bind)) & TARGETS
    with_command = reported or names_command(ruleset)
    decision = _decided(known, ruleset, targets, with_command=with_command)
    target = decision.placement.target
    bound = any(change.kind == "cpus" for change in decision.plan.changes)
    if target in targets and decision.placement.cpus != decision.placement.allowed and not bound:
        # The rule that would bind does not fire: threads and memory are those of an unbound program.
        decision = _decided(known, ruleset, targets - {target}, with_command=with_command)
    return msgspec.structs.replace(decision, rank=known.identity)


def _decided(known: Known, ruleset: Ruleset, targets: frozenset[str], *, with_command: bool) -> Decision:
    placement = _placed(known, targets)
    launch = launch_facts(known, placement, with_command=with_command)
    if known.wrapped and not known.request.explicit:
        untouched = LaunchPlan(known.request.argv, notes=("an outer sysperf wrap has placed it already",), untouched=True)
        return Decision(untouched, launch, placement, known.command)
    judged = judge_launch(known, ruleset, launch, placement)
    return Decision(_planned(known, placement, judged), launch, placement, known.command, judged.outcomes)


def _planned(known: Known, placement: Placement, judged: Judged) -> LaunchPlan:
    return plan.merge(
        known.request.argv,
        (*_requested_changes(known, placement), *judged.proposed),
        known.env,
        known.command,
        placement,
        free=known.env if known.request.force_env else known.ranks.injected,
        warnings=judged.warnings,
        keeps_policy=_has_memory_policy(known, placement),
    )


# ---------------------------------------------------------------------- the place


def _placed(known: Known, targets: frozenset[str]) -> Placement:
    requested = _requested_placement(known, targets)
    try:
        placement = place(known.machine, known.ranks, known.gpus, requested)
    except Refused as refused:
        raise UsageError(str(refused), refused.hint) from None
    if known.command.kind == "launcher":
        return _for_launcher(placement, known.ranks)
    if _placed_by_tool(known):
        return msgspec.structs.replace(placement, cpus=None, cores=None, threads=requested.threads)
    return placement


def _placed_by_tool(known: Known) -> bool:
    """Whether a tool in the command chooses CPUs that we cannot tell, or that other ranks may or may not have too."""
    command, ranks = known.command, known.ranks
    ranks_of_others = bool(ranks.source) and ranks.size != 1 and not ranks.divides_gpus
    return bool(command.cpu_tool) and ((command.cpus is None and command.cpu_nodes is None) or ranks_of_others)


def _requested_placement(known: Known, targets: frozenset[str]) -> RequestedPlacement:
    """The options, then the profile, then what the user's own variables imply."""
    request, profile, torch = known.request, known.request.profile, known.program.torch
    free = known.deciding if request.force_env else known.ranks.injected
    own = known.deciding.get(environment.threads_variable(known.deciding, free), "")
    return RequestedPlacement(
        cpus=request.cpus if request.cpus is not None or profile.cpus is None else CpuSet.parse(profile.cpus),
        node=request.node if request.node is not None else profile.node,
        threads=request.threads or profile.threads or _threads_in(own),
        memory_bytes=request.memory_bytes,
        strict=request.strict,
        targets=targets if known.command.kind != "launcher" and not known.command.cpu_tool else frozenset(),
        uses_gpu=torch.gpu is not False if torch else True,
    )


def _threads_in(text: str) -> int | None:
    """A number of threads as OpenMP reads it, of five digits at most; None when it is anything else."""
    return whole(text) if len(text) <= MAX_THREAD_DIGITS and not text.startswith("0") else None


def _for_launcher(placement: Placement, ranks: Ranks) -> Placement:
    """Ranks inherit all that is set here. By rule that is the environment alone, with the threads of one rank."""
    asked = placement.target == "cpus"
    threads = max(1, (placement.threads or 1) // (ranks.size or 1)) if asked else placement.threads
    return msgspec.structs.replace(
        placement,
        cpus=placement.cpus if asked else placement.allowed,
        target=placement.target if asked else "",
        memory_nodes=placement.memory_nodes if asked or placement.strict else CpuSet(),
        threads=threads if ranks.source else None,
        cores=None,
        notes=(),
    )


def _has_memory_policy(known: Known, placement: Placement) -> bool:
    """Whether an outer numactl has set a memory policy: asked only where we would set one."""
    if not known.host.live or known.pid or not placement.memory_nodes or known.request.strict:
        return False
    from sysperf.launch import bind  # noqa: PLC0415 - ctypes costs 4 ms; machines with one node do not pay

    return bind.has_policy()


# ---------------------------------------------------------------------- what was asked for


def _requested_changes(known: Known, placement: Placement) -> Iterator[ProposedChange]:
    """What options and the profile decide, before any rule."""
    request, profile = known.request, known.request.profile
    yield from (ProposedChange("env", name, value, plan.ASKED) for name, value in request.set.items())
    if request.unpin:
        yield from (ProposedChange("unset", name, "", plan.ASKED) for name in omp_places.VARIABLES)
    if request.threads:
        yield ProposedChange("env", "OMP_NUM_THREADS", str(request.threads), plan.ASKED)
    yield from _gpus_of_instance(known)
    if placement.target == "cpus":
        yield ProposedChange("cpus", "CPUs", str(placement.cpus), plan.ASKED)
    if placement.strict:
        yield ProposedChange("memory", "strict", str(placement.memory_nodes), plan.ASKED)
    yield from _of_profile(known, placement)
    if request.traceable:  # a program that ends while it is traced waits for its trace
        yield ProposedChange("env", "PYTHONPATH", python_path(known.env), plan.ASKED)
    if profile.threads and not request.threads:
        yield ProposedChange("env", "OMP_NUM_THREADS", str(profile.threads), "profile")
    yield from (ProposedChange("env", name, value, "profile") for name, value in profile.set.items())


def _of_profile(known: Known, placement: Placement) -> Iterator[ProposedChange]:
    """What only a profile can ask for: a policy over several nodes, and what the probe's module sets in torch."""
    profile, nodes = known.request.profile, placement.nodes
    if profile.memory_policy and len(nodes) > 1:
        yield ProposedChange("memory", profile.memory_policy, str(nodes), "profile")
    if profile.interop_threads or profile.loader_workers or profile.loader_prefetch:
        from sysperf.verify import probe  # noqa: PLC0415 - only with such a profile

        variables = probe.settings(
            known.env,
            interop_threads=profile.interop_threads or 0,
            loader_workers=profile.loader_workers or 0,
            loader_prefetch=profile.loader_prefetch or 0,
        )
        yield from (ProposedChange("env", name, value, plan.ASKED) for name, value in variables.items())


def _gpus_of_instance(known: Known) -> Iterator[ProposedChange]:
    """Return the part of the GPUs of an instance of --nproc, in the words of CUDA_VISIBLE_DEVICES as it was given."""
    torch, visible = known.program.torch, known.gpus.visible
    if known.instance is None or (torch and torch.gpu is False):
        return
    for name in gpus.OTHER_VISIBLE:
        if listed := known.env.get(name):
            devices = [word.strip() for word in listed.split(",")]
            part = gpus.part(len(devices), known.instance, known.request.instances)
            yield ProposedChange("env", name, ",".join(devices[index] for index in part), plan.ASKED)
            return
    if not visible:
        return
    given = known.deciding.get(gpus.VISIBLE)
    words = [word.strip() for word in given.split(",")] if given else [str(index) for index in range(len(visible))]
    mine = gpus.part(len(visible), known.instance, known.request.instances)
    yield ProposedChange("env", gpus.VISIBLE, ",".join(words[index] for index in mine), plan.ASKED)
