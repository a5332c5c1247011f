"""I/O classes of processes, by ionice: what everybody may set and take back, while a lower nice value is root's alone."""

import subprocess


def io_class(pid: int) -> str:
    """The class of a process: none, best-effort or idle."""
    return subprocess.run(("ionice", "-p", str(pid)), capture_output=True, text=True, check=True).stdout.partition(":")[0].strip()


def set_io_class(pid: int, name: str) -> None:
    """Give a process a class."""
    subprocess.run(("ionice", "--class", name, "--pid", str(pid)), check=True)
