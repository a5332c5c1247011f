"""The rungs of one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sysperf_trainer.rung import Rung
from sysperf_trainer.rungs import BY_ID, RUNGS

ALL = "all"
"""Instead of ids: every rung of the ladder that changes the code, and that this machine can have."""


class UnknownRung(Exception):
    """A name that no rung has, or rungs that do not go together."""


class Chosen:
    """The rungs of one run: ``if ID in chosen``. A misspelt id is an error rather than a rung that is off."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._ids = tuple(dict.fromkeys(ids))
        for one in self._ids:
            _named(one)

    def __contains__(self, rung: str) -> bool:
        return _named(rung).id in self._ids

    def __iter__(self) -> Iterator[Rung]:
        """The chosen rungs, in the order of the ladder."""
        return (rung for rung in RUNGS if rung.id in self._ids)

    def check(self, workload: str) -> None:
        """Raise UnknownRung where these rungs do not go together, or one has no meaning for this workload."""
        for rung in self:
            if workload not in rung.workloads:
                raise UnknownRung(f"the rung {rung.id} has no meaning for the {workload} workload")
            absent = [other for other in rung.requires if other not in self]
            if absent:
                raise UnknownRung(f"the rung {rung.id} changes nothing without {' and '.join(absent)}")
            rivals = [other.id for other in self if other != rung and rung.instead_of in (other.id, other.instead_of or None)]
            if beside := [other for other in rung.excludes if other in self]:
                raise UnknownRung(f"the rung {rung.id} does not work beside {' and '.join(beside)}")
            if rung.instead_of and rivals:
                raise UnknownRung(f"the rung {rung.id} takes the place of {' and '.join(rivals)}: choose one")


def _named(rung: str) -> Rung:
    """The rung of this id. Raises UnknownRung."""
    try:
        return BY_ID[rung]
    except KeyError:
        from difflib import get_close_matches  # noqa: PLC0415 - for a message only

        close = get_close_matches(rung, BY_ID, 1)
        raise UnknownRung(f"no rung `{rung}`" + (f": did you mean `{close[0]}`?" if close else "")) from None
