"""All rules in force: merged in order, selected, checked and compiled."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property

from sysperf.evaluate.compiled import Compiled
from sysperf.evaluate.rule_cache import of_scopes, read_cached
from sysperf.evaluate.rule_files import read_file
from sysperf.evaluate.schema import Schema, field, suggest
from sysperf.model.errors import RuleError
from sysperf.model.finding import Finding
from sysperf.model.path import StrPath
from sysperf.model.record import JsonObject, TypeForm
from sysperf.model.rule import ITEMS, SEVERITIES, Override, Rule, RuleFile, Severity


class Ruleset:
    """All rules in force, in the order of their files; later files override earlier ones."""

    def __init__(self, files: Sequence[RuleFile], schema: Schema, others: frozenset[str] = frozenset()) -> None:
        self._schema = schema
        self.others = others
        """The ids of rules that were left out when the files were read."""
        self.tables: dict[str, JsonObject] = {}
        self._rules: dict[str, Rule] = {}
        self._overrides: dict[str, Override] = {}
        self._compiled: dict[str, Compiled] = {}
        self._replaced: dict[str, tuple[str, str]] = {}
        for file in files:
            self.tables.update(file.table)
            self._replaced.update({rule.id: (rule.file, self._rules[rule.key].file) for rule in file.rule if rule.key in self._rules})
            self._rules.update({rule.key: rule for rule in file.rule})
            for override in file.override:
                self.override(override)
        self.known_ids = frozenset(rule.id for rule in self._rules.values())
        """The ids of all rules, also of those that are disabled or not selected."""

    def override(self, override: Override) -> None:
        """Change the severity or parameters of a rule, or disable it. Raises RuleError when there is no such rule.

        A rule that was left out stays left out.
        """
        if override.rule in self.others:
            return
        if not (witnesses := self.witnesses(override.rule)):
            suggested = self._suggested(override.rule)
            raise RuleError(f"override of `{override.rule}`: no such rule{suggested}", "`sysperf rules list` shows all")
        known = [name for rule in witnesses for name in rule.params]
        for name in override.params:
            if name not in known:
                raise RuleError(f"override of `{override.rule}`: no parameter `{name}`{suggest(name, known)}")
        self._overrides[override.rule] = override
        for key in [key for key, compiled in self._compiled.items() if compiled.rule.id == override.rule]:
            del self._compiled[key]  # a site's files are compiled when they are read, to be checked

    def replaced_rules(self) -> list[str]:
        """Which rules of a later file took the place of an earlier file's, one sentence each."""
        return [
            f"`{rule}` of {later} replaces that of {earlier}" for rule, (later, earlier) in self._replaced.items() if self.witnesses(rule)
        ]

    @cached_property
    def rules(self) -> list[Rule]:
        """The rules in force."""
        return [rule for rule in self._rules.values() if not self.disabled(rule.id)]

    def disabled(self, rule_id: str) -> bool:
        return rule_id in self._overrides and self._overrides[rule_id].disabled

    def severity(self, rule: Rule) -> Severity:
        """Return how severe a rule's findings are here: an override may say."""
        override = self._overrides.get(rule.id)
        return (override and override.severity) or rule.severity

    def witnesses(self, rule_id: str) -> list[Rule]:
        """Return the witnesses of a cause, or the one rule of this id; none where there is neither."""
        return [rule for rule in self._rules.values() if rule.id == rule_id]

    def get(self, rule_id: str) -> Rule:
        """Return a rule, or the first witness of a cause, by its id. Raises RuleError with a suggestion."""
        if witnesses := self.witnesses(rule_id):
            return witnesses[0]
        if any(_is_of(rule, rule_id) for rule in self._rules.values()):
            raise RuleError(f"no rule `{rule_id}`", f"`sysperf rules list --select {rule_id}` shows those of this area")
        suggested = self._suggested(rule_id)
        raise RuleError(f"no rule `{rule_id}`{suggested}", "`sysperf rules list` shows all" if suggested else self._where_to_look(rule_id))

    def _where_to_look(self, name: str) -> str:
        """The command that lists the rules whose ids have a word of this name: of its words the rarest."""
        named = {word: sum(word in rule.id for rule in self._rules.values()) for word in re.findall(r"[a-z0-9]{3,}", name.lower()[:80])}
        word = min((word for word, many in named.items() if many), key=named.__getitem__, default="")
        return f"`sysperf rules list --select '*{word}*'` shows those with this word" if word else "`sysperf rules list` shows all"

    def _suggested(self, name: str) -> str:
        return suggest(name, {rule.id: rule for rule in self._rules.values()})

    def matching(self, pattern: str) -> frozenset[str]:
        """The ids of the rules that an id, an area or a pattern names."""
        from fnmatch import fnmatchcase  # noqa: PLC0415 - costs nothing, but only selections need it

        return frozenset(rule.id for rule in self._rules.values() if fnmatchcase(rule.id, pattern) or _is_of(rule, pattern))

    def select(self, select: Sequence[str], ignore: Sequence[str]) -> None:
        """Keep the rules that `select` names (all when empty) and `ignore` does not. Raises RuleError.

        Both take what `matching` does, a severity, of which a cause may have several, and ``ALL``.
        """
        wanted, unwanted = (frozenset().union(*map(self._named, patterns)) for patterns in (select or ("ALL",), ignore))
        self._rules = {key: rule for key, rule in self._rules.items() if key in wanted and key not in unwanted}
        self.__dict__.pop("rules", None)

    def _named(self, pattern: str) -> frozenset[str]:
        """Return the keys of the rules that a selection names. Raises RuleError where it names none."""
        if pattern == "ALL":
            return frozenset(self._rules)
        if pattern in SEVERITIES:
            return frozenset(key for key, rule in self._rules.items() if self.severity(rule) == pattern)
        ids = self.matching(pattern)
        if not ids:
            raise RuleError(f"no rule matches `{pattern}`{self._suggested(pattern)}", "`sysperf rules list` shows all")
        return frozenset(key for key, rule in self._rules.items() if rule.id in ids)

    def keep_scopes(self, scopes: Collection[str]) -> None:
        """Keep the rules of these scopes."""
        self._rules = {name: rule for name, rule in self._rules.items() if rule.scope in scopes}
        self.__dict__.pop("rules", None)

    def compiled(self, key: str) -> Compiled:
        """Return a rule by its key, compiled. Raises RuleError when it does not fit the facts."""
        if key not in self._compiled:
            rule = self._rules[key]
            self._compiled[key] = Compiled(rule, self._schema, self._overrides.get(rule.id), self.tables.get("acts"))
        return self._compiled[key]

    def of(self, outcome: Finding) -> Compiled:
        """Return the rule that an outcome is of."""
        return self.compiled(outcome.rule_key)

    def check(self) -> None:
        """Compile every rule completely, and follow what explains what. Raises RuleError."""
        for rule in self._rules.values():
            self.compiled(rule.key).check()
        check_explanations(self._rules.values())


def _is_of(rule: Rule, area: str) -> bool:
    """Whether the area is the first part of the rule's id, the file it stands in, or from where a witness looks."""
    return rule.id.startswith(f"{area}.") or rule.file == f"{area}.toml" or rule.witness.partition("-")[0] == area


def check_explanations(rules: Iterable[Rule]) -> None:
    """Each cause that another explains exists, and none explains itself in a circle. Raises RuleError."""
    explains = {rule.id: rule.explains for rule in rules}
    for rule in rules:
        for other in (*rule.explains, *rule.explains_where_most):
            if other not in explains:
                raise RuleError(f"{rule.file}: `{rule.id}` explains `{other}`: no such cause{suggest(other, explains)}")
    ended: set[str] = set()
    for name in explains:
        _follow(name, (), explains, ended)


def _follow(name: str, path: tuple[str, ...], explains: Mapping[str, tuple[str, ...]], ended: set[str]) -> None:
    if name in path:
        circle = " → ".join((*path[path.index(name) :], name))
        raise RuleError(f"causes explain each other in a circle: {circle}", "move one of them to `explains_where_most`")
    if name not in ended:
        for other in explains[name]:
            _follow(other, (*path, name), explains, ended)
        ended.add(name)


def make_schema(records: dict[str, type], later: Mapping[str, Callable[[], type]] | None = None) -> Schema:
    """The names of conditions for the areas' record types; those of `later` are made when they are first named."""
    roots: dict[str, TypeForm] = dict(records)
    reads: dict[str, tuple[str, ...]] = {}
    for bound, area, name in ITEMS.values():
        if area in records and (items := field(records[area], name)) is not None:
            roots[f"{bound}s"], reads[f"{bound}s"] = items.type, items.reads
    return Schema({**roots, **(later or {})}, reads)


def load(
    paths: Iterable[StrPath],
    schema: Schema,
    *,
    site: Iterable[StrPath] = (),
    cache: StrPath | None = None,
    scopes: Collection[str] = (),
) -> Ruleset:
    """Read our own rule files and a site's. A site's are checked completely, ours by our tests.

    With `scopes`, only their rules are kept, so that no other rule costs time or memory: a cache holds those of its scopes alone.
    Raises RuleError with file, rule and place of the first mistake.
    """
    shipped = read_cached(tuple(paths), cache, scopes)
    own = of_scopes([read_file(path) for path in site], scopes)
    ruleset = Ruleset([*shipped.files, *own.files], schema, shipped.others | own.others)
    for rule in (rule for file in own.files for rule in file.rule):
        ruleset.compiled(rule.key).check()
    if own.files and not scopes:
        check_explanations(ruleset.rules)
    return ruleset
