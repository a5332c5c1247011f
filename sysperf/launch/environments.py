"""Where the environment lies in which a runner starts a program: `conda run`, `uv run`, `poetry run` and the like.

uv      https://docs.astral.sh/uv/concepts/projects/config/ (UV_PROJECT_ENVIRONMENT, .venv beside the project)
poetry  https://python-poetry.org/docs/configuration/ (virtualenvs.path, virtualenvs.in-project)
pixi    https://pixi.sh/latest/workspace/environment/ (.pixi/envs/NAME)
pdm     https://pdm-project.org/latest/usage/venv/ (.venv, .pdm-python)
hatch   https://hatch.pypa.io/latest/config/environment/overview/ (HATCH_DATA_DIR/env/virtual)
pipenv  https://pipenv.pypa.io/en/latest/configuration.html (.venv, WORKON_HOME)

A folder with a project's environment is taken only when it is the project's for certain: by its place, or by its name when one fits.
"""

import os
from collections.abc import Callable, Iterator, Mapping

from sysperf.host import Host

MAX_PARENTS = 32
CONDA = frozenset(("conda", "mamba", "micromamba"))
_PROJECT_FILES = ("pyproject.toml", "pixi.toml", "Pipfile", "uv.lock")


def prefixes(host: Host, runner: str, where: str, env: Mapping[str, str], cwd: str) -> Iterator[str]:
    """The folders that may be the environment, the most certain first."""
    if where.startswith("/"):
        yield where
    elif runner in CONDA:
        yield from _conda(where, env)
    elif runner == "pixi":
        yield from (f"{project}/.pixi/envs/{where or 'default'}" for project in _projects(host, cwd))
    else:
        yield from _of_project(host, runner, where, env, cwd)


def _conda(where: str, env: Mapping[str, str]) -> Iterator[str]:
    active = env.get("CONDA_PREFIX", "")
    if not where:
        yield active
        return
    base = os.path.dirname(os.path.dirname(env.get("CONDA_EXE", ""))) or env.get("MAMBA_ROOT_PREFIX", "")
    roots = [base, active, active.partition("/envs/")[0], f"{env.get('HOME', '')}/.conda"]
    if where in ("base", "root"):
        yield from (root for root in (base, active.partition("/envs/")[0]) if root)
    yield from (f"{root}/envs/{where}" for root in roots if root)


def _of_project(host: Host, runner: str, where: str, env: Mapping[str, str], cwd: str) -> Iterator[str]:
    """uv takes the project's environment, the others the active one first."""
    projects = list(_projects(host, cwd))
    if runner == "uv":
        named = env.get("UV_PROJECT_ENVIRONMENT", "")
        yield from (os.path.join(project, named or ".venv") for project in projects)
    if env.get("VIRTUAL_ENV"):
        yield env["VIRTUAL_ENV"]
    for project in projects:
        if runner == "pdm" and (python := host.word(f"{project}/.pdm-python", 4096)):
            yield os.path.dirname(os.path.dirname(python))
        yield f"{project}/.venv"
        if central := _CENTRAL.get(runner):
            yield from central(host, project, where, env)


def _poetry(host: Host, project: str, _where: str, env: Mapping[str, str]) -> Iterator[str]:
    cache = env.get("POETRY_CACHE_DIR") or f"{env.get('XDG_CACHE_HOME') or env.get('HOME', '') + '/.cache'}/pypoetry"
    yield from _named(host, env.get("POETRY_VIRTUALENVS_PATH") or f"{cache}/virtualenvs", project)


def _pipenv(host: Host, project: str, _where: str, env: Mapping[str, str]) -> Iterator[str]:
    data = env.get("XDG_DATA_HOME") or f"{env.get('HOME', '')}/.local/share"
    yield from _named(host, env.get("WORKON_HOME") or f"{data}/virtualenvs", project)


def _hatch(host: Host, project: str, where: str, env: Mapping[str, str]) -> Iterator[str]:
    data = env.get("HATCH_DATA_DIR") or f"{env.get('XDG_DATA_HOME') or env.get('HOME', '') + '/.local/share'}/hatch"
    name = _normal(os.path.basename(project))
    folder = f"{data}/env/virtual/{name}"
    hashes = host.names(folder) or ()
    if len(hashes) == 1:
        yield f"{folder}/{hashes[0]}/{where if where and where != 'default' else name}"


_CENTRAL: dict[str, Callable[[Host, str, str, Mapping[str, str]], Iterator[str]]] = {"poetry": _poetry, "pipenv": _pipenv, "hatch": _hatch}


def _named(host: Host, folder: str, project: str) -> Iterator[str]:
    """``NAME-HASH`` and ``NAME-HASH-py3.11``: taken when one alone begins with the project's name."""
    name = _normal(os.path.basename(project))
    fitting = [entry for entry in host.names(folder) or () if _normal(entry).startswith(f"{name}-")]
    if len(fitting) == 1:
        yield f"{folder}/{fitting[0]}"


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _projects(host: Host, cwd: str) -> Iterator[str]:
    """This folder, then the nearest one above it that holds a project."""
    yield cwd
    folder = os.path.dirname(cwd)
    for _ in range(MAX_PARENTS):
        if any(host.exists(f"{folder}/{name}") for name in _PROJECT_FILES):
            yield folder
            return
        if folder == os.path.dirname(folder):
            return
        folder = os.path.dirname(folder)
