"""Becoming the program: bind, set the environment, exec. Nothing of sysperf stays."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence

from sysperf.launch import bind
from sysperf.launch.plan import Plan

NOT_FOUND, NOT_EXECUTABLE = 127, 126


def apply(plan: Plan) -> list[str]:
    """Bind this process; what failed, in words."""
    problems = [bind.bind_cpus(plan.cpus)] if plan.cpus else []
    if plan.memory and plan.memory_nodes:
        problems.append(bind.bind_memory(plan.memory_nodes, plan.memory))
    return [problem for problem in problems if problem]


def become(argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
    """Execute the program in our place. Returns only when that fails: the exit code and why, as shells have them."""
    # Python ignores these, and what is ignored stays so after exec: `… | head` would never end a wrapped program.
    for name in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)
    sys.stderr.flush()
    try:
        os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 - the user's own command, as words
    except FileNotFoundError:
        missing = "not found" if "/" not in argv[0] else "no such file (or its interpreter is not there)"
        return NOT_FOUND, f"{argv[0]}: {missing}"
    except NotADirectoryError:
        return NOT_FOUND, f"{argv[0]}: not found"
    except (OSError, ValueError) as error:
        return NOT_EXECUTABLE, f"{argv[0]}: {getattr(error, 'strerror', None) or error}"
