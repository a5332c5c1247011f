"""Starting the program: bind, set the environment, and exec, so that nothing of sysperf stays."""

import _signal as signal  # type: ignore[import-not-found]  # the numbers alone: `signal` makes enums of them, which costs 0.7 ms
import contextlib
import errno
import os
from collections.abc import Mapping, Sequence

from sysperf.launch import bind
from sysperf.launch.plan import LaunchPlan
from sysperf.model.text import neutral

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_SCRIPT_CHECK_BYTES = 80
"""Bytes by which bash, too, tells a script from a binary."""


def apply(plan: LaunchPlan) -> list[str]:
    """Bind this process; what failed, in words."""
    problems = [bind.bind_cpus(plan.cpus)] if plan.cpus else []
    if plan.memory and plan.memory_nodes:
        problems.append(bind.bind_memory(plan.memory_nodes, plan.memory))
    return [problem for problem in problems if problem]


def become(argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
    """Execute the program in our place. Returns only when that fails: the exit code and why, as shells have them."""
    # Python ignores these, and what is ignored stays so after exec: `… | head` would never end a wrapped program.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    folders = [""] if "/" in argv[0] else env.get("PATH", os.defpath).split(":")
    problems = [_execute(os.path.join(folder, argv[0]), argv, env) for folder in folders]
    name, refused = neutral(argv[0], 300), next(filter(None, problems), "")
    instead = f"; a script is run as: python {name} …" if argv[0].endswith(".py") and os.path.isfile(argv[0]) else ""
    if refused:
        return NOT_EXECUTABLE, f"{name}: {refused}{instead}"
    return NOT_FOUND, f"{name}: {'no such file (or its interpreter is not there)' if '/' in argv[0] else 'not found'}{instead}"


def _execute(path: str, argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Why this file cannot be executed; "" when it is not there."""
    try:
        os.execve(path, list(argv), dict(env))  # noqa: S606 - the user's own command, as words
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ENOEXEC:
            _as_script(path, argv, env)
        if isinstance(error, PermissionError) and path != argv[0] and not os.path.lexists(path):
            return ""  # a folder of PATH that may not be searched holds nothing for us
        return getattr(error, "strerror", None) or str(error)


def _as_script(path: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
    """A text without a first line that names its interpreter is the shell's, as with env and nice (execvp(3))."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if b"\0" not in file.read(_SCRIPT_CHECK_BYTES):
            os.execve("/bin/sh", ["/bin/sh", path, *argv[1:]], dict(env))  # noqa: S606 - as above
