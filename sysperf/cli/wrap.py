"""Start a program in the right place: CPUs, memory, threads and allocator that fit this machine, then exec.

  sysperf wrap [options] -- COMMAND [ARGUMENT …]

What you, the command (numactl, taskset, env) or a launcher decided stays. Nothing is printed on stdout; one line on stderr
says what was done. Nothing of sysperf stays in the process, except with --nproc.

exit codes:
  the program's own; 126 it cannot be executed, 127 it was not found, 2 the options are wrong; with --nproc that of the
  first instance that failed, 128+n when signal n ended it

examples:
  sysperf wrap -- python train.py
  torchrun --nproc-per-node 8 --no-python sysperf wrap -- python train.py
  srun sysperf wrap -- python train.py
  sysperf wrap --nproc 4 -- python serve.py      four instances, CPUs and GPUs divided among them
  sysperf wrap --print -- python train.py        a command line to paste, equal in effect
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sysperf.model.errors import Exit, SysperfError, UsageError

if TYPE_CHECKING:
    import argparse

    from sysperf.engine.wrap import Decision, Request
    from sysperf.model.cpuset import CpuSet

MOST_INSTANCES = 1024
_DEFAULTS: dict[str, Any] = {
    "only": [], "skip": [], "set": [], "cpus": None, "node": None, "threads": None, "memory": None, "strict_memory": False,
    "allocator": "", "profile": None, "nproc": None, "print": False, "explain": False, "dry_run": False, "json": False,
    "quiet": False, "traceable": False, "root": "/", "rules": [],
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from sysperf.launch.profile import ALLOCATORS  # noqa: PLC0415 - as below

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
    choosing.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="set a variable, whoever else set it")
    choosing.add_argument("--allocator", choices=ALLOCATORS, default="", help="preload this allocator; none: leave malloc alone")
    choosing.add_argument("--traceable", action="store_true", help="let a tracing daemon take Kineto traces from it while it runs")
    choosing.add_argument("--profile", metavar="FILE", help="decisions kept in a file (TOML; docs/wrap.md)")
    choosing.add_argument("--rules", action="append", default=[], metavar="PATH", help="more rules: a TOML file or a folder of them")
    showing = parser.add_argument_group("showing instead of starting")
    showing.add_argument("--print", action="store_true", help="print a command line to paste, equal in effect")
    showing.add_argument("--explain", action="store_true", help="say for each part which rule wants it, and from which facts")
    showing.add_argument("--json", action="store_true", help="the same for programs")
    showing.add_argument("--dry-run", action="store_true", help="do all but start: the line on stderr, and whether the command is there")
    showing.add_argument("--root", default="/", metavar="CAPTURE", help="of a captured machine, with --print, --explain or --json")
    parser.add_argument("-q", "--quiet", action="store_true", help="no line on stderr unless something is wrong")
    parser.add_argument("command", nargs="*", metavar="-- COMMAND [ARGUMENT …]", help="what to start")


def main(arguments: Sequence[str]) -> int:
    """Run `sysperf wrap`. Without options, argparse is not loaded: it costs as much as reading the machine."""
    options, command = _split(arguments)
    args: Any
    if set(options) - {"-q", "--quiet"}:
        from sysperf.cli import command_line  # noqa: PLC0415 - see above

        parser, _ = command_line.parser("wrap")
        parser.usage = "sysperf wrap [options] -- COMMAND [ARGUMENT …]"
        args = parser.parse_args(options)
        command = [*args.command, *command]
    else:
        args = SimpleNamespace(**{**_DEFAULTS, "quiet": bool(options)})
    args.command = command
    return run(args)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """(our options, the command): at `--`, else before the first word that is neither an option nor an option's value."""
    words = list(arguments)
    for at, word in enumerate(words):
        if word == "--":
            return words[:at], words[at + 1 :]
        if not word.startswith("-") and not (at and words[at - 1] in _VALUED):
            return words[:at], words[at:]
    return words, []


_VALUED = frozenset((
    "--cpus", "--node", "--threads", "--memory", "--nproc", "--only", "--skip", "--set", "--allocator", "--profile", "--rules", "--root",
))  # fmt: skip


def run(args: Any) -> int:
    if not args.command:
        raise UsageError("no command to start", "sysperf wrap [options] -- COMMAND [ARGUMENT …]")
    if not args.command[0]:
        raise UsageError("the command is an empty word", "sysperf wrap [options] -- COMMAND [ARGUMENT …]")
    shows = args.print or args.explain or args.json
    if args.root != "/" and not shows:
        raise UsageError("a captured machine cannot run anything", "use --print, --explain or --json with --root")
    request = _request(args)
    if shows or args.nproc:
        from sysperf.cli import wrap_more  # noqa: PLC0415 - what starts one program need not pay

        return wrap_more.run(args, request)
    return start(args, request)


def start(args: Any, request: Request) -> int:
    """Decide, say it in one line, become the program."""
    from sysperf.launch import environment, plan, shown  # noqa: PLC0415 - imports are where the time goes
    from sysperf.launch import start as starting  # noqa: PLC0415

    env = environment.inherited()
    said: list[str] = []
    try:
        decision = decide(args, request, env, said)
    except SysperfError:
        raise
    except Exception as error:  # a fault of ours must not keep the program from running
        if args.dry_run:
            raise
        say(f"nothing changed: internal error: {type(error).__name__}: {error}")
        return _become(request.argv, env)
    problems = [] if args.dry_run else starting.apply(decision.plan)
    if not args.quiet or problems or decision.plan.warnings:
        say(shown.line(decision.plan, (*said, *problems)))
    if args.dry_run:
        return missing(request.argv[0], env)
    return _become(request.argv, plan.environment(decision.plan, env, decision.command, decision.rank))


def decide(args: Any, request: Request, env: Mapping[str, str], said: list[str], *, rank: int | None = None) -> Decision:
    """Facts, rules, plan. What is not in force and why goes to `said`."""

    from sysperf.engine import wrap as wrapping  # noqa: PLC0415
    from sysperf.host import Host  # noqa: PLC0415

    host = Host(args.root)
    ruleset = wrapping.rules(args.rules, said)
    return wrapping.wrap(host, ruleset, request, env, _folder(), rank=rank)


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed while we stand in it
        return "/"


def _become(argv: Sequence[str], env: Mapping[str, str]) -> int:
    from sysperf.launch import start as starting  # noqa: PLC0415 - as above

    code, problem = starting.become(argv, env)
    say(problem)
    return code


def say(text: str) -> None:
    """One line on stderr. Where its disk is full, nobody hears it, and the program starts all the same."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"sysperf wrap: {text}\n")
        sys.stderr.flush()


def missing(program: str, env: Mapping[str, str]) -> int:
    """The exit code that starting it would give, as far as that can be told."""
    import shutil  # noqa: PLC0415 - --dry-run only

    from sysperf.model.text import neutral  # noqa: PLC0415

    if shutil.which(program, path=env.get("PATH", os.defpath)):
        return Exit.CLEAN
    there = os.path.exists(program) if "/" in program else bool(shutil.which(program, os.F_OK, env.get("PATH", os.defpath)))
    say(f"{neutral(program, 300)}: {'cannot be executed' if there else 'not found'}")
    return 126 if there else 127


# ---------------------------------------------------------------------- options


def _request(args: Any) -> Request:
    """The options as a request. Raises UsageError."""
    from sysperf.engine.wrap import Request  # noqa: PLC0415
    from sysperf.launch import profile  # noqa: PLC0415 - as above

    if args.nproc is not None and not 1 <= args.nproc <= MOST_INSTANCES:
        raise UsageError(f"--nproc {args.nproc}: between 1 and {MOST_INSTANCES}")
    if args.threads is not None and not 1 <= args.threads <= profile.MOST_THREADS:
        raise UsageError(f"--threads {args.threads}: between 1 and {profile.MOST_THREADS}")
    return Request(
        argv=tuple(args.command),
        cpus=_cpus(args.cpus),
        node=args.node,
        threads=args.threads,
        memory_bytes=_size(args.memory),
        strict=args.strict_memory,
        allocator=args.allocator,
        traceable=args.traceable,
        trace_folder=_trace_folder(args) if args.traceable else "",
        set=dict(map(_assignment, args.set)),
        only=_listed(args.only),
        skip=_listed(args.skip),
        profile=profile.read(args.profile) if args.profile else profile.Profile(),
        instances=args.nproc or 1,
    )


def _listed(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def _cpus(text: str | None) -> CpuSet | None:
    from sysperf.model.cpuset import CpuSet  # noqa: PLC0415 - as above

    try:
        return None if text is None else CpuSet.parse(text)
    except ValueError as error:
        raise UsageError(f"--cpus: {error}", "a list such as 0-7,16") from None


def _size(text: str | None) -> int | None:
    from sysperf.model.text import parse_size  # noqa: PLC0415 - as above

    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise UsageError(f"--memory: {error}", "a size such as 64G") from None


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UsageError(f"--set {text[:60]}: not NAME=VALUE")
    return name, value


LONGEST_TRACE_FOLDER = 54
"""Kineto's sockets in it have names of 53 characters, and the path of a socket has room for 107."""


def _trace_folder(args: Any) -> str:
    """A folder of the user's own for the sockets of traces on demand; made when something will be started."""
    base = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/sysperf-{os.getuid()}"  # noqa: S108 - made for us alone, and checked below
    folder = f"{base}/sysperf/kineto"
    if len(os.fsencode(folder)) > LONGEST_TRACE_FOLDER:
        base = f"/tmp/sysperf-{os.getuid()}"  # noqa: S108 - as above
        folder = f"{base}/sysperf/kineto"
    if args.print or args.explain or args.json or args.root != "/":
        return folder
    hint = "set XDG_RUNTIME_DIR to a folder of your own"
    try:
        os.makedirs(base, mode=0o700, exist_ok=True)
        link, status = os.lstat(base), os.stat(base)
        if {link.st_uid, status.st_uid} != {os.getuid()} or status.st_mode & 0o022:  # whoever made a link can lead it elsewhere later
            raise UsageError(f"--traceable: {base} belongs to somebody else, or others may write it", hint)
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--traceable: {folder}: {error.strerror}", hint) from None
    return folder
