"""Tell a scheduler or a monitor whether this machine is bad.

It keeps to a budget of time, and ends with the exit code that each expects:

  slurm-health  HealthCheckProgram: faults of the machine as lines for the log; always 0
  slurm-prolog  Prolog, TaskProlog: what makes a job impossible; always 0, with --refuse 1
  slurm-epilog  Epilog: what a job left behind; always 0
  npd           node-problem-detector: 0 fine, 1 problem, 2 unknown, and at most 80 characters
  nagios        0 fine, 1 warning, 2 critical, 3 unknown

The agent's judgement is taken if it is younger than a minute; else an audit reads what it can until the budget ends. What did not
answer is named and unknown. No command is run, no sleeping GPU is woken, no home folder is read, and one check runs at a time.

With --drain a slurm-health check drains its node, by one call of scontrol, where two checks in a row find the machine itself broken. It
takes that back where two in a row find that gone, or one after a restart. What is set or changed by others stays. Both are in the journal.

examples:
  HealthCheckProgram=/opt/sysperf/bin/sysperf-health     a script: exec /opt/sysperf/bin/sysperf check --as slurm-health
  sysperf check --as nagios --budget 2s
  sysperf check --as npd
  sysperf check --as slurm-health --drain                let the node drain itself
  sysperf check --as slurm-health --drain --reset        let it do so again, after the brake and a look at what nodes share
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable

from sysperf import paths
from sysperf.cli import _brake, _options
from sysperf.engine import check, judging
from sysperf.engine.configuration import read_config
from sysperf.engine.judging import Terms
from sysperf.host import Host
from sysperf.model import moment
from sysperf.model.check import Checked
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.snapshot import Snapshot
from sysperf.report.fleet import check as report
from sysperf.report.formats import as_json

MIN_BUDGET_S, MAX_BUDGET_S = 0.1, 60.0
FRESH_S = 60.0
AGENT_PART = 0.3
"""The part of the budget in which an agent must answer."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--as", dest="host", required=True, choices=tuple(report.HOSTS), help="who asks")
    parser.add_argument("--budget", type=_seconds, default=1.0, metavar="TIME", help="from the start on, such as 500ms (default: 1s)")
    parser.add_argument("--refuse", action="store_true", help="slurm-prolog: exit 1 where a job cannot run; Slurm drains the node then")
    parser.add_argument("--drain", action="store_true", help="slurm-health: drain this node, or take that back, by what two checks found")
    parser.add_argument("--reset", action="store_true", help="with --drain: a person has looked, and the brake is released")
    _brake.add_arguments(parser)
    parser.add_argument("--no-agent", action="store_true", help="look here, also where an agent knows")
    parser.add_argument("--config", metavar="FILE", help="use only this configuration file")
    parser.add_argument(
        "--json", action="store_true", help="print what was found, the host's lines and its code as JSON; the exit code stays"
    )
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    deadline = time.monotonic() + max(MIN_BUDGET_S, args.budget - check.age_s()) - 0.02
    most = _brake.most(args.at_most)
    if (args.drain and args.host != "slurm-health") or (args.reset and not args.drain):
        raise UsageError("--drain is for --as slurm-health, and --reset for --drain", "`sysperf fleet mark` drains by hand")
    _options.check_output(args)
    checked = _checked(args, deadline)
    said = report.HOSTS[args.host](checked, args.refuse)
    lines = [*said.lines, *(_drained(args, checked, most) if args.drain else ())]
    told = {"as": args.host, "code": said.code, "lines": lines, "unknown": checked.is_unknown, "checked": checked}
    _options.write(as_json.dump(told) if args.json else "\n".join(lines), args)
    return said.code


def _drained(args: argparse.Namespace, checked: Checked, most: float) -> list[str]:
    """Let the node drain itself, or take that back; the lines say what was done. What fails changes nothing and is no other exit code."""
    from sysperf.cli import _signals  # noqa: PLC0415 - for nodes that may drain themselves only
    from sysperf.engine.fleet.marks import Brake  # noqa: PLC0415 - as above
    from sysperf.engine.fleet.own_drain import OwnDrain  # noqa: PLC0415 - as above
    from sysperf.engine.fleet.record import name  # noqa: PLC0415 - as above

    own = OwnDrain(name())
    _signals.act_as_interrupt()
    try:
        if args.reset:
            own.reset()
        return [] if checked.problem else own.act(checked, Brake(most, args.keep))
    except (SysperfError, OSError) as error:
        return [report.line(f"nothing is drained or taken back: {error}")]


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

    if not (args.no_agent or args.drain) and (known := _of_agent(load, say, deadline)):
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
        if abs(time.time() - (moment.seconds(taken_at) or 0.0)) > FRESH_S:
            return None
        tracked = client.ask("/v1/findings", Findings).findings
        active = [each.outcome for each in tracked if each.state == "active"]
        return Checked(faults=check.faults(active, terms().ruleset), source="agent")
    except (SysperfError, OSError, ValueError):
        return None
    finally:
        say("done the agent")
