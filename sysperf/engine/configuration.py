"""Configuration: waivers, overrides and defaults in TOML; and the baseline file.

Read in this order, all that are there: /etc/sysperf/config.toml, ~/.config/sysperf/config.toml, ./.sysperf.toml.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Annotated

import msgspec

from sysperf import paths
from sysperf.evaluate.accepted import Baseline, Waiver
from sysperf.host.plain_files import Foreign, read_orders
from sysperf.model.agent_settings import Settings
from sysperf.model.errors import ConfigError
from sysperf.model.path import StrPath
from sysperf.model.record import Json, Record, convert, fact, from_json, plain
from sysperf.model.rule import FailOn, Override

BASELINE = ".sysperf-baseline.json"
MAX_BYTES = 8 << 20


class Config(Record):
    """What a site or a project says about audits."""

    waive: tuple[Waiver, ...] = ()
    override: tuple[Override, ...] = ()
    rules: Annotated[tuple[str, ...], fact("more rule files or folders")] = ()
    reference: Annotated[str, fact("report or capture of a good machine to compare with")] = ""
    fail_on: FailOn = "warning"
    agent: Annotated[Settings, fact("how `sysperf agent` runs; docs/agent.md")] = Settings()


class Chosen(Record):
    """A setting in force, and where its value stands."""

    name: str
    value: Json
    file: Annotated[str, fact("empty: the default")] = ""


def chosen(only: StrPath | None = None) -> list[Chosen]:
    """Every setting with its value and its file, each waiver, override and rule folder by itself. Raises ConfigError."""
    config = read_config(only)
    given: dict[str, list[tuple[Json, str]]] = {}
    for path in _files(only):
        for name, value in _read(path).items():
            if isinstance(value, list):
                given.setdefault(name, []).extend((item, str(path)) for item in value)
            elif isinstance(value, dict):
                given = {known: values for known, values in given.items() if not known.startswith(f"{name}.")}
                given |= {f"{name}.{part}": [(setting, str(path))] for part, setting in value.items()}
            else:
                given[name] = [(value, str(path))]
    settings = []
    for name, value in _flat(config):
        settings += [Chosen(name, plain(item), file) for item, file in given.get(name, [(value, "")])]
    return settings


def _flat(config: Config) -> Iterator[tuple[str, object]]:
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if isinstance(value, Record):
            yield from ((f"{name}.{part}", getattr(value, part)) for part in value.__struct_fields__)
        else:
            yield name, value


def _files(only: StrPath | None) -> list[StrPath]:
    """The files that are read, in this order."""
    return [only] if only else [path for path in paths.config_files() if os.path.isfile(path)]


def read_config(only: StrPath | None = None) -> Config:
    """The merged configuration. Raises ConfigError that names the file and the place."""
    merged: dict[str, object] = {}
    for path in _files(only):
        for name, value in _read(path).items():
            earlier = merged.get(name)
            merged[name] = [*earlier, *value] if isinstance(earlier, list) and isinstance(value, list) else value
    try:
        return convert(merged, Config)
    except ValueError as error:
        raise ConfigError(f"configuration: {error}", "docs/configuration.md describes it") from None


def _read(path: StrPath) -> dict[str, object]:
    import tomli  # noqa: PLC0415 - most audits have no configuration

    try:
        data = tomli.loads(_bytes(path).decode())
        convert(data, Config)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", "name a TOML file that you can read") from None
    except (tomli.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {error}", "docs/configuration.md describes the file") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}", _hint(str(error))) from None
    return data


def _hint(problem: str) -> str:
    if "$.waive" in problem:
        return "a waiver has rule, reason, and perhaps expires = 2027-01-31 and subject"
    if "$.override" in problem:
        return "an override has rule, and severity, params or disabled"
    if "$.fail_on" in problem:
        return "fail_on is error, warning, info, hint or never"
    table, record = ("[agent]", Settings) if "$.agent" in problem else ("it", Config)
    return f"{table} may have {', '.join(field.name for field in msgspec.structs.fields(record))}; docs/{_PAGES[record]} says more"


_PAGES: dict[type[Record], str] = {Settings: "agent.md", Config: "configuration.md"}


def _bytes(path: StrPath) -> bytes:
    """The content of a file. Raises ConfigError, and OSError where it cannot be read."""
    try:
        return read_orders(path, MAX_BYTES)
    except Foreign as error:
        otherwise = "where another folder is the current one, it is not read" if path in (paths.PROJECT, BASELINE) else "or name another"
        raise ConfigError(f"{path}: {error.strerror}", f"{error.cure()}; {otherwise}") from None
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        raise ConfigError(f"{path}: larger than {MAX_BYTES >> 20} MiB", "is it the right file?") from None


def read_baseline(path: StrPath | None) -> Baseline | None:
    """The accepted findings of this file, or of the usual one when it is there. Raises ConfigError."""
    chosen = path or BASELINE
    if path is None and not os.path.isfile(chosen):
        return None
    try:
        baseline: Baseline = from_json(_bytes(chosen), Baseline)
    except OSError as error:
        raise ConfigError(f"{chosen}: {error.strerror or error}", "write one with `sysperf baseline`") from None
    except ValueError as error:
        raise ConfigError(
            f"{chosen}: no baseline of this version: {error}", "remove it and write a new one with `sysperf baseline`"
        ) from None
    return baseline
