"""python: the Python environments that a user of this machine can start, and the compilers beside them.

Reads   /proc/self/environ  PATH  ~/.conda/environments.txt  */conda-meta  */pyvenv.cfg  ~/.pyenv/versions  /usr
Format  https://docs.python.org/3/library/site.html
        https://docs.python.org/3/library/venv.html
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import Annotated

from sysperf.collect.readers.home import home_of
from sysperf.host import Host
from sysperf.model.errors import Missing
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.procfs import environ
from sysperf.startup import lazy

ENVIRON = "/proc/self/environ"
MAX_ENVIRONMENTS = 32
MAX_LISTED = 64
CXX_COMPILERS = ("c++", "g++", "clang++")
INTERPRETERS = ("python3", "python")
CONDA_ROOTS = ("/opt/conda", "/opt/miniforge3", "/opt/miniconda3", "/opt/anaconda3")
CONDA_HOMES = ("miniforge3", "miniconda3", "mambaforge", "anaconda3", "micromamba", ".local/share/mamba")
ENVIRONMENT_FOLDERS = (".pyenv/versions", ".virtualenvs", ".cache/pypoetry/virtualenvs")
PROJECT_FOLDERS = (".venv", "venv")

_LIB = lazy(r"python([0-9]{1,2}\.[0-9]{1,3})(t?)")
_FULL_VERSION = lazy(r"([0-9]{1,2}\.[0-9]{1,3}\.[0-9]{1,3})")
_INSIDE = lazy(r"(/.{0,3000}?)/lib(?:64)?/python[^/]{0,20}/(?:site|dist)-packages(?:/.*)?", re.DOTALL)


class Environment(Record):
    """One Python environment: an interpreter and where it finds packages."""

    prefix: Annotated[str, fact("its folder", "PATH", "/*/pyvenv.cfg", "/*/conda-meta")]
    manager: Annotated[str, fact("who made it: venv, conda, pyenv, uv, system, user or other", "/*/pyvenv.cfg", "/*/conda-meta")]
    python_version: Annotated[str | None, fact("version of the interpreter, as exact as its files say", "/*/pyvenv.cfg", "/*/bin/python3")]
    free_threaded: Annotated[bool | None, fact("an interpreter built to run without the GIL", "/*/bin/python3", "/*/lib")]
    site_packages: Annotated[tuple[str, ...], fact("where it looks for packages; the first that has one wins", "/*/pyvenv.cfg", "/*/lib")]
    base: Annotated[str | None, fact("folder of the interpreter: the prefix itself, or where a venv borrows it", "/*/pyvenv.cfg")]
    active: Annotated[bool, fact("what `python` means in the shell that started sysperf", ENVIRON, "PATH")] = False
    library: Annotated[str | None, fact("name of its library folder, such as python3.13t", "/*/bin/python3", "/*/lib")] = None


class Python(Record):
    """Environments in the order of their likelihood: what the shell would start comes first."""

    environments: Annotated[tuple[Environment, ...], fact("environments found", "/*/pyvenv.cfg", "/*/conda-meta", "/usr/bin/python3")]
    left_out: Annotated[int, fact("environments beyond the first 32, which were not examined")] = 0
    active: Annotated[str | None, fact("prefix of the environment of the shell; empty when it has no Python", ENVIRON, "PATH")] = None


class Shell(Record):
    """What the user who asks has set: it decides which Python starts and where that looks for packages."""

    variables: dict[str, str]
    programs: dict[str, list[str]] | None
    home: str


Discovery = tuple[Shell, list[Environment], int]


def collect(host: Host) -> Python:
    """Find the environments. Raises Missing in a capture that holds none."""
    shell, listed, left_out = discover(host)
    return Python(
        environments=tuple(listed),
        left_out=left_out,
        active=None if shell.programs is None else next((environment.prefix for environment in listed if environment.active), ""),
    )


def discover(host: Host) -> Discovery:
    """The shell, the environments, and how many more there are; looked for once a machine.

    Raises Missing in a capture that holds none.
    """
    discovery = host.once("environments of Python", lambda: _discovered(host))
    if not discovery[1] and host.exists("/usr/bin") is None:
        raise Missing("no Python environment was captured")
    return discovery


def _discovered(host: Host) -> Discovery:
    shell = shell_of(host)
    return (shell, *environments(host, shell))


def shell_of(host: Host) -> Shell:
    """The variables, programs and home of the user who asks, behind sudo too."""
    return Shell(
        variables=environ.variables(host.text(ENVIRON) or ""),
        programs=_on_path(host),
        home=_folder(home_of(host)),
    )


def environments(host: Host, shell: Shell) -> tuple[list[Environment], int]:
    """The environments, the shell's own first, and how many more there are."""
    active = active_prefix(host, shell)
    by_prefix: dict[str, Environment] = {}
    left_out = 0
    for prefix in dict.fromkeys(_candidates(host, shell, active)):
        if len(by_prefix) >= MAX_ENVIRONMENTS:
            left_out += 1
            continue
        environment = environment_at(host, prefix, shell, active)
        if environment is not None:
            by_prefix[environment.prefix] = environment
    if left_out:
        host.refuse("python environments", f"{left_out} more were not examined")
    return list(by_prefix.values()), left_out


def active_prefix(host: Host, shell: Shell) -> str:
    """The prefix of what `python` means in the user's shell; empty when there is none."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if shell.variables.get(name, "").startswith("/"):
            return _folder(shell.variables[name])
    paths = next((paths for name in INTERPRETERS if (paths := (shell.programs or {}).get(name))), None)
    return prefix_of(host, *paths) if paths else ""


def prefix_of(host: Host, interpreter: str, real: str = "") -> str:
    """The prefix of an interpreter: what pyenv's shim chooses, the venv that it lies in, else where the program really is."""
    prefix = _folder(_parent(_parent(interpreter)))
    if _parent(interpreter).endswith("/shims"):
        chosen = (host.word(f"{prefix}/version") or "").partition("\n")[0]
        return _folder(f"{prefix}/versions/{chosen}") if chosen else ""
    if not real or real == interpreter or host.exists(f"{prefix}/pyvenv.cfg"):
        return prefix
    return _folder(_parent(_parent(real)))


def environment_at(host: Host, where: str, shell: Shell, active: str = "") -> Environment | None:
    """The environment at a prefix, or around a path in its site-packages; None when there is none."""
    inside = _INSIDE.fullmatch(where)
    prefix = _folder(inside[1] if inside else where)
    if not prefix.startswith("/") or host.exists(prefix) is False:
        return None
    config = _venv_config(host, prefix)
    library = _library(host, prefix, config)
    if library is None:
        return None
    base = prefix if config is None else _parent(_folder(config.get("home", ""))) or None
    matched = _LIB.fullmatch(library)
    return Environment(
        prefix=prefix,
        manager=_manager(host, prefix, config),
        python_version=_version(prefix, config) or (matched[1] if matched else None),
        free_threaded=bool(matched[2]) if matched else None,
        site_packages=tuple(dict.fromkeys(_sites(host, (prefix, base, library), config, shell))),
        base=base,
        active=prefix == active,
        library=library,
    )


# ---------------------------------------------------------------------- where environments are


def _candidates(host: Host, shell: Shell, active: str) -> Iterator[str]:
    """Prefixes that may hold an environment, the likeliest first."""
    named: list[str] = host.call("--python", lambda: list(host.pythons), list[str]) or []
    for path in (*host.pythons, *named):
        yield _folder(path) if host.exists(f"{path}/bin") else prefix_of(host, path)
    if active:
        yield active
    yield from _project(host)
    own: str | None = host.call("sys.prefix", lambda: sys.prefix, str)
    if own:
        yield _folder(own)
    yield from _conda(host, shell)
    for folder in ENVIRONMENT_FOLDERS if shell.home else ():
        yield from _children(host, f"{shell.home}/{folder}")
    yield "/usr"


def _project(host: Host) -> list[str]:
    """The environment of the project in the current folder."""
    here = _folder(host.link("/proc/self/cwd") or "")
    return [f"{here}/{name}" for name in PROJECT_FOLDERS if host.exists(f"{here}/{name}/pyvenv.cfg")]


def _conda(host: Host, shell: Shell) -> Iterator[str]:
    """Conda's own list of its environments, else the folders that its installers propose."""
    prefix, home = _folder(shell.variables.get("CONDA_PREFIX", "")), shell.home
    roots = [prefix.partition("/envs/")[0]] if prefix else []
    lines = (host.text(f"{home}/.conda/environments.txt") or "").splitlines() if home else []
    listed = [_folder(line.strip()) for line in lines if line.startswith("/")][:MAX_LISTED]
    if not listed:
        roots += [*CONDA_ROOTS, *(f"{home}/{name}" for name in CONDA_HOMES if home)]
    yield from listed
    for root in dict.fromkeys(roots):
        if host.exists(root):
            yield root
            yield from _children(host, f"{root}/envs")


def _children(host: Host, folder: str) -> list[str]:
    names = host.names(folder) if host.exists(folder) else None
    return [f"{folder}/{name}" for name in (names or ())[:MAX_LISTED] if not name.startswith(".")]


# ---------------------------------------------------------------------- what one environment is


def _venv_config(host: Host, prefix: str) -> dict[str, str] | None:
    """The settings of a venv; None when it is none."""
    path = f"{prefix}/pyvenv.cfg"
    if not host.exists(path):
        return None
    return {name.lower(): neutral(value, 4096) for name, value in (host.pairs(path, "=") or {}).items()}


def _library(host: Host, prefix: str, config: dict[str, str] | None) -> str | None:
    """The name of the library folder, such as ``python3.11``; None when there is no Python."""
    version = _FULL_VERSION.match((config or {}).get("version") or (config or {}).get("version_info") or "")
    if version:
        name = f"python{version[1].rpartition('.')[0]}"
        for suffix in ("", "t"):
            if host.exists(f"{prefix}/lib/{name}{suffix}/site-packages"):
                return name + suffix
    if config is None and host.exists(f"{prefix}/bin/python3"):
        target = (host.link(f"{prefix}/bin/python3") or "").rpartition("/")[2]
        if _LIB.fullmatch(target):
            return target
    libraries = [name for name in host.names(f"{prefix}/lib") or () if _LIB.fullmatch(name)] if host.exists(f"{prefix}/lib") else []
    return libraries[-1] if libraries else None


def _version(prefix: str, config: dict[str, str] | None) -> str | None:
    config = config or {}
    match = _FULL_VERSION.match(config.get("version") or config.get("version_info") or "")
    if match is None and "/versions/" in prefix:
        match = _FULL_VERSION.fullmatch(prefix.rpartition("/")[2])
    return match[1] if match else None


def _manager(host: Host, prefix: str, config: dict[str, str] | None) -> str:
    if config is not None:
        return "venv"
    if prefix in ("/usr", "/usr/local"):
        return "system"
    if prefix.endswith("/.local"):
        return "user"
    if host.exists(f"{prefix}/conda-meta"):
        return "conda"
    return "pyenv" if "pyenv/versions/" in prefix else "uv" if "/uv/python/" in prefix else "other"


def _sites(host: Host, place: tuple[str, str | None, str], config: dict[str, str] | None, shell: Shell) -> Iterator[str]:
    """Yield where packages are looked for. A venv is alone unless it asks for the system's; the user's folder comes before the system's."""
    prefix, base, library = place
    shares = config is None or config.get("include-system-site-packages", "").lower() == "true"
    if config is not None:
        yield f"{prefix}/lib/{library}/site-packages"
    if shares and shell.home and not shell.variables.get("PYTHONNOUSERSITE"):
        user = f"{shell.home}/.local/lib/{library}/site-packages"
        if host.exists(user):
            yield user
    if shares and base:
        yield from _own_sites(host, base, library)


def _own_sites(host: Host, base: str, library: str) -> Iterator[str]:
    if base != "/usr":
        yield f"{base}/lib/{library}/site-packages"
    elif host.exists("/usr/lib/python3/dist-packages"):
        yield from (f"/usr/local/lib/{library}/dist-packages", "/usr/lib/python3/dist-packages")
    else:
        yield from (f"{root}/{lib}/{library}/site-packages" for root in ("/usr/local", "/usr") for lib in ("lib64", "lib"))


# ---------------------------------------------------------------------- asking this machine


def _which() -> dict[str, list[str]]:
    """Return where the programs that matter are on the PATH."""
    folders = [*os.environ.get("PATH", "").split(":")[:MAX_LISTED], "/usr/local/bin", "/usr/bin", "/bin"]
    places: dict[str, list[str]] = {}
    for name in (*INTERPRETERS, *CXX_COMPILERS):
        for folder in folders:
            path = f"{folder}/{name}"
            if folder.startswith("/") and os.access(path, os.X_OK):
                places[name] = [path, os.path.realpath(path)]
                break
    return places


def _on_path(host: Host) -> dict[str, list[str]] | None:
    """Programs on the PATH: name to the path there and what that is a link to."""
    answer: dict[str, list[str]] | None = host.call("PATH", _which, dict[str, list[str]])
    if answer is None:
        return None
    rows = {name: [neutral(path, 4096) for path in paths[:2]] for name, paths in answer.items()}
    return {name: paths for name, paths in rows.items() if paths and all(path.startswith("/") for path in paths)}


def _folder(path: str) -> str:
    """An absolute path without doubled and trailing slashes and without ``..``; empty when it is none."""
    return "/" + os.path.normpath(path).strip("/") if path.startswith("/") else ""


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
