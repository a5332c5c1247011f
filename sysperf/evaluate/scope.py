"""What the names of a condition mean while it is evaluated, what it touched, and what it may spend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sysperf.model.errors import RuleError
from sysperf.model.record import Record

MAX_STEPS = 100_000

Value = Any  # any: what facts and expressions are: numbers, texts, records, lists of these, or Unknown


class Touched(Record):
    """A fact that was looked at: its value, and what it is read from."""

    value: Value
    reads: tuple[str, ...]


class Scope:
    """What the names mean while a condition is evaluated, and what it touched."""

    __slots__ = ("names", "steps", "tables", "touched")

    def __init__(self, names: dict[str, Value], tables: Mapping[str, Mapping[str, Value]] | None = None) -> None:
        self.names = names
        self.tables = tables or {}
        self.touched: dict[str, Touched] | None = {}
        """The facts that were looked at, by their path; None while nobody keeps a record."""
        self.steps = 0

    def restart(self) -> None:
        """Begin with another subject: a new budget, and no record of what is touched."""
        self.touched, self.steps = None, 0

    def record(self) -> None:
        """Begin anew, and keep what is touched."""
        self.touched, self.steps = {}, 0

    def spend(self, steps: int = 1) -> None:
        """Count steps of a loop. Raises RuleError past the budget."""
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise RuleError(f"the condition takes more than {MAX_STEPS} steps")


Node = Callable[[Scope], Value]
