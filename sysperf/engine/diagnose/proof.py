"""The commands that prove a fix, as they can be pasted: the job as it was started, before and after, each run with an end."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sysperf.diagnosis.activities import Stacks
from sysperf.diagnosis.facts import Program, Share
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
    if (process.job.world_size or 1) > 1:
        starter = next((other for other in all_of_them if other.pid == process.job.id and other.pid != process.pid), None) or process
        if starter is process:  # what started it is not seen, and a rank alone cannot run
            return "", ""
    program = _as_typed(for_shell(starter.command or ""))
    return ("" if "…" in program or not program else _with_variables(program, starter.env)), folder_of(starter.pid)


def folder_of(pid: int) -> str:
    """Return the working folder of a process; empty where it is ours, or not known."""
    try:
        folder = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""
    return "" if folder == os.getcwd() else folder


def _as_typed(program: str) -> str:
    """A command line without the interpreter that the kernel put before a launcher's own script, such as ``venv/bin/torchrun``."""
    interpreter, _, behind = program.partition(" ")
    script = behind.partition(" ")[0]
    is_launcher = os.path.basename(script) in commands.LAUNCHERS and commands.PYTHON.fullmatch(os.path.basename(interpreter))
    return behind if is_launcher and os.access(script, os.X_OK) else program


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


def in_folder(program: Program | Share, command: str) -> str:
    """A command that is run where the job runs."""
    return f"cd {shlex.quote(program.folder)} && {command}" if program.folder else command


def _kept(job: str, folder: str, place: Place | None) -> tuple[str, str]:
    """(command that keeps the source, the job's command with what was kept): the script alone where the cause is in it, else its folder's.

    Empty where neither a script nor a module of the job's folder is named, or the cause is in a file that does not lie beside it.
    """
    words = shlex.split(job)
    known = commands.parse(words)
    if place is None:
        return "", ""
    module, script = _of_ranks(words) if known.launcher else (known.module, known.script)
    if module in words:
        return _kept_module(words, folder, place, module, is_rank=bool(known.launcher))
    if script not in words or not script.endswith(".py"):
        return "", ""
    path = os.path.normpath(os.path.join(folder, script))
    if os.path.normpath(os.path.join(folder, place.file)) == path:
        copy = f"{script.removesuffix('.py')}_before.py"
        return shlex.join(("cp", script, copy)), _with(words, script, copy)
    beside = os.path.dirname(script) or "."
    if os.path.isabs(script) or not os.path.join(folder, place.file).startswith(f"{os.path.dirname(path)}/"):
        return "", ""
    return _tree(beside), _with(words, script, f"before/{script}")


def _kept_module(words: Sequence[str], folder: str, place: Place, module: str, *, is_rank: bool) -> tuple[str, str]:
    """The same of a module: under another name where the cause is in its file, else with its package in front of the search path."""
    name = module.replace(".", "/")
    file = next((path for path in (f"{name}.py", f"{name}/__main__.py") if os.path.isfile(os.path.join(folder, path))), "")
    if not file:
        return "", ""
    if os.path.normpath(os.path.join(folder, place.file)) == os.path.normpath(os.path.join(folder, file)):
        copy = f"{file.removesuffix('.py')}_before.py"
        return shlex.join(("cp", file, copy)), _with(words, module, copy.removesuffix(".py").replace("/", "."))
    package = module.partition(".")[0]
    if is_rank or not os.path.join(folder, place.file).startswith(f"{os.path.join(folder, package)}/"):
        return "", ""
    at = list(words).index(module) - 1
    if words[at] != "-m":
        return "", ""
    # -P keeps the folder itself from being searched first; Python before 3.11 refuses it
    return _tree(package), shlex.join(("env", "PYTHONPATH=before:.", *words[:at], "-P", *words[at:]))


def _of_ranks(words: Sequence[str]) -> tuple[str, str]:
    """(module, script) that a launcher starts: one of both is empty."""
    for word, behind in itertools.pairwise((*words, "")):
        if word in ("-m", "--module") and behind not in commands.MODULES:
            return behind, ""
        if word.endswith(".py"):
            return "", word
    return "", ""


def _tree(beside: str) -> str:
    """The command that copies the sources of a folder to `before`."""
    return f"mkdir -p before && find {shlex.quote(beside)} -name '*.py' -not -path '*/before/*' -exec cp --parents -t before {{}} +"


def _with(words: Sequence[str], script: str, other: str) -> str:
    at = list(words).index(script)
    return shlex.join((*words[:at], other, *words[at + 1 :]))
