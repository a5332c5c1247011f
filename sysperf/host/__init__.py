"""The only door to the machine: everything read through it is redacted, escaped and recorded.

The record is three things: the evidence under a finding, the content of `sysperf capture`, and the replay of
`--root CAPTURE`, which answers what was recorded and nothing else.
"""

from __future__ import annotations

import errno
import fnmatch
import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sysperf.host import redact
from sysperf.host.tree import Tree, open_tree
from sysperf.model.cpuset import CpuSet
from sysperf.model.snapshot import Source
from sysperf.model.text import natural

MAX_BYTES = 1 << 20
MAX_ENTRIES = 65_536
MANIFEST = "/sysperf/capture.json"
NOT_CAPTURED = "not in this capture"

_PRINTED = bytes(range(32, 127)) + bytes(range(128, 256)) + b"\n\t\0"
_CONTROL = re.compile(r"[\x01-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_CLEANERS: tuple[tuple[re.Pattern[str], Callable[[bytes], bytes]], ...] = (
    (re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?environ"), redact.environment),
    (re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?cmdline"), redact.arguments),
    (re.compile(r"/proc/(?:cmdline|mounts|[^/]+/mountinfo|[^/]+/mounts)"), redact.words),
)


class Host:
    """A machine, live or captured. Methods answer None when they cannot, and `sources` says why.

    Reading never raises: an absent, unreadable, oversized or malformed file is an unknown with a reason.
    """

    def __init__(
        self,
        root: Path | str = "/",
        *,
        tree: Tree | None = None,
        record: bool = False,
        deep: bool = False,
        pythons: tuple[str, ...] = (),
    ) -> None:
        self.root = str(root)
        self.deep = deep
        self.pythons = pythons
        self.sources: list[Source] = []
        self._tree = tree if tree is not None else open_tree(Path(root))
        self._replay: dict[str, Any] = {} if self._tree.live else self._manifest()
        self.recording: dict[str, Any] | None = {"files": {}, "errors": {}, "names": {}, "links": {}, "calls": {}} if record else None
        self._nvml: Any = None

    @property
    def live(self) -> bool:
        """Whether this is the machine we run on, so that writing to it and binding on it mean something."""
        return self._tree.live

    # ------------------------------------------------------------------ files

    def data(self, path: str, limit: int = MAX_BYTES) -> bytes | None:
        """The bytes of a file, at most `limit` of them, without secrets."""
        try:
            raw = self._read(path, limit)
        except OSError as error:
            return self._failed(path, error)
        self.sources.append(Source(path))
        if self.recording is not None:
            self.recording["files"][path] = raw
        return raw

    def text(self, path: str, limit: int = MAX_BYTES) -> str | None:
        """The text of a file; control characters other than newline, tab and NUL are escaped."""
        raw = self.data(path, limit)
        return None if raw is None else printable(raw)

    def word(self, path: str, limit: int = 4096) -> str | None:
        """The text of a one-line file without surrounding white space."""
        text = self.text(path, limit)
        return None if text is None else text.strip(" \t\n\0")

    def number(self, path: str) -> int | None:
        """The whole number in a file; ``max`` and other words are unknown."""
        return self._parsed(path, int)

    def cpus(self, path: str) -> CpuSet | None:
        """The CPU or node list in a file (``0-3,8``)."""
        return self._parsed(path, CpuSet.parse)

    def mask(self, path: str) -> CpuSet | None:
        """The CPU mask in a file (``ff,00000001``)."""
        return self._parsed(path, CpuSet.parse_mask)

    def pairs(self, path: str, separator: str = ":") -> dict[str, str] | None:
        """A file of ``name: value`` lines, such as meminfo or a process's status."""
        text = self.text(path)
        if text is None:
            return None
        lines = (line.partition(separator) for line in text.splitlines())
        return {name.strip(): value.strip() for name, found, value in lines if found}

    def names(self, path: str, limit: int = MAX_ENTRIES) -> tuple[str, ...] | None:
        """The names in a folder in natural order (``node9`` before ``node10``); None when it cannot be listed."""
        try:
            found = self._names(path, limit)
        except OSError as error:
            return self._failed(path, error)
        if self.recording is not None:
            self.recording["names"][path] = found
        self.sources.append(Source(path))
        return tuple(sorted((printable(name.encode("utf-8", "surrogateescape")) for name in found), key=natural))

    def glob(self, pattern: str) -> list[str]:
        """The paths that match shell wildcards, in natural order; nothing when there is none."""
        paths = [""]
        for part in pattern.strip("/").split("/"):
            if not any(char in part for char in "*?["):
                paths = [f"{path}/{part}" for path in paths]
                continue
            matches = re.compile(fnmatch.translate(part)).match
            paths = [f"{path}/{name}" for path in paths for name in self.names(path or "/") or () if matches(name)]
            if not paths:
                break
        if "*" in pattern.rpartition("/")[2] or not paths:
            return paths
        return [path for path in paths if self.exists(path)]

    def link(self, path: str) -> str | None:
        """The text of a symbolic link."""
        try:
            target = self._link(path)
        except OSError as error:
            return self._failed(path, error)
        self.sources.append(Source(path))
        if self.recording is not None:
            self.recording["links"][path] = target
        return printable(target.encode("utf-8", "surrogateescape"))

    def exists(self, path: str) -> bool | None:
        """Whether there is such a file. None in a capture that does not say."""
        known = self._known(path)
        if known is not None:
            return known
        try:
            found = self._tree.exists(path)
        except OSError as error:
            return self._failed(path, error)
        if not self._tree.complete and not found:
            return self._failed(path, OSError(errno.ENODATA, NOT_CAPTURED))
        if self.recording is not None:
            self.recording["calls"][f"exists:{path}"] = found
        self.sources.append(Source(path) if found else Source(path, error="No such file or directory"))
        return found

    # ------------------------------------------------------------------ calls

    def call(self, key: str, ask: Callable[[], Any]) -> Any:
        """The answer of a system call, command or library call, as JSON-like data; recorded under `key`.

        `ask` runs on the live machine only. OSError becomes an unknown with its reason.
        """
        try:
            answer = ask() if self.live else self._replayed("calls", key)
        except OSError as error:
            return self._failed(key, error, kind="calls")
        self.sources.append(Source(key))
        if self.recording is not None:
            self.recording["calls"][key] = answer
        return answer

    def uname(self) -> tuple[str, str] | None:
        """(kernel release, machine architecture)."""
        answer = self.call("uname", lambda: [os.uname().release, os.uname().machine])
        return (str(answer[0]), str(answer[1])) if answer else None

    def space(self, path: str) -> dict[str, int] | None:
        """Sizes of the file system that holds `path`: {total_bytes, free_bytes, files, files_free, read_only}."""
        answer: dict[str, int] | None = self.call(f"space:{path}", lambda: _space(path))
        return answer

    def owner(self, path: str) -> dict[str, int] | None:
        """Who owns a file and how large it is: {uid, mode, size_bytes}."""
        answer: dict[str, int] | None = self.call(f"owner:{path}", lambda: _owner(path))
        return answer

    def run(self, command: str) -> str | None:
        """The output of a command of the allow-list (`sysperf.host.commands`), by its name there."""
        from sysperf.host import commands  # noqa: PLC0415 - subprocess costs 10 ms; few audits need it

        answer = self.call(f"run:{command}", lambda: redact.text_lines(commands.run(command)))
        return None if answer is None else printable(str(answer).encode("utf-8", "replace"))

    def probe(self, python: str, name: str, script: str) -> Any:
        """What `script` prints as JSON in the user's interpreter `python`. Only `--deep` asks."""
        from sysperf.host import commands  # noqa: PLC0415 - as above

        return self.call(f"probe:{name}:{python}", lambda: _json(commands.probe(python, script)))

    def nvml(self, name: str, *args: int | str) -> Any:
        """The answer of an NVML call: ``nvml("DeviceGetName", 0)`` asks about the GPU with index 0.

        A first argument of a call named ``Device…`` is the GPU's index. Structures become dicts, bytes become text.
        None when NVML, the driver, the permission or the feature is absent; the source says which.
        """
        key = f"nvml:{name}({','.join(map(str, args))})"
        if not self.live:
            return self.call(key, lambda: None)
        if self._nvml is None:
            from sysperf.host.nvml import Nvml  # noqa: PLC0415 - pynvml costs 20 ms; only machines with a driver pay

            self._nvml = Nvml()
        return self.call(key, lambda: self._nvml.ask(name, args))

    # ------------------------------------------------------------------ inside

    def refuse(self, path: str, reason: str) -> None:
        """Note that what was read from `path` makes no sense, so that the unknown has a reason."""
        self.sources.append(Source(path, error=reason))

    def _parsed(self, path: str, parse: Callable[[str], Any]) -> Any:
        word = self.word(path)
        if word is None:
            return None
        try:
            return parse(word)
        except ValueError as error:
            self.refuse(path, str(error)[:200])
            return None

    def _read(self, path: str, limit: int) -> bytes:
        if self._known(path) is False:
            raise OSError(errno.ENOENT, self._replay["errors"].get(path, os.strerror(errno.ENOENT)), path)
        raw = self._tree.read(path, limit)
        for pattern, clean in _CLEANERS:
            if pattern.fullmatch(path):
                return clean(raw)
        return raw

    def _names(self, path: str, limit: int) -> list[str]:
        recorded = self._replay.get("names", {}).get(path)
        if recorded is not None:
            return [str(name) for name in recorded][:limit]
        return self._tree.names(path, limit)

    def _link(self, path: str) -> str:
        recorded = self._replay.get("links", {}).get(path)
        return str(recorded) if recorded is not None else self._tree.link(path)

    def _known(self, path: str) -> bool | None:
        """What a capture of ours says of the existence of a path; None when it says nothing."""
        if not self._replay:
            return None
        if path in self._replay["errors"]:
            return False
        answer = self._replay["calls"].get(f"exists:{path}")
        return answer if isinstance(answer, bool) else None

    def _replayed(self, table: str, key: str) -> Any:
        errors = self._replay.get("errors", {})
        if key in errors:
            raise OSError(str(errors[key]))
        answers = self._replay.get(table, {})
        if key not in answers:
            raise OSError(NOT_CAPTURED)
        return answers[key]

    def _failed(self, path: str, error: OSError, kind: str = "files") -> None:
        absent = error.errno in (errno.ENOENT, errno.ENOTDIR)
        reason = error.strerror or str(error)
        if absent and not self._tree.complete and path not in self._replay.get("errors", {}):
            reason = NOT_CAPTURED
        self.sources.append(Source(path, error=reason))
        if self.recording is not None:
            self.recording["errors"][path] = reason

    def _manifest(self) -> dict[str, Any]:
        try:
            raw = json.loads(self._tree.read(MANIFEST, 64 << 20))
        except (OSError, ValueError):
            return {}
        tables = ("errors", "names", "links", "calls")
        return {table: raw[table] if isinstance(raw.get(table), dict) else {} for table in tables} if isinstance(raw, dict) else {}


def printable(raw: bytes) -> str:
    """Text whose control and direction characters are spelled out, except newline, tab and NUL."""
    text = raw.decode("utf-8", "replace")
    if not raw.translate(None, _PRINTED) and text.isascii():
        return text
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def failures(sources: Iterable[Source], limit: int = 200) -> tuple[Source, ...]:
    """The first distinct sources that could not be read."""
    found: dict[str, Source] = {}
    for source in sources:
        if source.error is not None and source.path not in found:
            found[source.path] = source
            if len(found) >= limit:
                break
    return tuple(found.values())


def _space(path: str) -> dict[str, int]:
    stat = os.statvfs(path)
    return {
        "total_bytes": stat.f_blocks * stat.f_frsize,
        "free_bytes": stat.f_bavail * stat.f_frsize,
        "files": stat.f_files,
        "files_free": stat.f_favail,
        "read_only": stat.f_flag & os.ST_RDONLY,
    }


def _owner(path: str) -> dict[str, int]:
    stat = os.stat(path)
    return {"uid": stat.st_uid, "mode": stat.st_mode & 0o7777, "size_bytes": stat.st_size}


def _json(raw: bytes) -> Any:
    lines = raw.decode("utf-8", "replace").strip().splitlines()
    try:
        return json.loads(lines[-1]) if lines else {}
    except ValueError:
        raise OSError("the probe's answer is no JSON") from None
