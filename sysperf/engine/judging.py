"""What a machine is judged by, loaded in one place: rules, configuration, waivers, baseline and reference."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sysperf import paths
from sysperf.collect import record_types
from sysperf.engine.configuration import Config
from sysperf.engine.reading import diagnosis_record, launch_record, read_machine, script_record, trace_record
from sysperf.evaluate.accepted import Baseline, Waiver
from sysperf.evaluate.judge import JUDGED
from sysperf.evaluate.rule_cache import cache_path
from sysperf.evaluate.rule_files import site_files, toml_files
from sysperf.evaluate.ruleset import Ruleset, load, make_schema
from sysperf.evaluate.schema import Schema
from sysperf.model.difference import Drift
from sysperf.model.errors import RuleError
from sysperf.model.path import StrPath
from sysperf.model.record import Record
from sysperf.model.rule import Rule
from sysperf.model.snapshot import Snapshot

if TYPE_CHECKING:
    from sysperf.model.cause import Cause, Explained


class Terms(Record):
    """What is judged by: the rules, what the site accepted, and a good machine to compare with."""

    ruleset: Ruleset
    waivers: Sequence[Waiver] = ()
    baseline: Baseline | None = None
    reference: Snapshot | None = None


def load_terms(config: Config, ruleset: Ruleset, *, reference: StrPath | None = None, baseline: Baseline | None = None) -> Terms:
    """The terms that a configuration gives; `reference` names another good machine than the configuration's. Raises SysperfError."""
    good = reference or config.reference
    return Terms(ruleset, config.waive, baseline, read_machine(good) if good else None)


def configured_rules(config: Config, extra: Sequence[StrPath] = (), *, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> Ruleset:
    """The rules in force: ours, the site's and `extra`, with what the configuration and a selection change. Raises RuleError."""
    return _changed(load_rules([*config.rules, *extra]), config, select, ignore)


def machine_rules(config: Config, extra: Sequence[StrPath] = ()) -> Ruleset:
    """The rules in force about machines and what runs on them, for who judges nothing else. Raises RuleError."""
    files = rule_files()
    site = site_rule_files([*config.rules, *extra])
    return _changed(load(files, schema(), site=site, cache=cache_path("machine", files[0]), scopes=JUDGED), config)


def _changed(ruleset: Ruleset, config: Config, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> Ruleset:
    for override in config.override:
        ruleset.override(override)
    if select or ignore:
        ruleset.select(select, ignore)
    return ruleset


def trace_rules(config: Config, extra: Sequence[StrPath] = (), *, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> Ruleset:
    """The rules about traces in force, as `configured_rules`: no fact about machines is imported for them. Raises RuleError."""
    files = rule_files()
    site = site_rule_files([*config.rules, *extra])
    facts = make_schema({}, {"trace": trace_record})
    return _changed(load(files, facts, site=site, cache=cache_path("trace", files[0]), scopes=("trace",)), config, select, ignore)


def load_rules(extra: Sequence[StrPath] = ()) -> Ruleset:
    """All rules: ours, the site's and `extra`. Raises RuleError on the first mistake in a rule file."""
    files = rule_files()
    return load(files, schema(), site=site_rule_files(extra), cache=cache_path("rules", files[0]))


def schema() -> Schema:
    """Every fact that a rule may name; what an audit never judges is imported when a rule asks for it."""
    later = {"launch": launch_record, "trace": trace_record, "script": script_record, "diagnosis": diagnosis_record}
    return make_schema({**record_types(), "drift": Drift}, later)


def rule_files() -> list[str]:
    """The rule files that sysperf ships. Raises RuleError without them."""
    folder = paths.shipped("rules")
    files = [*toml_files(folder), *toml_files(f"{folder}/causes")]
    if not files:  # a machine that nobody judges would look like a healthy one
        raise RuleError(f"{folder}: the rules that come with sysperf are not there", "install sysperf again")
    return files


def find(ruleset: Ruleset, rule_id: str, extra: Sequence[StrPath] = ()) -> Rule | Explained:
    """Return what an id names: a rule, or a cause as it is written, with what it is a consequence of. Raises RuleError."""
    rule = ruleset.get(rule_id)
    if not rule.witness:
        return rule
    from sysperf.model.cause import Explained  # noqa: PLC0415 - to explain a cause only

    cause = next(cause for cause in causes(extra, rule.file) if cause.id == rule_id)
    because_of = dict.fromkeys(other.id for other in ruleset.rules if rule_id in (*other.explains, *other.explains_where_most))
    return Explained(cause, tuple(because_of))


def causes(extra: Sequence[StrPath] = (), file: str = "") -> Iterator[Cause]:
    """Causes as they are written, of all rule files or of those of one name, the site's first. Raises RuleError."""
    from sysperf.evaluate.rule_files import read_causes  # noqa: PLC0415 - what judges needs none of it

    for path in (*site_rule_files(extra)[::-1], *rule_files()):
        if not file or os.path.basename(path) == file:
            yield from read_causes(path).cause


def site_rule_files(extra: Sequence[StrPath] = ()) -> list[str]:
    """The rule files of this machine and user, then those named on the command line."""
    return site_files(paths.rule_folders(), extra)
