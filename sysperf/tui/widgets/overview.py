"""The overview: verdict, identity, meters, GPUs, and what is wrong elsewhere."""

from __future__ import annotations

from sysperf.tui.now import Now
from sysperf.tui.widgets import gpus, identity, subjects, system, verdict
from sysperf.tui.widgets.line import BLANK, Lines, fitted, line, span

MAX_SHOWN = 12


def draw(now: Now, width: int, height: int) -> Lines:
    """Everything in one column: it is read from the top, and scrolls where it does not fit."""
    out = [*verdict.draw(now, width)]
    if notice := now.notice():
        out.append(fitted(line(span(f"! {notice}", "warning")), width))
    meters = [*system.draw(now, width), *gpus.draw(now, width)]
    machine = identity.draw(now.snapshot, width, now.origin)
    gap = [BLANK] if height > 24 else []
    out += [BLANK, *machine, *gap, *meters] if height > 24 or len(out) + len(machine) + len(meters) < height else [*gap, *meters, *machine]
    return out + _elsewhere(now, out, width)


def _elsewhere(now: Now, out: Lines, width: int) -> Lines:
    """Findings that no meter shows."""
    keys = {line.key for line in out}
    rest = [finding for finding in now.findings() if finding.key not in keys]
    if not rest:
        return []
    more = [line(span(f"  and {len(rest) - MAX_SHOWN} more: key 2", "dim"))] if len(rest) > MAX_SHOWN else []
    return [BLANK, *(fitted(subjects.named(finding), width) for finding in rest[:MAX_SHOWN]), *more]
