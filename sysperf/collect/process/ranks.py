"""Which part of a parallel job a process is, and who started it.

Reads   /proc/[pid]/{environ,cmdline,stat}
"""

from sysperf.collect.process.process_tree import read_stat
from sysperf.collect.process.threads import Threads
from sysperf.host import Host
from sysperf.procfs.rank_variables import SLURM, TORCHRUN, GlobalRank, global_rank
from sysperf.startup import lazy

_PROGRAM = lazy(r"(?:.*/)?(torchrun|accelerate|deepspeed)")
_MODULE = lazy(r"(torch)\.distributed\.(?:run|launch)|(accelerate)\.commands\.(?:launch|accelerate_cli)|(deepspeed)\.launcher\.\w+")


def launcher(argv: tuple[str, ...] | None, threads: Threads | None) -> str:
    """The launcher that this process is: torchrun, accelerate or deepspeed; empty for a program that computes."""
    for argument in (argv or ())[:6]:
        if match := _PROGRAM.fullmatch(argument):
            return match[1]
        if match := _MODULE.fullmatch(argument):
            return match[2] or match[3] or "torchrun"
    return "torchrun" if threads is not None and threads.any("pt_elastic") else ""


def given(host: Host, env: dict[str, str] | None, ppid: int) -> GlobalRank | None:
    """Rank at its start; None when its variables are unknown."""
    return None if env is None else global_rank(env, started_by_srun=_is_started_by_srun(host, env, ppid))


def _is_started_by_srun(host: Host, env: dict[str, str], ppid: int) -> bool:
    if not env.get(SLURM.rank) or env.get(TORCHRUN.rank):
        return False
    parent = read_stat(host, ppid)
    return parent is not None and parent.comm == "slurmstepd"
