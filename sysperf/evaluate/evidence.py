"""Which file a fact came from, and why it is unknown: matches the facts' `reads` against what was read."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from sysperf.evaluate.scope import Touched, Value
from sysperf.model.finding import Evidence, Gap
from sysperf.model.record import Json, plain
from sysperf.model.snapshot import Area, Snapshot, Source
from sysperf.model.text import neutral
from sysperf.startup import lazy

MAX_EVIDENCE = 8
MAX_ITEMS = 16
MAX_MATCHES = 4_000
_WILD = lazy(r"[*?[]")
_ITEM_KEYS = ("pid", "index", "bus_id", "card", "address", "name", "id", "prefix")
_NVML, _DRM = "nvml:", "/sys/class/drm/"

_AS_ROOT = "run it as root: `sudo sysperf audit`"
_CONTAINED = "run it outside of this container, or in it as root"
"""An image has no sudo, and some files are covered for root, too."""
REMEDIES = (
    (r"[Pp]ermission|not permitted|EACCES|EPERM", _AS_ROOT),
    (r"not in this capture", "capture that machine again with `sysperf capture OUT.tar.zst`"),
    (r"--deep|only deep", "add `--deep`"),
    (r"NVML|[Dd]river", "install or load the NVIDIA driver, then run it again"),
    (r"Not Supported|do not offer", "nothing: this device or driver does not offer it"),
)


class Ledger:
    """What was read, looked up by the patterns that facts declare."""

    def __init__(self, snapshot: Snapshot, sources: Iterable[Source] = ()) -> None:
        self._snapshot = snapshot
        container = snapshot.areas.get("container", Area()).facts
        self._contained = bool(getattr(container, "inside", False))
        failed = (source for area in snapshot.areas.values() for source in area.failures)
        self._errors: dict[str, str | None] = {source.path: source.error for source in (*sources, *failed)}
        self._paths: list[str] | None = None
        self._matches: dict[tuple[str, str], list[str]] = {}

    def evidence(self, touched: Mapping[str, Touched], item: Value) -> tuple[Evidence, ...]:
        """The touched facts with their values and files."""
        chosen = list(touched.items())[:MAX_EVIDENCE]
        return tuple(Evidence(path, for_report(touched.value), self.source(touched.reads, item)) for path, touched in chosen)

    def gaps(self, facts: Mapping[str, str], reads: Mapping[str, tuple[str, ...]], item: Value) -> tuple[Gap, ...]:
        """The unknown facts with their reasons and what would make them readable."""
        gaps = []
        for path, given in list(facts.items())[:MAX_EVIDENCE]:
            reason = given or self.reason(path, reads.get(path, ()), item)
            advice = remedy(reason)
            gaps.append(Gap(path, neutral(reason), _CONTAINED if self._contained and advice == _AS_ROOT else advice))
        return tuple(gaps)

    def source(self, reads: tuple[str, ...], item: Value) -> str:
        """The path that was read for a fact; its pattern when no single one is known."""
        reads = _of_maker(reads, item)
        for pattern in reads:
            for path in self._matching(pattern, item):
                if self._errors[path] is None:
                    return path
        return reads[0] if reads else ""

    def reason(self, fact: str, reads: tuple[str, ...], item: Value) -> str:
        """Why a fact is unknown, in the words of what failed."""
        reads = _of_maker(reads, item)
        for pattern in reads:
            for path in self._matching(pattern, item):
                error = self._errors[path]
                if error is not None:
                    return f"{path.removeprefix('nvml:')}: {error}"
        area = self._snapshot.areas.get(_area_of(fact))
        if area is not None and area.problem:
            return area.problem
        if any(pattern.startswith(("probe:", "run:")) for pattern in reads) and not self._snapshot.deep:
            return "only read with --deep"
        return f"{reads[0]}: does not say" if reads else "this machine does not say"

    def _matching(self, pattern: str, item: Value) -> list[str]:
        if pattern in self._errors:
            return [pattern]
        if pattern.startswith("nvml:"):
            index = getattr(item, "index", "")
            return [path for path in self._starting(f"{pattern}({index}") if path[len(pattern) + 1 + len(str(index)) :][:1] in (",", ")")]
        if not _WILD.search(pattern):
            return []
        folder = getattr(item, "prefix", None)
        if isinstance(folder, str) and (inside := self._like(pattern, f"{folder}/")):
            return inside
        keys = [str(value) for name in _ITEM_KEYS if (value := getattr(item, name, None)) is not None]
        own = self._of_item(pattern, keys)
        if own or (hasattr(item, "pid") and pattern.startswith("/proc/[")):
            return own  # a file of another process is no evidence for this one
        paths = self._like(pattern)
        return [path for path in paths if not set(keys).isdisjoint(path.split("/"))] or paths if keys else paths

    def _of_item(self, pattern: str, keys: list[str]) -> list[str]:
        """What was read by this pattern with one of these names in it: looked up, for there may be 20,000 processes."""
        parts = pattern.split("/")
        for place, part in enumerate(parts):
            for key in keys if _WILD.search(part) else ():
                if not _matcher(part)(key) or "/" in key or _WILD.search(key):
                    continue
                before, after = parts[:place], parts[place + 1 :]
                path = "/".join((*before, key, *after))
                if path in self._errors:
                    return [path]
                if _WILD.search("/".join((*before, *after))) and (paths := self._like(path)):
                    return paths
        return []

    def _like(self, pattern: str, start: str = "") -> list[str]:
        """The paths that match a pattern; looked for once."""
        known = self._matches.get((pattern, start))
        if known is None:
            wild, matches = _WILD.search(pattern), _matcher(pattern)
            before = start or pattern[: wild.start() if wild else len(pattern)]
            known = self._matches[pattern, start] = [path for path in self._starting(before) if matches(path)]
        return known

    def _starting(self, prefix: str) -> list[str]:
        if self._paths is None:
            self._paths = sorted(self._errors)
        from bisect import bisect_left  # noqa: PLC0415 - 0.4 ms; a launch has few unknowns

        start = bisect_left(self._paths, prefix)
        paths = []
        for path in self._paths[start : start + MAX_MATCHES]:
            if not path.startswith(prefix):
                break
            paths.append(path)
        return paths


def _of_maker(reads: tuple[str, ...], gpu: Value) -> tuple[str, ...]:
    """The patterns that are about GPUs of this maker: what NVML says is no reason of another's."""
    maker = getattr(gpu, "vendor", None)
    if not isinstance(maker, str):
        return reads
    others = _DRM if maker == "nvidia" else _NVML
    return tuple(pattern for pattern in reads if not pattern.startswith(others))


@lru_cache(maxsize=1024)
def _matcher(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(fnmatch.translate(pattern)).match


_BOUND = {"proc": "process", "procs": "process", "gpus": "gpu", "env": "torch", "envs": "torch"}


def _area_of(fact: str) -> str:
    root = re.split(r"[.\[]", fact, maxsplit=1)[0]
    return _BOUND.get(root, root)


def remedy(reason: str) -> str:
    """What a person can do so that the next audit knows."""
    for pattern, advice in REMEDIES:
        if re.search(pattern, reason):
            return advice
    return ""


def for_report(value: Value) -> Json:
    """A fact's value as bounded JSON data for a report."""
    value = plain(value) if not isinstance(value, str) else value
    if isinstance(value, str):
        return neutral(value)
    if isinstance(value, list | tuple):
        kept = [for_report(item) for item in value[:MAX_ITEMS]]
        return [*kept, f"… {len(value) - MAX_ITEMS} more"] if len(value) > MAX_ITEMS else kept
    if isinstance(value, dict):
        return {neutral(str(key)): for_report(item) for key, item in list(value.items())[:MAX_ITEMS]}
    return value
