"""A packed capture: a tar, plain or compressed by gzip, bzip2, xz or zstd, held in memory and read by offset.

Why not tarfile (Python 3.11, an Intel Xeon, CPU time and peak memory of opening, with the same bounds put around it):
a capture of 228 members takes 8.1 ms instead of 2.8, one of 15,801 members 396 ms instead of 149 (streaming: 1,203).
It reads a pax header of 100 MiB whole (529 MB, 1.8 s), follows 200,000 headers of a sparse file for 5.6 s instead of
0.25, keeps 1 kB a member until it ends (298 MB instead of 159 where the limit refuses 280,000), recurses once per pax
header, and takes a damaged header for the end of the archive, so that the rest is missing without a word.
Format  https://www.gnu.org/software/tar/manual/html_node/Standard.html
        https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html
"""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

from sysperf.host.links import LinkResolver
from sysperf.host.plain_files import open_plain
from sysperf.host.tree import ESCAPES, HINT, KERNEL_FOLDERS, MAX_PATH, NOT_PLAIN, TOO_LARGE
from sysperf.model.errors import CaptureError, how_to_read
from sysperf.model.path import StrPath

MAX_TOTAL_BYTES = 144 << 20
MAX_MEMORY_BYTES = 160 << 20
"""Of the unpacked tar and its index together: with the interpreter, below 200 MB."""
MEMBER_BYTES, FOLDER_BYTES = 640, 480
"""What the index needs for each, measured."""
MAX_MEMBERS = 500_000
MAX_FOLDERS = 500_000
_MAX_HEADER_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 20
_BLOCK = 512
_HEADER = struct.Struct("100s24x12s12x8sc100s8s80x155s12x")  # name size checksum kind target magic prefix
_POSIX = b"ustar\x0000"
_HARD_LINK, _LINK, _FOLDER, _SPARSE, _PAX, _LONG_NAME, _LONG_TARGET = b"1", b"2", b"5", b"S", b"x", b"L", b"K"
_PLAIN = frozenset((b"0", b"\0", b"7"))
_HEADERS = frozenset((_PAX, b"g", _LONG_NAME, _LONG_TARGET))
_WITHOUT_DATA = frozenset((_HARD_LINK, _LINK, b"3", b"4", _FOLDER, b"6"))


class Member(NamedTuple):
    """One entry of a tar; its bytes lie at `start`."""

    name: str
    kind: bytes
    target: str
    start: int
    size: int


class Archive(LinkResolver):
    """A packed capture."""

    def __init__(self, path: StrPath) -> None:
        super().__init__()
        try:
            self._raw = unpacked(path)
            room = MAX_MEMORY_BYTES - len(self._raw)
            self._members = _unwrapped(_by_name(members(self._raw), room))
            self._children = _children(self._members, room)
        except (OSError, EOFError, ValueError, ImportError, MemoryError, zlib.error, lzma.LZMAError) as error:
            if getattr(self, "_raw", b"")[:1] == b"{":
                raise CaptureError(f"{path}: a report, and no capture", f"sysperf audit --from {path}") from None
            if isinstance(error, OSError) and error.strerror:
                raise CaptureError(f"{path}: {error.strerror}", how_to_read(error, HINT)) from None
            raise CaptureError(f"{path}: not a readable capture ({error or 'too large for memory'})", HINT) from None

    def _target(self, path: str) -> str | None:
        member = self._members.get(path)
        return member.target if member is not None and member.kind == _LINK else None

    def read(self, path: str, limit: int) -> bytes:
        inside = self.resolve(path)
        member = self._members.get(inside)
        if inside in self._children:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if member is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if member.kind not in _PLAIN:
            raise OSError(errno.EINVAL, NOT_PLAIN, path)
        if member.size > limit:
            raise OSError(errno.EFBIG, TOO_LARGE, path)
        return bytes(self._raw[member.start : member.start + member.size])

    def names(self, path: str, limit: int) -> list[str]:
        inside = self.resolve(path)
        children = self._children.get(inside)
        if children is None:
            code = errno.ENOTDIR if inside in self._members else errno.ENOENT
            raise OSError(code, os.strerror(code), path)
        if len(children) > limit:
            raise OSError(errno.EOVERFLOW, f"more than {limit} entries", path)
        return list(children)

    def link(self, path: str) -> str:
        beside = self._beside(path)
        target = self._target(beside)
        if target is None:
            code = errno.EINVAL if beside in self._members or beside in self._children else errno.ENOENT
            raise OSError(code, os.strerror(code), path)
        return target

    def exists(self, path: str) -> bool:
        inside = self.resolve(path)
        return inside in self._members or inside in self._children


def unpacked(path: StrPath) -> bytearray:
    """The bytes of the tar in a file. Raises ValueError when there are more than `MAX_TOTAL_BYTES`."""
    with open(open_plain(os.fspath(path)), "rb") as file:
        magic = file.read(6)
        file.seek(0)
        openers = (opener for start, opener in _OPENERS if magic.startswith(start))
        stream = next(openers, _as_it_is)(file)
        raw = bytearray()
        while part := stream.read(_CHUNK_BYTES):  # read at once, a decompressor would need twice the room
            raw += part
            if len(raw) > MAX_TOTAL_BYTES:
                raise ValueError(f"more than {MAX_TOTAL_BYTES >> 20} MiB")
    return raw


def _as_it_is(file: IO[bytes]) -> IO[bytes]:
    return file


class _Zstd:
    """A zstd stream whose errors are ValueErrors: the module, and so its error's class, depends on the Python."""

    def __init__(self, file: IO[bytes]) -> None:
        self._module = zstd()
        self._stream = self._module.open(file)

    def read(self, limit: int) -> bytes:
        try:
            return bytes(self._stream.read(limit))
        except self._module.ZstdError as error:
            raise ValueError(str(error)) from None


_OPENERS: tuple[tuple[bytes, Callable[[Any], Any]], ...] = (  # any: each module has types of its own
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
    (b"\x28\xb5\x2f\xfd", _Zstd),
)


def zstd() -> Any:  # noqa: ANN401 - two modules of one interface; one of them is installed
    """The zstd module: in the standard library from Python 3.14, else its backport."""
    try:
        from compression import zstd as module  # noqa: PLC0415 - only captures need it
    except ImportError:
        from backports import zstd as module  # noqa: PLC0415
    return module


def members(raw: bytes | bytearray) -> Iterator[Member]:
    """The entries of a tar in their order. Raises ValueError where it is damaged or larger than we accept."""
    at = 0
    fields: dict[str, str] = {}
    while at + _BLOCK <= len(raw):
        block = raw[at : at + _BLOCK]
        name, size_text, checksum, kind, target, magic, prefix = _HEADER.unpack(block)
        if not any(checksum) and not any(block):
            return
        _check(block, checksum)
        start = _data_start(raw, at, kind)
        size = int(fields["size"]) if "size" in fields else _number(size_text)
        at = start if kind in _WITHOUT_DATA else start + -(-size // _BLOCK) * _BLOCK
        if size < 0 or at > len(raw):
            raise ValueError("damaged: ends in the middle of a file")
        if kind in _HEADERS:
            if size > _MAX_HEADER_BYTES:
                raise ValueError(f"a header of more than {_MAX_HEADER_BYTES >> 20} MiB")
            fields |= _fields(kind, raw[start : start + size])
            continue
        if "path" not in fields and magic == _POSIX and prefix[0]:
            name = prefix.rstrip(b"\0") + b"/" + name
        sparse = any(field.startswith("GNU.sparse") for field in fields)
        yield Member(fields.get("path", _text(name)), _SPARSE if sparse else kind, fields.get("linkpath", _text(target)), start, size)
        fields = {}
    raise ValueError("damaged: no end mark" if at else "no tar")


def _check(block: bytes | bytearray, stored: bytes) -> None:
    # The sum of all bytes, those of the sum itself counted as blanks. Adler-32's lower half is 1 + the sum modulo 65521,
    # twenty times faster than sum().
    total = (zlib.adler32(block) & 0xFFFF) - 1 - sum(stored) + 8 * ord(" ")
    if (total - _number(stored)) % 65_521:
        raise ValueError("no tar, or damaged")


def _number(text: bytes) -> int:
    if text[0] & 0x80:
        return int.from_bytes(text, "big") & ~(0x80 << 8 * (len(text) - 1))
    try:
        return int(text.partition(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        raise ValueError("no tar, or damaged") from None


def _text(raw: bytes | bytearray) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _data_start(raw: bytes | bytearray, at: int, kind: bytes) -> int:
    """Return the place behind the header, and behind the further headers of a sparse file."""
    more = kind == _SPARSE and raw[at + 482]
    at += _BLOCK
    while more:
        more = raw[at + 504 : at + 505] not in (b"\0", b"")
        at += _BLOCK
    return at


def _fields(kind: bytes, data: bytes | bytearray) -> dict[str, str]:
    """What a header that stands before a member says about it."""
    if kind in (_LONG_NAME, _LONG_TARGET):
        return {"path" if kind == _LONG_NAME else "linkpath": _text(data)}
    fields = {}
    at = 0
    while kind == _PAX and at < len(data):
        length, _, _ = data[at : at + 20].partition(b" ")
        field, _, value = data[at + len(length) + 1 : at + max(int(length), 1) - 1].partition(b"=")
        fields[_text(field)] = _text(value)
        at += max(int(length), 1)
    return fields


def _by_name(entries: Iterator[Member], room: int = MAX_MEMORY_BYTES) -> dict[str, Member]:
    """Members by their normal name; the last of a name counts, a hard link is the file it names."""
    by_name: dict[str, Member] = {}
    for count, member in enumerate(entries):
        if count >= MAX_MEMBERS:
            raise ValueError(f"more than {MAX_MEMBERS} files")
        if count * MEMBER_BYTES > room:
            raise ValueError(f"more than {MAX_MEMORY_BYTES >> 20} MiB with its index")
        name = _normal(member.name)
        if member.kind == _HARD_LINK:
            linked = by_name.get(_normal(member.target))
            member = member if linked is None else linked  # noqa: PLW2901 - the file itself
        by_name[name] = member
    return by_name


def _normal(name: str) -> str:
    name = name.strip("/")
    if len(name) > MAX_PATH:
        raise ValueError(f"a name of more than {MAX_PATH} characters")
    if "/." not in name and "//" not in name and not name.startswith("."):
        return name
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"member {name[:80]!r} {ESCAPES}")
    return "/".join(parts)


def _unwrapped(by_name: dict[str, Member]) -> dict[str, Member]:
    """The members below the only folder there is, if it is a wrapper around the root."""
    by_name.pop("", None)
    tops = {name.partition("/")[0] for name in by_name if not name.startswith(".")}
    if not tops:
        raise ValueError("holds no files")
    top = tops.pop()
    if tops or top in KERNEL_FOLDERS or (top in by_name and by_name[top].kind != _FOLDER):
        return by_name
    return {name[len(top) + 1 :]: member for name, member in by_name.items() if name.startswith(f"{top}/")}


def _children(by_name: dict[str, Member], room: int = MAX_MEMORY_BYTES) -> dict[str, set[str]]:
    """The names in each folder, those included that no member announces."""
    children: dict[str, set[str]] = {"": set()}
    for name, member in by_name.items():
        if member.kind == _FOLDER:
            children.setdefault(name, set())
        while name:
            parent, _, last = name.rpartition("/")
            known = children.get(parent)
            if known is not None:
                known.add(last)
                break
            if len(children) >= MAX_FOLDERS:
                raise ValueError(f"more than {MAX_FOLDERS} folders")
            if len(by_name) * MEMBER_BYTES + len(children) * FOLDER_BYTES > room:
                raise ValueError(f"more than {MAX_MEMORY_BYTES >> 20} MiB with its index")
            children[parent] = {last}
            name = parent  # noqa: PLW2901 - upwards
    return children
