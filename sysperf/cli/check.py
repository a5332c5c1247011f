"""Tell a scheduler or a monitor whether this machine is bad.

It keeps to a budget of time, and ends with the exit code that each expects:

  slurm-health  HealthCheckProgram: faults of the machine as lines for the log; always 0
  slurm-prolog  Prolog, TaskProlog: what makes a job impossible; always 0, with --refuse 1
  slurm-epilog  Epilog: what a job left behind; always 0
  npd           node-problem-detector: 0 fine, 1 problem, 2 unknown, and at most 80 characters
  nagios        0 fine, 1 warning, 2 critical, 3 unknown

The agent's judgement is taken if it is younger than a minute; else an audit reads what it can until the budget ends. What did not
answer is named and unknown. No command is run, no sleeping GPU is woken, no home folder is read, and one check runs at a time.

examples:
  HealthCheckProgram=/opt/sysperf/bin/sysperf-health     a script: exec /opt/sysperf/bin/sysperf check --as slurm-health
  sysperf check --as nagios --budget 2s
  sysperf check --as npd
"""

from __future__ import annotations

import argparse
import calendar
import os
import re
import time
from collections.abc import Callable

from sysperf import paths
from sysperf.cli import _options
from sysperf.engine import check, judging
from sysperf.engine.configuration import read_config
from sysperf.engine.judging import Terms
from sysperf.host import Host
from sysperf.model.check import Checked
from sysperf.model.errors import SysperfError
from sysperf.model.snapshot import Snapshot
from sysperf.report import check as report

MIN_BUDGET_S, MAX_BUDGET_S = 0.1, 60.0
FRESH_S = 60.0
AGENT_PART = 0.3
"""The part of the budget in which an agent must answer."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--as", dest="host", required=True, choices=tuple(report.HOSTS), help="who asks")
    parser.add_argument("--budget", type=_seconds, default=1.0, metavar="TIME", help="from the start on, such as 500ms (default: 1s)")
    parser.add_argument("--refuse", action="store_true", help="slurm-prolog: exit 1 where a job cannot run; Slurm drains the node then")
    parser.add_argument("--no-agent", action="store_true", help="look here, also where an agent knows")
    parser.add_argument("--config", metavar="FILE", help="use only this configuration file")
    parser.set_defaults(output=None)


def run(args: argparse.Namespace) -> int:
    deadline = time.monotonic() + max(MIN_BUDGET_S, args.budget - check.age_s()) - 0.02
    said = report.HOSTS[args.host](_checked(args, deadline), args.refuse)
    _options.write("\n".join(said.lines), args)
    return said.code


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)(ms|s|)", text)
    seconds = float(match[1]) / (1e3 if match[2] == "ms" else 1) if match else 0.0
    if not MIN_BUDGET_S <= seconds <= MAX_BUDGET_S:
        raise argparse.ArgumentTypeError(f"between {MIN_BUDGET_S * 1e3:.0f}ms and {MAX_BUDGET_S:.0f}s")
    return seconds


def _checked(args: argparse.Namespace, deadline: float) -> Checked:
    try:
        lock = check.Lock(paths.runtime_home() or paths.temporary_home())
    except check.Busy as busy:
        waits = f", which waits for {busy}" if str(busy) else ""
        return Checked(problem=f"another check still runs{waits}")
    checked = check.within(deadline, lambda say, until: _look(args, say, until))
    lock.note(", ".join(checked.hung))
    return checked


def _look(args: argparse.Namespace, say: check.Say, deadline: float) -> Checked:
    """What the agent knows, else what an audit finds; in the child."""
    terms: list[Terms] = []

    def load() -> Terms:
        if not terms:
            config = read_config(args.config)
            terms.append(judging.load_terms(config, judging.machine_rules(config)))
        return terms[0]

    if not args.no_agent and (known := _of_agent(load, say, deadline)):
        return known
    return check.audit(load, Host, say, deadline)


def _of_agent(terms: Callable[[], Terms], say: check.Say, deadline: float) -> Checked | None:
    """What an agent said within the last minute; None where none answers."""
    path = paths.default_socket()
    say("at the agent")
    if not os.path.exists(path):
        say("done the agent")
        return None
    from sysperf.agent.answers import Findings  # noqa: PLC0415 - in the child, where an agent is
    from sysperf.agent.client import Client  # noqa: PLC0415 - as above

    client = Client(path, AGENT_PART * max(0.1, deadline - time.monotonic()))
    try:
        taken_at = client.ask("/v1/snapshot", Snapshot).taken_at
        if abs(time.time() - calendar.timegm(time.strptime(taken_at, "%Y-%m-%dT%H:%M:%SZ"))) > FRESH_S:
            return None
        tracked = client.ask("/v1/findings", Findings).findings
        active = [each.outcome for each in tracked if each.state == "active"]
        return Checked(faults=check.faults(active, terms().ruleset), source="agent")
    except (SysperfError, OSError, ValueError):
        return None
    finally:
        say("done the agent")
