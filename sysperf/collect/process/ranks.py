"""Which part of a parallel job a process is, and who started it.

Reads   /proc/[pid]/{environ,cmdline,stat}
torchrun  https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
Slurm     https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
Open MPI  https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html
"""

from sysperf.collect.process.process_tree import read_stat
from sysperf.collect.process.threads import Threads
from sysperf.host import Host
from sysperf.procfs.numbers import whole
from sysperf.startup import lazy

_PROGRAM = lazy(r"(?:.*/)?(torchrun|accelerate|deepspeed)")
_MODULE = lazy(r"(torch)\.distributed\.(?:run|launch)|(accelerate)\.commands\.(?:launch|accelerate_cli)|(deepspeed)\.launcher\.\w+")
_FAMILIES: tuple[tuple[str, str, str], ...] = (
    # rank, local rank, world size, as each launcher names them; the first that is set decides
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
)
_SLURM = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")


def launcher(argv: tuple[str, ...] | None, threads: Threads | None) -> str:
    """The launcher that this process is: torchrun, accelerate or deepspeed; empty for a program that computes."""
    for argument in (argv or ())[:6]:
        if found := _PROGRAM.fullmatch(argument):
            return found[1]
        if found := _MODULE.fullmatch(argument):
            return found[2] or found[3] or "torchrun"
    return "torchrun" if threads is not None and threads.any("pt_elastic") else ""


def given(host: Host, env: dict[str, str] | None, ppid: int) -> dict[str, int | None]:
    """{rank, local_rank, world_size} at its start: None when its variables are unknown, -1 and 1 when it is no rank.

    Slurm sets its variables in the batch script too, so they count only for what `srun` itself started.
    """
    if env is None:
        return {"rank": None, "local_rank": None, "world_size": None}
    families = _FAMILIES
    if env.get(_SLURM[0]) and not env.get("RANK") and (parent := read_stat(host, ppid)) and parent.comm == "slurmstepd":
        families = (*_FAMILIES, _SLURM)
    names = next((names for names in families if _number(env, names[0], -1) >= 0), _FAMILIES[0])
    rank = _number(env, names[0], -1)
    return {"rank": rank, "local_rank": _number(env, names[1], -1), "world_size": _number(env, names[2], 1) if rank >= 0 else 1}


def _number(env: dict[str, str], name: str, otherwise: int) -> int:
    number = whole(env.get(name))
    return otherwise if number is None else number
