"""What processes import once that fork another one for each command: all that most commands import, with its patterns compiled."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection

from sysperf import cli, startup


def prepare(without: Collection[str] = ()) -> None:
    """Import the commands, but for some, and the collectors."""
    startup.import_msgspec()
    startup.import_argparse()
    for name in cli.commands():
        if name not in without:
            importlib.import_module(f"sysperf.cli.{name}")
    importlib.import_module("importlib.metadata")
    for name in importlib.import_module("sysperf.collect").AREAS:
        importlib.import_module(f"sysperf.collect.{name}")
    compile_patterns()


def compile_patterns() -> None:
    """Compile what would else be compiled anew by each forked process, as far as it is imported."""
    for module in [module for name, module in sys.modules.items() if name.startswith("sysperf.")]:
        for value in vars(module).values():
            if isinstance(value, startup.LazyPattern):
                _ = value.groups
