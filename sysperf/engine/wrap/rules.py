"""The launch rules: which are in force, what they say of a launch, and the changes that they propose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sysperf import paths as folders
from sysperf.collect import AREAS, record_type
from sysperf.engine.wrap.allocator import find_allocator
from sysperf.engine.wrap.facts import Known
from sysperf.evaluate.compiled import texts_of
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.judge import judge
from sysperf.evaluate.rule_cache import cache_path
from sysperf.evaluate.rule_files import site_files
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.ruleset import load as load_rules
from sysperf.evaluate.schema import Schema
from sysperf.evaluate.scope import Scope
from sysperf.launch import plan
from sysperf.launch.facts import Launch
from sysperf.launch.placement import Placement
from sysperf.launch.plan import ProposedChange
from sysperf.launch.request import LaunchRequest
from sysperf.model.errors import RuleError
from sysperf.model.finding import Finding
from sysperf.model.path import StrPath
from sysperf.model.record import Record, TypeForm
from sysperf.model.rule import Advice, AnyFix, Bind, Env, Override, Preload, Rule
from sysperf.model.snapshot import Area, Snapshot
from sysperf.startup import lazy

RULES = "launch.toml"
_AREA = lazy(rf"\b({'|'.join(AREAS)})\.")
MEMORY_POLICIES = {"memory-preferred": "preferred", "memory-strict": "strict", "memory-interleave": "interleave"}


class _RecordTypes(dict[str, TypeForm]):
    """Record types by area, imported when a rule names them."""

    def __missing__(self, area: str) -> TypeForm:
        if area not in AREAS:
            raise KeyError(area)
        self[area] = record_type(area)
        return self[area]

    def __contains__(self, area: object) -> bool:
        return area in AREAS or dict.__contains__(self, area)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*AREAS, *dict.keys(self))))

    def keys(self) -> Any:  # noqa: ANN401 - a list, where dict has a view
        return list(self)


def rules(extra: Sequence[StrPath] = (), problems: list[str] | None = None) -> Ruleset:
    """The launch rules in force. A site's file that is wrong is left out and named in `problems`; one that was asked for raises."""
    ours = f"{folders.shipped('rules')}/{RULES}"
    cache = cache_path("wrap", ours)
    schema = Schema(_RecordTypes(launch=Launch))
    try:
        return load_rules((ours,), schema, scopes=("launch",), site=site_files(folders.rule_folders(), extra), cache=cache)
    except RuleError as error:
        if extra or problems is None:
            raise
        problems.append(f"the site's rules are not used: {error}")
        return load_rules((ours,), schema, scopes=("launch",), cache=cache)


def configure(ruleset: Ruleset, request: LaunchRequest) -> None:
    """The rules that options and the profile choose, with the profile's parameters."""
    for name, params in request.profile.params.items():
        ruleset.override(Override(rule=name, params=params))
    only, skip = (*request.only, *request.profile.only), (*request.skip, *request.profile.skip)
    if only or skip:
        ruleset.select(only, skip)


def names_command(ruleset: Ruleset) -> bool:
    """Whether a rule in force may look at the words of the command. Ours look at what they mean."""
    return any(
        "command" in text for rule in ruleset.rules for text in (*_conditions(rule), *(text for fix in rule.fix for text in texts_of(fix)))
    )


class Judged(Record):
    """What the rules say of a launch."""

    outcomes: tuple[Finding, ...] = ()
    proposed: tuple[ProposedChange, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()
    """(rule, message) of what the user should know."""


def judge_launch(known: Known, ruleset: Ruleset, launch: Launch, placement: Placement) -> Judged:
    """Judge one launch. An area that only rules name is read when a rule that applies names it."""
    return _LaunchJudge(known, ruleset, launch, placement).judged()


class _LaunchJudge:
    def __init__(self, known: Known, ruleset: Ruleset, launch: Launch, placement: Placement) -> None:
        self.known, self.ruleset, self.launch, self.placement = known, ruleset, launch, placement
        self.warnings: list[tuple[str, str]] = []

    def judged(self) -> Judged:
        rules_in_force, host = self._applying(), self.known.host
        snapshot = Snapshot(taken_at="", root=host.root, areas={**self.known.areas.known, "launch": Area(self.launch)})
        judged = judge(self.ruleset, snapshot, ("launch",), Ledger(snapshot, host.sources), rules=rules_in_force)
        found = [answer for answer in judged.answers if answer.finding.state == "finding"]
        proposed = tuple(change for answer in found for change in self._changes(answer.rule.fixes, answer.finding))
        return Judged(tuple(judged.outcomes), proposed, tuple(self.warnings))

    def _applying(self) -> list[Rule]:
        """The rules that may say something. An area is read only for a rule that applies as far as is known without it."""
        areas, applying = self.known.areas, []
        for rule in self.ruleset.rules:
            compiled, missing = self.ruleset.compiled(rule.key), _named_areas(rule) - areas.known.keys()
            if missing and compiled.applies and not compiled.loop:
                names = {**dict.fromkeys(missing), **areas.names(), "launch": self.launch}
                if compiled.applies(Scope(names, self.ruleset.tables)) is False:
                    continue
            for name in missing:
                areas.facts(name)
            applying.append(rule)
        return applying

    def _changes(self, fixes: Sequence[AnyFix], finding: Finding) -> Iterator[ProposedChange]:
        """The fixes of a rule that fires, with the blanks filled in that the finding's have."""
        placement, rule = self.placement, finding.rule
        if any(isinstance(fix, Preload) and not self._has(fix.library, rule) for fix in fixes):
            return  # what configures an allocator is for that allocator
        for fix, remedy in zip(fixes, finding.fixes, strict=True):
            if isinstance(fix, Env) and remedy.start is not None:
                yield from (ProposedChange("env", name, value, rule) for name, value in remedy.start.set.items())
                yield from (ProposedChange("unset", name, "", rule) for name in remedy.start.unset)
            elif isinstance(fix, Preload):
                yield ProposedChange("preload", plan.PRELOAD, find_allocator(self.known, fix.library)[0], rule)
            elif isinstance(fix, Bind) and fix.to in MEMORY_POLICIES:
                nodes = str(placement.memory_nodes or placement.nodes)
                yield ProposedChange("memory", MEMORY_POLICIES[fix.to], nodes, rule)
            elif isinstance(fix, Bind) and fix.to == placement.target:
                yield ProposedChange("cpus", "CPUs", str(placement.cpus), rule)
            elif isinstance(fix, Advice) and finding.severity in ("error", "warning"):
                self.warnings.append((rule, finding.message))

    def _has(self, library: str, rule: str) -> bool:
        """Whether there is a file that the program will take; else a warning, and the program starts without it."""
        path, problem = find_allocator(self.known, library)
        if not path:
            self.warnings.append((rule, problem))
        return bool(path)


def _named_areas(rule: Rule) -> set[str]:
    """The areas that a rule names."""
    return {area for text in (*_conditions(rule), *_values(rule.fix)) for area in _AREA.findall(text)}


def _conditions(rule: Rule) -> tuple[str, ...]:
    return rule.for_each, rule.applies, rule.when, rule.message, *(guard.when for guard in rule.unless)


def _values(fixes: Iterable[AnyFix]) -> Iterator[str]:
    for fix in fixes:
        if isinstance(fix, Env):
            yield from fix.set.values()
        elif isinstance(fix, Preload):
            yield "allocator."
