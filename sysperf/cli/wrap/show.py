"""Showing a launch instead of starting it: `sysperf wrap` with --print, --explain or --json."""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import TYPE_CHECKING

import msgspec

from sysperf.cli._options import width
from sysperf.cli.wrap.options import say
from sysperf.cli.wrap.start import current_folder, decide, decide_instances
from sysperf.host import Host
from sysperf.launch import environment, shown
from sysperf.model.errors import Exit
from sysperf.model.record import plain
from sysperf.model.text import escaped, neutral
from sysperf.procfs.rank_variables import NAMES
from sysperf.report import launch

if TYPE_CHECKING:
    from sysperf.cli.wrap.options import Options
    from sysperf.engine.wrap import Decision
    from sysperf.launch.plan import LaunchPlan
    from sysperf.launch.request import LaunchRequest


def run(args: Options, request: LaunchRequest) -> int:
    """Decide, for each instance with --nproc, and print."""
    env = environment.inherited() if args.root == "/" else environment.of_capture(Host(args.root))
    problems: list[str] = []
    _print(args, decide_instances(args, request, env, problems) if args.nproc else [decide(args, request, env, problems)])
    if problems:
        say("; ".join(dict.fromkeys(problems)))
    return Exit.CLEAN


def _print(args: Options, decisions: list[Decision]) -> None:
    if args.json:
        sys.stdout.write(f"{_json(decisions if args.nproc else decisions[0])}\n")
    elif args.explain:
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        sys.stdout.write(
            "\n".join(
                launch.render(decision.plan, decision.launch, decision.outcomes, color=color, width=width()) for decision in decisions
            )
        )
    else:
        if args.print == "systemd" and args.root == "/":
            _note_what_a_unit_lacks(decisions[0])
        text = _pasted(args, [decision.plan for decision in decisions])
        if sys.stdout.isatty() and (shown := escaped(text)) != text:
            say("characters that a terminal acts on are shown as \\x1b and the like: into a file they are printed as they are")
            text = shown
        sys.stdout.flush()
        sys.stdout.buffer.write(os.fsencode(text))  # a name that is no text, too, is printed as it is


def _note_what_a_unit_lacks(decision: Decision) -> None:
    """A service inherits nothing from this shell: a note names what explains performance here and is not in the unit."""
    plan = decision.plan
    there = {*plan.env, *plan.unset, *(change.name for change in plan.kept), environment.MARKER}
    lacking = [f"{name}={value}" for name, value in decision.launch.env.items() if name not in there and name not in NAMES]
    if lacking:
        say(f"not in the unit, but set in this shell: {neutral(' '.join(lacking), 500)}")


def _pasted(args: Options, plans: list[LaunchPlan]) -> str:
    """The form that was asked for; each instance gets its number."""
    if args.nproc:
        variables = [environment.of_instance(number, len(plans)) for number in range(len(plans))]
        plans = [msgspec.structs.replace(plan, env={**plan.env, **variables[number]}) for number, plan in enumerate(plans)]
    if args.print == "systemd":
        return "\n".join(shown.unit(plan, *_place(args, plan)) for plan in plans)
    has_numactl = args.root != "/" or bool(shutil.which("numactl"))
    if not has_numactl and any(plan.memory and plan.memory_nodes for plan in plans):
        say("numactl is not installed: what is printed binds CPUs only; sysperf wrap needs none")
    if args.print == "sh":
        return shown.script(plans, numactl=has_numactl)
    return "".join(f"{shown.command_line(plan, numactl=has_numactl)}\n" for plan in plans)


def _place(args: Options, plan: LaunchPlan) -> tuple[str, str]:
    """(the program's file, this folder): a service is started with another PATH, from another folder."""
    if args.root != "/":
        return "", ""
    program = shutil.which(plan.argv[0])
    if not program:
        say(f"{neutral(plan.argv[0], 300)} was not found: a unit needs its whole path")
    return os.path.abspath(program) if program else "", current_folder()


def _json(decision: object) -> str:
    return json.dumps(plain(decision), indent=2)  # arguments that are no text are started again as they are: their bytes stay, as \udcff
