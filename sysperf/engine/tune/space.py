"""What may be set at the start of this program on this machine, cut by facts to at most six factors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sysperf.engine.wrap.allocator import find_allocator
from sysperf.engine.wrap.facts import Known
from sysperf.model.errors import UsageError
from sysperf.model.record import JsonObject
from sysperf.model.tuning import Factor, LeftOut, Level

MAX_FACTORS = 6
"""With more, the runs that people have time for tell nothing of any."""
MAX_THREAD_LEVELS = 4
AS_IS = Level("as it is")
LOADER, PREFETCH = "loader workers", "loader prefetch"
PRELOADED = ("tcmalloc_minimal", "jemalloc", "mimalloc")
ASKED_BY = {"tcmalloc_minimal": "launch.tcmalloc-asked", "jemalloc": "launch.jemalloc-asked", "mimalloc": "launch.mimalloc-asked"}
"""The rule that preloads an allocator which a profile asks for."""
BINDING = ("launch.gpu-node-unbound", "launch.node-unbound", "launch.ranks-share-cpus", "launch.memory-far")
NO_RULES = "launch.preload-missing"
"""A rule that only warns: a profile of this rule alone changes nothing by itself."""
OF_GLIBC = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")


class Space(NamedTuple):
    """The factors that are searched, and why others are not."""

    factors: tuple[Factor, ...]
    left_out: tuple[LeftOut, ...]


class Asked(NamedTuple):
    """What the user allows or excludes."""

    only: Sequence[str] = ()
    """The factors to search; none: all that have something to try here."""
    without: Sequence[str] = ()
    instances: Sequence[int] = ()
    """Numbers of instances to try; none: the program runs once at a time."""
    loader: bool = False
    """Whether workers and prefetch of DataLoaders may be changed; they may where `only` names them."""


class Unfit(Exception):
    """Why a factor has nothing to try here."""


_Tried = Callable[[Known, Asked], Iterator[Level]]


def space(known: Known, asked: Asked) -> Space:
    """Return the factors in the order of what they usually matter; the first six that have something to try here."""
    factors: list[Factor] = []
    left_out: list[LeftOut] = []
    for name in asked.only or NAMES:
        some_levels, reason = _levels(name, known, asked)
        if some_levels and len(factors) == MAX_FACTORS:
            reason, some_levels = f"{MAX_FACTORS} others come first: --without leaves one out", ()
        if some_levels:
            factors.append(Factor(name, (AS_IS, *some_levels)))
        else:
            left_out.append(LeftOut(name, reason or "there is one way only"))
    return Space(tuple(factors), tuple(left_out))


def _levels(name: str, known: Known, asked: Asked) -> tuple[tuple[Level, ...], str]:
    """Return the levels of a factor beside `as it is`, or why there are none."""
    if name in asked.without:
        return (), "--without"
    try:
        return tuple(_FACTORS[name](known, asked)), ""
    except Unfit as reason:
        return (), str(reason)


def profile_of(factors: Sequence[Factor], choice: Sequence[int]) -> JsonObject:
    """Return the fields of the launch profile that a choice stands for: what it says, and no rule beside that."""
    merged: JsonObject = {}
    only: list[str] = []
    for factor, level in zip(factors, choice, strict=True):
        for field, value in factor.levels[level].profile.items():
            if field == "only":
                only += value
            else:
                merged[field] = {**merged.get(field, {}), **value} if isinstance(value, Mapping) else value
    return {**merged, "only": tuple(dict.fromkeys(only)) or (NO_RULES,)}


# ---------------------------------------------------------------------- factors


def _threads(known: Known, _asked: Asked) -> Iterator[Level]:
    _needs_torch(known)
    _unset(known, "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    cpus = len(known.machine.allowed or ())
    cores = sum(1 for core in known.machine.cores or () if core & (known.machine.allowed or core))
    quota = known.machine.quota or 0.0
    most = min(cpus, max(1, round(quota + 0.49))) if quota else cpus
    usual = cores or cpus  # what torch starts: one a core
    wanted = [cores, most, usual // 2, usual // 4, 1]
    numbers = [number for number in dict.fromkeys(wanted) if 1 <= number <= most and not (number == usual and not quota)]
    yield from (Level(str(number), {"threads": number}) for number in sorted(numbers[:MAX_THREAD_LEVELS], reverse=True))


def _allocator(known: Known, _asked: Asked) -> Iterator[Level]:
    _unset(known, *OF_GLIBC)
    if known.areas.allocator and known.areas.allocator.glibc_version and known.program.torch:
        yield Level("glibc that keeps memory", {"only": ("launch.page-faults-likely",)})
    for library in PRELOADED:
        if find_allocator(known, library)[0]:
            yield Level(library, {"allocator": library, "only": (ASKED_BY[library],)})


def _instances(_known: Known, asked: Asked) -> Iterator[Level]:
    if not asked.instances:
        raise Unfit("--instances says that the program may run several times at once")
    yield from (Level(str(number), {"instances": number}) for number in asked.instances if number > 1)


def _binding(known: Known, _asked: Asked) -> Iterator[Level]:
    nodes = [node for node in known.machine.nodes if node.cpus & (known.machine.allowed or node.cpus) and not node.gpu_memory]
    if len(nodes) < 2:
        raise Unfit("there is one memory node")
    if known.ranks.source:
        raise Unfit("the launcher places its ranks")
    yield Level("as wrap places it", {"only": BINDING})
    roomiest = max(nodes, key=lambda node: node.available_bytes or 0)
    yield Level(f"node {roomiest.id}", {"node": roomiest.id})
    yield Level("interleaved memory", {"memory_policy": "interleave"})


def _waiting(known: Known, _asked: Asked) -> Iterator[Level]:
    _needs_torch(known)
    _unset(known, "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    if len(known.machine.allowed or ()) < 2:
        raise Unfit("there is one CPU")
    yield Level("passive", {"set": {"OMP_WAIT_POLICY": "passive"}})
    if known.program.torch and known.program.torch.openmp == "libgomp":
        yield Level("spins briefly", {"set": {"GOMP_SPINCOUNT": "10000"}})
    else:
        yield Level("active", {"set": {"OMP_WAIT_POLICY": "active"}})


def _huge_pages(known: Known, _asked: Asked) -> Iterator[Level]:
    _needs_torch(known)
    _unset(known, "THP_MEM_ALLOC_ENABLE", *OF_GLIBC)
    mode = known.areas.memory.thp_enabled if known.areas.memory else None
    if mode != "madvise":
        raise Unfit(f"transparent huge pages are set to {mode or 'nothing that is known'}, and programs choose only with madvise")
    yield Level("for large tensors", {"set": {"THP_MEM_ALLOC_ENABLE": "1"}})


def _cuda_allocator(known: Known, _asked: Asked) -> Iterator[Level]:
    if not (known.program.torch and known.program.torch.gpu and known.gpus.visible):
        raise Unfit("no NVIDIA GPU that this torch would use")
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    _unset(known, *names)
    # The new name is read from 2.10 on; 2.9 reads the old one only (pytorch#183387).
    name = names[0] if _version(known.program.torch.version) >= (2, 10) else names[1]
    yield Level("expandable segments", {"set": {name: "expandable_segments:True"}})
    yield Level("cudaMallocAsync", {"set": {name: "backend:cudaMallocAsync"}})


def _interop_threads(known: Known, _asked: Asked) -> Iterator[Level]:
    _needs_torch(known)
    usual = sum(1 for _ in known.machine.cores or ()) or len(known.machine.allowed or ())
    if usual < 2:
        raise Unfit("there is one CPU")
    yield from (Level(str(number), {"interop_threads": number}) for number in dict.fromkeys((1, usual // 2)) if number < usual)


def _workers(known: Known, asked: Asked) -> Iterator[Level]:
    """One, and twice as many as CPUs at most; those in between follow from the first runs (`feeding`)."""
    _needs_torch(known)
    if not asked.loader and LOADER not in asked.only:
        raise Unfit("--loader allows to change the workers of loaders: random augmentation then differs")
    cpus = len(known.machine.allowed or ()) or 1
    yield from (_workers_level(number) for number in sorted({1, cpus // 2, cpus, 2 * cpus} - {0}))


def feeding(speedup: float, cpus: int) -> tuple[Level, ...]:
    """Return the numbers of loader workers to try, where a worker for each CPU makes the program so many times as fast as one worker does.

    By Little's law: one worker makes batches at the rate 1 / (time of a batch), and many show the rate at which the program takes them.
    The ratio of both is the number of batches that must be in the making. Its neighbours are tried, too, and twice as many.
    """
    needed = max(1, math.ceil(speedup - 0.05))
    return tuple(_workers_level(number) for number in sorted({needed - 1, needed, needed + 1, 2 * needed}) if 1 <= number <= 2 * cpus)


def _workers_level(number: int) -> Level:
    return Level(f"{number} worker{'' if number == 1 else 's'}", {"loader_workers": number})


def _prefetch(known: Known, asked: Asked) -> Iterator[Level]:
    _needs_torch(known)
    if not asked.loader and PREFETCH not in asked.only:
        raise Unfit("--loader allows to change what loaders fetch ahead")
    yield Level("4 batches ahead", {"loader_prefetch": 4})
    yield Level("8 batches ahead", {"loader_prefetch": 8})


def _mkl(known: Known, _asked: Asked) -> Iterator[Level]:
    _needs_torch(known)
    _unset(known, "MKL_DYNAMIC")
    cpus, cores = len(known.machine.allowed or ()), len(known.machine.cores or ())
    if not cores or cpus <= cores:
        raise Unfit("MKL chooses fewer threads only where CPUs share cores")
    yield Level("all threads that are asked for", {"set": {"MKL_DYNAMIC": "FALSE"}})


def _onednn(known: Known, _asked: Asked) -> Iterator[Level]:
    _needs_torch(known)
    _unset(known, "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    yield Level("4096 primitives", {"set": {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "4096"}})


_FACTORS: dict[str, _Tried] = {
    "threads": _threads,
    "instances": _instances,
    "binding": _binding,
    "allocator": _allocator,
    LOADER: _workers,
    "OpenMP waiting": _waiting,
    "huge pages": _huge_pages,
    "CUDA allocator": _cuda_allocator,
    PREFETCH: _prefetch,
    "inter-op threads": _interop_threads,
    "MKL's own choice of threads": _mkl,
    "oneDNN cache": _onednn,
}
NAMES = tuple(_FACTORS)
"""All factors, those that usually matter most first."""
WORDS = tuple(re.sub("[^A-Za-z]+", "-", name.replace("'", "")) for name in NAMES)
"""The same as words of a command line."""


def factors_named(words: Sequence[str], option: str) -> tuple[str, ...]:
    """Return the factors that an option names, by their names or their words. Raises UsageError."""
    known = {word.lower(): name for name, word in (*zip(NAMES, WORDS, strict=True), *zip(NAMES, NAMES, strict=True))}
    if unknown := [word for word in words if word.lower() not in known]:
        raise UsageError(f"{option} {unknown[0]}: no such factor", f"factors are {', '.join(WORDS)}")
    return tuple(dict.fromkeys(known[word.lower()] for word in words))


def _needs_torch(known: Known) -> None:
    if known.program.torch is None and known.program.torch_known:
        raise Unfit("the program's interpreter has no torch")
    if known.program.torch is None and not known.program.is_python:
        raise Unfit("the command is no Python program")


def _unset(known: Known, *prefixes: str) -> None:
    """Raise Unfit for what the user's environment decides."""
    mine = next((name for name in known.env if name.startswith(prefixes) and name not in known.ranks.injected), "")
    if mine:
        raise Unfit(f"{mine} is set in the environment, and stays")


def _version(text: str) -> tuple[int, ...]:
    parts = text.partition("+")[0].split(".")[:2]
    return tuple(int(part) if part.isdigit() else 0 for part in parts)
