"""Captures: what a recording host saw, written to a file that `--root` reads again.

Files lie at their own paths; all other answers (folders, links, calls, and what failed and why) are in
``sysperf/capture.json``. Names that identify a machine or a device are replaced, alike in the whole capture.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import lzma
import os
import re
import tarfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

from sysperf import __version__
from sysperf.host import MANIFEST, Host, Manifest, files
from sysperf.host.archive import zstd
from sysperf.host.tree import MAX_PATH
from sysperf.model.errors import CaptureError
from sysperf.model.record import Json, Record, to_json
from sysperf.startup import lazy

Packed = AbstractContextManager[Any]  # any: each format has a stream of its own type
Pack = Callable[[IO[bytes]], Packed]
"""Opens the compressed stream into a file."""
_MEMBER = lazy(r"(?:/(?!\.{1,2}(?:/|$))[^/\0]+)+")


class Summary(Record):
    """What a capture holds."""

    files: int
    answers: int
    unknowns: int
    size_bytes: int


def write_capture(host: Host, path: Path, *, force: bool = False) -> Summary:
    """Write what a recording host saw to OUT.tar.zst, .tar.gz, .tar.xz or .tar, readable by you alone.

    The file appears whole or not at all. Raises CaptureError when it exists and `force` is not set.
    """
    if host.answers is None or not host.recording:
        raise ValueError("this host does not record")
    pack = _packer(path)
    answers, errors = host.answers.answers, host.answers.errors
    members = _members(answers, errors, Pseudonyms(answers, os.uname().nodename if host.live else ""))
    try:
        publish = files.write_whole if force else files.write_new
        size_bytes = publish(os.fspath(path), lambda file: _write(members, pack(file)), mode=0o600, sync=True)
    except FileExistsError:
        raise CaptureError(f"{path}: there is such a file", "use --force to replace it, or another name") from None
    except OSError as error:
        raise CaptureError(f"{path}: cannot be written ({error.strerror or error})", "choose a folder with room for it") from None
    count = len(members) - 1
    return Summary(count, len(answers) - count, len(errors), size_bytes)


def _members(answers: dict[str, Json], errors: dict[str, str], names: Pseudonyms) -> dict[str, bytes]:
    """The content of each member of the tar."""
    members: dict[str, bytes] = {}
    moved: dict[str, str] = {}
    for path, answer in answers.items():
        if isinstance(answer, bytes):
            public_path = at = names.text(path)
            if not _MEMBER.fullmatch(public_path) or len(public_path) >= MAX_PATH:
                at = moved[public_path] = f"/sysperf/files/{len(moved)}"
            members[at] = names.content(answer)
    others = {key: answer for key, answer in answers.items() if not isinstance(answer, bytes)}
    manifest = Manifest(
        answers=names.plain(others),
        errors=names.plain(errors),
        moved=moved,
        sysperf=__version__,
        taken_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
    return {MANIFEST: to_json(manifest, indent=1), **members}


def _packer(path: Path) -> Pack:
    for suffix, pack in _PACKERS.items():
        if path.name.endswith(suffix):
            return pack
    raise CaptureError(f"{path}: its name does not say which kind of capture it is", f"end its name in one of {' '.join(_PACKERS)}")


_PACKERS: dict[str, Pack] = {
    ".tar.zst": lambda file: zstd().open(file, "wb"),
    ".tar.gz": lambda file: gzip.GzipFile(filename="", fileobj=file, mode="wb"),
    ".tar.xz": lambda file: lzma.LZMAFile(file, "wb", preset=2),  # noqa: SIM115 - the caller closes it
    ".tar": contextlib.nullcontext,
}


def _write(members: dict[str, bytes], packed: Packed) -> None:
    now = int(time.time())
    with packed as stream, tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for path, content in members.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode, member.mtime = len(content), 0o644, now
            tar.addfile(member, io.BytesIO(content))


# ---------------------------------------------------------------------- names of machines and devices

_IDENTITY_FILES = frozenset((
    "machine-id", "serial", "serial_number", "product_serial", "board_serial", "chassis_serial", "product_uuid",
    "board_asset_tag", "chassis_asset_tag", "wwid", "nguid", "eui", "unique_id",
))  # fmt: skip
_HOST_NAME_FILES = ("/proc/sys/kernel/hostname", "/etc/hostname")
_LABELLED = lazy(r"(?im)^[ \t]*(?:serial(?: ?number)?|asset tag)[ \t]*[:=][ \t]*(\S.*?)\s*$")
_PREFIX = r"(?:enx|wlx|wwx|eui\.|naa\.|wwn-0x)"
_SHAPE = lazy(
    r"(?<![0-9A-Za-z])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9A-Za-z])"  # UUIDs of GPUs, disks, boots
    r"|(?<![0-9A-Za-z:])(?:"
    r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}(?:(?::[0-9a-fA-F]{2}){2}|(?::[0-9a-fA-F]{2}){14})?"  # MAC, EUI-64, InfiniBand
    r"|[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3}(?:(?::[0-9a-fA-F]{4}){4})?"  # RDMA node GUIDs and GIDs
    rf"|{_PREFIX}[0-9a-fA-F]{{12,32}})(?![0-9A-Za-z:])"
)
_KEPT = lazy(rf"{_PREFIX}|(?<![0-9a-fA-F])(?:0000|ffff|fe80)(?![0-9a-fA-F])|[^0-9a-fA-F]")
_OF_KERNEL = ("/sys/class/", "/sys/devices/", "/sys/bus/", "/sys/block/", "/sys/kernel/", "/sys/module/", "/proc/sys/", "/proc/driver/")
MIN_HOST_NAME_LETTERS, MIN_SERIAL_LETTERS = 3, 4


class Pseudonyms:
    """Replaces what identifies a machine or a device by words of equal length, alike in the whole capture.

    The salt is forgotten with this object: two captures of one machine cannot be matched.
    """

    def __init__(self, answers: dict[str, Json], host_name: str = "") -> None:
        self._salt = os.urandom(16)
        words = _host_names(answers, host_name) | _serials(answers)
        any_word = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
        self._words = re.compile(rf"(?<![0-9A-Za-z])(?:{any_word})(?![0-9A-Za-z])") if words else None

    def text(self, text: str) -> str:
        """`text` with other names."""
        text = _SHAPE.sub(lambda shape: self._shaped(shape[0]), text)
        return self._words.sub(lambda word: self._word(word[0]), text) if self._words else text

    def content(self, raw: bytes) -> bytes:
        """The content of a file with other names."""
        return self.text(raw.decode("latin-1")).encode("latin-1")  # latin-1 gives every byte back

    def plain(self, answer: Json) -> Json:
        """JSON-like data with other names, also in its keys."""
        if isinstance(answer, str):
            return self.text(answer.encode("utf-8", "replace").decode())
        if isinstance(answer, list | tuple):
            return [self.plain(item) for item in answer]
        if isinstance(answer, dict):
            return {self.plain(str(key)): self.plain(value) for key, value in answer.items()}
        return answer

    def _digits(self, word: str) -> str:
        return hashlib.blake2b(word.lower().encode(), key=self._salt).hexdigest()

    def _word(self, word: str) -> str:
        return f"h{self._digits(word)}".ljust(len(word), "0")[: len(word)]

    def _shaped(self, shape: str) -> str:
        """Other hexadecimal digits in the same places; no address (``00:00:…``, ``ff:ff:…``) stays none."""
        if len(set(shape) - set(":-")) == 1:
            return shape
        digits = iter(self._digits(shape).upper() if shape.isupper() else self._digits(shape))
        parts = re.split(f"({_KEPT.pattern})", shape)
        return "".join(part if place % 2 else "".join(next(digits) for _ in part) for place, part in enumerate(parts))


def _host_names(answers: dict[str, Json], host_name: str) -> set[str]:
    """The machine's names, unless the system uses such a word itself (node1, ubuntu): that tells nobody apart."""
    known = [answers.get(path, b"") for path in _HOST_NAME_FILES]
    names = {name.strip() for name in (host_name, *(raw.decode("latin-1") for raw in known if isinstance(raw, bytes)))}
    names |= {name.partition(".")[0] for name in names}
    common = set(re.findall(r"\w+", str(answers.get("/etc/os-release", ""))))
    for key in answers:
        path = key[key.find("/") :]
        if path.startswith(_OF_KERNEL):
            common.update(path.split("/"))
    return {name for name in names if len(name) >= MIN_HOST_NAME_LETTERS and not name.startswith("localhost")} - common


def _serials(answers: dict[str, Json]) -> set[str]:
    """Serial numbers: the content of files named so, and what stands behind such a label."""
    serials: set[str] = set()
    for key, answer in answers.items():
        if isinstance(answer, bytes | str):
            text = answer if isinstance(answer, str) else answer.decode("latin-1")
            serials.update(_LABELLED.findall(text))
            if key[key.rfind("/") + 1 :] in _IDENTITY_FILES:
                serials.add(text.strip(" \t\n\0"))
    return {word for word in serials if len(word) >= MIN_SERIAL_LETTERS and len(set(word)) > 2 and any(map(str.isdigit, word))}
