"""The verb `rewrap`: how the programs that run would have been started by `wrap`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from sysperf.collect.machine_facts import MachineFacts
from sysperf.engine.wrap import decide, rules
from sysperf.engine.wrap.facts import gather_running
from sysperf.evaluate.ruleset import Ruleset
from sysperf.host import Host
from sysperf.launch import environment, plan
from sysperf.model.errors import UsageError
from sysperf.model.finding import Rewrap
from sysperf.model.snapshot import Snapshot
from sysperf.model.text import for_shell

if TYPE_CHECKING:
    from sysperf.collect.process.records import Process

__all__ = ["rewraps", "rules"]
MAX_REWRAPS = 16


def rewraps(host: Host, snapshot: Snapshot, ruleset: Callable[[], Ruleset]) -> tuple[Rewrap, ...]:
    """What wrap would have done otherwise, program by program. Cheap where none runs."""
    processes = MachineFacts(snapshot.areas).programs
    running = [
        process for process in processes if process.command and not process.job.launcher and environment.MARKER not in (process.env or {})
    ][:MAX_REWRAPS]
    if not running:
        return ()
    rules_in_force = ruleset()
    return tuple(rewrap for process in running if (rewrap := _rewrap(host, rules_in_force, process, snapshot)) is not None)


def _rewrap(host: Host, ruleset: Ruleset, process: Process, snapshot: Snapshot) -> Rewrap | None:
    command = process.command or ""
    try:
        decision = decide(gather_running(host, process, tuple(shlex.split(command)), snapshot), ruleset)
    except (ValueError, UsageError):  # a command line that was cut, or that nobody could start again
        return None
    cpus = decision.placement.cpus
    changes = [change for change in decision.plan.changes if not (change.kind == "cpus" and cpus == process.affinity.now)]
    if not changes:
        return None
    because = tuple(dict.fromkeys(change.rule for change in changes))
    return Rewrap(process.pid, f"sysperf wrap -- {for_shell(command)}", tuple(map(plan.shown, changes)), because)
