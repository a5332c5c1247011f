"""Which torch a command will import, read from files."""

from __future__ import annotations

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


def look(host_files: Files, machine: MakeMachine, command: str, **env: str) -> ProgramFile:
    heads = {f"head:{path}": text for path, text in host_files.items() if isinstance(text, str) and text.startswith("#!")}
    return find(machine(host_files, calls=dict(heads)), parse(command.split()), {"PATH": "/v/bin:/bin", **env}, "/work")


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
    found = look(
        {**TORCH, f"{SITE}/torch/version.py": "__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\n"}, machine, "python x.py"
    )

    assert found.torch is not None
    assert found.torch.gpu is True


def test_a_script_with_a_first_line(machine: MakeMachine) -> None:
    """`vllm serve` and its like are Python programs: their first line names the interpreter."""
    for first in ("#!/v/bin/python\n", "#!/usr/bin/env python\n", "#!/usr/bin/env -S python -u\n"):
        found = look({**TORCH, "/bin/vllm": first}, machine, "vllm serve")
        assert found.torch is not None, first
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
    found = look({**TORCH, "/v/bin/vllm": f"#!/bin/sh\n{second}\nimport sys\n"}, machine, "vllm serve")

    assert (found.interpreter, found.torch is not None) == ("/v/bin/python", True)


def test_a_shell_script_starts_the_python_of_its_environment(machine: MakeMachine) -> None:
    """Most likely: `bash train.sh` with an active environment that has torch."""
    found = look({**TORCH, "/bin/bash": ""}, machine, "bash train.sh")

    assert found.torch is not None
    assert not found.is_python


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
    found = look({**TORCH, **extra}, machine, "python x.py", PYTHONPATH="/src")

    assert found.torch is not None
    assert found.torch.version == "2.14.0a0"


@pytest.mark.parametrize("text", ["", "\0" * 1000, "__version__ = " + "'" * 5000, "cuda = '" + "9" * 200 + "'"])
def test_strange_version_files(machine: MakeMachine, text: str) -> None:
    """A torch whose file says nothing is a torch of unknown version."""
    found = look({**TORCH, f"{SITE}/torch/version.py": text}, machine, "python x.py")

    assert found.torch is not None
    assert found.torch.version == ""


def moved(prefix: str) -> Files:
    """The environment somewhere else."""
    return {f"{prefix}{path.removeprefix('/v')}": text for path, text in TORCH.items()}


@pytest.mark.parametrize(
    ("command", "prefix", "files", "env"),
    [
        ("uv run train.py", "/work/.venv", {}, {}),
        ("uv run python train.py", "/work/.venv", {}, {"VIRTUAL_ENV": "/elsewhere"}),
        ("uv run python train.py", "/opt/env", {}, {"UV_PROJECT_ENVIRONMENT": "/opt/env"}),
        ("poetry run python train.py", "/work/.venv", {}, {}),
        ("poetry run python train.py", "/home/u/.cache/pypoetry/virtualenvs/work-Ab3-_x9Z-py3.11", {}, {}),
        ("pixi run python train.py", "/work/.pixi/envs/default", {}, {}),
        ("pixi run -e cuda python train.py", "/work/.pixi/envs/cuda", {}, {}),
        ("pdm run python train.py", "/opt/pdm", {"/work/.pdm-python": "/opt/pdm/bin/python\n"}, {}),
        ("hatch run python train.py", "/home/u/.local/share/hatch/env/virtual/work/Q1w2e3/work", {}, {}),
        ("pipenv run python train.py", "/home/u/.local/share/virtualenvs/work-Zx81kQpL", {}, {}),
        ("pipenv run python train.py", "/envs/work-Zx81kQpL", {}, {"WORKON_HOME": "/envs"}),
    ],
)
def test_environments_of_projects(machine: MakeMachine, command: str, prefix: str, files: Files, env: dict[str, str]) -> None:
    """Each runner keeps them in places of its own."""
    program = look({**moved(prefix), **files}, machine, command, HOME="/home/u", **env)

    assert program.torch is not None
    assert program.interpreter == f"{prefix}/bin/python"


def test_two_environments_of_one_name_decide_nothing(machine: MakeMachine) -> None:
    """Which of them it is depends on a hash of the project's path that only the runner makes."""
    folder = "/home/u/.cache/pypoetry/virtualenvs"
    both = {**moved(f"{folder}/work-a-py3.11"), **moved(f"{folder}/work-b-py3.12")}

    assert look(both, machine, "poetry run python train.py", HOME="/home/u").torch is None


def test_a_project_above(machine: MakeMachine) -> None:
    """Started in a folder of the project."""
    files: Files = {**moved("/.venv"), "/pyproject.toml": ""}

    assert look(files, machine, "uv run python train.py").interpreter == "/.venv/bin/python"


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
        ({f"{PYENV}/version": "3.13.1\n"}, {}, "shims/python"),
    ],
)
def test_the_interpreter_behind_a_shim(machine: MakeMachine, files: Files, env: dict[str, str], interpreter: str) -> None:
    """By the shell's choice, the folder's or one above it, the user's; what is not installed stays a shim."""
    program = look({**SHIM, **files}, machine, "python train.py", **{"PATH": f"{PYENV}/shims", **env})

    assert program.interpreter == f"{PYENV}/{interpreter}"
    assert (program.torch is not None) == ("3.12.10" in interpreter)
