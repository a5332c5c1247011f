"""The files of a machine: this one, an unpacked capture, or a packed one. All three answer alike.

A capture is foreign input: symbolic links are followed by this module and never leave the capture, sizes and counts
are bounded, and only plain files are opened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from sysperf.model.errors import CaptureError

MAX_LINKS = 40
MAX_MEMBER_BYTES = 32 << 20
MAX_TOTAL_BYTES = 512 << 20
MAX_MEMBERS = 500_000
ESCAPES = "leads out of the captured root"
_TOP = ("proc", "sys", "etc", "usr", "sysperf")


class Tree(Protocol):
    """Read-only files under a root. Every method raises OSError when it cannot answer."""

    live: bool
    complete: bool
    """Whether a file that is not in the tree is not on the machine either."""

    def read(self, path: str, limit: int) -> bytes: ...

    def names(self, path: str, limit: int) -> list[str]: ...

    def link(self, path: str) -> str: ...

    def exists(self, path: str) -> bool: ...


class Live:
    """The machine this runs on."""

    live = True
    complete = True

    def read(self, path: str, limit: int) -> bytes:
        return _read(path, limit)

    def names(self, path: str, limit: int) -> list[str]:
        return _names(path, limit)

    def link(self, path: str) -> str:
        return os.readlink(path)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


class _Captured:
    """Links resolved inside the root, as a kernel would under chroot, except that leaving it is an error."""

    live = False
    complete = False

    def __init__(self) -> None:
        self._folders: dict[str, str] = {"": ""}

    def _target(self, path: str) -> str | None:
        """The text of the link at this resolved path, or None when it is no link."""
        raise NotImplementedError

    def resolve(self, path: str) -> str:
        """The path inside the root ("" is the root itself) without any link in it."""
        parent, _, name = path.strip("/").rpartition("/")
        if parent not in self._folders:
            if len(self._folders) > 100_000:
                self._folders = {"": ""}
            self._folders[parent] = self._walk("", parent)
        return self._walk(self._folders[parent], name)

    def _walk(self, start: str, path: str) -> str:
        done = start.split("/") if start else []
        todo = path.split("/")[::-1]
        links = 0
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if not done:
                    raise OSError(errno.EXDEV, ESCAPES, path)
                done.pop()
                continue
            here = "/".join((*done, part))
            target = self._target(here)
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                done = []
            todo.extend(target.split("/")[::-1])
        return "/".join(done)


class Folder(_Captured):
    """An unpacked capture."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = str(_top_folder(root))

    def _full(self, inside: str) -> str:
        return f"{self._root}/{inside}" if inside else self._root

    def _target(self, path: str) -> str | None:
        try:
            return os.readlink(self._full(path))
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                return None
            raise

    def read(self, path: str, limit: int) -> bytes:
        return _read(self._full(self.resolve(path)), limit, plain=True)

    def names(self, path: str, limit: int) -> list[str]:
        return _names(self._full(self.resolve(path)), limit)

    def link(self, path: str) -> str:
        parent, _, name = path.strip("/").rpartition("/")
        return os.readlink(self._full(f"{self.resolve(parent)}/{name}".strip("/")))

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._full(self.resolve(path)))


class Archive(_Captured):
    """A packed capture, held in memory: tar, plain or compressed by gzip, bzip2, xz or zstd."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._files: dict[str, bytes] = {}
        self._links: dict[str, str] = {}
        self._too_large: set[str] = set()
        try:
            with _open_tar(path) as tar:
                self._load(tar)
        except (tarfile.TarError, EOFError, ValueError, OSError, ImportError) as error:
            if isinstance(error, CaptureError):
                raise
            raise CaptureError(
                f"{path}: not a readable capture ({error})", "a capture is a folder or a tar made by `sysperf capture OUT.tar.zst`"
            ) from None
        self._strip_top()
        self._children: dict[str, set[str]] = {"": set()}
        for name in (*self._files, *self._links, *self._too_large):
            self._enter(name)

    def _load(self, tar: tarfile.TarFile) -> None:
        total = 0
        for count, member in enumerate(tar):
            name = "/".join(part for part in member.name.split("/") if part not in ("", "."))
            if count >= MAX_MEMBERS or total > MAX_TOTAL_BYTES:
                raise ValueError(f"more than {MAX_MEMBERS} files or {MAX_TOTAL_BYTES >> 20} MiB")
            if ".." in name.split("/"):
                raise ValueError(f"member {member.name[:80]!r} {ESCAPES}")
            if member.issym():
                self._links[name] = member.linkname
            elif member.islnk():
                linked = "/".join(part for part in member.linkname.split("/") if part not in ("", "."))
                self._files[name] = self._files.get(linked, b"")
            elif member.isreg() and member.size > MAX_MEMBER_BYTES:
                self._too_large.add(name)
            elif member.isreg():
                content = tar.extractfile(member)
                self._files[name] = content.read() if content else b""
                total += member.size

    def _strip_top(self) -> None:
        names = (*self._files, *self._links, *self._too_large)
        tops = {name.partition("/")[0] for name in names}
        if len(tops) != 1 or not tops.isdisjoint(_TOP):
            return
        cut = len(tops.pop()) + 1
        self._files = {name[cut:]: data for name, data in self._files.items()}
        self._links = {name[cut:]: target for name, target in self._links.items()}
        self._too_large = {name[cut:] for name in self._too_large}

    def _enter(self, name: str) -> None:
        while name:
            parent, _, last = name.rpartition("/")
            siblings = self._children.setdefault(parent, set())
            if last in siblings:
                return
            siblings.add(last)
            name = parent

    def _target(self, path: str) -> str | None:
        return self._links.get(path)

    def read(self, path: str, limit: int) -> bytes:
        inside = self.resolve(path)
        data = self._files.get(inside)
        if data is None:
            if inside in self._children:
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            code = errno.EFBIG if inside in self._too_large else errno.ENOENT
            raise OSError(code, os.strerror(code), path)
        if len(data) > limit:
            raise OSError(errno.EFBIG, f"larger than {limit} bytes", path)
        return data

    def names(self, path: str, limit: int) -> list[str]:
        inside = self.resolve(path)
        if inside not in self._children:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return list(self._children[inside])[:limit]

    def link(self, path: str) -> str:
        parent, _, name = path.strip("/").rpartition("/")
        target = self._links.get(f"{self.resolve(parent)}/{name}".strip("/"))
        if target is None:
            raise OSError(errno.EINVAL, "not a link", path)
        return target

    def exists(self, path: str) -> bool:
        inside = self.resolve(path)
        return inside in self._files or inside in self._children or inside in self._links


def open_tree(root: Path) -> Tree:
    """The tree at `root`: ``/``, a folder or an archive. Raises CaptureError when there is none."""
    if root == Path("/"):
        return Live()
    if root.is_dir():
        return Folder(root)
    if root.is_file():
        return Archive(root)
    raise CaptureError(f"{root}: no such capture", "give a folder or a tar made by `sysperf capture OUT.tar.zst`")


def _top_folder(root: Path) -> Path:
    """The folder that holds proc or sys: `root`, or the only folder in it."""
    inside = [entry for entry in root.iterdir() if not entry.name.startswith(".")]
    if len(inside) == 1 and inside[0].is_dir() and not inside[0].is_symlink() and inside[0].name not in _TOP:
        return inside[0]
    return root


def _read(path: str, limit: int, *, plain: bool = False) -> bytes:
    # O_NONBLOCK: a FIFO or a device in a captured tree must not make us wait.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if plain and not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", path)
        parts: list[bytes] = []
        while part := os.read(handle, 65_536):  # files of /proc come in pages: only an empty read is the end
            parts.append(part)
            limit -= len(part)
            if limit < 0:
                raise OSError(errno.EFBIG, "larger than sysperf reads of such a file", path)
        return b"".join(parts)
    finally:
        os.close(handle)


def _names(path: str, limit: int) -> list[str]:
    names = []
    with os.scandir(path) as entries:
        for entry in entries:
            if len(names) >= limit:
                raise OSError(errno.EOVERFLOW, f"more than {limit} entries", path)
            names.append(entry.name)
    return names


@contextlib.contextmanager
def _open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    with path.open("rb") as raw:
        magic = raw.read(4)
        raw.seek(0)
        if magic == b"\x28\xb5\x2f\xfd":
            with zstd().ZstdFile(raw) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
                yield tar
        else:
            with tarfile.open(fileobj=raw, mode="r|*") as tar:
                yield tar


def zstd():  # type: ignore[no-untyped-def]  # a module, whose home depends on the Python
    """The zstd module: in the standard library from Python 3.14, else its backport."""
    try:
        from compression import zstd as module  # noqa: PLC0415 - only captures need it
    except ImportError:
        from backports import zstd as module  # noqa: PLC0415
    return module

