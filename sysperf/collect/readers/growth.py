"""How much counters of the machine grow while nobody else looks."""

import time
from collections.abc import Iterable, Mapping
from time import sleep as pause

from sysperf.procfs.numbers import whole


def growth(paths: Iterable[str], seconds: float) -> tuple[Mapping[str, int], float]:
    """Return by how much each counter grew and the seconds that passed, without files that gave no number both times."""
    start = time.monotonic()
    before = {path: counter for path in paths if (counter := _counter(path)) is not None}
    pause(seconds)
    after = {path: _counter(path) for path in before}
    passed = time.monotonic() - start
    return {path: max(0, last - before[path]) for path, last in after.items() if last is not None}, passed


def _counter(path: str) -> int | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return whole(file.read(32).strip())
    except OSError:
        return None
