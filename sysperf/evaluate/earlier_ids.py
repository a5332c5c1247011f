"""Earlier ids of rules: a rule can still be named by one, and the command prints the id of today."""

from __future__ import annotations

from collections.abc import Iterable

from sysperf.model.rule import Rule


class EarlierIds:
    """The ids that rules had before, and which of them were used in this run."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._today = {earlier: rule.id for rule in rules for earlier in rule.formerly}
        self.used: dict[str, frozenset[str]] = {}
        """Earlier id, or pattern of such, → the ids of today that it named; in the order of use."""

    def of_record(self, name: str) -> str:
        """The id of today for the id in something that was stored, without a note to the user."""
        return self._today.get(name, name)

    def today(self, name: str) -> str:
        """The id of today for an id of a rule; any other text as it is."""
        if name in self._today:
            self.used[name] = frozenset({self._today[name]})
        return self._today.get(name, name)

    def add(self, pattern: str, today: frozenset[str], known: Iterable[str], *, area: bool = False) -> frozenset[str]:
        """The rules that a pattern names: those of `today`, and of the `known` ones those that it names by their earlier ids.

        A word of an area (`mem`) means earlier ids only where no rule of today has it: `cpu` means the area `cpu`.
        """
        from fnmatch import fnmatchcase  # noqa: PLC0415 - only waivers and selections need it

        words = f"{pattern}.*" if area and not today else pattern
        earlier = {rule for name, rule in self._today.items() if fnmatchcase(name, pattern) or fnmatchcase(name, words)}
        rules = today | (earlier & set(known))
        if rules != today:
            self.used[pattern] = rules - today
        return rules

    def notes(self) -> list[str]:
        """A sentence for each earlier id that was used."""
        return [f"`{earlier}` is an earlier name: today it is {_named(sorted(today))}" for earlier, today in self.used.items()]


def _named(rules: list[str]) -> str:
    more = f" and {len(rules) - 3} more" if len(rules) > 3 else ""
    return ", ".join(f"`{rule}`" for rule in rules[:3]) + more
