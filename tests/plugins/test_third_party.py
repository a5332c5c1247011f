"""A third party's plugin: the package in docs/plugins.md, built as a wheel, installed into an environment of its own, and used."""

from __future__ import annotations

import json
import re
import site
import subprocess
import sys
from pathlib import Path

import pytest

from sysperf import plugin as registry

GUIDE = Path(__file__).parents[2] / "docs" / "plugins.md"


def run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command and return what it printed."""
    return subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter of a fresh environment that has sysperf, its dependencies, and the plugin of the guide from a wheel."""
    folder = tmp_path_factory.mktemp("third-party")
    package = folder / "package"
    package.mkdir()
    files: list[tuple[str, str]] = re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["pyproject.toml", "sysperf_wchan.py"]
    for name, text in files:
        (package / name).write_text(text)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    built = run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, package)
    assert built.returncode == 0, built.stderr
    environment = folder / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    interpreter = environment / "bin" / "python"
    (wheel,) = folder.glob("sysperf_wchan-*.whl")
    installed = run(*pip, "--python", interpreter, "install", "--no-deps", wheel)
    assert installed.returncode == 0, installed.stderr
    (packages,) = (environment / "lib").glob("python*/site-packages")
    ours = [path for path in site.getsitepackages() if Path(path).is_dir()]
    (packages / "sysperf-and-its-dependencies.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in ours))
    return interpreter


def test_it_is_listed_with_its_package(python: Path) -> None:
    """Beside our own, whose defaults stay what they are."""
    listed = json.loads(run(python, "-m", "sysperf", "plugins", "--json").stdout)

    assert {
        "kind": "stacks",
        "name": "wchan",
        "module": "sysperf_wchan",
        "distribution": "sysperf-wchan",
        "version": "1.0",
        "default": False,
    } in [{key: value for key, value in plugin.items() if key != "problem"} for plugin in listed]
    assert [plugin["name"] for plugin in listed if plugin["default"]] == [kind.default for kind in registry.KINDS]


def test_it_is_used_by_its_name(python: Path) -> None:
    """A real process that sleeps: `stacks --with` shows where it waits in the kernel, now and over a second."""
    with subprocess.Popen(("sleep", "60")) as sleeper:
        try:
            now = run(python, "-m", "sysperf", "stacks", str(sleeper.pid), "--with", "wchan")
            second = run(python, "-m", "sysperf", "stacks", str(sleeper.pid), "--with", "wchan", "--seconds", "1", "--json")
        finally:
            sleeper.kill()

    assert now.returncode == 0, now.stderr
    assert f"Process {sleeper.pid}: 1" in now.stdout
    assert "sleep" in now.stdout
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["pid"] == sleeper.pid


def test_it_is_unknown_without_its_package() -> None:
    """The error names what is installed, and goes to stderr with the exit code of a usage error."""
    refused = run(sys.executable, "-m", "sysperf", "stacks", "1", "--with", "wchan")

    assert refused.returncode == 2
    assert "no stacks plugin `wchan`" in refused.stderr
    assert "pyspy" in refused.stderr


def test_check_says_which_plugin_cannot_be_used(python: Path) -> None:
    """A plugin that breaks at import fails the check, and only the check."""
    (packages,) = (python.parent.parent / "lib").glob("python*/site-packages")
    module = packages / "sysperf_wchan.py"
    source = module.read_text()
    module.write_text("import nothing_of_this_name\n")
    try:
        assert run(python, "-m", "sysperf", "plugins").returncode == 0
        checked = run(python, "-m", "sysperf", "plugins", "--check")
    finally:
        module.write_text(source)

    assert checked.returncode == 1
    assert "nothing_of_this_name" in checked.stdout
