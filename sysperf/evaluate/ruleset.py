"""All rules in force: merged in order, selected, checked and compiled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from sysperf.evaluate.compiled import Compiled
from sysperf.evaluate.earlier_ids import EarlierIds
from sysperf.evaluate.rule_cache import read_cached
from sysperf.evaluate.rule_files import read_file
from sysperf.evaluate.schema import Schema, field, suggest
from sysperf.model.errors import RuleError
from sysperf.model.path import StrPath
from sysperf.model.record import JsonObject, TypeForm
from sysperf.model.rule import ITEMS, Override, Rule, RuleFile


class Ruleset:
    """All rules in force, in the order of their files; later files override earlier ones."""

    def __init__(self, files: Sequence[RuleFile], schema: Schema) -> None:
        self._schema = schema
        self.tables: dict[str, JsonObject] = {}
        self._rules: dict[str, Rule] = {}
        self._overrides: dict[str, Override] = {}
        self.earlier_ids = EarlierIds(rule for file in files for rule in file.rule)
        self._replaced: dict[str, tuple[str, str]] = {}
        self.notes = tuple(note for file in files for note in file.notes)
        """What the authors of the files should know."""
        for file in files:
            self.tables.update(file.table)
            self._replaced.update({rule.id: (rule.file, self._rules[rule.id].file) for rule in file.rule if rule.id in self._rules})
            self._rules.update({rule.id: rule for rule in file.rule})
            for override in file.override:
                self.override(override)
        self._compiled: dict[str, Compiled] = {}
        self.known_ids = frozenset(self._rules)
        """The ids of all rules, also of those that are disabled or not selected."""

    def override(self, override: Override) -> None:
        """Change the severity or parameters of a rule, or disable it. Raises RuleError when there is no such rule."""
        override = msgspec.structs.replace(override, rule=self.earlier_ids.today(override.rule))
        if override.rule not in self._rules:
            raise RuleError(
                f"override of `{override.rule}`: no such rule{suggest(override.rule, self._rules)}", "`sysperf rules list` shows all"
            )
        known = self._rules[override.rule].params
        for name in override.params:
            if name not in known:
                raise RuleError(f"override of `{override.rule}`: no parameter `{name}`{suggest(name, known)}")
        self._overrides[override.rule] = override

    def replaced_rules(self) -> list[str]:
        """Which rules of a later file took the place of an earlier file's, one sentence each."""
        return [
            f"`{rule}` of {later} replaces that of {earlier}" for rule, (later, earlier) in self._replaced.items() if rule in self._rules
        ]

    @cached_property
    def rules(self) -> list[Rule]:
        """The rules in force."""
        return [rule for rule in self._rules.values() if not self.disabled(rule.id)]

    def disabled(self, rule_id: str) -> bool:
        return rule_id in self._overrides and self._overrides[rule_id].disabled

    def get(self, rule_id: str) -> Rule:
        """A rule by its id, of today or earlier. Raises RuleError with a suggestion."""
        rule_id = self.earlier_ids.today(rule_id)
        if rule_id not in self._rules:
            some = any(_is_of(rule, rule_id) for rule in self._rules.values())
            which = f"`sysperf rules list --select {rule_id}` shows those of this area" if some else "`sysperf rules list` shows all"
            raise RuleError(f"no rule `{rule_id}`{'' if some else suggest(rule_id, self._rules)}", which)
        return self._rules[rule_id]

    def matching(self, pattern: str) -> frozenset[str]:
        """The ids of the rules that an id, an area or a pattern names, by ids of today or earlier."""
        from fnmatch import fnmatchcase  # noqa: PLC0415 - costs nothing, but only selections need it

        today = frozenset(rule.id for rule in self._rules.values() if fnmatchcase(rule.id, pattern) or _is_of(rule, pattern))
        return self.earlier_ids.add(pattern, today, self._rules, area=True)

    def select(self, select: Sequence[str], ignore: Sequence[str]) -> None:
        """Keep the rules that a pattern of `select` names (all when empty) and none of `ignore` does. Raises RuleError."""
        named = {pattern: self.matching(pattern) for pattern in (*select, *ignore)}
        for pattern, ids in named.items():
            if not ids:
                raise RuleError(f"no rule matches `{pattern}`{suggest(pattern, self._rules)}", "`sysperf rules list` shows all")
        wanted = frozenset().union(*(named[pattern] for pattern in select)) if select else self._rules.keys()
        unwanted = frozenset().union(*(named[pattern] for pattern in ignore))
        self._rules = {name: rule for name, rule in self._rules.items() if name in wanted and name not in unwanted}
        self.__dict__.pop("rules", None)

    def keep_scopes(self, scopes: Collection[str]) -> None:
        """Keep the rules of these scopes."""
        self._rules = {name: rule for name, rule in self._rules.items() if rule.scope in scopes}
        self.__dict__.pop("rules", None)

    def compiled(self, rule_id: str) -> Compiled:
        """The rule, compiled. Raises RuleError when it does not fit the facts."""
        if rule_id not in self._compiled:
            self._compiled[rule_id] = Compiled(self._rules[rule_id], self._schema, self._overrides.get(rule_id), self.tables.get("acts"))
        return self._compiled[rule_id]

    def check(self) -> None:
        """Compile every rule completely."""
        for rule in self._rules.values():
            self.compiled(rule.id).check()


def _is_of(rule: Rule, area: str) -> bool:
    """Whether the area is the first part of the rule's id, or the file it stands in."""
    return rule.id.startswith(f"{area}.") or rule.file == f"{area}.toml"


def make_schema(records: dict[str, type], later: Mapping[str, Callable[[], type]] | None = None) -> Schema:
    """The names of conditions for the areas' record types; those of `later` are made when they are first named."""
    roots: dict[str, TypeForm] = dict(records)
    reads: dict[str, tuple[str, ...]] = {}
    for bound, area, name in ITEMS.values():
        if area in records and (items := field(records[area], name)) is not None:
            roots[f"{bound}s"], reads[f"{bound}s"] = items.type, items.reads
    return Schema({**roots, **(later or {})}, reads)


def load(
    paths: Iterable[StrPath], schema: Schema, *, site: Iterable[StrPath] = (), cache: StrPath | None = None, scope: str | None = None
) -> Ruleset:
    """Read our own rule files and a site's. A site's are checked completely, ours by our tests.

    With `scope`, only the rules of that scope and what changes them are kept, so that no other rule costs time.
    Raises RuleError with file, rule and place of the first mistake.
    """
    own = [read_file(path) for path in site]
    files = [*read_cached(tuple(paths), cache), *own]
    ruleset = Ruleset(_of_scope(files, scope) if scope else files, schema)
    for rule in (rule for file in own for rule in file.rule):
        if scope in (None, rule.scope):
            ruleset.compiled(rule.id).check()
    return ruleset


def _of_scope(files: Sequence[RuleFile], scope: str) -> list[RuleFile]:
    kept = [msgspec.structs.replace(file, rule=tuple(rule for rule in file.rule if rule.scope == scope)) for file in files]
    known = {rule.id for file in kept for rule in file.rule}
    return [
        msgspec.structs.replace(file, override=tuple(override for override in file.override if override.rule in known)) for file in kept
    ]
