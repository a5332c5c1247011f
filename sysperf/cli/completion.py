"""Print a completion script for a shell.

It completes commands and options; in bash, zsh and fish also files, rule ids, areas of facts, settings, plugins, experiments,
factors and built-in programs. Rules and plugins are those that are there when it is printed.

examples:
  eval "$(sysperf completion bash)"                                   in this shell
  sysperf completion bash | sudo tee /etc/bash_completion.d/sysperf   for everybody
  sysperf completion zsh > ~/.zfunc/_sysperf
  sysperf completion fish > ~/.config/fish/completions/sysperf.fish
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

import shtab

from sysperf import collect, plugin
from sysperf.cli import _options, described
from sysperf.engine import judging
from sysperf.engine.tune import space
from sysperf.engine.verify import workload
from sysperf.model.errors import Exit
from sysperf.model.knob import KNOBS
from sysperf.model.record import JsonObject

_FILES = frozenset(("CAPTURE", "FILE", "PATH", "REPORT", "MACHINE", "TRACE", "OUT.tar.zst", "-- COMMAND [ARGUMENT …]"))
_FOLDERS = frozenset(("DIR", "FOLDER"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS)


def run(args: argparse.Namespace) -> int:
    whole = _options.whole_parser(described())
    _complete(whole, _words())
    sys.stdout.write(shtab.complete(whole, shell=args.shell))
    return Exit.CLEAN


def _words() -> JsonObject:
    """What completes an argument, by its name in the help."""
    words = {
        "ID": [rule.id for rule in judging.load_rules().rules],
        "AREA": collect.AREAS,
        "KNOB=VALUE": [f"{knob.name}{'@' if knob.item else '='}" for knob in KNOBS.values()],
        "PLUGIN": sorted({entry.name for kind in (plugin.STACKS, plugin.TRACES) for entry in plugin.installed(kind)}),
        "FACTOR": space.WORDS,
        "WORKLOAD": workload.NAMES,
    }
    choices = {name: _of(name.partition("=")[0].lower(), among) for name, among in words.items()}
    return choices | dict.fromkeys(_FILES, shtab.FILE) | dict.fromkeys(_FOLDERS, shtab.DIRECTORY)


def _of(name: str, words: Iterable[str]) -> JsonObject:
    """How bash, zsh and fish complete one of some words. Other shells are left without."""
    listed = " ".join(words)
    function = f"_sysperf_{name}"
    return {
        "bash": function,
        "zsh": function,
        "fish": f"({function})",
        "preamble": {
            "bash": f'{function}() {{ compgen -W "{listed}" -- "$1"; }}',
            "zsh": f"{function}() {{ compadd -S '' -- {listed} }}",
            "fish": f"function {function}; printf '%s\\n' {listed}; end",
        },
    }


def _complete(parser: argparse.ArgumentParser, words: JsonObject) -> None:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other list, and shtab reads this one
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for choice in action.choices.values():
                _complete(choice, words)
        elif isinstance(action.metavar, str) and action.metavar in words:
            action.complete = words[action.metavar]  # type: ignore[attr-defined]  # where shtab looks
