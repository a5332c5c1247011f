"""What `sysperf wrap` does beyond starting one program: show a launch instead of starting it, and start several instances."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sysperf.cli import wrap
from sysperf.host import Host
from sysperf.launch import environment, plan, shown
from sysperf.model.errors import Exit
from sysperf.model.record import plain, to_json

if TYPE_CHECKING:
    from sysperf.engine.wrap import Decision, Request


def run(args: Any, request: Request) -> int:
    """Show, or start all instances."""
    env = environment.inherited() if args.root == "/" else environment.of_capture(Host(args.root))
    said: list[str] = []
    ranks = range(args.nproc) if args.nproc else [None]
    decisions = [wrap.decide(args, request, env, said, rank=rank) for rank in ranks]
    if not (args.print or args.explain or args.json):
        return _start(args, decisions, env, said)
    _print(args, decisions)
    if said:
        sys.stderr.write(f"sysperf wrap: {'; '.join(dict.fromkeys(said))}\n")
    return Exit.CLEAN


def _print(args: Any, decisions: list[Decision]) -> None:
    if args.json:
        whole = decisions if args.nproc else decisions[0]
        sys.stdout.write(f"{_json(whole)}\n")
    elif args.explain:
        from sysperf.cli.command_line import width  # noqa: PLC0415 - as all faces
        from sysperf.report import launch  # noqa: PLC0415

        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        texts = (launch.render(one.plan, one.launch, one.outcomes, color=color, width=width()) for one in decisions)
        sys.stdout.write("\n".join(texts))
    else:
        text = "".join(f"{shown.command_line(one.plan)}\n" for one in decisions)
        sys.stdout.flush()
        sys.stdout.buffer.write(os.fsencode(text))  # a name that is no text, too, is printed as it is


def _json(decision: Any) -> str:
    try:
        return to_json(decision, indent=2).decode()
    except UnicodeEncodeError:
        import json  # noqa: PLC0415 - for arguments that are no text: JSON can only name their bytes, \udcff

        return json.dumps(plain(decision), indent=2)


def _start(args: Any, decisions: list[Decision], env: Mapping[str, str], said: list[str]) -> int:
    from sysperf.launch import several  # noqa: PLC0415 - with --nproc only

    instances = [
        several.Instance(index, one.plan, plan.environment(one.plan, env, one.command, one.rank)) for index, one in enumerate(decisions)
    ]
    for index, one in enumerate(decisions):
        if not args.quiet or one.plan.warnings:
            wrap.say(f"[{index}] {shown.line(one.plan, said if index == 0 else ())}")
    if args.dry_run:
        return wrap.missing(args.command[0], env)
    return several.run(instances)
