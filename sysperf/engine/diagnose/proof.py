"""The commands that prove a fix, as they can be pasted: the job as it was started, before and after, each run with an end."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sysperf.diagnosis.facts import Program, Stacks
from sysperf.launch import command as commands
from sysperf.model.finding import Place, Remedy
from sysperf.model.text import for_shell

if TYPE_CHECKING:
    from sysperf.collect.process.records import Process

RUN_S, MINUTES = 10, 10
"""Seconds of steps of each run, and when the comparison ends: some 20 pairs of a program that starts within 5 s."""
INFERS, MODEL = 0.02, 0.1
"""Shares of the stacks below which a program makes no steps of an optimizer, and from which it calls a model."""
_TUNES = (
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "ATEN_", "ONEDNN_", "DNNL_", "MALLOC_", "PYTORCH_", "TORCH_", "TORCHINDUCTOR_",
    "TORCHDYNAMO_", "NCCL_", "CUDA_", "HIP_", "LD_PRELOAD", "PYTHONMALLOC", "PYTHONDEVMODE",
)  # fmt: skip
"""Variables that change how fast a program is: with others than its own it would be another one."""


class Proof(NamedTuple):
    """Both are empty where no command would show it."""

    keep: str = ""
    """What keeps the source as it is, before it is changed."""
    verify: str = ""


def start_of(process: Process, all_of_them: Sequence[Process]) -> tuple[str, str]:
    """(command line, working folder) by which a program's job was started; empty where they are not known.

    A rank is started by its launcher. The variables that make it fast or slow are part of the line where ours are others; the folder is
    empty where it is ours.
    """
    starter = process
    if (process.world_size or 1) > 1:
        starter = next((other for other in all_of_them if other.pid == process.job and other.pid != process.pid), None) or process
        if starter is process:  # what started it is not seen, and a rank alone cannot run
            return "", ""
    program = for_shell(starter.command or "")
    try:
        folder = os.readlink(f"/proc/{starter.pid}/cwd")
    except OSError:
        folder = ""
    here = os.getcwd()
    return ("" if "…" in program or not program else _with_variables(program, starter.env)), "" if folder == here else folder


def _with_variables(program: str, env: Mapping[str, str] | None) -> str:
    if env is None:
        return program
    other = {name: value for name, value in env.items() if name.startswith(_TUNES) and os.environ.get(name) != value}
    absent = [name for name in os.environ if name.startswith(_TUNES) and name not in env]
    if not other and not absent:
        return program
    given = (f"{name}={shlex.quote(value)}" for name, value in sorted(other.items()))
    return " ".join(("env", *(f"-u {name}" for name in absent), *given, program))


def proof(fixes: Sequence[Remedy], program: Program, what: str = "", place: Place | None = None) -> Proof:
    """Compare the job with and without the first fix; with its source as it was and as it is, where the fix is a change of that.

    Nothing where the rule says `none`: a program that makes no progress has no speed.
    """
    start, job = fixes[0].start if fixes else None, program.started
    if what == "none" or not job:
        return Proof()
    if what == "wrap":
        return Proof(verify=in_folder(program, f"{_verify(program)} -- {job}"))
    if start is not None:
        other = start if start.wrap is not None else msgspec.structs.replace(start, program=job)
        return Proof(verify=in_folder(program, f"{_verify(program)} --a {shlex.quote(job)} --b {shlex.quote(other.command())}"))
    keep, before = _kept(job, program.folder or os.getcwd(), place)
    if not before:
        return Proof()
    compared = f"{_verify(program)} --a {shlex.quote(before)} --b {shlex.quote(job)}"
    return Proof(in_folder(program, keep), in_folder(program, compared))


def _verify(program: Program) -> str:
    counted = "forward" if program.stacks is not None and _infers(program.stacks) else "optimizer"
    return f"sysperf verify --steps {counted} --run-seconds {RUN_S} --minutes {MINUTES}"


def _infers(stacks: Stacks) -> bool:
    return stacks.backward + stacks.optimizer < INFERS and stacks.forward >= MODEL


def in_folder(program: Program, command: str) -> str:
    """A command that is run where the job runs."""
    return f"cd {shlex.quote(program.folder)} && {command}" if program.folder else command


def _kept(job: str, folder: str, place: Place | None) -> tuple[str, str]:
    """(command that keeps the source, the job's command with what was kept): the script alone where the cause is in it, else its folder's.

    Empty where no script is named by its path, or the cause is in a file that does not lie beside it.
    """
    words = shlex.split(job)
    known = commands.parse(words)
    script = known.script or next((word for word in words if known.launcher and word.endswith(".py")), "")
    if script not in words or not script.endswith(".py") or place is None:
        return "", ""
    path = os.path.normpath(os.path.join(folder, script))
    if os.path.normpath(os.path.join(folder, place.file)) == path:
        copy = f"{script.removesuffix('.py')}_before.py"
        return shlex.join(("cp", script, copy)), _with(words, script, copy)
    beside = os.path.dirname(script) or "."
    if os.path.isabs(script) or not os.path.join(folder, place.file).startswith(f"{os.path.dirname(path)}/"):
        return "", ""
    tree = f"mkdir -p before && find {shlex.quote(beside)} -name '*.py' -not -path '*/before/*' -exec cp --parents -t before {{}} +"
    return tree, _with(words, script, f"before/{script}")


def _with(words: Sequence[str], script: str, other: str) -> str:
    at = list(words).index(script)
    return shlex.join((*words[:at], other, *words[at + 1 :]))
