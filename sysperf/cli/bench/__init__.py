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
from collections.abc import Callable

from sysperf.cli import _options
from sysperf.cli.bench import host, trainer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    for name, module in _ACTIONS.items():
        text = (module.__doc__ or "").partition("\n")[0].rstrip(".")
        action = actions.add_parser(name, help=text[:1].lower() + text[1:], description=module.__doc__, formatter_class=_options.formatter)
        module.add_arguments(action)


def run(args: argparse.Namespace) -> int:
    _options.check_output(args)
    run: Callable[[argparse.Namespace], int] = _ACTIONS[args.action].run
    return run(args)


_ACTIONS = {"host": host, "trainer": trainer}
