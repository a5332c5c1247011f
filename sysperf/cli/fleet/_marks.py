"""What the commands about marks share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sysperf import plugin
from sysperf.cli import _options
from sysperf.fleet.names import expand


def add_scheduler(parser: argparse.ArgumentParser) -> None:
    kind = plugin.MARKERS
    parser.add_argument("--scheduler", default="", metavar="PLUGIN", help=f"the plugin that {kind.purpose} (default: {kind.default})")
    _options.add_format(parser)
    _options.add_output(parser)


def nodes(folded: Sequence[str]) -> tuple[str, ...]:
    """Names as people write them. Raises UsageError."""
    return tuple(dict.fromkeys(name for each in folded for name in expand(each)))
