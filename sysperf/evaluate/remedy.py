"""What to do about a finding on this machine: commands to paste, and how to take them back."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from sysperf.evaluate.expression import Scope
from sysperf.evaluate.ruleset import Compiled
from sysperf.model.knob import NVML_SETTINGS, SYSFS
from sysperf.model.outcome import Remedy
from sysperf.model.rule import Advice, Affinity, Bind, Env, Fix, MigratePages, Nvml, Preload, Sysctl, Sysfs
from sysperf.model.text import neutral

Filler = Callable[..., str]
MAX_COMMAND = 300


def remedies(rule: Compiled, scope: Scope) -> tuple[Remedy, ...]:
    """The rule's fixes with their blanks filled in."""

    def fill(text: str, *, quote: bool = False) -> str:
        return rule.template(text).fill(scope, quote=quote)

    return tuple(_remedy(fix, fill, scope) for fix in rule.rule.fix)


def _remedy(fix: Any, fill: Filler, scope: Scope) -> Remedy:
    command, undo, title, needs = _COMMANDS[type(fix)](fix, fill, scope)
    return Remedy(
        kind=type(fix).__struct_config__.tag,
        title=fill(fix.title) or title,
        safety=fix.safety,
        command=command,
        undo=undo,
        needs=fix.needs or needs,
        note=fill(fix.note),
        numerics=fix.numerics,
    )


Parts = tuple[str, str, str, str]


def _sysctl(fix: Sysctl, fill: Filler, _scope: Scope) -> Parts:
    was = fill(fix.was) if fix.was else "?"
    undo = f"sudo sysctl -w {fix.key}={shlex.quote(was)}" if was != "?" else ""
    return f"sudo sysctl -w {fix.key}={fix.value}", undo, f"set {fix.key} to {fix.value}", "root"


def _sysfs(fix: Sysfs, fill: Filler, _scope: Scope) -> Parts:
    path = SYSFS[fix.knob].path.replace("{item}", fill(fix.item) if fix.item else "")
    shown = path if "*" in path else shlex.quote(path)
    was = fill(fix.was) if fix.was else "?"
    undo = f"echo {shlex.quote(was)} | sudo tee {shown}" if was != "?" else ""
    return f"echo {fix.value} | sudo tee {shown}", undo, f"set {fix.knob} to {fix.value}", "root"


def _nvml(fix: Nvml, _fill: Filler, scope: Scope) -> Parts:
    bus_id = shlex.quote(str(getattr(scope.names.get("gpu"), "bus_id", None) or "GPU"))
    command, undo = NVML_SETTINGS[fix.setting](bus_id)
    return command, undo, f"turn {fix.setting} on", "root"


def _affinity(fix: Affinity, fill: Filler, scope: Scope) -> Parts:
    pid, was = getattr(scope.names.get("proc"), "pid", "PID"), fill(fix.was) if fix.was else "?"
    undo = f"taskset -apc {shlex.quote(was)} {pid}" if was != "?" else ""
    return f"taskset -apc {fill(fix.cpus, quote=True)} {pid}", undo, "let the process use these CPUs", ""


def _migrate(fix: MigratePages, fill: Filler, scope: Scope) -> Parts:
    pid = getattr(scope.names.get("proc"), "pid", "PID")
    return f"migratepages {pid} all {fill(fix.nodes, quote=True)}", "", "move its memory beside its CPUs", ""


def _env(fix: Env, fill: Filler, _scope: Scope) -> Parts:
    unset = [f"-u {name}" for name in fix.unset]
    given = [
        f"{name}={fill(value, quote='{' in value)}" if "{" in value else f"{name}={shlex.quote(value)}" for name, value in fix.set.items()
    ]
    title = " and ".join(part for part in (fix.set and f"set {', '.join(fix.set)}", fix.unset and f"unset {', '.join(fix.unset)}") if part)
    return " ".join(("env", *unset, *given, "python …")), "start it without this prefix", title, "restart"


def _preload(fix: Preload, _fill: Filler, scope: Scope) -> Parts:
    found = {library.name: library.path for library in getattr(scope.names.get("allocator"), "libraries", None) or ()}
    path = found.get(fix.library)
    if path is None:
        return "", "", f"install {fix.library}, then start the program with it preloaded", "restart"
    return f"env LD_PRELOAD={shlex.quote(path)} python …", "start it without this prefix", f"preload {fix.library}", "restart"


def _bind(fix: Bind, _fill: Filler, scope: Scope) -> Parts:
    """`sysperf wrap` finds the place by itself; for a running process, the wrap that would have been right."""
    argv = getattr(scope.names.get("proc"), "command", None)
    program = neutral(shlex.join(argv), MAX_COMMAND) if argv else "python …"
    return f"sysperf wrap -- {program}", "start it without the wrap", f"start it bound to {fix.to.replace('-', ' ')}", "restart"


def _advice(fix: Advice, fill: Filler, _scope: Scope) -> Parts:
    return fill(fix.command, quote=True), fill(fix.undo, quote=True), fill(fix.text), ""


_COMMANDS: dict[type[Fix], Callable[..., Parts]] = {
    Sysctl: _sysctl,
    Sysfs: _sysfs,
    Nvml: _nvml,
    Affinity: _affinity,
    MigratePages: _migrate,
    Env: _env,
    Preload: _preload,
    Bind: _bind,
    Advice: _advice,
}
