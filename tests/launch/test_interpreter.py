"""Which torch a command will import, read from files."""

from __future__ import annotations

import re

import pytest

from sysperf.launch.command import parse
from sysperf.launch.interpreter import ProgramFile, find
from tests.conftest import Files, MakeMachine

SITE = "/v/lib/python3.11/site-packages"
TORCH: Files = {
    "/v/bin/python": "",
    "/v/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = false\n",
    f"{SITE}/torch/version.py": "__version__ = '2.13.0+cpu'\ndebug = False\ncuda: Optional[str] = None\nhip: Optional[str] = None\n",
    f"{SITE}/torch/lib/libgomp.so.1": "",
    f"{SITE}/torch/lib/libtorch_cpu.so": "",
}


def look(host_files: Files, machine: MakeMachine, command: str, cwd: str = "/work", **env: str) -> ProgramFile:
    heads = {f"head:{path}": text for path, text in host_files.items() if isinstance(text, str) and text.startswith("#!")}
    return find(machine(host_files, calls=dict(heads)), parse(command.split()), {"PATH": "/v/bin:/bin", **env}, cwd)


@pytest.mark.parametrize(
    "command", ["python x.py", "/v/bin/python x.py", "env A=1 python -m pkg", "../v/bin/python x.py", "conda run -p /v python x.py"]
)
def test_the_torch_of_an_environment(machine: MakeMachine, command: str) -> None:
    """Version, whether it is built for GPUs, and its OpenMP runtime."""
    torch = look(TORCH, machine, command).torch

    assert torch is not None
    assert (torch.version, torch.gpu, torch.openmp, torch.lib_folder) == ("2.13.0+cpu", False, "libgomp", "/v/lib")


def test_a_build_for_gpus(machine: MakeMachine) -> None:
    """CUDA, ROCm or XPU."""
    program = look(
        {**TORCH, f"{SITE}/torch/version.py": "__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\n"}, machine, "python x.py"
    )

    assert program.torch is not None
    assert program.torch.gpu is True


def test_a_script_with_a_first_line(machine: MakeMachine) -> None:
    """`vllm serve` and its like are Python programs: their first line names the interpreter."""
    for first in ("#!/v/bin/python\n", "#!/usr/bin/env python\n", "#!/usr/bin/env -S python -u\n"):
        program = look({**TORCH, "/bin/vllm": first}, machine, "vllm serve")
        assert program.torch is not None, first
    assert not look({**TORCH, "/bin/vllm": "#!/bin/sh\n"}, machine, "vllm serve").is_python


@pytest.mark.parametrize(
    "second",
    [
        """'''exec' /v/bin/python "$0" "$@"\n' '''""",
        """'''exec' "/v/bin/python" "$0" "$@" #'''""",
        """'''exec' "$(dirname -- "$(realpath -- "$0")")"/'python' "$0" "$@"\n' '''""",
    ],
)
def test_a_python_script_that_begins_as_a_shell_script(machine: MakeMachine, second: str) -> None:
    """So pip, conda and uv write one whose interpreter has a long path, or lies beside it."""
    program = look({**TORCH, "/v/bin/vllm": f"#!/bin/sh\n{second}\nimport sys\n"}, machine, "vllm serve")

    assert (program.interpreter, program.torch is not None) == ("/v/bin/python", True)


def test_a_shell_script_starts_the_python_of_its_environment(machine: MakeMachine) -> None:
    """Most likely: `bash train.sh` with an active environment that has torch."""
    program = look({**TORCH, "/bin/bash": ""}, machine, "bash train.sh")

    assert program.torch is not None
    assert not program.is_python


def test_no_torch_is_known_only_where_we_could_look(machine: MakeMachine) -> None:
    """An environment without torch has none; an interpreter that is not there says nothing."""
    bare = {path: text for path, text in TORCH.items() if "torch" not in path}

    assert look({**bare, f"{SITE}/pip/x": ""}, machine, "python x.py").torch_known
    assert not look({}, machine, "python x.py").torch_known


def test_environments_by_name(machine: MakeMachine) -> None:
    """`conda run -n NAME` looks below the base environment; `uv run` in the project's .venv."""
    conda = {path.replace("/v/", "/opt/conda/envs/fast/"): text for path, text in TORCH.items()}
    project = {path.replace("/v/", "/work/.venv/"): text for path, text in TORCH.items()}

    assert look(conda, machine, "conda run -n fast python x.py", CONDA_EXE="/opt/conda/bin/conda").torch is not None
    assert look(project, machine, "uv run python x.py").torch is not None


def test_torch_on_the_python_path(machine: MakeMachine) -> None:
    """PYTHONPATH comes first."""
    extra = {"/src/torch/version.py": "__version__ = '2.14.0a0'\n"}
    program = look({**TORCH, **extra}, machine, "python x.py", PYTHONPATH="/src")

    assert program.torch is not None
    assert program.torch.version == "2.14.0a0"


@pytest.mark.parametrize("text", ["", "\0" * 1000, "__version__ = " + "'" * 5000, "cuda = '" + "9" * 200 + "'"])
def test_strange_version_files(machine: MakeMachine, text: str) -> None:
    """A torch whose file says nothing is a torch of unknown version."""
    program = look({**TORCH, f"{SITE}/torch/version.py": text}, machine, "python x.py")

    assert program.torch is not None
    assert program.torch.version == ""


def moved(prefix: str) -> Files:
    """The environment somewhere else."""
    return {f"{prefix}{path.removeprefix('/v')}": text for path, text in TORCH.items()}


TOML: Files = {"/srv/my.proj/pyproject.toml": "[project]\nname = 'my-proj'\n"}
DATA, CACHE = "/home/u/.local/share", "/home/u/.cache"


@pytest.mark.parametrize(
    ("command", "prefix", "files", "env"),
    [
        ("uv run train.py", "/srv/my.proj/.venv", TOML, {}),
        ("uv run -m train", "/srv/my.proj/.venv", TOML, {}),
        ("uv run python train.py", "/srv/my.proj/.venv", TOML, {"VIRTUAL_ENV": "/v"}),
        ("uv run --active python train.py", "/opt/env", {**TOML, **moved("/srv/my.proj/.venv")}, {"VIRTUAL_ENV": "/opt/env"}),
        ("uv run --no-project python train.py", "/opt/env", {**TOML, **moved("/srv/my.proj/.venv")}, {"VIRTUAL_ENV": "/opt/env"}),
        ("uv run --extra cu130 --with rich python train.py", "/srv/my.proj/.venv", TOML, {}),
        ("uv run python train.py", "/opt/env", TOML, {"UV_PROJECT_ENVIRONMENT": "/opt/env"}),
        ("uv run python train.py", "/srv/my.proj/envs/x", TOML, {"UV_PROJECT_ENVIRONMENT": "envs/x"}),
        ("uv run python train.py", "/srv/.venv", {**TOML, "/srv/pyproject.toml": "[tool.uv.workspace]\nmembers = ['*']\n"}, {}),
        ("uv run --project ../other python train.py", "/srv/other/.venv", {**TOML, "/srv/other/pyproject.toml": "[project]\n"}, {}),
        ("uv run python train.py", "/srv/.venv", {}, {}),
        ("poetry run python train.py", "/srv/my.proj/.venv", TOML, {}),
        ("poetry run python train.py", "/opt/env", {**TOML, **moved("/srv/my.proj/.venv")}, {"VIRTUAL_ENV": "/opt/env"}),
        ("poetry run python train.py", "/srv/my.proj/.venv", TOML, {"CONDA_PREFIX": "/v", "CONDA_DEFAULT_ENV": "base"}),
        ("pixi run python train.py", "/srv/my.proj/.pixi/envs/default", {}, {}),
        ("pixi run -e cuda python train.py", "/srv/my.proj/.pixi/envs/cuda", {}, {}),
        ("pixi run --manifest-path ../other/pixi.toml python train.py", "/srv/other/.pixi/envs/default", {}, {}),
        ("pdm run python train.py", "/opt/pdm", {**TOML, "/srv/my.proj/.pdm-python": "/opt/pdm/bin/python\n"}, {"VIRTUAL_ENV": "/v"}),
        ("pdm run python train.py", "/srv/my.proj/venv", TOML, {}),
        ("pipenv run python train.py", "/srv/my.proj/.venv", {"/srv/my.proj/Pipfile": ""}, {}),
        ("pyenv exec python train.py", "/home/u/.pyenv/versions/3.12.1", {"/srv/.python-version": "3.12\n"}, {}),
        ("conda run -n fast python x.py", "/data/envs/fast", {}, {"CONDA_ENVS_DIRS": "/x:/data/envs"}),
        ("mamba run -n fast python x.py", "/data/y/fast", {"/home/u/.conda/environments.txt": "/opt/conda\n/data/y/fast\n"}, {}),
    ],
)  # fmt: skip
def test_environments_of_projects(machine: MakeMachine, command: str, prefix: str, files: Files, env: dict[str, str]) -> None:
    """Each runner keeps them in places of its own, and prefers its own or the active one."""
    program = look({**files, **moved(prefix)}, machine, command, "/srv/my.proj", HOME="/home/u", **env)

    assert program.interpreter == f"{prefix}/bin/python"
    assert program.torch is not None


@pytest.mark.parametrize(
    ("command", "project", "prefix", "env"),
    [
        # what the runners themselves made of these folders (poetry 2.5.1, pipenv 2026.10, pdm 2.29, hatch 1.18)
        ("poetry run python x.py", "/tmp/iv/a/poetry/My_Proj.x", f"{CACHE}/pypoetry/virtualenvs/my-proj-doTPf3u9-py3.11", {}),
        ("poetry run python x.py", "/tmp/iv/b/poetry/My_Proj.x", "/envs/my-proj-rTuSbNuN-py3.11", {"POETRY_VIRTUALENVS_PATH": "/envs"}),
        ("pipenv run python x.py", "/tmp/iv/a/pipenv/My_Proj.x", f"{DATA}/virtualenvs/My_Proj.x-7xHynQ4c", {}),
        ("pipenv run python x.py", "/tmp/iv/b/pipenv/My_Proj.x", "/envs/My_Proj.x-lGUV6p_T", {"WORKON_HOME": "/envs"}),
        ("pdm run python x.py", "/tmp/iv/a/pdm/My_Proj.x", f"{DATA}/pdm/venvs/My_Proj.x-WksIv4N4-3.11", {}),
        ("pdm run --venv gpu python x.py", "/tmp/iv/a/pdm/My_Proj.x", f"{DATA}/pdm/venvs/My_Proj.x-WksIv4N4-gpu", {}),
        ("hatch run python x.py", "/tmp/iv/a/hatch/My_Proj.x", f"{DATA}/hatch/env/virtual/my-proj/UGvqvaZv/my-proj", {"VIRTUAL_ENV": "/v"}),
        ("hatch run gpu:python x.py", "/tmp/iv/b/hatch/My_Proj.x", "/data/env/virtual/my-proj/8IwqD7tI/gpu", {"HATCH_DATA_DIR": "/data"}),
        ("hatch -e gpu run python x.py", "/tmp/iv/b/hatch/My_Proj.x", f"{DATA}/hatch/env/virtual/my-proj/8IwqD7tI/gpu", {}),
        ("hatch env run -e gpu -- python x.py", "/tmp/iv/b/hatch/My_Proj.x", f"{DATA}/hatch/env/virtual/my-proj/8IwqD7tI/gpu", {}),
        ("hatch run python x.py", "/tmp/iv/b/hatch/My_Proj.x", f"{DATA}/hatch/env/virtual/my-proj/8IwqD7tI/gpu", {"HATCH_ENV": "gpu"}),
    ],
)  # fmt: skip
def test_environments_that_lie_elsewhere(machine: MakeMachine, command: str, project: str, prefix: str, env: dict[str, str]) -> None:
    """By the digest of the project's path, not by a name: two clones have the same, and it is rarely the folder's."""
    clone = re.sub("doTPf3u9|rTuSbNuN|7xHynQ4c|lGUV6p_T|WksIv4N4|UGvqvaZv|8IwqD7tI", "Ab3dEf6h", prefix)
    files = {**moved(prefix), f"{clone}/bin/python": "", f"{project}/pyproject.toml": "", f"{project}/Pipfile": ""}
    program = look(files, machine, command, f"{project}/sub", HOME="/home/u", **env)

    assert program.interpreter == f"{prefix}/bin/python"
    assert program.torch is not None


@pytest.mark.parametrize(
    "command",
    [
        "uv run --isolated python x.py",
        "uv run script.py",
        "hatch run +py=3.12 python x.py",
        "hatch -p other run python x.py",
        "poetry run x",
    ],
)
def test_an_environment_that_cannot_be_told_is_unknown(machine: MakeMachine, command: str) -> None:
    """Made for this run, asked for by the script, chosen from a matrix, or one of several for the same project."""
    files: Files = {
        **moved("/work/.venv"), "/work/script.py": "# /// script\n# dependencies = ['torch']\n# ///\n", "/work/pyproject.toml": "",
    }  # fmt: skip
    if command == "poetry run x":
        both = "/home/u/.cache/pypoetry/virtualenvs/work-DJpFP61h-py3."
        files = {**moved(f"{both}11"), **moved(f"{both}12"), "/work/pyproject.toml": ""}

    assert look(files, machine, command, HOME="/home/u") == ProgramFile()


def test_what_is_laid_over_an_environment_may_bring_torch(machine: MakeMachine) -> None:
    """`uv run --with torch`: that the project's environment has none says nothing."""
    files: Files = {
        "/work/.venv/bin/python": "",
        "/work/.venv/pyvenv.cfg": "home = /usr/bin\n",
        "/work/.venv/lib/python3.11/site-packages/a": "",
    }

    assert not look(files, machine, "uv run --with torch python x.py").torch_known
    assert look(files, machine, "uv run python x.py").torch_known


PYENV = "/home/u/.pyenv"
SHIM: Files = {
    **moved(f"{PYENV}/versions/3.12.10"),
    f"{PYENV}/versions/3.12.9/bin/python": "",
    f"{PYENV}/shims/python": "#!/usr/bin/env bash\n",
}


@pytest.mark.parametrize(
    ("files", "env", "interpreter"),
    [
        ({f"{PYENV}/version": "3.12.10\n"}, {}, "versions/3.12.10/bin/python"),
        ({f"{PYENV}/version": "3.12.9\n", "/work/.python-version": "3.12\n"}, {}, "versions/3.12.10/bin/python"),
        ({f"{PYENV}/version": "3.12.10\n", "/.python-version": "3.12.9\n"}, {}, "versions/3.12.9/bin/python"),
        ({"/work/.python-version": "3.12.9\n"}, {"PYENV_VERSION": "3.12.10"}, "versions/3.12.10/bin/python"),
        ({f"{PYENV}/version": "system\n"}, {}, "shims/python"),
        ({f"{PYENV}/version": "../../etc\n"}, {}, "shims/python"),
        ({}, {"PYENV_VERSION": "python-3.12"}, "versions/3.12.10/bin/python"),
        ({"/else/.python-version": "3.12.9 # old\n"}, {"PYENV_DIR": "/else"}, "versions/3.12.9/bin/python"),
        ({f"{PYENV}/versions/3.12.9/envs/gpu/bin/python": ""}, {"PYENV_VERSION": "3.12.9/envs/gpu"}, "versions/3.12.9/envs/gpu/bin/python"),
        ({f"{PYENV}/version": "3.13.1\n"}, {}, "shims/python"),
    ],
)
def test_the_interpreter_behind_a_shim(machine: MakeMachine, files: Files, env: dict[str, str], interpreter: str) -> None:
    """By the shell's choice, the folder's or one above it, the user's; what is not installed stays a shim."""
    program = look({**SHIM, **files}, machine, "python train.py", **{"PATH": f"{PYENV}/shims", **env})

    assert program.interpreter == f"{PYENV}/{interpreter}"
    assert (program.torch is not None) == ("3.12.10" in interpreter)


@pytest.mark.parametrize("files", [{f"{PYENV}/version": "system\n"}, {}])
def test_the_systems_python_behind_a_shim(machine: MakeMachine, files: Files) -> None:
    """`system`, or no choice at all, is the next one on PATH."""
    bare = {path: text for path, text in SHIM.items() if "/version" not in path}
    program = look({**bare, **files, **moved("/opt/py")}, machine, "python train.py", PATH=f"{PYENV}/shims:/none:/opt/py/bin")

    assert program.interpreter == "/opt/py/bin/python"
    assert program.torch is not None
