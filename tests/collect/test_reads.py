"""The header of each collector says what it reads: held against what recorded runs read."""

from __future__ import annotations

import ast
import fnmatch
import importlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sysperf.collect import AREAS, collect_area
from sysperf.host import Answers, Host
from sysperf.host.opening import open_tree
from tests.collect.machines import every_machine
from tests.conftest import fixture_folder

IN_WORDS = {
    # area: paths that its header tells in words
    "cgroup": ("*/cpu.*", "*/memory.*", "*/pids.*"),
    "container": ("/run/*", "/dev*", "/proc/1/*", "/etc/*", "/sys/fs/cgroup*"),
    "python": ("/*",),  # looks for environments where users keep them
    "torch": ("/*",),  # and for PyTorch in each
    "process": ("/*/torch/*", "/*/nvidia/*", "/*.so*", "*/bin/*"),
}


def expanded(pattern: str) -> Iterator[str]:
    """``/sys/{a,b}/c`` is ``/sys/a/c`` and ``/sys/b/c``, from the inside out; an empty choice is nothing."""
    choices = re.search(r"\{([^{}]*)\}", pattern)
    if not choices:
        yield pattern
        return
    for choice in choices[1].split(","):
        yield from expanded(pattern[: choices.start()] + choice + pattern[choices.end() :])


def patterns_of(docstring: str) -> Iterator[str]:
    """The paths of the paragraph that begins with ``Reads``."""
    lines = docstring.splitlines()
    start = next((index for index, line in enumerate(lines) if line.startswith("Reads")), None)
    if start is None:
        return
    text = lines[start].removeprefix("Reads")
    for line in lines[start + 1 :]:
        if not line.startswith("   "):
            break
        text += " " + line
    for word in re.findall(r"[/*<M][^\s;()]*", text):
        for pattern in expanded(word.rstrip(",.:;")):
            yield re.sub(r"\[[a-z]+\]|<[a-z]+>|MOUNT|GROUP|PREFIX|…", "*", pattern)


@cache
def reach(module: str) -> frozenset[str]:
    """The collectors and readers that a module imports, itself among them."""
    seen, todo = set(), [module]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sysperf.collect"):
                inside = [f"{node.module}.{alias.name}" for alias in node.names]
                todo += [node.module or "", *(child for child in inside if _is_module(child))]
    return frozenset(seen - {"sysperf.collect"})


def _is_module(name: str) -> bool:
    parent = importlib.import_module(name.rpartition(".")[0])
    return hasattr(parent, "__path__") and importlib.util.find_spec(name) is not None


@cache
def declared(area: str) -> re.Pattern[str]:
    """What the headers of a collector and of what it uses allow."""
    patterns = {
        pattern for module in reach(f"sysperf.collect.{area}") for pattern in patterns_of(importlib.import_module(module).__doc__ or "")
    }
    return re.compile("|".join(fnmatch.translate(pattern.rstrip("/")) for pattern in (*patterns, *IN_WORDS.get(area, ()))))


def undeclared(host: Host, area: str) -> list[str]:
    """The files whose content an area read and that its header does not tell. Folders that it lists on the way are no content."""
    collect_area(host, area)
    answers = host.answers
    assert answers is not None
    read = [key for key in answers.answers if key.startswith("/")]
    return sorted(path for path in read if not declared(area).fullmatch(path))


@pytest.mark.parametrize("area", AREAS)
def test_a_collector_reads_what_its_header_says_on_this_machine(area: str) -> None:
    """A recorded run of the live machine, where most files are."""
    assert undeclared(Host(record=True), area) == []


@pytest.mark.parametrize(("kind", "name"), every_machine())
def test_collectors_read_what_their_headers_say_on_captured_machines(kind: str, name: str) -> None:
    """Older kernels, other architectures, GPUs."""
    (archive,) = fixture_folder(kind).glob(f"{name}.tar.*")
    tree = open_tree(str(archive))
    undeclared_reads = {area: undeclared(Host("/captured", tree=tree, answers=Answers(), record=True), area) for area in AREAS}

    assert {area: paths[:5] for area, paths in undeclared_reads.items() if paths} == {}


def test_every_collector_has_a_header() -> None:
    """With the files that it reads, or whose reader does."""
    assert [area for area in AREAS if not list(patterns_of(importlib.import_module(f"sysperf.collect.{area}").__doc__ or ""))] == []
