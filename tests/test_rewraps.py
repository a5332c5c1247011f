"""For a program that runs, how `sysperf wrap` would have started it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from sysperf.collect.cgroup import Cgroup
from sysperf.collect.process.parts import Affinity, JobPlace
from sysperf.collect.process.records import Process
from sysperf.engine import reading, wrap
from sysperf.engine.wrap.facts import gather_running
from sysperf.engine.wrap.rewrap import rewraps
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.finding import Rewrap
from sysperf.model.snapshot import Area, Snapshot
from tests.collect.programs import running
from tests.conftest import MakeMachine, captured

TORCH_PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")
COMPUTES = "import torch, time; torch.ones(4) + 1; print('ready', flush=True); time.sleep(120)"
PROCESS = Process(pid=4242, ppid=1, name="python", command="python train.py 'a b'", env={})


def _rewrap(host: Host, process: Process) -> Rewrap | None:
    facts = reading.snapshot(host, ("kernel", "cpu", "numa", "memory", "cgroup", "pcie", "gpu", "allocator"))
    snapshot = Snapshot(taken_at="", areas={**facts.areas, "process": Area(_Processes((process,)))})
    return next(iter(rewraps(host, snapshot, wrap.rules)), None)


class _Processes(msgspec.Struct):
    processes: tuple[Process, ...]


def test_a_rank_on_two_sockets_gets_its_part() -> None:
    """Of two ranks on a machine of four nodes, the second would have had CPUs and threads of its own."""
    host = captured("hwloc", "64amd64-4s2n4ca2co")
    rank = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x", "OMP_NUM_THREADS": "1"}
    wrap = _rewrap(host, msgspec.structs.replace(PROCESS, env=rank))
    assert wrap is not None
    assert wrap.command == "sysperf wrap -- python train.py 'a b'"
    (cpus,) = [change.removeprefix("CPUs ") for change in wrap.changes if change.startswith("CPUs ")]
    assert CpuSet.parse(cpus) == CpuSet.parse("32-63")
    assert "OMP_NUM_THREADS=16" in wrap.changes, "half of the physical cores: torchrun's 1 was nobody's choice"
    assert all(rule for rule in wrap.rules)


@pytest.mark.parametrize("command", ["python train.py <hidden> out.txt", "python train.py --x;reboot", "python train.py --x|sh"])
def test_a_command_with_hidden_words_or_a_title_can_be_pasted(command: str) -> None:
    """What is known of it, and … for the arguments that only its user knows."""
    host = captured("hwloc", "64amd64-4s2n4ca2co")
    rank = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x"}
    wrap = _rewrap(host, msgspec.structs.replace(PROCESS, command=command, env=rank))
    assert wrap is not None
    assert wrap.command == "sysperf wrap -- python train.py …"


def test_a_program_is_judged_by_the_quota_of_its_own_group(machine: MakeMachine) -> None:
    """Who asks may be outside of the group that stops it."""
    host = machine({"/sys/devices/system/cpu/online": "0-7\n", "/proc/self/status": "Cpus_allowed_list:\t0-7\n"})
    process = msgspec.structs.replace(PROCESS, affinity=Affinity(now=CpuSet.parse("0-7")), cgroup=Cgroup("/half", 2, cpu_quota=0.5))
    snapshot = Snapshot(taken_at="", areas=reading.snapshot(host, ("cpu", "numa", "cgroup")).areas)

    decision = wrap.decide(gather_running(host, process, ("python", "train.py"), snapshot), wrap.rules())

    assert decision.placement.budget == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"env": {"SYSPERF_WRAPPED": "program - OMP_NUM_THREADS"}},
        {"job": JobPlace(launcher="torchrun")},
        {"command": None},
        {"command": "python 'cut off in the mid"},
    ],
)
def test_nothing_is_said_of(changes: dict[str, object]) -> None:
    """A program that wrap started, a launcher, and one whose command line is not known whole."""
    assert _rewrap(Host(), msgspec.structs.replace(PROCESS, **changes)) is None


@pytest.mark.slow
@pytest.mark.skipif(not TORCH_PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch")
def test_a_real_program_and_the_same_wrapped() -> None:
    """What is said of a plain program is not said of the one that wrap started."""
    with running(TORCH_PYTHON, COMPUTES) as plain:
        wrapped = subprocess.Popen(
            (sys.executable, "-m", "sysperf", "wrap", "-q", "--", TORCH_PYTHON, "-c", COMPUTES),
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parent.parent,
        )
        try:
            assert wrapped.stdout is not None
            assert wrapped.stdout.readline().strip() == b"ready"
            listed = subprocess.run((sys.executable, "-m", "sysperf", "ps", "--format", "json"), capture_output=True, check=True)
        finally:
            wrapped.kill()
            wrapped.wait()
    by_pid = {rewrap["pid"]: rewrap for rewrap in json.loads(listed.stdout)["rewraps"]}
    assert wrapped.pid not in by_pid
    assert by_pid[plain]["changes"], "wrap has something to set for a program that allocates"
    assert by_pid[plain]["command"].startswith(f"sysperf wrap -- {TORCH_PYTHON} -c ")
