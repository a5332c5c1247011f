"""Files that sysperf writes: each appears whole or not at all. Settings of the machine are written by `fix` alone."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import IO

from sysperf import paths
from sysperf.model.errors import UsageError


def make_folder(folder: str) -> None:
    """Make a folder of sysperf's own, and its parents: for its user alone, but the machine's, in which all may read what was changed."""
    os.makedirs(folder, mode=0o755 if folder == paths.SYSTEM_STATE else 0o700, exist_ok=True)


def replace(path: str, content: bytes) -> None:
    """Write a file of the user's: a report, waivers, a kernel. What is no plain file (/dev/null, a pipe) is written to as it is.

    A file of ours keeps its mode; a link stays a link, and its target is replaced. Raises OSError and leaves nothing behind.
    """
    target = link_target(path)
    before = os.lstat(target) if os.path.lexists(target) else None
    if before is not None and not stat.S_ISREG(before.st_mode):
        # O_CREAT has the kernel refuse another user's pipe in /tmp
        with open(os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_CREAT | os.O_NOFOLLOW, 0o666), "wb") as file:
            file.write(content)
        return
    mode = stat.S_IMODE(before.st_mode) if before and before.st_uid == os.geteuid() else 0o666
    write_whole(target, lambda file: file.write(content), mode=mode)


def check_replace(path: str) -> None:
    """Raise OSError where `replace` could not write, before what is to be written is there. Leaves nothing behind."""
    target = link_target(path)
    mode = os.lstat(target).st_mode if os.path.lexists(target) else stat.S_IFREG
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return
    temporary, _ = write_temporary(os.path.dirname(target), lambda file: file.flush())
    os.unlink(temporary)


def write_whole(path: str, write: Callable[[IO[bytes]], object], *, mode: int = 0o666, exact: bool = False, sync: bool = False) -> int:
    """Let `write` fill a new file, which then takes the name `path`. Returns its size.

    `mode` is subject to the umask unless it is `exact`; `sync` puts file and name on the disk. Raises OSError, or what `write`
    raises, and leaves nothing behind.
    """
    temporary, size_bytes = write_temporary(os.path.dirname(path), write, mode=mode, exact=exact, sync=sync)
    try:
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if sync:
        sync_folder(os.path.dirname(path))
    return size_bytes


def write_new(path: str, write: Callable[[IO[bytes]], object], *, mode: int = 0o666, sync: bool = False) -> int:
    """As `write_whole`, but never in place of another file. Raises FileExistsError."""
    temporary, size_bytes = write_temporary(os.path.dirname(path), write, mode=mode, sync=sync)
    try:
        rename_new(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    if sync:
        sync_folder(os.path.dirname(path))
    return size_bytes


def write_temporary(
    folder: str, write: Callable[[IO[bytes]], object], *, mode: int = 0o600, exact: bool = False, sync: bool = False
) -> tuple[str, int]:
    """(path, size) of a new file in `folder` under a name that nobody can guess. Raises OSError and leaves nothing behind."""
    temporary = os.path.join(folder or ".", f".sysperf-{os.urandom(8).hex()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            if exact:
                os.fchmod(file.fileno(), mode)
            write(file)
            file.flush()
            if sync:
                os.fsync(file.fileno())
            return temporary, os.fstat(file.fileno()).st_size
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def rename_new(temporary: str, path: str) -> None:
    """Give a file another name unless that is taken: then FileExistsError. The first name may stay."""
    with contextlib.suppress(PermissionError, NotImplementedError):  # file systems without hard links
        os.link(temporary, path)  # unlike a rename, it never replaces
        return
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    os.replace(temporary, path)


def give_output_name(written: str, path: str) -> None:
    """Give a finished file the name that the user chose for it, unless that is taken by now, by a link too. Raises UsageError."""
    try:
        rename_new(written, path)
    except FileExistsError:
        raise UsageError(f"{path} exists by now", "choose another name with --output: nothing is overwritten") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "choose another file with --output") from None


def sync_folder(path: str) -> None:
    """Put the names in a folder on the disk. Raises OSError."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_target(path: str) -> str:
    """What a link leads to: it stays a link. Another user's is not followed, or `sudo` would write where he likes."""
    folder, name = os.path.split(os.path.abspath(path))
    place = f"{os.path.realpath(folder)}/{name}"
    if not os.path.islink(place):
        return place
    if os.lstat(place).st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EACCES, "a link that another user made is not followed")
    return os.path.realpath(place)
