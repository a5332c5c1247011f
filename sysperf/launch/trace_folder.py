"""The folder of the sockets over which traces are taken on demand: this user's own, and named in the program's environment.

Kineto  https://github.com/pytorch/kineto/blob/main/libkineto/src/IpcFabricConfigClient.cpp
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import time
from collections.abc import Iterator, Mapping

from sysperf import paths
from sysperf.model.errors import UsageError
from sysperf.ownership import stranger

VARIABLE = "KINETO_IPC_SOCKET_DIR"
MAX_BYTES = 54
"""Kineto's sockets in it have names of 53 characters, and the path of a socket has room for 107."""
_TEMPORARY = "/tmp"  # noqa: S108 - sticky, else nothing is made there; TMPDIR may be too long
_CLIENT = "dynoconfigclient"
_MAX_CLIENTS, _SETTLED_S = 1_000, 10
_HINT = "set XDG_RUNTIME_DIR to a folder of your own"


def expected(env: Mapping[str, str]) -> str:
    """Return the folder that `made` would make first, or the one that the environment names."""
    return env.get(VARIABLE) or _candidates()[0]


def made(env: Mapping[str, str]) -> str:
    """Make a folder that no other user can exchange, unless the environment names one; that stays. Raises UsageError.

    It has a name of its own in /tmp where somebody else has taken the usual one.
    """
    if given := env.get(VARIABLE):
        return given
    usable = next((folder for folder in _candidates() if _is_made(folder)), "")
    if usable:
        _remove_left(usable)
    return usable or _new()


@contextlib.contextmanager
def lent(env: Mapping[str, str]) -> Iterator[str]:
    """A folder for one program, gone afterwards; the one that the environment names stays. Raises UsageError."""
    if given := env.get(VARIABLE):
        yield given
        return
    folder = _new()
    try:
        yield folder
    finally:
        import shutil  # noqa: PLC0415 - 3 ms, for `diagnose -- COMMAND` only

        shutil.rmtree(folder, ignore_errors=True)


def _candidates() -> list[str]:
    """The usual folders: of the login, else in /tmp."""
    bases = (paths.runtime_home(), f"{_TEMPORARY}/sysperf-{os.geteuid()}")
    folders = [f"{base}/sysperf/kineto" for base in bases if base]
    return [folder for folder in folders if len(os.fsencode(folder)) <= MAX_BYTES]


def _is_made(folder: str) -> bool:
    """Whether the folder is there, and only this user rules it."""
    try:
        if stranger(folder) is None:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.stat(folder)
    except OSError:
        return False
    return stranger(folder) is None and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _remove_left(folder: str) -> None:
    """Remove the sockets of programs that are gone: Kineto leaves its own behind, however a program ends."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        left = [entry.path for entry in itertools.islice(entries, _MAX_CLIENTS) if entry.name.startswith(_CLIENT)]
        if not left:
            return
        import socket  # noqa: PLC0415 - 3 ms, where a program was started before only

        for path in left:
            status = os.lstat(path)
            if stat.S_ISSOCK(status.st_mode) and time.time() - status.st_mtime > _SETTLED_S:
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
                    try:
                        probe.connect(path)
                    except ConnectionRefusedError:
                        os.unlink(path)


def _new() -> str:
    """A new folder under a name that nobody can take before. Raises UsageError."""
    import tempfile  # noqa: PLC0415 - 5 ms that most launches do without

    if stranger(_TEMPORARY) is not None:
        raise UsageError(f"--traceable: other users may exchange what lies in {_TEMPORARY}", _HINT)
    try:
        return tempfile.mkdtemp(prefix="sysperf-", dir=_TEMPORARY)
    except OSError as error:
        raise UsageError(f"--traceable: {_TEMPORARY}: {error.strerror}", _HINT) from None
