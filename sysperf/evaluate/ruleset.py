"""Rule files: found, decoded strictly, merged in order, checked and compiled."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from sysperf import __version__
from sysperf.evaluate.acts import Acts, check_acts, settled
from sysperf.evaluate.earlier_ids import EarlierIds
from sysperf.evaluate.expression import Expression, Scope, compile_expression, names_in
from sysperf.evaluate.schema import Schema, element, fields, suggest
from sysperf.evaluate.template import FOR_READERS, Template, compile_template
from sysperf.host.files import write_whole
from sysperf.model.errors import RuleError
from sysperf.model.knob import SETTABLE, SYSCTLS, SYSFS, Knob
from sysperf.model.path import StrPath
from sysperf.model.record import convert, from_json, to_json
from sysperf.model.rule import ITEMS, Advice, AnyFix, Fix, Override, Rule, RuleFile, SetKnob, Sysctl, Sysfs
from sysperf.startup import lazy

MAX_FILE_BYTES = 2 << 20
MAX_FILES = 200
WITHDRAWN_RULE_FIELDS = ("rev", "tags", "replaced_by")
WITHDRAWN_PACK_FIELDS = ("data_as_of",)
_GROUPED = lazy(r"\{[^{}]*\|\s*num\s*\}")
_QUOTE_OR_BLANK = lazy(r"\\.|\{\{|\{[^{}]*\}|['\"]")
_ID = r"[a-z0-9]+([.-][a-z0-9]+)+"


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

    def _loop(self, schema: Schema) -> tuple[str, Callable[[Scope], Any]]:
        self._item_type: Any = None
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
        return self._areas_of(self._listed.union(*map(names_in, conditions)))

    def areas_of_texts(self, texts: Iterable[str]) -> frozenset[str]:
        """The areas that texts with blanks of this rule name: its message, or what a fix sets."""
        return self._areas_of(frozenset[str]().union(*(self.template(text).names for text in texts)))

    def _areas_of(self, names: frozenset[str]) -> frozenset[str]:
        """An item has the facts of the list that it is from, and a list those of its area."""
        if self.loop in names:
            names = names - {self.loop} | self._listed
        return frozenset(_LISTS.get(name, name) for name in names)

    @cached_property
    def fixes(self) -> tuple[AnyFix, ...]:
        """The fixes, with the safety that the table `acts` gives to what they do."""
        return tuple(settled(fix, self._acts) for fix in self.rule.fix)

    def check(self) -> None:
        """Compile everything that is otherwise compiled when needed. Raises RuleError on the first mistake."""
        _ = (self.applies, self.when, self.message(), self.guards())
        for index, fix in enumerate(self.fixes):
            self._check_fix(fix, f"fix[{index}]")

    def _check_fix(self, fix: Fix, place: str) -> None:
        for text in _texts(fix):
            self.template(text, place)
        self._check_command(fix, place)
        if fix.verify:
            self.expression(fix.verify, f"{place}.verify")
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


def _texts(fix: Fix) -> list[str]:
    texts = [fix.title, fix.note, *(getattr(fix, name, "") for name in ("was", "item", "cpus", "nodes", "text", "command", "undo"))]
    return [text for text in (*texts, *getattr(fix, "set", {}).values()) if text]


def check_fix(fix: Fix) -> None:
    """A fix chooses among our knobs and stays within their ranges; only a person runs a command."""
    if isinstance(fix, Sysctl):
        _check_knob(fix.key, fix.value, SYSCTLS, "sysctl")
    if isinstance(fix, Sysfs):
        _check_knob(fix.knob, fix.value, SYSFS, "sysfs knob")
        _check_item(fix, SYSFS[fix.knob])
    if isinstance(fix, SetKnob):
        _check_knob(fix.knob, fix.value, SETTABLE, "setting")
        _check_item(fix, SETTABLE[fix.knob])
    if isinstance(fix, Advice):
        _check_commands(fix)
    if isinstance(fix, Advice) and fix.safety == "safe":
        raise RuleError("advice is done by a person: its safety is `manual` or `caution`")
    if fix.numerics and fix.safety == "safe":
        raise RuleError("a fix that can change results is never `safe`")


def _check_commands(fix: Advice) -> None:
    """A command is pasted into a shell: a number in it is written plainly, and only what has a command can be taken back by one."""
    for name in ("command", "undo"):
        if _GROUPED.search(getattr(fix, name)):
            raise RuleError(f"`{name}` groups the digits of a number: no program takes 1,000", "leave `|num` out")
        if _quoted_blank(getattr(fix, name)):
            raise RuleError(f"`{name}` has a blank inside of quotes, which the quotes of its value would end", "put the blank outside")
    if fix.undo and not fix.command:
        raise RuleError("`undo` takes back a command, and there is none")


def _quoted_blank(command: str) -> bool:
    """Whether a blank stands where a shell reads a quotation."""
    quote = ""
    for part in _QUOTE_OR_BLANK.findall(command):
        if part[0] == "{":
            if quote and part not in ("{{", "}}"):
                return True
        elif part[0] != "\\" and quote in ("", part):
            quote = "" if quote else part
    return False


def _check_item(fix: Sysfs | SetKnob, knob: Knob) -> None:
    if knob.per_item != bool(fix.item):
        raise RuleError(f"`{knob.name}` {'needs' if knob.per_item else 'takes no'} `item`")


def _check_knob(name: str, value: str | int, knobs: dict[str, Any], what: str) -> None:
    if name not in knobs:
        raise RuleError(f"`{name}` is no {what} that sysperf may change{suggest(name, knobs)}", f"it may change {', '.join(knobs)}")
    if not knobs[name].accepts(value):
        raise RuleError(f"{value!r} is no value that `{name}` may be set to")


class Ruleset:
    """All rules in force, in the order of their files; later files override earlier ones."""

    def __init__(self, files: Sequence[RuleFile], schema: Schema) -> None:
        self._schema = schema
        self.tables: dict[str, dict[str, Any]] = {}
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


# ---------------------------------------------------------------------- reading


def _is_of(rule: Rule, area: str) -> bool:
    """Whether the area is the first part of the rule's id, or the file it stands in."""
    return rule.id.startswith(f"{area}.") or rule.file == f"{area}.toml"


def make_schema(records: dict[str, type], later: Mapping[str, Callable[[], type]] | None = None) -> Schema:
    """The names of conditions for the areas' record types; those of `later` are made when they are first named."""
    roots: dict[str, Any] = dict(records)
    reads: dict[str, tuple[str, ...]] = {}
    for bound, area, name in ITEMS.values():
        if area in records:
            field = fields(records[area])[name]
            roots[f"{bound}s"], reads[f"{bound}s"] = field.type, field.reads
    return Schema({**roots, **(later or {})}, reads)


def load(
    paths: Iterable[StrPath], schema: Schema, *, site: Iterable[StrPath] = (), cache: StrPath | None = None, scope: str | None = None
) -> Ruleset:
    """Read our own rule files and a site's. A site's are checked completely, ours by our tests.

    With `scope`, only the rules of that scope and what changes them are kept, so that no other rule costs time.
    Raises RuleError with file, rule and place of the first mistake.
    """
    own = [read_file(path) for path in site]
    files = [*_decoded(tuple(paths), cache), *own]
    ruleset = Ruleset(_of_scope(files, scope) if scope else files, schema)
    for rule in (rule for file in own for rule in file.rule):
        if scope in (None, rule.scope):
            ruleset.compiled(rule.id).check()
    return ruleset


def _decoded(paths: Sequence[StrPath], cache: StrPath | None) -> list[RuleFile]:
    files = _cached(paths, cache) if cache else None
    if files is None:
        files = [_without_tests(read_file(path)) for path in paths]
        if cache:
            _store(paths, cache, files)
    return files


def _without_tests(file: RuleFile) -> RuleFile:
    """`sysperf rules test` reads the file itself; everybody else would only carry them about."""
    return msgspec.structs.replace(file, rule=tuple(msgspec.structs.replace(rule, test=()) for rule in file.rule))


def _of_scope(files: Sequence[RuleFile], scope: str) -> list[RuleFile]:
    kept = [msgspec.structs.replace(file, rule=tuple(rule for rule in file.rule if rule.scope == scope)) for file in files]
    known = {rule.id for file in kept for rule in file.rule}
    return [msgspec.structs.replace(file, override=tuple(one for one in file.override if one.rule in known)) for file in kept]


def read_file(path: StrPath) -> RuleFile:
    """Decode one rule file strictly. Raises RuleError."""
    import tomli  # noqa: PLC0415 - 7 ms; audits read the decoded rules from a cache

    try:
        with open(path, "rb") as file:
            _refuse_foreign(path, os.fstat(file.fileno()))
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise RuleError(f"{path}: {error.strerror or error}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise RuleError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB", "split it, or move data out of it")
    try:
        data = tomli.loads(raw.decode())
    except (ValueError, RecursionError) as error:  # TOML and UTF-8 errors, and numbers of more than 4,300 digits
        raise RuleError(f"{path}: not TOML: {error}") from None
    notes = _without_withdrawn_fields(data, os.path.basename(path))
    try:
        file_record: RuleFile = msgspec.structs.replace(convert(data, RuleFile), notes=notes)
    except (msgspec.ValidationError, ValueError) as error:
        raise RuleError(f"{path}: {_readable(str(error), data)}", "docs/rules.md describes the format") from None
    return _named(file_record, path)


def _without_withdrawn_fields(data: dict[str, Any], name: str) -> tuple[str, ...]:
    """Drop fields that earlier versions accepted and nothing ever read, so that a site's files still load; a note of each."""
    rules = data.get("rule")
    tables: list[tuple[Any, tuple[str, ...]]] = [(data.get("pack"), WITHDRAWN_PACK_FIELDS)]
    tables += [(rule, WITHDRAWN_RULE_FIELDS) for rule in (rules if isinstance(rules, list) else ())]
    dropped = {field for table, fields_ in tables if isinstance(table, dict) for field in fields_ if table.pop(field, None) is not None}
    return tuple(f"`{field}` in {name} has no effect: remove it" for field in sorted(dropped))


def _readable(message: str, data: dict[str, Any]) -> str:
    """`Object contains unknown field` and its like, with the id of the rule it speaks of."""
    import re  # noqa: PLC0415 - errors only

    found = re.search(r"\$\.rule\[(\d+)\]", message)
    if found:
        rules = data.get("rule", [])
        rule = rules[int(found[1])] if int(found[1]) < len(rules) else {}
        return f"{message} (rule `{rule.get('id', '?')}`)"
    return message


def _named(file: RuleFile, path: StrPath) -> RuleFile:
    import re  # noqa: PLC0415 - errors only

    seen: set[str] = set()
    for rule in file.rule:
        if not re.fullmatch(_ID, rule.id):
            raise RuleError(f"{path}: `{rule.id[:60]}` is no rule id", "ids are dotted lower-case words: numa.balancing-on")
        if rule.id in seen:
            raise RuleError(f"{path}: `{rule.id}` is defined twice")
        seen.add(rule.id)
    return msgspec.structs.replace(file, rule=tuple(msgspec.structs.replace(rule, file=os.path.basename(path)) for rule in file.rule))


def _refuse_foreign(path: StrPath, status: os.stat_result) -> None:
    """Root believes only rules that nobody else can write."""
    if os.geteuid() != 0:
        return
    if status.st_uid != 0:
        raise RuleError(f"{path}: owned by uid {status.st_uid}, and root reads only its own rules", f"sudo chown root {path}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RuleError(f"{path}: others may write it, and root reads only rules that only root can write", f"sudo chmod go-w {path}")


def site_files(folders: Iterable[str], extra: Iterable[StrPath] = ()) -> list[str]:
    """The rule files of the site's folders, then those named on the command line (files or folders)."""
    found = [path for folder in folders for path in toml_files(folder)]
    for place in (os.fspath(one) for one in extra):
        found += toml_files(place) if os.path.isdir(place) else [place]
    return found


def toml_files(folder: str) -> list[str]:
    """The TOML files of a folder by name; none where there is no such folder. Raises RuleError: rules that cannot be read are not none."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".toml"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RuleError(f"{folder}: {error.strerror}", "let its users read the site's rules, or remove the folder") from None
    return [f"{folder}/{name}" for name in names[:MAX_FILES]]


# ---------------------------------------------------------------------- cache of our own files


class _Cache(msgspec.Struct):
    key: list[tuple[str, int, int]]
    version: str
    files: list[RuleFile]


def _key(paths: Sequence[StrPath]) -> list[tuple[str, int, int]]:
    stats = [(os.fspath(path), os.stat(path)) for path in paths]
    return [(name, status.st_mtime_ns, status.st_size) for name, status in stats]


def _cached(paths: Sequence[StrPath], cache: StrPath) -> list[RuleFile] | None:
    """The decoded rules as the last run left them; None when they changed or somebody else could have written them."""
    try:
        with open(cache, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
            stored: _Cache = from_json(file.read(), _Cache)
        return stored.files if stored.key == _key(paths) and stored.version == __version__ else None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _store(paths: Sequence[StrPath], cache: StrPath, files: list[RuleFile]) -> None:
    """Keep the decoded rules for the next run. A folder that cannot be written costs only time; no home is made (HOME=/nonexistent)."""
    content = to_json(_Cache(_key(paths), __version__, files))
    home = os.path.dirname(os.path.dirname(os.path.dirname(cache)))
    if os.path.isdir(home):
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(cache), mode=0o700, exist_ok=True)
            write_whole(os.fspath(cache), lambda file: file.write(content), mode=0o600)
