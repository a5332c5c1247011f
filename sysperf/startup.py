"""What makes a start cheap: one place for every trick, with what it saves.

| what                      | where                 | saves                                                                |
|---------------------------|-----------------------|----------------------------------------------------------------------|
| `lazy`                    | constants of modules  | 17 of an audit's 100 ms: it imports 160 patterns and uses a third    |
| `import_msgspec`          | all commands          | 8 ms where typing_extensions is installed, as it is beside torch; 2 ms of platform |
| `without_ssl`             | agent, tui            | 5 MB: asyncio and http import ssl where it is there                  |
| `without_garbage`         | all but agent and tui | 4 ms: a run that ends at once frees nothing by searching             |
| `leave`                   | all commands          | 5 ms of tearing down, and the wait for a thread that hangs in a driver |
| `share_one_heap`          | tui                   | 1 to 2 MB for each thread                                            |

Imported first of all: only modules that the interpreter has loaded already, or that every command needs.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, AnyStr, NoReturn, cast

M_ARENA_MAX = -8
"""mallopt(3)."""


class LazyPattern:
    """Stands for a compiled pattern: the first attribute that is asked for compiles it."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self._source = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        compiled = re.compile(*self._source)
        value = getattr(compiled, name)
        for method in ("match", "fullmatch", "search", "sub", "findall", "finditer", "split"):
            setattr(self, method, getattr(compiled, method))
        return value


def lazy(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, later. For module constants; a mistake in the pattern shows when it is first used."""
    return cast("re.Pattern[AnyStr]", LazyPattern(pattern, flags))


def import_msgspec() -> None:
    """Import msgspec without typing_extensions: typing has all that it needs. It imports uuid, which asks platform for one word."""
    if "msgspec" not in sys.modules:
        with _absent("typing_extensions"), _instead("platform", SimpleNamespace(system=lambda: os.uname().sysname)):
            import msgspec  # noqa: F401, PLC0415 - imported here so that it finds no typing_extensions


def without_ssl() -> contextlib.AbstractContextManager[None]:
    """While asyncio and http are imported, ssl is not there."""
    return _absent("ssl")


def _absent(module: str) -> contextlib.AbstractContextManager[None]:
    """While this lasts, `import module` fails, unless it was imported before."""
    return _instead(module, None)  # how importlib spells "not there"


@contextlib.contextmanager
def _instead(module: str, stand_in: object) -> Iterator[None]:
    """While this lasts, `import module` gives something else, unless it was imported before."""
    replaced = module not in sys.modules
    if replaced:
        sys.modules[module] = stand_in  # type: ignore[assignment]  # what importlib takes
    try:
        yield
    finally:
        if replaced:
            del sys.modules[module]


def without_garbage() -> None:
    """Collect no garbage: one run, one report. What runs for long calls gc.enable()."""
    gc.disable()


def share_one_heap() -> None:
    """Let all threads allocate from one heap, where the C library is glibc."""
    import ctypes  # noqa: PLC0415 - 4 ms, which only the dashboard pays

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def leave(code: int) -> NoReturn:
    """End the process at once, without tearing the interpreter down."""
    with contextlib.suppress(OSError):  # the disk behind stderr is full
        sys.stderr.flush()
    os._exit(code)
