"""Programs that compute on the same CPUs: each gets a command line of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import msgspec

from sysperf.collect.process.parts import Affinity, JobPlace
from sysperf.collect.process.records import Process
from sysperf.diagnosis import facts as diagnosis
from sysperf.diagnosis.facts import Share
from sysperf.diagnosis.window import Window
from sysperf.engine import reading
from sysperf.engine.diagnose import shares as diagnose_shares
from sysperf.engine.diagnose.proof import folder_of
from sysperf.engine.wrap import facts as wrap_facts
from sysperf.launch.cores import CoreMap
from sysperf.launch.machine import Machine
from sysperf.model.cpuset import CpuSet
from sysperf.model.snapshot import Area, Snapshot
from tests.conftest import captured
from tests.diagnosis.test_verdict import judged, program

TWO_NODES = "64amd64-4s2n4ca2co"
OTHER = Process(
    pid=8, ppid=1, name="python", command="python other.py 'a b'", affinity=Affinity(now=CpuSet.parse("0-63")), job=JobPlace(id=8)
)


class _Processes(msgspec.Struct):
    processes: tuple[Process, ...]


def divided(allowed: str, *others: Process, whole: tuple[Process, ...] = ()) -> dict[int, str]:
    """The CPUs of each program on a captured machine of 64 CPUs, two to a core."""
    host = captured("hwloc", TWO_NODES)
    facts = reading.snapshot(host, ("cpu", "numa", "cgroup"))
    taken = Snapshot(taken_at="", areas={**facts.areas, "process": Area(_Processes((*others, *whole)))})
    job = Share(pid=7, command="python train.py", cpus=CpuSet.parse(allowed))
    parts = diagnose_shares.shares(host, taken, job, others)
    assert all(share.command for share in parts)
    return {share.pid: str(share.cpus) for share in parts}


def test_two_programs_get_half_of_the_cores_each() -> None:
    """No core is in both halves, and a half ends where a node does."""
    assert divided("0-63", OTHER) == {7: "0-31", 8: "32-63"}


def test_what_only_one_may_use_stays_its_own() -> None:
    """The other may use eight CPUs: those are divided, and no more."""
    parts = divided("0-63", msgspec.structs.replace(OTHER, affinity=Affinity(now=CpuSet.parse("0-7"))))

    assert parts == {7: "0-3,8-63", 8: "4-7"}


def test_more_programs_than_cores_are_not_divided() -> None:
    """Nor where a program's CPUs are unknown."""
    core = CpuSet.parse("0-1")
    assert len(CoreMap(_machine(), core).cores(core)) == 1
    assert divided("0-1", msgspec.structs.replace(OTHER, affinity=Affinity(now=core))) == {}
    assert divided("0-63", msgspec.structs.replace(OTHER, affinity=Affinity())) == {}


def _machine() -> Machine:
    host = captured("hwloc", TWO_NODES)
    return wrap_facts.machine(host, reading.snapshot(host, ("cpu", "numa", "cgroup")), CpuSet.parse("0-63"))


def test_the_ranks_of_a_job_are_one_program() -> None:
    """Its launcher's command starts them all."""
    ranks = [msgspec.structs.replace(OTHER, pid=pid, command="python rank.py", job=JobPlace(id=20)) for pid in (21, 22, 23, 24)]
    launcher = msgspec.structs.replace(
        OTHER, pid=20, command="torchrun --nproc-per-node 4 rank.py", job=JobPlace(id=20, launcher="torchrun")
    )
    host = captured("hwloc", TWO_NODES)
    facts = reading.snapshot(host, ("cpu", "numa", "cgroup"))
    taken = Snapshot(taken_at="", areas={**facts.areas, "process": Area(_Processes((launcher, *ranks)))})
    parts = diagnose_shares.shares(host, taken, Share(pid=7, command="python train.py", cpus=CpuSet.parse("0-63")), ranks)

    assert [share.command for share in parts] == ["python train.py", "torchrun --nproc-per-node 4 rank.py"]


def test_who_computes_elsewhere_or_hardly_competes_with_nobody() -> None:
    """Only CPU time on the job's CPUs counts."""
    window = Window(os.getpid())
    window.ended = window.began + 5
    before = [msgspec.structs.replace(OTHER, pid=pid, cpu_s=0.0) for pid in (8, 9, 10)]
    after = [
        msgspec.structs.replace(OTHER, pid=8, cpu_s=4.0),
        msgspec.structs.replace(OTHER, pid=9, cpu_s=0.2),
        msgspec.structs.replace(OTHER, pid=10, cpu_s=4.0, affinity=Affinity(now=CpuSet.parse("32-63"))),
    ]
    competing = diagnose_shares.competing(before, after, window, CpuSet.parse("0-31"))

    assert [process.pid for process in competing] == [8]


def test_the_lines_start_each_program_on_its_own_cpus() -> None:
    """As a shell reads them; `--nproc` would start one of them twice."""
    shares = (
        Share(pid=7, command="python train.py --name 'two words'", cpus=CpuSet.parse("0-3,8")),
        Share(pid=8, command="python other.py; reboot", cpus=CpuSet.parse("4-7")),
    )
    around = diagnosis.Machine(cpus=9, other_programs=1, torch_cpus=3.0, idle_cpus=0.0, shares=shares)
    (cause,) = judged(program(threads={"waited_share": 0.5}, command=shares[0].command), machine=around).causes

    assert cause.rule == "threads.programs-compete"
    assert [shlex.split(fix.command) for fix in cause.fixes if fix.kind == "bind"] == [
        ["sysperf", "wrap", "--cpus", "0-3,8", "--", "python", "train.py", "--name", "two words"],
        ["sysperf", "wrap", "--cpus", "4-7", "--", "python", "…"],
    ]
    assert shlex.split(cause.verify)[-1] == cause.fixes[0].command
    assert not any("--nproc" in fix.command for fix in cause.fixes)


def test_what_is_pasted_starts_where_the_program_runs() -> None:
    """Both kinds of lines: of programs that share the CPUs, and of one that gets other variables."""
    shares = (
        Share(pid=7, command="python train.py", folder="/srv/my job", cpus=CpuSet.parse("0-3")),
        Share(pid=8, command="python other.py", cpus=CpuSet.parse("4-7")),
    )
    around = diagnosis.Machine(cpus=8, other_programs=1, torch_cpus=3.0, idle_cpus=0.0, shares=shares)
    (bound,) = judged(program(threads={"waited_share": 0.5}), machine=around).causes
    (faults,) = judged(program(folder="/srv/my job", faults={"share": 0.5, "per_s": 90_000.0})).causes

    assert [fix.command for fix in bound.fixes if fix.kind == "bind"] == [
        "cd '/srv/my job' && sysperf wrap --cpus 0-3 -- python train.py",
        "sysperf wrap --cpus 4-7 -- python other.py",
    ]
    assert faults.fixes[0].command.startswith("cd '/srv/my job' && env MALLOC_")
    assert faults.fixes[0].command.endswith(" python train.py")


def test_the_folder_is_that_of_the_running_program(tmp_path: Path) -> None:
    """Of one that runs where sysperf does, there is none to go to."""
    with subprocess.Popen(("sleep", "60"), cwd=tmp_path) as elsewhere:
        try:
            assert folder_of(elsewhere.pid) == str(tmp_path)
        finally:
            elsewhere.kill()
    assert folder_of(os.getpid()) == ""


def test_where_the_cpus_cannot_be_divided_no_line_pretends_to() -> None:
    """One after the other is what is left."""
    (cause,) = judged(
        program(threads={"waited_share": 0.5}),
        machine=diagnosis.Machine(cpus=2, other_programs=3, others_cpus=1.5, idle_cpus=0.0),
    ).causes

    assert [fix.kind for fix in cause.fixes] == ["advice"]
