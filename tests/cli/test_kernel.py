"""`sysperf kernel`: Jupyter kernels that are started through wrap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.invoking import sysperf


def kernel(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return sysperf("kernel", *arguments, env={**os.environ, **env})


def installed(path: Path, name: str) -> dict[str, object]:
    spec: dict[str, object] = json.loads((path / f"share/jupyter/kernels/{name}/kernel.json").read_text())
    return spec


def test_install_and_remove(tmp_path: Path) -> None:
    """A specification whose command begins with wrap; removing takes away what was installed."""
    done = kernel("install", "fast", "--prefix", str(tmp_path), "--python", sys.executable, "--wrap-options=--threads 2")
    argv = installed(tmp_path, "fast")["argv"]

    assert done.returncode == 0
    assert isinstance(argv, list)
    assert argv[argv.index("wrap") :] == [
        "wrap",
        "--threads",
        "2",
        "--",
        sys.executable,
        "-m",
        "ipykernel_launcher",
        "-f",
        "{connection_file}",
    ]
    assert "no ipykernel" in done.stderr
    assert kernel("remove", "fast", "--prefix", str(tmp_path)).returncode == 0
    assert not list((tmp_path / "share/jupyter/kernels").iterdir())


def test_the_command_of_the_kernel_works(tmp_path: Path) -> None:
    """What Jupyter would start starts."""
    kernel("install", "fast", "--prefix", str(tmp_path), "--python", sys.executable)
    argv = [str(word) for word in installed(tmp_path, "fast")["argv"]]  # type: ignore[attr-defined]  # a list, see above
    ends = argv.index("--")

    done = subprocess.run(
        [*argv[: ends + 1], sys.executable, "-c", "print('kernel')"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "kernel\n"


def test_modules_beside_the_notebook_are_not_sysperf_s(tmp_path: Path) -> None:
    """Jupyter starts a kernel in the notebook's folder. Where no `sysperf` script is installed, a module there is still none of ours."""
    python, notebooks = tmp_path / "bin/python3", tmp_path / "notebooks"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    notebooks.mkdir()
    (notebooks / "msgspec.py").write_text("raise SystemExit('a module of the notebook')")
    env = {**os.environ, "PATH": str(notebooks), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [str(python), "-m", "sysperf", "kernel", "install", "fast", "--prefix", str(tmp_path), "--python", sys.executable]
    subprocess.run(command, env=env, timeout=300, check=True)
    argv = [str(word) for word in installed(tmp_path, "fast")["argv"]]  # type: ignore[attr-defined]  # a list, see above

    done = subprocess.run(
        [*argv[: argv.index("--") + 1], sys.executable, "-I", "-c", "print('kernel')"],
        cwd=notebooks, env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout == "kernel\n", done.stderr


def test_wrapping_an_installed_kernel_once(tmp_path: Path) -> None:
    """--from keeps the specification; wrapping it again does not wrap twice."""
    source = tmp_path / "data/kernels/python3"
    source.mkdir(parents=True)
    spec = {
        "argv": ["/opt/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python 3",
        "env": {"A": "1"},
        "language": "python",
    }
    (source / "kernel.json").write_text(json.dumps(spec))
    data = {"JUPYTER_DATA_DIR": str(tmp_path / "data")}

    assert kernel("install", "fast", "--from", "python3", **data).returncode == 0
    assert kernel("install", "faster", "--from", "fast", **data).returncode == 0
    first, second = (json.loads((tmp_path / f"data/kernels/{name}/kernel.json").read_text()) for name in ("fast", "faster"))
    assert first["env"] == {"A": "1"}
    assert first["argv"] == second["argv"]
    assert first["argv"][-5:] == spec["argv"]


def test_other_kernels_are_left_alone(tmp_path: Path) -> None:
    """Neither overwritten nor removed; wrong names and specifications are said."""
    other = tmp_path / "share/jupyter/kernels/theirs"
    other.mkdir(parents=True)
    (other / "kernel.json").write_text('{"argv": ["x"]}')
    (other.parent / "broken").mkdir()
    (other.parent / "broken/kernel.json").write_text("[]")

    for arguments in (("install", "theirs"), ("remove", "theirs"), ("remove", "nothing"), ("install", "../x"), ("install", "broken")):
        done = kernel(*arguments, "--prefix", str(tmp_path), *(("--python", sys.executable) if arguments[0] == "install" else ()))
        assert done.returncode == 2, arguments
        assert "Traceback" not in done.stderr
    assert kernel("install", "x", "--python", "/nowhere").returncode == 2
    assert kernel("install", "x", "--from", "no-such-kernel", "--prefix", str(tmp_path)).returncode == 2
