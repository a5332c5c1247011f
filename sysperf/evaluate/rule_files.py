"""Rule files: found in folders, read with bounds, decoded strictly."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

import msgspec

from sysperf.model.errors import RuleError
from sysperf.model.path import StrPath
from sysperf.model.record import Json, JsonObject, convert
from sysperf.model.rule import Experiment, Rule, RuleFile

MAX_FILE_BYTES = 2 << 20
MAX_FILES = 200
WITHDRAWN_RULE_FIELDS = ("rev", "tags", "replaced_by")
WITHDRAWN_PACK_FIELDS = ("data_as_of",)
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_ID = r"[a-z0-9]+([.-][a-z0-9]+)+"


def read_file(path: StrPath) -> RuleFile:
    """Decode one rule file strictly. Raises RuleError."""
    import tomli  # noqa: PLC0415 - 7 ms; audits read the decoded rules from a cache

    try:
        with open(path, "rb") as file:
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
    notes = _without_withdrawn_fields(data, os.path.basename(path))
    try:
        file_record: RuleFile = msgspec.structs.replace(convert(data, RuleFile), notes=notes)
    except (msgspec.ValidationError, ValueError) as error:
        raise RuleError(f"{path}: {_readable(str(error), data)}", "docs/rules.md describes the format") from None
    return _named(file_record, path)


def _without_withdrawn_fields(data: JsonObject, name: str) -> tuple[str, ...]:
    """Drop fields that earlier versions accepted and nothing ever read, so that a site's files still load; a note of each."""
    rules = data.get("rule")
    tables: list[tuple[Json, tuple[str, ...]]] = [(data.get("pack"), WITHDRAWN_PACK_FIELDS)]
    tables += [(rule, WITHDRAWN_RULE_FIELDS) for rule in (rules if isinstance(rules, list) else ())]
    dropped = {field for table, fields_ in tables if isinstance(table, dict) for field in fields_ if table.pop(field, None) is not None}
    return tuple(f"`{field}` in {name} has no effect: remove it" for field in sorted(dropped))


def _readable(message: str, data: JsonObject) -> str:
    """`Object contains unknown field` and its like, with the id of the rule it speaks of."""
    import re  # noqa: PLC0415 - errors only

    match = re.search(r"\$\.rule\[(\d+)\]", message)
    if match:
        rules = data.get("rule", [])
        rule = rules[int(match[1])] if int(match[1]) < len(rules) else {}
        return f"{message} (rule `{rule.get('id', '?')}`)"
    return message


def _named(file: RuleFile, path: StrPath) -> RuleFile:
    import re  # noqa: PLC0415 - errors only

    seen: set[str] = set()
    for rule in file.rule:
        if not re.fullmatch(_ID, rule.id):
            raise RuleError(f"{path}: `{rule.id[:60]}` is no rule id", "ids are dotted lower-case words: numa.balancing-on")
        if rule.id in seen:
            raise RuleError(f"{path}: `{rule.id}` is defined twice")
        seen.add(rule.id)
    name = os.path.basename(path)
    return msgspec.structs.replace(
        file, rule=tuple(msgspec.structs.replace(rule, file=name, measure=_known_experiment(rule, path)) for rule in file.rule)
    )


def _known_experiment(rule: Rule, path: StrPath) -> Experiment | None:
    """The rule's experiment by today's name. Raises RuleError for one that sysperf has not."""
    if rule.measure is None:
        return None
    from sysperf.model import experiment  # noqa: PLC0415 - decoded rules are in the cache

    name = experiment.today(rule.measure.experiment, rule.measure.knob)
    if name not in experiment.EXPERIMENTS:
        known = ", ".join(experiment.EXPERIMENTS)
        raise RuleError(f"{path}: `{rule.id}`: `{name[:60]}` is no experiment of sysperf", f"experiments are {known}")
    return msgspec.structs.replace(rule.measure, experiment=name)


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
    if os.path.dirname(os.path.abspath(path)) not in (f"{package}/rules", f"{os.path.dirname(package)}/rules"):
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
