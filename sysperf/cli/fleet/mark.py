"""Tell a scheduler that nodes are bad, by a comment or by a drain. It shows what it would do, asks, and writes it down before.

Every mark begins with `sysperf: `. Where somebody else's words stand, and where somebody else has drained a node, nothing is changed.
A brake holds mass action up: too many nodes of a partition are more likely one cause elsewhere. `sysperf fleet unmark` takes a mark back,
and so does `sysperf undo`, also after kill -9; what somebody has changed since stays.

exit codes:
  0  marked, or there was nothing to mark
  2  the command line is wrong, it was not confirmed, or the scheduler does not answer
  3  the brake, or a node that was left alone; the plan says why
  4  the scheduler refused a mark
  130  it was interrupted; a mark that was not whole was taken back

examples:
  sysperf fleet mark n7 n9 --why gpu.ecc-uncorrectable           a comment
  sysperf fleet mark n7 --drain --why 'slow memory, ticket 4711' no further job starts there
  sysperf fleet mark --records records/ --drain                  each node whose record says that the machine is broken
"""

from __future__ import annotations

import argparse
import sys

from sysperf.cli import _brake, _options, _signals
from sysperf.cli.fleet import _marks
from sysperf.engine import judging
from sysperf.engine.configuration import read_config
from sysperf.engine.fleet import marks
from sysperf.engine.fleet.marks import Brake, Marks
from sysperf.evaluate.ruleset import Ruleset
from sysperf.model.change import Plan, Transaction
from sysperf.model.errors import Exit, UsageError
from sysperf.report import changes
from sysperf.report.formats import as_json
from sysperf.report.words import count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="names, also folded: n[1-4]")
    parser.add_argument("--why", default="", metavar="RULE", help="the rule that says so, or words of your own")
    parser.add_argument(
        "--records", default="", metavar="FOLDER", help="take the reasons from records, of each node that is broken by its own"
    )
    parser.add_argument("--drain", action="store_true", help="also let no further job start there; running jobs go on")
    _brake.add_arguments(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--config", metavar="FILE", help="use only this configuration file")
    _marks.add_scheduler(parser)


def run(args: argparse.Namespace) -> int:
    _options.check_output(args)
    brake = Brake(_brake.most(args.at_most), args.keep)
    config = read_config(args.config)
    by = Marks(args.scheduler)
    planned = by.plan(_reasons(args, judging.machine_rules(config)), "drain" if args.drain else "mark")
    plan = changes.plan(planned, color=_options.wants_color(args), width=_options.width()) or "No node is to be marked.\n"
    if args.format == "text" and not (args.output and args.yes):  # a question needs its plan before the eyes
        sys.stdout.write(plan)
        sys.stdout.flush()
    by.check(planned, brake)
    if planned.changes and not args.yes:
        _confirm(args, planned)
    done: list[Transaction] = []
    _signals.act_as_interrupt()
    try:
        by.mark(planned, " ".join(["fleet mark", *args.nodes, *(["--drain"] if args.drain else [])]), brake, done.append)
    finally:
        _show(args, planned, done, plan if args.output else "")
    if any(each.state != "applied" for each in done):
        return Exit.ROLLED_BACK
    return Exit.PARTIAL if any(not skipped.already for skipped in planned.skipped) else Exit.CLEAN


def _reasons(args: argparse.Namespace, ruleset: Ruleset) -> dict[str, str]:
    """The words for each node. Raises UsageError."""
    nodes = _marks.nodes(args.nodes)
    if bool(args.records) == bool(args.why.strip()):
        raise UsageError(
            "say why: --why RULE or words, or --records FOLDER", "one of the two: `sysperf fleet mark n7 --why gpu.fell-off-bus`"
        )
    if args.records:
        return marks.of_records(args.records, nodes, ruleset)
    if not nodes:
        raise UsageError("no node is named", "`sysperf fleet mark n7 --why …`, or --records for all that are broken")
    return marks.of_words(nodes, args.why, ruleset)


def _confirm(args: argparse.Namespace, planned: Plan) -> None:
    if args.format == "json" or not sys.stdin.isatty():
        raise UsageError("nothing was marked: it was not confirmed", "look at the plan, then add --yes")
    if not _options.agreed(f"{'Drain' if args.drain else 'Mark'} {count(len(planned.changes), 'node')}?"):
        raise UsageError("nothing was marked: it was declined", "`sysperf fleet marks` shows what is marked")


def _show(args: argparse.Namespace, planned: Plan, done: list[Transaction], before: str) -> None:
    if args.format == "json":
        _options.write(as_json.dump({"schema": changes.SCHEMA, "plan": planned, "transactions": done}), args)
        return
    text = "".join(changes.outcome(each, color=_options.wants_color(args), width=_options.width()) for each in done)
    _options.write(f"{before}{text}", args)
