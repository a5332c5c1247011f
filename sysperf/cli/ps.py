"""List the running PyTorch processes and what is wrong with each.

A process is known by the libraries it maps, found without attaching to it. DataLoader workers are folded under the
process that started them. Processes of other users need root.

examples:
  sysperf ps
  sudo sysperf ps --verbose
  sudo sysperf ps --user alice
  sysperf ps --format json
"""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from sysperf.cli import _options
from sysperf.cli.audit import rules
from sysperf.collect.machine_facts import MachineFacts
from sysperf.engine import judging
from sysperf.engine.audit import audit, with_rewraps
from sysperf.engine.configuration import read_config
from sysperf.model.errors import Exit, UsageError
from sysperf.model.finding import Report
from sysperf.report import processes
from sysperf.report.formats import as_json

AREAS = ("kernel", "cpu", "numa", "memory", "cgroup", "container", "pcie", "driver", "gpu", "storage", "network", "allocator", "process")
"""What rules about processes look at."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_format(parser)
    _options.add_machine(parser)
    _options.add_rules(parser)
    _options.add_output(parser, verbose="how each was started, and the fixes")
    parser.add_argument("--user", metavar="NAME", help="only programs of this user (name or number)")


def run(args: argparse.Namespace) -> int:
    config = read_config()
    ruleset = rules(args, config)
    ruleset.keep_scopes(("process",))
    host = _options.host(args)
    result = with_rewraps(host, audit(host, judging.Terms(ruleset, config.waive), AREAS))
    if args.user is not None:
        result = of_user(result, number_of(args.user))
    if args.format == "json":
        area = result.snapshot.areas["process"]
        text = as_json.dump({"schema": 1, "process": area, "outcomes": result.outcomes, "rewraps": result.rewraps})
    else:
        text = processes.render(result, color=_options.wants_color(args), width=_options.width(_options.WHOLE_LINES), verbose=args.verbose)
    _options.write(text, args)
    return Exit.CLEAN


def number_of(user: str) -> int:
    """Return the number of a user. Raises UsageError where nobody has this name here."""
    if user.isdecimal():
        return int(user)
    import pwd  # noqa: PLC0415 - for this option only

    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise UsageError(f"--user {user}: there is no such user here", "a number works, too, also for a capture") from None


def of_user(report: Report, user: int) -> Report:
    """Return the report without the programs of other users, and what was found of them."""
    known = MachineFacts(report.snapshot.areas).process
    if known is None:
        return report
    own = tuple(process for process in known.processes if process.user == user)
    pids = {process.pid for process in own}
    areas = {**report.snapshot.areas, "process": replace(report.snapshot.areas["process"], facts=replace(known, processes=own))}
    return replace(
        report,
        snapshot=replace(report.snapshot, areas=areas),
        outcomes=tuple(outcome for outcome in report.outcomes if outcome.subject.pid in pids),
        rewraps=tuple(rewrap for rewrap in report.rewraps if rewrap.pid in pids),
    )
