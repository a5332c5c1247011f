"""Which part of a parallel job a process is, as its launcher says in the environment.

torchrun  https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
Slurm     https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
Open MPI  https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html
Flux      https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man7/flux-environment.html
Intel MPI, MPICH (Hydra), PALS (Cray) and MVAPICH name theirs in the table below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sysperf.model.record import Record
from sysperf.procfs.numbers import whole
from sysperf.startup import lazy


class Launcher(Record):
    """The variables of one launcher; "" where it has none that says this alone."""

    name: str
    local_rank: str
    local_sizes: tuple[str, ...] = ()
    """The first that is set counts."""
    rank: str = ""
    world_size: str = ""


TORCHRUN = Launcher("torchrun", "LOCAL_RANK", ("LOCAL_WORLD_SIZE", "LOCAL_SIZE"), "RANK", "WORLD_SIZE")
LAUNCHERS = (
    TORCHRUN,
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
    ),
    Launcher("MPICH", "MPI_LOCALRANKID", ("MPI_LOCALNRANKS",)),
    Launcher("MVAPICH", "MV2_COMM_WORLD_LOCAL_RANK", ("MV2_COMM_WORLD_LOCAL_SIZE",), "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    Launcher("PALS", "PALS_LOCAL_RANKID", ("PALS_LOCAL_SIZE",)),
    Launcher("Flux", "FLUX_TASK_LOCAL_ID", (), "FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
)
SLURM = Launcher("Slurm", "SLURM_LOCALID", (), "SLURM_PROCID", "SLURM_NTASKS")
"""Slurm sets its variables in the batch script too, so they count only for what `srun` started."""

_OTHERS = (
    "GROUP_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "FLUX_JOB_NNODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES",
    "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "SLURM_NODEID",
    "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE", "SLURM_GPUS_ON_NODE", "SLURM_JOB_ID",
)  # fmt: skip
NAMES = frozenset(
    (
        *_OTHERS,
        *(
            name
            for launcher in (*LAUNCHERS, SLURM)
            for name in (launcher.rank, launcher.local_rank, launcher.world_size, *launcher.local_sizes)
            if name
        ),
    )
)
"""The variables that launchers set for their ranks; none of them is secret."""

LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
MAX_RANKS = 65_536
MAX_PARTS = 4_096
MAX_NUMBER = 999_999
_COUNTS = lazy(r"(\d{1,6})(?:\(x(\d{1,6})\))?")


class GlobalRank(Record):
    """A rank among all of its job: -1, -1 and 1 for a process that was started as none."""

    rank: int
    local_rank: int
    world_size: int


class LocalRank(Record):
    """A rank among those of its job on this machine; no launcher and a size of 1 for a process of its own."""

    launcher: str
    rank: int
    size: int | None
    """None where the launcher does not say it."""


def global_rank(env: Mapping[str, str], *, started_by_srun: bool) -> GlobalRank:
    """The rank by the first launcher that gives one."""
    launchers = (*LAUNCHERS, SLURM) if started_by_srun else LAUNCHERS
    launcher = next((launcher for launcher in launchers if number(env.get(launcher.rank)) is not None), TORCHRUN)
    rank, local, size = (number(env.get(name)) for name in (launcher.rank, launcher.local_rank, launcher.world_size))
    return GlobalRank(
        rank=-1 if rank is None else rank,
        local_rank=-1 if local is None else local,
        world_size=1 if rank is None or size is None else size,
    )


def local_rank(env: Mapping[str, str]) -> LocalRank:
    """The rank by the first launcher that gives rank and size, else by the first that gives a rank."""
    complete, partial = None, None
    for place in _local_ranks(env):
        if place.size is None:
            partial = partial or place
        elif complete is None and (partial is None or partial.rank == place.rank):  # another rank is a process below that launcher's
            complete = place
    return complete or partial or LocalRank("", 0, 1)


def number(text: str | None) -> int | None:
    """A rank or a count; None when it is anything else, or out of any reason."""
    value = whole(text)
    return value if value is not None and value <= MAX_NUMBER else None


def _local_ranks(env: Mapping[str, str]) -> Iterator[LocalRank]:
    for launcher in LAUNCHERS:
        rank = number(env.get(launcher.local_rank))
        if rank is not None:
            size = next((size for name in launcher.local_sizes if (size := number(env.get(name)))), None)
            yield LocalRank(launcher.name, rank, _checked(rank, size or (_flux_size(env) if launcher.name == "Flux" else None)))
    rank = number(env.get(SLURM.local_rank))
    if rank is not None and ("SLURM_STEP_ID" in env or "SLURM_STEPID" in env):  # the batch script itself has SLURM_LOCALID too
        yield LocalRank(SLURM.name, rank, _checked(rank, _slurm_size(env)))
    rank = number(env.get(TORCHRUN.local_rank))
    if rank is not None and (size := _size_of_world(env)):
        yield LocalRank(TORCHRUN.name, rank, _checked(rank, size))


def _size_of_world(env: Mapping[str, str]) -> int | None:
    """Ranks on this machine, of all ranks: where the number of machines is known, or there is one."""
    world = number(env.get("WORLD_SIZE"))
    if world == 1 or (world and env.get("MASTER_ADDR") in LOOPBACK):
        return world
    nodes = number(env.get("GROUP_WORLD_SIZE")) or number(env.get("SLURM_NNODES")) or number(env.get("SLURM_JOB_NUM_NODES"))
    return -(-world // nodes) if world and nodes else None


def _checked(rank: int, size: int | None) -> int | None:
    return None if size is None or not rank < size <= MAX_RANKS else size


def _flux_size(env: Mapping[str, str]) -> int | None:
    size, nodes = number(env.get("FLUX_JOB_SIZE")), number(env.get("FLUX_JOB_NNODES"))
    return -(-size // nodes) if size and nodes else None


def _slurm_size(env: Mapping[str, str]) -> int | None:
    """``4(x2),3`` is 4 tasks on each of the first two nodes and 3 on the third."""
    text = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or env.get("SLURM_NTASKS_PER_NODE") or ""
    node = number(env.get("SLURM_NODEID")) or 0
    for part in text.split(",")[:MAX_PARTS]:
        match = _COUNTS.fullmatch(part.strip())
        if not match:
            return None
        repeated = int(match[2] or 1)
        if node < repeated:
            return int(match[1]) or None
        node -= repeated
    return None
