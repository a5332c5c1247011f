"""Regular expressions that are compiled when they are first used.

An audit imports some 160 patterns and uses a third of them; compiling all would take 17 of its 100 ms.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _Lazy:
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
    return cast("re.Pattern[AnyStr]", _Lazy(pattern, flags))
