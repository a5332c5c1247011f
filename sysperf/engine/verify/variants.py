"""A command in another way: with another number of ranks, or under another interpreter."""

from __future__ import annotations

import os
import re

from sysperf.host import interpreters
from sysperf.model.errors import UsageError


def with_ranks(argv: tuple[str, ...], ranks: int) -> tuple[str, ...]:
    """Return the command with so many ranks of torchrun: its own number is replaced, a script is started by it. Raises UsageError."""
    name = os.path.basename(argv[0])
    own = 1 if name == "torchrun" else 3 if argv[1:3] == ("-m", "torch.distributed.run") else 0
    if own:
        return (*argv[:own], "--nproc-per-node", str(ranks), *_without_ranks(argv[own:]))
    if not re.fullmatch(r"python[0-9.]*", name) or argv[1:2] == ("-c",):
        raise UsageError(f"--ranks starts a Python script by torchrun, and {name} is none", "compare two commands with --a and --b")
    return (argv[0], "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *argv[1:])


def _without_ranks(words: tuple[str, ...]) -> tuple[str, ...]:
    """torchrun's words without its number of ranks."""
    for at, word in enumerate(words):
        if not word.startswith("-"):
            break
        option, equals, _ = word.replace("_", "-").partition("=")
        if option == "--nproc-per-node":
            return (*words[:at], *words[at + (1 if equals else 2) :])
    return words


def with_python(environment: str, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command under another interpreter: its own `python` is replaced, a script is given to it. Raises UsageError."""
    python = interpreters.program(environment)
    if not os.access(python, os.X_OK):
        raise UsageError(f"--env {environment}: {python} is no program", "name an interpreter, or the folder of its environment")
    return (python, *(argv[1:] if re.fullmatch(r"python[0-9.]*", os.path.basename(argv[0])) else argv))
