"""The options of `sysperf wrap` as a request, and the voice that its modules share."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sysperf.launch import profile
from sysperf.launch.request import LaunchRequest
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import UsageError
from sysperf.model.text import parse_size

if TYPE_CHECKING:
    from argparse import Namespace
    from types import SimpleNamespace

    Options = Namespace | SimpleNamespace
    """What was asked for: of the parser, or without one where no option was given."""

MAX_INSTANCES = 1024


def request(args: Options) -> LaunchRequest:
    """The options as a request. Raises UsageError."""
    if args.nproc is not None and not 1 <= args.nproc <= MAX_INSTANCES:
        raise UsageError(f"--nproc {args.nproc}: not between 1 and {MAX_INSTANCES}")
    if args.threads is not None and not 1 <= args.threads <= profile.MAX_THREADS:
        raise UsageError(f"--threads {args.threads}: not between 1 and {profile.MAX_THREADS}")
    _check_probe(args)
    kept = profile.read(args.profile) if args.profile else profile.Profile()
    return LaunchRequest(
        argv=tuple(args.command),
        cpus=_cpus(args.cpus),
        node=args.node,
        threads=args.threads,
        memory_bytes=_size(args.memory),
        strict=args.strict_memory,
        allocator=args.allocator,
        force_env=args.force_env,
        unpin=args.unpin,
        traceable=args.traceable,
        trace_folder=_trace_folder(args) if args.traceable else "",
        set=dict(map(_assignment, args.set)),
        only=_listed(args.only),
        skip=_listed(args.skip),
        profile=kept,
        instances=args.nproc or kept.instances or 1,
    )


def _check_probe(args: Options) -> None:
    """Raise UsageError where steps cannot be counted as asked."""
    if not args.probe and (args.max_steps or args.output):
        raise UsageError("--max-steps and --output go with --probe", "sysperf wrap --probe --max-steps 200 -- python train.py")
    if args.max_steps < 0:
        raise UsageError(f"--max-steps {args.max_steps}: 1 or more")
    if args.probe and (args.print or args.explain or args.json):
        raise UsageError(
            "--probe counts while the program runs, and nothing runs with --print, --explain or --json", "leave one of them out"
        )


def _listed(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def _cpus(text: str | None) -> CpuSet | None:
    try:
        return None if text is None else CpuSet.parse(text)
    except ValueError as error:
        raise UsageError(f"--cpus: {error}", "a list such as 0-7,16") from None


def _size(text: str | None) -> int | None:
    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise UsageError(f"--memory: {error}", "a size such as 64G") from None


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UsageError(f"--set {text[:60]}: not NAME=VALUE")
    return name, value


def _trace_folder(args: Options) -> str:
    """The folder for the sockets of traces on demand; made when something will be started."""
    from sysperf.launch import environment, trace_folder  # noqa: PLC0415 - with --traceable only

    env = environment.inherited() if args.root == "/" else {}
    shows = args.print or args.explain or args.json or args.root != "/"
    return trace_folder.expected(env) if shows else trace_folder.made(env)


def say(text: str) -> None:
    """One line on stderr. Where its disk is full, nobody hears it, and the program starts all the same."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"sysperf wrap: {text}\n")
        sys.stderr.flush()
