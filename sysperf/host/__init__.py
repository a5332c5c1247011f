"""Reading a machine: what facts are made of is read through a `Host`, which redacts, escapes and records it.

Others read the machine by themselves: `fix` the settings that it writes, `live` the files that it samples each second, `diagnosis` the
counters of a job, and `verify`, `launch` and the plugins the programs that they start or look into.

The record has three uses: the evidence under a finding, the content of `sysperf capture`, and the replay of
`--root CAPTURE`, which answers what was recorded and nothing else.
"""

from __future__ import annotations

import errno
import fnmatch
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sysperf.host import redact
from sysperf.host.live import Live
from sysperf.host.opening import open_tree
from sysperf.host.recording import (
    MANIFEST,
    NOT_CAPTURED,
    Answers,
    Manifest,
    Recorder,
    SealedTree,
    harmless,
    raise_not_captured,
    read_manifest,
)
from sysperf.host.tree import HINT, KERNEL_FOLDERS, TOO_LARGE, Tree
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import CaptureError
from sysperf.model.path import StrPath
from sysperf.model.record import Json, TypeForm, from_json
from sysperf.model.snapshot import Source
from sysperf.model.text import escaped, natural
from sysperf.startup import lazy

if TYPE_CHECKING:
    from sysperf.host.nvml import Nvml
    from sysperf.host.settings import Settings

__all__ = ("MANIFEST", "NOT_CAPTURED", "Answers", "Host", "Manifest", "failures")

T = TypeVar("T")

MAX_BYTES = 1 << 20
MAX_ENTRIES = 65_536
MAX_WORD = 4_096
MAX_LIST = 65_536
"""The longest CPU list: 8,192 CPUs, every second one."""

_UNESCAPED = bytes(range(32, 127)) + bytes(range(128, 256)) + b"\n\t\0"
_WILD = frozenset("*?[")
_NUMBER = lazy(r"[+-]?[0-9]{1,20}")


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
        nvml: Any = None,  # noqa: ANN401 - an `Nvml`, or what answers like one: the agent's, which waits for nobody, and recorded ones
    ) -> None:
        self.root = os.fspath(root)
        self.deep = deep
        self.pythons = pythons
        self.recording = record
        self._tree = tree if tree is not None else open_tree(self.root)
        manifest = None if self._tree.live or answers is not None else read_manifest(self._tree, self.root)
        if root != "/" and tree is None and not self._tree.live and not _is_root(self._tree):
            raise CaptureError(f"{self.root}: holds nothing of a machine: neither proc nor sys", HINT)
        if manifest is not None:
            self._tree = SealedTree(self._tree, manifest.moved)
        self.taken_at = manifest.taken_at if manifest else None
        """When a capture of ours was taken, as it says; None: this machine, or what others captured."""
        self.answers = answers or manifest or (Answers() if record else None)
        self._recorder = Recorder(self.answers, recording=record, complete=self._tree.complete)
        self.sources = self._recorder.sources
        self._nvml = nvml
        self._kept: dict[str, tuple[Any, tuple[Source, ...]]] = {}  # any: what `once` was asked for

    @property
    def live(self) -> bool:
        """Whether this is the machine we run on, so that writing to it and binding on it mean something."""
        return self._tree.live

    def once(self, name: str, read: Callable[[], T]) -> T:
        """What `read` gives, read when it is first asked for; whoever asks again has the same sources as evidence."""
        if name in self._kept:
            value, sources = self._kept[name]
            self.sources.extend(sources)
            return cast("T", value)
        before = len(self.sources)
        value = read()
        self._kept[name] = value, tuple(self.sources[before:])
        return value

    # ------------------------------------------------------------------ files

    def data(self, path: str, limit: int = MAX_BYTES) -> bytes | None:
        """The bytes of a file without secrets; unknown when there are more than `limit`."""
        raw: bytes | None = self._recorder.ask("", path, lambda: redact.clean(path, self._tree.read(path, limit)), bytes)
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
        return {name.strip(): value.strip() for name, has_separator, value in lines if has_separator}

    def names(self, path: str, limit: int = MAX_ENTRIES) -> tuple[str, ...] | None:
        """The names in a folder in natural order (``node9`` before ``node10``); None when it cannot be listed."""
        names: tuple[str, ...] | None = self._recorder.ask("names:", path, lambda: self._names(path, limit), tuple[str, ...])
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
        target: str | None = self._recorder.ask("link:", path, lambda: _shown(self._tree.link(path)), str)
        return target

    def exists(self, path: str) -> bool | None:
        """Whether there is such a file. None in a capture that does not say."""
        exists: bool | None = self._recorder.ask("exists:", path, lambda: self._exists(path), bool)
        if exists is False:
            self.refuse(path, os.strerror(errno.ENOENT))
        return exists

    # ------------------------------------------------------------------ calls

    def call(self, key: str, ask: Callable[[], object], as_type: TypeForm = Json) -> Json:
        """The answer of a system call, command or library call, as JSON-like data; recorded under `key`.

        `ask` runs on the live machine only. OSError becomes an unknown with its reason.
        """
        return self._recorder.ask("", key, lambda: harmless(self._called(ask)), as_type)

    def _called(self, ask: Callable[[], T]) -> T:
        return self._tree.call(ask) if isinstance(self._tree, Live) else ask() if self.live else raise_not_captured()

    def as_owner_of(self, pid: int) -> AbstractContextManager[None]:
        """Within it, files outside of /proc and /sys are read with the rights of this process's user, who named them."""
        return self._tree.as_owner_of(pid) if isinstance(self._tree, Live) else nullcontext()

    def uname(self) -> tuple[str, str] | None:
        """(kernel release, machine architecture)."""
        answer: tuple[str, str] | None = self.call("uname", lambda: (os.uname().release, os.uname().machine), tuple[str, str])
        return answer

    def space(self, path: str) -> dict[str, int] | None:
        """Sizes of the file system that holds `path`: {total_bytes, free_bytes, files, files_free, read_only}."""
        answer: dict[str, int] | None = self.call(f"space:{path}", lambda: _space(path), dict[str, int])
        return answer

    def owner(self, path: str) -> dict[str, int] | None:
        """Return who owns a file and how large it is: {uid, mode, size_bytes}."""
        answer: dict[str, int] | None = self.call(f"owner:{path}", lambda: _owner(path), dict[str, int])
        return answer

    def run(self, command: str) -> str | None:
        """The output of a command of the allow-list (`sysperf.host.commands`), by its name there."""
        from sysperf.host import commands  # noqa: PLC0415 - subprocess costs 10 ms; few audits need it

        output: str | None = self.call(f"run:{command}", lambda: redact.text(commands.run(command).decode("utf-8", "replace")), str)
        return output

    def probe(self, python: str, name: str, script: str) -> Json:
        """What `script` prints as JSON in the user's interpreter `python`. Only `--deep` asks."""
        from sysperf.host import commands  # noqa: PLC0415 - subprocess costs 10 ms; few audits need it

        trusted = any(python == known or python.startswith(f"{known}/") for known in self.pythons)
        return self.call(f"probe:{name}:{python}", lambda: _json(commands.probe(python, script, trusted=trusted)))

    def nvml(self, name: str, *args: int | str) -> Json:
        """The answer of an NVML call: ``nvml("DeviceGetName", 0)`` asks about the GPU with index 0.

        A first argument of a call named ``Device…`` is the GPU's index. Structures become dicts, bytes become text.
        None when NVML, the driver, the permission or the feature is absent; the source says which.
        """
        return self.call(f"nvml:{name}({','.join(map(str, args))})", lambda: self.nvml_library().ask(name, args))

    @property
    def settings(self) -> Settings:
        """The settings of this machine, which only `sysperf.fix` changes."""
        from sysperf.host.settings import Settings  # noqa: PLC0415 - audits change nothing

        return Settings(self._tree, self.nvml_library)

    # ------------------------------------------------------------------ inside

    def refuse(self, path: str, reason: str) -> None:
        """Note why what `path` says is unknown."""
        self._recorder.note_failure(path, reason)

    def _parsed(self, path: str, parse: Callable[[str], T]) -> T | None:
        word = self.word(path, MAX_LIST)
        if word is None:
            return None
        try:
            return parse(word)
        except ValueError as error:
            self.refuse(path, str(error)[:200])
            return None

    def _names(self, path: str, limit: int) -> tuple[str, ...]:
        return tuple(sorted((_shown(name) for name in self._tree.names(path, limit)), key=natural))

    def _exists(self, path: str) -> bool:
        return self._tree.exists(path) or (raise_not_captured() if not self._tree.complete else False)

    def nvml_library(self) -> Nvml:
        """The GPU library, opened when it is first asked."""
        if self._nvml is None:
            from sysperf.host.nvml import Nvml  # noqa: PLC0415 - pynvml costs 20 ms; only machines with a driver pay

            self._nvml = Nvml()
        library: Nvml = self._nvml
        return library


def failures(sources: Iterable[Source], limit: int = 200) -> tuple[Source, ...]:
    """The first distinct sources that could not be read."""
    failed: dict[str, Source] = {}
    for source in sources:
        if source.error is not None and source.path not in failed:
            failed[source.path] = source
            if len(failed) >= limit:
                break
    return tuple(failed.values())


def _is_root(tree: Tree) -> bool:
    """Whether it has any folder that audits read. One that is too full to be listed is not judged."""
    try:
        return not KERNEL_FOLDERS.isdisjoint(tree.names("/", MAX_ENTRIES))
    except OSError:
        return True


def _whole(word: str) -> int:
    # int() alone would also take "1_0", other scripts' digits, and thousands of them.
    if not _NUMBER.fullmatch(word):
        raise ValueError(f"not a number: {word[:40]!r}")
    return int(word)


def _shown(name: str) -> str:
    return escaped(name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


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
    return {"uid": stat.st_uid, "mode": stat.st_mode & 0o7777, "size_bytes": stat.st_size, "allocated_bytes": stat.st_blocks * 512}


def _json(raw: bytes) -> Json:
    """The JSON in the last line: what the imports of the user's packages print comes before it."""
    lines = raw.strip().splitlines()
    try:
        return from_json(lines[-1], Json) if lines else {}
    except ValueError:
        raise OSError("the probe's answer is no JSON") from None
