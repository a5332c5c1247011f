"""Programs that compute on the same CPUs: who they are, and an even part of the CPUs for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from sysperf.collect.machine_facts import MachineFacts
from sysperf.diagnosis.facts import Share
from sysperf.diagnosis.window import Window
from sysperf.engine.diagnose.proof import folder_of
from sysperf.engine.wrap import facts
from sysperf.host import Host
from sysperf.launch.cores import CoreMap
from sysperf.model.cpuset import CpuSet
from sysperf.model.snapshot import Snapshot

if TYPE_CHECKING:
    from sysperf.collect.process.records import Process

MIN_USED = 0.1
"""CPUs that a program uses: one that uses fewer competes with nobody."""
MAX_SHARES = 8


def competing(before: Sequence[Process], after: Sequence[Process], window: Window, cpus: CpuSet | None) -> list[Process]:
    """The processes outside of a job that computed with PyTorch on its CPUs over the window, most CPU time first."""
    first = {process.pid: process.cpu_s for process in before}
    used = {process.pid: process.cpu_s - first[process.pid] for process in after if process.pid in first}
    others = [
        process for process in after if process.pid not in window.processes and used.get(process.pid, 0.0) >= MIN_USED * window.seconds
    ]
    return sorted((process for process in others if _overlaps(process, cpus)), key=lambda process: -used[process.pid])


def _overlaps(process: Process, cpus: CpuSet | None) -> bool:
    return cpus is None or process.affinity.now is None or bool(process.affinity.now & cpus)


def shares(host: Host, taken: Snapshot, job: Share, others: Sequence[Process]) -> tuple[Share, ...]:
    """An even part of the CPUs for a job and each of the others, whole cores that lie together; () where there are too few cores.

    `job` has the CPUs that it may use. Those that it shares with others are divided; what only one may use stays its own.
    """
    programs = [job, *_programs(taken, others)]
    if len(programs) < 2 or len(programs) > MAX_SHARES:
        return ()
    common = CpuSet.union(program.cpus for program in programs[1:]) & job.cpus
    cores = CoreMap(facts.machine(host, taken, common), common)
    if len(cores.cores(common)) < len(programs):
        return ()
    parts = [cores.share(common, number, len(programs)) & program.cpus for number, program in enumerate(programs)]
    own = [program.cpus - common for program in programs]
    divided = tuple(
        msgspec.structs.replace(described, folder=folder_of(described.pid), cpus=part | rest)
        for described, part, rest in zip(programs, parts, own, strict=True)
    )
    return divided if all(share.cpus for share in divided) else ()


def _programs(taken: Snapshot, others: Sequence[Process]) -> list[Share]:
    """One for each program: the ranks of a job are started by one command."""
    commands = {process.pid: process.command for process in MachineFacts(taken.areas).programs}
    by_job: dict[int, list[Process]] = {}
    for process in others:
        by_job.setdefault(process.job.id or process.pid, []).append(process)
    return [
        Share(
            pid=several[0].pid,
            command=(several[0].command if len(several) == 1 else commands.get(job)) or "",
            cpus=CpuSet.union(process.affinity.now or CpuSet() for process in several),
        )
        for job, several in by_job.items()
    ]
