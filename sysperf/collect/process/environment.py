"""The performance variables at the start of a process.

Reads   /proc/[pid]/{environ,exe}
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from sysperf.host import Host
from sysperf.model.text import neutral
from sysperf.procfs import environ

MAX_VARIABLES = 512


def environment(host: Host, pid: int, argv: tuple[str, ...] | None) -> dict[str, str] | None:
    """The performance variables at the start of the process; None when they cannot be read."""
    path = f"/proc/{pid}/environ"
    text = host.text(path, environ.MAX_BYTES)
    if text is None:
        return None
    variables = {name: neutral(value, 2000) for name, value in environ.variables(text, MAX_VARIABLES).items()}
    if not variables and argv is not None and len(argv) == 1 and not _names_program(host, pid, argv[0]):
        host.refuse(path, "the program wrote its title over it, as setproctitle does")
        return None
    return variables


def _names_program(host: Host, pid: int, title: str) -> bool:
    """Whether a one-word command line is the program's, not a title that it gave itself."""
    program = (host.link(f"/proc/{pid}/exe") or "").removesuffix(" (deleted)").rpartition("/")[2]
    return not program or title.rpartition("/")[2].startswith(program[:6])
