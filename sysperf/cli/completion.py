"""Print a completion script for a shell.

examples:
  sysperf completion bash | sudo tee /etc/bash_completion.d/sysperf
  sysperf completion zsh > ~/.zfunc/_sysperf
"""

from __future__ import annotations

import argparse
import sys

import shtab

from sysperf.cli import command_line
from sysperf.model.errors import Exit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS)


def run(args: argparse.Namespace) -> int:
    sys.stdout.write(shtab.complete(command_line.whole_parser(), shell=args.shell))
    return Exit.CLEAN
