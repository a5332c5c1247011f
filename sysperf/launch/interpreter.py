"""Which PyTorch a command will import, read from files: nothing is imported, nothing is run.

Reads   $PATH/PROGRAM  PREFIX/{pyvenv.cfg,lib/python3.*/site-packages/torch/{version.py,lib}}
Format  https://docs.python.org/3/library/site.html
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from sysperf.host import Host
from sysperf.host.plain_files import open_plain
from sysperf.launch import shims
from sysperf.launch.command import PYTHON, Command
from sysperf.model.record import Record
from sysperf.model.text import neutral
from sysperf.procfs import torch_version
from sysperf.startup import lazy

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHEBANG = lazy(rb"#![ \t]{0,4}([^\s\0]{1,500})(?:[ \t]+(?:-S[ \t]+)?([^\s\0]{1,500}))?")
_AS_SHELL = lazy(
    r"#!/bin/sh\s{0,9}\n'''exec' (?:\"?(/[^\"\n]{1,500}?)\"?|\"\$\(dirname [^\n]{1,80}\)\"/'(python[0-9.]{0,6})') \"\$0\" \"\$@\""
)
"""How pip, conda and uv write a script whose interpreter has a long path, one with spaces, or lies beside the script."""
_LIBRARIES = lazy(r"python3(?:\.[0-9]{1,2}t?)?")
_RUNTIMES = (("libiomp5", "libiomp5"), ("libgomp", "libgomp"), ("libomp", "libomp"))
MAX_PLACES = 64


class Torch(Record):
    """The PyTorch that a program will import."""

    site_packages: str = ""
    version: str = ""
    gpu: bool | None = None
    """Built for some GPU."""
    openmp: str = ""
    """Its OpenMP runtime: libgomp, libiomp5 or libomp; empty when its files do not say."""
    lib_folder: str = ""
    """Where its environment keeps shared libraries."""


class ProgramFile(Record):
    """The file that will run, as far as that is known."""

    path: str = ""
    is_python: bool = False
    interpreter: str = ""
    torch: Torch | None = None
    torch_known: bool = False
    """Whether we could look: without a torch, it has none."""


def find(host: Host, command: Command, env: Mapping[str, str], cwd: str) -> ProgramFile:
    """The program behind the tools, its interpreter, and the torch that it imports."""
    path = which(host, command.program, env.get("PATH", DEFAULT_PATH), cwd)
    if command.runner.name:
        return _in_environment(host, command, env, cwd)
    if command.kind == "python" or (command.kind == "launcher" and PYTHON.fullmatch(command.program.rpartition("/")[2])):
        return _python(host, path, shims.resolve(host, path, env, cwd), env)
    if command.kind == "shell":  # what a script starts is most likely the Python of the active environment
        python = shims.resolve(host, which(host, "python", env.get("PATH", DEFAULT_PATH), cwd), env, cwd)
        program = _python(host, path, python, env)
        return ProgramFile(path, False, python, program.torch, program.torch_known) if program.torch else ProgramFile(path)
    interpreter = shims.resolve(host, _shebang(host, path, env, cwd), env, cwd) if path else ""
    return _python(host, path, interpreter, env) if interpreter else ProgramFile(path)


def which(host: Host, program: str, path: str, cwd: str) -> str:
    """The file that a name stands for; "" when there is none."""
    if "/" in program:
        path_of_program = os.path.normpath(os.path.join(cwd, program))
        return path_of_program if host.exists(path_of_program) is not False else ""
    folders = (os.path.join(cwd, folder or ".") for folder in path.split(":")[:MAX_PLACES])
    return next((f"{folder.rstrip('/')}/{program}" for folder in folders if program and host.exists(f"{folder.rstrip('/')}/{program}")), "")


def _shebang(host: Host, path: str, env: Mapping[str, str], cwd: str) -> str:
    """The Python that a script's first line names; "" for other files."""
    first = host.call(f"head:{path}", lambda: _head(path), str)
    shebang = _SHEBANG.match(first.encode("utf-8", "replace")) if first else None
    if not shebang:
        return ""
    if start := _AS_SHELL.match(first):
        return start[1] or f"{os.path.dirname(os.path.realpath(path) if host.live else path)}/{start[2]}"
    program = shebang[1].decode("utf-8", "replace")
    if program.rpartition("/")[2] == "env" and shebang[2]:
        program = which(host, shebang[2].decode("utf-8", "replace"), env.get("PATH", DEFAULT_PATH), cwd)
    return program if PYTHON.fullmatch(program.rpartition("/")[2]) else ""


def _head(path: str) -> str:
    if not stat.S_ISREG(os.stat(path).st_mode):
        return ""
    with open(open_plain(path), "rb") as file:
        return file.read(1200).decode("utf-8", "replace")


def _python(host: Host, path: str, interpreter: str, env: Mapping[str, str]) -> ProgramFile:
    if not interpreter:
        return ProgramFile(path, is_python=True)
    folders = list(sites(host, interpreter, env))[:MAX_PLACES]
    torch = next((torch for folder in folders if (torch := torch_in(host, folder))), None)
    return ProgramFile(path, True, interpreter, torch, torch_known=bool(folders))


def sites(host: Host, interpreter: str, env: Mapping[str, str]) -> Iterator[str]:
    """The folders from which this interpreter imports, in its order."""
    yield from (folder for folder in env.get("PYTHONPATH", "").split(":") if folder.startswith("/"))
    prefix = os.path.dirname(os.path.dirname(interpreter))
    config = host.pairs(f"{prefix}/pyvenv.cfg", "=")
    if config is None and os.path.basename(interpreter) and host.live:
        prefix = os.path.dirname(os.path.dirname(os.path.realpath(interpreter)))
    if config is None or config.get("include-system-site-packages", "") == "true":
        home = env.get("HOME", "")
        if home.startswith("/") and "PYTHONNOUSERSITE" not in env:
            yield from _packages(host, f"{home}/.local", ("site-packages",))
    yield from _packages(host, prefix, ("site-packages", "dist-packages"))
    if config is not None and config.get("include-system-site-packages", "") == "true":
        yield from _packages(host, os.path.dirname(config.get("home", "")), ("site-packages", "dist-packages"))
    elif prefix == "/usr":
        yield from _packages(host, "/usr/local", ("dist-packages", "site-packages"))


def _packages(host: Host, prefix: str, names: Iterable[str]) -> Iterator[str]:
    for library in host.names(f"{prefix}/lib") or ():
        if _LIBRARIES.fullmatch(library):
            for name in names:
                if host.exists(f"{prefix}/lib/{library}/{name}"):
                    yield f"{prefix}/lib/{library}/{name}"


def torch_in(host: Host, site: str) -> Torch | None:
    """The torch of a site-packages folder; None when it holds none."""
    if not host.exists(f"{site}/torch/version.py"):
        return None
    version = torch_version.assignments(host.text(f"{site}/torch/version.py", torch_version.MAX_BYTES) or "")
    libraries = host.names(f"{site}/torch/lib")
    prefix = site.rpartition("/lib/python")[0]
    folder = f"{prefix}/lib" if prefix else ""
    return Torch(
        site_packages=site,
        version=neutral(version.get("__version__", ""), 60),
        gpu=any(version.get(name) for name in ("cuda", "hip", "xpu")) if version else None,
        openmp=_openmp(libraries or ()) or _openmp(host.names(folder) or () if host.exists(f"{prefix}/conda-meta") else ()),
        lib_folder=folder,
    )


def _openmp(libraries: Iterable[str]) -> str:
    names = list(libraries)
    return next((runtime for start, runtime in _RUNTIMES if any(name.startswith(start) for name in names)), "")


def _in_environment(host: Host, command: Command, env: Mapping[str, str], cwd: str) -> ProgramFile:
    """Find the environment by the runner's rules; with packages laid over it, those that it lacks are unknown."""
    from sysperf.launch.environments import prefixes  # noqa: PLC0415 - few commands have a runner

    for prefix in prefixes(host, command.runner, env, cwd):
        python = f"{prefix}/bin/python"
        if host.exists(python):
            program = _python(host, f"{prefix}/bin/{command.program}", python, {**env, "PYTHONPATH": ""})
            known = program.torch_known and (program.torch is not None or not command.runner.layered)
            return msgspec.structs.replace(program, torch_known=known)
    return ProgramFile()
