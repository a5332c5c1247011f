"""The file of one transaction, to which lines are added: each is on the disk before anybody relies on it."""

from __future__ import annotations

import contextlib
import errno
import os

from sysperf.fix.journal_lines import DamagedLine, LeaseSet, Line, StepStarted, decode, encode, fold
from sysperf.fix.replay import MAX_BYTES, is_torn, is_whole, replay
from sysperf.host.files import sync_folder
from sysperf.model.change import Transaction
from sysperf.model.errors import SysperfError

MAX_LINES = 64
"""A file with more lines is written anew with those that still count: each renewal of a lease adds one, and reads them all."""
_MAX_BYTES_OF_STEPS = 12 << 20
"""What announces more is refused, so that there is room to write down what became of it."""
_ANNOUNCING = (StepStarted, LeaseSet)


class JournalError(SysperfError):
    """The journal cannot be read or written: then nothing is changed."""


class Log:
    """The file of one transaction, open for adding lines. Raises JournalError when a line cannot be put on the disk.

    Values can be put back where nothing can be written: an existing file on a read-only file system, or one whose end cannot be
    mended, is opened all the same, and each line that is added is refused with the reason.
    """

    def __init__(self, path: str, number: int, *, new: bool = False) -> None:
        self.path, self.number = path, number
        self._refusal = ""
        try:
            self._file = self._create() if new else self._open()
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}; nothing was changed", "the journal must be readable and writable") from None

    def add(self, *lines: Line) -> None:
        """Write lines and wait until they are on the disk. What could not be written as a whole is taken out again."""
        if self._refusal:
            raise JournalError(f"{self.path}: {self._refusal}", "mount it writable and make room, then run `sysperf undo` again")
        content = b"".join(encode(line) for line in lines)
        size = os.fstat(self._file).st_size
        if isinstance(lines[0], _ANNOUNCING) and size + len(content) > _MAX_BYTES_OF_STEPS:
            raise JournalError(f"{self.path}: it is full", "fewer changes at once, or a new transaction instead of renewing this one")
        problem = ""
        try:
            if os.write(self._file, content) != len(content):
                problem = os.strerror(errno.ENOSPC)
                os.ftruncate(self._file, size)
            os.fsync(self._file)
        except OSError as error:
            problem = problem or error.strerror or str(error)
        if problem:
            raise JournalError(f"{self.path}: {problem}", "make room on this disk, then run `sysperf undo --expired`")

    def read(self) -> Transaction:
        """The transaction as far as it is written, also when its file has lost its name meanwhile."""
        return replay(self.number, self._content())

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def __enter__(self) -> Log:  # noqa: PYI034 - Python 3.10 has no typing.Self
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create(self) -> int:
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_CREAT | os.O_EXCL, 0o644)
        sync_folder(os.path.dirname(self.path))
        return file

    def _open(self) -> int:
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            self._refusal = os.strerror(errno.EROFS)
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        if os.fstat(self._file).st_size <= MAX_BYTES:  # what is not read is neither mended nor left out
            try:
                self._mend_end()
            except OSError as error:
                self._refusal = error.strerror or str(error)
            else:
                self._compact()
        return self._file

    def _content(self) -> bytes:
        return os.pread(self._file, MAX_BYTES + 1, 0)

    def _mend_end(self) -> None:
        """Take out a last line that a crash cut short, so that the next one begins where a line begins."""
        raw = self._content()
        tail = raw.rpartition(b"\n")[2]
        if not tail:
            return
        if is_whole(tail) or not is_torn(tail):
            os.write(self._file, b"\n")
        else:
            os.ftruncate(self._file, len(raw) - len(tail))

    def _compact(self) -> None:
        """Write a long file anew, in one step. One with damaged lines stays as it is: it is evidence."""
        raw = self._content()
        if raw.count(b"\n") <= MAX_LINES:
            return
        try:
            lines = [decode(line) for line in raw.splitlines() if line]
        except DamagedLine:
            return
        folded = fold(lines)
        if 2 * len(folded) <= len(lines):
            self._replace(b"".join(map(encode, folded)))

    def _replace(self, content: bytes) -> None:
        """Put a new file in the place of this one, and go on with it; without room, this one stays."""
        fresh = f"{self.path}.new"
        file = os.open(fresh, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            whole = os.write(file, content) == len(content)
            os.fsync(file)
            if whole:
                os.rename(fresh, self.path)
        except OSError:
            whole = False
        if not whole:
            os.close(file)
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            return
        sync_folder(os.path.dirname(self.path))
        os.close(self._file)
        self._file = file
