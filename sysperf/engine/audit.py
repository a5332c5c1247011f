"""The verb `audit`: read a machine and judge it by the terms of its site."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from sysperf import __version__
from sysperf.collect import AREAS
from sysperf.collect.machine_facts import MachineFacts
from sysperf.engine.judging import Terms
from sysperf.engine.reading import snapshot
from sysperf.engine.shell import of_shell
from sysperf.evaluate.compare import compare
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.judge import JUDGED, judge
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.waivers import apply_waivers
from sysperf.host import Host
from sysperf.model.difference import Difference, Drift
from sysperf.model.finding import Report, by_weight
from sysperf.model.snapshot import Area, Snapshot


def audit(host: Host, terms: Terms, areas: Sequence[str] = AREAS) -> Report:
    """Read a machine and judge it."""
    start = time.perf_counter()
    facts = snapshot(host, areas)
    report = judge_snapshot(facts, terms, Ledger(facts, host.sources))
    if host.live and any(outcome.state == "finding" for outcome in report.outcomes):
        from sysperf.engine.gains import with_gains  # noqa: PLC0415 - a healthy machine has no gains to look up

        report = with_gains(report)
    return msgspec.structs.replace(report, took_ms=round((time.perf_counter() - start) * 1e3, 1))


def judge_snapshot(facts: Snapshot, terms: Terms, ledger: Ledger | None = None) -> Report:
    """Judge a machine that was read before."""
    facts = with_drift(facts, terms.reference, terms.ruleset)
    ledger = ledger or Ledger(facts)
    judged = judge(terms.ruleset, facts, JUDGED, ledger)
    found = [*judged.outcomes, *of_shell(terms.ruleset, facts, ledger, judged.outcomes)]
    outcomes = sorted(apply_waivers(found, terms.waivers, terms.baseline, terms.ruleset), key=by_weight)
    failed = {outcome.rule for outcome in outcomes}
    passed = tuple(dict.fromkeys(rule for rule in judged.passed_rules if rule not in failed))
    return Report(sysperf=__version__, snapshot=facts, outcomes=tuple(outcomes), tally=judged.tally(outcomes), passed=passed)


def with_drift(facts: Snapshot, reference: Snapshot | None, ruleset: Ruleset) -> Snapshot:
    """The facts with what differs from a good machine; nothing differs where there is none to compare with."""
    if reference is None:
        return facts if "drift" in facts.areas else _with_drift(facts, Drift())
    drifted = tuple(
        f"{difference.fact}: {difference.values[0]} → {difference.values[1]}" for difference in differences([reference, facts], ruleset)
    )
    return _with_drift(facts, Drift(reference.root, drifted))


def _with_drift(facts: Snapshot, drift: Drift) -> Snapshot:
    return msgspec.structs.replace(facts, areas={**facts.areas, "drift": Area(drift)})


def differences(machines: Sequence[Snapshot], ruleset: Ruleset) -> list[Difference]:
    """What differs between machines and matters for speed, what matters most first."""
    return compare(machines, ruleset.tables.get("matters", {}))


def with_rewraps(host: Host, report: Report) -> Report:
    """The report with how running programs would have been started by `sysperf wrap`."""
    if not MachineFacts(report.snapshot.areas).programs:
        return report
    from sysperf.engine.wrap import rewrap  # noqa: PLC0415 - only machines with a running program pay

    problems: list[str] = []
    rewraps = rewrap.rewraps(host, report.snapshot, lambda: rewrap.rules(problems=problems))
    return msgspec.structs.replace(report, rewraps=rewraps)
