"""What a fix does, by name, and how safe that is: one table for all rules (rules/acts.toml)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from sysperf.evaluate.scope import Value
from sysperf.model.errors import RuleError
from sysperf.model.rule import Advice, AnyFix, Bind, Env, Fix, Nvml, Preload, Safety, SetKnob, Sysctl, Sysfs

CAREFUL: tuple[Safety, ...] = ("safe", "caution", "manual")
"""From what sysperf does by itself to what a person does."""
Acts = Mapping[str, Mapping[str, Value]]


def acts_of(fix: Fix) -> Iterator[str]:
    """The names of what a fix does: ``sysctl:vm.swappiness``, ``set:OMP_WAIT_POLICY``; an advice does nothing by itself."""
    if isinstance(fix, Sysctl):
        yield f"sysctl:{fix.key}"
    elif isinstance(fix, Sysfs | SetKnob):
        yield f"setting:{fix.knob}"
    elif isinstance(fix, Nvml):
        yield f"gpu:{fix.setting}"
    elif isinstance(fix, Env):
        yield from (f"set:{name}" for name in fix.set)
        yield from (f"unset:{name}" for name in fix.unset)
    elif isinstance(fix, Preload):
        yield f"preload:{fix.library}"
    elif isinstance(fix, Bind):
        yield f"bind:{fix.to}"
    elif not isinstance(fix, Advice):
        yield f"process:{type(fix).__struct_config__.tag}"


def settled(fix: AnyFix, acts: Acts) -> AnyFix:
    """The fix with the safety of its acts, where it does not write one itself: the most careful of them counts."""
    known = [acts[name] for name in acts_of(fix) if name in acts]
    if not known or fix.safety != "manual":
        return fix
    safety = max((row["safety"] for row in known), key=CAREFUL.index)
    return msgspec.structs.replace(fix, safety=safety, numerics=fix.numerics or any(row["numerics"] for row in known))


def check_acts(fix: Fix, acts: Acts) -> None:
    """Raises RuleError where a fix takes an act for safer than the table does."""
    for name in acts_of(fix):
        row = acts.get(name)
        if row is None:
            continue
        _check_row(name, row)
        if CAREFUL.index(fix.safety) < CAREFUL.index(row["safety"]):
            raise RuleError(f"`{name}` is `{row['safety']}` in the table `acts`, and `{fix.safety}` here")
        if row["numerics"] and not fix.numerics:
            raise RuleError(f"`{name}` can change results by the table `acts`, and not here", "write numerics = true, or leave safety out")


def _check_row(name: str, row: Mapping[str, Value]) -> None:
    if set(row) != {"safety", "numerics"} or row["safety"] not in CAREFUL or not isinstance(row["numerics"], bool):
        raise RuleError(f"the table `acts` has no right row for `{name}`", 'a row is { safety = "safe", numerics = false }')
    if row["numerics"] and row["safety"] == "safe":
        raise RuleError(f"`{name}` in the table `acts` can change results, and is never `safe`")
