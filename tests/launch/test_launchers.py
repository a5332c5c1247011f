"""Under the launchers themselves: what Open MPI, Slurm, torchrun and Jupyter really give their processes, and what wrap makes of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.privileges import AS_ROOT

CPUS = sorted(os.sched_getaffinity(0))
WRAP = (sys.executable, "-m", "sysperf", "wrap")
NAMES = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "OMP_NUM_THREADS")
LINE = f"import json, os\nline = json.dumps([sorted(os.sched_getaffinity(0)), {{name: os.environ.get(name) for name in {NAMES}}}])\n"
# One short line in one write: launchers cut long ones up, and ranks that share a pipe would mix theirs.
SHOW = f"{LINE}os.write(1, (line + chr(10)).encode())"
MINE = ("OMP_", "OMPI_", "MKL_", "SLURM_", "LOCAL_", "SYSPERF_W", "MALLOC_", "PMIX_", "RANK", "WORLD_SIZE")
BASE = {name: value for name, value in os.environ.items() if not name.startswith(MINE)}

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


def needs(tool: str, package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"apt-get install {package}")


def ranks(*launcher: str, options: tuple[str, ...] = (), python: str = sys.executable, **env: str) -> tuple[list[tuple[Any, ...]], str]:
    """((CPUs, environment) of each rank by its CPUs, what wrap said) of a launcher that starts wrap in each."""
    done = subprocess.run(
        [*launcher, *WRAP, *options, "--", python, "-c", SHOW],
        env={**BASE, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return sorted((tuple(json.loads(line)) for line in done.stdout.splitlines()), key=lambda rank: list(rank[0])), done.stderr


def halves() -> list[list[int]]:
    return [CPUS[: len(CPUS) // 2], CPUS[len(CPUS) // 2 :]]


# ---------------------------------------------------------------------- Open MPI

MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2")


@needs("mpirun", "openmpi-bin")
def test_open_mpi_binds_its_two_ranks_and_that_stays() -> None:
    """By default each of two ranks gets a core of its own; wrap keeps it and says whose choice it was."""
    by_rank, stderr = ranks(*MPIRUN, "--bind-to", "core")

    assert not set(by_rank[0][0]) & set(by_rank[1][0])
    assert {len(rank[0]) for rank in by_rank} != {len(CPUS)}
    assert stderr.count("Open MPI gave this rank CPUs") == 2


@needs("mpirun", "openmpi-bin")
def test_open_mpi_that_binds_nothing_leaves_it_to_us() -> None:
    """Each rank gets its half."""
    by_rank, _ = ranks(*MPIRUN, "--bind-to", "none")

    assert [rank[0] for rank in by_rank] == halves()
    assert {rank[1]["OMPI_COMM_WORLD_LOCAL_RANK"] for rank in by_rank} == {"0", "1"}


# ---------------------------------------------------------------------- Slurm

SLURM_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""
SLURM_TOOLS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge"}


def _ports(count: int) -> list[int]:
    with contextlib.ExitStack() as kept:
        sockets = [kept.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in sockets]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of this machine alone; the path of its configuration."""
    absent = [package for tool, package in SLURM_TOOLS.items() if not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin")]
    if absent or os.geteuid():
        pytest.skip(f"apt-get install {' '.join(absent)}" if absent else f"{AS_ROOT}: slurmd runs for nobody else")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o600)
    text = SLURM_CONF.format(folder=folder, host=socket.gethostname().partition(".")[0], ports=_ports(2), cpus=os.cpu_count())
    (folder / "slurm.conf").write_text(text)
    munge = ("--key-file", "key", "--socket", "munge.socket", "--pid-file", "munge.pid", "--log-file", "munge.log", "--seed-file", "seed")
    words = [word if word.startswith("--") else str(folder / word) for word in munge]
    path = {**BASE, "PATH": f"{os.environ['PATH']}:/usr/sbin", "SLURM_CONF": str(folder / "slurm.conf")}
    try:
        subprocess.run(["munged", "--force", *words], env=path, check=True, capture_output=True, timeout=300)
        for daemon in ("slurmctld", "slurmd"):
            subprocess.run([daemon, "-f", str(folder / "slurm.conf")], env=path, check=True, capture_output=True, timeout=300)
        _wait_for_idle(path, folder)
        yield path["SLURM_CONF"]
    finally:
        for file in folder.glob("*.pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGTERM)


def _wait_for_idle(env: dict[str, str], folder: Path) -> None:
    for _ in range(200):
        state = subprocess.run(["sinfo", "-h", "-o", "%T"], env=env, capture_output=True, text=True, check=False, timeout=300).stdout
        if state.strip() == "idle":
            return
        time.sleep(0.05)
    pytest.fail(f"slurmd is not idle after 10 s: {(folder / 'slurmd.log').read_text()[-2000:]}")


def test_slurm_binds_its_tasks_and_that_stays(slurm: str) -> None:
    """srun gives each task a CPU; wrap keeps it."""
    by_rank, stderr = ranks("srun", "-n", "2", SLURM_CONF=slurm)

    assert not set(by_rank[0][0]) & set(by_rank[1][0])
    assert stderr.count("Slurm gave this rank CPUs") == 2


def test_slurm_that_binds_nothing_leaves_it_to_us(slurm: str) -> None:
    """With --cpu-bind=none the tasks share all CPUs, and each gets its half."""
    by_rank, _ = ranks("srun", "-n", "2", "--cpu-bind=none", SLURM_CONF=slurm)

    assert [rank[0] for rank in by_rank] == halves()


# ---------------------------------------------------------------------- torchrun

TORCH_PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")


@pytest.mark.skipif(not TORCH_PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch")
@pytest.mark.parametrize("own", ["3", pytest.param("", marks=pytest.mark.slow)])
def test_torchrun(own: str) -> None:
    """Its ranks are told apart; the single thread that it sets is nobody's choice, a number that the user exported is."""
    launcher = (TORCH_PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python")
    by_rank, _ = ranks("env", *((f"OMP_NUM_THREADS={own}",) if own else ()), *launcher, python=TORCH_PYTHON)

    assert [rank[0] for rank in by_rank] == halves()
    assert {rank[1]["LOCAL_RANK"] for rank in by_rank} == {"0", "1"}
    assert {rank[1]["OMP_NUM_THREADS"] for rank in by_rank} == {own or str(max(1, len(CPUS) // 2))}


# ---------------------------------------------------------------------- Jupyter

JUPYTER_PYTHON = os.environ.get("SYSPERF_JUPYTER_PYTHON", "")
CELL = f"""
import jupyter_client.manager
manager, client = jupyter_client.manager.start_new_kernel(kernel_name="wrapped", startup_timeout=60)
try:
    client.execute_interactive({LINE + "print(line)"!r}, timeout=300, output_hook=lambda said: print(said["content"].get("text", ""), end=""))
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
"""


@pytest.mark.skipif(not JUPYTER_PYTHON, reason="SYSPERF_JUPYTER_PYTHON names no interpreter with ipykernel and jupyter_client")
def test_a_jupyter_kernel(tmp_path: Path) -> None:
    """Jupyter starts the kernel that `sysperf kernel install` wrote, and a cell runs where wrap put it."""
    install = (sys.executable, "-m", "sysperf", "kernel", "install", "wrapped", "--prefix", str(tmp_path), "--python", JUPYTER_PYTHON)
    subprocess.run([*install, f"--wrap-options=--cpus {CPUS[0]} --threads 1"], check=True, capture_output=True, env=BASE, timeout=300)
    places = {"JUPYTER_PATH": str(tmp_path / "share/jupyter"), "JUPYTER_RUNTIME_DIR": str(tmp_path / "run"), "IPYTHONDIR": str(tmp_path)}
    done = subprocess.run([JUPYTER_PYTHON, "-c", CELL], env={**BASE, **places}, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    cpus, env = json.loads(done.stdout.strip().splitlines()[-1])

    assert (cpus, env["OMP_NUM_THREADS"]) == ([CPUS[0]], "1")
