"""List the installed plugins, ours and those of other packages. They take call stacks, take traces and read traces.

A command uses one by its name: `sysperf stacks PID --with NAME`, `sysperf trace PID --with NAME`. Listing imports none of
them; --check does, and says which cannot be used. docs/plugins.md shows how to write one.

exit codes:
  0  listed; with --check: all can be used
  1  with --check: one cannot be used

examples:
  sysperf plugins
  sysperf plugins --check
  sysperf plugins --json
"""

from __future__ import annotations

import argparse

from sysperf import plugin
from sysperf.cli import _options
from sysperf.model.errors import Exit, UsageError
from sysperf.model.record import Record
from sysperf.model.text import neutral
from sysperf.report.formats import as_json
from sysperf.report.terminal import Ink, Page, pad

MAX_NAME = 24
"""Columns of a name; a longer one moves its line only."""


class Listed(Record):
    """A plugin as this command shows it."""

    kind: str
    name: str
    module: str
    distribution: str
    version: str
    default: bool
    problem: str | None = None
    """Why it cannot be used; empty when --check found nothing wrong, None when nobody checked."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="import each plugin, and fail when one cannot be used")
    _options.add_format(parser)
    _options.add_output(parser)


def add_choice(parser: argparse.ArgumentParser, kind: plugin.Kind, option: str = "--with") -> None:
    """Add the option that chooses a plugin of this kind."""
    parser.add_argument(
        option, dest=f"{kind.name}_plugin", default="", metavar="PLUGIN", help=f"the plugin that {kind.purpose} (default: {kind.default})"
    )


def run(args: argparse.Namespace) -> int:
    plugins = [_listed(entry, check=args.check) for kind in plugin.KINDS for entry in plugin.installed(kind)]
    text = as_json.dump(plugins) if args.format == "json" else _text(plugins, color=_options.wants_color(args))
    _options.write(text, args)
    return Exit.FINDINGS if any(listed.problem for listed in plugins) else Exit.CLEAN


def _listed(entry: plugin.Plugin, *, check: bool) -> Listed:
    default = entry.name == entry.kind.default
    return Listed(entry.kind.name, entry.name, entry.module, entry.distribution, entry.version, default, _problem(entry) if check else None)


def _problem(entry: plugin.Plugin) -> str:
    try:
        plugin.load(entry.kind, entry.name)
    except UsageError as error:
        return str(error)
    return ""


def _text(plugins: list[Listed], *, color: bool) -> str:
    page = Page(Ink(color), _options.width())
    for kind in plugin.KINDS:
        page.line(page.ink("strong", f"{kind.name}: {kind.purpose}"))
        of_kind = [listed for listed in plugins if listed.kind == kind.name]
        for listed in of_kind:
            _line(page, listed)
        if not of_kind:
            page.line("  none entry")
    return str(page)


def _line(page: Page, listed: Listed) -> None:
    note = "  default" if listed.default else ""
    origin = f"{listed.module}, from {listed.distribution or 'an unknown package'} {listed.version}".rstrip()
    page.line(f"  {pad(neutral(listed.name), MAX_NAME)}{page.ink('dim', neutral(origin))}{note}")
    if listed.problem:
        page.paragraph(f"cannot be used: {neutral(listed.problem, 1_000)}", "error")
