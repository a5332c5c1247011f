"""The area `launch`: what is known of a launch and the place found for it, as facts that launch rules judge."""

from __future__ import annotations

from sysperf.engine.wrap.allocator import is_missing
from sysperf.engine.wrap.facts import Known
from sysperf.host import redact
from sysperf.launch import environment, load
from sysperf.launch.facts import Launch
from sysperf.launch.omp_places import main_thread_cpus
from sysperf.launch.placement import Placement
from sysperf.model.cpuset import CpuSet
from sysperf.model.text import neutral


def launch_facts(known: Known, placement: Placement, *, with_command: bool) -> Launch:
    """The facts of area `launch`. The words of the command are looked through for secrets only where somebody reads them: 3 ms."""
    request, command, program, torch = known.request, known.command, known.program, known.program.torch
    total, available = _memory_bytes(known)
    cpus, allocator = placement.cpus, request.allocator or request.profile.allocator
    return Launch(
        command=redact.command(request.argv) if with_command else (),
        kind=command.kind,
        program=neutral(command.program, 300),
        script=neutral(command.script, 300),
        module=neutral(command.module, 100),
        launcher=command.launcher,
        launcher_ranks=command.launcher_ranks,
        cpu_tool=command.cpu_tool,
        memory_tool=command.memory_tool,
        is_python=program.is_python or command.kind == "python",
        interpreter=neutral(program.interpreter, 300),
        torch=True if torch else False if program.torch_known or command.kind == "program" else None,
        torch_version=torch.version if torch else "",
        torch_gpu=torch.gpu if torch else None,
        openmp_runtime=torch.openmp if torch else "",
        env=environment.shown(known.env),
        injected=known.ranks.injected,
        wrapped=known.wrapped,
        traceable=request.traceable,
        trace_folder=request.trace_folder,
        allocator=allocator,
        allocator_missing=is_missing(known, allocator),
        threads_variable=environment.threads_variable(known.deciding, known.deciding if request.force_env else known.ranks.injected),
        unpinned=request.unpin,
        main_thread_cpus=main_thread_cpus(known.deciding, known.machine, placement.allowed or CpuSet()),
        rank_source=known.ranks.source,
        rank=known.ranks.rank,
        ranks=known.ranks.size,
        own_cpus=known.ranks.own_cpus,
        gpus=None if known.gpus.visible is None else tuple(gpu.bus_id for gpu in known.gpus.visible),
        gpu_problem=known.gpus.problem,
        other_runnable=0 if known.pid else load.steady(known.runnable, load.runnable(known.host)),  # its own load is not that of others
        pressure=0.0 if known.pid else load.pressure(known.host),
        memory_total_bytes=total,
        memory_available_bytes=available,
        keepable_bytes=load.keepable_bytes(available, known.ranks.size),
        online_cpus=len(known.machine.online) or None,
        quota=known.machine.quota,
        allowed=placement.allowed,
        cpus=cpus,
        target=placement.target,
        nodes=placement.nodes,
        memory_nodes=placement.memory_nodes,
        strict_memory=placement.strict,
        cores=placement.cores,
        threads=placement.threads,
        default_threads=_default_threads(known, cpus),
        threads_asked=request.threads is not None or request.profile.threads is not None,
        notes=placement.notes,
    )


def _default_threads(known: Known, cpus: CpuSet | None) -> int | None:
    """Return those that torch starts by itself: one a CPU, or as many as a variable says that the user lets wrap replace."""
    variable = environment.threads_variable(known.deciding, ()) if known.request.force_env else ""
    asked = known.deciding.get(variable, "")
    return int(asked) if 0 < len(asked) < 6 and asked.isdecimal() else len(cpus) if cpus else None


def _memory_bytes(known: Known) -> tuple[int | None, int | None]:
    """(total, available): the control group's where its limit is smaller than the machine."""
    total, available = load.memory_bytes(known.host)
    cgroup = known.areas.cgroup
    limit = cgroup.memory_limit_bytes if cgroup else None
    if cgroup and limit and total and limit < total:
        used = cgroup.memory_used_bytes
        return limit, None if used is None else min(available or limit, limit - used)
    return total, available
