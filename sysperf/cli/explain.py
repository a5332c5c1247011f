"""Explain a rule or a cause: why it matters, and what to do. Where it shows, what that gains, and who says so.

examples:
  sysperf explain numa.balancing-on
  sysperf explain dataloader.inline
  sysperf explain --seed S0.3a                    a statement of the articles: is it true, and what was measured?
"""

from __future__ import annotations

import argparse

from sysperf.cli import _options
from sysperf.engine import judging, statements
from sysperf.evaluate.waivers import OWN_FINDINGS
from sysperf.model.errors import Exit, UsageError
from sysperf.model.rule import Rule
from sysperf.report.formats import as_json
from sysperf.report.reference import explain
from sysperf.report.reference import statements as report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", default="", metavar="ID", help="the id of a rule or a cause, as findings show it")
    parser.add_argument("--seed", default="", metavar="STATEMENT", help="a statement of the articles instead, such as S0.3a: docs/seeds.md")
    _options.add_rule_files(parser)
    _options.add_format(parser)
    _options.add_output(parser, verbose="also show the conditions under which it is reported")


def run(args: argparse.Namespace) -> int:
    if bool(args.id) == bool(args.seed):
        raise UsageError("explain takes a rule's id, or a statement with --seed: one of them", "`sysperf explain --help` lists its options")
    if args.seed:
        return _statement(args)
    if args.id in OWN_FINDINGS and args.format == "json":
        _options.write(as_json.dump({"id": args.id, "explain": OWN_FINDINGS[args.id]}), args)
        return Exit.CLEAN
    if args.id in OWN_FINDINGS:
        _options.write(explain.own(args.id, OWN_FINDINGS[args.id], color=_options.wants_color(args), width=_options.width()), args)
        return Exit.CLEAN
    what = judging.find(judging.load_rules(args.rules), args.id, args.rules)
    seeds = what.seeds if isinstance(what, Rule) else what.cause.seeds
    told = [one for one in statements.statements() if set(one.ids) & set(seeds)]
    if args.format == "json":
        _options.write(as_json.dump({"rule": what if isinstance(what, Rule) else what.cause, "statements": told}), args)
        return Exit.CLEAN
    text = explain.render(what, told, color=_options.wants_color(args), width=_options.width(), verbose=args.verbose)
    _options.write(text, args)
    return Exit.CLEAN


def _statement(args: argparse.Namespace) -> int:
    statement = statements.statement(args.seed)
    measured, here = report.of(statement, statements.measured()), statements.measured_here(statement.ids)
    if args.format == "json":
        _options.write(as_json.dump({"statement": statement, "measured": measured, "here": here}), args)
        return Exit.CLEAN
    _options.write(report.text(statement, measured, here, color=_options.wants_color(args), width=_options.width()), args)
    return Exit.CLEAN
