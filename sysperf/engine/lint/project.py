"""What a project says about lint: ``[tool.sysperf.lint]`` of the nearest pyproject.toml that has it, from the working folder upwards."""

from __future__ import annotations

import os
from typing import Annotated

from sysperf.model.errors import ConfigError
from sysperf.model.record import Record, convert, fact
from sysperf.model.rule import CONFIDENCES, SEVERITIES, Confidence, FailOn
from sysperf.script.source import Unreadable, read_bytes

FILE = "pyproject.toml"
KEYS = f"select, ignore, exclude, per-file-ignores, confidence ({', '.join(CONFIDENCES)}) and fail-on ({', '.join(SEVERITIES)}, never)"


class Project(Record, kw_only=True, rename="kebab"):
    """The table's keys, as the options of the same names."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: Annotated[tuple[str, ...], fact("patterns of files and folders")] = ()
    per_file_ignores: Annotated[dict[str, tuple[str, ...]], fact("rules by pattern of files")] = {}
    confidence: Confidence | None = None
    fail_on: FailOn = "never"


def read_project() -> Project:
    """The table of the nearest file that has one; none is an empty one. Raises ConfigError that names the file."""
    place = os.getcwd()
    while True:
        path = os.path.join(place, FILE)
        if os.path.isfile(path) and (table := _table(path)) is not None:
            try:
                return convert(table, Project)
            except ValueError as error:
                raise ConfigError(f"{path}: [tool.sysperf.lint]: {error}", f"it may have {KEYS}") from None
        above = os.path.dirname(place)
        if above == place:
            return Project()
        place = above


def _table(path: str) -> object:
    """The table of a file; None where it has none. Raises ConfigError."""
    import tomli  # noqa: PLC0415 - most folders have no such file

    try:
        data: object = tomli.loads(read_bytes(path).decode())
    except (Unreadable, UnicodeDecodeError, RecursionError, tomli.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}", "mend it, or name another file with --config") from None
    for name in ("tool", "sysperf", "lint"):
        data = data.get(name) if isinstance(data, dict) else None
    return data
