"""Inspect this machine and list what slows PyTorch down. Each finding has its evidence, why it matters, the fix and how to undo it.

Reads only; nothing is changed. What could not be read is listed with what would make it readable.

exit codes:
  0  nothing at or above --fail-on
  1  at least one finding at or above --fail-on
  2  the command line, a rule file or a capture is wrong
  3  with --strict: something could not be read, or a program not examined

examples:
  sysperf audit                                   this machine
  sudo sysperf audit --deep                       everything that can be known
  sysperf audit --root server.tar.zst             a captured machine
  sysperf audit --format sarif --output out.sarif for code scanning
  sysperf audit --select numa,gpu --ignore gpu.persistence-off
  sysperf audit --quiet --min-severity warning    what is wrong, and nothing where nothing is
  sysperf audit --json --output a.json --format html --output a.html
"""

from __future__ import annotations

import argparse

import msgspec

from sysperf.cli import _options
from sysperf.engine import judging, reading
from sysperf.engine.audit import audit, judge_snapshot, with_rewraps
from sysperf.engine.configuration import Config, read_baseline, read_config
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.ruleset import Ruleset
from sysperf.model.errors import Exit, UsageError
from sysperf.model.finding import Report
from sysperf.model.rule import SEVERITIES, FailOn
from sysperf.report import formats, statistics
from sysperf.report.words import all_examined


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_machine(parser)
    _options.add_rules(parser)
    group = _options.add_output(parser, verbose="all of each finding, all that could not be read, and what passed", several=True)
    group.add_argument("-q", "--quiet", action="store_true", help="findings alone, as text; nothing where nothing was found")
    group.add_argument("--min-severity", choices=SEVERITIES, default="hint", help="leave smaller findings out of the report")
    group.add_argument("--statistics", action="store_true", help="how many findings each rule has, as text or JSON, instead of the report")
    _options.add_format(parser, *formats.FORMATS)
    _options.add_schema(parser)
    parser.add_argument("--fail-on", choices=(*SEVERITIES, "never"), help="exit 1 from this severity on (default: warning)")
    parser.add_argument("--strict", action="store_true", help="exit 3 when something could not be read, or a program not examined")
    parser.add_argument("--from", dest="source", metavar="REPORT", help="judge a saved JSON report again instead of a machine")
    parser.add_argument("--reference", metavar="FILE", help="a good machine's report or capture: report what differs from it")
    parser.add_argument("--baseline", metavar="FILE", help="accepted findings (default: .sysperf-baseline.json when there)")
    parser.add_argument("--config", metavar="FILE", help="use only this configuration file")


def run(args: argparse.Namespace) -> int:
    if args.schema:
        from sysperf.report.reference.schema import report_schema  # noqa: PLC0415 - no audit needs it

        return _options.write_schema(report_schema(reading.records()), args)
    config = read_config(args.config)
    result = _report(args, config)
    fail_on = args.fail_on or config.fail_on
    _options.write_reports(args, lambda one: render(one, result.without_below(args.min_severity), fail_on))
    if result.reaches(fail_on):
        return Exit.FINDINGS
    return Exit.PARTIAL if args.strict and not all_examined(result) else Exit.CLEAN


def render(args: argparse.Namespace, shown: Report, fail_on: FailOn) -> str:
    """The report in the format that is asked for."""
    if args.statistics:
        return statistics.render(shown.findings(), args.format)
    return formats.render(
        shown,
        args.format,
        color=_options.wants_color(args),
        width=_options.width(),
        verbose=args.verbose,
        quiet=args.quiet,
        fail_on=fail_on,
    )


def _report(args: argparse.Namespace, config: Config) -> Report:
    """The report that the options ask for."""
    if args.source and args.root != "/":
        raise UsageError("--from and --root both name a machine", "give one of them")
    terms = judging.load_terms(config, rules(args, config), reference=args.reference, baseline=read_baseline(args.baseline))
    if args.source:
        saved = reading.read_saved(args.source)
        result = judge_snapshot(saved.snapshot, terms, Ledger(saved.snapshot, saved.sources))
        result = msgspec.structs.replace(result, took_ms=saved.took_ms)
    else:
        host = _options.host(args)
        result = with_rewraps(host, audit(host, terms))
    _options.note_replaced_rules(terms.ruleset)
    return result


def rules(args: argparse.Namespace, config: Config) -> Ruleset:
    """The rules in force: ours, the site's, and what the configuration and the options change."""
    select, ignore = _options.listed(args.select), _options.listed(args.ignore)
    return judging.configured_rules(config, args.rules, select=select, ignore=ignore)
