"""The variables of this shell, judged by the rules about programs: what is started from it next will have them.

Nobody sees the variables of a program that failed. Where one runs that a rule speaks of, the rule says nothing of the shell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from sysperf.collect.machine_facts import MachineFacts
from sysperf.collect.readers.shell_environment import ENVIRON
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.judge import Judge, scope_names
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.subject import Item, with_subject
from sysperf.model.finding import Finding, Subject
from sysperf.model.rule import Rule
from sysperf.model.snapshot import Snapshot
from sysperf.startup import lazy

NAME = "this shell"
_OF_RUNNING = lazy(r"\bprocs\b|\bproc\.(?!env\b|torch\b|variables\b)")
SHELL = Subject("item", NAME)


def of_shell(ruleset: Ruleset, facts: Snapshot, ledger: Ledger, found: Iterable[Finding]) -> list[Finding]:
    """What the rules on variables that are set say for sure. All else about a program that does not run is unknown."""
    machine = MachineFacts(facts.areas)
    variables = machine.process.shell if machine.process else None
    told = {finding.rule for finding in found if finding.state == "finding"}
    rules = [rule for rule in _about(ruleset, variables or {}) if rule.id not in told]
    if not rules:
        return []
    from sysperf.collect.process.parts import LoadedTorch  # noqa: PLC0415 - most shells set nothing that a rule asks for
    from sysperf.collect.process.records import Process  # noqa: PLC0415 - as above

    torch = next((install for install in machine.torch.installs if install.active), None) if machine.torch else None
    loaded = LoadedTorch(version=torch.version, prefix=torch.prefix) if torch else LoadedTorch()
    program = Process(pid=0, ppid=0, name=NAME, env=variables, torch=loaded)
    judging = Judge(scope_names(facts), ruleset.tables, ledger)
    for rule in rules:
        judging.item(ruleset.compiled(rule.key), Item("proc", program))
    return [_of_shell(finding) for finding in judging.outcomes if finding.state == "finding"]


def _of_shell(finding: Finding) -> Finding:
    evidence = (replace(one, source=ENVIRON) if one.fact.startswith("proc.env") else one for one in finding.evidence)
    fixes = tuple(replace(fix, needs="") for fix in finding.fixes)  # no program runs that would have to be started anew
    return with_subject(replace(finding, evidence=tuple(evidence), fixes=fixes), SHELL)


def _about(ruleset: Ruleset, variables: dict[str, str]) -> Iterator[Rule]:
    """Rules about programs that ask for one of these variables, and for nothing that only a running program has."""
    names = tuple(f"proc.env.{name}" for name in variables)
    asking = (rule for rule in ruleset.rules if rule.scope == "process" and any(name in rule.when for name in names))
    return (rule for rule in asking if not _OF_RUNNING.search(f"{rule.applies} {rule.when} {rule.message}"))
