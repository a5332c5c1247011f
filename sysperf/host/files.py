"""Files that sysperf writes: each appears whole or not at all. Settings of the machine are written by `fix` alone."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import IO

from sysperf import paths
from sysperf.host.links import OwnedLinks, absolute, open_folder
from sysperf.model.errors import UsageError
from sysperf.ownership import trusted

Write = Callable[[IO[bytes]], object]
READER_S = 5.0
"""So long whoever reads a pipe may come after whoever writes into it."""


def make_folder(folder: str) -> None:
    """Make a folder of sysperf's own, and its parents: for its user alone, but the machine's, in which all may read what was changed."""
    os.makedirs(folder, mode=0o755 if folder == paths.SYSTEM_STATE else 0o700, exist_ok=True)


def replace(path: str, content: bytes) -> None:
    """Write a file of the user's: a report, waivers, a kernel. What is no plain file (/dev/null, a pipe) is written to as it is.

    A file of ours keeps its mode; a link stays a link, and its target is replaced. Raises OSError and leaves nothing behind.
    """
    with _place(path) as (folder, name):
        before = _status(folder, name)
        if before is not None and not stat.S_ISREG(before.st_mode):
            _refuse_foreign_pipe(before)
            with open(_open_special(folder, name), "wb") as file:
                file.write(content)
            return
        mode = stat.S_IMODE(before.st_mode) if before and before.st_uid == os.geteuid() else 0o666
        _write_whole(folder, name, lambda file: file.write(content), mode=mode)


def _open_special(folder: int, name: str) -> int:
    """What is no plain file, open to be written. Raises OSError, also where nobody comes to read a pipe."""
    end = time.monotonic() + READER_S
    while (handle := _open_unless_unread(folder, name)) is None:
        if time.monotonic() > end:
            raise OSError(errno.ENXIO, "nobody reads this pipe, or it is a socket")
        time.sleep(0.05)
    os.set_blocking(handle, True)
    return handle


def _open_unless_unread(folder: int, name: str) -> int | None:
    # O_CREAT has the kernel refuse another user's pipe in /tmp
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(name, flags, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def check_replace(path: str) -> None:
    """Raise OSError where `replace` could not write, before what is to be written is there. Leaves nothing behind."""
    with _place(path) as (folder, name):
        before = _status(folder, name)
        mode = before.st_mode if before else stat.S_IFREG
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if before and not stat.S_ISREG(mode):
            _refuse_foreign_pipe(before)
            if not os.access(name, os.W_OK, dir_fd=folder):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        temporary, _ = _write_temporary(folder, lambda file: file.flush())
        os.unlink(temporary, dir_fd=folder)


def _refuse_foreign_pipe(status: os.stat_result) -> None:
    """Raise OSError for another user's: one that nobody reads waits for ever, and what is said there he hears."""
    if status.st_uid not in trusted():
        raise PermissionError(errno.EACCES, "no plain file, and another user's")


def write_whole(path: str, write: Write, *, mode: int = 0o666, exact: bool = False, sync: bool = False) -> int:
    """Let `write` fill a new file, which then takes the name `path`. Returns its size.

    `mode` is subject to the umask unless it is `exact`; `sync` puts file and name on the disk. Raises OSError, or what `write`
    raises, and leaves nothing behind.
    """
    with _folder_of(path) as (folder, name):
        return _write_whole(folder, name, write, mode=mode, exact=exact, sync=sync)


def _write_whole(folder: int, name: str, write: Write, *, mode: int, exact: bool = False, sync: bool = False) -> int:
    temporary, size_bytes = _write_temporary(folder, write, mode=mode, exact=exact, sync=sync)
    try:
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    if sync:
        sync_folder(".", folder)
    return size_bytes


def write_new(path: str, write: Write, *, mode: int = 0o666, sync: bool = False) -> int:
    """Write as `write_whole`, but never in place of another file. Raises FileExistsError."""
    with _folder_of(path) as (folder, name):
        temporary, size_bytes = _write_temporary(folder, write, mode=mode, sync=sync)
        try:
            rename_new(temporary, name, folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
        if sync:
            sync_folder(".", folder)
        return size_bytes


def _write_temporary(folder: int, write: Write, *, mode: int = 0o600, exact: bool = False, sync: bool = False) -> tuple[str, int]:
    """(name, size) of a new file in a folder under a name that nobody can guess. Raises OSError and leaves nothing behind."""
    temporary = f".sysperf-{os.urandom(8).hex()}"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder), "wb") as file:
            if exact:
                os.fchmod(file.fileno(), mode)
            write(file)
            file.flush()
            if sync:
                os.fsync(file.fileno())
            return temporary, os.fstat(file.fileno()).st_size
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def rename_new(temporary: str, path: str, folder: int | None = None) -> None:
    """Give a file another name, in `folder` where paths are names, unless that is taken: then FileExistsError. The first may stay."""
    with contextlib.suppress(PermissionError, NotImplementedError):  # file systems without hard links
        os.link(temporary, path, src_dir_fd=folder, dst_dir_fd=folder)  # unlike a rename, it never replaces
        return
    if _status(folder, path) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    os.replace(temporary, path, src_dir_fd=folder, dst_dir_fd=folder)


def _status(folder: int | None, name: str) -> os.stat_result | None:
    """What lies there, be it a link; None for nothing."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def give_output_name(written: str, path: str) -> None:
    """Give a finished file the name that the user chose for it, unless that is taken by now, by a link too. Raises UsageError."""
    try:
        rename_new(written, path)
    except FileExistsError:
        raise UsageError(f"{path} exists by now", "choose another name with --output: nothing is overwritten") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "choose another file with --output") from None


def sync_folder(path: str, folder: int | None = None) -> None:
    """Put the names in a folder on the disk; `folder` is where its path starts. Raises OSError."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_target(path: str) -> str:
    """What a path leads to, with no link left in it. Another user's links are followed into folders of his own, and as the last name never.

    With `sudo`, he would have root write wherever he likes. Raises OSError.
    """
    links, path = OwnedLinks(), absolute(path)
    target = f"/{links.resolve(path)}"
    if strangers := links.owners - trusted():
        last = _status(None, path)
        is_last = last is not None and stat.S_ISLNK(last.st_mode) and last.st_uid in strangers
        if is_last or strangers != {os.stat(os.path.dirname(target)).st_uid}:
            raise PermissionError(errno.EACCES, "a link that another user made is not followed")
    return target


@contextlib.contextmanager
def opened_folder(path: str) -> Iterator[tuple[int, str]]:
    """(the folder in which a path without links lies, the last name); the same folder whatever is renamed meanwhile. Raises OSError."""
    folder = open_folder(os.path.dirname(path))
    try:
        yield folder, os.path.basename(path) or "."  # of the root folder
    finally:
        os.close(folder)


def _place(path: str) -> AbstractContextManager[tuple[int, str]]:
    """The same for what a path leads to."""
    return opened_folder(link_target(path))


def _folder_of(path: str) -> AbstractContextManager[tuple[int, str]]:
    """The same for a path whose last name is taken as it is, be it a link."""
    folder, name = os.path.split(absolute(path))
    return opened_folder(f"{link_target(folder)}/{name}")
