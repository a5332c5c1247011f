"""openmp: what OpenMP programs started from this shell will do, and which OpenMP runtimes are installed beside PyTorch's own.

A running process has its own facts in `process`: its variables are those of its start, and its masks are read.

Reads   /proc/self/environ  /etc/ld.so.cache  $CONDA_PREFIX/lib  $VIRTUAL_ENV/lib
OpenMP  https://gcc.gnu.org/onlinedocs/libgomp/Environment-Variables.html
        https://www.openmp.org/spec-html/5.2/openmpch21.html
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.readers.libraries import CACHE, cached, first_there
from sysperf.collect.readers.shell_environment import ENVIRON, number_in, shell_variables
from sysperf.host import Host
from sysperf.model.record import Record, fact

PREFIXES = ("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "BLIS_", "VECLIB_")
_KMP_TYPES = frozenset(("compact", "scatter", "balanced", "explicit", "proclist"))
RUNTIMES = {"libgomp": ("libgomp.so.1",), "libiomp5": ("libiomp5.so",), "libomp": ("libomp.so.5", "libomp.so")}


class Runtime(Record):
    """An OpenMP runtime of the system or of the active environment."""

    name: Annotated[str, fact("libgomp, libiomp5 or libomp", CACHE)]
    path: Annotated[str, fact("its file", CACHE)]


class OpenMP(Record):
    """The OpenMP settings of this shell."""

    variables: Annotated[dict[str, str] | None, fact("OpenMP, MKL and BLAS variables of this shell", ENVIRON)]
    num_threads: Annotated[int | None, fact("OMP_NUM_THREADS; 0 when it is not set", ENVIRON)] = None
    mkl_num_threads: Annotated[int | None, fact("MKL_NUM_THREADS; 0 when it is not set", ENVIRON)] = None
    thread_limit: Annotated[int | None, fact("OMP_THREAD_LIMIT; 0 when it is not set", ENVIRON)] = None
    binding: Annotated[tuple[str, ...] | None, fact("variables that make OpenMP bind threads to CPUs, with their values", ENVIRON)] = None
    runtimes: Annotated[tuple[Runtime, ...] | None, fact("OpenMP runtimes outside PyTorch", CACHE)] = None


def collect(host: Host) -> OpenMP:
    """Read the shell's variables and look for runtimes."""
    variables = shell_variables(host, PREFIXES)
    cache = cached(host, [name for names in RUNTIMES.values() for name in names])
    folders = environment_folders(host)
    places = ((name, first_there(host, files, folders, cache)) for name, files in RUNTIMES.items())
    runtimes = tuple(Runtime(name, path) for name, path in places if path)
    has_intel = any(runtime.name == "libiomp5" for runtime in runtimes)
    return OpenMP(
        variables=variables,
        num_threads=number_in(variables, "OMP_NUM_THREADS"),
        mkl_num_threads=number_in(variables, "MKL_NUM_THREADS"),
        thread_limit=number_in(variables, "OMP_THREAD_LIMIT"),
        binding=None
        if variables is None
        else tuple(f"{name}={variables[name]}" for name in binding_variables(variables, has_intel=has_intel)),
        runtimes=runtimes if runtimes or cache is not None else None,
    )


def binding_variables(variables: dict[str, str], *, has_intel: bool) -> list[str]:
    """The variables among these that make an OpenMP runtime bind threads, the importing thread first of all.

    With OMP_PROC_BIND=false neither places nor the runtimes' own lists have an effect; KMP_AFFINITY is libiomp5's alone.
    """
    bind = variables.get("OMP_PROC_BIND", "").strip().lower()
    binds = {
        "GOMP_CPU_AFFINITY": bool(variables.get("GOMP_CPU_AFFINITY")),
        "KMP_AFFINITY": has_intel and not _KMP_TYPES.isdisjoint(variables.get("KMP_AFFINITY", "").lower().replace("=", ",").split(",")),
        "OMP_PROC_BIND": bool(bind),
        "OMP_PLACES": bool(variables.get("OMP_PLACES")),
    }
    return [] if bind == "false" else [name for name, is_binding in binds.items() if is_binding]


def environment_folders(host: Host) -> list[str]:
    """The library folders of the shell's active environments."""
    active = shell_variables(host, ("CONDA_PREFIX", "VIRTUAL_ENV")) or {}
    return [f"{active[name].rstrip('/')}/lib" for name in ("CONDA_PREFIX", "VIRTUAL_ENV") if active.get(name, "").startswith("/")]
