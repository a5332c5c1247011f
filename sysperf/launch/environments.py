"""The environment in which a runner starts a program: `conda run`, `uv run`, `poetry run` and the like.

conda   https://docs.conda.io/projects/conda/en/stable/user-guide/configuration/custom-env-and-pkg-locations.html
uv      https://docs.astral.sh/uv/concepts/projects/config/ (UV_PROJECT_ENVIRONMENT, .venv beside the project or its workspace)
poetry  https://python-poetry.org/docs/configuration/ (virtualenvs.path, virtualenvs.in-project)
pixi    https://pixi.sh/latest/workspace/environment/ (.pixi/envs/NAME)
pdm     https://pdm-project.org/latest/usage/venv/ (.venv, .pdm-python)
hatch   https://hatch.pypa.io/latest/config/environment/overview/ (HATCH_DATA_DIR/env/virtual)
pipenv  https://pipenv.pypa.io/en/latest/configuration.html (.venv, WORKON_HOME)

An environment that lies elsewhere is known by the digest of the project's path, which its name has: NAME-DIGEST, as these runners make
it. Its own name would not do: two clones of one project have the same.
"""

import os
from collections.abc import Callable, Iterator, Mapping

from sysperf.host import Host
from sysperf.launch import shims
from sysperf.launch.runners import CONDA, Runner

MAX_FILE_BYTES = 1 << 20
MAX_ENVIRONMENTS = 1000
PROJECT = "pyproject.toml"
_Find = Callable[[Host, Runner, Mapping[str, str], str], Iterator[str]]


def prefixes(host: Host, runner: Runner, env: Mapping[str, str], cwd: str) -> Iterator[str]:
    """The folders that may be the environment, in the order in which the runner would take them."""
    project = os.path.normpath(os.path.join(cwd, runner.project))
    if project.endswith(".toml"):
        project = os.path.dirname(project)
    if "/" in runner.environment:
        yield os.path.normpath(os.path.join(cwd, runner.environment))
    elif not runner.unknown:
        yield from (folder for folder in _FIND[runner.name](host, runner, env, project) if folder.startswith("/"))


def _conda(host: Host, runner: Runner, env: Mapping[str, str], _folder: str) -> Iterator[str]:
    name, active, home = runner.environment, env.get("CONDA_PREFIX", ""), env.get("HOME", "")
    if not name:
        yield active
        return
    base = os.path.dirname(os.path.dirname(env.get("CONDA_EXE", ""))) or env.get("MAMBA_ROOT_PREFIX", "")
    if name in ("base", "root"):
        yield from (root for root in (base, active.partition("/envs/")[0]) if root)
    yield from (f"{folder}/{name}" for folder in _named_folders(env))
    yield from (f"{root}/envs/{name}" for root in (base, active, active.partition("/envs/")[0], f"{home}/.conda") if root)
    listed = [line.strip() for line in (host.text(f"{home}/.conda/environments.txt", MAX_FILE_BYTES) or "").split("\n")]
    same = [line for line in listed if line.rpartition("/")[2] == name]
    yield from same if len(same) == 1 else ()


def _named_folders(env: Mapping[str, str]) -> list[str]:
    return [folder for name in ("CONDA_ENVS_DIRS", "CONDA_ENVS_PATH") for folder in env.get(name, "").split(":") if folder]


def _pixi(host: Host, runner: Runner, _env: Mapping[str, str], folder: str) -> Iterator[str]:
    if project := _nearest(host, folder, ".pixi"):
        yield f"{project}/.pixi/envs/{runner.environment or 'default'}"


def _uv(host: Host, runner: Runner, env: Mapping[str, str], folder: str) -> Iterator[str]:
    """The project's, or that of the workspace it belongs to; outside of projects the active one, or the nearest .venv."""
    active, script = env.get("VIRTUAL_ENV", ""), os.path.join(folder, runner.script)
    if runner.script and "# /// script" in (host.text(script, MAX_FILE_BYTES) or ""):
        return
    project = "" if runner.without_project else _nearest(host, os.path.normpath(os.path.join(folder, env.get("UV_PROJECT", ""))), PROJECT)
    if runner.active and active:
        yield active
    elif project:
        yield os.path.join(_workspace(host, project), env.get("UV_PROJECT_ENVIRONMENT") or ".venv")
    else:
        yield from (place for place in (active, _active(env)) if place)
        yield from (f"{parent}/.venv" for parent in shims.upwards(folder))


def _workspace(host: Host, project: str) -> str:
    """The project, or the one above it that calls itself the workspace."""
    above = [
        parent for parent in shims.upwards(project) if "[tool.uv.workspace]" in (host.text(f"{parent}/{PROJECT}", MAX_FILE_BYTES) or "")
    ]
    return above[0] if above else project


def _poetry(host: Host, _runner: Runner, env: Mapping[str, str], folder: str) -> Iterator[str]:
    if active := _active(env):
        yield active
    if project := _nearest(host, folder, PROJECT):
        yield f"{project}/.venv"
        cache = env.get("POETRY_CACHE_DIR") or f"{env.get('XDG_CACHE_HOME') or env.get('HOME', '') + '/.cache'}/pypoetry"
        central = env.get("POETRY_VIRTUALENVS_PATH") or f"{cache}/virtualenvs"
        yield from _only(central, [name for name in _names(host, central) if f"-{_digest(project)}-py" in name])


def _pdm(host: Host, runner: Runner, env: Mapping[str, str], folder: str) -> Iterator[str]:
    project = _nearest(host, os.path.normpath(os.path.join(folder, env.get("PDM_PROJECT", ""))), PROJECT)
    named = runner.environment or env.get("PDM_IN_VENV", "")
    if not named and project and (python := host.word(f"{project}/.pdm-python", 4096)):
        yield os.path.dirname(os.path.dirname(python))
    if not named and (active := _active(env)):
        yield active
    if project and named in ("", "in-project"):
        yield from (f"{project}/{name}" for name in (".venv", "venv", "env"))
    if project:
        central = f"{_data(env)}/pdm/venvs"
        mine = f"{os.path.basename(project)}-{_digest(project, algorithm='md5')}-{named}"
        yield from _only(central, [name for name in _names(host, central) if (name == mine if named else name.startswith(mine))])


def _hatch(host: Host, runner: Runner, env: Mapping[str, str], folder: str) -> Iterator[str]:
    """DATA/env/virtual/PROJECT/DIGEST/NAME, where the environment `default` has the project's name."""
    if not (project := _nearest(host, folder, PROJECT, "hatch.toml")):
        return
    named, digest = runner.environment or env.get("HATCH_ENV", ""), _digest(project)
    central = f"{env.get('HATCH_DATA_DIR') or _data(env) + '/hatch'}/env/virtual"
    for name in _names(host, central):
        yield f"{central}/{name}/{digest}/{named if named not in ('', 'default') else name}"
    if named in ("", "default"):
        yield f"{project}/.venv"


def _pipenv(host: Host, _runner: Runner, env: Mapping[str, str], folder: str) -> Iterator[str]:
    if (active := _active(env)) and not env.get("PIPENV_IGNORE_VIRTUALENVS"):
        yield active
    pipfile = env.get("PIPENV_PIPFILE", "")
    if project := os.path.dirname(pipfile) or _nearest(host, folder, "Pipfile"):
        yield f"{project}/.venv"
        central, digest = env.get("WORKON_HOME") or f"{_data(env)}/virtualenvs", _digest(pipfile or f"{project}/Pipfile", length=6)
        own = env.get("PIPENV_CUSTOM_VENV_NAME", "")
        fitting = [name for name in _names(host, central) if name == own or (not own and f"-{digest}-" in f"{name}-")]
        yield from _only(central, fitting)


def _pyenv(host: Host, _runner: Runner, env: Mapping[str, str], folder: str) -> Iterator[str]:
    root = env.get("PYENV_ROOT") or f"{env.get('HOME', '')}/.pyenv"
    yield from (f"{root}/versions/{version}" for version in shims.versions(host, root, env, folder))


_FIND: dict[str, _Find] = {
    **dict.fromkeys(CONDA, _conda), "pixi": _pixi, "uv": _uv, "poetry": _poetry, "pdm": _pdm, "hatch": _hatch, "pipenv": _pipenv,
    "pyenv": _pyenv,
}  # fmt: skip


def _active(env: Mapping[str, str]) -> str:
    """The environment of this shell; conda's base, which is always there, is none of a project."""
    conda = env.get("CONDA_PREFIX", "") if env.get("CONDA_DEFAULT_ENV") not in ("base", "root") else ""
    return env.get("VIRTUAL_ENV") or conda


def _data(env: Mapping[str, str]) -> str:
    return env.get("XDG_DATA_HOME") or f"{env.get('HOME', '')}/.local/share"


def _names(host: Host, folder: str) -> tuple[str, ...]:
    return (host.names(folder) or ())[:MAX_ENVIRONMENTS]


def _only(folder: str, names: list[str]) -> Iterator[str]:
    """One alone: several for one project are of several versions of Python, and which it is, is not said."""
    if len(names) == 1:
        yield f"{folder}/{names[0]}"


def _digest(path: str, *, algorithm: str = "sha256", length: int | None = None) -> str:
    """The eight characters by which these runners know a project."""
    import base64  # noqa: PLC0415 - these two with such a runner only
    import hashlib  # noqa: PLC0415

    digest = hashlib.new(algorithm, os.fsencode(path), usedforsecurity=False).digest()[:length]
    return base64.urlsafe_b64encode(digest).decode()[:8]


def _nearest(host: Host, folder: str, *names: str) -> str:
    """The nearest folder from here upwards that holds one of these; "" when none does."""
    return next((parent for parent in shims.upwards(folder) if any(host.exists(f"{parent}/{name}") for name in names)), "")
