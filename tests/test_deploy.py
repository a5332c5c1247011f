"""The image files: what they copy is there and is all that a wheel needs, and nothing runs as root."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomli

ROOT = Path(__file__).resolve().parent.parent
FILES = [ROOT / "deploy/Containerfile", ROOT / "deploy/kubernetes/npd/Containerfile"]


def instructions(path: Path, name: str) -> list[str]:
    """What follows such a word, lines that go on joined."""
    return re.findall(rf"^{name} (.*)", path.read_text().replace("\\\n", " "), re.MULTILINE)


def test_it_copies_what_a_wheel_is_built_of() -> None:
    """A folder that is forgotten is missing in the image only."""
    copied = {word for line in instructions(FILES[0], "COPY") if "--from" not in line for word in line.split()[:-1]}
    project = tomli.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    packages = {package.partition("/")[0] for package in wheel["packages"]}
    needed = {*packages, *wheel["force-include"], *wheel["shared-data"], *project["project"]["license-files"], project["project"]["readme"]}

    assert copied == needed | {"pyproject.toml"}
    assert all((ROOT / each).exists() for each in copied)


def test_nobody_is_root() -> None:
    """By number, so that Kubernetes can check it; the other image inherits it."""
    assert instructions(FILES[0], "USER") == ["65532:65532"]
    assert instructions(FILES[1], "USER") == []


def test_versions_are_this_ones() -> None:
    """Of the image that is built upon, and of those that Kubernetes starts."""
    version = re.findall(r'^__version__ = "(.*)"', (ROOT / "sysperf/__init__.py").read_text(), re.MULTILINE)
    named = re.findall(r"localhost/sysperf:(.*)", FILES[1].read_text())
    tags = [
        re.findall(r'newTag: "(.*)"', (ROOT / f"deploy/kubernetes/{name}/kustomization.yaml").read_text()) for name in ("record", "npd")
    ]

    assert [named, *tags] == [version] * 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_images_that_are_built_upon_can_be_chosen(path: Path) -> None:
    """Each by an argument with a default that has a version: `latest` is another one tomorrow."""
    bases = dict(line.split("=", 1) for line in instructions(path, "ARG"))

    assert bases
    assert all(re.fullmatch(r"[a-z0-9.-]+(?:/[a-z0-9-]+)+:v?[0-9][a-z0-9.-]*", base) for base in bases.values())
    assert {line.split()[0] for line in instructions(path, "FROM")} == {f"${{{name}}}" for name in bases}
