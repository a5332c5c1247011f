"""Accepting a finding from the dashboard: an entry in `.sysperf.toml`, added behind what is there, and taken back."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import NamedTuple

from sysperf.engine.configuration import MAX_BYTES
from sysperf.evaluate.accepted import Waiver, literal, waiver_for
from sysperf.host import files
from sysperf.host.plain_files import read_named
from sysperf.model.errors import ConfigError, UsageError
from sysperf.model.finding import Finding
from sysperf.model.record import to_json

FILE = Path(".sysperf.toml")
DEFAULT_EXPIRY = "30d"
FOREVER = "never"
ANY = "*"
MAX_DAYS = 3_650
_ANY_PROCESS = " (pid *)"
_BY_HAND = "write the waiver by hand: docs/configuration.md"


class Written(NamedTuple):
    """A waiver that was added to a file."""

    path: str
    text: str
    waiver: Waiver

    def covers(self, outcome: Finding) -> bool:
        """Whether it accepts this finding, too."""
        return outcome.rule == self.waiver.rule and self.waiver.covers(outcome)


def write(outcome: Finding, reason: str, expires: datetime.date | None, path: Path = FILE) -> Written:
    """Add a waiver with the reach that `reach` names. Raises ConfigError, with the file as it was."""
    waiver = _waiver(outcome, reason, expires)
    text = entry(waiver)
    before = _read(path)
    _replace(path, before + ("" if before.endswith("\n") or not before else "\n") + ("\n" if before else "") + text)
    return Written(str(path), text, waiver)


def take_back(written: Written) -> None:
    """Remove a waiver again. Raises ConfigError when the file does not hold it any more, with the file as it is."""
    path = Path(written.path)
    before, waiver, after = _read(path).rpartition(written.text)
    if not waiver:
        raise ConfigError(f"{path}: the waiver is not there any more: somebody has changed the file", "remove it by hand")
    _replace(path, before.removesuffix("\n") + after)


def entry(waiver: Waiver) -> str:
    """The waiver as TOML."""
    given = {"rule": waiver.rule, "reason": waiver.reason}
    given |= {name: pattern for name in ("subject", "program", "user") if (pattern := getattr(waiver, name)) != ANY}
    lines = ["[[waive]]", *(f"{name} = {_quoted(text)}" for name, text in given.items())]
    if waiver.expires is not None:
        lines.append(f"expires = {waiver.expires.isoformat()}")
    return "\n".join(lines) + "\n"


def reach(outcome: Finding) -> str:
    """What a waiver of this finding accepts, for the question: a process number would never match again."""
    waiver = _waiver(outcome, "to be asked", None)
    if outcome.scope == "process":
        return f"every {waiver.reach().removeprefix('every ')}, those that start later too"
    if outcome.about:
        return f"{waiver.reach()} only"
    return "this machine, and every other that reads the file"


def expiry(text: str, today: datetime.date) -> datetime.date | None:
    """``30d`` or ``2027-03-31``; None for ``never``. Raises UsageError."""
    text = text.strip().lower()
    if text == FOREVER:
        return None
    days = text.removesuffix("d")
    if days.isascii() and days.isdigit() and 0 < int(days[:6]) <= MAX_DAYS:
        return today + datetime.timedelta(days=int(days))
    try:
        date = datetime.date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text[:40]!r} is no end of a waiver", "such as 30d, 2027-03-31 or never") from None
    if date < today:
        raise UsageError(f"{date} is over", "such as 30d, 2027-03-31 or never")
    return date


def _waiver(outcome: Finding, reason: str, expires: datetime.date | None) -> Waiver:
    """Write a waiver for the program and its owner, where they are known; else for the programs of this name."""
    if outcome.scope == "process" and outcome.about and not outcome.subject.program:
        return Waiver(outcome.rule, reason, expires, subject=literal(outcome.subject.common_name) + _ANY_PROCESS)
    return waiver_for(outcome, reason, expires)


def _read(path: Path) -> str:
    try:
        return read_named(path, MAX_BYTES).decode() if path.exists() else ""
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}", _BY_HAND) from None


def _replace(path: Path, content: str) -> None:
    import tomli  # noqa: PLC0415 - only who waives

    try:
        tomli.loads(content)
        files.replace(str(path), content.encode())
    except (tomli.TOMLDecodeError, OSError, UnicodeError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}", _BY_HAND) from None


def _quoted(text: str) -> str:
    """A basic string of TOML, whose escapes are JSON's; DEL is one of its own."""
    return to_json(text.encode("utf-8", "replace").decode()).decode().replace("\x7f", "\\u007f")
