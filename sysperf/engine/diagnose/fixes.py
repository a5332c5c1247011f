"""What a diagnosed program can do against a cause, as lines to paste."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sysperf.diagnosis.facts import Program, Share
from sysperf.engine.diagnose.hits import speaks_for
from sysperf.engine.diagnose.proof import in_folder
from sysperf.evaluate.compiled import Compiled
from sysperf.evaluate.remedy import source_fix
from sysperf.evaluate.ruleset import Ruleset
from sysperf.model.finding import Remedy, Start
from sysperf.model.text import for_shell


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
    return tuple(source_fix(file, rule) for file, rule in dict.fromkeys((hit.place.file, hit.rule) for hit in fixable))


def of_program(fix: Remedy, program: Program) -> Remedy:
    """A fix that starts the program with other variables, with this program's own command line, where it runs.

    Of a line with ``…`` in it, which cannot be pasted, it stays one that changes the shell.
    """
    command = for_shell(program.started or program.command)
    if fix.start is None or fix.start.wrap is not None or not command or command.endswith("…"):
        return fix
    return _in_folder(fix.started(msgspec.structs.replace(fix.start, program=command)), program)


def _in_folder(fix: Remedy, program: Program | Share) -> Remedy:
    return msgspec.structs.replace(fix, command=in_folder(program, fix.command))


def _of_what_is_set(fix: Remedy, env: Mapping[str, str] | None) -> Remedy | None:
    """A fix that unsets variables, for those which the program has; None where nothing is left of it."""
    if fix.start is None or env is None:
        return fix
    start = msgspec.structs.replace(fix.start, unset=tuple(name for name in fix.start.unset if name in env))
    return None if start == Start() else fix.started(start) if start != fix.start else fix


def _start_of(fix: Remedy, share: Share) -> Remedy:
    start = Start(wrap=("--cpus", str(share.cpus)), program=for_shell(share.command) or "python …")
    return msgspec.structs.replace(_in_folder(fix.started(start), share), title=f"{fix.title}: process {share.pid}")
