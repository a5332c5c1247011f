"""Which reader a file needs: told by its first bytes, not by its name. Ours first, then those of installed plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sysperf import plugin
from sysperf.model.errors import TraceError
from sysperf.trace import kineto, nsys
from sysperf.trace.timeline import Timeline

Progress = Callable[[int], None]
FIRST_BYTES = 64


def read(path: str, progress: Progress = lambda _: None) -> Timeline:
    """Read a trace of any known form. Raises TraceError."""
    try:
        with open(path, "rb") as file:
            first = file.read(FIRST_BYTES)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}", "name a trace: .json, .json.gz, .sqlite or .nsys-rep") from None
    for reader in _readers():
        if reader.recognises(path, first):
            return _timeline(reader.read(path, progress), path)
    raise TraceError(
        f"{path}: {'empty' if not first else 'no form of trace that is known here'}",
        "sysperf reads Chrome traces (.json, .json.gz) and exports of Nsight Systems (.sqlite)",
    )


def _readers() -> Iterator[plugin.TraceReader]:
    """Ours need no look-up, which takes 20 ms."""
    yield kineto
    yield nsys
    yield from plugin.trace_readers()


def _timeline(timeline: object, path: str) -> Timeline:
    if not isinstance(timeline, Timeline):
        raise TraceError(f"{path}: the reader of this form gave no timeline", "use a version of the plugin made for this sysperf")
    return timeline
