"""Look for what may be slow in the source of training scripts. Nothing is imported or run.

What it shows are hypotheses, with line and column: a source does not tell what a place costs. A trace, a running program or a
trial does, so the exit code is 0 unless --fail-on says otherwise. Names are followed through the file: a loader that a helper
makes, a model that is moved later, the hooks of Lightning, Accelerate, transformers and timm.

Folders are walked without hidden ones, virtual environments, build and dist. A comment accepts a place or a file:
`# sysperf: ignore`, `# sysperf: ignore[sync-per-step]`, `# sysperf: ignore-file[not-compiled]`. So does a `[[waive]]` of the
configuration, whose subject is a pattern of `FILE:LINE:COLUMN`, and a baseline.

--fix shows as a diff what can be changed without changing a loss, and asks. Code that is not understood completely is left alone.
What files held is kept first (below ~/.local/state/sysperf/lint), and --undo puts it back, byte for byte.

exit codes:
  0  nothing at or above --fail-on
  1  at least one place at or above --fail-on
  2  the command line or a rule file is wrong
  3  with --strict: a file could not be examined; with --undo: a file was left alone

examples:
  sysperf lint train.py                                what may be slow in it
  sysperf lint . --select sync-per-step,transfer-blocking
  sysperf lint src --format sarif --output lint.sarif  for code scanning, with line and column
  sysperf lint . --format github --fail-on info        in a job of GitHub Actions
  sysperf lint . --write-baseline                      accept what is there; later calls show what is new
  sysperf lint train.py --fix                          show the changes, and make them after a question
  sysperf lint --undo                                  take the latest ones back
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from sysperf import report
from sysperf.cli import _options
from sysperf.engine import judging
from sysperf.engine import lint as engine
from sysperf.engine.configuration import Config, read_baseline, read_config
from sysperf.evaluate.ruleset import Ruleset
from sysperf.model.errors import Exit, UsageError
from sysperf.model.rule import SEVERITIES
from sysperf.script.hypothesis import Lint, schema

if TYPE_CHECKING:
    from sysperf.collect.gpu import Gpu

FORMATS = ("text", "json", "sarif", "github")
BASELINE = ".sysperf-lint-baseline.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="scripts, notebooks, or folders of them")
    fixing = parser.add_argument_group("changes")
    fixing.add_argument("--fix", action="store_true", help="show what can be changed safely as a diff, then ask")
    fixing.add_argument("--yes", action="store_true", help="with --fix: do not ask")
    fixing.add_argument("--undo", nargs="?", type=int, const=0, metavar="NUMBER", help="take a --fix back (default: the latest)")
    _options.add_rules(parser)
    _options.add_output(parser, verbose="every place, all of each rule, and every file that could not be examined")
    _options.add_format(parser, *FORMATS)
    parser.add_argument("--baseline", metavar="FILE", help=f"accepted hypotheses (default: {BASELINE} when there)")
    parser.add_argument(
        "--write-baseline", action="store_true", help="accept all that is there; of a baseline, drop what is gone, and stop"
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of --format json and stop")
    parser.add_argument("--fail-on", choices=(*SEVERITIES, "never"), default="never", help="exit 1 from this severity on (default: never)")
    parser.add_argument("--strict", action="store_true", help="exit 3 when a file could not be examined")
    parser.add_argument("--config", metavar="FILE", help="use only this configuration file")


def run(args: argparse.Namespace) -> int:
    if args.schema:
        from sysperf.report import as_json  # noqa: PLC0415 - no lint needs it

        _options.write(as_json.dump(schema()), args)
        return Exit.CLEAN
    if args.undo is not None:
        from sysperf.cli.lint import fix as lint_fix  # noqa: PLC0415 - for this option only

        return lint_fix.undo(args)
    if not args.paths:
        raise UsageError("no script is named", "`sysperf lint .` looks at all below this folder")
    config = read_config(args.config)
    ruleset = rules(args, config)
    result = engine.lint(args.paths, ruleset, gpus(ruleset))
    if args.write_baseline:
        from sysperf.cli import baseline  # noqa: PLC0415 - for this option only

        outcomes = engine.as_report(engine.without_accepted(result, config.waive, None, ruleset)).outcomes
        return baseline.write(args.baseline or BASELINE, outcomes, "--baseline")
    known = read_baseline(args.baseline or BASELINE) if args.baseline or os.path.isfile(BASELINE) else None
    result = engine.without_accepted(result, config.waive, known, ruleset)
    if args.fix:
        from sysperf.cli.lint import fix as lint_fix  # noqa: PLC0415 - for this option only

        return lint_fix.fix(args, result)
    _options.write(render(args, result), args)
    if fails(result, args.fail_on):
        return Exit.FINDINGS
    return Exit.PARTIAL if args.strict and result.unread else Exit.CLEAN


def rules(args: argparse.Namespace, config: Config) -> Ruleset:
    """The rules in force. A rule may be named without its area (`branch-on-loss`)."""
    ruleset = judging.configured_rules(config, args.rules)
    ruleset.keep_scopes(("script",))
    select, ignore = ([rule for name in _options.listed(given) for rule in _named(name, ruleset)] for given in (args.select, args.ignore))
    if select or ignore:
        ruleset.select(select, ignore)
    return ruleset


def _named(name: str, ruleset: Ruleset) -> list[str]:
    return [rule.id for rule in ruleset.rules if rule.id.partition(".")[2] == name] or [name]


def gpus(ruleset: Ruleset) -> Gpu | None:
    """The GPUs of this machine, where a rule asks for them; None where they are not known."""
    if not ruleset.witnesses("precision.bfloat16-unsupported"):
        return None
    from sysperf.engine.reading import snapshot  # noqa: PLC0415 - for this rule only
    from sysperf.host import Host  # noqa: PLC0415 - as above

    facts: Gpu | None = snapshot(Host(), ("gpu",)).areas["gpu"].facts
    return facts


def fails(result: Lint, severity: str) -> bool:
    """Whether a place is of this severity or a worse one."""
    worst = SEVERITIES.index(severity) if severity != "never" else -1
    return any(SEVERITIES.index(hypothesis.severity) <= worst for hypothesis in result.hypotheses)


def render(args: argparse.Namespace, result: Lint) -> str:
    """The hypotheses in the format that is asked for."""
    if args.format == "json":
        from sysperf.report import as_json  # noqa: PLC0415 - for this format only

        return as_json.dump(result)
    if args.format == "text":
        from sysperf.report import lint  # noqa: PLC0415 - for this format only

        return lint.render(result, color=_options.wants_color(args), width=_options.width(), verbose=args.verbose)
    return report.render(engine.as_report(result), args.format)
