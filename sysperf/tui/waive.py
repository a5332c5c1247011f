"""Accepting a finding from the dashboard: an entry in `.sysperf.toml`, added behind what is there, and taken back."""

from __future__ import annotations

import datetime
import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from sysperf.host import files
from sysperf.model.errors import ConfigError, UsageError
from sysperf.model.outcome import Outcome

FILE = Path(".sysperf.toml")
DEFAULT_EXPIRY = "30d"
FOREVER = "never"
MAX_DAYS = 3_650
_ANY_PROCESS = " (pid *)"
_BY_HAND = "write the waiver by hand: docs/configuration.md"


class Written(NamedTuple):
    """A waiver that was added to a file."""

    path: str
    text: str
    rule: str
    subject: str
    """The pattern of the subjects that it accepts; empty for all."""

    def covers(self, outcome: Outcome) -> bool:
        """Whether it accepts this finding, too."""
        return outcome.rule == self.rule and fnmatchcase(outcome.subject, self.subject or "*")


def write(outcome: Outcome, reason: str, expires: datetime.date | None, path: Path = FILE) -> Written:
    """Add a waiver with the reach that `reach` names. Raises ConfigError, with the file as it was."""
    text = entry(outcome, reason, expires)
    before = _read(path)
    _replace(path, before + ("" if before.endswith("\n") or not before else "\n") + ("\n" if before else "") + text)
    return Written(str(path), text, outcome.rule, _pattern(outcome))


def take_back(written: Written) -> None:
    """Remove a waiver again. Raises ConfigError when the file does not hold it any more, with the file as it is."""
    path = Path(written.path)
    before, found, after = _read(path).rpartition(written.text)
    if not found:
        raise ConfigError(f"{path}: the waiver is not there any more: somebody has changed the file", "remove it by hand")
    _replace(path, before.removesuffix("\n") + after)


def entry(outcome: Outcome, reason: str, expires: datetime.date | None) -> str:
    """The waiver as TOML."""
    lines = ["[[waive]]", f"rule = {_quoted(outcome.rule)}", f"reason = {_quoted(reason)}"]
    if pattern := _pattern(outcome):
        lines.append(f"subject = {_quoted(pattern)}")
    if expires is not None:
        lines.append(f"expires = {expires.isoformat()}")
    return "\n".join(lines) + "\n"


def reach(outcome: Outcome) -> str:
    """What a waiver of this finding accepts, for the question: a process number would never match again."""
    if outcome.scope == "process" and outcome.subject:
        name = outcome.subject.rpartition(" (pid ")[0]
        return f"every program named {name or '?'}, of every user, now and later: `subject = {_quoted(_pattern(outcome))}`"
    if outcome.subject:
        return f"{outcome.subject} only"
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


def _pattern(outcome: Outcome) -> str:
    """The subjects that are meant; empty for a finding about the machine."""
    if outcome.scope == "process":
        return _literal(outcome.subject.rpartition(" (pid ")[0]) + _ANY_PROCESS if outcome.subject else ""
    return _literal(outcome.subject)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.exists() else ""
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
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False).replace("\x7f", "\\u007f")


def _literal(subject: str) -> str:
    """A pattern that matches this subject only."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in subject)
