"""Rule files: found in folders, read with bounds, decoded strictly."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from sysperf.host.plain_files import open_named
from sysperf.model.errors import RuleError
from sysperf.model.path import StrPath
from sysperf.model.record import JsonObject, convert
from sysperf.model.rule import Rule, RuleFile

if TYPE_CHECKING:
    from sysperf.model.cause import CauseFile

MAX_FILE_BYTES = 2 << 20
MAX_FILES = 200
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_OF_ONE_LINE = frozenset(("applies", "when", "message", "cost", "work", "saves", "saves_least"))
_ID = r"[a-z0-9]+([.-][a-z0-9]+)+"


def read_file(path: StrPath) -> RuleFile:
    """Decode one rule file strictly, its causes' witnesses as rules behind its own. Raises RuleError."""
    file = read_causes(path)
    rules = (*file.rule, *(rule for cause in file.cause for rule in cause.rules()))
    _check_names(rules, path)
    name = os.path.basename(path)
    return RuleFile(
        schema=file.schema,
        pack=file.pack,
        table=file.table,
        rule=tuple(msgspec.structs.replace(rule, file=name) for rule in rules),
        override=file.override,
    )


def read_causes(path: StrPath) -> CauseFile:
    """Decode one rule file strictly, its causes as they are written. Raises RuleError."""
    import tomli  # noqa: PLC0415 - 7 ms; audits read the decoded rules from a cache

    from sysperf.model.cause import CauseFile  # noqa: PLC0415 - as below

    try:
        with open(open_named(path), "rb") as file:
            _refuse_foreign(path, os.fstat(file.fileno()))
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise RuleError(f"{path}: {error.strerror or error}", "name a rule file that you can read") from None
    if len(raw) > MAX_FILE_BYTES:
        raise RuleError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB", "split it, or move data out of it")
    try:
        data = tomli.loads(raw.decode())
    except (ValueError, RecursionError) as error:  # TOML and UTF-8 errors, and numbers of more than 4,300 digits
        raise RuleError(f"{path}: not TOML: {error}", "docs/rules.md describes the format") from None
    try:
        data = _with_named(data, data.pop("let", {}))
        return convert(_folded(data), CauseFile)
    except (ValueError, RecursionError) as error:
        raise RuleError(f"{path}: {_readable(str(error), data)}", "docs/rules.md describes the format") from None


def _with_named(data: JsonObject, named: JsonObject) -> JsonObject:
    """Write the expressions of the file's table `let` where a rule, a cause or a later one of them says ``let.NAME``. Raises ValueError."""
    import re  # noqa: PLC0415 - decoded rules are in the cache

    if not isinstance(named, dict) or not all(isinstance(text, str) and name.isidentifier() for name, text in named.items()):
        raise ValueError("`let` is a table of names, each with an expression")
    known: dict[str, str] = {}
    size = 0

    def expression(match: re.Match[str]) -> str:
        nonlocal size
        if match[1] not in known:
            raise ValueError(f"`{match[0][:60]}`: the file's table `let` has no such name above it")
        size += len(known[match[1]])
        if size > MAX_FILE_BYTES:  # names of names could double it without end
            raise ValueError(f"with its table `let` written out it is larger than {MAX_FILE_BYTES >> 20} MiB")
        return f"({known[match[1]]})"

    def written(value: object) -> object:
        if isinstance(value, str):
            return re.sub(r"\blet\.(\w+)", expression, value)
        if isinstance(value, list):
            return [written(one) for one in value]
        return {name: written(one) for name, one in value.items()} if isinstance(value, dict) else value

    for name, text in named.items():
        known[name] = _line(str(written(text)))
    return {name: written(value) for name, value in data.items()} if named else data


def _folded(value: object) -> object:
    """Conditions and messages of one line each: a file may write them on several."""
    if isinstance(value, list):
        return [_folded(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _line(one) if name in _OF_ONE_LINE and isinstance(one, str) else _folded(one) for name, one in value.items()}


def _line(text: str) -> str:
    return " ".join(line.strip() for line in text.strip().split("\n"))


def _readable(message: str, data: JsonObject) -> str:
    """`Object contains unknown field` and its like, with the id of the rule or cause it speaks of."""
    import re  # noqa: PLC0415 - errors only

    match = re.search(r"\$\.(rule|cause)\[(\d+)\]", message)
    if match:
        entries = data.get(match[1], [])
        entry = entries[int(match[2])] if int(match[2]) < len(entries) else {}
        return f"{message} ({match[1]} `{entry.get('id', '?')}`)"
    return message


def _check_names(rules: Sequence[Rule], path: StrPath) -> None:
    import re  # noqa: PLC0415 - decoded rules are in the cache

    from sysperf.model import experiment  # noqa: PLC0415 - as above

    seen: set[str] = set()
    for rule in rules:
        if not re.fullmatch(_ID, rule.id):
            raise RuleError(f"{path}: `{rule.id[:60]}` is no rule id", "ids are dotted lower-case words: numa.balancing-on")
        if rule.key in seen:
            hint = "witnesses of one source need a `name` each" if rule.witness else ""
            raise RuleError(f"{path}: `{rule.key}` is defined twice", hint)
        seen.add(rule.key)
        if rule.measure is not None and (name := rule.measure.experiment) not in experiment.EXPERIMENTS:
            known = ", ".join(experiment.EXPERIMENTS)
            raise RuleError(f"{path}: `{rule.id}`: `{name[:60]}` is no experiment of sysperf", f"experiments are {known}")


def _refuse_foreign(path: StrPath, status: os.stat_result) -> None:
    """Root believes only rules that nobody else can write, and those that come with the code that it runs."""
    if os.geteuid() != 0 or _comes_with_code(path, status):
        return
    files = f"{os.path.dirname(os.path.abspath(path))}/*.toml"
    if status.st_uid != 0:
        raise RuleError(f"{path}: owned by uid {status.st_uid}, and root reads only its own rules", f"sudo chown root {files}")
    if status.st_mode & _WRITABLE:
        raise RuleError(f"{path}: others may write it, and root reads only rules that only root can write", f"sudo chmod go-w {files}")


def _comes_with_code(path: StrPath, status: os.stat_result) -> bool:
    """Whether it is one of our rules, which nobody can write who could not write this code: root runs a user's checkout as it is."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not os.path.abspath(path).startswith((f"{package}/rules/", f"{os.path.dirname(package)}/rules/")):
        return False
    code = os.stat(__file__)
    return status.st_uid in (0, code.st_uid) and not status.st_mode & ~code.st_mode & _WRITABLE


def site_files(folders: Iterable[str], extra: Iterable[StrPath] = ()) -> list[str]:
    """The rule files of the site's folders, then those named on the command line (files or folders)."""
    files = [path for folder in folders for path in toml_files(folder)]
    for place in (os.fspath(path) for path in extra):
        files += toml_files(place) if os.path.isdir(place) else [place]
    return files


def toml_files(folder: str) -> list[str]:
    """The TOML files of a folder by name; none where there is no such folder. Raises RuleError: rules that cannot be read are not none."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".toml"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RuleError(f"{folder}: {error.strerror}", "let its users read the site's rules, or remove the folder") from None
    return [f"{folder}/{name}" for name in names[:MAX_FILES]]
