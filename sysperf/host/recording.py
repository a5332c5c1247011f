"""What a machine was asked and what it answered: kept while recording, and answered again from a capture."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NoReturn

import msgspec

from sysperf.host.tree import Tree
from sysperf.model.errors import CaptureError
from sysperf.model.record import Json, Record, TypeForm, convert, from_json
from sysperf.model.snapshot import Source
from sysperf.model.text import escaped

MAX_DEPTH = 32
MAX_MANIFEST_BYTES = 64 << 20
MANIFEST = "/sysperf/capture.json"
NOT_CAPTURED = "not in this capture"


class Answers(Record):
    """What a machine answered, by question: PATH for a file, ``names:PATH``, ``link:PATH``, ``exists:PATH``, or a call's key."""

    answers: dict[str, Json] = msgspec.field(default_factory=dict)
    errors: dict[str, str] = msgspec.field(default_factory=dict)


class Manifest(Answers, kw_only=True):
    """All answers in a capture but the bytes of files, which are files there."""

    schema: int = 1
    sysperf: str = ""
    taken_at: str = ""
    moved: dict[str, str] = msgspec.field(default_factory=dict)
    """Where a file lies whose path is no name for a member of a tar (``/a/../b``)."""


class Recorder:
    """Answers questions: from what was recorded, else from the machine. What was asked is noted, and kept while recording."""

    def __init__(self, answers: Answers | None, *, recording: bool, complete: bool) -> None:
        self.sources: list[Source] = []
        self._answers = answers
        self._recording = recording
        self._complete = complete

    def note_failure(self, path: str, reason: str) -> None:
        """Note why what `path` says is unknown."""
        self.sources.append(Source(path, error=reason))

    def ask(self, kind: str, path: str, ask: Callable[[], object], as_type: TypeForm) -> Json:
        """One question: answered from what was recorded, else asked; noted as a source; kept while recording."""
        try:
            answer = ask() if self._answers is None else self._recorded(self._answers, kind + path, ask, as_type)
        except (OSError, ValueError, RecursionError) as error:
            self.note_failure(path, self._reason(error))
            return None
        self.sources.append(Source(path))
        return answer

    def _recorded(self, known: Answers, key: str, ask: Callable[[], object], as_type: TypeForm) -> Json:
        if key in known.errors:
            raise OSError(known.errors[key])
        if key in known.answers:
            return harmless(convert(known.answers[key], as_type))
        try:
            answer = ask()
        except (OSError, ValueError) as error:
            if self._recording:
                known.errors[key] = self._reason(error)
            raise
        if self._recording:
            known.answers[key] = answer
        return answer

    def _reason(self, error: Exception) -> str:
        if isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR) and not self._complete:
            return NOT_CAPTURED
        return (isinstance(error, OSError) and error.strerror) or str(error)[:200]


class SealedTree:
    """A capture of ours. Files are there because they were read: its folders and links say nothing about the machine."""

    live = False
    complete = False

    def __init__(self, tree: Tree, moved: dict[str, str]) -> None:
        self._tree = tree
        self._moved = moved

    def read(self, path: str, limit: int) -> bytes:
        return self._tree.read(self._moved.get(path, path), limit)

    def names(self, path: str, limit: int) -> list[str]:  # noqa: ARG002 - as every tree has it
        raise_not_captured()

    def link(self, path: str) -> str:  # noqa: ARG002 - as above
        raise_not_captured()

    def exists(self, path: str) -> bool:
        return self._tree.exists(path)


def read_manifest(tree: Tree, root: str) -> Manifest | None:
    """What a capture of ours says was asked; None in a root that others made."""
    try:
        raw = tree.read(MANIFEST, MAX_MANIFEST_BYTES)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise CaptureError(f"{root}{MANIFEST}: {error.strerror}", "make the capture again with `sysperf capture`") from None
    try:
        manifest: Manifest = from_json(raw, Manifest)
    except ValueError as error:
        raise CaptureError(f"{root}{MANIFEST}: {error}", "it is damaged, or a newer sysperf made it: update this one") from None
    if any(key.startswith("/") for key in manifest.answers):
        raise CaptureError(f"{root}{MANIFEST}: holds what belongs in files", "make the capture again with `sysperf capture`")
    if manifest.schema != Manifest().schema:
        raise CaptureError(f"{root}: a newer sysperf ({manifest.sysperf[:20]}) made this capture", "update this one")
    return manifest


def raise_not_captured() -> NoReturn:
    raise OSError(NOT_CAPTURED)


def harmless(answer: Json, depth: int = 0) -> Json:
    """Plain data whose texts are escaped. Raises ValueError when it is nested deeper than anything that we ask for."""
    if isinstance(answer, str):
        return escaped(answer)
    if isinstance(answer, list | tuple | dict) and depth >= MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(answer, list | tuple):
        return type(answer)(harmless(item, depth + 1) for item in answer)
    if isinstance(answer, dict):
        return {harmless(key): harmless(value, depth + 1) for key, value in answer.items()}
    return answer
