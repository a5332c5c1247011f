"""List, show, check and test rules: ours and those of this site.

examples:
  sysperf rules list                  every rule in force
  sysperf rules show numa.gpu-remote  one rule, as JSON
  sysperf rules check my.toml         is this file right? names, types, fixes, messages
  sysperf rules test my.toml          run the tests inside this file

exit codes:
  0  done, and nothing is wrong
  1  a test failed
  2  the command line or a rule file is wrong
"""

from __future__ import annotations

import argparse
import os

from sysperf.cli import _options
from sysperf.engine import judging
from sysperf.evaluate.rule_files import read_file, site_files
from sysperf.evaluate.ruleset import Ruleset, load
from sysperf.evaluate.selftest import run_tests
from sysperf.model.errors import Exit, UsageError
from sysperf.model.rule import SEVERITIES, Rule
from sysperf.report.formats import as_json
from sysperf.report.words import count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    listing = _action(actions, "list", "every rule and cause: severity, scope, id, title", "sysperf rules list --select numa,gpu --json")
    _options.add_rules(listing)
    show = _action(actions, "show", "one rule, as JSON", "sysperf rules show numa.gpu-remote")
    show.add_argument("id", metavar="ID", help="a rule's id, as `list` shows it")
    _options.add_rule_files(show)
    for name, text in (("check", "check rule files: names, types, fixes, messages"), ("test", "run the tests inside rule files")):
        action = _action(actions, name, text, f"sysperf rules {name} my.toml")
        action.add_argument("files", nargs="*", metavar="FILE", help="rule files, or folders of them (default: all rules in force)")
    for name, action in actions.choices.items():
        _options.add_format(action, *(["json"] if name == "show" else []))
        _options.add_output(action)


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],  # the only name that argparse has for it
    name: str,
    text: str,
    example: str,
) -> argparse.ArgumentParser:
    """The parser of one action, whose help has an example."""
    page = f"{text[:1].upper()}{text[1:]}.\n\nexample:\n  {example}"
    return actions.add_parser(name, help=text, description=page, formatter_class=_options.formatter)


def run(args: argparse.Namespace) -> int:
    return {"list": _list, "show": _show, "check": _check, "test": _test}[args.action](args)


def _list(args: argparse.Namespace) -> int:
    ruleset = judging.load_rules(args.rules)
    select, ignore = _options.listed(args.select), _options.listed(args.ignore)
    if select or ignore:
        ruleset.select(select, ignore)
    chosen = sorted(ruleset.rules, key=lambda rule: (SEVERITIES.index(rule.severity), rule.id))
    if args.format == "json":
        _options.write(as_json.dump(chosen), args)
        return Exit.CLEAN
    worst = {rule.id: rule for rule in reversed(chosen)}  # of a cause its severest witness
    wide = max(map(len, worst), default=0)
    lines = [
        f"{rule.severity:<8} {'cause' if rule.witness else rule.scope:<8} {rule.id:<{wide}}  {rule.title}"
        for rule in reversed(worst.values())
    ]
    causes = sum(1 for rule in worst.values() if rule.witness)
    _options.write("\n".join([*lines, *ruleset.replaced_rules(), f"{count(len(worst) - causes, 'rule')}, {count(causes, 'cause')}"]), args)
    return Exit.CLEAN


def _show(args: argparse.Namespace) -> int:
    found = judging.find(judging.load_rules(args.rules), args.id, args.rules)
    if not isinstance(found, Rule):
        _options.write(as_json.dump(found.cause), args)
        return Exit.CLEAN
    files = [path for path in (*judging.site_rule_files(args.rules)[::-1], *judging.rule_files()) if os.path.basename(path) == found.file]
    written = (rule for path in files for rule in read_file(path).rule if rule.id == found.id)  # with its tests, which a loaded one lacks
    _options.write(as_json.dump(next(written)), args)
    return Exit.CLEAN


def _files(args: argparse.Namespace) -> list[str]:
    for path in args.files:
        if not os.path.exists(path):
            raise UsageError(f"{path}: no such file", "name a rule file, or a folder of them")
    return site_files((), args.files) if args.files else [*judging.rule_files(), *judging.site_rule_files()]


def _load(args: argparse.Namespace) -> tuple[Ruleset, list[Rule]]:
    """All rules in force with these files on top, and the rules of these files."""
    files = _files(args)
    own = [rule for path in files for rule in read_file(path).rule]
    ours = judging.rule_files()
    known = set(map(os.path.realpath, ours))
    site = [path for path in files if os.path.realpath(path) not in known]
    return load(ours, judging.schema(), site=site), own


def _check(args: argparse.Namespace) -> int:
    ruleset, own = _load(args)
    for rule in own:
        ruleset.compiled(rule.key).check()
    _options.note_replaced_rules(ruleset)
    text = as_json.dump({"rules": len(own)}) if args.format == "json" else f"{count(len(own), 'rule')} checked: no mistake found"
    _options.write(text, args)
    return Exit.CLEAN


def _test(args: argparse.Namespace) -> int:
    ruleset, own = _load(args)
    tests, failures = run_tests(ruleset, judging.schema(), own)
    if args.format == "json":
        _options.write(as_json.dump({"rules": len(own), "tests": tests, "failures": failures}), args)
        return Exit.FINDINGS if failures else Exit.CLEAN
    lines = [f"{failure.rule}: {failure.test or 'tests'}: {failure.problem}" for failure in failures]
    _options.write("\n".join([*lines, f"{count(tests, 'test')} of {count(len(own), 'rule')}: {len(failures) or 'none'} failed"]), args)
    return Exit.FINDINGS if failures else Exit.CLEAN
