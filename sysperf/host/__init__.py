"""The only door to the machine: everything read through it is redacted, escaped and noted.

The notes are three things: the evidence under a finding, the content of `sysperf capture`, and the replay of
`--root CAPTURE`, which answers what was recorded and nothing else.
"""

from __future__ import annotations

import errno
import fnmatch
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from sysperf.host import redact
from sysperf.host.tree import HINT, KERNEL_FOLDERS, TOO_LARGE, Live, Tree, open_tree
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import CaptureError
from sysperf.model.path import StrPath
from sysperf.model.record import Record, convert, from_json
from sysperf.model.snapshot import Source
from sysperf.model.text import escaped, natural
from sysperf.startup import lazy

T = TypeVar("T")

MAX_BYTES = 1 << 20
MAX_ENTRIES = 65_536
MAX_DEPTH = 32
MAX_WORD = 4_096
MAX_LIST = 65_536
"""The longest CPU list: 8,192 CPUs, every second one."""
MANIFEST = "/sysperf/capture.json"
NOT_CAPTURED = "not in this capture"
CAPTURED = "a captured machine is never changed"

_UNESCAPED = bytes(range(32, 127)) + bytes(range(128, 256)) + b"\n\t\0"
_WILD = frozenset("*?[")
_NUMBER = lazy(r"[+-]?[0-9]{1,20}")
_MANIFEST_BYTES = 64 << 20


class Answers(Record):
    """What a machine answered, by question: PATH for a file, ``names:PATH``, ``link:PATH``, ``exists:PATH``, or a call's key."""

    answers: dict[str, Any] = msgspec.field(default_factory=dict)
    errors: dict[str, str] = msgspec.field(default_factory=dict)


class Manifest(Answers, kw_only=True):
    """All answers in a capture but the bytes of files, which are files there."""

    schema: int = 1
    sysperf: str = ""
    taken_at: str = ""
    moved: dict[str, str] = msgspec.field(default_factory=dict)
    """Where a file lies whose path is no name for a member of a tar (``/a/../b``)."""


class Host:
    """A machine, live or captured. Methods answer None when they cannot, and `sources` says why.

    Reading never raises: an absent, unreadable, oversized or malformed file is an unknown with a reason.
    """

    def __init__(
        self,
        root: StrPath = "/",
        *,
        tree: Tree | None = None,
        record: bool = False,
        deep: bool = False,
        pythons: tuple[str, ...] = (),
        answers: Answers | None = None,
        nvml: Any = None,
    ) -> None:
        self.root = os.fspath(root)
        self.deep = deep
        self.pythons = pythons
        self.sources: list[Source] = []
        self.recording = record
        self._tree = tree if tree is not None else open_tree(self.root)
        self._manifest = None if self._tree.live or answers is not None else _manifest(self._tree, self.root)
        if root != "/" and tree is None and not self._tree.live and not _is_root(self._tree):
            raise CaptureError(f"{self.root}: holds nothing of a machine: neither proc nor sys", HINT)
        self.answers = answers or self._manifest or (Answers() if record else None)
        self._nvml = nvml

    @property
    def live(self) -> bool:
        """Whether this is the machine we run on, so that writing to it and binding on it mean something."""
        return self._tree.live

    # ------------------------------------------------------------------ files

    def data(self, path: str, limit: int = MAX_BYTES) -> bytes | None:
        """The bytes of a file without secrets; unknown when there are more than `limit`."""
        raw: bytes | None = self._ask("", path, lambda: self._read(path, limit), bytes)
        if raw is None or len(raw) <= limit:
            return raw
        self.refuse(path, TOO_LARGE)
        return None

    def text(self, path: str, limit: int = MAX_BYTES) -> str | None:
        """The text of a file; control characters other than newline, tab and NUL are escaped."""
        raw = self.data(path, limit)
        if raw is None:
            return None
        text = raw.decode("utf-8", "replace")
        return escaped(text) if raw.translate(None, _UNESCAPED) or not raw.isascii() else text

    def word(self, path: str, limit: int = MAX_WORD) -> str | None:
        """The text of a one-line file without surrounding white space."""
        text = self.text(path)
        if text is None or len(text) <= limit:
            return text and text.strip(" \t\n\0")
        self.refuse(path, TOO_LARGE)
        return None

    def number(self, path: str) -> int | None:
        """The whole number in a file; ``max`` and other words are unknown."""
        return self._parsed(path, _whole)

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
        names: tuple[str, ...] | None = self._ask("names:", path, lambda: self._names(path, limit), tuple[str, ...])
        return names

    def glob(self, pattern: str) -> list[str]:
        """The paths that match shell wildcards, in natural order; nothing when there is none."""
        paths = [""]
        *folders, last = pattern.strip("/").split("/")
        for part in (*folders, last):
            if _WILD.isdisjoint(part):
                paths = [f"{path}/{part}" for path in paths]
            else:
                paths = [f"{path}/{name}" for path in paths for name in fnmatch.filter(self.names(path or "/") or (), part)]
            if len(paths) > MAX_ENTRIES:
                self.refuse(pattern, f"more than {MAX_ENTRIES} paths match")
                del paths[MAX_ENTRIES:]
        return paths if not _WILD.isdisjoint(last) else [path for path in paths if self.exists(path)]

    def link(self, path: str) -> str | None:
        """The text of a symbolic link."""
        target: str | None = self._ask("link:", path, lambda: self._link(path), str)
        return target

    def exists(self, path: str) -> bool | None:
        """Whether there is such a file. None in a capture that does not say."""
        found: bool | None = self._ask("exists:", path, lambda: self._exists(path), bool)
        if found is False:
            self.refuse(path, os.strerror(errno.ENOENT))
        return found

    # ------------------------------------------------------------------ calls

    def call(self, key: str, ask: Callable[[], Any], as_type: Any = Any) -> Any:
        """The answer of a system call, command or library call, as JSON-like data; recorded under `key`.

        `ask` runs on the live machine only. OSError becomes an unknown with its reason.
        """
        return self._ask("", key, lambda: _harmless(ask()) if self.live else _not_captured(), as_type)

    def uname(self) -> tuple[str, str] | None:
        """(kernel release, machine architecture)."""
        answer: tuple[str, str] | None = self.call("uname", lambda: (os.uname().release, os.uname().machine), tuple[str, str])
        return answer

    def space(self, path: str) -> dict[str, int] | None:
        """Sizes of the file system that holds `path`: {total_bytes, free_bytes, files, files_free, read_only}."""
        answer: dict[str, int] | None = self.call(f"space:{path}", lambda: _space(path), dict[str, int])
        return answer

    def owner(self, path: str) -> dict[str, int] | None:
        """Who owns a file and how large it is: {uid, mode, size_bytes}."""
        answer: dict[str, int] | None = self.call(f"owner:{path}", lambda: _owner(path), dict[str, int])
        return answer

    def run(self, command: str) -> str | None:
        """The output of a command of the allow-list (`sysperf.host.commands`), by its name there."""
        from sysperf.host import commands  # noqa: PLC0415 - subprocess costs 10 ms; few audits need it

        output: str | None = self.call(f"run:{command}", lambda: redact.text(commands.run(command).decode("utf-8", "replace")), str)
        return output

    def probe(self, python: str, name: str, script: str) -> Any:
        """What `script` prints as JSON in the user's interpreter `python`. Only `--deep` asks."""
        from sysperf.host import commands  # noqa: PLC0415 - subprocess costs 10 ms; few audits need it

        trusted = any(python == one or python.startswith(f"{one}/") for one in self.pythons)
        return self.call(f"probe:{name}:{python}", lambda: _json(commands.probe(python, script, trusted=trusted)))

    def nvml(self, name: str, *args: int | str) -> Any:
        """The answer of an NVML call: ``nvml("DeviceGetName", 0)`` asks about the GPU with index 0.

        A first argument of a call named ``Device…`` is the GPU's index. Structures become dicts, bytes become text.
        None when NVML, the driver, the permission or the feature is absent; the source says which.
        """
        return self.call(f"nvml:{name}({','.join(map(str, args))})", lambda: self._nvml_door().ask(name, args))

    # ------------------------------------------------------------------ changes

    def write(self, path: str, value: str) -> None:
        """Write a setting of the allow-list (`sysperf.model.knob`); only `sysperf.fix` does. Raises OSError."""
        self._own(path).write(path, value.encode())

    def create(self, path: str, content: str) -> None:
        """Write a file that makes the system set it again at its next start; its name is ours. Raises OSError."""
        self._own(path).create(path, content.encode())

    def remove(self, path: str) -> None:
        """Take such a file away. Raises OSError."""
        self._own(path).remove(path)

    def hold(self, path: str, flags: int) -> int:
        """Open a file of the allow-list that means something while it is open. Raises OSError."""
        return self._own(path).hold(path, flags)

    def refusal(self, path: str) -> str:
        """Why a file of the allow-list can not be written, as far as that shows without trying."""
        try:
            return self._own(path).refusal(path)
        except OSError as error:
            return error.strerror or str(error)

    def _own(self, path: str) -> Live:
        """The machine itself, where `path` may be changed."""
        from sysperf.model.knob import is_writable  # noqa: PLC0415 - only changes need it

        if not is_writable(path):
            raise PermissionError(errno.EPERM, "not a setting that sysperf may change", path)
        if not isinstance(self._tree, Live):
            raise OSError(errno.EROFS, CAPTURED, path)
        return self._tree

    def nvml_set(self, name: str, *args: int | str) -> None:
        """Change a setting of a GPU. Raises OSError."""
        if not self.live:
            raise OSError(errno.EROFS, CAPTURED, name)
        self._nvml_door().set(name, args)

    # ------------------------------------------------------------------ inside

    def refuse(self, path: str, reason: str) -> None:
        """Note why what `path` says is unknown."""
        self.sources.append(Source(path, error=reason))

    def _ask(self, kind: str, path: str, ask: Callable[[], Any], as_type: Any) -> Any:
        """One question: answered from what was recorded, else asked; noted as a source; kept while recording."""
        try:
            answer = ask() if self.answers is None else self._recorded(self.answers, kind + path, ask, as_type)
        except (OSError, ValueError, RecursionError) as error:
            self.refuse(path, self._reason(error))
            return None
        self.sources.append(Source(path))
        return answer

    def _recorded(self, known: Answers, key: str, ask: Callable[[], Any], as_type: Any) -> Any:
        if key in known.errors:
            raise OSError(known.errors[key])
        if key in known.answers:
            return _harmless(convert(known.answers[key], as_type))
        try:
            answer = ask()
        except (OSError, ValueError) as error:
            if self.recording:
                known.errors[key] = self._reason(error)
            raise
        if self.recording:
            known.answers[key] = answer
        return answer

    def _reason(self, error: Exception) -> str:
        if isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR) and not self._tree.complete:
            return NOT_CAPTURED
        return (isinstance(error, OSError) and error.strerror) or str(error)[:200]

    def _parsed(self, path: str, parse: Callable[[str], T]) -> T | None:
        word = self.word(path, MAX_LIST)
        if word is None:
            return None
        try:
            return parse(word)
        except ValueError as error:
            self.refuse(path, str(error)[:200])
            return None

    def _read(self, path: str, limit: int) -> bytes:
        moved = self._manifest.moved if self._manifest else {}
        return redact.clean(path, self._tree.read(moved.get(path, path), limit))

    def _names(self, path: str, limit: int) -> tuple[str, ...]:
        self._unsealed()
        return tuple(sorted((escaped(_utf8(name)) for name in self._tree.names(path, limit)), key=natural))

    def _link(self, path: str) -> str:
        self._unsealed()
        return escaped(_utf8(self._tree.link(path)))

    def _exists(self, path: str) -> bool:
        found = self._tree.exists(path)
        return found if found or self._tree.complete else _not_captured()

    def _unsealed(self) -> None:
        """In a capture of ours, files are there because they were read: its folders and links say nothing else."""
        if self._manifest:
            _not_captured()

    def _nvml_door(self) -> Any:
        if self._nvml is None:
            from sysperf.host.nvml import Nvml  # noqa: PLC0415 - pynvml costs 20 ms; only machines with a driver pay

            self._nvml = Nvml()
        return self._nvml


def failures(sources: Iterable[Source], limit: int = 200) -> tuple[Source, ...]:
    """The first distinct sources that could not be read."""
    found: dict[str, Source] = {}
    for source in sources:
        if source.error is not None and source.path not in found:
            found[source.path] = source
            if len(found) >= limit:
                break
    return tuple(found.values())


def _is_root(tree: Tree) -> bool:
    """Whether it has any folder that audits read. One that is too full to be listed is not judged."""
    try:
        return not KERNEL_FOLDERS.isdisjoint(tree.names("/", MAX_ENTRIES))
    except OSError:
        return True


def _manifest(tree: Tree, root: str) -> Manifest | None:
    """What a capture of ours says was asked; None in a root that others made."""
    try:
        raw = tree.read(MANIFEST, _MANIFEST_BYTES)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise CaptureError(f"{root}{MANIFEST}: {error.strerror}", "make the capture again with `sysperf capture`") from None
    try:
        found: Manifest = from_json(raw, Manifest)
    except ValueError as error:
        raise CaptureError(f"{root}{MANIFEST}: {error}", "it is damaged, or a newer sysperf made it: update this one") from None
    if any(key.startswith("/") for key in found.answers):
        raise CaptureError(f"{root}{MANIFEST}: holds what belongs into files", "make the capture again with `sysperf capture`")
    if found.schema != Manifest().schema:
        raise CaptureError(f"{root}: a newer sysperf ({found.sysperf[:20]}) made this capture", "update this one")
    return found


def _whole(word: str) -> int:
    # int() alone would also take "1_0", other scripts' digits, and thousands of them.
    if not _NUMBER.fullmatch(word):
        raise ValueError(f"not a number: {word[:40]!r}")
    return int(word)


def _not_captured() -> Any:
    raise OSError(NOT_CAPTURED)


def _harmless(answer: Any, depth: int = 0) -> Any:
    """Plain data whose texts are escaped. Raises ValueError when it is nested deeper than anything that we ask for."""
    if isinstance(answer, str):
        return escaped(answer)
    if isinstance(answer, list | tuple | dict) and depth >= MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(answer, list | tuple):
        return type(answer)(_harmless(one, depth + 1) for one in answer)
    if isinstance(answer, dict):
        return {_harmless(key): _harmless(value, depth + 1) for key, value in answer.items()}
    return answer


def _utf8(name: str) -> str:
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


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
    """The JSON in the last line: what the imports of the user's packages print comes before it."""
    lines = raw.strip().splitlines()
    try:
        return from_json(lines[-1], Any) if lines else {}
    except ValueError:
        raise OSError("the probe's answer is no JSON") from None
