"""Sockets to listen on: passed by systemd, or made beside a stale one without a moment in which others could connect.

Protocol  https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterator, MutableMapping

from sysperf.model.errors import UsageError

GROUP = "sysperf"
MODE = 0o660
BACKLOG = 256
MAX_PATH = 100
"""sun_path holds 108 bytes; the name while it is made is longer by four."""
_FIRST_FD = 3
_MAX_FDS = 64


class Listener:
    """A listening socket, and the file to remove when it ends."""

    def __init__(self, sock: socket.socket, path: str = "") -> None:
        self.sock = sock
        self.path = path
        self._file = _identity(path) if path else None

    def close(self) -> None:
        """Stop listening. The file is removed if it is still ours; one that systemd made stays."""
        self.sock.close()
        if self._file is not None and _identity(self.path) == self._file:
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def listener(path: str, name: str, passed: MutableMapping[str, socket.socket]) -> Listener:
    """The socket that systemd passed under this path or name, which is taken out of `passed`; else a new one."""
    for key, sock in passed.items():
        if key == name or sock.getsockname() == path:
            return Listener(passed.pop(key))
    return Listener(bind(path), path)


def peer(sock: socket.socket) -> tuple[int, int, int]:
    """Return pid, uid and gid of whoever connected to a Unix socket, by the kernel (unix(7), SO_PEERCRED); -1 each for others."""
    if sock.family != socket.AF_UNIX:
        return -1, -1, -1
    pid, uid, gid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid, gid


def passed_sockets(environ: MutableMapping[str, str] = os.environ) -> dict[str, socket.socket]:
    """The listening sockets that systemd passed, by name. The variables are taken away: they are not for our children."""
    count, owner, names = (environ.pop(key, "") for key in ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"))
    if owner != str(os.getpid()) or not count.isdecimal():
        return {}
    sockets: dict[str, socket.socket] = {}
    words = names.split(":")
    for index in range(min(int(count), _MAX_FDS)):
        name = words[index] if index < len(words) and words[index] else f"fd {_FIRST_FD + index}"
        with contextlib.suppress(OSError):
            sock = socket.socket(fileno=_FIRST_FD + index)
            sock.set_inheritable(False)
            sock.setblocking(False)
            sockets[name if name not in sockets else f"{name} {index}"] = sock
    return sockets


def bind(path: str) -> socket.socket:
    """A new listening socket at `path`, for the owner and the group `sysperf`. Raises UsageError."""
    if len(os.fsencode(path)) > MAX_PATH:
        raise UsageError(f"{path}: a socket's path has at most {MAX_PATH} bytes", "choose a shorter one with `--socket`")
    try:
        with _own_folder(os.path.dirname(path) or ".") as folder, _locked(folder, f"{os.path.basename(path)}.lock"):
            place = f"/proc/self/fd/{folder}/{os.path.basename(path)}"  # of the folder that was checked, whatever its path leads to now
            _refuse_in_use(place)
            return _listening(place)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "choose another socket with `--socket PATH`") from None


def _listening(path: str) -> socket.socket:
    """Bind under another name and rename it when it listens: no client meets a socket that is not ready or has loose permissions."""
    new = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        os.fchmod(sock.fileno(), 0o600)  # of the file that `bind` makes
        sock.bind(new)
        _give_to_group(new)
        os.chmod(new, MODE)
        sock.listen(BACKLOG)
        os.rename(new, path)
    except OSError:
        sock.close()
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
    return sock


@contextlib.contextmanager
def _own_folder(path: str) -> Iterator[int]:
    """A descriptor of the folder, in which nobody else can replace our files: a link in their place would lead our changes elsewhere."""
    os.makedirs(path, mode=0o755, exist_ok=True)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(folder)
        if status.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, "the folder belongs to another user, who could put other files in the socket's place")
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise OSError(errno.EPERM, "everybody may replace files in the folder")
        yield folder
    finally:
        os.close(folder)


@contextlib.contextmanager
def _locked(folder: int, name: str) -> Iterator[None]:
    """Two agents that start at once look one after the other. The lock is a file that nobody else may open, and that goes with us."""
    lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        if os.fstat(lock).st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"{name} belongs to another user")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
        os.unlink(name, dir_fd=folder)
    finally:
        os.close(lock)


def _refuse_in_use(path: str) -> None:
    """Only a socket at which nobody answers is replaced."""
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise OSError(errno.EEXIST, "there is something that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError as error:
            raise OSError(errno.EADDRINUSE, f"another process may listen there ({error.strerror or error})") from None
    raise OSError(errno.EADDRINUSE, "another agent answers there")


def _give_to_group(path: str) -> None:
    """Let a child do it: the libraries by which the system looks a group up would stay with the agent, 0.4 MB of them."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        import grp  # noqa: PLC0415 - only whoever listens needs it

        os.chown(path, -1, grp.getgrnam(GROUP).gr_gid)
    finally:  # no such group, or not allowed: then only the owner's own group
        os._exit(0)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
