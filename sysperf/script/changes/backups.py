"""What files were before `--fix` changed them: one record a call, on the disk before the first file is written.

A file is replaced as a whole by a rename, so that a crash at any point leaves either the old or the new one, and the record.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from typing import Annotated, Literal

from sysperf.host import files
from sysperf.model.errors import UsageError
from sysperf.model.record import Record, fact, from_json, to_json
from sysperf.script.source import MAX_BYTES

State = Literal["restored", "already", "changed", "gone", "failed"]
_SUFFIX = ".json"
_UNDONE = ".undone.json"


class Backup(Record):
    """One file: where it lies, what it held, and what it holds now."""

    path: Annotated[str, fact("absolute, without links")]
    before: bytes
    after_sha256: str


class Batch(Record, kw_only=True):
    """The files of one call."""

    schema: Literal[1] = 1
    number: int
    files: tuple[Backup, ...]


class Restored(Record):
    """What became of one file."""

    path: str
    state: State
    why: str = ""


class Backups:
    """The records in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def store(self, changed: dict[str, tuple[bytes, bytes]]) -> Batch:
        """Keep what files held: path to (before, after). Raises UsageError where it cannot be kept; then nothing may be written."""
        backups = tuple(Backup(path, before, _digest(after)) for path, (before, after) in changed.items())
        try:
            files.make_folder(self._folder)
            number = max(self._numbers(), default=0)
            while True:
                number += 1
                batch = Batch(number=number, files=backups)
                with contextlib.suppress(FileExistsError):  # another call took the number meanwhile
                    self._keep(batch)
                    return batch
        except OSError as error:
            hint = "nothing was changed; make room, or let this user write there"
            raise UsageError(f"{self._folder}: {error.strerror or error}", hint) from None

    def _keep(self, batch: Batch) -> None:
        content = to_json(batch)
        files.write_new(self._path(batch.number), lambda file: file.write(content), mode=0o600, sync=True)

    def latest(self) -> int | None:
        """The number of the latest call that was not taken back."""
        return max(self._numbers(undone=False), default=None)

    def load(self, number: int) -> Batch:
        """A record. Raises UsageError."""
        try:
            with open(os.open(self._path(number), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():  # with `sudo` and another user's HOME: it names any file
                    raise PermissionError(errno.EACCES, "another user wrote it")
                batch: Batch = from_json(file.read(), Batch)
                return batch
        except FileNotFoundError:
            raise UsageError(f"there is no change {number} to take back", "`sysperf lint --undo` takes back the latest") from None
        except (OSError, ValueError) as error:
            raise UsageError(f"{self._path(number)}: {error}", "restore the files from version control") from None

    def undo(self, number: int) -> list[Restored]:
        """Put every file back that is as we left it, byte for byte. Raises UsageError where there is no such record."""
        batch = self.load(number)
        restored = [_restore(backup) for backup in batch.files]
        if all(file.state in ("restored", "already") for file in restored):
            with contextlib.suppress(OSError):
                os.replace(self._path(number), self._path(number).removesuffix(_SUFFIX) + _UNDONE)
        return restored

    def forget_unwritten(self, number: int) -> bool:
        """Drop the record of a call after which every file holds what it held before. Returns whether that is so."""
        if any(_may_be_changed(backup) for backup in self.load(number).files):
            return False
        with contextlib.suppress(OSError):
            os.unlink(self._path(number))
        return True

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:06d}{_SUFFIX}"

    def _numbers(self, *, undone: bool = True) -> list[int]:
        """The numbers in use, with or without those that were taken back."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        kept = [name for name in names if name.endswith(_SUFFIX) and (undone or not name.endswith(_UNDONE))]
        return [int(number) for name in kept if (number := name.partition(".")[0]).isdigit()]


def write(path: str, before: bytes, after: bytes) -> None:
    """Replace a file that still holds `before`. Owner and mode stay. Raises OSError with the reason, and leaves the file alone then.

    The path has no links. The folder may be another user's, who exchanges names and folders while root writes: all is done by
    descriptors, nothing by a path.
    """
    with files.opened_folder(path) as (folder, name):
        _write(folder, name, before, after)


def _write(folder: int, name: str, before: bytes, after: bytes) -> None:
    content, status = _content(folder, name, len(before))
    if content != before:
        raise OSError(errno.EBUSY, "it was changed meanwhile")
    temporary = f".sysperf-{os.urandom(8).hex()}"
    try:
        _create(folder, temporary, after, status)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    files.sync_folder(".", folder)


def _content(folder: int, name: str, limit: int) -> tuple[bytes, os.stat_result]:
    """(the first `limit` + 1 bytes of a plain file that has one name, what the kernel says of it). Raises OSError with the reason."""
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise OSError(errno.EINVAL, "no plain file")
    with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise OSError(errno.EMLINK, "it has several names (hard links)" if status.st_nlink > 1 else "no plain file")
        return file.read(limit + 1), status


def _create(where: int, name: str, content: bytes, like: os.stat_result) -> None:
    """A new file with the owner and the mode of another one, on the disk when this returns. Raises OSError."""
    with open(os.open(name, os.O_WRONLY | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=where), "wb") as file:
        file.write(content)
        file.flush()
        if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
            try:
                os.fchown(file.fileno(), like.st_uid, like.st_gid)
            except PermissionError:
                raise OSError(errno.EPERM, f"its owner and group ({like.st_uid}:{like.st_gid}) cannot be kept: `chgrp` it first") from None
        os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
        os.fsync(file.fileno())


def _restore(backup: Backup) -> Restored:
    try:
        with files.opened_folder(backup.path) as (folder, name):
            return _restore_in(folder, name, backup)
    except OSError as error:
        if not _may_be_changed(backup):  # --fix had left it alone, too
            return Restored(backup.path, "already")
        return Restored(backup.path, "gone" if isinstance(error, FileNotFoundError) else "failed", error.strerror or str(error))


def _restore_in(folder: int, name: str, backup: Backup) -> Restored:
    """Put one file back, in a folder that stays the same. Raises OSError where there is no such file."""
    now, _ = _content(folder, name, MAX_BYTES)
    if now == backup.before:
        return Restored(backup.path, "already")
    if _digest(now) != backup.after_sha256:
        return Restored(backup.path, "changed", "it was changed since")
    try:
        _write(folder, name, now, backup.before)
    except OSError as error:
        return Restored(backup.path, "failed", error.strerror or str(error))
    return Restored(backup.path, "restored")


def _may_be_changed(backup: Backup) -> bool:
    """Whether a file is not known to be as it was."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        with files.opened_folder(backup.path) as (folder, name), open(os.open(name, flags, dir_fd=folder), "rb") as file:
            return file.read(len(backup.before) + 1) != backup.before
    except OSError:
        return True


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
