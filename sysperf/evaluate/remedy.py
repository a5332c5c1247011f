"""What to do about a finding on this machine: commands to paste, and how to take them back."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sysperf.evaluate.compiled import Compiled
from sysperf.evaluate.scope import Scope
from sysperf.model.finding import Remedy, SourceEdit, SourceFix, Start
from sysperf.model.knob import KNOBS, NVML_SETTINGS, SETTABLE, SYSFS
from sysperf.model.rule import Advice, Affinity, AnyFix, Bind, Env, Fix, MigratePages, Nvml, Preload, SetKnob, Sysctl, Sysfs
from sysperf.model.setting import Setting
from sysperf.model.text import for_shell, neutral, quoted

Filler = Callable[..., str]
MAX_COMMAND = 300


def remedies(rule: Compiled, scope: Scope) -> tuple[Remedy, ...]:
    """The rule's fixes with their blanks filled in."""

    def fill(text: str, *, quote: bool = False) -> str:
        return rule.template(text).fill(scope, quote=quote)

    return tuple(_remedy(fix, fill, scope) for fix in rule.fixes if rule.offers(fix, scope))


def source_fix(file: str, rule: str, edits: tuple[SourceEdit, ...] = ()) -> Remedy:
    """What `sysperf lint --fix` changes in a source: it shows a diff, and asks."""
    command = f"sysperf lint {quoted(file)} --select {rule} --fix"
    return Remedy("advice", "as a diff of the source, which is shown first", "caution", command, source=SourceFix(file, rule, edits))


def _remedy(fix: AnyFix, fill: Filler, scope: Scope) -> Remedy:
    start = _start(fix, fill, scope)
    command, undo, title, needs = _of_start(fix, start) if start is not None else _COMMANDS[type(fix)](fix, fill, scope)
    undo_text = start.undo() if start is not None else fill(fix.undo_text) if isinstance(fix, Advice) else ""
    return Remedy(
        kind=str(type(fix).__struct_config__.tag),
        title=fill(fix.title) or title,
        safety=fix.safety,
        command=command,
        undo=undo,
        undo_text=undo_text,
        needs=fix.needs or needs,
        note=_note(fix, fill),
        numerics=fix.numerics,
        setting=_setting(fix, fill, scope),
        start=start,
    )


def _note(fix: Fix, fill: Filler) -> str:
    """The note, behind the text of an advice that has a title too: without one the text is the title."""
    text = fill(fix.text) if isinstance(fix, Advice) and fix.title else ""
    return "; ".join(part for part in (text.strip().rstrip("."), fill(fix.note)) if part)


Parts = tuple[str, str, str, str]


def _sysctl(fix: Sysctl, fill: Filler, _scope: Scope) -> Parts:
    was = fill(fix.was) if fix.was else "?"
    undo = f"sudo sysctl -w {fix.key}={quoted(was)}" if was != "?" else ""
    return f"sudo sysctl -w {fix.key}={fix.value}", undo, f"set {fix.key} to {fix.value}", "root"


def _sysfs(fix: Sysfs, fill: Filler, _scope: Scope) -> Parts:
    path = SYSFS[fix.knob].path.replace("{item}", fill(fix.item) if fix.item else "")
    target = path if "*" in path else quoted(path)
    was = fill(fix.was) if fix.was else "?"
    undo = f"echo {quoted(was)} | sudo tee {target}" if was != "?" else ""
    return f"echo {fix.value} | sudo tee {target}", undo, f"set {fix.knob} to {fix.value}", "root"


def _set_knob(fix: SetKnob, fill: Filler, _scope: Scope) -> Parts:
    command, item, was = _OF_KNOB[fix.knob], quoted(fill(fix.item)), quoted(fill(fix.was))
    undo = "sudo sysperf undo" if SETTABLE[fix.knob].needs_keeper else command.format(value=was, item=item) if fix.was else ""
    return command.format(value=fix.value, item=item), undo, f"set {fix.knob} to {fix.value}", "root"


_OF_KNOB = {
    "process.nice": "sudo renice -n {value} -p $(ls /proc/{item}/task)",  # to the kernel the number is that of one thread
    "process.io_class": "sudo ionice -c {value} -p $(ls /proc/{item}/task)",
    "shm.size_bytes": "sudo mount -o remount,size={value} /dev/shm",
    "cpu.dma_latency_us": "sudo sysperf apply --set cpu.dma_latency_us={value} --lease 8h",
}


def _nvml(fix: Nvml, _fill: Filler, scope: Scope) -> Parts:
    bus_id = quoted(str(getattr(scope.names.get("gpu"), "bus_id", None) or "GPU"))
    command, undo = NVML_SETTINGS[fix.setting](bus_id)
    return command, undo, f"turn {fix.setting} on", "root"


def _affinity(fix: Affinity, fill: Filler, scope: Scope) -> Parts:
    pid, was = getattr(scope.names.get("proc"), "pid", "PID"), fill(fix.was) if fix.was else "?"
    undo = f"taskset -apc {quoted(was)} {pid}" if was != "?" else ""
    return f"taskset -apc {fill(fix.cpus, quote=True)} {pid}", undo, "let the process use these CPUs", ""


def _migrate(fix: MigratePages, fill: Filler, scope: Scope) -> Parts:
    pid = getattr(scope.names.get("proc"), "pid", "PID")
    return f"migratepages {pid} all {fill(fix.nodes, quote=True)}", "", "move its memory beside its CPUs", ""


def _start(fix: Fix, fill: Filler, scope: Scope) -> Start | None:
    """How a fix starts the program; None where it does something else, or lacks a library for it."""
    if isinstance(fix, Env):
        program, shell = scope.names.get("proc"), getattr(scope.names.get("process"), "shell", None)
        env = shell if program is None else getattr(program, "env", None)
        unset = tuple(name for name in fix.unset if env is None or name in env)
        given = {name: fill(value) if "{" in value else value for name, value in fix.set.items()}
        return Start(given, unset if unset or given else fix.unset)
    if isinstance(fix, Preload):
        paths = {library.name: library.path for library in getattr(scope.names.get("allocator"), "libraries", None) or ()}
        return Start({"LD_PRELOAD": paths[fix.library]}) if paths.get(fix.library) else None
    if isinstance(fix, Bind):  # `sysperf wrap` finds the place by itself; for a running process, how it would have been started
        command = for_shell(getattr(scope.names.get("proc"), "command", None) or "python …")
        return Start(wrap=(), program=neutral(command, MAX_COMMAND))
    return None


def _of_start(fix: Fix, start: Start) -> Parts:
    if isinstance(fix, Bind):
        return start.command(), "", f"start it bound to {fix.to.replace('-', ' ')}", "restart"
    title = f"preload {fix.library}" if isinstance(fix, Preload) else start.title()
    return start.command(), "", title, "restart"


def _missing_library(fix: Preload, _fill: Filler, _scope: Scope) -> Parts:
    return "", "", f"install {fix.library}, then start the program with it preloaded", "restart"


def _advice(fix: Advice, fill: Filler, _scope: Scope) -> Parts:
    return fill(fix.command, quote=True), fill(fix.undo, quote=True), fill(fix.text), ""


_COMMANDS: dict[type[Fix], Callable[..., Parts]] = {
    Sysctl: _sysctl,
    Sysfs: _sysfs,
    SetKnob: _set_knob,
    Nvml: _nvml,
    Affinity: _affinity,
    MigratePages: _migrate,
    Preload: _missing_library,
    Advice: _advice,
}


# ---------------------------------------------------------------------- the same as a wish that `sysperf apply` can fulfil


def _setting(fix: Fix, fill: Filler, scope: Scope) -> Setting | None:
    """None where a person does it, or `sysperf wrap` at the next start, or where a blank could not be filled."""
    make = _SETTINGS.get(type(fix))
    wish = make(fix, fill, scope) if make else None
    if wish is not None and KNOBS[wish.knob].kind == "process":
        wish = msgspec.structs.replace(wish, start_time=getattr(scope.names.get("proc"), "start_time", None) or 0)
    return wish if wish and KNOBS[wish.knob].takes_item(wish.item) and KNOBS[wish.knob].accepts(wish.value) else None


def _sysctl_setting(fix: Sysctl, _fill: Filler, _scope: Scope) -> Setting:
    return Setting(fix.key, str(fix.value))


def _knob_setting(fix: Sysfs | SetKnob, fill: Filler, _scope: Scope) -> Setting:
    return Setting(fix.knob, str(fix.value), fill(fix.item) if fix.item else "")


def _nvml_setting(fix: Nvml, _fill: Filler, scope: Scope) -> Setting:
    return Setting(f"gpu.{fix.setting}", "1", str(getattr(scope.names.get("gpu"), "bus_id", None) or ""))


def _process_setting(fix: Affinity | MigratePages, fill: Filler, scope: Scope) -> Setting:
    knob, value = ("process.cpus", fix.cpus) if isinstance(fix, Affinity) else ("process.pages", fix.nodes)
    return Setting(knob, fill(value).replace(" ", ""), str(getattr(scope.names.get("proc"), "pid", "")))


_SETTINGS: dict[type[Fix], Callable[..., Setting | None]] = {
    Sysctl: _sysctl_setting,
    Sysfs: _knob_setting,
    SetKnob: _knob_setting,
    Nvml: _nvml_setting,
    Affinity: _process_setting,
    MigratePages: _process_setting,
}
