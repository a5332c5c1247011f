"""What makes a start cheap: one place for every trick, with what it saves.

| what              | where                 | saves                                                                  |
|-------------------|-----------------------|------------------------------------------------------------------------|
| `lazy`            | constants of modules  | 17 of an audit's 100 ms: it imports 160 patterns and uses a third      |
| `import_msgspec`  | all commands          | 8 ms of typing_extensions, as beside torch; 8 ms of schemas, formats, types of no record |
| `import_argparse` | all but --version     | 1 ms of gettext and its patterns                                       |
| `without_ssl`     | agent, tui            | 5 MB: asyncio imports ssl where it is there                            |
| `with_c_datetime` | agent                 | 0.2 MB: sqlite3 imports the datetime that is written in Python         |
| `with_late_tools` | agent                 | 1.3 MB: asyncio imports what reads source code and starts programs     |
| `with_late_parts` | tui                   | 0.7 MB: Textual imports what finds folders and what starts programs    |
| `small_pages`     | agent                 | 7 MB and more where the kernel gives huge pages unasked                |
| `without_garbage` | all but agent and tui | 4 ms: a run that ends at once frees nothing by searching               |
| `leave`           | all commands          | 5 ms of tearing down, and the wait for a thread that hangs in a driver |
| `share_one_heap`  | tui                   | 1 to 2 MB for each thread                                              |

This module is imported first of all, also by `--version`: it imports nothing that bare Python has not loaded already.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # as typing's, which costs 5 ms with what it imports
if TYPE_CHECKING:
    import re
    from contextlib import AbstractContextManager
    from types import ModuleType
    from typing import AnyStr, NoReturn

M_ARENA_MAX = -8
"""mallopt(3)."""
PR_SET_THP_DISABLE = 41
"""prctl(2)."""
CO_COROUTINE = 0x80
"""Of a code object's flags, as the module inspect names it."""


class LazyPattern:
    """Stands for a compiled pattern: the first attribute that is asked for compiles it."""

    _compiled: re.Pattern[str] | re.Pattern[bytes]

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "_compiled":
            import re  # noqa: PLC0415 - 5 ms, which --version need not pay

            value: object = re.compile(self._pattern, self._flags)
        else:
            value = getattr(self._compiled, name)
        setattr(self, name, value)  # asked for once
        return value


def lazy(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Compile a pattern as `re.compile`, later. For module constants; a mistake in the pattern shows when it is first used."""
    return LazyPattern(pattern, flags)  # type: ignore[return-value]  # it behaves as one


def import_msgspec() -> None:
    """Import msgspec without what a start does not need.

    For typing_extensions, typing has all that it needs, and for datetime, which wraps it before Python 3.12, _datetime. No record
    of ours holds a UUID or a Decimal; model/record.py reads and writes those of plugins. Schemas, what reads types for them, and
    formats other than JSON are imported when somebody asks for them.
    """
    if "msgspec" in sys.modules:
        return
    import _datetime  # type: ignore[import-not-found]  # noqa: PLC0415 - 0.3 ms, which --version need not pay

    with (
        _Instead("typing_extensions", None),
        _Instead("datetime", _datetime),
        _Instead("uuid", _Uuid()),
        _Instead("decimal", _Decimal()),
        _Instead("msgspec.inspect", _Later("msgspec.inspect")),
        _Instead("msgspec.msgpack", _Later("msgspec.msgpack")),
        _Instead("msgspec.toml", _Later("msgspec.toml")),
        _Instead("msgspec.yaml", _Later("msgspec.yaml")),
        _Instead("msgspec._json_schema", _Schemas("msgspec._json_schema")),
    ):
        import msgspec  # noqa: F401, PLC0415 - imported here so that it finds these


def import_argparse() -> None:
    """Import argparse without gettext: neither Python nor sysperf brings translations."""
    if "argparse" not in sys.modules:
        with _Instead("gettext", _Untranslated()):
            import argparse  # noqa: F401, PLC0415 - imported here so that it finds this


class _Untranslated:
    """All that argparse asks of the module gettext."""

    @staticmethod
    def gettext(message: str) -> str:
        return message

    @staticmethod
    def ngettext(singular: str, plural: str, number: int) -> str:
        return singular if number == 1 else plural


def without_ssl() -> AbstractContextManager[None]:
    """While asyncio is imported, ssl is not there."""
    return _Instead("ssl", None)


def with_c_datetime() -> AbstractContextManager[None]:
    """While sqlite3 is imported, datetime is its part in C, which has all that sqlite3 needs."""
    import _datetime  # noqa: PLC0415 - as in import_msgspec

    return _Instead("datetime", _datetime)


def with_late_tools() -> AbstractContextManager[object]:
    """While asyncio and dataclasses are imported, what they seldom use is imported when something of it is asked for."""
    return _late(_Inspect("inspect"), _Subprocess("subprocess"), _Later("linecache"), _Later("asyncio.sslproto"))


def with_late_parts() -> AbstractContextManager[object]:
    """While Textual is imported, what nothing of ours uses is imported when something of it is asked for: the folder for downloads, too."""
    return _late(_Folders("platformdirs"), _Subprocess("subprocess"), _Later("asyncio.sslproto"))


def _late(*tools: _Later) -> AbstractContextManager[object]:
    import contextlib  # noqa: PLC0415 - 1 ms, which only the agent and the dashboard pay

    stack = contextlib.ExitStack()
    for tool in tools:
        stack.enter_context(_Instead(tool.name, tool))
    return stack


class _Uuid:
    """All that msgspec asks of the module uuid."""

    class UUID: ...

    class SafeUUID:
        unknown = None


class _Decimal:
    """All that msgspec asks of the module decimal."""

    class Decimal: ...


class _Later:
    """Stands for a module, and imports it when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> object:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(self._real(), attribute)

    def _real(self) -> ModuleType:
        import importlib  # noqa: PLC0415 - a start needs no schema

        package, _, name = self.name.rpartition(".")
        if package and vars(sys.modules[package]).get(name) is self:  # a package's attribute comes before the module of that name
            delattr(sys.modules[package], name)
        if sys.modules.get(self.name) is self:  # type: ignore[comparison-overlap]  # where `_Instead` has put it
            del sys.modules[self.name]
        return importlib.import_module(self.name)


class _Inspect(_Later):
    """Answers what asyncio and dataclasses ask of the module inspect when they are imported and each time that a loop starts."""

    @staticmethod
    def isgenerator(value: object) -> bool:
        return type(value).__name__ == "generator"

    @staticmethod
    def isfunction(value: object) -> bool:
        return type(value).__name__ == "function"

    @staticmethod
    def iscoroutinefunction(function: object) -> bool:
        return bool(getattr(getattr(function, "__code__", None), "co_flags", 0) & CO_COROUTINE)

    @staticmethod
    def unwrap(function: object) -> object:
        return function

    @staticmethod
    def signature(_: object) -> str:
        """Return what the documentation of a class ends with."""
        return ""


class _Subprocess(_Later):
    """Has what asyncio names as it is imported."""

    PIPE, STDOUT, DEVNULL = -1, -2, -3


class _Schemas(_Later):
    """What msgspec.json takes from there by name."""

    def schema(self, *args: object, **options: object) -> object:
        return self._real().schema(*args, **options)

    def schema_components(self, *args: object, **options: object) -> object:
        return self._real().schema_components(*args, **options)


class _Folders(_Later):
    """What Textual takes from there by name."""

    def user_downloads_path(self) -> object:
        return self._real().user_downloads_path()


class _Instead:
    """While this lasts, `import module` gives something else, unless it was imported before. With None it fails."""

    def __init__(self, module: str, stand_in: object) -> None:
        self.module, self.stand_in = module, stand_in
        self.replaced = False

    def __enter__(self) -> None:
        self.replaced = self.module not in sys.modules
        if self.replaced:
            sys.modules[self.module] = self.stand_in  # type: ignore[assignment]  # None is how importlib spells "not there"

    def __exit__(self, *_: object) -> None:
        if self.replaced and sys.modules.get(self.module) is self.stand_in:
            del sys.modules[self.module]


def without_garbage() -> None:
    """Collect no garbage: one run, one report. What runs for long calls gc.enable()."""
    gc.disable()


def share_one_heap() -> None:
    """Let all threads allocate from one heap, where the C library is glibc."""
    import contextlib  # noqa: PLC0415 - as ctypes
    import ctypes  # noqa: PLC0415 - 4 ms, which only the dashboard pays

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def small_pages() -> None:
    """Get memory in small pages, also where the kernel gives huge ones unasked (transparent_hugepage = always, as in Debian).

    It would round each heap and each thread's stack up to 2 MB. What a process starts inherits this: none that starts programs of
    a user may ask for it.
    """
    import contextlib  # noqa: PLC0415 - as ctypes
    import ctypes  # noqa: PLC0415 - 4 ms, which only the agent pays

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def leave(code: int) -> NoReturn:
    """End the process at once, without tearing the interpreter down."""
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib costs 1 ms
            stream.flush()
        except OSError:  # noqa: PERF203 - nobody reads it any more, or the disk behind it is full
            pass
    os._exit(code)
