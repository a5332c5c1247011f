"""What the audit knows of the programs of a job, before and after the window."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sysperf.collect.machine_facts import MachineFacts
from sysperf.diagnosis.facts import Memory, Program
from sysperf.diagnosis.gpu import Card, link_bytes_per_s
from sysperf.diagnosis.programs import debug
from sysperf.engine.audit import judge_snapshot
from sysperf.engine.judging import Terms
from sysperf.model.snapshot import Snapshot

if TYPE_CHECKING:
    from sysperf.collect.gpu.records import Device
    from sysperf.collect.process.records import Process


def processes(taken: Snapshot) -> Sequence[Process]:
    """The PyTorch programs of a machine; none where nobody knows them."""
    return MachineFacts(taken.areas).programs


def programs(several: Sequence[Process], after: Snapshot, terms: Terms) -> list[Program]:
    """What is known of these programs without a window."""
    judged = _judged(after, terms)
    return [_program(process, judged.get(process.pid, ())) for process in several]


def cards(taken: Snapshot) -> tuple[Card, ...]:
    """The GPUs of a machine."""
    return tuple(map(card, MachineFacts(taken.areas).gpus))


def card(device: Device) -> Card:
    """What is known of a GPU beside its meters. An idle link lowers its generation: the fastest one counts."""
    computing = None if device.processes is None else frozenset(each.pid for each in device.processes if each.kind != "graphics")
    link = link_bytes_per_s(device.pcie.max_generation or device.pcie.generation, device.pcie.width_lanes)
    return Card(device.index, device.bus_id, computing, link)


def _program(process: Process, judged: tuple[str, ...]) -> Program:
    command, loaded, affinity = process.command or "", process.loaded, process.affinity
    return Program(
        pid=process.pid, name=process.name, command=command, rank=process.job.rank, world_size=process.job.world_size, age_s=process.age_s,
        memory=Memory(limit_bytes=_memory_limit(process)), allowed=affinity.at_start or affinity.now,
        quota=process.cgroup.cpu_quota if process.cgroup else None, env=process.env,
        debug=None if process.env is None else debug(process.env, command),
        openmp=tuple(sorted(path.rpartition("/")[2] for path in {library.path for library in loaded.openmp})), allocator=loaded.allocator,
        binds_threads=affinity.openmp_bound, uses_gpu=process.cuda_used, judged=judged,
    )  # fmt: skip


def _memory_limit(process: Process) -> int:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = process.cgroup.memory_limit_bytes if process.cgroup is not None else None
    return min(limit, total) if limit else total


def _judged(taken: Snapshot, terms: Terms) -> dict[int, tuple[str, ...]]:
    """The rules of the audit that found something in a process, in its GPUs, or in the machine, by process."""
    rules: dict[object, list[str]] = {}
    for finding in judge_snapshot(taken, terms).outcomes:
        if finding.state == "finding":
            of = {"process": finding.subject.pid, "gpu": finding.subject.bus_id.lower()}
            rules.setdefault(of.get(finding.scope, finding.scope), []).append(finding.rule)
    return {
        process.pid: tuple(
            rule
            for subject in (process.pid, *(bus_id.lower() for bus_id in process.gpu_bus_ids or ()), "host")
            for rule in rules.get(subject, ())
        )
        for process in processes(taken)
    }
