"""Start a program in the right place on this machine. CPUs, memory, threads and allocator fit this machine; then exec.

  sysperf wrap [options] -- COMMAND [ARGUMENT …]

What you, the command (numactl, taskset, env) or a launcher decided stays. Nothing is printed on stdout; one line on stderr
says what was done. Nothing of sysperf stays in the process, and it stays as the parent only with --nproc and --probe.

environment:
  SYSPERF_WRAP_OPTIONS  options that stand before those of the command line
  SYSPERF_WRAP=off      start every program as it is

exit codes:
  the program's own; with --nproc that of the first instance that failed, 128+n when signal n ended it
  2    the options are wrong
  126  the program cannot be executed
  127  the program was not found

examples:
  sysperf wrap -- python train.py
  torchrun --nproc-per-node 8 --no-python sysperf wrap -- python train.py
  srun sysperf wrap -- python train.py
  sysperf wrap --nproc 4 -- python serve.py      four instances, CPUs and GPUs divided among them
  sysperf wrap --probe -- python train.py        at the end it says how many optimizer steps were made, and how fast
  sysperf wrap --print -- python train.py        a command line to paste, equal in effect
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

from sysperf.model.errors import SysperfError, UsageError

if TYPE_CHECKING:
    import argparse

    from sysperf.cli.wrap.options import Options

OPTIONS, SWITCH = "SYSPERF_WRAP_OPTIONS", "SYSPERF_WRAP"
"""Variables: options that stand before those of the command line; `off` starts every program as it is."""
_OFF, _ON = ("off", "0", "no", "false"), ("on", "1", "yes", "true", "")
FORMS = ("line", "sh", "systemd")
COUNTS = ("optimizer", "forward")
_OPTIONAL = {"--print": FORMS, "--probe": COUNTS}
"""Options whose value may be left out."""
_DEFAULTS: dict[str, object] = {
    "only": [], "skip": [], "set": [], "cpus": None, "node": None, "threads": None, "memory": None, "strict_memory": False,
    "allocator": "", "profile": None, "nproc": None, "print": "", "explain": False, "dry_run": False, "json": False,
    "quiet": False, "traceable": False, "root": "/", "rules": [], "force_env": False, "unpin": False, "verify": False,
    "probe": "", "max_steps": 0, "output": None,
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from sysperf.launch.profile import ALLOCATORS  # noqa: PLC0415 - with options only

    placing = parser.add_argument_group("placing")
    placing.add_argument("--cpus", metavar="LIST", help="run on these CPUs: 0-7,16")
    placing.add_argument("--node", type=int, metavar="N", help="run on the CPUs of this memory node, and prefer its memory")
    placing.add_argument("--threads", type=int, metavar="N", help="compute threads (OMP_NUM_THREADS)")
    placing.add_argument("--memory", metavar="SIZE", help="memory that the program needs, such as 64G: helps to choose a node")
    placing.add_argument("--strict-memory", action="store_true", help="take memory from no other node, and be killed when it is full")
    placing.add_argument("--nproc", type=int, metavar="K", help="start K instances and divide CPUs and GPUs among them")
    choosing = parser.add_argument_group("choosing")
    choosing.add_argument("--only", action="append", default=[], metavar="ID", help="only these rules (id or pattern; commas or repeated)")
    choosing.add_argument("--skip", action="append", default=[], metavar="ID", help="not these rules")
    choosing.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="set a variable, also one that is set already")
    choosing.add_argument("--force-env", action="store_true", help="let rules replace variables that are in the environment already")
    choosing.add_argument("--unpin", action="store_true", help="unset the OpenMP variables that pin loader workers to few CPUs")
    choosing.add_argument("--allocator", choices=ALLOCATORS, default="", help="preload this allocator; none: leave malloc alone")
    choosing.add_argument("--traceable", action="store_true", help="let a tracing daemon take Kineto traces from it while it runs")
    choosing.add_argument("--profile", metavar="FILE", help="decisions kept in a file (TOML; docs/wrap.md)")
    choosing.add_argument("--rules", action="append", default=[], metavar="PATH", help="more rules: a TOML file or a folder of them")
    showing = parser.add_argument_group("showing instead of starting")
    form = "print a command line to paste, equal in effect; or a script for sh, or the part of a systemd unit"
    showing.add_argument("--print", nargs="?", const="line", default="", choices=FORMS, help=form)
    showing.add_argument("--explain", action="store_true", help="say for each part which rule wants it, and from which facts")
    showing.add_argument("--json", action="store_true", help="the same for programs")
    showing.add_argument("--dry-run", action="store_true", help="do all but start: the line on stderr, and whether the command is there")
    showing.add_argument("--root", default="/", metavar="CAPTURE", help="of a captured machine, with --print, --explain or --json")
    parser.add_argument("--verify", action="store_true", help="some seconds later, say which CPUs, memory and threads the program got")
    counting = parser.add_argument_group("counting steps of the unmodified program")
    counting.add_argument(
        "--probe", nargs="?", const="optimizer", default="", choices=COUNTS,
        help="say at its end how many optimizer steps it made and how fast, or how many calls of its model (forward)",
    )  # fmt: skip
    counting.add_argument("--max-steps", type=int, default=0, metavar="N", help="with --probe: end the program after so many, cleanly")
    counting.add_argument("--output", metavar="FILE", help="with --probe: write the counts to this file, as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no line on stderr unless something is wrong")
    parser.add_argument("command", nargs="*", metavar="-- COMMAND [ARGUMENT …]", help="what to start")


def main(arguments: Sequence[str]) -> int:
    """Run `sysperf wrap`. Without options, argparse is not loaded: it costs as much as reading the machine."""
    options, command = _split(arguments)
    configured = [] if _is_off() else _configured()
    if not (options or configured) or set(options) | set(configured) <= {"-q", "--quiet"}:
        return run(SimpleNamespace(**{**_DEFAULTS, "quiet": bool(options or configured), "command": command}))
    args = _parsed([*configured, *options])
    args.command = [*args.command, *command]
    try:
        return run(args)
    except SysperfError as error:
        if configured:  # which of both asked for it is not known here
            error.hint = f"{error.hint}; " * bool(error.hint) + f"the variable {OPTIONS} adds options: {os.environ[OPTIONS]}"
        raise


def _parsed(options: list[str]) -> Options:
    from sysperf.cli import _options  # noqa: PLC0415 - argparse: see main

    parser, _ = _options.parser("wrap")
    parser.usage = "sysperf wrap [options] -- COMMAND [ARGUMENT …]"
    return parser.parse_args(options)


def _is_off() -> bool:
    """Whether the environment says that programs start as they are. Raises UsageError."""
    value = os.environ.get(SWITCH, "").strip().lower()
    if value not in _OFF + _ON:
        raise UsageError(f"{SWITCH}={value[:60]!r} is neither on nor off", f"{SWITCH}=off starts every program as it is")
    return value in _OFF


def _configured() -> list[str]:
    """The options that the environment gives. Raises UsageError, which names the variable."""
    if not (text := os.environ.get(OPTIONS)):
        return []
    import shlex  # noqa: PLC0415 - with the variable only

    hint = f"the variable {OPTIONS} holds options of `sysperf wrap`, as a shell would split them"
    try:
        words = shlex.split(text)
        problem = _problem(words)
    except (ValueError, UsageError) as error:
        problem = str(error)
    if problem:
        raise UsageError(f"{OPTIONS}: {problem}", hint)
    return words


def _problem(words: list[str]) -> str:
    """What is wrong with options that stand in the variable; raises UsageError where the parser says it."""
    if {"-h", "--help"} & set(words):
        return "no program would ever start with --help"
    if "--" in words or (command := _parsed(words).command):
        return f"`{'--' if '--' in words else command[0]}` begins a command; this variable takes options only"
    return ""


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """(our options, the command): at `--`, else before the first word that is neither an option nor an option's value."""
    words = list(arguments)
    for at, word in enumerate(words):
        if word == "--":
            return words[:at], words[at + 1 :]
        if not word.startswith("-") and not (at and (words[at - 1] in _VALUED or _is_optional(words, at))):
            return words[:at], words[at:]
    return words, []


def _is_optional(words: list[str], at: int) -> bool:
    """`--print sh -- COMMAND`: a value that may be left out. `--print sh x` prints the program sh."""
    return words[at] in _OPTIONAL.get(words[at - 1], ()) and words[at + 1 : at + 2] == ["--"]


_VALUED = frozenset((
    "--cpus", "--node", "--threads", "--memory", "--nproc", "--only", "--skip", "--set", "--allocator", "--profile", "--rules", "--root",
    "--max-steps", "--output",
))  # fmt: skip


def run(args: Options) -> int:
    if not args.command:
        raise UsageError("no command to start", "sysperf wrap [options] -- COMMAND [ARGUMENT …]")
    if not args.command[0]:
        raise UsageError("the command is an empty word", "sysperf wrap [options] -- COMMAND [ARGUMENT …]")
    shows = args.print or args.explain or args.json
    if args.root != "/" and not shows:
        raise UsageError("a captured machine cannot run anything", "use --print, --explain or --json with --root")
    from sysperf.cli.wrap import options, start  # noqa: PLC0415 - completion and --help need neither rules nor placement

    if _is_off() and not shows:
        return start.untouched(args.command)
    request = options.request(args)
    if request.instances > 1:  # by option or profile
        args.nproc = request.instances
    if shows:
        from sysperf.cli.wrap import show  # noqa: PLC0415 - reports and JSON, which a start need not pay for

        return show.run(args, request)
    return start.start_several(args, request) if args.nproc else start.start(args, request)
