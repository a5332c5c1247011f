"""What lint says of a program's source, beside what the program shows: which causes a hit speaks for."""

from __future__ import annotations

from sysperf.evaluate.ruleset import Ruleset
from sysperf.model.rule import Rule, Scope


def in_source(cause: str, ruleset: Ruleset) -> Rule:
    """Return the witness of a cause that looks at source code; a hit is always one's."""
    return next(rule for rule in ruleset.witnesses(cause) if rule.scope == "script")


def speaks_for(cause: str, found: str, scope: Scope, ruleset: Ruleset) -> bool:
    """Whether a cause that shows in the source speaks for one that was found: for the same, or for one that it explains.

    A cause that could show where the other was found, and did not, explains nothing there.
    """
    if cause == found:
        return True
    witnesses = ruleset.witnesses(cause)
    return found in witnesses[0].explains and scope not in {rule.scope for rule in witnesses}
