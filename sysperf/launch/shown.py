"""A plan as text: the line that says what was done, the command to paste, the reasons."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from sysperf.launch.plan import IN_ENVIRONMENT, LaunchPlan
from sysperf.model.cpuset import CpuSet
from sysperf.model.text import neutral, quoted

MAX_MESSAGE = 240
_PREFERRED = {"preferred": "--preferred", "strict": "--membind", "interleave": "--interleave"}


def command_line(plan: LaunchPlan, *, numactl: bool = True) -> str:
    """A line to paste into a shell, equal in effect; without the program numactl it binds CPUs only."""
    given, binding = _env(plan), _binding(plan if numactl else _without_memory(plan))
    between: list[str] = []
    if "=" in plan.argv[0] and not binding:  # env, and the shell itself, would take that for a variable
        between = ["sh", "-c", 'exec "$@"', "sh"]
    elif plan.argv[0].startswith("-") and (binding[:1] == ["numactl"] or (plan.unset and not binding and not plan.env)):
        between = ["--"]  # behind a variable or a list of CPUs a dash begins no option
    return " ".join(map(quoted, (*given, *binding, *between, *plan.argv)))


def script(plans: Sequence[LaunchPlan], *, numactl: bool = True) -> str:
    """The same as a script for sh; several instances run side by side, and end with the code of one that failed."""
    if len(plans) == 1:
        return "\n".join(["#!/bin/sh", *_script_lines(plans[0], numactl=numactl), ""])
    lines = ["#!/bin/sh", "pids=", "trap 'kill $pids' INT TERM"]
    for plan in plans:
        lines += ["(", *_script_lines(plan, numactl=numactl), ') & pids="$pids $!"']
    return "\n".join([*lines, "code=0", 'for pid in $pids; do wait "$pid" || code=$?; done', 'exit "$code"', ""])


def _script_lines(plan: LaunchPlan, *, numactl: bool) -> list[str]:
    binding = _binding(plan if numactl else _without_memory(plan))
    lines = [f"unset {name}" for name in plan.unset]
    lines += [f"export {name}={quoted(value)}" for name, value in plan.env.items()]
    return [*lines, f'exec {" ".join(map(quoted, (*binding, *plan.argv)))} "$@"']


def unit(plan: LaunchPlan, program: str = "", folder: str = "") -> str:
    """The same as the part of a systemd unit (systemd.exec(5)), which knows neither our PATH, folder nor environment.

    `program` is the file that the command's name stands for here, `folder` where its relative paths begin; empty when not known.
    """
    lines = ["[Service]", *(f"WorkingDirectory={_percent(folder)}" for _ in range(bool(folder and neutral(folder, 4096) == folder)))]
    lines += [f"UnsetEnvironment={name}" for name in plan.unset]
    kept = {change.name: change.value for change in plan.kept if change.because == IN_ENVIRONMENT and change.value}
    lines += [f"Environment={_unit_word(f'{name}={value}')}" for name, value in {**kept, **plan.env}.items()]
    if plan.cpus:
        lines.append(f"CPUAffinity={str(plan.cpus).replace(',', ' ')}")
    if plan.memory and plan.memory_nodes:
        policy = {"preferred": "preferred", "strict": "bind", "interleave": "interleave"}[plan.memory]
        if policy == "preferred" and len(plan.memory_nodes) > 1:  # systemd has no preferred-many: local, on CPUs that are bound
            policy = "local"
        lines.append(f"NUMAPolicy={policy}")
        lines += [] if policy == "local" else [f"NUMAMask={plan.memory_nodes}"]
    words = (program or plan.argv[0], *plan.argv[1:])
    return "\n".join([*lines, f"ExecStart={' '.join(_unit_word(word.replace('$', '$$')) for word in words)}", ""])


def _unit_word(word: str) -> str:
    """A word as systemd reads it: quoted, with `%` doubled."""
    escaped = _percent(word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
    return escaped if re.fullmatch(r"[\w@%+=:,./-]+", escaped) else f'"{escaped}"'


def _percent(text: str) -> str:
    return text.replace("%", "%%")


def _without_memory(plan: LaunchPlan) -> LaunchPlan:
    return msgspec.structs.replace(plan, memory="")


def _env(plan: LaunchPlan) -> list[str]:
    unset = [word for name in plan.unset for word in ("-u", name)]
    given = [f"{name}={value}" for name, value in plan.env.items()]
    return ["env", *unset, *given] if unset or given else []


def _binding(plan: LaunchPlan) -> list[str]:
    """numactl where memory is placed; taskset, which every Linux has, for CPUs alone."""
    if not plan.memory or not plan.memory_nodes:
        return ["taskset", "-c", str(plan.cpus)] if plan.cpus else []
    option = _PREFERRED[plan.memory]
    if plan.memory == "preferred" and len(plan.memory_nodes) > 1:
        option = "--preferred-many"
    cpus = [f"--physcpubind={plan.cpus}"] if plan.cpus else []
    return ["numactl", *cpus, f"{option}={plan.memory_nodes}"]


def line(plan: LaunchPlan, problems: Iterable[str] = ()) -> str:
    """What was done, in one line."""
    parts = [part for part in (_placed(plan), _variables(plan)) if part] or ["nothing to change"]
    parts += _kept(plan)
    parts += [f"warning: {neutral(message, MAX_MESSAGE)} ({rule})" for rule, message in plan.warnings]
    parts += [f"warning: {problem}" for problem in problems]
    parts += [neutral(note, MAX_MESSAGE) for note in plan.notes]
    return "; ".join(parts)


def _placed(plan: LaunchPlan) -> str:
    parts = []
    if plan.cpus:
        parts.append(f"CPUs {_short(plan.cpus)}")
    if plan.memory and plan.memory_nodes:
        how = {"preferred": "memory of node", "strict": "only memory of node", "interleave": "memory interleaved over nodes"}[plan.memory]
        parts.append(f"{how} {plan.memory_nodes}")
    return ", ".join(parts)


def _short(cpus: CpuSet) -> str:
    text = str(cpus)
    return text if len(text) <= 40 else f"{text[:36]}… ({len(cpus)} CPUs)"


def _variables(plan: LaunchPlan) -> str:
    names = [f"{name}={_value(value)}" for name, value in plan.env.items()]
    return " ".join([*names, *(f"-{name}" for name in plan.unset)])


def _value(value: str) -> str:
    return neutral(quoted(value), 60)


def _kept(plan: LaunchPlan) -> list[str]:
    kept = [
        f"{change.name}={_value(change.value)}" if change.value and change.name.isupper() else (change.name or change.because)
        for change in plan.kept
    ]
    return [f"kept {', '.join(dict.fromkeys(kept))}"] if kept else []
