"""The interfaces that profilers implement, and their loader.

A profiler is a module that an installed distribution names in its entry points, ours and anybody's alike:

    [project.entry-points."sysperf.profilers"]
    pyspy = "sysperf_pyspy"

It is imported when it is asked for by name, and never otherwise. A plugin sees `sysperf.model`, `sysperf.host` and this
module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from sysperf.host import Host
from sysperf.model.errors import UsageError
from sysperf.model.profile import Samples, Stacks, Trace, TraceWish

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "sysperf.profilers"

Tell = Callable[[str], None]
"""Told about progress, at least every second or so; what it raises ends the work, and nothing is left behind."""


class StackTaker(Protocol):
    """Takes call stacks of a running program. Both raise SysperfError."""

    def dump(self, host: Host, pid: int) -> Stacks:
        """Where all its threads are now."""

    def sample(self, host: Host, pid: int, seconds: int) -> Samples:
        """Where its threads are, many times a second."""


class Tracer(Protocol):
    """Takes traces of a running program."""

    def owner(self, host: Host, pid: int) -> tuple[int, int]:
        """(uid, gid) of a program that can be traced from here. Raises SysperfError with the reason where it can not."""

    def trace(self, host: Host, wish: TraceWish, tell: Tell) -> Trace:
        """Have the program write a trace. Raises SysperfError."""


def names() -> list[str]:
    """The profilers that are installed."""
    return sorted({one.name for one in _installed()})


def stack_taker(name: str = "pyspy") -> StackTaker:
    """The profiler of this name. Raises UsageError."""
    return cast("StackTaker", _load(name, ("dump", "sample")))


def tracer(name: str = "torch") -> Tracer:
    """The profiler of this name. Raises UsageError."""
    return cast("Tracer", _load(name, ("owner", "trace")))


def _load(name: str, needed: tuple[str, ...]) -> object:
    found = [one for one in _installed() if one.name == name]
    if len({one.value for one in found}) > 1:
        raise UsageError(f"several packages call a profiler `{name}`: {', '.join(sorted(one.value for one in found))}", "keep one of them")
    if not found:
        raise UsageError(f"no profiler `{name}` is installed", "install sysperf again: its own plugins come with it")
    try:
        module: object = found[0].load()
    except ImportError as error:
        raise UsageError(f"the profiler `{name}` cannot be imported: {error}", "install its package again") from None
    absent = [one for one in needed if not callable(getattr(module, one, None))]
    if absent:
        raise UsageError(
            f"the profiler `{name}` ({found[0].value}) has no {' and no '.join(absent)}", "use a version made for this sysperf"
        )
    return module


def _installed() -> list[EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms, which only profiling pays

    return list(entry_points(group=GROUP))
