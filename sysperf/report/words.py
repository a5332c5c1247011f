"""The words that every face uses for the same thing: verdict, counts, values, fixes, reasons of unknowns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from sysperf.collect.machine_facts import MachineFacts
from sysperf.model.finding import Evidence, Finding, Remedy, Report
from sysperf.model.record import Record, to_json
from sysperf.model.rule import SEVERITIES, Severity
from sysperf.model.text import neutral, size

if TYPE_CHECKING:
    from sysperf.trace.facts import Trace

MAX_COMMAND = 8_000
MAX_TEXT = 4_000
SHORT_REASON = 180
"""Characters that fit about two lines of a terminal: the first two lines of `explain` say why it matters."""
MAX_UNKNOWN = 0.05
"""The share of checks that may be unknown where a machine is called good; …"""
ONE_OF = 10
"""… of so many or more, one may be: the verdict names it."""
MAX_REASONS = 2

_SENTENCE = r"(?<=[.!?])\s+(?=[A-Z0-9`\"'(])"
_ORIGIN = r"(/\S*|[A-Za-z_]+\([^)]*\)): (.+)"
_LINK = r"https?://[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._~%/?#&=+,;:@!*$-]*)?"
_SILENT = "it was read and does not say"
SAFETY = {"safe": "safe", "caution": "with care", "manual": "by hand"}
SOURCES = {"native": "machine code", "io": "I/O", "gpu": "GPU", "script": "source code"}
"""Sources of a diagnosis of which rules use a short name."""
NEEDS = {"root": "needs root", "restart": "restart the program", "reboot": "needs a reboot", "reset": "needs a GPU reset"}


class Unread(Record):
    """What could not be read for one reason."""

    reason: str
    remedy: str
    facts: tuple[str, ...]
    rules: tuple[str, ...]
    origins: tuple[str, ...]
    checks: int


def count(number: int, noun: str) -> str:
    """``1 error``, ``2 errors``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(parts: Iterable[str], last: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *most, end = [part for part in parts if part] or [""]
    return f"{', '.join(most)} {last} {end}" if most else end


def some(parts: Iterable[str], most: int) -> str:
    """The first of many: ``a, b and 7 more``."""
    parts = [*parts]
    rest = [f"{len(parts) - most} more"] if len(parts) > most else []
    return listed([*parts[:most], *rest])


def by_severity(outcomes: Iterable[Finding]) -> dict[Severity, list[Finding]]:
    """Outcomes grouped from error to hint, each group in the order given; empty groups are left out."""
    outcomes = [*outcomes]
    groups = {severity: [outcome for outcome in outcomes if outcome.severity == severity] for severity in SEVERITIES}
    return {severity: group for severity, group in groups.items() if group}


def of_state(report: Report, state: str) -> list[Finding]:
    """The outcomes in one state, in their order."""
    return [outcome for outcome in report.outcomes if outcome.state == state]


def verdict(report: Report) -> str:
    """The audit in one sentence. It says *healthy* only of what was read."""
    if report.source_files:
        return _places(report)
    if "trace" in report.snapshot.areas and (trace := cast("Trace", report.snapshot.areas["trace"].facts)).why:
        return f"{trace.verdict.capitalize()}: {trace.why}."
    groups = {severity: len(group) for severity, group in by_severity(report.findings()).items()}
    grave = [count(groups[severity], severity) for severity in ("error", "warning") if severity in groups]
    small = groups.get("info", 0) + groups.get("hint", 0)
    if grave:
        costs = "cost" if sum(groups.values()) - small > 1 else "costs"
        sentence = f"{listed(grave)} {costs} speed here"
        return sentence + (f", and {count(small, 'smaller thing')} could be better." if small else ".") + _unexamined(report)
    if doubt := _doubt(report):
        return doubt + (f" {count(small, 'smaller thing')} could be better." if small else "") + _unexamined(report)
    if small:
        return f"No errors and no warnings; {count(small, 'smaller thing')} could be better.{_unseen(report)}"
    return _clean(report)


def _places(report: Report) -> str:
    """A lint in one sentence: what a source shows are hypotheses."""
    by = [f"{len(group)} {severity}" for severity, group in by_severity(report.findings()).items()]
    return f"{count(len(report.findings()), 'place')} to look at ({listed(by)})." if by else "Nothing to look at."


def mood(report: Report) -> str:
    """The verdict in a word: error, warning, unknown (too much is) or good."""
    numbers = by_severity(report.findings())
    grave = [severity for severity in ("error", "warning") if severity in numbers]
    return grave[0] if grave else "good" if made(report) and not silent_gpus(report) else "unknown"


def made(report: Report) -> bool:
    """Whether the checks could be made, all but a few of them: a claim of health needs that."""
    given = report.tally
    checks = given.passed + given.findings + given.unknown
    return given.passed > 0 and given.unknown <= max(MAX_UNKNOWN * checks, int(checks >= ONE_OF))


def _doubt(report: Report) -> str:
    """``Cannot tell yet: 3 of 20 checks could not be made (Permission denied).``, with the most frequent reasons; empty where one can."""
    given = report.tally
    if silent := silent_gpus(report):
        return f"Cannot tell: {silent}." + (f" {count(given.unknown, 'check')} could not be made." if given.unknown else "")
    if made(report) or not given.unknown:
        return ""
    reasons = dict.fromkeys(neutral(entry.reason, 80) for entry in unread(of_state(report, "unknown")))
    why = f" ({some(reasons, MAX_REASONS)})" if reasons else ""
    return f"Cannot tell yet: {given.unknown} of {count(given.passed + given.findings + given.unknown, 'check')} could not be made{why}."


def _clean(report: Report) -> str:
    passed = report.tally.passed
    if not passed:
        return f"Nothing was checked.{_unexamined(report)}"
    if not report.tally.unknown and not _unexamined(report):
        return f"Healthy: nothing found that slows PyTorch down, {_all(passed)} passed."
    return f"Nothing found that slows PyTorch down: {count(passed, 'check')} passed.{_unseen(report)}"


def _all(passed: int) -> str:
    return "the only check" if passed == 1 else f"all {passed} checks"


def _unseen(report: Report) -> str:
    number = report.tally.unknown
    only = f": {neutral(of_state(report, 'unknown')[0].rule)}" if number == 1 and of_state(report, "unknown") else ""
    return (f" {count(number, 'check')} could not be made{only}." if number else "") + _unexamined(report)


def _unexamined(report: Report) -> str:
    """The programs that may run PyTorch and could not be examined, as a sentence behind another; empty when there are none."""
    if (read := MachineFacts(report.snapshot.areas).process) is None:
        return ""
    sentence = f" {count(read.unreadable, 'program')} {not_examined(report.snapshot.root)}." if read.unreadable else ""
    return sentence + (" /proc hides the processes of other users (hidepid); root sees them." if read.hidden else "")


def not_examined(root: str) -> str:
    """The sentence about programs that could not be examined, here or on a captured machine; a capture does not say whose they are."""
    return (
        "of other users could not be examined; root can"
        if root == "/"
        else "could not be examined when this was captured; root can capture them"
    )


def all_examined(report: Report) -> bool:
    """Whether every check could be made and every program be examined, which is what `--strict` asks for."""
    return not report.tally.unknown and not _unexamined(report)


def silent_gpus(report: Report) -> str:
    """The GPUs of which nothing is known, and why, as ``2 GPUs did not answer (Unknown Error)``; empty when there is none.

    One that a virtual machine was given, or a container was not, is nobody's to ask. Without GPUs, accelerators of other makers count.
    """
    facts = MachineFacts(report.snapshot.areas)
    gpu, driver, container = facts.gpu, facts.driver, facts.container
    if gpu is None or gpu.nvml is None:
        return ""  # nobody asked: what it would have told is among the unknown checks
    if cards := _without_card(facts):
        return f"{count(len(cards), 'GPU')} did not answer ({listed(cards)} has a driver and is no card)"
    devices = [device for device in gpu.devices or () if device.vendor in (None, "nvidia")]
    if gpu.nvml:
        reasons = ["" if device.lost is False else device.problem for device in devices]
    else:
        hidden = container is not None and container.inside and not (driver and driver.device_nodes)
        given = {function.bus_id for function in gpu.functions or () if function.driver == "vfio-pci"}
        asked = [device for device in devices if not hidden and device.bus_id not in given]
        reasons = [driver.nvml_problem or None if driver else None] * len(asked)
    silent = [reason for reason in reasons if reason != ""]
    why = some(dict.fromkeys(neutral(str(reason)) for reason in silent if reason), 2)
    if silent:
        return f"{count(len(silent), 'GPU')} did not answer{f' ({why})' if why else ''}"
    unknown = gpu.others if not gpu.devices and not gpu.functions else ()
    return f"sysperf knows nothing of what computes here ({listed(unknown)})" if unknown else ""


def _without_card(facts: MachineFacts) -> list[str]:
    """Cards of Intel's that a driver for GPUs holds, and that it did not start: in survivability mode, or by firmware that is missing."""
    if facts.pcie is None or facts.gpu is None or facts.gpu.devices is None or (facts.container is not None and facts.container.inside):
        return []
    known = {device.bus_id for device in facts.gpu.devices}
    held = [
        device for device in facts.pcie.devices if device.kind == "gpu" and device.driver in {"xe", "i915"} and device.integrated is False
    ]
    return [device.address for device in held if device.vendor_id == "8086" and device.address not in known]


def tally(report: Report) -> str:
    """How often each answer was given, which adds up, and how long it took. A rule checks each program or GPU that it is about."""
    given = report.tally
    parts = (
        count(given.findings, "finding"),
        f"{given.passed} passed",
        f"{given.unknown} unknown" if given.unknown else "",
        f"{given.suppressed} suppressed" if given.suppressed else "",
        f"{given.not_applicable} not applicable" if given.not_applicable else "",
    )
    checks = given.findings + given.passed + given.unknown + given.suppressed + given.not_applicable
    return f"{count(checks, 'check')} in {report.took_ms:.0f} ms: {', '.join(part for part in parts if part)}"


def taken_at(report: Report) -> str:
    """Return when the machine was read, without fractions of a second."""
    text = neutral(report.snapshot.taken_at, 40)
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d+)?(Z|\+00:?00)?", text)
    return f"{match[1]} {match[2]}{' UTC' if match[3] else ''}" if match else text


def machine_of(report: Report) -> str:
    """Which machine was read: this one, or the capture's."""
    root = report.snapshot.root
    return "this machine" if root == "/" else f"captured machine {neutral(root)}"


_DOUBTS = ("unless ", "its waiver expired")
"""How the reasons of a finding begin that may not be one."""


def message(outcome: Finding) -> str:
    """What was observed, in one line, with what may exempt it or an expired waiver; the title when the rule said nothing more."""
    doubt = f" ({outcome.because})" if outcome.state == "finding" and outcome.because.startswith(_DOUBTS) else ""
    return neutral((outcome.message or outcome.title) + doubt)


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a long text, each as one line."""
    parts = re.split(r"\n\s*\n", text.replace("\r\n", "\n").strip())
    lines = (" ".join(part.split()) for part in parts)
    return [neutral(line, MAX_TEXT) for line in lines if line]


def short(text: str) -> str:
    """The first whole sentences of a text, about two lines of a terminal."""
    first = (paragraphs(text) or [""])[0]
    kept = ""
    for sentence in re.split(_SENTENCE, first):
        if kept and len(kept) + 1 + len(sentence) > SHORT_REASON:
            break
        kept = f"{kept} {sentence}".strip()
    return kept


def value(data: object, name: str = "") -> str:
    """A fact's value for people: sizes in units, lists without brackets, ``none`` for an empty list, ``unknown`` for None."""
    if data is None:
        return "unknown"
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, int | float):
        return size(data) if name.rpartition(".")[2].endswith("_bytes") else f"{data:.6g}" if isinstance(data, float) else str(data)
    if isinstance(data, str):
        return neutral(data) if data.strip() else '""'
    if isinstance(data, list | tuple) and all(not isinstance(item, list | tuple | dict) for item in data):
        return ", ".join(value(item, name) for item in data) or "none"
    return neutral(to_json(data).decode())


def observed(evidence: Evidence) -> str:
    """``numa.balancing = 1``."""
    return f"{neutral(evidence.fact)} = {value(evidence.value, evidence.fact)}"


def origin(evidence: Evidence) -> str:
    """Return where a fact was read: a path, an NVML call or a command."""
    kind, _, rest = evidence.source.partition(":")
    names = {"nvml": "NVML ", "run": "command ", "probe": "probe ", "space": "file system of ", "gpu-code": "GPU code in "}
    return neutral(names[kind] + rest if kind in names and rest else evidence.source)


def seen(evidence: Evidence) -> str:
    """``numa.balancing = 1 from /proc/sys/kernel/numa_balancing``."""
    return f"{observed(evidence)} from {origin(evidence)}" if evidence.source else observed(evidence)


def gain(outcome: Finding) -> str:
    """What acting wins: measured here, or the word *unmeasured* and what others say, with who says it."""
    text = neutral(outcome.gain.text)
    if outcome.gain.basis == "measured" or outcome.impact is None:
        return text
    impact = outcome.impact
    claim = f"{impact.claim}, {impact.basis.replace('-', ' ')}" if impact.claim else impact.basis.replace("-", " ")
    cite = f", {impact.cite}" if impact.cite else ""
    return f"{text}; acts on {neutral(impact.metric)} ({neutral(claim)}{neutral(cite)})"


def is_link(ref: str) -> bool:
    """Whether a reference is a web address that needs no escaping anywhere; others are shown as text."""
    return bool(re.fullmatch(_LINK, ref))


def page_of(rule: str) -> str:
    """The address of a rule in the catalogue, where SYSPERF_DOCS says at which address `make docs` was put; else empty."""
    address = f"{os.environ.get('SYSPERF_DOCS', '').rstrip('/')}/causes/#{rule}"
    return address if is_link(address) else ""


def terms(fix: Remedy) -> str:
    """What a fix takes: ``with care, needs root``."""
    parts = (SAFETY[fix.safety], NEEDS.get(fix.needs, neutral(fix.needs)), "results may change" if fix.numerics else "")
    return ", ".join(part for part in parts if part)


def command(text: str) -> list[str]:
    """The lines of a command, whole: a command that is cut short is another command."""
    return [neutral(line, MAX_COMMAND) for line in text.strip("\n").split("\n")] if text.strip() else []


def unread(outcomes: Iterable[Finding]) -> list[Unread]:
    """Unknown outcomes by reason, the most frequent first.

    A reason such as ``/sys/x: Permission denied`` counts by what failed, not by the file that failed.
    """
    groups: dict[tuple[str, str], list[tuple[str, str, str, str]]] = {}
    for outcome in outcomes:
        for gap in outcome.unknown:
            match = re.fullmatch(_ORIGIN, gap.reason, re.DOTALL)
            where, why = match.groups() if match else ("", gap.reason)
            why = _SILENT if why == "does not say" else why
            entry = (neutral(gap.fact), neutral(outcome.rule), neutral(where), outcome.rule + "\0" + outcome.about)
            groups.setdefault((neutral(why), neutral(gap.remedy)), []).append(entry)
    reasons = [_unread(why, remedy, entries) for (why, remedy), entries in groups.items()]
    return sorted(reasons, key=lambda unread: -unread.checks)


def _unread(reason: str, remedy: str, entries: list[tuple[str, str, str, str]]) -> Unread:
    facts, rules, origins, checks = (tuple(dict.fromkeys(column)) for column in zip(*entries, strict=True))
    return Unread(reason, remedy, facts, rules, tuple(where for where in origins if where), len(checks))
