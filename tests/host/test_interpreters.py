"""What a user may call an interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from sysperf.host.interpreters import place, program


def executable(path: Path) -> Path:
    """A program that does nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_bare_name_is_what_the_shell_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first folder of PATH that has it as a program; what lies in the current folder comes before."""
    (tmp_path / "first/pythonX").mkdir(parents=True)
    found = executable(tmp_path / "second/pythonX")
    monkeypatch.setenv("PATH", f"{tmp_path}/first:{tmp_path}/second")
    monkeypatch.chdir(tmp_path)

    assert place("pythonX") == program("pythonX") == str(found)
    assert place("./pythonX") == str(tmp_path / "pythonX")
    assert place("no-such-python") == str(tmp_path / "no-such-python")

    here = executable(tmp_path / "pythonX")
    assert place("pythonX") == str(here)


def test_an_environment_is_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also below the home."""
    executable(tmp_path / "env/bin/python")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert place("~/env") == str(tmp_path / "env")
    assert program("~/env") == str(tmp_path / "env/bin/python")
