"""Look for what may be slow in the source of training scripts. Nothing is imported or run.

What it shows are hypotheses, with line and column: a source does not tell what a place costs. A trace, a running program or a
trial does, so the exit code is 0 unless --fail-on says otherwise. Names are followed through the file: a loader that a helper
makes, a model that is moved later, the hooks of Lightning, Accelerate, transformers and timm.

Folders are walked without hidden ones, virtual environments, builds and tests: name those to read them. `-` is the standard input.
[tool.sysperf.lint] of the nearest pyproject.toml may have select, ignore, exclude, per-file-ignores, confidence and fail-on. A comment
accepts a place or a file: `# sysperf: ignore`, `# sysperf: ignore[sync.per-step]`, `# sysperf: ignore-file[not-compiled]`; one that accepts
nothing is named. So does a `[[waive]]` of the configuration, whose subject is a pattern of `FILE:LINE:COLUMN`, and a baseline.

--fix shows as a diff what can be changed without changing a loss, and asks. Code that is not understood completely is left alone.
What files held is kept first (below ~/.local/state/sysperf/lint), and --undo puts it back, byte for byte. --diff only shows.

exit codes:
  0  nothing at or above --fail-on
  1  at least one place at or above --fail-on; with --diff: there is something to change
  2  the command line or a rule file is wrong
  3  a file that was named could not be examined, or none could; with --strict: any; with --undo: a file was left alone

examples:
  sysperf lint train.py                                what may be slow in it
  sysperf lint . --select sync.per-step,transfer --exclude legacy
  sysperf lint . --confidence low                      also what a source cannot show to pay, such as torch.compile
  sysperf lint . --statistics                          how often each rule is broken
  sysperf lint train.py --watch                        again whenever a file changes
  sysperf lint src --format sarif --output lint.sarif --format text
  sysperf lint . --format github --fail-on info        in a job of GitHub Actions
  sysperf lint . --write-baseline                      accept what is there; later calls show what is new
  sysperf lint train.py --diff                         show what --fix would change
  sysperf lint train.py --fix                          show the changes, and make them after a question
  sysperf lint --undo                                  take the latest ones back
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sysperf.cli import _options
from sysperf.engine import judging
from sysperf.engine import lint as engine
from sysperf.engine.configuration import Config, read_baseline, read_config
from sysperf.engine.lint.project import Project, read_project
from sysperf.evaluate.ruleset import Ruleset
from sysperf.model.errors import Exit, RuleError, UsageError
from sysperf.model.rule import CONFIDENCES, SEVERITIES
from sysperf.report import formats
from sysperf.script.comments import short_names
from sysperf.script.hypothesis import Lint, schema
from sysperf.script.source import MAX_BYTES

if TYPE_CHECKING:
    from sysperf.collect.gpu import Gpu

FORMATS = ("text", "concise", "json", "sarif", "github")
BASELINE = ".sysperf-lint-baseline.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="scripts, notebooks, or folders of them; - reads the standard input")
    parser.add_argument("--stdin-filename", default="-", metavar="NAME", help="what to call the standard input (.ipynb: it is a notebook)")
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN", help="leave out files and folders (commas or repeated)"
    )
    parser.add_argument("--watch", action="store_true", help="go on, and look again whenever a file changes")
    fixing = parser.add_argument_group("changes")
    fixing.add_argument("--fix", action="store_true", help="show what can be changed safely as a diff, then ask; of -, print the result")
    fixing.add_argument("--diff", action="store_true", help="show what --fix would change, and stop")
    fixing.add_argument("--yes", action="store_true", help="with --fix: do not ask")
    fixing.add_argument("--undo", nargs="?", type=int, const=0, metavar="NUMBER", help="take a --fix back (default: the latest)")
    _options.add_rules(parser)
    parser.add_argument(
        "--confidence", choices=CONFIDENCES, help="show what is at least so sure to help (default: medium; with --select, all it names)"
    )
    group = _options.add_output(parser, verbose="every place, all of each rule, and every file that could not be examined", several=True)
    group.add_argument("--statistics", action="store_true", help="how often each rule is broken, as text or JSON, instead of the places")
    _options.add_format(parser, *FORMATS)
    parser.add_argument("--baseline", metavar="FILE", help=f"accepted hypotheses (default: {BASELINE} when there)")
    parser.add_argument(
        "--write-baseline", action="store_true", help="accept all that is there; of a baseline, drop what is gone, and stop"
    )
    _options.add_schema(parser)
    parser.add_argument("--fail-on", choices=(*SEVERITIES, "never"), help="exit 1 from this severity on (default: never)")
    parser.add_argument("--strict", action="store_true", help="exit 3 when any file could not be examined, also one in a folder")
    parser.add_argument("--config", metavar="FILE", help="use only this configuration file, and no pyproject.toml")


def run(args: argparse.Namespace) -> int:
    if args.schema:
        return _options.write_schema(schema(), args)
    if args.undo is not None:
        from sysperf.cli.lint import fix as lint_fix  # noqa: PLC0415 - for this option only

        return lint_fix.undo(args)
    if not args.paths:
        raise UsageError("no script is named", "`sysperf lint .` looks at all below this folder")
    asked = _asked(args)
    if args.watch:
        from sysperf.cli.lint import watch  # noqa: PLC0415 - for this option only

        return watch.watch(args.paths, asked.choice.exclude, lambda: _show(args, asked))
    if args.write_baseline:
        from sysperf.cli import baseline  # noqa: PLC0415 - for this option only

        result = engine.without_accepted(asked.lint(), asked.config.waive, None, asked.ruleset)
        return baseline.write(args.baseline or BASELINE, engine.as_report(result).outcomes, "--baseline", args)
    return _show(args, asked)


class Asked(NamedTuple):
    """What the options, the configuration and the project ask for."""

    paths: list[str]
    stdin: engine.Target | None
    config: Config
    ruleset: Ruleset
    choice: engine.Choice
    fail_on: str
    gpus: Gpu | None

    def lint(self) -> Lint:
        """Look. Raises UsageError."""
        return engine.lint(self.paths, self.ruleset, self.gpus, self.choice, stdin=self.stdin)


def _asked(args: argparse.Namespace) -> Asked:
    config = read_config(args.config)
    project = Project() if args.config else read_project()
    ruleset = judging.configured_rules(config, args.rules)
    ruleset.keep_scopes(("script",))
    known = frozenset(name for rule in ruleset.rules for name in short_names(rule.id))
    per_file = tuple((pattern, _ids(rules, ruleset)) for pattern, rules in project.per_file_ignores.items())
    select = _options.listed(args.select) or [*project.select]
    _select(ruleset, select, [*project.ignore, *_options.listed(args.ignore)])
    least = args.confidence or project.confidence or ("low" if select else "medium")
    choice = engine.Choice((*project.exclude, *_options.listed(args.exclude)), per_file, known, least)
    paths = [path for path in args.paths if path != "-"]
    stdin = engine.Target(args.stdin_filename, True, sys.stdin.buffer.read(MAX_BYTES + 1)) if "-" in args.paths else None
    return Asked(paths, stdin, config, ruleset, choice, args.fail_on or project.fail_on, gpus(ruleset))


def _show(args: argparse.Namespace, asked: Asked) -> int:
    """Look once, and show it."""
    known = read_baseline(args.baseline or BASELINE) if args.baseline or os.path.isfile(BASELINE) else None
    result = engine.without_accepted(asked.lint(), asked.config.waive, known, asked.ruleset)
    if args.fix or args.diff:
        from sysperf.cli.lint import fix as lint_fix  # noqa: PLC0415 - for these options only

        return lint_fix.fix(args, result, asked.stdin, partial=is_partial(args, result))
    _options.write_reports(args, lambda one: render(one, result))
    if fails(result, asked.fail_on):
        return Exit.FINDINGS
    return Exit.PARTIAL if is_partial(args, result) else Exit.CLEAN


def _select(ruleset: Ruleset, select: Sequence[str], ignore: Sequence[str]) -> None:
    """Keep what is selected. A rule may be named without its area (`branch-on-loss`). Raises RuleError."""
    chosen, dropped = ([rule for name in given for rule in _named(name, ruleset)] for given in (select, ignore))
    if chosen or dropped:
        ruleset.select(chosen, dropped)


def _ids(names: Sequence[str], ruleset: Ruleset) -> frozenset[str]:
    """The rules that names and patterns stand for; a name of none is said by RuleError."""
    every = frozenset(rule.id for rule in ruleset.rules)
    found = {name: every if name == "ALL" else frozenset(_named(name, ruleset)) & every or ruleset.matching(name) for name in names}
    if unknown := next((name for name, ids in found.items() if not ids), ""):
        raise RuleError(f"per-file-ignores: no rule matches `{unknown}`", "`sysperf rules list` shows all")
    return frozenset().union(*found.values())


def _named(name: str, ruleset: Ruleset) -> list[str]:
    return [rule.id for rule in ruleset.rules if rule.id.partition(".")[2] == name] or [name]


def gpus(ruleset: Ruleset) -> Gpu | None:
    """The GPUs of this machine, where a rule asks for them; None where they are not known."""
    if not ruleset.witnesses("precision.bfloat16-unsupported"):
        return None
    from sysperf.collect.machine_facts import MachineFacts  # noqa: PLC0415 - for this rule only
    from sysperf.engine.reading import snapshot  # noqa: PLC0415 - as above
    from sysperf.host import Host  # noqa: PLC0415 - as above

    return MachineFacts(snapshot(Host(), ("gpu",)).areas).gpu


def is_partial(args: argparse.Namespace, result: Lint) -> bool:
    """Whether what was asked for could not be examined: a file that is named itself, or all files; with --strict any."""
    named = {args.stdin_filename if path == "-" else path for path in args.paths}
    return bool(result.unread) and (args.strict or not result.lines or any(unread.file in named for unread in result.unread))


def fails(result: Lint, severity: str) -> bool:
    """Whether a place is of this severity or a worse one."""
    worst = SEVERITIES.index(severity) if severity != "never" else -1
    return any(SEVERITIES.index(hypothesis.severity) <= worst for hypothesis in result.hypotheses)


def render(args: argparse.Namespace, result: Lint) -> str:
    """The hypotheses in the format that is asked for."""
    if args.statistics:
        from sysperf.report import statistics  # noqa: PLC0415 - for this option only

        return statistics.render(result.hypotheses, args.format)
    if args.format == "json":
        from sysperf.report.formats import as_json  # noqa: PLC0415 - for this format only

        return as_json.dump(result)
    if args.format == "text":
        from sysperf.report import lint  # noqa: PLC0415 - for this format only

        return lint.render(result, color=_options.wants_color(args), width=_options.width(_options.WHOLE_LINES), verbose=args.verbose)
    return formats.render(engine.as_report(result), args.format)
