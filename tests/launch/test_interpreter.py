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
