"""One parser a format: whoever reads one of these files, wherever it is, reads it with the parser of procfs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PARSERS = {
    # the end of a path: the module of procfs that reads what is there
    "/proc/stat": "cpu_ticks",
    "/proc/vmstat": "vmstat",
    "/proc/diskstats": "diskstats",
    "/proc/net/dev": "net_dev",
    "/children": "children",
}
MODULES = sorted(path for folder in ("sysperf", "plugins") for path in (ROOT / folder).rglob("*.py") if path.parent.name != "procfs")


def named(tree: ast.AST) -> Iterator[str]:
    """The texts of a module that may be paths; what documents a fact, a module or a function reads no file."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fact":
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        yield from named(node)


def imported(tree: ast.AST) -> set[str]:
    """The modules of procfs that a module imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sysperf.procfs"):
            found |= {alias.name for alias in node.names} | {node.module.rpartition(".")[2]}
    return found


def unparsed(source: str) -> set[str]:
    """The files that a module names without the parser that reads them."""
    if not any(path in source for path in PARSERS):
        return set()
    tree = ast.parse(source)
    parsers = imported(tree)
    return {path for text in named(tree) for path, parser in PARSERS.items() if text.endswith(path) and parser not in parsers}


def test_who_names_a_file_imports_its_parser() -> None:
    """There were five readers of /proc/stat, three of /proc/vmstat and six of children."""
    found = {str(path.relative_to(ROOT)): unparsed(path.read_text(encoding="utf-8")) for path in MODULES}

    assert {path: files for path, files in found.items() if files} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("ticks = open('/proc/stat').read().split()", {"/proc/stat"}),
        ("text = read(f'/proc/{pid}/task/{pid}/children')", {"/children"}),
        ("from sysperf.procfs import vmstat\nvmstat.counts(read('/proc/vmstat'), ())", set()),
        ('"""Reads /proc/stat"""\nidle: Annotated[float, fact("idle CPUs", "/proc/stat")]', set()),
    ],
)
def test_what_the_check_sees(source: str, found: set[str]) -> None:
    """A path in a call counts, with names in it too; what only documents does not."""
    assert unparsed(source) == found
