"""Which file of those that are linted together an import names, and what in it."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable

from sysperf.script.syntax import Tree

Ref = tuple[str, str]
"""A file, by its path as it was given, and a dotted name in it: ``("pkg/data.py", "Data.loader")``; an empty name is the module."""
MAX_ABOVE = 12
"""Folders above a file in which a module is looked for."""


class Modules:
    """The files of one call, by where they lie."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._paths = {os.path.abspath(path): path for path in paths if path.endswith(".py")}

    @property
    def several(self) -> bool:
        """Whether there is another file than one."""
        return len(self._paths) > 1

    def imports(self, tree: Tree, path: str) -> tuple[dict[str, Ref], tuple[str, ...]]:
        """What names of a file were imported from another one, and the files of which it imports everything."""
        names: dict[str, Ref] = {}
        stars: list[str] = []
        if not self.several:
            return names, ()
        for statement in tree.of(ast.Import):
            for alias in statement.names:
                if (file := self.find(alias.name, 0, path)) is not None:
                    names[alias.asname or alias.name] = (file, "")
        for source in tree.of(ast.ImportFrom):
            file = self.find(source.module or "", source.level, path)
            for alias in source.names:
                if alias.name == "*":
                    stars += [file] if file is not None else []
                elif (ref := self._named(source, alias.name, file, path)) is not None:
                    names[alias.asname or alias.name] = ref
        return names, tuple(stars)

    def _named(self, source: ast.ImportFrom, name: str, file: str | None, path: str) -> Ref | None:
        """A module of a package, or a name of a module."""
        if file is None or os.path.basename(file) == "__init__.py":
            module = self.find(f"{source.module}.{name}" if source.module else name, source.level, path)
            if module is not None:
                return module, ""
        return (file, name) if file is not None else None

    def find(self, module: str, level: int, path: str) -> str | None:
        """The file that a module's name means in another file."""
        folder = os.path.dirname(os.path.abspath(path))
        parts = module.split(".") if module else []
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            return self._at(folder, parts)
        if not parts or parts[0] in sys.stdlib_module_names:
            return None
        beside = self._at(folder, parts) if parts[0] != "torch" else None
        in_package = os.path.join(folder, "__init__.py") in self._paths
        found = None if in_package else beside
        for _ in range(MAX_ABOVE):
            if found is not None or folder == os.path.dirname(folder):
                break
            folder = os.path.dirname(folder)
            found = self._at(folder, parts) or self._at(os.path.join(folder, "src"), parts)
        return found or beside

    def _at(self, folder: str, parts: list[str]) -> str | None:
        place = os.path.join(folder, *parts)
        file = self._paths.get(f"{place}.py") if parts else None
        return file or self._paths.get(os.path.join(place, "__init__.py"))


def referred(imports: dict[str, Ref], name: str) -> Ref | None:
    """What a dotted name of a file means in another one, by the longest part of it that was imported."""
    parts = name.split(".")
    if len(parts) == 1:
        return imports.get(name)
    for number in range(len(parts), 0, -1):
        if (found := imports.get(".".join(parts[:number]))) is not None:
            return found[0], ".".join(filter(None, (found[1], *parts[number:])))
    return None
