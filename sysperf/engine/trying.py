"""What `verify --fix` tries: a part of `sysperf wrap`, or a setting of this machine."""

from __future__ import annotations

from sysperf.engine import change, judging
from sysperf.engine.audit import audit
from sysperf.engine.configuration import read_config
from sysperf.evaluate.schema import suggest
from sysperf.host import Host
from sysperf.model.change import Setting
from sysperf.model.errors import UsageError


def is_launch_rule(rule: str) -> bool:
    """Whether `sysperf wrap` follows this rule. Raises UsageError for an unknown one."""
    ruleset = judging.load_rules()
    known = {known.id: known for known in ruleset.rules}
    today = ruleset.earlier_ids.today(rule)
    if today not in known:
        raise UsageError(f"no rule `{rule}`{suggest(rule, known)}", "`sysperf rules list` shows all")
    return known[today].scope == "launch"


def settings_of(rule: str) -> tuple[Setting, ...]:
    """Return the settings that this rule's finding asks for on this machine. Raises UsageError where it asks for none."""
    config = read_config()
    report = audit(Host(), judging.Terms(judging.configured_rules(config, select=[rule]), config.waive))
    requested = change.requested_settings(report.outcomes, (rule,), caution=True)
    if requested.settings:
        return requested.settings
    if requested.manual:
        raise UsageError(
            f"{rule}: sysperf does not set this by itself: {requested.manual[0].reason}", "compare two commands with --a and --b"
        )
    raise UsageError(f"{rule} finds nothing on this machine, so there is nothing to try", f"`sysperf explain {rule}` says what it looks at")
