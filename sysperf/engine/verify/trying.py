"""What `verify --fix` and `--all` try: a part of `sysperf wrap`, variables, or a setting of this machine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from sysperf.engine import change, judging, wrap
from sysperf.engine.audit import audit
from sysperf.engine.configuration import read_config
from sysperf.evaluate.judge import JUDGED
from sysperf.evaluate.schema import suggest
from sysperf.host import Host
from sysperf.host.commands import sysperf_command
from sysperf.launch import environment
from sysperf.model import experiment
from sysperf.model.change import Setting
from sysperf.model.comparison import Variant
from sysperf.model.errors import UsageError
from sysperf.model.finding import Finding, Start
from sysperf.model.knob import KNOBS
from sysperf.model.record import Record
from sysperf.model.rule import Advice, Bind, Env, Impact, Rule


class Try(Record, kw_only=True):
    """One fix, as a difference between two variants."""

    rule: str
    kind: Literal["launch", "environment", "setting"]
    promised: str = ""
    """What its rule says that others gained; empty where it says nothing."""
    set: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    launch_rules: tuple[str, ...] = ()
    """The rules of `wrap` that do it; empty: the rule itself."""


def one(rule: str) -> Try:
    """Return what this rule's fix is here. Raises UsageError where there is nothing to try."""
    known_rule = find(rule)
    if experiment.choice(known_rule):
        raise UsageError(f"{rule}: it advises to choose one of several, which is a search", f"sysperf tune --fix {rule} -- python train.py")
    named = known_rule.measure.experiment if known_rule.measure else ""
    if (group := experiment.BANDWIDTHS.get(named)) and _is_advice(known_rule):
        raise UsageError(f"{rule}: a ceiling of this machine tells what it gives", f"sysperf bench host --only {group}, before and after")
    if known_rule.scope == "launch":
        return Try(rule=known_rule.id, kind="launch", promised=_promised(known_rule.impact))
    if known_rule.scope not in JUDGED:
        raise UsageError(
            f"{rule}: an audit cannot find it, and its cure changes the program",
            'compare both programs: sysperf verify --a "python old.py" --b "python new.py"',
        )
    outcomes = _audited([rule])
    requested = change.requested_settings(outcomes, (known_rule.id,), caution=True)
    of_machine = tuple(setting for setting in requested.settings if KNOBS[setting.knob].kind != "process")
    if of_machine:
        return Try(rule=known_rule.id, kind="setting", promised=_promised(known_rule.impact), settings=of_machine)
    starts = (fix.start for outcome in outcomes for fix in outcome.fixes if fix.start is not None and fix.start.wrap is None)
    start = next(starts, None) or _written_variables(known_rule)
    if start is not None and (start.set or any(name in os.environ for name in start.unset)):
        return Try(rule=known_rule.id, kind="environment", promised=_promised(known_rule.impact), set=start.set, unset=start.unset)
    if bound := _binding_rules(known_rule):
        return Try(rule=known_rule.id, kind="launch", promised=_promised(known_rule.impact), launch_rules=bound)
    if requested.settings:
        raise UsageError(
            f"{rule}: its fix changes a program that runs, and not the one that is measured", "compare two commands with --a and --b"
        )
    if requested.manual:
        raise UsageError(
            f"{rule}: sysperf does not set this by itself: {requested.manual[0].reason}", "compare two commands with --a and --b"
        )
    raise UsageError(f"{rule} finds nothing on this machine, so there is nothing to try", f"`sysperf explain {rule}` says what it looks at")


def compares_copies(rule: str) -> bool:
    """Whether two programs of sysperf's own tell what a rule's advice gives."""
    known_rule = find(rule)
    return _is_advice(known_rule) and known_rule.measure is not None and known_rule.measure.experiment == experiment.COPIES


def _is_advice(rule: Rule) -> bool:
    return all(isinstance(fix, Advice) for fix in rule.fix)


def all_safe(argv: Sequence[str]) -> list[Try]:
    """Return every safe fix that an audit finds for this machine, and what `wrap` would do for this command."""
    outcomes = _audited(())
    impacts = {outcome.rule: _promised(outcome.impact) for outcome in outcomes}
    tries = [
        Try(rule=setting.rule, kind="setting", promised=impacts.get(setting.rule, ""), settings=(setting,))
        for setting in change.requested_settings(outcomes).settings
        if KNOBS[setting.knob].kind != "process"
    ]
    tries += _of_wrap(argv)
    return tries


def _of_wrap(argv: Sequence[str]) -> Iterator[Try]:
    """The rules whose changes `sysperf wrap` would make."""
    decision = wrap.wrap(Host(), wrap.rules(), wrap.LaunchRequest(argv=tuple(argv)), environment.inherited(), os.getcwd())
    changing = dict.fromkeys(change.rule for change in decision.plan.changes)
    impacts = {outcome.rule: _promised(outcome.impact) for outcome in decision.outcomes}
    yield from (Try(rule=rule, kind="launch", promised=impacts.get(rule, "")) for rule in changing)


def find(name: str) -> Rule:
    """Return a rule by its id; of a cause, what shows it in a running process. Raises UsageError for an unknown one."""
    known = {rule.id: rule for rule in sorted(judging.load_rules().rules, key=lambda rule: rule.scope in JUDGED)}
    if name not in known:
        raise UsageError(f"no rule `{name}`{suggest(name, known)}", "`sysperf rules list` shows all")
    return known[name]


def variants(tries: Iterable[Try], argv: Sequence[str], wrap_options: str = "", name: str = "") -> tuple[Variant, Variant]:
    """Return the program plain and with all these fixes but the settings of the machine."""
    tries = tuple(tries)
    launch = [rule for tried in tries if tried.kind == "launch" for rule in tried.launch_rules or (tried.rule,)]
    wrapped = (*sysperf_command(), "wrap", "--quiet", *shlex.split(wrap_options), "--only", ",".join(launch), "--", *argv)
    variables = {key: value for tried in tries for key, value in tried.set.items()}
    unset = tuple(key for tried in tries for key in tried.unset)
    b = Variant(name or ", ".join(tried.rule for tried in tries), wrapped if launch else tuple(argv), variables, unset)
    return Variant("plain", tuple(argv)), b


def _audited(select: Sequence[str]) -> tuple[Finding, ...]:
    config = read_config()
    return audit(Host(), judging.Terms(judging.configured_rules(config, select=select), config.waive)).outcomes


def _promised(impact: Impact | None) -> str:
    return f"{impact.claim or impact.metric} ({impact.basis})" if impact else ""


def _binding_rules(rule: Rule) -> tuple[str, ...]:
    """The launch rules that bind as this rule of running programs advises."""
    targets = {fix.to for fix in rule.fix if isinstance(fix, Bind)}
    launch = (other for other in judging.load_rules().rules if other.scope == "launch")
    return tuple(other.id for other in launch if any(isinstance(fix, Bind) and fix.to in targets for fix in other.fix))


def _written_variables(rule: Rule) -> Start | None:
    """What a rule that looks at running programs sets and unsets, where its values have no blanks."""
    fix = next((fix for fix in rule.fix if isinstance(fix, Env) and not any("{" in value for value in fix.set.values())), None)
    return Start(fix.set, fix.unset) if fix else None
