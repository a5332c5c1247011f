"""`sysperf lint --fix` and `--undo`: the diff, the question, and the report of what was written or put back."""

from __future__ import annotations

import argparse
import sys

from sysperf.cli import _options
from sysperf.engine.lint import Target
from sysperf.engine.lint import fix as lint_fix
from sysperf.model.errors import Exit, UsageError
from sysperf.model.finding import Finding
from sysperf.model.text import neutral
from sysperf.report.terminal import Ink
from sysperf.report.words import count
from sysperf.script.changes.codemods import CODEMODS
from sysperf.script.hypothesis import Lint

MAX_LEFT = 10
"""Places that are named where nothing can be changed."""
_STYLES = {"+": "good", "-": "error", "@": "info"}


def fix(args: argparse.Namespace, result: Lint, stdin: Target | None = None, *, partial: bool = False) -> int:
    """Show what would be changed, ask, and change it. Of the standard input, print what it would become.

    `partial` is whether what was asked for could not be examined.
    """
    if args.format != "text":
        raise UsageError("--fix and --diff have one format, a diff", "leave --format out")
    fixes = lint_fix.plan(result, stdin)
    _tell_unread(result)
    if stdin is not None and args.fix:
        return _print(args, stdin, fixes)
    if not fixes:
        _options.write("\n".join(["Nothing to change: no place is both understood and safe to change.", *_left_alone(result)]), args)
        return Exit.PARTIAL if partial else Exit.CLEAN
    ink = Ink(_options.wants_color(args))
    lines = lint_fix.diff(fixes).splitlines()
    _options.write("\n".join(ink(_STYLES.get(line[:1], "plain"), line) for line in lines), args, verbatim=True)
    sys.stdout.flush()
    if args.diff:
        return Exit.FINDINGS
    number = sum(len(file_fix.changes) for file_fix in fixes)
    if not args.yes and not _confirmed(f"{count(number, 'change')} in {count(len(fixes), 'file')}"):
        return Exit.USAGE
    return _change(fixes)


def _tell_unread(result: Lint) -> None:
    """Name the files of which nobody knows whether they could be changed."""
    for each in result.unread[:MAX_LEFT]:
        place = f"{each.file}:{each.line}" if each.line else each.file
        sys.stderr.write(f"sysperf: {neutral(place, 2_000)} was not examined: {neutral(each.reason)}\n")
    if len(result.unread) > MAX_LEFT:
        sys.stderr.write(f"sysperf: and {len(result.unread) - MAX_LEFT} more were not examined\n")


def _where(each: Finding) -> str:
    """Why no rule's list tells the reason."""
    return " (notebooks are left as they are)" if each.place is not None and each.place.cell else ""


def _left_alone(result: Lint) -> list[str]:
    """The places of rules that have a change, which these places do not fit."""
    left = [each for each in result.hypotheses if each.rule in CODEMODS and each.source_fix is None]
    lines = [f"  {neutral(each.about, 2_000)}: {each.rule}{_where(each)}" for each in left[:MAX_LEFT]]
    if len(left) > MAX_LEFT:
        lines.append(f"  and {len(left) - MAX_LEFT} more")
    return ["Left alone, since something of what docs/lint.md lists beside the rule holds there:", *lines] if left else []


def _change(fixes: list[lint_fix.FileFix]) -> int:
    done = lint_fix.write_all(fixes)
    for path, why in done.refused:
        sys.stderr.write(f"sysperf: {neutral(path)} was left alone: {neutral(why)}\n")
    if done.number:
        sys.stdout.write(f"Changed {count(len(done.written), 'file')}. `sysperf lint --undo {done.number}` takes it back.\n")
    return Exit.PARTIAL if done.refused else Exit.CLEAN


def _print(args: argparse.Namespace, stdin: Target, fixes: list[lint_fix.FileFix]) -> int:
    """Print the standard input, changed where that is safe: for an editor."""
    if args.paths != ["-"]:
        raise UsageError("--fix of - prints what it becomes, and takes no other file", "name - alone")
    sys.stdout.buffer.write(fixes[0].after if fixes else stdin.content or b"")
    sys.stdout.flush()
    return Exit.CLEAN


def _confirmed(what: str) -> bool:
    """Whether somebody at a terminal agrees. Raises UsageError where nobody sits at one."""
    if not sys.stdin.isatty():
        raise UsageError("nothing was changed: it was not confirmed", "look at the diff, then add --yes")
    agreed = _options.agreed(f"Make {what}?")
    if not agreed:
        sys.stderr.write("sysperf: nothing was changed\n")
    return agreed


def undo(args: argparse.Namespace) -> int:
    """Put back what files held before a --fix."""
    if args.paths:
        raise UsageError("--undo takes back a whole --fix, and no paths", "`sysperf lint --undo NUMBER`")
    backups = lint_fix.backups()
    number = args.undo or backups.latest()
    if number is None:
        _options.write("Nothing to take back.", args)
        return Exit.CLEAN
    restored = backups.undo(number)
    lines = [f"{file.state:<9} {neutral(file.path, 2_000)}" + (f" ({neutral(file.why)})" if file.why else "") for file in restored]
    _options.write("\n".join(lines), args)
    return Exit.CLEAN if all(file.state in ("restored", "already") for file in restored) else Exit.PARTIAL
