"""What was measured on this machine, beside the findings whose advice was tried."""

from __future__ import annotations

import msgspec

from sysperf import paths
from sysperf.collect.machine_facts import MachineFacts
from sysperf.engine import reading
from sysperf.host import Host
from sysperf.model.finding import Finding, Gain, Report
from sysperf.model.record import to_json
from sysperf.model.snapshot import Snapshot
from sysperf.model.trial import Trial
from sysperf.verify import trials

DECIDING = ("kernel", "cpu", "driver")
"""The areas whose facts decide whether a result still holds."""


def deciding_facts(facts: Snapshot) -> dict[str, str]:
    """Return what decides whether a result still holds, by name: kernel, CPUs and driver."""
    known = MachineFacts(facts.areas)
    kernel, cpu, driver = known.kernel, known.cpu, known.driver
    values = {
        "kernel.release": kernel and kernel.release,
        "cpu.model_name": cpu and cpu.model_name,
        "cpu.online": cpu and cpu.online,
        "cpu.cores": cpu and cpu.cores,
        "cpu.threads_per_core": cpu and cpu.threads_per_core,
        "driver.nvidia_version": driver and driver.nvidia_version,
        "driver.cuda_driver_version": driver and driver.cuda_driver_version,
    }
    return {name: str(value) for name, value in values.items()}


def fingerprint(facts: Snapshot) -> str:
    """Return a short hash of what decides whether a result still holds."""
    import hashlib  # noqa: PLC0415 - 3.6 MB of OpenSSL, which only a machine with results of trials pays

    return hashlib.sha256(to_json(deciding_facts(facts))).hexdigest()[:16]


def kept() -> trials.Trials:
    """Return what was measured on this machine, and how the machine is now."""
    results = trials.read(f"{folder}/{trials.FILE}" for folder in dict.fromkeys((paths.SYSTEM_STATE, paths.state_folder())))
    return results._replace(fingerprint=fingerprint(reading.snapshot(Host(), DECIDING))) if results.results else results


def with_gains(report: Report) -> Report:
    """The report with the latest result of each rule whose advice was tried here; one of before a change of the machine says so."""
    if not any(outcome.state == "finding" for outcome in report.outcomes):
        return report
    kept = trials.read(f"{folder}/{trials.FILE}" for folder in dict.fromkeys((paths.SYSTEM_STATE, paths.state_folder())))
    latest = {trial.rule: trial for trial in kept.by_weight() if trial.rule}
    if not latest:
        return report
    now = fingerprint(report.snapshot)
    return msgspec.structs.replace(
        report, outcomes=tuple(_with_gain(outcome, latest.get(outcome.rule), now) for outcome in report.outcomes)
    )


def _with_gain(outcome: Finding, trial: Trial | None, now: str) -> Finding:
    if trial is None or outcome.state != "finding":
        return outcome
    gain = trial.gain()
    if trial.fingerprint and trial.fingerprint != now:
        gain = Gain("unmeasured", f"unmeasured since kernel, CPUs or driver changed; before: {gain.text}")
    return msgspec.structs.replace(outcome, gain=gain)
