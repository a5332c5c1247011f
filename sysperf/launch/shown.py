"""A plan in words: the one line that says what was done, the command to paste, the reasons."""

import shlex
from collections.abc import Iterable

from sysperf.launch.plan import LaunchPlan
from sysperf.model.cpuset import CpuSet
from sysperf.model.text import neutral

MAX_MESSAGE = 240
_PREFERRED = {"preferred": "--preferred", "strict": "--membind", "interleave": "--interleave"}


def command_line(plan: LaunchPlan) -> str:
    """A line to paste into a shell, equal in effect."""
    given, binding = _env(plan), _binding(plan)
    between: list[str] = []
    if "=" in plan.argv[0] and not binding:  # env, and the shell itself, would take that for a variable
        between = ["sh", "-c", 'exec "$@"', "sh"]
    elif plan.argv[0].startswith("-") and (binding[:1] == ["numactl"] or (plan.unset and not binding and not plan.env)):
        between = ["--"]  # behind a variable or a list of CPUs a dash begins no option
    return " ".join(map(shlex.quote, (*given, *binding, *between, *plan.argv)))


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
    return neutral(shlex.quote(value), 60)


def _kept(plan: LaunchPlan) -> list[str]:
    shown = [f"{one.name}={_value(one.value)}" if one.value and one.name.isupper() else (one.name or one.because) for one in plan.kept]
    return [f"kept {', '.join(dict.fromkeys(shown))}"] if shown else []
