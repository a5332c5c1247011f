"""The environment that a program will get, and what of it explains performance.

Only names that explain performance, and what launchers tell their ranks, become facts; secrets never do.
"""

import os
from collections.abc import Iterable, Mapping

from sysperf.host import Host, redact
from sysperf.launch.command import Command
from sysperf.launch.gpus import VISIBLE
from sysperf.model.text import neutral
from sysperf.procfs import environ
from sysperf.procfs.rank_variables import NAMES

MARKER = "SYSPERF_WRAPPED"
"""What an outer `sysperf wrap` has done: ``MODE RANK NAME,…``: program or launcher, the rank it was, the variables it set."""
NO_RANK = "-"
PLACES = frozenset((
    "PATH", "HOME", "PYTHONPATH", "PYTHONNOUSERSITE", "CONDA_PREFIX", "CONDA_EXE", "MAMBA_ROOT_PREFIX", "VIRTUAL_ENV", "MASTER_ADDR",
))  # fmt: skip
"""Variables by which we decide and that are nobody else's business."""
MAX_SHOWN = 256


def inherited() -> dict[str, str]:
    """Our environment as we were given it: without what the Python that runs us put into it.

    In the C locale Python sets LC_CTYPE for itself and its children (PEP 538).
    """
    env = dict(os.environ)
    if env.get("LC_CTYPE") in ("C.UTF-8", "C.utf8", "UTF-8") and not _given("LC_CTYPE"):
        del env["LC_CTYPE"]
    return env


def _given(name: str) -> bool:
    try:
        with open("/proc/self/environ", "rb") as file:
            return any(entry.startswith(f"{name}=".encode()) for entry in file.read().split(b"\0"))
    except OSError:
        return True


def of_program(env: Mapping[str, str], command: Command) -> dict[str, str]:
    """What reaches the program: our environment, changed by an `env` in the command."""
    base = {} if command.clears else {name: value for name, value in env.items() if name not in command.unset}
    return {**base, **command.env}


def of_capture(host: Host) -> dict[str, str]:
    """The environment in a capture; empty where it has none."""
    return environ.variables(host.text("/proc/self/environ", environ.MAX_BYTES) or "")


def deciding(env: Mapping[str, str]) -> dict[str, str]:
    """The variables by which we decide, as they are."""
    return {
        name: value for name, value in env.items() if name in NAMES or name in PLACES or name in (VISIBLE, MARKER) or redact.keeps(name)
    }


def threads_variable(env: Mapping[str, str], injected: Iterable[str]) -> str:
    """The variable of the user's that decides how many threads torch starts: MKL's comes before OpenMP's, as torch reads them."""
    return next((name for name in ("MKL_NUM_THREADS", "OMP_NUM_THREADS") if env.get(name) and name not in injected), "")


def shown(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that are facts: bounded, harmless to print, and without secrets."""
    kept = [name for name in env if (redact.keeps(name) or name in NAMES) and name not in PLACES]
    return {name: neutral(redact.variable(name, env[name][:4096]), 1_000) for name in kept[:MAX_SHOWN]}


def of_instance(number: int, count: int) -> dict[str, str]:
    """The variables that tell an instance of --nproc which it is, and of how many."""
    return {"SYSPERF_INSTANCE": str(number), "SYSPERF_INSTANCES": str(count)}


def mark(*, launcher: bool, rank: str, names: Iterable[str]) -> str:
    """The marker's value. A rank started below a wrapped program is another one, and is placed again."""
    return f"{'launcher' if launcher else 'program'} {rank or NO_RANK} {','.join(names)}"


def decided_before(env: Mapping[str, str], rank: str) -> tuple[bool, tuple[str, ...]]:
    """(whether an outer wrap has placed this very program, variables that it set and nobody chose)."""
    mode, _, rest = env.get(MARKER, "").partition(" ")
    theirs, _, names = rest.partition(" ")
    return mode == "program" and theirs == (rank or NO_RANK), tuple(name for name in names.split(",") if name)
