"""Measure what this machine can give, and what advice gains on it.

examples:
  sysperf bench host                              the machine's ceilings, in a minute
  sysperf bench host --compare other.json         beside those of another machine
  sysperf bench trainer                           what each advice gains here, with traces

exit codes:
  0  done
  2  the command line is wrong, or nothing could be measured
  3  some of it could not be measured, or was interrupted
"""

from __future__ import annotations

import argparse

from sysperf.cli import _options
from sysperf.cli.bench import host, trainer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_actions(parser, _ACTIONS)


def run(args: argparse.Namespace) -> int:
    return _options.run_action(args, _ACTIONS)


_ACTIONS = {"host": host, "trainer": trainer}
