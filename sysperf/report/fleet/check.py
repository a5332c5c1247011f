"""The words of a check for each host: lines, and the exit code by which it acts.

Slurm   https://slurm.schedmd.com/slurm.conf.html#OPT_HealthCheckProgram  https://slurm.schedmd.com/prolog_epilog.html
NPD     https://github.com/kubernetes/node-problem-detector/blob/master/docs/custom_plugin_monitor.md
Nagios  https://nagios-plugins.org/doc/guidelines.html#AEN78
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from sysperf.model.check import Checked, Fault
from sysperf.model.mark import MAX_MARK, PREFIX

MAX_REASON, MAX_NPD, MAX_LINE = MAX_MARK, 80, 400
FINE, PROBLEM, UNKNOWN = 0, 1, 2


class Said(NamedTuple):
    """What a host is told: lines, and an exit code of its own."""

    lines: list[str]
    code: int


def reason(fault: Fault) -> str:
    """Why a node is marked: who, which rule, about what; printable ASCII that `scontrol` and a shell take as one word."""
    about = f" {fault.subject}" if fault.subject else ""
    return _plain(f"{PREFIX}{fault.of} {fault.rule}{about}; sysperf explain {fault.rule}", MAX_REASON)


def mark_text(words: str) -> str:
    """A person's own words as a mark of ours."""
    return _plain(f"{PREFIX}{' '.join(words.split())}", MAX_REASON)


def line(text: str) -> str:
    """What was done or left, as a line of a log."""
    return re.sub(r"[^ -~]", "?", f"{PREFIX}{' '.join(text.split())}")[:MAX_LINE]


def _plain(text: str, limit: int) -> str:
    ascii_only = text.encode("ascii", "replace").decode()
    return re.sub(r"[^ -~]|[\"'`=|\\$]", "?", ascii_only)[:limit].rstrip()


def _waits(checked: Checked) -> str:
    """What is not known, in a line."""
    parts = [f"no answer: {', '.join(checked.hung)}" if checked.hung else "", checked.problem if not checked.hung else ""]
    parts.append(f"not reached: {', '.join(checked.skipped)}" if checked.skipped else "")
    return "; ".join(filter(None, parts))


def _unknown(checked: Checked) -> list[str]:
    return [_plain(f"sysperf: unknown; {_waits(checked)}", MAX_REASON)] if checked.is_unknown else []


def slurm_health(checked: Checked, _refuse: bool) -> Said:
    """Lines for the log; always 0, since slurmd would keep a node out for ever."""
    return Said([reason(fault) for fault in checked.faults if fault.of == "node"] + _unknown(checked), 0)


def slurm_prolog(checked: Checked, refuse: bool) -> Said:
    """What makes the job impossible; 1, which drains the node, only where that is wanted. `print` reaches a task's output."""
    impossible = [fault for fault in checked.faults if fault.impossible]
    return Said([f"print {line}" for line in [*map(reason, impossible), *_unknown(checked)]], int(refuse and bool(impossible)))


def slurm_epilog(checked: Checked, _refuse: bool) -> Said:
    """What a job left behind, for the log; always 0, since another code drains the node."""
    return Said([reason(fault) for fault in checked.faults if fault.leftover] + _unknown(checked), 0)


def npd(checked: Checked, _refuse: bool) -> Said:
    """One line of at most 80 characters; 0 fine, 1 a problem, 2 unknown."""
    sick = [fault for fault in checked.faults if fault.is_sick]
    if sick:
        more = f" and {len(sick) - 1} more" if len(sick) > 1 else ""
        return Said([_plain(f"{sick[0].rule} {sick[0].subject}".rstrip(), MAX_NPD - len(more)) + more], PROBLEM)
    if checked.is_unknown:
        return Said([_plain(_waits(checked), MAX_NPD)], UNKNOWN)
    return Said(["no fault of this machine found"], FINE)


def nagios(checked: Checked, _refuse: bool) -> Said:
    """A status line with counts as performance data, then a line each; 0 to 3."""
    errors = [fault for fault in checked.faults if fault.is_sick]
    warnings = [fault for fault in checked.faults if fault.of != "user" and fault.severity in ("error", "warning") and not fault.is_sick]
    code = 2 if errors else 1 if warnings else 3 if checked.is_unknown else 0
    first = [reason(fault).removeprefix(PREFIX) for fault in (*errors, *warnings)]
    text = first[0] if first else _plain(_waits(checked), MAX_REASON) if checked.is_unknown else "no fault found"
    counts = f"errors={len(errors)} warnings={len(warnings)} unknown={len(checked.hung) + len(checked.skipped)}"
    head = f"SYSPERF {('OK', 'WARNING', 'CRITICAL', 'UNKNOWN')[code]} - {text} | {counts}"
    return Said([head, *first[1:], *(_unknown(checked) if first else [])], code)


HOSTS: dict[str, Callable[[Checked, bool], Said]] = {
    "slurm-health": slurm_health,
    "slurm-prolog": slurm_prolog,
    "slurm-epilog": slurm_epilog,
    "npd": npd,
    "nagios": nagios,
}
"""Who asks. Each is told in its own words; whether the machine may be refused matters to a prolog only."""
