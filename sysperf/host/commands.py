"""The commands that sysperf may run: fixed arguments, fixed folders, bounded time and output, no shell."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import selectors
import signal
import stat
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Collection, Generator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/rocm/bin")
SECONDS = 10.0
PROBE_SECONDS = 60.0
MAX_OUTPUT_BYTES = 8 << 20

ALLOWED: dict[str, tuple[str, ...]] = {
    "amd-smi-throttle": ("amd-smi", "metric", "--throttle", "--json"),
    "amd-smi-violation": ("amd-smi", "metric", "--violation", "--json"),
    "amd-smi-list": ("amd-smi", "list", "--json"),
    "cpuinfo": (sys.executable, "-m", "cpuinfo", "--json"),
    "dmesg": ("dmesg", "--kernel", "--nopager", "--time-format", "iso", "--level", "emerg,alert,crit,err,warn,notice,info"),
    "dmesg-errors": ("dmesg", "--kernel", "--nopager", "--time-format", "iso", "--level", "emerg,alert,crit,err"),
    "dmidecode-memory": ("dmidecode", "-t", "17"),
    "fabric-manager-version": ("nv-fabricmanager", "--version"),
    "kfd-open": ("dd", "if=/dev/kfd", "of=/dev/null", "count=0", "status=none"),
    "uvm-open": ("dd", "if=/dev/nvidia-uvm", "of=/dev/null", "count=0", "status=none"),
    "xpu-smi-dump": ("xpu-smi", "dump", "-d", "-1", "-m", "15,16,18,29,30", "-n", "1"),
    "xpu-smi-dump-2": ("xpu-smi", "dump", "--device", "-1", "--metrics", "15,16,18,29,30", "--number", "1"),
    "xpu-smi-list": ("xpu-smi", "discovery", "-j"),
}


WITHOUT_FOLDER = "import sys; sys.path.remove(''); import runpy; runpy.run_module('sysperf', run_name='__main__', alter_sys=True)"


def sysperf_command() -> tuple[str, ...]:
    """How sysperf starts itself, whatever modules lie in the current folder: a user's queue.py is none of ours."""
    return (sys.executable, *(("-P", "-m", "sysperf") if sys.version_info >= (3, 11) else ("-c", WITHOUT_FOLDER)))


class Failed(OSError):
    """A command ended with an error."""

    def __init__(self, message: str, complaint: str) -> None:
        super().__init__(message)
        self.complaint = complaint
        """Everything that it wrote to its standard error."""


def run(name: str) -> bytes:
    """The standard output of an allowed command. Raises OSError when it is absent, fails or takes too long."""
    program, *arguments = ALLOWED[name]
    return output((_found(program), *arguments), f"`{program}`", SECONDS)


def probe(python: str, script: str, *, trusted: bool = False) -> bytes:
    """The standard output of `script` in the user's own interpreter, isolated from the current folder.

    The packages of an environment run code when its interpreter starts. So root runs it as the user to whom it belongs,
    and others run nobody else's unless it was named on the command line (`trusted`); nor does root run its own that others
    can write.
    """
    me = os.geteuid()
    owners = _owners(python) - {0, me}
    if len(owners) > 1 or (owners and me != 0 and not trusted):
        raise OSError(errno.EPERM, f"belongs to another user (uid {min(owners)}): name it with --python if you trust it")
    if me == 0 and not owners and not trusted and (shared := _shared(python)):
        raise OSError(errno.EPERM, f"{shared} can be written by users other than root: name it with --python if you trust them")
    return output((python, "-E", "-c", script), "the probe", PROBE_SECONDS, owners.pop() if owners and me == 0 else me)


def output(argv: Sequence[str], what: str, seconds: float, uid: int | None = None) -> bytes:
    """The standard output of a command that runs in a session of its own, of which nothing outlives this call.

    Raises OSError when it fails, takes longer than `seconds` or prints more than `MAX_OUTPUT_BYTES`.
    """
    with _started(argv, uid) as process:
        try:
            deadline = time.monotonic() + seconds
            printed, complaint = _printed(process, what, deadline)
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise OSError(f"{what} took too long") from None
    if process.returncode == -signal.SIGKILL:
        raise OSError(f"{what} was killed: it took too long, or memory is short")
    if process.returncode:
        complaints = complaint.decode("utf-8", "replace").strip()
        reason = complaints.rpartition("\n")[2]
        raise Failed(f"{what} failed: {reason[:200] or f'exit {process.returncode}'}", complaints)
    return printed


@contextlib.contextmanager
def _started(argv: Sequence[str], uid: int | None) -> Generator[subprocess.Popen[bytes], None, None]:
    """A process and all of its session, killed at the end. Ctrl-C is held back until it is known which process there is to kill."""
    _go_on(argv)
    gid, home = _account(os.geteuid() if uid is None else uid)
    become = {} if uid in (None, os.geteuid()) else {"user": uid, "group": gid, "extra_groups": []}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": ":".join(FOLDERS), "LC_ALL": "C.UTF-8", "HOME": home},
            cwd="/",
            start_new_session=True,
            **become,  # type: ignore[call-overload]  # its overloads take no dict
        )
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise
    with process:
        _running[process.pid] = threading.current_thread()
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # a Ctrl-C that came meanwhile is raised here
            _go_on(argv)
            yield process
        finally:
            del _running[process.pid]
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


_running: dict[int, threading.Thread] = {}
"""Commands, and the thread that waits for each; none of them is reaped while it is in here."""
_stopped: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def _go_on(argv: Sequence[str]) -> None:
    """Raise OSError in a thread that was stopped, be it between the start of its command and the note that it runs."""
    if threading.current_thread() in _stopped:
        raise OSError(f"{os.path.basename(argv[0])} was stopped")


def stop(threads: Collection[threading.Thread]) -> None:
    """Kill the commands that these threads wait for: those get an error, and start no other command."""
    _stopped.update(threads)
    for pid, thread in tuple(_running.items()):
        if thread in threads:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def _printed(process: subprocess.Popen[bytes], what: str, deadline: float) -> tuple[bytes, bytes]:
    """What a process prints to its standard output and error until it closes them."""
    printed = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as open_streams:
        for stream in printed:
            open_streams.register(stream, selectors.EVENT_READ)  # type: ignore[arg-type]  # both are pipes
        while open_streams.get_map():
            ready = open_streams.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise OSError(f"{what} took too long")
            for key, _ in ready:
                part = os.read(key.fd, 65_536)
                printed[key.fileobj] += part  # type: ignore[index]  # one of the two
                if not part:
                    open_streams.unregister(key.fileobj)
                if len(printed[key.fileobj]) > MAX_OUTPUT_BYTES:  # type: ignore[index]
                    raise OSError(f"{what} printed more than {MAX_OUTPUT_BYTES >> 20} MiB")
    return tuple(map(bytes, printed.values()))  # type: ignore[return-value]  # two of them


def _found(program: str) -> str:
    for path in (program,) if program.startswith("/") else (f"{folder}/{program}" for folder in FOLDERS):
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(errno.ENOENT, f"`{program}` is not installed")


def _owners(python: str) -> set[int]:
    """Return whose files an interpreter runs: its own, its environment's and its packages'."""
    return {file.lstat().st_uid for file in _files(python)}


def _files(python: str) -> list[Path]:
    from pathlib import Path  # noqa: PLC0415 - other interpreters are asked under --deep only

    program = Path(python)
    prefix = program.parent.parent
    return [program, program.resolve(), program.parent, prefix, *prefix.glob("lib/python3*/*-packages")]


def _shared(python: str) -> Path | None:
    """The first of these files, or of the folders in which they lie, that is not root's alone."""
    for file in _files(python):
        for place in (file, *file.parents):
            status = place.lstat()
            if status.st_uid != 0 or others_write(status):
                return place
    return None


def others_write(status: os.stat_result) -> bool:
    """Whether users other than root can write a file, or replace what is in a folder."""
    if stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX:
        return False
    by_group = status.st_mode & stat.S_IWGRP and status.st_gid not in _groups_of_root()
    return bool(status.st_mode & stat.S_IWOTH or by_group)


def _groups_of_root() -> set[int]:
    """Root's own, and Debian's staff, which may install into /usr/local and so already is as good as root."""
    import grp  # noqa: PLC0415 - only where a file's group may write it

    groups = {0}
    with contextlib.suppress(KeyError):
        groups.add(grp.getgrnam("staff").gr_gid)
    return groups


def _account(uid: int) -> tuple[int, str]:
    """Main group and home of a user; a user without an account has its own number and no home."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return uid, "/nonexistent"
    return entry.pw_gid, entry.pw_dir
