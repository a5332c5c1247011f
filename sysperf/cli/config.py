"""Show the configuration in force. Each setting, its value, and the file that it comes from.

Files are read in this order, a later one wins, and waivers and overrides add up: /etc/sysperf/config.toml,
~/.config/sysperf/config.toml, ./.sysperf.toml. docs/configuration.md describes what may stand there.

exit codes:
  0  shown
  2  a file is wrong; the message says where

examples:
  sysperf config show
  sysperf config show --json
  sysperf config show --config ci.toml       what this file alone would say
"""

from __future__ import annotations

import argparse

from sysperf import paths
from sysperf.cli import _options
from sysperf.engine.configuration import chosen
from sysperf.model.errors import Exit
from sysperf.model.text import neutral
from sysperf.report import words
from sysperf.report.formats import as_json
from sysperf.report.terminal import Ink, pad

DEFAULT = "default"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("show",))
    parser.add_argument("--config", metavar="FILE", help="this configuration file alone")
    _options.add_format(parser)
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    settings = chosen(args.config)
    if args.format == "json":
        _options.write(as_json.dump({"files": [*map(str, paths.config_files())], "settings": settings}), args)
        return Exit.CLEAN
    names, files = max(len(one.name) for one in settings), max(len(neutral(one.file) or DEFAULT) for one in settings)
    ink = Ink(_options.wants_color(args))
    lines = (f"{one.name:<{names}}  {ink('dim', pad(neutral(one.file) or DEFAULT, files))}  {words.value(one.value)}" for one in settings)
    _options.write("\n".join(lines), args)
    return Exit.CLEAN
