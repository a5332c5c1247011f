"""What a diagnosed program can do against a cause, as lines to paste, and the command that proves that it helps."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from sysperf.diagnosis.facts import Program, Share
from sysperf.engine.diagnose.hits import speaks_for
from sysperf.evaluate.compiled import Compiled
from sysperf.evaluate.ruleset import Ruleset
from sysperf.model.outcome import Remedy
from sysperf.model.text import for_shell
from sysperf.startup import lazy

ANY_PROGRAM = " python …"
"""How fixes name the program that is started."""
STEPS = 200
_UNSET = lazy(r" -u (\w+)")


def fixes(
    remedies: Sequence[Remedy], compiled: Compiled, program: Program, shares: Sequence[Share], ruleset: Ruleset
) -> tuple[Remedy, ...]:
    """A rule's remedies as far as they change something in this program, and what lint can change in its source."""
    effective = [fix for remedy in remedies if (fix := _of_what_is_set(remedy, program.env)) is not None]
    return (*_divided(effective, shares), *_codemods(compiled, program, ruleset))


def _divided(fixes: Sequence[Remedy], shares: Sequence[Share]) -> tuple[Remedy, ...]:
    """A fix that gives programs CPUs of their own is a line for each of them; none where the CPUs cannot be divided."""
    return tuple(line for fix in fixes for line in ([_start_of(fix, share) for share in shares] if fix.kind == "bind" else [fix]))


def _codemods(compiled: Compiled, program: Program, ruleset: Ruleset) -> tuple[Remedy, ...]:
    """What `sysperf lint --fix` changes in the program's source against this cause: it shows a diff, and asks."""
    fixable = [hit for hit in program.places if hit.fixable and speaks_for(hit.rule, compiled.rule.id, "diagnosis", ruleset)]
    places = dict.fromkeys((hit.file, hit.rule) for hit in fixable)
    return tuple(
        Remedy(
            "advice", "as a diff of the source, which is shown first", "caution", f"sysperf lint {shlex.quote(file)} --select {rule} --fix"
        )
        for file, rule in places
    )


def of_program(fix: Remedy, command: str) -> Remedy:
    """A fix that starts the program in another way, with this program's own command line."""
    if fix.kind not in ("env", "preload") or not fix.command.endswith(ANY_PROGRAM):
        return fix
    return msgspec.structs.replace(fix, command=f"{fix.command.removesuffix(ANY_PROGRAM)} {for_shell(command) or ANY_PROGRAM.strip()}")


def _of_what_is_set(fix: Remedy, env: Mapping[str, str] | None) -> Remedy | None:
    """A fix that unsets variables, for those which the program has; None where nothing is left of it."""
    named = _UNSET.findall(fix.command) if fix.kind == "env" else []
    kept = [name for name in named if env is None or name in env]
    if kept == named:
        return fix
    command = _UNSET.sub(lambda option: option[0] if option[1] in kept else "", fix.command)
    if command == f"env{ANY_PROGRAM}":
        return None
    return msgspec.structs.replace(fix, command=command, title=fix.title.replace(", ".join(named), ", ".join(kept)))


def _start_of(fix: Remedy, share: Share) -> Remedy:
    command = f"sysperf wrap --cpus {share.cpus} -- {for_shell(share.command) or 'python …'}"
    return msgspec.structs.replace(fix, title=f"{fix.title}: process {share.pid}", command=command)


def proof(fixes: Sequence[Remedy], command: str, what: str = "") -> str:
    """The command that compares the program with and without the first fix; ``--b …`` where that is a change of its source.

    "" where the rule says `none`: a program that makes no progress has no speed.
    """
    if what == "none":
        return ""
    program = for_shell(command) or "python …"
    if what == "wrap":
        return f"sysperf verify -- {program}"
    first = fixes[0] if fixes else None
    if first is not None and first.kind == "bind":
        return f"sysperf verify --a {shlex.quote(program)} --b {shlex.quote(first.command)}"
    if first is not None and first.kind in ("env", "preload") and first.command.endswith(ANY_PROGRAM):
        return f"sysperf verify --a {shlex.quote(program)} --b {shlex.quote(of_program(first, command).command)}"
    return f"sysperf verify --steps optimizer --max-steps {STEPS} --a {shlex.quote(program)} --b …"
