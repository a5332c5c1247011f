"""The verbs of sysperf: each joins two or three stages in a few lines."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from sysperf import __version__
from sysperf.collect import AREAS, collect, record_types
from sysperf.evaluate.compare import compare
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.judge import judge, rank
from sysperf.evaluate.ruleset import Ruleset, load, make_schema, site_files, toml_files
from sysperf.evaluate.schema import Schema
from sysperf.evaluate.waivers import Baseline, Waiver, apply_waivers
from sysperf.host import Host
from sysperf.model.difference import Difference, Drift
from sysperf.model.errors import CaptureError, RuleError
from sysperf.model.outcome import Report
from sysperf.model.path import StrPath
from sysperf.model.record import convert, from_json
from sysperf.model.snapshot import Area, Snapshot

MAX_REPORT_BYTES = 64 << 20


def records() -> dict[str, type]:
    """The record of each area that a rule may name."""
    return {**record_types(), "drift": Drift, "launch": _launch()}


def schema() -> Schema:
    """Every fact that a rule may name; what an audit never judges is imported when a rule asks for it."""
    return make_schema({**record_types(), "drift": Drift}, {"launch": _launch})


def _launch() -> type:
    from sysperf.launch.facts import Launch  # noqa: PLC0415 - `wrap` has these facts, audits do not

    return Launch


def rule_files() -> list[str]:
    """The rule files that sysperf ships: in the wheel inside the package, in a checkout beside it. Raises RuleError without them."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    inside = f"{package}/rules"
    folder = inside if os.path.isdir(inside) else f"{os.path.dirname(package)}/rules"
    found = toml_files(folder)
    if not found:  # a machine that nobody judges would look like a healthy one
        raise RuleError(f"{folder}: the rules that come with sysperf are not there", "install sysperf again")
    return found


def site_rule_files(extra: Sequence[StrPath] = ()) -> list[str]:
    """The rule files of this machine and user, then those named on the command line."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return site_files(("/etc/sysperf/rules.d", f"{home}/sysperf/rules.d"), extra)


def rules(extra: Sequence[StrPath] = ()) -> Ruleset:
    """All rules in force. Raises RuleError on the first mistake in a rule file."""
    service = os.environ.get("CACHE_DIRECTORY", "").split(":")[0]  # systemd.exec(5): a service's own
    home = service or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return load(rule_files(), schema(), site=site_rule_files(extra), cache=f"{home}/sysperf/rules.json")


def now() -> str:
    """The time, as reports write it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def snapshot(host: Host, areas: Sequence[str] = AREAS) -> Snapshot:
    """Read these areas of a machine."""
    return Snapshot(taken_at=now(), root=host.root, deep=host.deep, areas=collect(host, areas))


class Terms(NamedTuple):
    """What a site agreed on beforehand."""

    waivers: Sequence[Waiver] = ()
    baseline: Baseline | None = None
    reference: Snapshot | None = None


def audit(host: Host, ruleset: Ruleset, terms: Terms = Terms(), areas: Sequence[str] = AREAS) -> Report:  # noqa: B008 - immutable
    """Read a machine and judge it."""
    start = time.perf_counter()
    facts = snapshot(host, areas)
    report = judged(facts, ruleset, terms, Ledger(facts, host.sources))
    return msgspec.structs.replace(report, took_ms=round((time.perf_counter() - start) * 1e3, 1))


def judged(facts: Snapshot, ruleset: Ruleset, terms: Terms = Terms(), ledger: Ledger | None = None) -> Report:  # noqa: B008 - as above
    """Judge a machine that was read before."""
    facts = with_drift(facts, terms.reference, ruleset)
    court = judge(ruleset, facts, ledger or Ledger(facts))
    outcomes = sorted(apply_waivers(court.outcomes, terms.waivers, terms.baseline, ruleset), key=rank)
    return Report(sysperf=__version__, snapshot=facts, outcomes=tuple(outcomes), tally=court.tally(outcomes))


def with_drift(facts: Snapshot, reference: Snapshot | None, ruleset: Ruleset) -> Snapshot:
    """The facts with what differs from a good machine; nothing differs where there is none to compare with."""
    if reference is None:
        return facts if "drift" in facts.areas else _add_area(facts, "drift", Area(Drift()))
    found = compare([reference, facts], ruleset.tables.get("matters", {}))
    shown = tuple(f"{one.fact}: {one.values[0]} → {one.values[1]}" for one in found)
    return _add_area(facts, "drift", Area(Drift(reference.root, shown)))


def _add_area(facts: Snapshot, name: str, area: Area) -> Snapshot:
    return msgspec.structs.replace(facts, areas={**facts.areas, name: area})


def differences(machines: Sequence[Snapshot], ruleset: Ruleset) -> list[Difference]:
    """What differs between machines and matters for speed, what matters most first."""
    return compare(machines, ruleset.tables.get("matters", {}))


def read_machine(path: StrPath) -> Snapshot:
    """A machine from a saved report, saved facts, or a capture. Raises CaptureError."""
    return read_saved(path) if is_json(path) else snapshot(Host(path))


def is_json(path: StrPath) -> bool:
    """Whether this is a saved report rather than a capture."""
    try:
        with open(path, "rb") as file:
            return file.read(64).lstrip()[:1] == b"{"
    except OSError:
        return False


def read_saved(path: StrPath) -> Snapshot:
    """The snapshot in a saved report (`audit --format json`) or in saved facts (`facts --format json`)."""
    hint = "save one with `sysperf audit --format json --output FILE`"
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_REPORT_BYTES + 1)
        if len(content) > MAX_REPORT_BYTES:
            raise CaptureError(f"{path}: larger than {MAX_REPORT_BYTES >> 20} MiB", hint)
        raw = from_json(content, dict[str, Any])
        return _typed(raw.get("snapshot", raw))
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}", hint) from None
    except (msgspec.MsgspecError, ValueError, AttributeError, RecursionError) as error:
        raise CaptureError(f"{path}: not a report of this version of sysperf: {error}", hint) from None


def _typed(raw: dict[str, Any]) -> Snapshot:
    """A snapshot whose areas hold their records again. Areas this version does not know are left out."""
    found: Snapshot = convert(raw, Snapshot)
    known = records()
    areas = {
        name: msgspec.structs.replace(area, facts=None if area.facts is None else convert(area.facts, known[name]))
        for name, area in found.areas.items()
        if name in known
    }
    return msgspec.structs.replace(found, areas=areas)
