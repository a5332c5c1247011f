"""Which part of a job a process is, and what its launcher has decided for it."""

from __future__ import annotations

import pytest

from sysperf.host import redact
from sysperf.launch.ranks import OURS, identity, read
from sysperf.model.cpuset import CpuSet
from sysperf.procfs.rank_variables import NAMES
from tests.conftest import MakeMachine

ALL, HALF = CpuSet(range(8)), CpuSet(range(4))


@pytest.mark.parametrize(
    ("env", "source", "rank", "size"),
    [
        ("LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", "torchrun", 1, 4),
        ("LOCAL_RANK=0 LOCAL_SIZE=2", "torchrun", 0, 2),
        ("LOCAL_RANK=0", "torchrun", 0, None),
        ("LOCAL_RANK=0 WORLD_SIZE=1", "torchrun", 0, 1),
        ("OMPI_COMM_WORLD_LOCAL_RANK=3 OMPI_COMM_WORLD_LOCAL_SIZE=4", "Open MPI", 3, 4),
        ("MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "MPICH", 1, 2),
        ("PALS_LOCAL_RANKID=5 PALS_LOCAL_SIZE=6", "PALS", 5, 6),
        ("FLUX_TASK_LOCAL_ID=1 FLUX_JOB_SIZE=5 FLUX_JOB_NNODES=2", "Flux", 1, 3),
        ("SLURM_LOCALID=2 SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=4(x2) SLURM_NODEID=1", "Slurm", 2, 4),
        ("SLURM_LOCALID=0 SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=4(x2),3 SLURM_NODEID=2", "Slurm", 0, 3),
        ("SLURM_LOCALID=0 SLURM_NTASKS_PER_NODE=4", "", 0, 1),
        ("LOCAL_RANK=5 LOCAL_WORLD_SIZE=4", "torchrun", 5, None),
        ("LOCAL_RANK=2 SLURM_LOCALID=2 SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=4", "Slurm", 2, 4),
        ("LOCAL_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=3 OMPI_COMM_WORLD_LOCAL_SIZE=8", "Open MPI", 3, 8),
        ("LOCAL_RANK=3 SLURM_LOCALID=0 SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=1", "torchrun", 3, None),
        ("LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 SLURM_LOCALID=0 SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=4", "torchrun", 1, 2),
        ("LOCAL_RANK=1 WORLD_SIZE=8 SLURM_NNODES=2", "torchrun", 1, 4),
        ("LOCAL_RANK=1 WORLD_SIZE=8 MASTER_ADDR=localhost", "torchrun", 1, 8),
        ("LOCAL_RANK=1 WORLD_SIZE=8 MASTER_ADDR=10.0.0.7", "torchrun", 1, None),
        ("MV2_COMM_WORLD_LOCAL_RANK=1 MV2_COMM_WORLD_LOCAL_SIZE=2", "MVAPICH", 1, 2),
        ("LOCAL_RANK=4 LOCAL_WORLD_SIZE=4", "torchrun", 4, None),
        ("LOCAL_RANK=0 LOCAL_WORLD_SIZE=65536", "torchrun", 0, 65536),
        ("LOCAL_RANK=0 LOCAL_WORLD_SIZE=65537", "torchrun", 0, None),
        ("LOCAL_RANK=one", "", 0, 1),
        ("", "", 0, 1),
    ],
)
def test_each_launcher_says_it_in_its_own_words(machine: MakeMachine, env: str, source: str, rank: int, size: int | None) -> None:
    """Rank and size here; unknown where a launcher does not say; a batch script of Slurm is no rank."""
    rank_facts = read(machine({}), dict(word.split("=", 1) for word in env.split()), ALL)

    assert (rank_facts.source, rank_facts.rank, rank_facts.size) == (source, rank, size)


def above(env: str, cpus: str = "0-7", pid: int = 40, ppid: int = 1) -> dict[str, str | bytes | OSError]:
    return {f"/proc/{pid}/environ": env.replace(" ", "\0"), f"/proc/{pid}/status": f"PPid:\t{ppid}\nCpus_allowed_list:\t{cpus}\n"}


RANK = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}


def test_one_thread_by_torchrun_is_nobodys_choice(machine: MakeMachine) -> None:
    """torchrun sets OMP_NUM_THREADS=1 for several ranks; a user's own 1 is in torchrun's environment too."""
    ours = machine(above("CONDA_PREFIX=/x"), calls={"getppid": 40})
    users = machine(above("OMP_NUM_THREADS=1"), calls={"getppid": 40})

    assert read(ours, RANK, ALL).injected == ("OMP_NUM_THREADS",)
    assert read(users, RANK, ALL).injected == ()
    assert read(machine({}), RANK, ALL).injected == ()


def test_one_thread_by_accelerate(machine: MakeMachine) -> None:
    """accelerate does so even for one process, which is no rank."""
    rank_facts = read(
        machine(above("CONDA_PREFIX=/x"), calls={"getppid": 40}), {"ACCELERATE_USE_CPU": "False", "OMP_NUM_THREADS": "1"}, ALL
    )

    assert (rank_facts.source, rank_facts.injected) == ("", ("OMP_NUM_THREADS",))


def test_cpus_narrower_than_the_launchers_are_the_ranks_own(machine: MakeMachine) -> None:
    """A launcher that may run everywhere and a rank that may not: the launcher bound it. A mask that both share is divided by nobody."""
    assert read(machine(above("A=1", "0-7"), calls={"getppid": 40}), RANK, HALF).own_cpus
    assert not read(machine(above("A=1", "0-3"), calls={"getppid": 40}), RANK, HALF).own_cpus


def test_a_shell_between_rank_and_launcher(machine: MakeMachine) -> None:
    """`srun bash -c 'sysperf wrap …'`: the shell is the rank too, and its mask says nothing."""
    files = {**above("LOCAL_RANK=0", "0-3", 40, 30), **above("A=1", "0-7", 30, 1)}

    assert read(machine(files, calls={"getppid": 40}), RANK, HALF).own_cpus


@pytest.mark.parametrize(
    ("rank", "launcher", "same"),
    [
        ("LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 CUDA_VISIBLE_DEVICES=3", "CUDA_VISIBLE_DEVICES=3", True),
        ("LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=0,1", False),
        ("LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 CUDA_VISIBLE_DEVICES=0", "A=1", False),
        ("OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 CUDA_VISIBLE_DEVICES=3", "CUDA_VISIBLE_DEVICES=3", True),
        ("OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 CUDA_VISIBLE_DEVICES=3", "", False),
        ("LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 CUDA_VISIBLE_DEVICES=3", "", True),
        ("SLURM_LOCALID=0 SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=4 SLURM_GPUS_ON_NODE=1", "A=1", True),
        ("SLURM_LOCALID=0 SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=4 SLURM_GPUS_ON_NODE=4", "A=1", False),
    ],
)
def test_whether_ranks_see_the_same_gpus(machine: MakeMachine, rank: str, launcher: str, same: bool) -> None:
    """What the launcher has in its own environment all ranks have; torchrun changes nothing; Slurm says how many GPUs there are."""
    host = machine(above(launcher), calls={"getppid": 40}) if launcher else machine({})

    assert read(host, dict(word.split("=", 1) for word in rank.split()), ALL).same_gpus is same


def test_one_mask_for_all_tasks_of_slurm_is_nobodys_own(machine: MakeMachine) -> None:
    """Bound together, they still divide the CPUs among them."""
    env = {"SLURM_LOCALID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_CPU_BIND_TYPE": "mask_cpu:"}

    assert not read(machine({}), {**env, "SLURM_CPU_BIND_LIST": "0xFF,0xFF"}, ALL).own_cpus
    assert read(machine({}), {**env, "SLURM_CPU_BIND_LIST": "0x0F,0xF0"}, HALF).own_cpus


@pytest.mark.parametrize(("kind", "own"), [("quiet,mask_cpu:0x0F,0xF0", True), ("none", False)])
def test_slurm_says_whether_it_bound(machine: MakeMachine, kind: str, own: bool) -> None:
    """SLURM_CPU_BIND_TYPE decides for Slurm: a step's cpuset is narrower than slurmstepd's although all tasks share it."""
    env = {"SLURM_LOCALID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_CPU_BIND_TYPE": kind}

    assert read(machine(above("A=1", "0-63"), calls={"getppid": 40}), env, HALF).own_cpus is own


def slurm(rank: int, masks: str, size: int = 4) -> dict[str, str]:
    step = {"SLURM_LOCALID": str(rank), "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": str(size)}
    return {**step, "SLURM_CPU_BIND_TYPE": "mask_cpu:", "SLURM_CPU_BIND_LIST": masks}


def test_tasks_of_slurm_that_share_a_mask(machine: MakeMachine) -> None:
    """--cpu-bind=sockets with four tasks on two sockets: two tasks a mask, numbered as they stand in the list."""
    ranks_read = [read(machine({}), slurm(rank, "0x0F,0xF0,0x0F,0xF0"), HALF) for rank in range(4)]

    assert [(rank.own_cpus, rank.sharing, rank.place_among_sharing) for rank in ranks_read] == [
        (True, 2, 0),
        (True, 2, 0),
        (True, 2, 1),
        (True, 2, 1),
    ]


@pytest.mark.parametrize(("size", "sharing", "place"), [(2, 1, 0), (3, 2, None), (4, 2, None), (8, 4, None)])
def test_ranks_of_mpirun_that_share_a_socket(machine: MakeMachine, size: int, sharing: int, place: int | None) -> None:
    """mpirun binds to sockets above two ranks: with half of the launcher's CPUs each, beyond two ranks some share, and nobody says which."""
    env = {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": str(size)}
    rank_facts = read(machine(above("A=1", "0-7"), calls={"getppid": 40}), env, HALF)

    assert (rank_facts.own_cpus, rank_facts.sharing, rank_facts.place_among_sharing) == (True, sharing, place)


def test_captures_keep_what_says_the_rank() -> None:
    """`--root` shows the launch that the machine itself would make."""
    assert [name for name in sorted(NAMES) if not redact.keeps(name)] == []


def test_masks_of_slurm_that_are_not_all_there(machine: MakeMachine) -> None:
    """A list shorter than the tasks: how many share ours is told by how much of the launcher's it is."""
    host = machine(above("A=1", "0-7"), calls={"getppid": 40})
    rank_facts = read(host, slurm(2, "0x0F,0xF0"), HALF)

    assert (rank_facts.own_cpus, rank_facts.sharing, rank_facts.place_among_sharing) == (True, 2, None)


def test_a_single_task_that_slurm_bound(machine: MakeMachine) -> None:
    """Its list has one mask, which says nothing: the launcher's own mask does."""
    host = machine(above("A=1", "0-7"), calls={"getppid": 40})

    assert read(host, slurm(0, "0x0F", 1), HALF).own_cpus
    assert not read(host, slurm(0, "0xFF", 1), ALL).own_cpus


def test_a_rank_in_one_word() -> None:
    """As the mark of a wrap keeps it; a process of its own and our own instances have none."""
    assert (identity("Open MPI", 3), identity("", 0), identity(OURS, 1)) == ("OpenMPI:3", "", "")
