"""Fix what is safe to fix. It shows the plan, asks, writes every old value down, changes, and reads back.

Without IDs it takes every finding of this machine whose fix is safe. A rule that is named has its cautious fix applied too
(one that can affect other programs); what only a person can do (code, BIOS, packages) is listed and left to you.
All changes of one call are a transaction: when one is refused, all are taken back. `sysperf undo` takes them back
later, also after kill -9 and after a restart. What an administrator or another daemon set stays, unless --force.

exit codes:
  0  applied, or there was nothing to do
  2  the command line is wrong, or it was not confirmed
  3  something that was named can not be done here; the plan says why
  4  a change was refused and everything was rolled back
  130  it was interrupted, and everything was taken back

examples:
  sudo sysperf apply                                       every safe fix, after a question
  sudo sysperf apply --yes memory.swappiness-high          one, without a question
  sudo sysperf apply --set vm.swappiness=10 --lease 10m    it goes back by itself in ten minutes
  sudo sysperf apply --persist                             also set it at every start (sysctl.d, tmpfiles.d)
  sysperf plan                                             only show what would be done
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from sysperf.cli import _options, _signals
from sysperf.cli.audit import rules
from sysperf.engine import change, judging
from sysperf.engine.audit import audit
from sysperf.engine.change import Changer, Manual, RequestedSettings
from sysperf.engine.configuration import read_config
from sysperf.evaluate.schema import suggest
from sysperf.fix import lease_timer, recovery
from sysperf.host import Host
from sysperf.model.change import Plan, Setting, Transaction
from sysperf.model.errors import Exit, UsageError
from sysperf.model.knob import KNOBS
from sysperf.model.text import neutral
from sysperf.report import changes
from sysperf.report.formats import as_json
from sysperf.report.terminal import Ink, table
from sysperf.report.words import some

MAX_NAMED = 3
"""So many programs are named with an advice."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_change_options(parser)
    _options.add_output(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--lease", type=span, metavar="TIME", help="take it back by itself after this time (90s, 10m, 8h, 2d)")
    parser.add_argument("--persist", action="store_true", help="also set it at every start, by sysctl.d and tmpfiles.d")


def add_change_options(parser: argparse.ArgumentParser) -> None:
    """What shall be changed; `plan` has the same options."""
    parser.add_argument("rule", nargs="*", metavar="ID", help="findings to fix (default: all with a safe fix)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KNOB=VALUE",
        help="change this setting instead of fixing findings (KNOB@ITEM=VALUE for one of a disk, a process or a GPU)",
    )
    parser.add_argument("--caution", action="store_true", help="also fixes that can affect other programs")
    parser.add_argument("--force", action="store_true", help="also what another daemon or an administrator's file sets")
    parser.add_argument("--list", action="store_true", help="list the settings that sysperf can change, with their ranges, and stop")
    _options.add_format(parser)
    _options.add_rules(parser)


def run(args: argparse.Namespace) -> int:
    _options.check_output(args)
    if args.list:
        _options.write(knobs(args), args)
        return Exit.CLEAN
    changer = Changer()
    _recovered(changer)
    requested, planned = requested_changes(args, changer)
    if not planned.changes:
        show(args, requested, planned)
        return code_of(args, planned)
    _say_who_ends(args, changer, planned)
    if not args.yes:
        show(argparse.Namespace(**{**vars(args), "output": None}), requested, planned)  # a question needs its plan before the eyes
        if args.format == "json" or not sys.stdin.isatty():
            raise UsageError("nothing was changed: it was not confirmed", "look at the plan, then add --yes")
        if not _options.agreed(f"Change {changes.count(planned.changes)}?"):
            sys.stderr.write("sysperf: nothing was changed\n")
            return Exit.USAGE
    done = _applied(args, changer, planned)
    if args.format == "json":
        _options.write(as_json.dump({"schema": changes.SCHEMA, "transaction": done, "plan": planned}), args)
    else:
        color, width = _options.wants_color(args), _options.width()
        left = changes.plan(Plan(skipped=planned.skipped), color=color, width=width) if args.yes else ""  # the question has told it
        _options.write(f"{left}{changes.outcome(done, color=color, width=width)}", args)
    return code_of(args, planned) if done.state == "applied" else Exit.ROLLED_BACK


def _say_who_ends(args: argparse.Namespace, changer: Changer, planned: Plan) -> None:
    """Before anything is changed: that only one process would end the lease. Raises UsageError when nobody would."""
    settings = [Setting(step.knob, step.after, step.item) for step in planned.changes]
    if args.lease is None or changer.asks_helper(settings):
        return
    if problem := lease_timer.unguarded():
        sys.stderr.write(
            f"sysperf: only a process that stays behind ends this lease ({problem}); should it be killed, run `sysperf undo --expired`\n"
        )


def code_of(args: argparse.Namespace, planned: Plan) -> int:
    """Whether all that was asked for by name was done, or was so already."""
    left = (args.set or args.rule) and any(not skipped.already for skipped in planned.skipped)
    return Exit.PARTIAL if left else Exit.CLEAN


def requested_changes(args: argparse.Namespace, changer: Changer) -> tuple[RequestedSettings, Plan]:
    """What is asked for, and what it means here."""
    if args.set and args.rule:
        raise UsageError("--set and IDs both say what to change", "give one of them")
    requested = RequestedSettings(tuple(map(change.setting, args.set)), ()) if args.set else _of_findings(args)
    return requested, changer.plan(requested.settings, force=args.force)


def _of_findings(args: argparse.Namespace) -> RequestedSettings:
    config = read_config()
    ruleset = rules(args, config)
    named = _options.listed(args.rule)
    known = [rule.id for rule in ruleset.rules]
    for name in named:
        if name not in known:
            raise UsageError(f"no rule `{name}`{suggest(name, known)}", "`sysperf rules list` shows all")
    if named:
        ruleset.select(named, [])
    report = audit(Host(), judging.Terms(ruleset, config.waive))
    return change.requested_settings(report.outcomes, named, caution=args.caution)


def show(args: argparse.Namespace, requested: RequestedSettings, planned: Plan) -> None:
    """The plan, and what is left to a person."""
    if args.format == "json":
        manual = [{"rule": step.outcome.rule, "subject": step.outcome.about, "reason": step.reason} for step in requested.manual]
        _options.write(as_json.dump({"schema": changes.SCHEMA, "plan": planned, "manual": manual}), args)
        return
    text = changes.plan(planned, color=_options.wants_color(args), width=_options.width())
    lines = [text.rstrip("\n")] if text.strip() else []
    if requested.manual:
        lines.append("\nLeft to you:\n")
        lines += left(requested.manual)
    if not planned.changes:
        lines.append("\nNothing to change." if lines else "Nothing to change: no finding has a fix that sysperf applies by itself.")
    _options.write("\n".join(lines).lstrip("\n"), args)


def left(manual: Iterable[Manual]) -> list[str]:
    """A line for each thing that a person does, with the programs or GPUs that it is about."""
    alike: dict[tuple[str, str], list[str]] = {}
    for step in manual:
        alike.setdefault((step.outcome.rule, step.reason), []).append(neutral(step.outcome.about, 80))
    named = {key: f" of {some(about, MAX_NAMED)}" if any(about) else "" for key, about in alike.items()}
    return [f"  {rule}{about}: {neutral(reason, 300)}" for (rule, reason), about in named.items()]


def knobs(args: argparse.Namespace) -> str:
    """The allow-list."""
    if args.format == "json":
        return as_json.dump([*KNOBS.values()])
    ink = Ink(_options.wants_color(args))
    rows = [[knob.name + (f"@{_ITEMS[knob.item]}" if knob.item else ""), knob.range()] for knob in KNOBS.values()]
    head, *lines = table(("setting", "takes"), rows, ink, _options.width())
    entries = (f"{line}\n    {ink('dim', knob.source)}" for line, knob in zip(lines, KNOBS.values(), strict=True))
    return "\n".join([head, *entries]) + "\n"


_ITEMS = {"block device": "DISK", "process": "PID", "PCI address of a GPU": "GPU"}


def span(text: str) -> float:
    """``10m`` in seconds."""
    try:
        return change.seconds(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(f"{error} {error.hint}") from None


def _recovered(changer: Changer) -> None:
    """What an earlier run left half done is taken back before a plan is made, or the plan would take it for what was there."""
    if any(recovery.is_over(transaction) for transaction in changer.journal.transactions()):
        text = changes.undone(changer.recover(), color=False, width=_options.width())
        sys.stderr.write(f"sysperf: an earlier change was interrupted or its lease has ended:\n{text}")


def _applied(args: argparse.Namespace, changer: Changer, planned: Plan) -> Transaction:
    """Apply; a signal that would end us takes the steps back first."""
    why = " ".join(["apply", *args.rule, *(f"--set {text}" for text in args.set)])
    request = change.request(why, lease_s=args.lease, persist=args.persist)
    _signals.act_as_interrupt()
    try:
        return changer.apply(planned, request, force=args.force)
    except KeyboardInterrupt:
        sys.stderr.write("\nsysperf: interrupted; what was changed is taken back (`sysperf changes` shows it)")
        raise
