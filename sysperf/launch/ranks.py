"""The rank of this process in its job: what its launcher says, and what that launcher did to CPUs and variables.

Reads   the environment  /proc/[pid]/{status,environ} of the processes above
"""

from collections.abc import Mapping

from sysperf.host import Host
from sysperf.launch.gpus import VISIBLE
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record
from sysperf.procfs import cpulist, environ, rank_variables
from sysperf.procfs.rank_variables import LAUNCHERS, MAX_PARTS, SLURM
from sysperf.procfs.rank_variables import number as _number

ACCELERATE = "ACCELERATE_USE_CPU"
"""accelerate sets it for whatever it starts, also for a single process."""

OURS = "sysperf wrap --nproc"
MAX_ABOVE = 8


class Ranks(Record):
    """The place of this process among those of its job on this machine. A size of 1 is a process of its own."""

    source: str = ""
    """The launcher; empty for a process of its own."""
    rank: int = 0
    size: int | None = 1
    """None: the launcher does not say how many there are here."""
    own_cpus: bool = False
    """The launcher has bound this rank to CPUs."""
    sharing: int = 1
    """How many ranks it bound to these same CPUs."""
    place_among_sharing: int | None = 0
    """This rank's number among those; None when that is unknown."""
    injected: tuple[str, ...] = ()
    """Variables that the launcher set and no user chose."""
    divides_gpus: bool = False
    """We are the launcher, and give each rank its part of the GPUs; else ranks choose by their number among all they see."""
    same_gpus: bool = False
    """All ranks see the same GPUs; else each may have been given its own."""


def identity(source: str, rank: int) -> str:
    """A rank in one word; "" for a process of its own, and for our own instances, which their programs do not know of."""
    return f"{source.replace(' ', '')}:{rank}" if source and source != OURS else ""


def read(host: Host, env: Mapping[str, str], allowed: CpuSet | None) -> Ranks:
    """What the environment says, and whether the launcher bound this rank already."""
    local = rank_variables.local_rank(env)
    source, rank, size = local.launcher, local.rank, local.size
    if not source:
        return Ranks(injected=_injected(env, _above(host, ACCELERATE)[1])) if ACCELERATE in env else Ranks()
    above = _above(host, _rank_name(source))
    binding = _binding(env, rank, size, allowed, above[0]) if source == "Slurm" else None
    binding = binding or _inferred_binding(size, allowed, above[0])
    injected = _injected(env, above[1]) if source == "torchrun" and size != 1 else ()
    return Ranks(source, rank, size, *binding, injected, same_gpus=_same_gpus(source, env, above[1], size))


def _binding(
    env: Mapping[str, str], rank: int, size: int | None, allowed: CpuSet | None, above: CpuSet | None
) -> tuple[bool, int, int | None] | None:
    """(bound, ranks with this mask, our number among them) by what Slurm says: a mask for each task, or one for all."""
    kind, masks = env.get("SLURM_CPU_BIND_TYPE", ""), [mask for mask in env.get("SLURM_CPU_BIND_LIST", "").split(",")[:MAX_PARTS] if mask]
    if not kind or size == 1:
        return None
    if "none" in kind or len(masks) == 1:  # one mask is for all tasks
        return False, 1, 0
    if size is None or len(masks) < size:
        inferred = _inferred_binding(size, allowed, above)
        return True, inferred[1], inferred[2]
    alike = [task for task in range(size) if masks[task] == masks[rank]]
    if len(alike) == size:
        return False, 1, 0
    return True, len(alike), alike.index(rank)


def _inferred_binding(size: int | None, allowed: CpuSet | None, above: CpuSet | None) -> tuple[bool, int, int | None]:
    """The same by our mask inside the launcher's: ranks beyond one for each such mask share it, and nothing says which do."""
    if not allowed or not above or allowed == above or not allowed.issubset(above):
        return False, 1, 0
    sharing = max(1, -(-(size or 1) * len(allowed) // len(above)))
    return True, sharing, 0 if sharing == 1 else None


def of_running(env: Mapping[str, str]) -> Ranks:
    """The rank of a program that runs already, by its variables. Nobody can tell any more whether its launcher bound it."""
    local = rank_variables.local_rank(env)
    source, rank, size = local.launcher, local.rank, local.size
    injected = ("OMP_NUM_THREADS",) if source == "torchrun" and size != 1 and env.get("OMP_NUM_THREADS") == "1" else ()
    return Ranks(source, rank, size, injected=injected, same_gpus=_same_gpus(source, env, None, size)) if source else Ranks()


def _same_gpus(source: str, env: Mapping[str, str], above: Mapping[str, str] | None, size: int | None) -> bool:
    """Whether the launcher left CUDA_VISIBLE_DEVICES as it found it: torchrun does, Slurm and scripts may give each rank its own."""
    if above is not None and VISIBLE in above:
        return above[VISIBLE] == env.get(VISIBLE)
    given = _number(env.get("SLURM_GPUS_ON_NODE"))
    if source == "Slurm" and given and size:
        return given < size
    return source == "torchrun" and above is None


def _injected(env: Mapping[str, str], above: Mapping[str, str] | None) -> tuple[str, ...]:
    """torchrun and accelerate set OMP_NUM_THREADS=1 when nobody set it; a user's own is in the launcher's environment."""
    return ("OMP_NUM_THREADS",) if env.get("OMP_NUM_THREADS") == "1" and above is not None and "OMP_NUM_THREADS" not in above else ()


def _rank_name(source: str) -> str:
    return next((launcher.local_rank for launcher in LAUNCHERS if launcher.name == source), SLURM.local_rank)


def _above(host: Host, name: str) -> tuple[CpuSet | None, dict[str, str] | None]:
    """(CPUs, environment) of the launcher: the first process above us whose environment does not make it this rank."""
    pid = host.call("getppid", _parent)
    for _ in range(MAX_ABOVE):
        if not isinstance(pid, int) or pid <= 0:
            break
        status = host.pairs(f"/proc/{pid}/status") or {}
        env = _variables(host, pid)
        if env is None or name not in env:
            return cpulist.parse(status.get("Cpus_allowed_list", "")), env
        pid = _number(status.get("PPid"))
    return None, None


def _parent() -> int:
    import os  # noqa: PLC0415 - a call of the live machine only

    return os.getppid()


def _variables(host: Host, pid: int) -> dict[str, str] | None:
    text = host.text(f"/proc/{pid}/environ", environ.MAX_BYTES)
    return None if text is None else environ.variables(text)
