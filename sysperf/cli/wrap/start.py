"""Starting what `sysperf wrap` was asked to start: one program, which we become, or several instances."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from sysperf.cli.wrap.options import say
from sysperf.engine import wrap
from sysperf.host import Host
from sysperf.launch import environment, plan, shown
from sysperf.launch import start as starting
from sysperf.model.errors import Exit, SysperfError

if TYPE_CHECKING:
    from sysperf.cli.wrap.options import Options
    from sysperf.engine.wrap import Decision
    from sysperf.launch.request import LaunchRequest


def decide(args: Options, request: LaunchRequest, env: Mapping[str, str], problems: list[str]) -> Decision:
    """Facts, rules, plan. What is not in force and why goes to `problems`."""
    reported = bool(args.explain or args.json)
    return wrap.wrap(Host(args.root), wrap.rules(args.rules, problems), request, env, current_folder(), reported=reported)


def decide_instances(args: Options, request: LaunchRequest, env: Mapping[str, str], problems: list[str]) -> list[Decision]:
    """The same for each instance of --nproc."""
    return wrap.wrap_instances(Host(args.root), wrap.rules(args.rules, problems), request, env, current_folder())


def current_folder() -> str:
    """Return where we stand; the root when that folder was removed."""
    try:
        return os.getcwd()
    except OSError:  # it was removed while we stand in it
        return "/"


def start(args: Options, request: LaunchRequest) -> int:
    """Decide, say it in one line, become the program."""
    env = environment.inherited()
    problems: list[str] = []
    try:
        decision = decide(args, request, env, problems)
    except SysperfError:
        raise
    except Exception as error:  # a fault of ours must not keep the program from running
        if args.dry_run:
            raise
        say(f"nothing changed: internal error: {type(error).__name__}: {error}")
        return _launch(args, request.argv, env)
    failures = [] if args.dry_run else starting.apply(decision.plan)
    if not args.quiet or failures or decision.plan.warnings:
        say(shown.line(decision.plan, (*problems, *failures)))
    if args.dry_run:
        return missing(request.argv[0], env)
    return _launch(args, request.argv, plan.environment(decision.plan, env, decision.command, decision.rank), decision.plan)


def untouched(argv: Sequence[str]) -> int:
    """Become the program as it is: SYSPERF_WRAP=off."""
    return _become(argv, environment.inherited())


def start_several(args: Options, request: LaunchRequest) -> int:
    """Decide for each instance, say it in a line each, start them and wait for all."""
    from sysperf.launch import several  # noqa: PLC0415 - with --nproc only

    env = environment.inherited()
    problems: list[str] = []
    decisions = decide_instances(args, request, env, problems)
    instances = [
        several.Instance(
            index,
            decision.plan,
            {**plan.environment(decision.plan, env, decision.command, decision.rank), **environment.of_instance(index, args.nproc)},
            args.verify,
        )
        for index, decision in enumerate(decisions)
    ]
    for index, decision in enumerate(decisions):
        if not args.quiet or decision.plan.warnings:
            say(f"[{index}] {shown.line(decision.plan, problems if index == 0 else ())}")
    if args.dry_run:
        return missing(args.command[0], env)
    if not args.probe:
        return several.run(instances)
    from sysperf.cli.wrap.probe import Probe  # noqa: PLC0415 - with --probe only

    probe = Probe(args, env)
    counting = [msgspec.structs.replace(instance, env=probe.environment(instance.env, instance.number)) for instance in instances]
    return probe.around(lambda: several.run(counting))


def _launch(args: Options, argv: Sequence[str], env: Mapping[str, str], planned: plan.LaunchPlan | None = None) -> int:
    """Become the program; with --probe, stay beside it and say what was counted. With --verify the plan is compared with what it got."""

    def watch_this_process() -> None:
        if args.verify and planned:
            from sysperf.launch import watch  # noqa: PLC0415 - with --verify only

            watch.watch(planned)

    if not args.probe:
        watch_this_process()
        return _become(argv, env)
    from sysperf.cli.wrap.probe import Probe  # noqa: PLC0415 - with --probe only
    from sysperf.launch import beside  # noqa: PLC0415 - as above

    probe = Probe(args, env)
    counting = probe.environment(env)
    return probe.around(lambda: beside.run(argv, counting, watch_this_process))


def _become(argv: Sequence[str], env: Mapping[str, str]) -> int:
    code, problem = starting.become(argv, env)
    say(problem)
    return code


def missing(program: str, env: Mapping[str, str]) -> int:
    """The exit code that starting it would give, as far as that is known."""
    import shutil  # noqa: PLC0415 - 3 ms, with --dry-run only

    from sysperf.model.text import neutral  # noqa: PLC0415 - as above

    if shutil.which(program, path=env.get("PATH", os.defpath)):
        return Exit.CLEAN
    there = os.path.exists(program) if "/" in program else bool(shutil.which(program, os.F_OK, env.get("PATH", os.defpath)))
    say(f"{neutral(program, 300)}: {'cannot be executed' if there else 'not found'}")
    return 126 if there else 127
