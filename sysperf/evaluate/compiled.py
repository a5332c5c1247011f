"""One rule, ready to be judged: its conditions and texts, compiled when they are first needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal

from sysperf.evaluate.acts import Acts, check_acts, settled
from sysperf.evaluate.expression import Expression, compile_expression
from sysperf.evaluate.schema import Schema, element
from sysperf.evaluate.scope import Scope, Value
from sysperf.evaluate.syntax import names_in
from sysperf.evaluate.template import FOR_READERS, Template, compile_template
from sysperf.model.errors import RuleError
from sysperf.model.record import TypeForm
from sysperf.model.rule import ITEMS, Advice, AnyFix, Fix, Override, Rule

_LISTS = {f"{bound}s": area for bound, area, _ in ITEMS.values()}
"""The area of each list that has a name of its own."""


class Compiled:
    """One rule, ready to be judged. Each part is compiled when it is first needed: most rules end at `applies`."""

    def __init__(self, rule: Rule, schema: Schema, override: Override | None = None, acts: Acts | None = None) -> None:
        self.rule = rule
        self._acts = acts or {}
        self.severity = override.severity if override and override.severity else rule.severity
        self._params = {**rule.params, **(override.params if override else {})}
        self.loop, self.items = self._loop(schema)
        self._schema = schema.bind(self.loop, self._item_type) if self.loop else schema
        self._templates: dict[str, Template] = {}

    def _loop(self, schema: Schema) -> tuple[str, Callable[[Scope], Value]]:
        self._item_type: TypeForm = None
        self._listed: frozenset[str] = frozenset()
        source = self.rule.for_each
        if self.rule.scope in ITEMS:
            if source:
                raise self._error("for_each", RuleError(f"a rule of scope {self.rule.scope} is judged once an item already"))
            source = f"{ITEMS[self.rule.scope][0]} in {ITEMS[self.rule.scope][0]}s"
        if not source:
            return "", lambda _: ()
        name, word, listed = source.partition(" in ")
        if not word or not name.strip().isidentifier() or name.strip().startswith("_"):
            raise self._error("for_each", RuleError(f"`{source[:60]}` does not read `name in list`"))
        try:
            items = compile_expression(listed, schema, self._params)
            self._listed = items.names
        except RuleError as error:
            raise self._error("for_each", error) from None
        self._item_type = element(items.type)
        return name.strip(), items.run

    @cached_property
    def applies(self) -> Expression | None:
        """The condition under which the rule has something to say; None: always."""
        return self.expression(self.rule.applies, "applies") if self.rule.applies else None

    @cached_property
    def when(self) -> Expression:
        """The condition that makes a finding."""
        return self.expression(self.rule.when, "when")

    def expression(self, text: str, place: str) -> Expression:
        """Compile a condition of this rule. Raises RuleError that names the file, the rule and the place."""
        try:
            return compile_expression(text, self._schema, self._params)
        except RuleError as error:
            raise self._error(place, error) from None

    def template(self, text: str, place: str = "fix") -> Template:
        """Compile a text with blanks of this rule."""
        if text not in self._templates:
            try:
                self._templates[text] = compile_template(text, self._schema, self._params)
            except RuleError as error:
                raise self._error(place, error) from None
        return self._templates[text]

    def message(self) -> Template:
        return self.template(self.rule.message, "message")

    def guards(self) -> list[tuple[Expression, str]]:
        """The conditions of `unless`, each with its reason."""
        return self._guards

    @cached_property
    def _guards(self) -> list[tuple[Expression, str]]:
        return [(self.expression(guard.when, f"unless[{index}].when"), guard.because) for index, guard in enumerate(self.rule.unless)]

    @property
    def areas(self) -> frozenset[str]:
        """The areas whose facts decide what it says: those that its conditions name, by themselves or through an item."""
        rule = self.rule
        conditions = [rule.when, *([rule.applies] if rule.applies else []), *(guard.when for guard in rule.unless)]
        names = self._listed.union(*map(names_in, conditions))
        if self.loop in names:  # an item has the facts of the list that it is from, and a list those of its area
            names = names - {self.loop} | self._listed
        return frozenset(_LISTS.get(name, name) for name in names)

    @cached_property
    def fixes(self) -> tuple[AnyFix, ...]:
        """The fixes, with the safety that the table `acts` gives to what they do."""
        return tuple(settled(fix, self._acts) for fix in self.rule.fix)

    def offers(self, fix: Fix, scope: Scope) -> bool:
        """Whether a fix is one for this machine; where nobody can tell, it stays only if all of its blanks can be filled."""
        for_it = not fix.when or self.expression(fix.when, "fix.when")(scope)
        return for_it is True or (for_it is not False and all(self.template(text).is_known(scope) for text in texts_of(fix)))

    def percent(self, key: Literal["cost", "work", "saves", "saves_least"], scope: Scope) -> float | None:
        """The share of the time that it is about, by its expression of this name; None where it has none, or that is unknown."""
        rule = self.rule
        text = {"cost": rule.cost, "work": rule.work, "saves": rule.saves, "saves_least": rule.saves_least}[key]
        value = self.expression(text, key)(scope) if text else None
        return max(0.0, float(value)) if isinstance(value, int | float) else None

    def check(self) -> None:
        """Compile everything that is otherwise compiled when needed. Raises RuleError on the first mistake."""
        _ = (self.applies, self.when, self.message(), self.guards())
        for index, signal in enumerate(self.rule.signals):
            self.expression(signal.when, f"signals[{index}].when")
            self.template(signal.says, f"signals[{index}].says")
        for index, fix in enumerate(self.fixes):
            self._check_fix(fix, f"fix[{index}]")

    def _check_fix(self, fix: Fix, place: str) -> None:
        from sysperf.evaluate.fix_check import check_fix  # noqa: PLC0415 - 0.7 ms; what is shipped was checked by its tests

        if fix.when and self.rule.scope == "launch":
            raise self._error(place, RuleError("a start takes all of a rule's fixes: `when` belongs into the rule"))
        for text in texts_of(fix):
            self.template(text, place)
        self._check_command(fix, place)
        for name in ("when", "verify"):
            if text := getattr(fix, name):
                self.expression(text, f"{place}.{name}")
        try:
            check_fix(fix)
            if self.rule.scope != "launch":
                check_acts(fix, self._acts)
        except RuleError as error:
            raise self._error(place, error) from None

    def _check_command(self, fix: Fix, place: str) -> None:
        """A shell takes `1000`, not `1,000`, and `2147483648`, not `2 GiB`."""
        if not isinstance(fix, Advice):
            return
        for text in (fix.command, fix.undo):
            if unfit := self.template(text, place).filters() & FOR_READERS:
                hint = "`|plain` writes a number, `|words` a list, both for a shell"
                raise self._error(place, RuleError(f"`|{min(unfit)}` in a command writes what only people read", hint))

    def _error(self, place: str, error: RuleError) -> RuleError:
        return RuleError(f"{self.rule.file or 'rule'}: {self.rule.id}.{place}: {error}", error.hint)


def texts_of(fix: Fix) -> list[str]:
    """The texts of a fix that may have blanks."""
    texts = [fix.title, fix.note, *(getattr(fix, name, "") for name in ("was", "item", "cpus", "nodes", "text", "command", "undo"))]
    return [text for text in (*texts, *getattr(fix, "set", {}).values()) if text]
